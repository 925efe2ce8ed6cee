/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/resolv_conf.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct resolv_conf c;
    resolv_conf_parse(str_of(data, size), &c);
    if (c.n > DNS_SERVERS_MAX)
        abort();
    for (size_t i = 0; i < c.n; i++)
        if ((c.servers[i].ip.family != 4 && c.servers[i].ip.family != 6) || c.servers[i].port == 0)
            abort();
    return 0;
}
