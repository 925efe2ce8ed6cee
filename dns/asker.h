/* SPDX-License-Identifier: Apache-2.0
 *
 * asker: for whom a look-up or a dial is made, under which snapshot and by which rule. Shared, because a look-up that
 * has left is recorded in its asker's name even when the dial that wanted it is gone. */
#ifndef DNS_ASKER_H
#define DNS_ASKER_H

#include "dns/answer_set.h"
#include "dns/name_shown.h"
#include "dns/snapshot.h"

enum { ASKER_CLIENT = 65 };
struct asker {
    unsigned refs;
    struct snapshot *snapshot;
    const struct agent *agent; /* the snapshot's; never NULL */
    const struct rule *rule;   /* whose allow_addresses hold; NULL: none */
    uint16_t port;
    bool observe;   /* what a rule would refuse is let through */
    bool operators; /* the parent proxy's name: an operator wrote it, the agent did not ask for it */
    bool tells;     /* a question of the DNS port that is not answered yet: its own event will say what the look-up brought */
    char client[ASKER_CLIENT], conn_id[33], request_id[33];
    char dns_id[ANSWER_ID]; /* the look-up that is made for it is recorded under this; "": a new one */
    char shown[NAME_SHOWN]; /* its name as the log shows it; "": as it is */
};

/* References the snapshot. NULL when out of memory. */
struct asker *asker_new(struct snapshot *s, const struct agent *agent, struct str client, struct str conn_id,
                        struct str request_id);
struct asker *asker_ref(struct asker *a);
void asker_unref(struct asker **a);

/* Judges a set of addresses: one bad address spoils it. Bad is what the guard refuses (address_guard), and the servers that look
 * names up for us at their port, whoever asks. END_OK or END_ADDRESS_DENIED with the address and a static
 * word. */
enum end asker_vet(const struct asker *a, const struct own_addresses *own, const struct ip *ips, size_t n,
                   const struct ip **ret_bad, const char **ret_why);

#endif
