/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames. The first byte: whose they are, whether they may be compressed, the size of the pieces. However the bytes are cut, what they
 * say and the verdict are the same; and every frame that was read, written again, reads the same. */
#include "proxy/ws_frame.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void die(const char *why)
{
    fprintf(stderr, "%s\n", why);
    abort();
}

struct outcome {
    struct buf told;  /* every event with its bytes */
    struct buf again; /* the frames, written by us, under a mask of zeros */
    struct buf payload;
    unsigned code;
};

static void put_again(struct outcome *o, const struct ws_in *w, unsigned opcode, bool fin, bool rsv1, struct str payload)
{
    static const unsigned char zeros[WS_MASK];
    ws_put_head(&o->again, opcode, fin, rsv1, payload.n, w->from_client ? zeros : NULL);
    buf_put(&o->again, payload);
}

static void tell(struct outcome *o, const struct ws_in *w, enum ws_event e, struct str piece)
{
    static char plain[1 << 16];
    switch (e) {
    case WS_HEAD:
        if (ws_head_bytes(w).n > WS_HEAD_MAX || w->length > w->frame_max)
            die("a head that is none");
        buf_putf(&o->told, "h%u%u%u:%llu ", w->opcode, w->fin, w->rsv1, (unsigned long long)w->length);
        break;
    case WS_DATA:
        for (size_t at = 0; at < piece.n; at += sizeof plain) {
            struct str part = str_sub(piece, at, sizeof plain);
            if (w->from_client)
                ws_mask(plain, part.p, part.n, w->mask, w->mask_at + at);
            else
                memcpy(plain, part.p, part.n);
            buf_put(&o->payload, str_of(plain, part.n));
        }
        break;
    case WS_FRAME_END:
        if (buf_size(&o->payload) != w->length)
            die("a payload that is not as long as its head said");
        buf_put(&o->told, buf_str(&o->payload));
        put_again(o, w, w->opcode, w->fin, w->rsv1, buf_str(&o->payload));
        buf_reset(&o->payload);
        break;
    case WS_CONTROL:
        if (w->control_n > WS_CONTROL_MAX || w->opcode < WS_CLOSE)
            die("a control frame that is none");
        buf_putf(&o->told, "c%u:", w->opcode);
        buf_put(&o->told, str_of(w->control, w->control_n));
        put_again(o, w, w->opcode, true, false, str_of(w->control, w->control_n));
        break;
    case WS_MORE:
    case WS_BAD:
    default:
        break;
    }
}

static void run(struct outcome *o, struct str in, bool client, bool coded, size_t step)
{
    struct ws_in w;
    struct ws_fault fault = { 0 };
    buf_init(&o->told, 1 << 22);
    buf_init(&o->again, 1 << 22);
    buf_init(&o->payload, 1 << 22);
    ws_in_init(&w, client, coded, 1 << 20);
    enum ws_event e = WS_MORE;
    size_t at = 0;
    for (size_t have = 0; e != WS_BAD;) {
        have = in.n - have < step ? in.n : have + step;
        do {
            size_t used;
            struct str piece, rest = str_sub(in, at, have - at);
            e = ws_next(&w, rest, &used, &piece, &fault);
            if (used > rest.n || (piece.n && (piece.p < rest.p || piece.p + piece.n > rest.p + used)))
                die("outside of what was given");
            if (e == WS_MORE && used != rest.n)
                die("more is wanted, and not all was used");
            at += used;
            tell(o, &w, e, piece);
        } while (e != WS_MORE && e != WS_BAD);
        if (have == in.n)
            break;
    }
    o->code = e == WS_BAD ? fault.code : 0;
    if (e == WS_BAD && (!fault.why || !ws_close_code_ok(fault.code)))
        die("a fault without a reason");
}

static void done(struct outcome *o)
{
    buf_done(&o->told);
    buf_done(&o->again);
    buf_done(&o->payload);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 1 << 16)
        return 0;
    bool client = data[0] & 1, coded = data[0] & 2;
    size_t step = (size_t)(data[0] >> 2) + 1;
    struct str in = str_of(data + 1, size - 1);
    struct outcome whole, pieces, bytes, again;
    run(&whole, in, client, coded, in.n ? in.n : 1);
    run(&pieces, in, client, coded, step);
    run(&bytes, in, client, coded, 1);
    if (whole.code != pieces.code || whole.code != bytes.code || !str_eq(buf_str(&whole.told), buf_str(&pieces.told)) ||
        !str_eq(buf_str(&whole.told), buf_str(&bytes.told)))
        die("in pieces the frames differ");
    run(&again, buf_str(&whole.again), client, coded, step);
    struct str told = str_sub(buf_str(&whole.told), 0, buf_size(&again.told)); /* what did not end was not written */
    if (again.code || !str_eq(told, buf_str(&again.told)))
        die("frames that were written read differently");
    done(&whole);
    done(&pieces);
    done(&bytes);
    done(&again);
    return 0;
}
