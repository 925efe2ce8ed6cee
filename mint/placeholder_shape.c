/* SPDX-License-Identifier: Apache-2.0 */
#include "mint/placeholder_shape.h"

#include "base/clock.h"
#include "base/log.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#define DIGITS "0123456789"
#define LOWER  "abcdefghijklmnopqrstuvwxyz"
#define UPPER  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* Index + 1 is the kind. base62 in the order of GitHub's checksum: digits, upper, lower. */
static const struct class
{
    char mark;
    struct str alphabet;
    unsigned centibits; /* of one character */
} classes[] = {
    { '#', { DIGITS, 10 }, 332 },
    { '*', { DIGITS UPPER LOWER, 62 }, 595 },
    { 'b', { LOWER "234567", 32 }, 500 },
    { 'B', { UPPER "234567", 32 }, 500 },
    { '@', { UPPER LOWER, 52 }, 570 },
    { '%', { DIGITS "abcdef", 16 }, 400 },
    { '~', { UPPER LOWER DIGITS "-_", 64 }, 600 },
};
enum { STREAM_MESSAGE_MAX = 16 << 20 }; /* two names of a configuration of 4 MiB */
enum {
    NCLASSES = sizeof classes / sizeof *classes,
    SHAPE_CHECKSUM = 255,
    CHECKSUM_N = 6,
    CHECKSUM_OF = 30,
    BASE62 = 2
};

static const struct desc {
    const char *name, *template, *env, *hosts, *what;
    uint8_t id;
} descs[] = {
#define SHAPE(name_, template_, id_, env_, hosts_, what_) { name_, template_, env_, hosts_, what_, id_ },
#include "mint/placeholder_shapes.def"
#undef SHAPE
};
enum { NSHAPES = sizeof descs / sizeof *descs };

static struct shape compiled[NSHAPES];

static uint8_t class_kind(char mark)
{
    for (size_t i = 0; i < NCLASSES; i++)
        if (classes[i].mark == mark)
            return (uint8_t)(i + 1);
    log_fatal("placeholder_shapes.def: no class '%c'", mark);
}

static void shape_add(struct shape *s, uint8_t kind, char literal, size_t count)
{
    for (; count; count--) {
        MUST(s->n < SHAPE_MAX);
        s->kind[s->n] = kind;
        s->literal[s->n++] = literal;
        if (kind && kind != SHAPE_CHECKSUM)
            s->body++;
    }
}

static void shape_compile(const struct desc *d, struct shape *s)
{
    *s = (struct shape) {
        .name = str_c(d->name), .env = str_c(d->env), .hosts = str_c(d->hosts), .what = str_c(d->what), .id = d->id
    };
    for (const char *p = d->template; *p; p++) {
        if (*p != '{') {
            shape_add(s, 0, *p, 1);
            continue;
        }
        size_t count = 0;
        for (p++; ascii_digit(*p); p++)
            count = count * 10 + (size_t)(*p - '0');
        if (*p == '!')
            shape_add(s, SHAPE_CHECKSUM, 0, CHECKSUM_N);
        else
            shape_add(s, class_kind(*p), 0, count);
        p++;
        MUST(*p == '}');
    }
    while (!s->kind[s->prefix])
        s->prefix++;
    MUST(s->id < s->body);
}

const struct shape *placeholder_shapes(size_t *ret_n)
{
    if (!compiled[NSHAPES - 1].n)
        for (size_t i = 0; i < NSHAPES; i++)
            shape_compile(&descs[i], &compiled[i]);
    *ret_n = NSHAPES;
    return compiled;
}

const struct shape *placeholder_shape_named(struct str name)
{
    size_t n;
    const struct shape *v = placeholder_shapes(&n);
    for (size_t i = 0; i < n; i++)
        if (str_eq(v[i].name, name))
            return &v[i];
    return NULL;
}

static bool words_have(struct str words, struct str word)
{
    struct str w;
    while (str_split(&words, ' ', &w))
        if (w.n && str_eq(w, word))
            return true;
    return false;
}

const struct shape *placeholder_shape_for_env(struct str env)
{
    size_t n;
    const struct shape *v = placeholder_shapes(&n);
    for (size_t i = 0; env.n && i < n; i++)
        if (words_have(v[i].env, env))
            return &v[i];
    return NULL;
}

const struct shape *placeholder_shape_for_host(struct str host)
{
    size_t n;
    const struct shape *v = placeholder_shapes(&n);
    for (size_t i = 0; host.n && i < n; i++)
        if (words_have(v[i].hosts, host))
            return &v[i];
    return NULL;
}

/* CRC-32 of IEEE 802.3, bit by bit: thirty bytes, once per candidate. */
static uint32_t crc32_of(const char *p, size_t n)
{
    uint32_t c = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        c ^= (unsigned char)p[i];
        for (int k = 0; k < 8; k++)
            c = (c >> 1) ^ (0xedb88320u & (0u - (c & 1)));
    }
    return ~c;
}

/* The six characters that stand at `at`, from the thirty before them. */
static void checksum_put(const char *token, size_t at, char out[CHECKSUM_N])
{
    uint32_t c = crc32_of(token + at - CHECKSUM_OF, CHECKSUM_OF);
    for (size_t i = CHECKSUM_N; i-- > 0; c /= 62)
        out[i] = classes[BASE62 - 1].alphabet.p[c % 62];
}

bool placeholder_shape_char(const struct shape *s, size_t i, char c)
{
    if (i >= s->n)
        return false;
    uint8_t kind = s->kind[i];
    if (!kind)
        return s->literal[i] == c;
    struct str a = classes[(kind == SHAPE_CHECKSUM ? BASE62 : kind) - 1].alphabet;
    return memchr(a.p, c, a.n) != NULL;
}

bool placeholder_shape_fits(const struct shape *s, struct str token)
{
    if (token.n != s->n || memcmp(token.p, s->literal, s->prefix) != 0)
        return false;
    for (size_t i = s->prefix; i < s->n; i++)
        if (!placeholder_shape_char(s, i, token.p[i]))
            return false;
    for (size_t i = 0; i < s->n; i++) {
        if (s->kind[i] != SHAPE_CHECKSUM)
            continue;
        char sum[CHECKSUM_N];
        checksum_put(token.p, i, sum);
        return memcmp(sum, token.p + i, CHECKSUM_N) == 0;
    }
    return true;
}

/* HMAC-SHA256 in counter mode over a prepared message; or, with no key, the system's randomness. */
struct stream {
    const unsigned char *key;
    struct buf message; /* ends in room for the counter */
    unsigned char block[32];
    size_t used;
    uint32_t counter;
};

static void stream_part(struct stream *s, struct str part)
{
    unsigned char n[4] = { (unsigned char)(part.n >> 24), (unsigned char)(part.n >> 16), (unsigned char)(part.n >> 8),
                           (unsigned char)part.n };
    buf_put(&s->message, str_of(n, sizeof n));
    buf_put(&s->message, part);
}

static void stream_init(struct stream *s, const unsigned char *key, struct str label, const struct shape *shape)
{
    *s = (struct stream) { .key = key, .used = sizeof s->block };
    buf_init(&s->message, STREAM_MESSAGE_MAX);
    stream_part(s, label);
    stream_part(s, shape->name);
}

static void stream_done(struct stream *s)
{
    OPENSSL_cleanse(s->block, sizeof s->block);
    buf_done(&s->message);
}

static unsigned char stream_byte(struct stream *s)
{
    if (s->used == sizeof s->block) {
        s->used = 0;
        if (!s->key) {
            rand_bytes(s->block, sizeof s->block);
        } else {
            size_t before = buf_size(&s->message);
            unsigned char n[4] = { 0, 0, (unsigned char)(s->counter >> 8), (unsigned char)s->counter };
            s->counter++;
            buf_put(&s->message, str_of(n, sizeof n));
            MUST(!s->message.failed);
            struct str m = buf_str(&s->message);
            unsigned len = 0;
            MUST(HMAC(EVP_sha256(), s->key, SHAPE_KEY, (const unsigned char *)m.p, m.n, s->block, &len) && len == 32);
            s->message.tail = s->message.head + before;
        }
    }
    return s->block[s->used++];
}

static char stream_char(struct stream *s, uint8_t kind)
{
    struct str a = classes[kind - 1].alphabet;
    unsigned mask = 1;
    while (mask < a.n)
        mask <<= 1;
    for (;;) {
        unsigned v = stream_byte(s) & (mask - 1);
        if (v < a.n)
            return a.p[v];
    }
}

/* Fills body characters [from, to) of out from the stream. */
static void fill(const struct shape *s, struct stream *st, size_t from, size_t to, char *out)
{
    size_t k = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (!s->kind[i] || s->kind[i] == SHAPE_CHECKSUM)
            continue;
        if (k >= from && k < to)
            out[i] = stream_char(st, s->kind[i]);
        k++;
    }
}

static void finish(const struct shape *s, char *out)
{
    for (size_t i = 0; i < s->n; i++) {
        if (!s->kind[i]) {
            out[i] = s->literal[i];
        } else if (s->kind[i] == SHAPE_CHECKSUM) {
            checksum_put(out, i, out + i);
            i += CHECKSUM_N - 1;
        }
    }
    out[s->n] = 0;
}

/* The MAC part and the rest, for the id that stands in out. */
static void fill_mac(const struct shape *s, const unsigned char *key, char *out)
{
    char id[SHAPE_MAX];
    size_t n = 0;
    for (size_t i = 0; i < s->n && n < s->id; i++)
        if (s->kind[i] && s->kind[i] != SHAPE_CHECKSUM)
            id[n++] = out[i];
    struct stream st;
    stream_init(&st, key, STR("placeholder mac v1"), s);
    stream_part(&st, str_of(id, n));
    fill(s, &st, s->id, s->body, out);
    stream_done(&st);
    finish(s, out);
}

void placeholder_shape_derive(const struct shape *s, const unsigned char *key, struct str agent, struct str credential,
                              char *out)
{
    struct stream st;
    stream_init(&st, key, STR("placeholder id v1"), s);
    stream_part(&st, agent);
    stream_part(&st, credential);
    fill(s, &st, 0, s->id, out);
    stream_done(&st);
    fill_mac(s, key, out);
}

void placeholder_shape_random(const struct shape *s, char *out)
{
    struct stream st;
    stream_init(&st, NULL, STR_NONE, s);
    fill(s, &st, 0, s->body, out);
    stream_done(&st);
    finish(s, out);
}

bool placeholder_shape_is_ours(const struct shape *s, const unsigned char *key, struct str token)
{
    if (!placeholder_shape_fits(s, token))
        return false;
    char want[SHAPE_MAX + 1];
    memcpy(want, token.p, token.n);
    fill_mac(s, key, want);
    return CRYPTO_memcmp(want, token.p, token.n) == 0;
}

void placeholder_shape_bits(const struct shape *s, unsigned *ret_id, unsigned *ret_mac)
{
    unsigned bits[2] = { 0, 0 }, k = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->kind[i] && s->kind[i] != SHAPE_CHECKSUM)
            bits[k++ >= s->id] += classes[s->kind[i] - 1].centibits;
    *ret_id = bits[0] / 100;
    *ret_mac = bits[1] / 100;
}
