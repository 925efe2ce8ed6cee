/* SPDX-License-Identifier: Apache-2.0
 *
 * Streaming equals whole. Input: a byte of cuts' seed, then the values (each a length byte and bytes), a 0, then the
 * text. */
#include "mint/form.h"
#include "mint/scrub.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(x)                                                                                                       \
    do {                                                                                                               \
        if (!(x))                                                                                                      \
            abort();                                                                                                   \
    } while (0)

static struct lease *lease_of(struct str value, int64_t n)
{
    struct lease_spec s = { .id = STR("id"),
                            .credential = n % 2 ? STR("a") : STR("b"),
                            .agent = STR("coder"),
                            .value = value,
                            .expires_us = n + 1 };
    return lease_new(&s, NULL);
}

static struct lease_set *set_of(struct str *in)
{
    static const char *const placeholders[] = { "ghp_0123", "x", "og_a-rather-long-placeholder-for-a-short-value",
                                                "%/\"" };
    struct lease_set_item items[6];
    size_t n = 0;
    while (n < 6 && in->n && in->p[0]) {
        struct str value = str_sub(*in, 1, (unsigned char)in->p[0] % 32u);
        *in = str_from(*in, 1 + value.n);
        struct lease *l = lease_of(value, (int64_t)n);
        if (l)
            items[n] = (struct lease_set_item) { l, str_c(placeholders[n % 4]) }, n++;
    }
    *in = str_from(*in, 1);
    struct lease_set *s = lease_set_new(NULL, items, n, 1, NULL);
    CHECK(s);
    for (size_t i = 0; i < n; i++)
        lease_unref(&items[i].lease);
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > 4096)
        return 0;
    static bool ready;
    if (!ready)
        CHECK(!secret_init());
    ready = true;
    uint32_t seed = data[0];
    struct str in = str_of(data + 1, size - 1);
    struct lease_set *set = set_of(&in);
    struct buf whole, out;
    uint64_t hits = 0;
    buf_init(&whole, 1 << 22);
    buf_init(&out, 1 << 22);
    if (!scrub_text(set, in, &whole, &hits))
        buf_put(&whole, in);
    struct scrub s;
    scrub_init(&s, set);
    for (struct str rest = in; rest.n;) {
        seed = seed * 1103515245u + 12345u;
        struct str piece = str_sub(rest, 0, 1 + (seed >> 16) % (data[0] % 2 ? 3u : 50u));
        rest = str_from(rest, piece.n);
        struct str clean;
        if (seed >> 8 & 1 && scrub_clean(&s, piece, &clean))
            CHECK(!buf_put(&out, clean));
        else
            CHECK(!scrub_feed(&s, piece, false, &out));
        CHECK(!buf_size(&s.held) || buf_size(&s.held) < needles_longest(set->needles));
    }
    CHECK(!scrub_feed(&s, STR(""), true, &out));
    CHECK(str_eq(buf_str(&out), buf_str(&whole)));
    CHECK(s.hits == hits);
    scrub_done(&s);
    buf_done(&whole);
    buf_done(&out);
    lease_set_unref(&set);
    return 0;
}
