/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/ws_handshake.h"

#include "base/clock.h"
#include "mint/base64.h"

#include <openssl/sha.h>

enum { KEY_BYTES = 16, KEY_TEXT = 24, EXTENSIONS_MAX = 512 * 1024 };

static bool is(struct str name, const char *lower)
{
    return str_eq_nocase(name, str_c(lower));
}

bool ws_is_extensions(struct str name)
{
    return is(name, "sec-websocket-extensions");
}

bool ws_asked(const struct h1_field *fields, size_t n)
{
    size_t upgrades = 0;
    bool websocket = true;
    for (size_t i = 0; i < n; i++)
        if (fields[i].id == H1_UPGRADE) {
            upgrades++;
            websocket &= str_eq_nocase(fields[i].f.value, STR("websocket"));
        }
    return upgrades == 1 && websocket;
}

static bool key_ok(struct str key)
{
    char bytes[KEY_TEXT];
    size_t n;
    bool padded;
    return key.n == KEY_TEXT && !base64_decode(key, bytes, &n, &padded) && n == KEY_BYTES;
}

static void make_key(char out[KEY_TEXT + 1])
{
    unsigned char bytes[KEY_BYTES];
    struct buf b;
    buf_init(&b, KEY_TEXT);
    rand_bytes(bytes, sizeof bytes);
    base64_put(&b, str_of(bytes, sizeof bytes), true);
    memset(out, 0, KEY_TEXT + 1);
    memcpy(out, buf_str(&b).p ? buf_str(&b).p : "", buf_size(&b));
    buf_done(&b);
}

const char *ws_request_check(enum websocket how, struct str method, enum h1_body body, const struct h1_field *fields, size_t n,
                             struct ws_handshake *ret, enum end *ret_end)
{
    unsigned keys = 0, versions = 0;
    struct str key = STR_NONE;
    bool version = true;
    struct buf waste;
    *ret = (struct ws_handshake) { 0 };
    buf_init(&waste, EXTENSIONS_MAX);
    for (size_t i = 0; i < n; i++) {
        const struct field *f = &fields[i].f;
        if (is(f->name, "sec-websocket-key")) {
            keys++;
            key = f->value;
        } else if (is(f->name, "sec-websocket-version")) {
            versions++;
            version &= str_eq(f->value, STR("13"));
        } else if (ws_is_extensions(f->name)) {
            ws_offer_put(f->value, &ret->offer, &waste);
        }
    }
    bool lost = waste.failed;
    buf_done(&waste);
    *ret_end = END_BAD_REQUEST;
    if (body != H1_BODY_NONE) /* what follows the head would be its body to one, and frames to another */
        return "a WebSocket handshake with a body";
    if (keys > 1 || lost)
        return "a WebSocket handshake with more than one key";
    *ret_end = END_UPGRADE_DENIED;
    if (!str_eq(method, STR("GET")))
        return "a WebSocket handshake with a method other than GET";
    if (versions != 1 || !version)
        return "a WebSocket handshake whose version is not 13";
    if (how == WEBSOCKET_UPGRADE ? !key_ok(key) : keys != 0)
        return "a WebSocket handshake without a key of 16 bytes in base64";
    *ret_end = END_OK;
    ret->own_key = !keys;
    if (ret->own_key)
        make_key(ret->key);
    else
        memcpy(ret->key, key.p, KEY_TEXT);
    return NULL;
}

void ws_extensions_put(struct str value, struct buf *out)
{
    struct ws_offer o = { 0 };
    ws_offer_put(value, &o, out);
}

void ws_request_put(enum websocket how, const struct ws_handshake *hs, struct buf *out)
{
    if (how == WEBSOCKET_CONNECT)
        buf_put(out, STR("Connection: Upgrade\r\nUpgrade: websocket\r\n"));
    if (hs->own_key)
        h1_put_field(out, STR("Sec-WebSocket-Key"), str_c(hs->key));
}

void ws_accept_of(const char *key, char out[WS_ACCEPT + 1])
{
    unsigned char digest[SHA_DIGEST_LENGTH];
    struct buf b;
    buf_init(&b, 128);
    buf_put(&b, str_c(key));
    buf_put(&b, STR("258EAFA5-E914-47DA-95CA-C5AB0DC85B11"));
    SHA1((const unsigned char *)buf_str(&b).p, buf_size(&b), digest);
    buf_reset(&b);
    base64_put(&b, str_of(digest, sizeof digest), true);
    memset(out, 0, WS_ACCEPT + 1);
    memcpy(out, buf_str(&b).p ? buf_str(&b).p : "", buf_size(&b) <= WS_ACCEPT ? buf_size(&b) : 0);
    buf_done(&b);
}

/* One field of the answer. NULL or why not. */
static const char *note_answer(struct ws_handshake *hs, const struct field *f, struct str *accept, struct str *protocol)
{
    if (is(f->name, "sec-websocket-accept")) {
        if (accept->p)
            return "more than one Sec-WebSocket-Accept";
        *accept = f->value;
    } else if (is(f->name, "sec-websocket-protocol")) {
        if (protocol->p)
            return "more than one Sec-WebSocket-Protocol";
        *protocol = f->value;
    } else if (ws_is_extensions(f->name) && f->value.n) {
        if (hs->coding.on)
            return "more than one extension";
        return ws_coding_parse(f->value, &hs->offer, &hs->coding);
    }
    return NULL;
}

const char *ws_answer_check(struct ws_handshake *hs, const struct h1_head *h, struct str *ret_protocol)
{
    char want[WS_ACCEPT + 1];
    struct str accept = STR_NONE;
    *ret_protocol = STR_NONE;
    if (!h->upgrade || !ws_asked(h->fields, h->nfields))
        return "a switch to another protocol than the WebSocket that was asked for";
    for (size_t i = 0; i < h->nfields; i++) {
        const char *why = note_answer(hs, &h->fields[i].f, &accept, ret_protocol);
        if (why)
            return why;
    }
    ws_accept_of(hs->key, want);
    return str_eq(accept, str_c(want)) ? NULL : "a Sec-WebSocket-Accept that does not answer the key";
}

bool ws_protocol_offered(const struct h1_field *fields, size_t n, struct str protocol)
{
    for (size_t i = 0; i < n; i++) {
        struct str list = fields[i].f.value, one;
        if (!is(fields[i].f.name, "sec-websocket-protocol"))
            continue;
        while (str_split(&list, ',', &one))
            if (str_eq(str_trim(one), protocol))
                return protocol.n > 0;
    }
    return false;
}

bool ws_is_ours(const struct ws_handshake *hs, struct str name)
{
    return hs->own_key && is(name, "sec-websocket-accept");
}
