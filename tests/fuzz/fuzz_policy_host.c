/* SPDX-License-Identifier: Apache-2.0
 *
 * host_parse, authority_parse and host_pattern_parse: what is accepted is canonical, and its own canonical form. */
#include "base/buf.h"
#include "policy/host_pattern.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            abort();                                                                                                   \
    } while (0)

static void check_canonical(const struct host *h)
{
    struct host again;
    CHECK(h->n > 0 && h->n <= HOST_MAX && h->name[h->n] == 0);
    for (size_t i = 0; i < h->n; i++)
        CHECK((unsigned char)h->name[i] > 0x20 && (unsigned char)h->name[i] < 0x7f &&
              h->name[i] == ascii_lower(h->name[i]));
    CHECK(!host_parse(host_str(h), &again, NULL));
    CHECK(host_eq(h, &again) && host_is_ip(h) == host_is_ip(&again));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = str_of(data, size);
    struct host h;
    struct host_pattern p;
    struct err err;
    uint16_t port = 0;
    bool converted;
    if (!host_parse(text, &h, &err))
        check_canonical(&h);
    if (!host_parse_config(text, &h, &converted, &err))
        check_canonical(&h);
    if (!authority_parse(text, 443, &h, &port, &err)) {
        struct buf out;
        struct host again;
        uint16_t port_again = 0;
        check_canonical(&h);
        buf_init(&out, 1024);
        CHECK(port && !authority_put(&out, &h, port, 0));
        CHECK(!authority_parse(buf_str(&out), 0, &again, &port_again, NULL));
        CHECK(host_eq(&h, &again) && port == port_again);
        buf_done(&out);
    }
    if (!host_pattern_parse(text, &p, &converted, &err)) {
        CHECK(host_pattern_covers(&p, &p) || p.kind == PATTERN_EXACT);
        if (p.kind == PATTERN_SUFFIX)
            CHECK(!host_pattern_matches(&p, &p.host));
        if (p.kind == PATTERN_EXACT)
            CHECK(host_pattern_matches(&p, &p.host));
    }
    return 0;
}
