/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/asker.h"

#include "base/log.h"

#include <stdlib.h>

static void copy(char *out, size_t size, struct str s)
{
    size_t n = s.n < size ? s.n : size - 1;
    if (n > 0)
        memcpy(out, s.p, n);
    out[n] = '\0';
}

struct asker *asker_new(struct snapshot *s, const struct agent *agent, struct str client, struct str conn_id,
                        struct str request_id)
{
    struct asker *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->refs = 1;
    a->snapshot = snapshot_ref(s);
    a->agent = agent;
    copy(a->client, sizeof a->client, client);
    copy(a->conn_id, sizeof a->conn_id, conn_id);
    copy(a->request_id, sizeof a->request_id, request_id);
    return a;
}

struct asker *asker_ref(struct asker *a)
{
    MUST(a->refs > 0);
    a->refs++;
    return a;
}

void asker_unref(struct asker **ap)
{
    struct asker *a = *ap;
    *ap = NULL;
    if (!a || --a->refs > 0)
        return;
    snapshot_unref(&a->snapshot);
    free(a);
}

/* What asks for us would ask for anybody: over TCP port 53 a tunnel to it is one to every name server there is. In every form of its
 * address, as our own listeners. */
static bool is_dns_server(const struct snapshot *s, const struct rule *rule, const struct ip *ip, uint16_t port)
{
    struct ip ips[DNS_SERVERS_MAX];
    uint16_t ports[DNS_SERVERS_MAX];
    struct own_addresses servers = { ips, ports, 0 };
    const char *why;
    for (size_t i = 0; i < s->nservers; i++)
        if (s->servers[i].port == port) {
            ips[servers.n] = s->servers[i].ip;
            ports[servers.n++] = port;
        }
    return servers.n > 0 && address_guard(s->policy, rule, ip, port, &servers, &why) != END_OK;
}

enum end asker_vet(const struct asker *a, const struct own_addresses *own, const struct ip *ips, size_t n,
                   const struct ip **ret_bad, const char **ret_why)
{
    /* A parent proxy is usually on loopback or a private network. Everything may be opened for it but what never opens:
     * metadata addresses and our own listeners. */
    static struct cidr everywhere[] = { { .net = { .family = 4 } }, { .net = { .family = 6 } } };
    static const struct rule operators = { .action = RULE_ALLOW, .allow_addresses = everywhere, .nallow_addresses = 2 };
    const struct rule *rule = a->operators ? &operators : a->rule;
    for (size_t i = 0; i < n; i++) {
        bool bad = address_guard(a->snapshot->policy, rule, &ips[i], a->port, own, ret_why) != END_OK;
        if (!bad && is_dns_server(a->snapshot, rule, &ips[i], a->port)) {
            *ret_why = "a DNS server of ours";
            bad = true;
        }
        if (bad) {
            *ret_bad = &ips[i];
            return END_ADDRESS_DENIED;
        }
    }
    return END_OK;
}
