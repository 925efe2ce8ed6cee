/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/record.h"

#include <assert.h>

/* What every exchange's close repeats from its open (PRODUCT: Events). */
static const enum event_field shared_fields[] = {
    FIELD_AGENT,       FIELD_CLIENT,      FIELD_CONN_ID,     FIELD_REQUEST_ID, FIELD_METHOD,       FIELD_SCHEME,
    FIELD_HOST,        FIELD_PORT,        FIELD_SNI,         FIELD_PATH,       FIELD_HTTP_VERSION, FIELD_RULE,
    FIELD_CREDENTIALS, FIELD_ORIGIN_ADDR, FIELD_TLS_VERSION, FIELD_TLS_CIPHER, FIELD_TLS_ISSUER,   FIELD_DNS_ID,
    FIELD_HOST_ADDR,
};

static inline void set(struct record *r, enum event_field f, struct record_value v)
{
    r->present[(unsigned)f / 64] |= (uint64_t)1 << ((unsigned)f % 64);
    r->v[f] = v;
}

void record_set(struct record *r, enum event_field f, struct record_value v)
{
    set(r, f, v);
}

/* What a value of each field must look like, in the fewest comparisons. */
enum { LEAST_STR = 0, LEAST_LIST = 0, LEAST_RAW = 0, LEAST_U64 = 8, LEAST_BOOL = 1 };
enum { SPREAD_STR = 0xffff, SPREAD_LIST = 0xffff, SPREAD_RAW = 0xffff, SPREAD_U64 = 0, SPREAD_BOOL = 0 };
struct shape {
    uint8_t kind;
    uint16_t least, spread; /* length from least to least + spread */
};
static const struct shape shapes[FIELD_COUNT_OF] = {
#define FIELD(name, path, kind, max, doc) [FIELD_##name] = { KIND_##kind, LEAST_##kind, SPREAD_##kind & (max) },
#include "audit/fields.def"
#undef FIELD
};

/* Set by the logger alone: role, worker, cut, and what a checkpoint says. */
static bool logger_only(enum event_field f)
{
    return (f >= FIELD_HEAD && f <= FIELD_SIGNATURE) || f >= FIELD_CUT;
}
static_assert(FIELD_OLDEST_OPEN == FIELD_HEAD + 1 && FIELD_SIGNATURE == FIELD_HEAD + 2 && FIELD_ROLE == FIELD_CUT + 1 &&
                  FIELD_WORKER == FIELD_CUT + 2 && FIELD_COUNT_OF == FIELD_CUT + 3,
              "logger_only goes by their order");

static inline bool value_ok(enum event_field f, unsigned kind, uint16_t n)
{
    const struct shape *s = &shapes[f];
    if (kind == s->kind)
        return (unsigned)n - s->least <= s->spread;
    return kind == KIND_NULL && n == 0;
}

bool record_decode(const void *bytes, size_t n, struct record *ret)
{
    const unsigned char *p = bytes, *end = p + n;
    uint16_t type;
    if (n < EVENT_HEAD || n > EVENT_MAX)
        return false;
    memcpy(&type, p, 2);
    if (type <= EVENT_NONE || type >= EVENT_TYPE_COUNT)
        return false;
    ret->type = (enum event_type)type;
    memcpy(&ret->flags, p + 2, 2);
    memcpy(&ret->wall_us, p + 8, 8);
    ret->present[0] = ret->present[1] = 0;
    for (p += EVENT_HEAD; p < end;) {
        uint16_t length;
        if (end - p < 4)
            return false;
        enum event_field f = (enum event_field)p[0];
        unsigned kind = p[1];
        memcpy(&length, p + 2, 2);
        if (f == FIELD_NONE || f >= FIELD_COUNT_OF || length > end - p - 4 || !value_ok(f, kind, length))
            return false;
        const unsigned char *value = p + 4;
        p = value + length;
        if (logger_only(f))
            continue;
        if (kind != KIND_LIST)
            set(ret, f, (struct record_value) { value, length, (uint8_t)kind });
        else if (!record_has(ret, f) || ret->v[f].kind != KIND_LIST)
            set(ret, f, (struct record_value) { value - 4, (uint16_t)(end - (value - 4)), KIND_LIST });
    }
    return true;
}

struct str record_str(const struct record *r, enum event_field f)
{
    if (!record_has(r, f) || (r->v[f].kind != KIND_STR && r->v[f].kind != KIND_RAW))
        return STR_NONE;
    return str_of(r->v[f].p, r->v[f].n);
}

void record_inherit(struct record *r, const struct record *from)
{
    for (size_t i = 0; i < sizeof shared_fields / sizeof *shared_fields; i++) {
        enum event_field f = shared_fields[i];
        if (!record_has(r, f) && record_has(from, f))
            record_set(r, f, from->v[f]);
    }
}
