/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames as RFC 6455 has them: each row is what one side sent, in hexadecimal, and what is to come of it, told in words. Every row is
 * read whole, and cut at every byte: the outcome must not depend on that. */
#include "proxy/ws_frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka needs the ones above */
#include <cmocka.h>

enum { TEXT_MAX = 1 << 20 };

static size_t from_hex(const char *hex, char *out)
{
    size_t n = 0;
    for (const char *p = hex; *p; p++) {
        if (*p == ' ')
            continue;
        out[n++] = (char)(ascii_hex(p[0]) * 16 + ascii_hex(p[1]));
        p++;
    }
    return n;
}

static void put_payload(struct buf *out, const char *p, size_t n)
{
    for (size_t i = 0; i < n && i < 16; i++)
        buf_putc(out, p[i] >= ' ' && p[i] < 127 ? p[i] : '.');
    if (n > 16)
        buf_putf(out, "+%zu", n - 16);
}

struct told {
    struct buf text, payload;
};

static void tell_data(struct ws_in *w, struct str data, struct told *t)
{
    char *p = data.n ? buf_reserve(&t->payload, data.n) : NULL;
    if (!p)
        return;
    if (w->from_client)
        ws_mask(p, data.p, data.n, w->mask, w->mask_at);
    else
        memcpy(p, data.p, data.n);
    buf_wrote(&t->payload, data.n);
}

/* "text hello; end. ping x." and the fault, if any. */
static void read_all(struct str bytes, size_t step, bool client, bool coded, struct buf *out)
{
    struct ws_in w;
    struct told t;
    struct ws_fault fault = { 0 };
    buf_init(&t.payload, TEXT_MAX);
    buf_init(out, TEXT_MAX);
    ws_in_init(&w, client, coded, 70000);
    enum ws_event e = WS_MORE;
    for (size_t at = 0, have = 0; e != WS_BAD;) {
        have = bytes.n - have < step ? bytes.n : have + step;
        do {
            struct str given = str_sub(bytes, at, have - at), data;
            size_t used;
            e = ws_next(&w, given, &used, &data, &fault);
            assert_true(used <= given.n);
            at += used;
            if (e == WS_HEAD)
                buf_putf(out, "%s%s ", w.opcode == WS_TEXT ? "text" : w.opcode == WS_BINARY ? "binary" : "more", w.rsv1 ? "*" : "");
            if (e == WS_DATA)
                tell_data(&w, data, &t);
            if (e == WS_FRAME_END) {
                put_payload(out, buf_str(&t.payload).p, buf_size(&t.payload));
                buf_put(out, w.fin ? STR(".") : STR(";"));
                buf_reset(&t.payload);
            }
            if (e == WS_CONTROL) {
                buf_putf(out, "%s ", w.opcode == WS_CLOSE ? "close" : w.opcode == WS_PING ? "ping" : "pong");
                put_payload(out, (const char *)w.control, w.control_n);
                buf_putc(out, '!');
            }
        } while (e != WS_MORE && e != WS_BAD);
        if (e == WS_MORE)
            assert_int_equal(at, have);
        if (have == bytes.n)
            break;
    }
    if (e == WS_BAD)
        buf_putf(out, "bad %u %s", fault.code, fault.why);
    else if (!ws_between_frames(&w))
        buf_put(out, STR("unfinished"));
    buf_z(out);
    buf_done(&t.payload);
}

#define CLIENT(hex, told)                                                                                                                  \
    {                                                                                                                                      \
        hex, told, false, false                                                                                                            \
    }
#define SERVER(hex, told)                                                                                                                  \
    {                                                                                                                                      \
        hex, told, true, false                                                                                                             \
    }
#define CODED(hex, told)                                                                                                                   \
    {                                                                                                                                      \
        hex, told, false, true                                                                                                             \
    } /* a client's, with permessage-deflate */

static const struct {
    const char *hex, *told;
    bool server, coded;
} rows[] = {
    /* the examples of RFC 6455 5.7 */
    CLIENT("818537fa213d7f9f4d5158", "text Hello."),
    SERVER("810548656c6c6f", "text Hello."),
    SERVER("010348656c80026c6f", "text Hel;more lo."),
    SERVER("890548656c6c6f", "ping Hello!"),
    CLIENT("8a8537fa213d7f9f4d5158", "pong Hello!"),
    /* control frames between fragments, empty frames */
    CLIENT("018000000000898000000000808000000000818000000000", "text ;ping !more .text ."),
    CLIENT("0180000000008085000000004142434445", "text ;more ABCDE."),
    SERVER("82050102030405", "binary ......"),
    /* lengths */
    SERVER("817e007d", "bad 1002 a length that is not in its shortest form"),
    SERVER("817f000000000000ffff", "bad 1002 a length that is not in its shortest form"),
    SERVER("817f0000000000010000", "text unfinished"),
    SERVER("817f8000000000000000", "bad 1002 a length over 2^63-1"),
    SERVER("817fffffffffffffffff", "bad 1002 a length over 2^63-1"),
    SERVER("817f7fffffffffffffff", "bad 1009 a frame over limits.ws_frame_bytes"),
    CLIENT("81ff7fffffffffffffff00000000", "bad 1009 a frame over limits.ws_frame_bytes"),
    /* masks */
    CLIENT("8105", "bad 1002 a frame of a client without a mask"),
    CLIENT("8900", "bad 1002 a frame of a client without a mask"),
    SERVER("8185", "bad 1002 a frame of a server with a mask"),
    /* reserved bits and opcodes */
    CLIENT("c1", "bad 1002 RSV1 where no extension gives it a meaning"),
    CODED("c18000000000", "text* ."),
    CODED("41800000000080800000000082", "text* ;more .unfinished"),
    CODED("418000000000c0", "text* ;bad 1002 RSV1 where no extension gives it a meaning"),
    CODED("c9", "bad 1002 RSV1 where no extension gives it a meaning"),
    CODED("a1", "bad 1002 a reserved bit"),
    CODED("91", "bad 1002 a reserved bit"),
    CLIENT("83", "bad 1002 a reserved opcode"),
    CLIENT("87", "bad 1002 a reserved opcode"),
    CLIENT("8b", "bad 1002 a reserved opcode"),
    CLIENT("8f", "bad 1002 a reserved opcode"),
    /* control frames */
    CLIENT("09", "bad 1002 a control frame in fragments"),
    CLIENT("08", "bad 1002 a control frame in fragments"),
    SERVER("897e", "bad 1002 a control frame over 125 bytes"),
    CLIENT("89ff", "bad 1002 a control frame over 125 bytes"),
    /* continuations */
    CLIENT("80", "bad 1002 a continuation of no message"),
    CLIENT("00", "bad 1002 a continuation of no message"),
    CLIENT("01800000000081", "text ;bad 1002 a new message before the last one ended"),
    CLIENT("01800000000002", "text ;bad 1002 a new message before the last one ended"),
    CLIENT("81800000000080", "text .bad 1002 a continuation of no message"),
    /* closes, and what follows one */
    SERVER("8800", "close !"),
    SERVER("880203e8", "close ..!"),
    SERVER("880403e86f6b", "close ..ok!"),
    CLIENT("88826162636462 8b"
           "8105ffff",
           "close ..!"),
    SERVER("880101", "bad 1002 a close frame of one byte"),
    SERVER("880203e7", "bad 1002 a close code that may not be sent"),
    SERVER("880203ec", "bad 1002 a close code that may not be sent"),
    SERVER("880203ed", "bad 1002 a close code that may not be sent"),
    SERVER("880203ee", "bad 1002 a close code that may not be sent"),
    SERVER("880203f7", "bad 1002 a close code that may not be sent"),
    SERVER("88020bb7", "bad 1002 a close code that may not be sent"),
    SERVER("88021388", "bad 1002 a close code that may not be sent"),
    SERVER("88020bb8", "close ..!"),
    SERVER("88021387", "close ..!"),
    SERVER("880303e8ff", "bad 1007 a close reason that is not UTF-8"),
    SERVER("880403e8e282", "bad 1007 a close reason that is not UTF-8"),
};

static void test_frames(void **state)
{
    (void)state;
    char bytes[512];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct str s = str_of(bytes, from_hex(rows[i].hex, bytes));
        for (size_t step = s.n; step; step = step == s.n && s.n > 1 ? (s.n <= 7 ? s.n - 1 : 7) : step - 1) {
            struct buf out;
            read_all(s, step, !rows[i].server, rows[i].coded, &out);
            if (strcmp(buf_str(&out).p, rows[i].told) != 0)
                fail_msg("%s in steps of %zu:\n  %s\ninstead of\n  %s", rows[i].hex, step, buf_str(&out).p, rows[i].told);
            buf_done(&out);
        }
    }
}

static const struct {
    const char *hex;
    bool ok;
} utf8_rows[] = {
    { "", true },
    { "61", true },
    { "c3a9", true },
    { "e282ac", true },
    { "f09f9880", true },
    { "ed9fbf", true },
    { "ee8080", true },
    { "f48fbfbf", true },
    { "616263646566676869e282ac6a6b6c6d6e6f7071f09f9880", true },
    { "80", false },
    { "c0af", false },
    { "c1bf", false },
    { "e080af", false },
    { "e09fbf", false },
    { "eda080", false },
    { "edbfbf", false },
    { "f0808080", false },
    { "f08fbfbf", false },
    { "f4908080", false },
    { "f5808080", false },
    { "ff", false },
    { "fe", false },
    { "c3", false },
    { "e282", false },
    { "f09f98", false },
    { "c361", false },
    { "e28261", false },
    { "6162636465666768ff", false },
};

static void test_utf8(void **state)
{
    (void)state;
    char bytes[64];
    for (size_t i = 0; i < sizeof utf8_rows / sizeof *utf8_rows; i++) {
        struct str s = str_of(bytes, from_hex(utf8_rows[i].hex, bytes));
        for (size_t cut = 0; cut <= s.n; cut++) {
            uint32_t st = 0;
            bool ok = ws_utf8(&st, str_sub(s, 0, cut)) && ws_utf8(&st, str_from(s, cut)) && !st;
            if (ok != utf8_rows[i].ok)
                fail_msg("%s cut at %zu", utf8_rows[i].hex, cut);
        }
    }
}

/* Every code point there is, and every other sequence of up to two bytes. */
static void test_utf8_all(void **state)
{
    (void)state;
    for (unsigned a = 0; a < 256; a++)
        for (unsigned b = 0; b < 256; b++) {
            char two[2] = { (char)a, (char)b };
            uint32_t st = 0;
            bool ok = ws_utf8(&st, str_of(two, 2)) && !st;
            bool right = (a < 0x80 && b < 0x80) || (a >= 0xc2 && a <= 0xdf && b >= 0x80 && b <= 0xbf);
            assert_int_equal(ok, right);
        }
}

static void test_mask(void **state)
{
    (void)state;
    const unsigned char mask[WS_MASK] = { 0x37, 0xfa, 0x21, 0x3d };
    char text[80], once[80], pieces[80];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)i;
    ws_mask(once, text, sizeof text, mask, 0);
    for (size_t i = 0; i < sizeof text; i++)
        assert_int_equal((unsigned char)once[i], i ^ mask[i & 3]);
    for (size_t cut = 0; cut <= sizeof text; cut++) {
        ws_mask(pieces, text, cut, mask, 0);
        ws_mask(pieces + cut, text + cut, sizeof text - cut, mask, cut);
        assert_memory_equal(pieces, once, sizeof once);
    }
    ws_mask(once, once, sizeof once, mask, 0);
    assert_memory_equal(once, text, sizeof text);
}

/* What is written is read as the same, in the shortest form. */
static void test_writer(void **state)
{
    (void)state;
    const size_t sizes[] = { 0, 1, 125, 126, 127, 65535, 65536, 70000 };
    char *text = malloc(70000);
    assert_non_null(text);
    memset(text, 'x', 70000);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int masked = 0; masked < 2; masked++) {
            struct buf out, told;
            char want[64];
            buf_init(&out, TEXT_MAX);
            ws_put_frame(&out, WS_TEXT, true, false, str_of(text, sizes[i]), masked);
            read_all(buf_str(&out), 1000, masked, false, &told);
            snprintf(want, sizeof want, "text %.*s", (int)(sizes[i] < 16 ? sizes[i] : 16), text);
            if (sizes[i] > 16)
                snprintf(want + strlen(want), sizeof want - strlen(want), "+%zu", sizes[i] - 16);
            snprintf(want + strlen(want), sizeof want - strlen(want), ".");
            assert_string_equal(buf_str(&told).p, want);
            buf_done(&told);
            buf_done(&out);
        }
    free(text);
    struct buf a, b;
    buf_init(&a, 64);
    buf_init(&b, 64);
    ws_put_frame(&a, WS_TEXT, true, false, STR("abc"), true);
    ws_put_frame(&b, WS_TEXT, true, false, STR("abc"), true);
    assert_false(str_eq(buf_str(&a), buf_str(&b))); /* a mask of its own */
    buf_done(&a);
    buf_done(&b);
}

static void test_close(void **state)
{
    (void)state;
    struct buf out, told;
    buf_init(&out, 256);
    ws_put_close(&out, WS_POLICY, STR("exfiltration"), false);
    assert_true(str_eq(buf_str(&out), STR("\x88\x0e\x03\xf0"
                                          "exfiltration")));
    buf_reset(&out);
    char reason[200];
    memset(reason, 'r', sizeof reason);
    ws_put_close(&out, 1000, str_of(reason, sizeof reason), true);
    read_all(buf_str(&out), 1, true, false, &told);
    assert_string_equal(buf_str(&told).p, "close ..rrrrrrrrrrrrrr+109!");
    buf_done(&told);
    buf_done(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames), cmocka_unit_test(test_utf8),   cmocka_unit_test(test_utf8_all),
        cmocka_unit_test(test_mask),   cmocka_unit_test(test_writer), cmocka_unit_test(test_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
