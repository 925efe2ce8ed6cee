/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/virtual_host.h"

enum end virtual_host_name(const struct view *v, struct str agent, struct host *host, struct ip *ret_said)
{
    struct host name;
    *ret_said = (struct ip) { 0 };
    if (!host_is_ip(host) || !address_pool_contains(&v->config->synthetic_pool, &host->ip))
        return END_OK;
    if (!v->names || !virtual_table_find(v->names, &host->ip, agent, &name))
        return END_ADDRESS_UNKNOWN;
    *ret_said = host->ip;
    *host = name;
    return END_OK;
}

bool virtual_host_same(const struct host *host, const struct ip *said, const struct host *in_message)
{
    if (said->family && host_is_ip(in_message)) {
        struct ip a = ip_unmapped(said), b = ip_unmapped(&in_message->ip);
        return ip_equal(&a, &b);
    }
    return host_eq(host, in_message);
}
