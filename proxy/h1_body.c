/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies, RFC 9112 6 and 7. Chunk heads are read byte by byte in states, so that nothing need be kept between reads; a
 * trailer section must lie whole in the reader's buffer (bounded by trailer_max) before it is given out. */
#include "proxy/h1_body.h"

#include "proxy/h1_scan.h"

enum body_state {
    S_SIZE = 0, /* of a chunk; with digits == 0: its first */
    S_EXT,
    S_SIZE_LF,
    S_DATA,
    S_DATA_CR,
    S_DATA_LF,
    S_TRAILERS,
    S_END,
    S_FAILED,
};

enum { CHUNK_DIGITS = 16 };

void h1_body_in_init(struct h1_body_in *b, const struct h1_head *h, size_t ext_max, size_t trailer_max)
{
    *b = (struct h1_body_in) {
        .kind = h->body,
        .left = h->body == H1_BODY_LENGTH ? h->length : 0,
        .state = h->body == H1_BODY_NONE || (h->body == H1_BODY_LENGTH && !h->length) ? S_END : S_SIZE,
        .ext_max = ext_max,
        .trailer_max = trailer_max,
    };
}

static enum h1_body_event body_bad(struct h1_body_in *b, struct h1_fault *fault, const char *why, size_t at)
{
    b->state = S_FAILED;
    h1_fail(fault, H1_BAD, why, at);
    return H1_BODY_BAD;
}

/* NULL, or why the byte is wrong; moves the state. */
static const char *size_byte(struct h1_body_in *b, char c)
{
    int digit = ascii_hex(c);
    if (digit >= 0) {
        if (b->digits == CHUNK_DIGITS)
            return "a chunk size of more than 16 digits";
        b->left = b->left << 4 | (uint64_t)digit;
        b->digits++;
        return NULL;
    }
    if (!b->digits)
        return "a chunk does not begin with its size in hexadecimal";
    if (b->left > INT64_MAX)
        return "a chunk size over 2^63-1";
    if (c == '\r')
        b->state = S_SIZE_LF;
    else if (c == ';')
        b->state = S_EXT;
    else
        return "a chunk size is followed by something other than CRLF or an extension";
    return NULL;
}

static const char *ext_byte(struct h1_body_in *b, char c)
{
    if (c == '\r') {
        b->state = S_SIZE_LF;
        return NULL;
    }
    if (((unsigned char)c < 0x20 && c != '\t') || c == 0x7f)
        return "a control character in a chunk extension";
    return NULL;
}

/* Everything between chunk data: NULL or why. */
static const char *head_byte(struct h1_body_in *b, char c)
{
    switch ((enum body_state)b->state) {
    case S_SIZE:
        return size_byte(b, c);
    case S_EXT:
        if (b->ext_bytes++ >= b->ext_max)
            return "chunk extensions over limits.chunk_ext_bytes";
        return ext_byte(b, c);
    case S_SIZE_LF:
        b->state = b->left ? S_DATA : S_TRAILERS;
        return c == '\n' ? NULL : "a chunk size line does not end in CRLF";
    case S_DATA_CR:
        b->state = S_DATA_LF;
        return c == '\r' ? NULL : "chunk data is not followed by CRLF";
    case S_DATA_LF:
        b->state = S_SIZE;
        b->digits = 0;
        return c == '\n' ? NULL : "chunk data is not followed by CRLF";
    case S_DATA:
    case S_TRAILERS:
    case S_END:
    case S_FAILED:
        break;
    }
    return "broken state";
}

static enum h1_body_event trailers_next(struct h1_body_in *b, struct str bytes, size_t at, size_t *ret_used,
                                        struct str *ret_data, struct h1_fault *fault)
{
    struct str rest = str_from(bytes, at);
    size_t end = 0;
    bool line;
    if (str_starts(rest, STR("\r\n"))) {
        end = 2;
    } else if (h1_end_find(rest, b->scanned > rest.n ? 0 : b->scanned, &end, &line, fault) < 0) {
        b->state = S_FAILED;
        if (fault)
            fault->at += at;
        return H1_BODY_BAD;
    }
    if (end > b->trailer_max || (!end && rest.n >= b->trailer_max))
        return body_bad(b, fault, "a trailer section over limits.trailer_bytes", at);
    if (!end) {
        b->scanned = rest.n;
        *ret_used = at;
        return H1_BODY_MORE;
    }
    b->state = S_END;
    *ret_data = str_sub(rest, 0, end - 2);
    *ret_used = at + end;
    return H1_BODY_TRAILERS;
}

static enum h1_body_event chunked_next(struct h1_body_in *b, struct str bytes, size_t *ret_used, struct str *ret_data,
                                       struct h1_fault *fault)
{
    size_t at = 0;
    while (at < bytes.n && b->state != S_TRAILERS) {
        if (b->state == S_DATA) {
            size_t have = bytes.n - at;
            size_t take = b->left < have ? (size_t)b->left : have;
            *ret_data = str_sub(bytes, at, take);
            *ret_used = at + take;
            b->left -= take;
            if (!b->left)
                b->state = S_DATA_CR;
            return H1_BODY_DATA;
        }
        const char *why = head_byte(b, bytes.p[at]);
        if (why)
            return body_bad(b, fault, why, at);
        at++;
    }
    if (b->state == S_TRAILERS && at < bytes.n)
        return trailers_next(b, bytes, at, ret_used, ret_data, fault);
    *ret_used = at;
    return H1_BODY_MORE;
}

enum h1_body_event h1_body_next(struct h1_body_in *b, struct str bytes, size_t *ret_used, struct str *ret_data,
                                struct h1_fault *fault)
{
    *ret_used = 0;
    *ret_data = STR_NONE;
    if (b->state == S_FAILED)
        return body_bad(b, fault, "the body was malformed before", 0);
    if (b->state == S_END)
        return H1_BODY_END;
    if (b->kind == H1_BODY_CHUNKED)
        return chunked_next(b, bytes, ret_used, ret_data, fault);
    if (!bytes.n)
        return H1_BODY_MORE;
    size_t take = bytes.n;
    if (b->kind == H1_BODY_LENGTH) {
        take = b->left < take ? (size_t)b->left : take;
        b->left -= take;
        if (!b->left)
            b->state = S_END;
    }
    *ret_data = str_sub(bytes, 0, take);
    *ret_used = take;
    return H1_BODY_DATA;
}

bool h1_body_closed(struct h1_body_in *b)
{
    if (b->kind == H1_BODY_UNTIL_CLOSE && b->state != S_FAILED)
        b->state = S_END;
    return b->state == S_END;
}

/* --- writing --- */

void h1_put_chunk(struct buf *out, struct str data)
{
    static const char hex[] = "0123456789abcdef";
    if (!data.n) { /* would be the end of the body */
        out->failed = true;
        return;
    }
    char head[sizeof(size_t) * 2 + 2];
    size_t at = sizeof head;
    head[--at] = '\n';
    head[--at] = '\r';
    for (size_t n = data.n; n; n >>= 4)
        head[--at] = hex[n & 15];
    size_t head_n = sizeof head - at;
    if (data.n > out->max) { /* also keeps the sum from wrapping */
        out->failed = true;
        return;
    }
    char *p = buf_reserve(out, head_n + data.n + 2);
    if (!p)
        return;
    memcpy(p, head + at, head_n);
    memcpy(p + head_n, data.p, data.n);
    memcpy(p + head_n + data.n, "\r\n", 2);
    buf_wrote(out, head_n + data.n + 2);
}

void h1_put_chunk_end(struct buf *out, const struct field *trailers, size_t n)
{
    buf_put(out, STR("0\r\n"));
    for (size_t i = 0; i < n; i++)
        h1_put_field(out, trailers[i].name, trailers[i].value);
    buf_put(out, STR("\r\n"));
}
