/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of a snapshot. Entries stand in one array, by credential and agent; an open-addressed index finds an exact
 * token. The finder is a needle set of the shapes' prefixes and of the literals only: where a prefix is found, the
 * shape says how long the token would be, the index whether it is live, the MAC whether it is at least ours. So a
 * thousand placeholders cost a scan no more than one. */
#include "mint/placeholder.h"

#include "base/log.h"
#include "mint/percent.h"
#include "mint/placeholder_shape.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>

static_assert((int)PLACEHOLDER_MAX == (int)SHAPE_MAX, "one maximum");

enum { INSTALL_KEY_MIN = 16, NEEDLE_MIN = 4, TABLE_ARENA_MAX = 256 << 20, TABLE_MAX = 1 << 20 };
/* Finder ids: literals by their index, prefixes by their shape. No prefix begins another (the test sees to it), so
 * where one stands no other shape need be tried. */
enum { FINDER_SHAPE = TABLE_MAX };

struct placeholder_table {
    unsigned refs;
    struct policy *policy;
    unsigned char key[SHAPE_KEY];
    struct arena arena;
    struct placeholder *v;
    size_t n, cap;
    uint32_t *index; /* entry + 1, by hash; a power of two, at most half full */
    size_t index_mask;
    uint32_t *of; /* entry + 1, by credential and agent */
    size_t nagents, ncredentials;
    size_t shortest;
    uint64_t *begins; /* of each shape: begin_bit of those that are live */
    struct needles *finder;
    struct needles *all;
};

bool placeholder_shape_known(struct str like)
{
    return placeholder_shape_named(like) != NULL;
}

void placeholder_shapes_put(struct buf *out)
{
    size_t n;
    const struct shape *v = placeholder_shapes(&n);
    for (size_t i = 0; i < n; i++) {
        char like[SHAPE_MAX + 1];
        memcpy(like, v[i].literal, v[i].prefix);
        like[v[i].prefix] = 0;
        buf_putf(out, "%-16.*s %-13s %3u characters  %.*s\n", STR_ARG(v[i].name), like, v[i].n, STR_ARG(v[i].what));
    }
}

static int shape_unknown(struct str like, struct err *err)
{
    char word[80];
    return err_set(err, "expected the name of a shape (outgate placeholder --help lists them), got \"%s\"",
                   str_escape(like, word, sizeof word));
}

int placeholder_random(struct str like, char *out, size_t size, struct err *err)
{
    const struct shape *s = placeholder_shape_named(like);
    if (!s)
        return shape_unknown(like, err);
    if (size <= s->n)
        return err_set(err, "a placeholder of this shape needs %u bytes, there is room for %zu", s->n + 1u, size);
    placeholder_shape_random(s, out);
    return 0;
}

/* Domain separation: the install key has other uses. */
static void subkey(struct str install_key, unsigned char out[SHAPE_KEY])
{
    static const char label[] = "outgate placeholder v1";
    unsigned n = 0;
    MUST(HMAC(EVP_sha256(), install_key.p, (int)install_key.n, (const unsigned char *)label, sizeof label - 1, out,
              &n) &&
         n == SHAPE_KEY);
}

static const struct shape *shape_of(const struct credential *c, struct err *err)
{
    if (c->like.n) {
        const struct shape *named = placeholder_shape_named(c->like);
        if (!named)
            shape_unknown(c->like, err);
        return named;
    }
    const struct shape *s = placeholder_shape_for_env(c->env);
    for (size_t i = 0; !s && i < c->nhosts; i++)
        s = placeholder_shape_for_host(host_str(&c->hosts[i].host));
    return s ? s : placeholder_shape_named(STR("generic"));
}

static int key_check(struct str install_key, struct err *err)
{
    if (install_key.n < INSTALL_KEY_MIN || install_key.n > 4096)
        return err_set(err, "install key: expected %d to 4096 bytes, got %zu", INSTALL_KEY_MIN, install_key.n);
    return 0;
}

int placeholder_derive(struct str install_key, const struct agent *agent, const struct credential *c, char *out,
                       size_t size, struct err *err)
{
    if (key_check(install_key, err))
        return -1;
    const struct shape *s = shape_of(c, err);
    if (!s)
        return -1;
    if (size <= s->n)
        return err_set(err, "a placeholder of this shape needs %u bytes, there is room for %zu", s->n + 1u, size);
    unsigned char key[SHAPE_KEY];
    subkey(install_key, key);
    placeholder_shape_derive(s, key, agent->name, c->name, out);
    OPENSSL_cleanse(key, sizeof key);
    return 0;
}

static uint32_t *index_slot(const struct placeholder_table *t, struct str token)
{
    size_t i = (size_t)str_hash(token) & t->index_mask;
    while (t->index[i] && !str_eq(t->v[t->index[i] - 1].text, token))
        i = (i + 1) & t->index_mask;
    return &t->index[i];
}

static bool is_listed(const struct credential *c, const struct agent *a)
{
    for (size_t i = 0; i < c->agents.n; i++)
        if (str_eq(c->agents.v[i], a->name))
            return true;
    return false;
}

/* Of a token, from what follows its prefix: most that are not live have another than those that are. */
static uint64_t begin_bit(const struct shape *s, const char *token)
{
    unsigned a = (unsigned char)token[s->prefix], b = (unsigned char)token[s->prefix + 1];
    return UINT64_C(1) << ((a * 31 + b) & 63);
}

static int table_add(struct placeholder_table *t, const struct agent *a, const struct credential *c, struct err *err)
{
    struct str text = c->placeholder;
    char derived[SHAPE_MAX + 1];
    if (!text.n) {
        const struct shape *s = shape_of(c, err);
        if (!s)
            return err_prefix(err, "credential %.*s", STR_ARG(c->name));
        size_t n;
        placeholder_shape_derive(s, t->key, a->name, c->name, derived);
        text = str_of(derived, s->n);
        t->begins[s - placeholder_shapes(&n)] |= begin_bit(s, derived);
    }
    uint32_t *slot = index_slot(t, text);
    if (*slot) {
        const struct placeholder *o = &t->v[*slot - 1];
        return err_set(err,
                       "credential %.*s for agent %.*s has the same placeholder as credential %.*s for agent %.*s: "
                       "set another `placeholder` for one of them",
                       STR_ARG(c->name), STR_ARG(a->name), STR_ARG(o->credential->name), STR_ARG(o->agent->name));
    }
    text = arena_str(&t->arena, text);
    if (!text.p)
        return err_set(err, "no memory for another placeholder");
    t->v[t->n] = (struct placeholder) { .text = text, .agent = a, .credential = c };
    *slot = (uint32_t)++t->n;
    t->of[c->index * t->nagents + a->index] = (uint32_t)t->n;
    if (text.n < t->shortest)
        t->shortest = text.n;
    return 0;
}

static size_t count_entries(const struct config *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->ncredentials; i++)
        for (size_t k = 0; k < c->nagents; k++)
            n += is_listed(&c->credentials[i], &c->agents[k]);
    return n;
}

static int table_fill(struct placeholder_table *t, const struct config *c, struct err *err)
{
    size_t n = count_entries(c), slots = 16;
    if (n > TABLE_MAX)
        return err_set(err, "expected at most %d pairs of agent and credential, got %zu", TABLE_MAX, n);
    while (slots < 2 * n)
        slots *= 2;
    t->nagents = c->nagents;
    t->ncredentials = c->ncredentials;
    t->v = calloc(n ? n : 1, sizeof *t->v);
    t->index = calloc(slots, sizeof *t->index);
    t->index_mask = slots - 1;
    t->of = calloc(c->nagents * c->ncredentials + 1, sizeof *t->of);
    size_t nshapes;
    (void)placeholder_shapes(&nshapes);
    t->begins = calloc(nshapes, sizeof *t->begins);
    if (!t->v || !t->index || !t->of || !t->begins)
        return err_set(err, "no memory for %zu placeholders", n);
    for (size_t i = 0; i < c->ncredentials; i++)
        for (size_t k = 0; k < c->nagents; k++)
            if (is_listed(&c->credentials[i], &c->agents[k]) && table_add(t, &c->agents[k], &c->credentials[i], err))
                return -1;
    return 0;
}

/* One prefix as needles: as it is, or, where it is shorter than a needle may be, with every character that may follow.
 */
static size_t prefix_needles(const struct shape *s, unsigned id, struct needle *v, char (*room)[NEEDLE_MIN])
{
    if (s->prefix >= NEEDLE_MIN) {
        v[0] = (struct needle) { str_of(s->literal, s->prefix), id };
        return 1;
    }
    MUST(s->prefix == NEEDLE_MIN - 1);
    size_t n = 0;
    for (int c = 33; c < 127; c++) {
        if (!placeholder_shape_char(s, s->prefix, (char)c))
            continue;
        memcpy(room[n], s->literal, s->prefix);
        room[n][s->prefix] = (char)c;
        v[n] = (struct needle) { str_of(room[n], NEEDLE_MIN), id };
        n++;
    }
    return n;
}

static struct needles *make_finder(const struct placeholder_table *t, struct err *err)
{
    enum { FOLLOWERS = 94 };
    size_t nshapes, n = 0;
    const struct shape *shapes = placeholder_shapes(&nshapes);
    struct needle *v = calloc(t->n + nshapes * FOLLOWERS, sizeof *v);
    char(*room)[FOLLOWERS][NEEDLE_MIN] = calloc(nshapes, sizeof *room);
    struct needles *ret = NULL;
    if (!v || !room) {
        err_set(err, "no memory for the placeholder finder");
        goto out;
    }
    for (size_t i = 0; i < nshapes; i++)
        n += prefix_needles(&shapes[i], FINDER_SHAPE + (unsigned)i, v + n, room[i]);
    for (size_t i = 0; i < t->n; i++)
        if (t->v[i].credential->placeholder.n)
            v[n++] = (struct needle) { t->v[i].text, (unsigned)i };
    ret = needles_new(v, n, false, err);
out:
    free(v);
    free(room);
    return ret;
}

static struct needles *make_all(const struct placeholder_table *t, struct err *err)
{
    struct needle *v = calloc(t->n + 1, sizeof *v);
    if (!v) {
        err_set(err, "no memory for %zu placeholders", t->n);
        return NULL;
    }
    for (size_t i = 0; i < t->n; i++)
        v[i] = (struct needle) { t->v[i].text, (unsigned)i };
    struct needles *ret = needles_new(v, t->n, false, err);
    free(v);
    return ret;
}

struct placeholder_table *placeholder_table_new(struct policy *p, struct str install_key, struct err *err)
{
    if (key_check(install_key, err))
        return NULL;
    struct placeholder_table *t = calloc(1, sizeof *t);
    if (!t) {
        err_set(err, "no memory for the placeholder table");
        return NULL;
    }
    t->refs = 1;
    t->policy = policy_ref(p);
    t->shortest = SIZE_MAX;
    arena_init(&t->arena, TABLE_ARENA_MAX);
    subkey(install_key, t->key);
    size_t nshapes;
    const struct shape *shapes = placeholder_shapes(&nshapes);
    for (size_t i = 0; i < nshapes; i++)
        if (shapes[i].n < t->shortest)
            t->shortest = shapes[i].n;
    if (table_fill(t, policy_config(p), err) || !(t->finder = make_finder(t, err)) || !(t->all = make_all(t, err)))
        placeholder_table_unref(&t);
    return t;
}

struct placeholder_table *placeholder_table_ref(struct placeholder_table *t)
{
    if (t)
        t->refs++;
    return t;
}

void placeholder_table_unref(struct placeholder_table **t)
{
    struct placeholder_table *d = *t;
    *t = NULL;
    if (!d || --d->refs)
        return;
    needles_unref(&d->finder);
    needles_unref(&d->all);
    free(d->v);
    free(d->index);
    free(d->of);
    free(d->begins);
    arena_done(&d->arena);
    policy_unref(&d->policy);
    OPENSSL_cleanse(d->key, sizeof d->key);
    free(d);
}

const struct placeholder *placeholder_of(const struct placeholder_table *t, const struct agent *a,
                                         const struct credential *c)
{
    if (a->index >= t->nagents || c->index >= t->ncredentials)
        return NULL;
    uint32_t i = t->of[c->index * t->nagents + a->index];
    if (!i)
        return NULL;
    /* Agent and credential may come from another snapshot, with other indexes: the names decide. */
    const struct placeholder *ph = &t->v[i - 1];
    return str_eq(ph->agent->name, a->name) && str_eq(ph->credential->name, c->name) ? ph : NULL;
}

size_t placeholder_fixed(const struct placeholder *p)
{
    size_t n;
    const struct shape *shapes = placeholder_shapes(&n);
    for (size_t i = 0; i < n; i++)
        if (placeholder_shape_fits(&shapes[i], p->text))
            return shapes[i].prefix;
    return 0;
}

const struct placeholder *placeholder_find(const struct placeholder_table *t, struct str token)
{
    uint32_t i = *index_slot(t, token);
    return i ? &t->v[i - 1] : NULL;
}

bool placeholder_is_ours(const struct placeholder_table *t, struct str token)
{
    size_t n;
    const struct shape *v = placeholder_shapes(&n);
    for (size_t i = 0; i < n; i++)
        if (placeholder_shape_is_ours(&v[i], t->key, token))
            return true;
    return false;
}

struct needles *placeholder_needles(const struct placeholder_table *t)
{
    return t->all;
}

const struct placeholder *placeholder_at(const struct placeholder_table *t, unsigned id)
{
    return id < t->n ? &t->v[id] : NULL;
}

size_t placeholder_shortest(const struct placeholder_table *t)
{
    return t->shortest;
}

size_t placeholder_longest(const struct placeholder_table *t)
{
    size_t n = needles_longest(t->all);
    return n > SHAPE_MAX ? n : SHAPE_MAX;
}

size_t placeholder_count(const struct placeholder_table *t)
{
    return t->n;
}

/* The prefix of shape i stands at `at`. A live one is found by its text alone; shape and MAC are only for the others.
 */
static bool scan_shape(const struct placeholder_table *t, struct str text, size_t at, size_t i,
                       unsigned *doubts, struct placeholder_hit *ret)
{
    size_t n;
    const struct shape *s = &placeholder_shapes(&n)[i];
    struct str token = str_sub(text, at, s->n);
    if (token.n != s->n)
        return false;
    const struct placeholder *ph = t->begins[i] & begin_bit(s, token.p) ? placeholder_find(t, token) : NULL;
    if (!ph) {
        if (*doubts >= PLACEHOLDER_DOUBTS_MAX || !placeholder_shape_fits(s, token))
            return false;
        ++*doubts;
        if (!placeholder_shape_is_ours(s, t->key, token))
            return false;
    }
    *ret = (struct placeholder_hit) { .at = at, .n = token.n, .ph = ph };
    return true;
}

void placeholder_doubt(const struct placeholder_table *t, struct str token, unsigned *doubts)
{
    if (*doubts >= PLACEHOLDER_DOUBTS_MAX)
        return;
    ++*doubts;
    (void)placeholder_is_ours(t, token);
}

bool placeholder_scan(const struct placeholder_table *t, struct str text, size_t from, unsigned *doubts, struct placeholder_hit *ret)
{
    struct needle_match m;
    while (text.n >= t->shortest && from <= text.n - t->shortest && needles_find(t->finder, text, from, &m)) {
        if (m.id < FINDER_SHAPE) {
            *ret = (struct placeholder_hit) { .at = m.at, .n = m.n, .ph = &t->v[m.id] };
            return true;
        }
        if (scan_shape(t, text, m.at, m.id - FINDER_SHAPE, doubts, ret))
            return true;
        from = m.at + 1;
    }
    return false;
}

static void put_redacted(struct buf *out, const struct placeholder *ph)
{
    if (ph)
        buf_putf(out, "[CRED:%.*s]", STR_ARG(ph->credential->name));
    else
        buf_put(out, STR("[CRED:?]"));
}

void placeholder_redact(const struct placeholder_table *t, struct str text, unsigned *doubts, struct buf *out)
{
    struct percent p = { 0 };
    int coded = percent_decode(text, &p);
    if (coded < 0) { /* unsure what it holds: say nothing of it */
        buf_put(out, STR("[not readable: out of memory]"));
        return;
    }
    struct str seen = coded ? percent_str(&p) : text;
    struct placeholder_hit h;
    size_t done = 0; /* in text */
    for (size_t at = 0; placeholder_scan(t, seen, at, doubts, &h); at = h.at + h.n) {
        size_t from = coded ? p.from[h.at] : h.at, to = coded ? p.from[h.at + h.n] : h.at + h.n;
        buf_put(out, str_sub(text, done, from - done));
        put_redacted(out, h.ph);
        done = to;
    }
    buf_put(out, str_from(text, done));
    percent_done(&p);
}
