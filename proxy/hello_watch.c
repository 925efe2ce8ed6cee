/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/hello_watch.h"

enum { CHANGE_CIPHER_SPEC = 20, ALERT = 21, HANDSHAKE = 22, APPLICATION_DATA = 23, SERVER_HELLO = 2 };

/* SHA-256 of "HelloRetryRequest" (RFC 8446 4.1.3). */
static const unsigned char retry_random[32] = {
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
};

void hello_watch_init(struct hello_watch *w, size_t first)
{
    *w = (struct hello_watch) { .client = { .left = first } };
}

void hello_watch_over(struct hello_watch *w)
{
    w->state = HELLO_OVER;
}

/* One more byte of a record's head. False: no record of TLS begins so. */
static bool take_head(struct hello_records *r, unsigned char byte)
{
    r->head[r->head_n++] = byte;
    if (r->head_n == 1)
        return byte >= CHANGE_CIPHER_SPEC && byte <= APPLICATION_DATA;
    if (r->head_n == 2)
        return byte == 3;
    if (r->head_n == sizeof r->head) {
        r->left = (size_t)(r->head[3] << 8 | r->head[4]);
        r->head_n = 0;
    }
    return true;
}

static size_t take_body(struct hello_records *r, size_t n)
{
    n = n < r->left ? n : r->left;
    r->left -= n;
    return n;
}

/* --- the server --- */

static const char *take_answer(struct hello_watch *w, struct str part)
{
    for (size_t i = 0; i < part.n && w->answer_n < sizeof w->answer; i++)
        w->answer[w->answer_n++] = (unsigned char)part.p[i];
    if (w->answer_n && w->answer[0] != SERVER_HELLO)
        return "the host's answer begins with no ServerHello";
    if (w->answer_n == sizeof w->answer) {
        bool retry = memcmp(w->answer + sizeof w->answer - sizeof retry_random, retry_random, sizeof retry_random) == 0;
        w->state = retry ? HELLO_RETRIED : HELLO_OVER;
    }
    return NULL;
}

const char *hello_watch_server(struct hello_watch *w, struct str bytes)
{
    struct hello_records *r = &w->server;
    const char *why = NULL;
    for (size_t i = 0; i < bytes.n && w->state == HELLO_ASKED && !why;) {
        if (!r->left) {
            bool data = r->head_n == 0 && bytes.p[i] == APPLICATION_DATA;
            if (data || !take_head(r, (unsigned char)bytes.p[i++]))
                why = "the host's answer is no TLS";
            continue;
        }
        size_t n = take_body(r, bytes.n - i);
        if (r->head[0] == HANDSHAKE)
            why = take_answer(w, str_sub(bytes, i, n));
        i += n;
    }
    return why;
}

/* --- the client --- */

size_t hello_watch_client(struct hello_watch *w, struct str bytes, const char **ret_why)
{
    struct hello_records *r = &w->client;
    size_t i = 0;
    *ret_why = NULL;
    while (i < bytes.n && w->state != HELLO_OVER) {
        if (r->left) {
            i += take_body(r, bytes.n - i);
            continue;
        }
        bool handshake = r->head_n == 0 && bytes.p[i] == HANDSHAKE;
        if (handshake && w->state != HELLO_ASKED) {
            w->state = HELLO_HELD;
            return i;
        }
        if (handshake)
            *ret_why = "a second handshake message came before the host answered the first";
        else if (!take_head(r, (unsigned char)bytes.p[i]))
            *ret_why = "what follows the ClientHello is no TLS";
        if (*ret_why)
            return i;
        i++;
    }
    return bytes.n;
}
