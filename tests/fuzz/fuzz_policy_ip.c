/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses: what we accept, inet_pton reads as the same bytes; the numeric reader and the guard take anything. */
#include "policy/policy.h"

#include <arpa/inet.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            abort();                                                                                                   \
    } while (0)

static void check_text(struct str text)
{
    struct ip ip = { 0 }, again = { 0 };
    char z[64] = "", formatted[46];
    uint8_t theirs[16];
    bool ours = !ip_parse(text, &ip);
    if (text.n >= sizeof z || (text.n && memchr(text.p, 0, text.n))) {
        CHECK(!ours);
        return;
    }
    if (text.n)
        memcpy(z, text.p, text.n);
    bool v6 = strchr(z, ':');
    CHECK(ours == (inet_pton(v6 ? AF_INET6 : AF_INET, z, theirs) == 1));
    if (!ours)
        return;
    CHECK(ip.family == (v6 ? 6 : 4) && !memcmp(ip.b, theirs, v6 ? 16 : 4));
    ip_format(&ip, formatted);
    CHECK(!ip_parse(str_c(formatted), &again) && ip_equal(&ip, &again));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct policy *policy;
    struct str text = str_of(data, size);
    struct cidr c;
    struct ip ip = { 0 };
    if (!policy) {
        struct diag diag;
        diag_init(&diag);
        policy = policy_new(config_parse(STR("f"), STR("/"),
                                         STR("version: 1\norigin: {allow_addresses: [0.0.0.0/0, \"::/0\"]}\n"), &diag),
                            NULL, 0, &diag);
        CHECK(policy);
        diag_done(&diag);
    }
    check_text(text);
    int numeric = ip_parse_numeric(text, &ip);
    CHECK(numeric >= -1 && numeric <= 1 && (numeric != 1 || ip.family == 4));
    if (!cidr_parse(text, &c))
        CHECK(cidr_contains(&c, &c.net));
    if (size == 4 || size == 16) {
        const char *why = "";
        ip = (struct ip) { .family = size == 4 ? 4 : 6 };
        memcpy(ip.b, data, size);
        enum end e = address_guard(policy, NULL, &ip, 443, NULL, &why);
        CHECK(e == END_OK || e == END_ADDRESS_DENIED);
        static const uint8_t metadata[4] = { 169, 254, 169, 254 };
        if (size == 4 && !memcmp(data, metadata, 4))
            CHECK(e == END_ADDRESS_DENIED);
    }
    return 0;
}
