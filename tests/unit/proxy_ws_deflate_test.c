/* SPDX-License-Identifier: Apache-2.0
 *
 * permessage-deflate: offers and answers as tables; messages of RFC 7692 7.2.3, of a compressor with and without context, cut in every
 * way; bombs. */
#include "proxy/ws_deflate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka needs the ones above */
#include <cmocka.h>

static const struct {
    const char *in, *out;
} offers[] = {
    { "permessage-deflate", "permessage-deflate" },
    { "permessage-deflate; client_max_window_bits", "permessage-deflate; client_max_window_bits" },
    { "Permessage-Deflate ;  CLIENT_MAX_WINDOW_BITS = 10", "permessage-deflate; client_max_window_bits=10" },
    { "permessage-deflate; server_max_window_bits=\"9\"", "permessage-deflate; server_max_window_bits=9" },
    { "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
      "permessage-deflate; server_no_context_takeover; client_no_context_takeover" },
    { "x-webkit-deflate-frame, permessage-deflate", "permessage-deflate" },
    { "permessage-deflate; client_max_window_bits; server_max_window_bits=10, permessage-deflate; client_max_window_bits",
      "permessage-deflate; server_max_window_bits=10; client_max_window_bits, permessage-deflate; client_max_window_bits" },
    { "permessage-bzip2", "" },
    { "", "" },
    { "permessage-deflate; unknown", "" },
    { "permessage-deflate; server_max_window_bits", "" },
    { "permessage-deflate; server_max_window_bits=7", "" },
    { "permessage-deflate; server_max_window_bits=16", "" },
    { "permessage-deflate; server_max_window_bits=010", "" },
    { "permessage-deflate; server_max_window_bits=1 0", "" },
    { "permessage-deflate; client_max_window_bits=", "" },
    { "permessage-deflate; server_no_context_takeover=1", "" },
    { "permessage-deflate; client_no_context_takeover; client_no_context_takeover", "" },
    { "permessage-deflate;", "" },
    { "mux; max-channels=4; flow-control, permessage-deflate; unknown=1, permessage-deflate", "permessage-deflate" },
};

static void test_offers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof offers / sizeof *offers; i++) {
        struct buf out;
        struct ws_offer o = { 0 };
        buf_init(&out, 4096);
        ws_offer_put(str_c(offers[i].in), &o, &out);
        assert_string_equal(buf_z(&out), offers[i].out);
        assert_int_equal(o.any, offers[i].out[0] != 0);
        assert_int_equal(o.client_window, strstr(offers[i].out, "client_max_window_bits") != NULL);
        buf_done(&out);
    }
}

static const struct {
    const char *in;
    bool any, window, ok;
    struct ws_coding c;
} answers[] = {
    { "permessage-deflate", true, false, true, { true, false, false, 15, 15 } },
    { "permessage-deflate; client_no_context_takeover; server_no_context_takeover", true, false, true, { true, true, true, 15, 15 } },
    { "permessage-deflate; server_max_window_bits=10", true, false, true, { true, false, false, 15, 10 } },
    { "permessage-deflate; client_max_window_bits=9", true, true, true, { true, false, false, 9, 15 } },
    { "permessage-deflate; client_max_window_bits=9", true, false, false, { 0 } },
    { "permessage-deflate; client_max_window_bits", true, true, false, { 0 } },
    { "permessage-deflate; server_max_window_bits", true, true, false, { 0 } },
    { "permessage-deflate", false, false, false, { 0 } },
    { "permessage-deflate, permessage-deflate", true, false, false, { 0 } },
    { "permessage-deflate; x", true, false, false, { 0 } },
    { "permessage-deflate; server_max_window_bits=8; server_max_window_bits=8", true, false, false, { 0 } },
    { "mux", true, true, false, { 0 } },
};

static void test_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        struct ws_offer o = { answers[i].any, answers[i].window };
        struct ws_coding c = { 0 };
        const char *why = ws_coding_parse(str_c(answers[i].in), &o, &c);
        if (!why != answers[i].ok)
            fail_msg("%s: %s", answers[i].in, why ? why : "taken");
        assert_memory_equal(&c, &answers[i].c, sizeof c);
    }
}

/* One message, its compressed bytes given in pieces of `step`, out in pieces of `room`. False: it cannot be inflated. */
static bool inflate_all(struct ws_inflate *z, struct str in, size_t step, size_t room, struct buf *out)
{
    char piece[256];
    const struct str parts[2] = { in, WS_INFLATE_TAIL };
    for (int i = 0; i < 2; i++)
        for (size_t at = 0; at < parts[i].n; at += step) {
            struct str given = str_sub(parts[i], at, step);
            enum ws_inflated r;
            do {
                size_t n;
                r = ws_inflate_step(z, &given, piece, room, &n);
                assert_true(n <= room);
                buf_put(out, str_of(piece, n));
                if (r == WS_INFLATED_BAD)
                    return false;
            } while (r == WS_INFLATED_FULL);
            assert_int_equal(given.n, 0);
        }
    return ws_inflate_end(z);
}

static const struct {
    const char *what, *bytes;
    size_t n;
    const char *text; /* NULL: refused */
} messages[] = {
    { "one block", "\xf2\x48\xcd\xc9\xc9\x07\x00", 7, "Hello" },
    { "two blocks", "\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00", 13, "Hello" },
    { "stored", "\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00", 11, "Hello" },
    { "a last block", "\xf3\x48\xcd\xc9\xc9\x07\x00\x00", 8, "Hello" },
    { "empty", "\x00", 1, "" },
    { "nothing", "", 0, NULL },
    { "a block that does not end", "\xf2\x48\xcd", 3, NULL },
    { "a reserved block", "\x07", 1, NULL },
    { "a stored block whose lengths differ", "\x00\x05\x00\xfa\xfe\x48", 6, NULL },
    { "a distance before the beginning", "\x02\x13\x00\x00", 4, NULL },
};

static void test_messages(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++)
        for (size_t step = 1; step < 16; step++)
            for (size_t room = 1; room < 8; room++) {
                struct buf out;
                struct ws_inflate *z = ws_inflate_new(false);
                buf_init(&out, 4096);
                assert_non_null(z);
                bool ok = inflate_all(z, str_of(messages[i].bytes, messages[i].n), step, room, &out);
                if (ok != (messages[i].text != NULL) || (ok && strcmp(buf_z(&out), messages[i].text) != 0))
                    fail_msg("%s, in %zu, out %zu: %s", messages[i].what, step, room, ok ? buf_z(&out) : "refused");
                buf_done(&out);
                ws_inflate_free(&z);
            }
}

/* RFC 7692 7.2.3.2: the second Hello is a reference into the first. */
static void test_context(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out, 4096);
    for (int alone = 0; alone < 2; alone++) {
        struct ws_inflate *z = ws_inflate_new(alone);
        buf_reset(&out);
        assert_true(inflate_all(z, str_of("\xf2\x48\xcd\xc9\xc9\x07\x00", 7), 100, 100, &out));
        assert_int_equal(inflate_all(z, str_of("\xf2\x00\x11\x00\x00", 5), 100, 100, &out), !alone);
        if (!alone)
            assert_string_equal(buf_z(&out), "HelloHello");
        ws_inflate_free(&z);
    }
    buf_done(&out);
}

static void fill(char *p, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1103515245u + 12345u;
        p[i] = i % 7 ? "etaoin shrdlu"[(seed >> 16) % 13] : (char)(seed >> 24);
    }
}

static void put(struct ws_deflate *d, struct str m, size_t most, struct buf *out)
{
    do {
        struct str piece = str_sub(m, 0, most);
        m = str_from(m, piece.n);
        assert_int_equal(ws_deflate_put(d, piece, !m.n, out), 0);
    } while (m.n);
}

/* What we compress another reads, whatever its window, with and without context, stored ones in between. */
static void test_round_trip(void **state)
{
    (void)state;
    static char text[200000];
    const size_t sizes[] = { 0, 5, 0, 0, 1000, 65535, 65536, 200000, 3, 3 };
    for (unsigned bits = 8; bits <= 15; bits++)
        for (int alone = 0; alone < 2; alone++) {
            struct ws_deflate *d = ws_deflate_new(alone, bits);
            struct ws_inflate *z = ws_inflate_new(alone);
            assert_non_null(d);
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
                for (int how = 0; how < 3; how++) {
                    struct buf packed, out;
                    buf_init(&packed, 1 << 20);
                    buf_init(&out, 1 << 20);
                    fill(text, sizes[i], (unsigned)i / 2);
                    struct str m = str_of(text, sizes[i]);
                    if (how == 0)
                        assert_int_equal(ws_deflate_put_stored(d, m, &packed), 0);
                    else
                        put(d, m, how == 1 ? m.n : 7000, &packed);
                    assert_true(buf_size(&packed) > 0);
                    assert_true(inflate_all(z, buf_str(&packed), 1000, 256, &out));
                    assert_true(str_eq(buf_str(&out), m));
                    buf_done(&packed);
                    buf_done(&out);
                }
            ws_deflate_free(&d);
            ws_inflate_free(&z);
        }
}

/* After a stored message nothing refers to it: the same text again is as long as it was the first time. */
static void test_stored_is_forgotten(void **state)
{
    (void)state;
    const struct str secret = STR("{\"token\":\"ghs_REALREALREALREALREALREALREAL\"}");
    struct ws_deflate *d = ws_deflate_new(false, 15);
    struct buf first, again;
    buf_init(&first, 1 << 20);
    buf_init(&again, 1 << 20);
    ws_deflate_put(d, secret, true, &first);
    ws_deflate_put(d, secret, true, &again);
    assert_true(buf_size(&again) < buf_size(&first)); /* control: a window remembers */
    buf_reset(&again);
    ws_deflate_put_stored(d, secret, &again);
    buf_reset(&again);
    ws_deflate_put(d, secret, true, &again);
    assert_int_equal(buf_size(&again), buf_size(&first));
    buf_done(&first);
    buf_done(&again);
    ws_deflate_free(&d);
}

/* A bomb gives no more at a time than there is room for, and can be left at any moment. */
static void test_bomb(void **state)
{
    (void)state;
    struct ws_deflate *d = ws_deflate_new(true, 15);
    struct ws_inflate *z = ws_inflate_new(true);
    struct buf packed;
    size_t size = 16 * 1024 * 1024, n;
    char *zeros = calloc(1, size), piece[1024];
    buf_init(&packed, 1 << 20);
    assert_non_null(zeros);
    assert_int_equal(ws_deflate_put(d, str_of(zeros, size), true, &packed), 0);
    assert_true(buf_size(&packed) < size / 500);
    struct str in = buf_str(&packed);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(ws_inflate_step(z, &in, piece, sizeof piece, &n), WS_INFLATED_FULL);
        assert_int_equal(n, sizeof piece);
    }
    free(zeros);
    buf_done(&packed);
    ws_inflate_free(&z);
    ws_deflate_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_offers),  cmocka_unit_test(test_answers),    cmocka_unit_test(test_messages),
        cmocka_unit_test(test_context), cmocka_unit_test(test_round_trip), cmocka_unit_test(test_stored_is_forgotten),
        cmocka_unit_test(test_bomb),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
