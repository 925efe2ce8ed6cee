/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/ws_frame.h"

#include "base/clock.h"

enum ws_state {
    S_HEAD = 0, /* of a frame: head_n bytes of it are there */
    S_DATA,
    S_END, /* of a data frame, which is still to be told */
    S_CONTROL,
    S_FAILED,
};

enum { BIT_FIN = 0x80, BIT_RSV1 = 0x40, BITS_RSV = 0x30, BIT_MASK = 0x80, LENGTH_16 = 126, LENGTH_64 = 127 };

void ws_in_init(struct ws_in *w, bool from_client, bool coded, uint64_t frame_max)
{
    *w = (struct ws_in) { .from_client = from_client, .coded = coded, .frame_max = frame_max };
}

bool ws_between_frames(const struct ws_in *w)
{
    return w->state == S_HEAD && !w->head_n;
}

bool ws_in_payload(const struct ws_in *w)
{
    return w->state == S_DATA;
}

static enum ws_event bad(struct ws_in *w, struct ws_fault *fault, unsigned code, const char *why)
{
    w->state = S_FAILED;
    *fault = (struct ws_fault) { .why = why, .code = code };
    return WS_BAD;
}

static bool is_control(unsigned opcode)
{
    return opcode >= WS_CLOSE;
}

/* NULL, or what is wrong with the first byte: judged as soon as it is there. */
static const char *judge_first(const struct ws_in *w, unsigned char b)
{
    unsigned opcode = b & 0x0f;
    if (opcode > WS_PONG || (opcode > WS_BINARY && opcode < WS_CLOSE))
        return "a reserved opcode";
    if (b & BITS_RSV)
        return "a reserved bit";
    if (b & BIT_RSV1 && !(w->coded && (opcode == WS_TEXT || opcode == WS_BINARY)))
        return "RSV1 where no extension gives it a meaning";
    if (is_control(opcode))
        return b & BIT_FIN ? NULL : "a control frame in fragments";
    if (opcode == WS_CONTINUATION && !w->in_message)
        return "a continuation of no message";
    if (opcode != WS_CONTINUATION && w->in_message)
        return "a new message before the last one ended";
    return NULL;
}

static const char *judge_second(const struct ws_in *w, unsigned char b)
{
    if (w->from_client && !(b & BIT_MASK))
        return "a frame of a client without a mask";
    if (!w->from_client && b & BIT_MASK)
        return "a frame of a server with a mask";
    if (is_control(w->head[0] & 0x0f) && (b & 0x7f) > WS_CONTROL_MAX)
        return "a control frame over 125 bytes";
    return NULL;
}

static size_t head_needs(const struct ws_in *w)
{
    if (w->head_n < 2)
        return 2;
    unsigned n = w->head[1] & 0x7f;
    return 2u + (n == LENGTH_16 ? 2u : n == LENGTH_64 ? 8u : 0u) + (w->from_client ? WS_MASK : 0u);
}

static const char *read_length(struct ws_in *w)
{
    unsigned n = w->head[1] & 0x7f;
    size_t wide = n == LENGTH_16 ? 2 : n == LENGTH_64 ? 8 : 0;
    uint64_t length = wide ? 0 : n;
    for (size_t i = 0; i < wide; i++)
        length = length << 8 | w->head[2 + i];
    w->length = w->left = length;
    memcpy(w->mask, w->head + 2 + wide, w->from_client ? WS_MASK : 0);
    if (wide == 2 && length < LENGTH_16)
        return "a length that is not in its shortest form";
    if (wide == 8 && length <= UINT16_MAX)
        return "a length that is not in its shortest form";
    return length > INT64_MAX ? "a length over 2^63-1" : NULL;
}

/* The head is whole. */
static enum ws_event head_done(struct ws_in *w, struct ws_fault *fault)
{
    const char *why = read_length(w);
    if (why)
        return bad(w, fault, WS_PROTOCOL_ERROR, why);
    w->opcode = w->head[0] & 0x0f;
    w->fin = w->head[0] & BIT_FIN;
    w->rsv1 = w->head[0] & BIT_RSV1;
    w->mask_at = 0;
    if (is_control(w->opcode)) {
        w->control_n = 0;
        w->state = S_CONTROL;
        return WS_MORE;
    }
    if (w->length > w->frame_max)
        return bad(w, fault, WS_TOO_BIG, "a frame over limits.ws_frame_bytes");
    if (w->opcode != WS_CONTINUATION) {
        w->in_message = true;
        w->text = w->opcode == WS_TEXT;
        w->message_rsv1 = w->rsv1;
    }
    w->state = w->left ? S_DATA : S_END;
    return WS_HEAD;
}

bool ws_close_code_ok(unsigned code)
{
    return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) || (code >= 3000 && code <= 4999);
}

static const char *judge_close(const struct ws_in *w, unsigned *ret_code)
{
    *ret_code = WS_PROTOCOL_ERROR;
    if (w->control_n == 1)
        return "a close frame of one byte";
    if (w->control_n >= 2 && !ws_close_code_ok((unsigned)w->control[0] << 8 | w->control[1]))
        return "a close code that may not be sent";
    uint32_t state = 0;
    if (w->control_n > 2 && !(ws_utf8(&state, str_of(w->control + 2, w->control_n - 2)) && !state)) {
        *ret_code = WS_NOT_CONSISTENT;
        return "a close reason that is not UTF-8";
    }
    return NULL;
}

static enum ws_event control_done(struct ws_in *w, struct ws_fault *fault)
{
    w->state = S_HEAD;
    w->head_n = 0;
    if (w->opcode == WS_CLOSE) {
        unsigned code;
        const char *why = judge_close(w, &code);
        if (why)
            return bad(w, fault, code, why);
        w->closed = true;
    }
    return WS_CONTROL;
}

/* Bytes of a head, one at a time: nearly always it is there whole. */
static enum ws_event read_head(struct ws_in *w, struct str bytes, size_t *at, struct ws_fault *fault)
{
    while (*at < bytes.n) {
        unsigned char b = (unsigned char)bytes.p[(*at)++];
        w->head[w->head_n++] = b;
        const char *why = w->head_n == 1 ? judge_first(w, b) : w->head_n == 2 ? judge_second(w, b) : NULL;
        if (why)
            return bad(w, fault, WS_PROTOCOL_ERROR, why);
        if (w->head_n == head_needs(w))
            return head_done(w, fault);
    }
    return WS_MORE;
}

static void read_control(struct ws_in *w, struct str bytes, size_t *at)
{
    size_t take = bytes.n - *at < w->left ? bytes.n - *at : (size_t)w->left;
    unsigned char *dst = w->control + w->control_n;
    if (take && w->from_client)
        ws_mask((char *)dst, bytes.p + *at, take, w->mask, w->control_n);
    else if (take)
        memcpy(dst, bytes.p + *at, take);
    w->control_n += take;
    w->left -= take;
    *at += take;
}

static enum ws_event read_data(struct ws_in *w, struct str bytes, size_t *at, struct str *ret_data)
{
    size_t take = bytes.n - *at < w->left ? bytes.n - *at : (size_t)w->left;
    *ret_data = str_sub(bytes, *at, take);
    w->mask_at = (size_t)((w->length - w->left) & 3);
    w->left -= take;
    *at += take;
    if (!w->left)
        w->state = S_END;
    return WS_DATA;
}

enum ws_event ws_next(struct ws_in *w, struct str bytes, size_t *ret_used, struct str *ret_data, struct ws_fault *fault)
{
    size_t at = 0;
    enum ws_event e = WS_MORE;
    *ret_data = STR_NONE;
    *ret_used = 0;
    if (w->closed) {
        *ret_used = bytes.n;
        return WS_MORE;
    }
    for (;;) {
        switch ((enum ws_state)w->state) {
        case S_HEAD:
            if (at == bytes.n)
                goto out;
            e = read_head(w, bytes, &at, fault);
            if (e != WS_MORE || w->state != S_CONTROL)
                goto out;
            break;
        case S_DATA:
            if (at < bytes.n)
                e = read_data(w, bytes, &at, ret_data);
            goto out;
        case S_END:
            w->state = S_HEAD;
            w->head_n = 0;
            w->in_message = !w->fin;
            e = WS_FRAME_END;
            goto out;
        case S_CONTROL:
            read_control(w, bytes, &at);
            if (!w->left)
                e = control_done(w, fault);
            goto out;
        case S_FAILED:
            e = bad(w, fault, WS_PROTOCOL_ERROR, "the frames were malformed before");
            goto out;
        }
    }
out:
    *ret_used = at;
    return e;
}

/* --- masks --- */

void ws_mask(char *dst, const char *src, size_t n, const unsigned char mask[WS_MASK], size_t at)
{
    unsigned char turned[8];
    for (size_t i = 0; i < sizeof turned; i++)
        turned[i] = mask[(at + i) & 3];
    uint64_t wide, word;
    memcpy(&wide, turned, sizeof wide);
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        memcpy(&word, src + i, 8);
        word ^= wide;
        memcpy(dst + i, &word, 8);
    }
    for (; i < n; i++)
        dst[i] = (char)((unsigned char)src[i] ^ turned[i & 7]);
}

/* --- UTF-8 --- */

/* The state is how many bytes are due (bits 0-1) and the bounds of the next one (bits 8-15 and 16-23). */
static uint32_t due(unsigned n, unsigned low, unsigned high)
{
    return n | low << 8 | high << 16;
}

/* State after a first byte of a longer form; 0: none begins so. */
static uint32_t utf8_first(unsigned char c)
{
    if (c >= 0xc2 && c <= 0xdf)
        return due(1, 0x80, 0xbf);
    if (c >= 0xe0 && c <= 0xef)
        return due(2, c == 0xe0 ? 0xa0 : 0x80, c == 0xed ? 0x9f : 0xbf);
    if (c >= 0xf0 && c <= 0xf4)
        return due(3, c == 0xf0 ? 0x90 : 0x80, c == 0xf4 ? 0x8f : 0xbf);
    return 0;
}

bool ws_utf8(uint32_t *state, struct str text)
{
    const uint64_t high = 0x8080808080808080u;
    uint32_t s = *state;
    for (size_t i = 0; i < text.n;) {
        if (!s) { /* plain ASCII, eight bytes at a time */
            uint64_t word;
            while (text.n - i >= 8 && (memcpy(&word, text.p + i, 8), !(word & high)))
                i += 8;
            if (i == text.n)
                break;
        }
        unsigned char c = (unsigned char)text.p[i++];
        if (s) {
            if (c < (s >> 8 & 0xff) || c > (s >> 16 & 0xff))
                return false;
            unsigned left = (s & 3) - 1;
            s = left ? due(left, 0x80, 0xbf) : 0;
        } else if (c >= 0x80 && !(s = utf8_first(c))) {
            return false;
        }
    }
    *state = s;
    return true;
}

/* --- writing --- */

void ws_put_head(struct buf *out, unsigned opcode, bool fin, bool rsv1, uint64_t length, const unsigned char *mask)
{
    unsigned char head[WS_HEAD_MAX];
    size_t n = 0, wide = length < LENGTH_16 ? 0 : length <= UINT16_MAX ? 2 : 8;
    head[n++] = (unsigned char)((fin ? BIT_FIN : 0) | (rsv1 ? BIT_RSV1 : 0) | opcode);
    head[n++] = (unsigned char)((mask ? BIT_MASK : 0) | (wide == 8 ? LENGTH_64 : wide == 2 ? LENGTH_16 : length));
    for (size_t i = wide; i > 0; i--)
        head[n++] = (unsigned char)(length >> 8 * (i - 1));
    if (mask) {
        memcpy(head + n, mask, WS_MASK);
        n += WS_MASK;
    }
    buf_put(out, str_of(head, n));
}

void ws_put_frame(struct buf *out, unsigned opcode, bool fin, bool rsv1, struct str payload, bool masked)
{
    unsigned char mask[WS_MASK];
    if (!masked) {
        ws_put_head(out, opcode, fin, rsv1, payload.n, NULL);
        buf_put(out, payload);
        return;
    }
    rand_bytes(mask, sizeof mask);
    ws_put_head(out, opcode, fin, rsv1, payload.n, mask);
    char *p = payload.n ? buf_reserve(out, payload.n) : NULL;
    if (!p)
        return;
    ws_mask(p, payload.p, payload.n, mask, 0);
    buf_wrote(out, payload.n);
}

void ws_put_close(struct buf *out, unsigned code, struct str reason, bool masked)
{
    char payload[WS_CONTROL_MAX];
    reason = str_sub(reason, 0, sizeof payload - 2);
    payload[0] = (char)(code >> 8);
    payload[1] = (char)(code & 0xff);
    if (reason.n)
        memcpy(payload + 2, reason.p, reason.n);
    ws_put_frame(out, WS_CLOSE, true, false, str_of(payload, reason.n + 2), masked);
}
