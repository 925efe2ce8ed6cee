/* SPDX-License-Identifier: Apache-2.0
 *
 * permessage-deflate. The first byte: bit 0, an extension list instead of a message; bit 1, without context; the rest the size of the
 * pieces. A list that was cut down to what we understand stays so. However a message is cut, it says the same or is refused; and what it
 * says, compressed by us, says so again. */
#include "proxy/ws_deflate.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SAYS_MAX = 1 << 18, ROOM = 4096 };

static void die(const char *why)
{
    fprintf(stderr, "%s\n", why);
    abort();
}

static void lists(struct str in)
{
    struct buf once, twice;
    struct ws_offer o = { 0 }, p = { 0 };
    struct ws_coding c = { 0 };
    buf_init(&once, 1 << 20);
    buf_init(&twice, 1 << 20);
    ws_offer_put(in, &o, &once);
    ws_offer_put(buf_str(&once), &p, &twice);
    if (!str_eq(buf_str(&once), buf_str(&twice)) || o.any != p.any || o.client_window != p.client_window || o.any != (buf_size(&once) > 0))
        die("a list of what we understand is not understood");
    if (!ws_coding_parse(in, &o, &c) && (!c.on || c.client_bits < 8 || c.client_bits > 15 || c.server_bits < 8 || c.server_bits > 15))
        die("a coding that cannot be");
    buf_done(&once);
    buf_done(&twice);
}

/* 1: it says what is in out; 0: too much; -1: refused. */
static int says(struct ws_inflate *z, struct str in, size_t step, size_t room, struct buf *out)
{
    static char piece[ROOM];
    const struct str parts[2] = { in, WS_INFLATE_TAIL };
    buf_init(out, SAYS_MAX + ROOM);
    for (int i = 0; i < 2; i++)
        for (size_t at = 0; at < parts[i].n; at += step) {
            struct str given = str_sub(parts[i], at, step);
            enum ws_inflated r;
            do {
                size_t n;
                r = ws_inflate_step(z, &given, piece, room, &n);
                if (n > room)
                    die("more than there is room for");
                buf_put(out, str_of(piece, n));
                if (r == WS_INFLATED_BAD)
                    return -1;
                if (buf_size(out) > SAYS_MAX)
                    return 0;
            } while (r == WS_INFLATED_FULL);
            if (given.n)
                die("input that was not used");
        }
    return ws_inflate_end(z) ? 1 : -1;
}

static void write_again(struct str text, bool alone, unsigned bits)
{
    struct ws_deflate *d = ws_deflate_new(alone, bits);
    struct ws_inflate *z = ws_inflate_new(alone);
    for (int i = 0; d && z && i < 4; i++) {
        struct buf packed, out;
        buf_init(&packed, 1 << 20);
        size_t half = i == 3 ? text.n / 2 : 0;
        if (i == 2 ? ws_deflate_put_stored(d, text, &packed)
                   : ws_deflate_put(d, str_sub(text, 0, half), false, &packed) || ws_deflate_put(d, str_from(text, half), true, &packed))
            die("a message that cannot be compressed");
        if (says(z, buf_str(&packed), 1 << 20, ROOM, &out) != 1 || !str_eq(buf_str(&out), text))
            die("what we compressed says something else");
        buf_done(&packed);
        buf_done(&out);
    }
    ws_deflate_free(&d);
    ws_inflate_free(&z);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 1 << 16)
        return 0;
    struct str in = str_of(data + 1, size - 1);
    if (data[0] & 1) {
        lists(in);
        return 0;
    }
    bool alone = data[0] & 2;
    size_t step = (size_t)(data[0] >> 2) + 1;
    struct ws_inflate *a = ws_inflate_new(alone), *b = ws_inflate_new(alone);
    struct buf whole, pieces;
    if (!a || !b)
        return 0;
    int r = says(a, in, in.n ? in.n : 1, ROOM, &whole), s = says(b, in, step, step, &pieces);
    /* Too much and refused are the same here: which of them is seen first hangs on the room. */
    if ((r == 1) != (s == 1) || (r == 1 && !str_eq(buf_str(&whole), buf_str(&pieces))))
        die("in pieces the message differs");
    if (r == 1)
        write_again(buf_str(&whole), alone, 8 + (unsigned)step % 8);
    buf_done(&whole);
    buf_done(&pieces);
    ws_inflate_free(&a);
    ws_inflate_free(&b);
    return 0;
}
