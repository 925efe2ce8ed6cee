/* SPDX-License-Identifier: Apache-2.0
 *
 * Two passes: over the headers of the records, to see whether the message is whole, as they come; and then once over the message. */
#include "proxy/client_hello.h"

enum { RECORD_HEAD = 5, RECORD_MOST = 16384, HANDSHAKE = 22, HELLO_HEAD = 4, CLIENT_HELLO = 1, SERVER_NAME = 0, HOST_NAME = 0, ECH = 0xfe0d, ESNI = 0xffce };

static unsigned byte_at(struct str s, size_t i)
{
    return (unsigned char)s.p[i];
}

/* --- one field after the other --- */

struct cursor {
    struct str rest;
    bool bad;
};

static struct str take(struct cursor *c, size_t n)
{
    if (c->bad || c->rest.n < n) {
        c->bad = true;
        return STR_NONE;
    }
    struct str s = str_sub(c->rest, 0, n);
    c->rest = str_from(c->rest, n);
    return s;
}

static size_t number(struct cursor *c, size_t bytes)
{
    struct str s = take(c, bytes);
    size_t v = 0;
    for (size_t i = 0; i < s.n; i++)
        v = v << 8 | byte_at(s, i);
    return v;
}

/* A vector whose length stands before it. */
static struct str vector(struct cursor *c, size_t bytes)
{
    size_t n = number(c, bytes);
    return take(c, n);
}

/* --- the message --- */

/* A list of exactly one host_name. */
static bool read_name(struct str data, struct str *ret)
{
    struct cursor outer = { .rest = data };
    struct cursor list = { .rest = vector(&outer, 2) };
    size_t type = number(&list, 1);
    *ret = vector(&list, 2);
    return !outer.bad && !outer.rest.n && !list.bad && !list.rest.n && type == HOST_NAME && ret->n;
}

static const char *read_extensions(struct cursor *c, struct client_hello_said *ret)
{
    unsigned char seen[65536 / 8] = { 0 };
    struct cursor ext = { .rest = vector(c, 2) };
    while (!c->bad && ext.rest.n) {
        size_t type = number(&ext, 2);
        struct str data = vector(&ext, 2);
        if (ext.bad)
            return "the ClientHello's extensions are malformed";
        if (seen[type / 8] >> (type % 8) & 1)
            return "the ClientHello has an extension twice";
        seen[type / 8] = (unsigned char)(seen[type / 8] | 1u << (type % 8));
        if (type == SERVER_NAME && !read_name(data, &ret->sni))
            return "the ClientHello's server name is malformed";
        ret->hides_name |= type == ECH || type == ESNI;
    }
    return NULL;
}

static const char *read_message(struct str body, struct client_hello_said *ret)
{
    struct cursor c = { .rest = body };
    size_t version = number(&c, 2);
    take(&c, 32);
    size_t session = vector(&c, 1).n;
    size_t suites = vector(&c, 2).n;
    size_t compressions = vector(&c, 1).n;
    if (c.bad || version >> 8 != 3 || session > 32 || !suites || suites % 2 || !compressions)
        return "the ClientHello is malformed";
    const char *why = c.rest.n ? read_extensions(&c, ret) : NULL;
    return why ? why : c.bad || c.rest.n ? "the ClientHello is malformed" : NULL;
}

/* --- the records --- */

/* From w->at on, record by record. HELLO_READY: all of them are there, up to w->at. */
static enum client_hello read_records(struct client_hello_walk *w, struct str bytes, size_t max, const char **ret_why)
{
    while (!w->want || w->have < w->want) {
        if (w->at >= max) {
            *ret_why = "the ClientHello is over limits.hello_bytes";
            return HELLO_BAD;
        }
        struct str r = str_from(bytes, w->at);
        size_t have = w->have, want = w->want, head = w->head; /* of this record nothing is kept before it is whole */
        size_t n = r.n >= RECORD_HEAD ? byte_at(r, 3) << 8 | byte_at(r, 4) : 0;
        if ((r.n >= 1 && byte_at(r, 0) != HANDSHAKE) || (r.n >= 2 && byte_at(r, 1) != 3) || (r.n >= RECORD_HEAD && (!n || n > RECORD_MOST)))
            *ret_why = "what came is no TLS record with a handshake";
        if (*ret_why)
            return HELLO_BAD;
        if (r.n < RECORD_HEAD)
            return HELLO_MORE;
        struct str part = str_sub(r, RECORD_HEAD, r.n - RECORD_HEAD < n ? r.n - RECORD_HEAD : n);
        for (size_t i = 0; i < part.n && have + i < HELLO_HEAD; i++) {
            if (have + i == 0 && byte_at(part, i) != CLIENT_HELLO)
                *ret_why = "the handshake does not begin with a ClientHello";
            head = head << 8 | byte_at(part, i);
        }
        if (have + part.n >= HELLO_HEAD && !want)
            want = (head & 0xffffff) + HELLO_HEAD;
        if (!*ret_why && want > max)
            *ret_why = "the ClientHello is over limits.hello_bytes";
        if (!*ret_why && want && have + n > want)
            *ret_why = "the ClientHello shares its record with something else";
        if (*ret_why)
            return HELLO_BAD;
        if (part.n < n)
            return bytes.n > max ? (*ret_why = "the ClientHello is over limits.hello_bytes", HELLO_BAD) : HELLO_MORE;
        *w = (struct client_hello_walk) { .at = w->at + RECORD_HEAD + n, .have = have + n, .want = want, .head = head };
    }
    return HELLO_READY;
}

/* What is in the records, without their headers. */
static void join_records(struct str records, struct buf *out)
{
    buf_reset(out);
    while (records.n) {
        size_t n = byte_at(records, 3) << 8 | byte_at(records, 4);
        buf_put(out, str_sub(records, RECORD_HEAD, n));
        records = str_from(records, RECORD_HEAD + n);
    }
}

enum client_hello client_hello_read(struct client_hello_walk *walk, struct str bytes, size_t max, struct buf *scratch,
                                    struct client_hello_said *ret, const char **ret_why)
{
    *ret_why = NULL;
    enum client_hello result = read_records(walk, bytes, max, ret_why);
    if (result == HELLO_MORE)
        return result;
    size_t all = walk->at;
    *walk = (struct client_hello_walk) { 0 };
    if (result == HELLO_BAD)
        return result;
    join_records(str_sub(bytes, 0, all), scratch);
    *ret = (struct client_hello_said) { .sni = STR_NONE, .bytes = all };
    *ret_why = scratch->failed ? "out of memory" : read_message(str_from(buf_str(scratch), HELLO_HEAD), ret);
    return *ret_why ? HELLO_BAD : HELLO_READY;
}
