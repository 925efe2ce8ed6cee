/* SPDX-License-Identifier: Apache-2.0
 *
 * Openings: requests and answers, each row one thing away from a proper one. */
#include "proxy/ws_handshake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka needs the ones above */
#include <cmocka.h>

#define KEY     "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
#define VERSION "Sec-WebSocket-Version: 13\r\n"
#define ASKS    "Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
#define ACCEPTS "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"

static struct h1_field fields[64];
static const struct h1_limits limits = { 65536, 64, 8192 };

static struct h1_head request(const char *method, const char *lines)
{
    static char raw[8192];
    struct h1_head h;
    struct h1_fault fault = { 0 };
    size_t from = 0;
    snprintf(raw, sizeof raw, "%s / HTTP/1.1\r\nHost: h.test\r\n%s\r\n", method, lines);
    if (h1_request_parse(str_c(raw), &limits, fields, &from, &h, &fault) != H1_DONE)
        fail_msg("%s: %s", raw, fault.why ? fault.why : "not whole");
    return h;
}

static const struct {
    const char *method, *lines;
    bool asked;
    enum end end; /* where it was asked */
} requests[] = {
    { "GET", ASKS KEY VERSION, true, END_OK },
    { "GET", "upgrade: WebSocket\r\nconnection: upgrade\r\n" KEY VERSION, true, END_OK },
    { "GET", ASKS KEY VERSION "Content-Length: 0\r\n", true, END_BAD_REQUEST },
    { "GET", ASKS KEY VERSION "Content-Length: 1\r\n", true, END_BAD_REQUEST },
    { "GET", ASKS KEY VERSION "Transfer-Encoding: chunked\r\n", true, END_BAD_REQUEST },
    { "GET", ASKS KEY KEY VERSION, true, END_BAD_REQUEST },
    { "POST", ASKS KEY VERSION, true, END_UPGRADE_DENIED },
    { "get", ASKS KEY VERSION, true, END_UPGRADE_DENIED },
    { "GET", ASKS VERSION, true, END_UPGRADE_DENIED },
    { "GET", ASKS KEY, true, END_UPGRADE_DENIED },
    { "GET", ASKS KEY VERSION VERSION, true, END_UPGRADE_DENIED },
    { "GET", ASKS KEY "Sec-WebSocket-Version: 8\r\n", true, END_UPGRADE_DENIED },
    { "GET", ASKS KEY "Sec-WebSocket-Version: 13, 8\r\n", true, END_UPGRADE_DENIED },
    { "GET", ASKS VERSION "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ\r\n", true, END_UPGRADE_DENIED },   /* no padding */
    { "GET", ASKS VERSION "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZR==\r\n", true, END_UPGRADE_DENIED }, /* bits left over */
    { "GET", ASKS VERSION "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZSE=\r\n", true, END_UPGRADE_DENIED }, /* 17 bytes */
    { "GET", ASKS VERSION "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZSEh\r\n", true, END_UPGRADE_DENIED },
    { "GET", ASKS VERSION "Sec-WebSocket-Key: \r\n", true, END_UPGRADE_DENIED },
    { "GET", "Upgrade: websocket, foo\r\nConnection: Upgrade\r\n" KEY VERSION, false, END_OK },
    { "GET", "Upgrade: h2c\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" KEY VERSION, false, END_OK },
    { "GET", "Upgrade: websockets\r\nConnection: Upgrade\r\n" KEY VERSION, false, END_OK },
};

static void test_requests(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        struct h1_head h = request(requests[i].method, requests[i].lines);
        struct ws_handshake hs;
        enum end end;
        bool asked = h.upgrade && ws_asked(h.fields, h.nfields);
        if (asked != requests[i].asked)
            fail_msg("row %zu: %s", i, asked ? "asked" : "not asked");
        if (!asked)
            continue;
        const char *why = ws_request_check(WEBSOCKET_UPGRADE, h.method, h.body, h.fields, h.nfields, &hs, &end);
        if (end != requests[i].end || !why != (end == END_OK))
            fail_msg("row %zu: %s", i, why ? why : "taken");
    }
}

/* By extended CONNECT: no key, and one is made that is never the same. */
static void test_connect(void **state)
{
    (void)state;
    struct ws_handshake a, b;
    enum end end;
    struct h1_head h = request("GET", VERSION);
    assert_null(ws_request_check(WEBSOCKET_CONNECT, h.method, h.body, h.fields, h.nfields, &a, &end));
    assert_null(ws_request_check(WEBSOCKET_CONNECT, h.method, h.body, h.fields, h.nfields, &b, &end));
    assert_true(a.own_key && strlen(a.key) == 24 && strcmp(a.key, b.key) != 0);
    assert_true(ws_is_ours(&a, STR("sec-websocket-ACCEPT")));
    struct buf out;
    buf_init(&out, 4096);
    ws_request_put(WEBSOCKET_CONNECT, &a, &out);
    char want[256];
    snprintf(want, sizeof want, "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: %s\r\n", a.key);
    assert_string_equal(buf_z(&out), want);
    buf_done(&out);
    h = request("GET", KEY VERSION);
    assert_non_null(ws_request_check(WEBSOCKET_CONNECT, h.method, h.body, h.fields, h.nfields, &b, &end));
}

static const struct {
    const char *offers, *lines;
    bool ok;
    const char *protocol;
} answers[] = {
    { "", ASKS ACCEPTS, true, NULL },
    { "", "upgrade: WEBSOCKET\r\nconnection: upgrade\r\nsec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n", true, NULL },
    { "", ASKS, false, NULL },
    { "", ASKS ACCEPTS ACCEPTS, false, NULL },
    { "", ASKS "Sec-WebSocket-Accept: S3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n", false, NULL },
    { "", ASKS "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo\r\n", false, NULL },
    { "", "Upgrade: websocket\r\n" ACCEPTS, false, NULL },
    { "", "Connection: Upgrade\r\n" ACCEPTS, false, NULL },
    { "", "Upgrade: h2c\r\nConnection: Upgrade\r\n" ACCEPTS, false, NULL },
    { "", ASKS ACCEPTS "Sec-WebSocket-Protocol: chat\r\n", true, "chat" },
    { "", ASKS ACCEPTS "Sec-WebSocket-Protocol: a\r\nSec-WebSocket-Protocol: b\r\n", false, NULL },
    { "", ASKS ACCEPTS "Sec-WebSocket-Extensions: permessage-deflate\r\n", false, NULL },
    { "Sec-WebSocket-Extensions: permessage-deflate\r\n", ASKS ACCEPTS "Sec-WebSocket-Extensions: permessage-deflate\r\n", true, NULL },
    { "Sec-WebSocket-Extensions: permessage-deflate\r\n", ASKS ACCEPTS "Sec-WebSocket-Extensions: \r\n", true, NULL },
    { "Sec-WebSocket-Extensions: permessage-deflate\r\n",
      ASKS ACCEPTS "Sec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Extensions: permessage-deflate\r\n", false, NULL },
    { "Sec-WebSocket-Extensions: permessage-deflate; x=1\r\n", ASKS ACCEPTS "Sec-WebSocket-Extensions: permessage-deflate\r\n", false,
      NULL },
    { "Sec-WebSocket-Extensions: x, permessage-deflate\r\n", ASKS ACCEPTS "Sec-WebSocket-Extensions: x\r\n", false, NULL },
};

static void test_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        char lines[512], raw[1024];
        struct ws_handshake hs;
        enum end end;
        snprintf(lines, sizeof lines, ASKS KEY VERSION "%s", answers[i].offers);
        struct h1_head h = request("GET", lines);
        assert_null(ws_request_check(WEBSOCKET_UPGRADE, h.method, h.body, h.fields, h.nfields, &hs, &end));
        struct h1_fault fault = { 0 };
        size_t from = 0;
        struct str protocol;
        snprintf(raw, sizeof raw, "HTTP/1.1 101 Switching Protocols\r\n%s\r\n", answers[i].lines);
        assert_int_equal(h1_response_parse(str_c(raw), STR("GET"), &limits, fields, &from, &h, &fault), H1_DONE);
        const char *why = ws_answer_check(&hs, &h, &protocol);
        if (!why != answers[i].ok)
            fail_msg("row %zu: %s", i, why ? why : "taken");
        if (answers[i].ok)
            assert_true(str_eq(protocol, str_c(answers[i].protocol)));
    }
}

static void test_protocols(void **state)
{
    (void)state;
    struct h1_head h = request("GET", "Sec-WebSocket-Protocol: chat , superchat\r\nsec-websocket-protocol: v1.json\r\n");
    static const struct {
        const char *name;
        bool offered;
    } rows[] = { { "chat", true }, { "superchat", true }, { "v1.json", true }, { "Chat", false }, { "chat , superchat", false },
                 { "", false },    { "super", false } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(ws_protocol_offered(h.fields, h.nfields, str_c(rows[i].name)), rows[i].offered);
}

/* RFC 6455 1.3. */
static void test_accept(void **state)
{
    (void)state;
    char accept[WS_ACCEPT + 1];
    ws_accept_of("dGhlIHNhbXBsZSBub25jZQ==", accept);
    assert_string_equal(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),  cmocka_unit_test(test_connect), cmocka_unit_test(test_answers),
        cmocka_unit_test(test_protocols), cmocka_unit_test(test_accept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
