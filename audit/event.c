/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/event.h"

#include "base/clock.h"
#include "base/log.h"

#include <assert.h>
#include <openssl/evp.h>
#include <stdio.h>

const struct event_field_desc event_fields[FIELD_COUNT_OF] = {
#define FIELD(name, path, kind, max, doc) [FIELD_##name] = { path, KIND_##kind, max, doc },
#include "audit/fields.def"
#undef FIELD
};
static_assert(FIELD_COUNT_OF <= 128, "struct record keeps one bit per field in two words");

static const char *const type_names[EVENT_TYPE_COUNT] = {
    [EVENT_NONE] = "none",
    [EVENT_OPEN] = "open",
    [EVENT_CLOSE] = "close",
    [EVENT_CONN] = "conn",
    [EVENT_DNS] = "dns",
    [EVENT_LEASE] = "lease",
    [EVENT_FINDING] = "finding",
    [EVENT_APPROVAL] = "approval",
    [EVENT_CONFIG] = "config",
    [EVENT_LIFECYCLE] = "lifecycle",
    [EVENT_CHECKPOINT] = "checkpoint",
};

const char *event_type_name(enum event_type t)
{
    return t > EVENT_NONE && t < EVENT_TYPE_COUNT ? type_names[t] : type_names[EVENT_NONE];
}

static void mark_cut(struct event *e)
{
    e->cut = true;
    e->bytes[2] |= EVENT_FLAG_CUT;
}

void event_init(struct event *e, enum event_type type)
{
    uint16_t head[4] = { (uint16_t)type };
    int64_t now = clock_wall_us();
    memcpy(e->bytes, head, 8);
    memcpy(e->bytes + 8, &now, 8);
    e->type = type;
    e->n = EVENT_HEAD;
    e->cut = false;
}

/* Room for one value's n bytes, its head written; NULL when the record is full. */
static inline unsigned char *value_new(struct event *e, enum event_field f, enum event_kind kind, size_t n)
{
    MUST(f > FIELD_NONE && f < FIELD_COUNT_OF);
    if (n + 4 > (size_t)(EVENT_MAX - e->n)) {
        mark_cut(e);
        return NULL;
    }
    unsigned char *p = e->bytes + e->n;
    uint16_t length = (uint16_t)n;
    p[0] = (unsigned char)f;
    p[1] = (unsigned char)kind;
    memcpy(p + 2, &length, 2);
    e->n = (uint16_t)(e->n + 4 + n);
    return p + 4;
}

static void put_bytes(struct event *e, enum event_field f, enum event_kind kind, struct str v)
{
    unsigned char *p = value_new(e, f, kind, v.n);
    if (p && v.n)
        memcpy(p, v.p, v.n);
}

/* Largest n' <= n that does not split a UTF-8 sequence of s. */
static size_t utf8_floor(struct str s, size_t n)
{
    size_t k = n;
    while (k > 0 && n - k < 3 && ((unsigned char)s.p[k] & 0xc0) == 0x80)
        k--;
    return ((unsigned char)s.p[k] & 0xc0) == 0x80 ? n : k;
}

/* What is cut off stays comparable: the tail says how much is missing and the hash of the whole. */
static struct str cut_text(struct str v, size_t max, char out[4096])
{
    enum { TAIL_MAX = 48, HASH_FROM = 64 };
    if (max < HASH_FROM)
        return str_sub(v, 0, utf8_floor(v, max));
    unsigned char digest[EVP_MAX_MD_SIZE] = { 0 };
    unsigned size = 0;
    if (EVP_Digest(v.p, v.n, digest, &size, EVP_sha256(), NULL) != 1)
        memset(digest, 0, sizeof digest);
    size_t keep = utf8_floor(v, max - TAIL_MAX);
    memcpy(out, v.p, keep);
    int n = snprintf(out + keep, TAIL_MAX + 1, "...[+%zu sha256:%02x%02x%02x%02x%02x%02x%02x%02x]", v.n - keep,
                     digest[0], digest[1], digest[2], digest[3], digest[4], digest[5], digest[6], digest[7]);
    size_t tail = n < 0 ? 0 : n > TAIL_MAX ? (size_t)TAIL_MAX : (size_t)n;
    return str_of(out, keep + tail);
}

static void put_text(struct event *e, enum event_field f, enum event_kind kind, struct str v)
{
    MUST(f > FIELD_NONE && f < FIELD_COUNT_OF);
    size_t max = event_fields[f].max;
    if (__builtin_expect(v.n <= max, 1)) {
        put_bytes(e, f, kind, v);
        return;
    }
    char out[4096] EVENT_LOCAL;
    static_assert(EVENT_MAX / 2 <= sizeof out, "the longest field fits");
    mark_cut(e);
    put_bytes(e, f, kind, cut_text(v, max < sizeof out ? max : sizeof out, out));
}

void event_put_str(struct event *e, enum event_field f, struct str v)
{
    MUST(f > FIELD_NONE && f < FIELD_COUNT_OF);
    enum event_kind kind = event_fields[f].kind;
    MUST(kind == KIND_STR || kind == KIND_RAW);
    put_text(e, f, kind, v);
}

void event_add(struct event *e, enum event_field f, struct str v)
{
    MUST(f > FIELD_NONE && f < FIELD_COUNT_OF && event_fields[f].kind == KIND_LIST);
    put_text(e, f, KIND_LIST, v);
}

void event_put_u64(struct event *e, enum event_field f, uint64_t v)
{
    MUST(f > FIELD_NONE && f < FIELD_COUNT_OF && event_fields[f].kind == KIND_U64);
    unsigned char *p = value_new(e, f, KIND_U64, 8);
    if (p)
        memcpy(p, &v, 8);
}

void event_put_bool(struct event *e, enum event_field f, bool v)
{
    MUST(f > FIELD_NONE && f < FIELD_COUNT_OF && event_fields[f].kind == KIND_BOOL);
    unsigned char *p = value_new(e, f, KIND_BOOL, 1);
    if (p)
        *p = v;
}

void event_put_null(struct event *e, enum event_field f)
{
    value_new(e, f, KIND_NULL, 0);
}

/* --- ids --- */

static const char base32[32] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"; /* Crockford */

static int base32_value(char c)
{
    const char *p = c ? memchr(base32, c, sizeof base32) : NULL;
    return p ? (int)(p - base32) : -1;
}

static void put_time(char out[10], uint64_t ms)
{
    for (int i = 9; i >= 0; i--, ms >>= 5)
        out[i] = base32[ms & 31];
}

static void put_chance(char out[16])
{
    unsigned char r[16];
    rand_bytes(r, sizeof r);
    for (int i = 0; i < 16; i++)
        out[i] = base32[r[i] & 31];
}

void event_id_new(char out[27])
{
    int64_t us = clock_wall_us();
    put_time(out, us > 0 ? (uint64_t)us / 1000 : 0);
    put_chance(out + 10);
    out[26] = 0;
}

void event_ids_next(struct event_ids *s, uint64_t now_ms)
{
    if (now_ms > s->ms || !s->text[0]) {
        s->ms = now_ms > s->ms ? now_ms : s->ms;
        put_time(s->text, s->ms);
        put_chance(s->text + 10);
        s->text[10] = base32[base32_value(s->text[10]) & 15]; /* room to count up within this millisecond */
        s->text[26] = 0;
        return;
    }
    for (int i = 25; i >= 10; i--) {
        int v = base32_value(s->text[i]);
        s->text[i] = base32[(v + 1) & 31];
        if (v < 31)
            return;
    }
    put_time(s->text, ++s->ms); /* 2^79 ids in one millisecond: not in this world, but still ascending */
}

void event_ids_continue(struct event_ids *s, struct str id)
{
    uint64_t ms = 0;
    if (id.n != 26)
        return;
    for (size_t i = 0; i < id.n; i++) {
        int v = base32_value(id.p[i]);
        if (v < 0)
            return;
        if (i < 10)
            ms = ms << 5 | (unsigned)v;
    }
    s->ms = ms;
    memcpy(s->text, id.p, 26);
    s->text[26] = 0;
}
