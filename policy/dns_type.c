/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/dns_type.h"

#include <stdio.h>

static const struct {
    uint16_t type;
    char name[DNS_TYPE_NAME];
} table[] = {
    { 1, "A" },       { 2, "NS" },    { 5, "CNAME" }, { 6, "SOA" },    { 10, "NULL" },  { 12, "PTR" },
    { 13, "HINFO" },  { 15, "MX" },   { 16, "TXT" },  { 28, "AAAA" },  { 33, "SRV" },   { 35, "NAPTR" },
    { 39, "DNAME" },  { 41, "OPT" },  { 43, "DS" },   { 44, "SSHFP" }, { 46, "RRSIG" }, { 47, "NSEC" },
    { 48, "DNSKEY" }, { 52, "TLSA" }, { 64, "SVCB" }, { 65, "HTTPS" }, { 99, "SPF" },   { 251, "IXFR" },
    { 252, "AXFR" },  { 255, "ANY" }, { 256, "URI" }, { 257, "CAA" },
};

const char *dns_type_format(uint16_t type, char out[DNS_TYPE_NAME])
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].type == type) {
            memcpy(out, table[i].name, DNS_TYPE_NAME);
            return out;
        }
    snprintf(out, DNS_TYPE_NAME, "TYPE%u", type);
    return out;
}

bool dns_type_parse(struct str text, uint16_t *ret)
{
    uint64_t number;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (str_eq(text, str_c(table[i].name))) {
            *ret = table[i].type;
            return true;
        }
    if (!str_starts(text, STR("TYPE")) || !str_to_u64(str_from(text, 4), UINT16_MAX, &number))
        return false;
    *ret = (uint16_t)number;
    return true;
}

const char dns_type_listables[] = "A, AAAA, CAA, MX, NS, PTR, SRV, SSHFP, TLSA or TXT";

bool dns_type_listable(uint16_t type)
{
    static const uint16_t types[] = { DNS_TYPE_A,   DNS_TYPE_AAAA, DNS_TYPE_CAA,   DNS_TYPE_MX,   DNS_TYPE_NS,
                                      DNS_TYPE_PTR, DNS_TYPE_SRV,  DNS_TYPE_SSHFP, DNS_TYPE_TLSA, DNS_TYPE_TXT };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i] == type)
            return true;
    return false;
}
