/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/ws_deflate.h"

#include "base/log.h"

#include <malloc.h>
#include <stdlib.h>
#include <zlib.h>

enum { BITS_MIN = 8, BITS_MAX = 15, DEFLATE_BITS = 12, DEFLATE_MEMORY = 5, DEFLATE_PIECE = 16 * 1024, STORED_MAX = 65535 };

/* --- negotiation --- */

enum param { PARAM_SERVER_ALONE = 0, PARAM_CLIENT_ALONE, PARAM_SERVER_BITS, PARAM_CLIENT_BITS, PARAM_COUNT };
static const char *const param_names[PARAM_COUNT] = { "server_no_context_takeover", "client_no_context_takeover", "server_max_window_bits",
                                                      "client_max_window_bits" };

struct params {
    bool given[PARAM_COUNT];
    unsigned bits[PARAM_COUNT]; /* 0: without a value */
};

/* 8 to 15, without a leading zero; perhaps quoted (RFC 7692 7.1.2, RFC 6455 9.1). */
static bool parse_bits(struct str v, unsigned *ret)
{
    uint64_t n;
    if (v.n >= 2 && v.p[0] == '"' && v.p[v.n - 1] == '"')
        v = str_sub(v, 1, v.n - 2);
    if (!v.n || v.n > 2 || v.p[0] == '0' || !str_to_u64(v, BITS_MAX, &n) || n < BITS_MIN)
        return false;
    *ret = (unsigned)n;
    return true;
}

/* One extension of a list, without its commas. NULL, or why we cannot take it. */
static const char *parse_one(struct str text, bool answer, struct params *p)
{
    struct str name, param;
    *p = (struct params) { 0 };
    if (!str_split(&text, ';', &name) || !str_eq_nocase(str_trim(name), STR("permessage-deflate")))
        return "an extension other than permessage-deflate";
    while (str_split(&text, ';', &param)) {
        ptrdiff_t eq = str_find_char(param, '=');
        struct str key = str_trim(eq < 0 ? param : str_sub(param, 0, (size_t)eq));
        struct str value = eq < 0 ? STR_NONE : str_trim(str_from(param, (size_t)eq + 1));
        unsigned k = 0;
        while (k < PARAM_COUNT && !str_eq_nocase(key, str_c(param_names[k])))
            k++;
        if (k == PARAM_COUNT)
            return "a parameter of permessage-deflate that RFC 7692 does not have";
        if (p->given[k])
            return "a parameter of permessage-deflate twice";
        p->given[k] = true;
        bool bits = k == PARAM_SERVER_BITS || k == PARAM_CLIENT_BITS;
        if (eq >= 0 ? !bits || !parse_bits(value, &p->bits[k]) : bits && (answer || k == PARAM_SERVER_BITS))
            return "a parameter of permessage-deflate with a value that it cannot have";
    }
    return NULL;
}

static void put_params(const struct params *p, struct buf *out)
{
    if (buf_size(out))
        buf_put(out, STR(", "));
    buf_put(out, STR("permessage-deflate"));
    for (unsigned k = 0; k < PARAM_COUNT; k++) {
        if (!p->given[k])
            continue;
        buf_put(out, STR("; "));
        buf_put(out, str_c(param_names[k]));
        if (p->bits[k]) {
            buf_putc(out, '=');
            buf_put_u64(out, p->bits[k]);
        }
    }
}

void ws_offer_put(struct str value, struct ws_offer *o, struct buf *out)
{
    struct str one;
    while (str_split(&value, ',', &one)) { /* no value that we understand holds a comma */
        struct params p;
        if (parse_one(str_trim(one), false, &p))
            continue;
        o->any = true;
        o->client_window |= p.given[PARAM_CLIENT_BITS];
        put_params(&p, out);
    }
}

const char *ws_coding_parse(struct str value, const struct ws_offer *o, struct ws_coding *ret)
{
    struct params p;
    const char *why = parse_one(str_trim(value), true, &p);
    if (why)
        return why;
    if (!o->any)
        return "an extension that was not offered";
    if (p.given[PARAM_CLIENT_BITS] && !o->client_window)
        return "client_max_window_bits, which was not offered";
    *ret = (struct ws_coding) {
        .on = true,
        .client_alone = p.given[PARAM_CLIENT_ALONE],
        .server_alone = p.given[PARAM_SERVER_ALONE],
        .client_bits = p.bits[PARAM_CLIENT_BITS] ? p.bits[PARAM_CLIENT_BITS] : BITS_MAX,
        .server_bits = p.bits[PARAM_SERVER_BITS] ? p.bits[PARAM_SERVER_BITS] : BITS_MAX,
    };
    return NULL;
}

/* --- memory that may have held a value --- */

static void *zalloc(void *ctx, unsigned n, unsigned size)
{
    (void)ctx;
    return calloc(n, size);
}

static void zfree(void *ctx, void *p)
{
    (void)ctx;
    if (p)
        explicit_bzero(p, malloc_usable_size(p));
    free(p);
}

/* --- inflate --- */

struct ws_inflate {
    z_stream z;
    bool alone;
    bool ended; /* a last block was read: the next byte begins anew */
};

struct ws_inflate *ws_inflate_new(bool alone)
{
    struct ws_inflate *i = calloc(1, sizeof *i);
    if (!i)
        return NULL;
    i->alone = alone;
    i->z.zalloc = zalloc;
    i->z.zfree = zfree;
    if (inflateInit2(&i->z, -BITS_MAX) != Z_OK) { /* reads every smaller window as well */
        free(i);
        return NULL;
    }
    return i;
}

void ws_inflate_free(struct ws_inflate **ip)
{
    struct ws_inflate *i = *ip;
    *ip = NULL;
    if (!i)
        return;
    inflateEnd(&i->z);
    free(i);
}

static const Bytef *zbytes(const char *p)
{
    return (const Bytef *)(const void *)p;
}

enum ws_inflated ws_inflate_step(struct ws_inflate *i, struct str *in, char *out, size_t room, size_t *ret_n)
{
    *ret_n = 0;
    i->z.next_out = (Bytef *)(void *)out;
    i->z.avail_out = (uInt)room;
    for (;;) {
        if (i->ended) { /* RFC 7692 7.2.3.4: a block with BFINAL ends a stream, not the message */
            if (!in->n)
                return WS_INFLATED_MORE;
            if (inflateReset(&i->z) != Z_OK)
                return WS_INFLATED_BAD;
            i->ended = false;
        }
        i->z.next_in = (z_const Bytef *)(uintptr_t)zbytes(in->p);
        i->z.avail_in = in->n > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uInt)in->n;
        uInt before = i->z.avail_in;
        int r = inflate(&i->z, Z_SYNC_FLUSH);
        *in = str_from(*in, before - i->z.avail_in);
        *ret_n = room - i->z.avail_out;
        i->z.next_in = NULL;
        if (r == Z_STREAM_END)
            i->ended = true;
        else if (r != Z_OK && r != Z_BUF_ERROR)
            return WS_INFLATED_BAD;
        if (!i->z.avail_out)
            return WS_INFLATED_FULL; /* there may be more of it */
        if (!in->n && !i->ended)
            return WS_INFLATED_MORE;
        if (r == Z_BUF_ERROR) /* input is left, room too, and nothing goes on */
            return WS_INFLATED_BAD;
    }
}

bool ws_inflate_end(struct ws_inflate *i)
{
    /* Between two blocks, on a byte's border: the tail was an empty stored block, so a message that stopped within one is found here. */
    bool whole = i->ended || (i->z.data_type & 0x80);
    bool bits = !i->ended && (i->z.data_type & 0x3f);
    if (i->alone && inflateReset(&i->z) != Z_OK)
        return false;
    i->ended = i->alone ? false : i->ended;
    return whole && !bits;
}

/* --- deflate --- */

struct ws_deflate {
    z_stream z;
    bool alone;
    bool begun;  /* within a message */
    bool stored; /* no compressor: its window would be wider than the peer's */
};

struct ws_deflate *ws_deflate_new(bool alone, unsigned bits)
{
    struct ws_deflate *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->alone = alone;
    d->stored = bits <= BITS_MIN; /* zlib has none of 256 bytes */
    d->z.zalloc = zalloc;
    d->z.zfree = zfree;
    int w = bits < DEFLATE_BITS ? (int)bits : DEFLATE_BITS;
    if (!d->stored && deflateInit2(&d->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -w, DEFLATE_MEMORY, Z_DEFAULT_STRATEGY) != Z_OK) {
        free(d);
        return NULL;
    }
    return d;
}

void ws_deflate_free(struct ws_deflate **dp)
{
    struct ws_deflate *d = *dp;
    *dp = NULL;
    if (!d)
        return;
    if (!d->stored)
        deflateEnd(&d->z);
    free(d);
}

/* In stored blocks: what is compressed after them has nothing to refer to. */
static int put_stored(struct ws_deflate *d, struct str piece, bool last, struct buf *out)
{
    while (piece.n) {
        size_t n = piece.n < STORED_MAX ? piece.n : STORED_MAX;
        unsigned char head[5] = { 0, (unsigned char)n, (unsigned char)(n >> 8), (unsigned char)~n, (unsigned char)(~n >> 8) };
        buf_put(out, str_of(head, sizeof head));
        buf_put(out, str_sub(piece, 0, n));
        piece = str_from(piece, n);
    }
    if (last)
        buf_putc(out, 0); /* the head of the empty block whose rest is the tail */
    if (!d->stored && deflateReset(&d->z) != Z_OK)
        return -1;
    return out->failed ? -1 : 0;
}

int ws_deflate_put(struct ws_deflate *d, struct str piece, bool last, struct buf *out)
{
    if (d->stored)
        return put_stored(d, piece, last, out);
    if (!piece.n && !d->begun) /* a second flush in a row would give nothing, but one byte must be (7.2.3.6) */
        return last ? buf_putc(out, 0) : 0;
    if (piece.n > UINT32_MAX / 2)
        return -1;
    d->begun = !last;
    size_t start = buf_size(out);
    d->z.next_in = (z_const Bytef *)(uintptr_t)zbytes(piece.p);
    d->z.avail_in = (uInt)piece.n;
    do {
        char *p = buf_reserve(out, DEFLATE_PIECE);
        if (!p)
            return -1;
        d->z.next_out = (Bytef *)(void *)p;
        d->z.avail_out = DEFLATE_PIECE;
        if (deflate(&d->z, last ? Z_SYNC_FLUSH : Z_NO_FLUSH) == Z_STREAM_ERROR)
            return -1;
        buf_wrote(out, DEFLATE_PIECE - d->z.avail_out);
    } while (!d->z.avail_out);
    d->z.next_in = NULL;
    if (!last)
        return 0;
    MUST(buf_size(out) - start >= 4);
    out->tail -= 4; /* the empty block of the flush, which the other side puts back */
    return d->alone && deflateReset(&d->z) != Z_OK ? -1 : 0;
}

int ws_deflate_put_stored(struct ws_deflate *d, struct str message, struct buf *out)
{
    return put_stored(d, message, true, out);
}
