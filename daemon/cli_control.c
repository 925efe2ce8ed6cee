/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *text(const json_t *root, const char *key)
{
    const char *s = json_string_value(json_object_get(root, key));
    return s ? s : "";
}

static long long number(const json_t *root, const char *key)
{
    return (long long)json_integer_value(json_object_get(root, key));
}

static void print_status(const json_t *root)
{
    const json_t *role, *audit = json_object_get(root, "audit");
    size_t i;
    printf("outgate %s: %s, mode %s, snapshot %s, up %lld s\n", text(root, "version"), text(root, "state"),
           text(root, "mode"), text(root, "snapshot"), number(root, "uptime_s"));
    printf("configuration %s\n", text(root, "config"));
    json_array_foreach(json_object_get(root, "roles"), i, role)
        printf("%-10s %lld  pid %-8lld uid %-6lld %-9s %lld restarts\n", text(role, "name"), number(role, "index"),
               number(role, "pid"), number(role, "uid"), text(role, "state"), number(role, "restarts"));
    json_array_foreach(json_object_get(root, "workers"), i, role)
        printf("worker %lld: %lld clients, %lld requests, %lld refused, %lld pooled\n", number(role, "index"),
               number(role, "clients"), number(role, "requests"), number(role, "refused"), number(role, "pooled"));
    printf("audit: %lld events, seq %lld%s%s\n", number(audit, "lines"), number(audit, "seq"),
           json_is_true(json_object_get(audit, "blocked")) ? ", BLOCKED: " : "", text(audit, "blocked_why"));
}

int cli_status(const struct cli *cli)
{
    struct control_request q = { .command = CONTROL_STATUS };
    json_t *root = NULL;
    int r = control_command(cli, &q, &root);
    if (r)
        return r;
    if (cli->json)
        r = control_print_json(root);
    else
        print_status(root);
    json_decref(root);
    return r;
}

static int simple(const struct cli *cli, enum control_command command, const char *done)
{
    struct control_request q = { .command = command };
    json_t *root = NULL;
    int r = control_command(cli, &q, &root);
    if (r)
        return r;
    if (cli->json)
        r = control_print_json(root);
    else
        printf("%s (snapshot %s)\n", done, text(root, "snapshot"));
    json_decref(root);
    return r;
}

int cli_reload(const struct cli *cli)
{
    return simple(cli, CONTROL_RELOAD, "reloaded");
}

int cli_drain(const struct cli *cli)
{
    return simple(cli, CONTROL_DRAIN, "draining");
}

int cli_lease_list(const struct cli *cli)
{
    struct control_request q = { .command = CONTROL_LEASE_LIST };
    json_t *root = NULL;
    int r = control_command(cli, &q, &root);
    if (r)
        return r;
    json_t *leases = json_object_get(root, "leases"), *l;
    size_t i;
    if (cli->json)
        r = control_print_json(leases);
    else
        json_array_foreach(leases, i, l)
            printf("%-36s %-20s %-16s %s:%lld until %s\n", text(l, "lease_id"), text(l, "credential"), text(l, "agent"),
                   text(l, "host"), number(l, "port"), text(l, "expires_at"));
    json_decref(root);
    return r;
}

int cli_lease_revoke(const struct cli *cli)
{
    struct control_request q = { .command = CONTROL_LEASE_REVOKE };
    const char *id = cli->nargs ? cli->args[0] : "", *credential = cli->credential ? cli->credential : "";
    if (!id[0] == !credential[0])
        return cli_fail(CLI_USAGE, "lease revoke: name a lease id or --credential NAME, one of them");
    if (strlen(id) >= sizeof q.lease_id || strlen(credential) >= sizeof q.credential)
        return cli_fail(CLI_USAGE, "lease revoke: the name is too long");
    snprintf(q.lease_id, sizeof q.lease_id, "%s", id);
    snprintf(q.credential, sizeof q.credential, "%s", credential);
    json_t *root = NULL;
    int r = control_command(cli, &q, &root);
    if (r)
        return r;
    long long n = number(root, "revoked");
    if (cli->json)
        r = control_print_json(root);
    else
        printf("%lld lease%s revoked\n", n, n == 1 ? "" : "s");
    json_decref(root);
    return r ? r : n ? CLI_OK : CLI_NO;
}
