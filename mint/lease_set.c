/* SPDX-License-Identifier: Apache-2.0
 *
 * The needles of a lease set are secrets: the buffer they are written in is wiped, and so is the needle set. Two leases
 * of one credential may have the same value (a sidecar that answers every host alike): it is looked for once. */
#include "mint/form.h"
#include "mint/lease_client.h"

#include <stdlib.h>

enum { LEASE_SET_ARENA_MAX = 8 << 20 };

static bool seen_before(const struct lease_set_item *v, size_t n, const struct lease *l)
{
    for (size_t i = 0; i < n; i++)
        if (secret_equal(secret_reveal(v[i].lease->value), secret_reveal(l->value)))
            return true;
    return false;
}

/* Offsets first: the buffer moves while it grows. */
struct span {
    size_t at, n;
    unsigned id;
};

static size_t put_forms(struct str value, size_t item, struct span *v, struct buf *out)
{
    size_t n = 0;
    for (enum form f = 0; f < FORM_COUNT; f++) {
        size_t at = buf_size(out);
        form_put(f, value, out);
        if (out->failed)
            return 0;
        size_t len = buf_size(out) - at;
        if (form_wanted(f, value, str_sub(buf_str(out), at, len)))
            v[n++] = (struct span) { at, len, (unsigned)(item * LEASE_SET_FORMS + f) };
    }
    return n;
}

/* Would each form found be replaced by as many bytes? (Base64 always is: see form.h.) */
static bool keeps_length(const struct lease_set_item *item, const struct span *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct buf instead;
        buf_init(&instead, 6 * item->placeholder.n + 6 * secret_size(item->lease->value) + 64);
        form_put_instead((enum form)(v[i].id % LEASE_SET_FORMS), item->placeholder, secret_size(item->lease->value), &instead);
        bool same = !instead.failed && buf_size(&instead) == v[i].n;
        buf_done(&instead);
        if (!same)
            return false;
    }
    return true;
}

static int make_needles(struct lease_set *s, struct err *err)
{
    size_t bytes = 0, n = 0;
    for (size_t i = 0; i < s->n; i++)
        bytes += secret_size(s->items[i].lease->value);
    struct buf text; /* no form is longer than six times its value */
    buf_init(&text, bytes * 6 * FORM_COUNT + 64);
    text.wipe = true;
    struct span *spans = calloc(s->n * FORM_COUNT + 1, sizeof *spans);
    struct needle *v = calloc(s->n * FORM_COUNT + 1, sizeof *v);
    s->same_length = true;
    for (size_t i = 0; spans && v && i < s->n; i++) {
        size_t k = put_forms(secret_reveal(s->items[i].lease->value), i, spans + n, &text);
        s->same_length = s->same_length && keeps_length(&s->items[i], spans + n, k);
        n += k;
    }
    s->shortest = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        v[i] = (struct needle) { str_sub(buf_str(&text), spans[i].at, spans[i].n), spans[i].id };
        if (spans[i].n < s->shortest)
            s->shortest = spans[i].n;
    }
    if (spans && v && !text.failed)
        s->needles = needles_new(v, n, true, err);
    else
        err_set(err, "no memory for a lease set");
    free(spans);
    free(v);
    buf_done(&text);
    return s->needles ? 0 : -1;
}

static int take_items(struct lease_set *s, const struct lease_set_item *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (seen_before(s->items, s->n, v[i].lease))
            continue;
        struct str text = arena_str(&s->arena, v[i].placeholder);
        if (!text.p)
            return -1;
        s->items[s->n++] = (struct lease_set_item) { lease_ref(v[i].lease), text };
    }
    return 0;
}

struct lease_set *lease_set_new(struct placeholder_table *t, const struct lease_set_item *v, size_t n,
                                uint64_t generation, struct err *err)
{
    if (n > LEASE_SET_MAX) {
        err_set(err, "expected at most %d live leases for one agent and host, got %zu", LEASE_SET_MAX, n);
        return NULL;
    }
    struct lease_set *s = calloc(1, sizeof *s);
    if (!s) {
        err_set(err, "no memory for a lease set");
        return NULL;
    }
    s->refs = 1;
    s->generation = generation;
    s->table = placeholder_table_ref(t);
    arena_init(&s->arena, LEASE_SET_ARENA_MAX);
    s->items = arena_alloc(&s->arena, (n + 1) * sizeof *s->items);
    if (!s->items || take_items(s, v, n)) {
        err_set(err, "no memory for a lease set of %zu", n);
        lease_set_unref(&s);
    } else if (make_needles(s, err)) {
        lease_set_unref(&s);
    }
    return s;
}

struct lease_set *lease_set_ref(struct lease_set *s)
{
    if (s)
        s->refs++;
    return s;
}

void lease_set_unref(struct lease_set **s)
{
    struct lease_set *d = *s;
    *s = NULL;
    if (!d || --d->refs)
        return;
    needles_unref(&d->needles);
    for (size_t i = 0; i < d->n; i++)
        lease_unref(&d->items[i].lease);
    arena_done(&d->arena);
    placeholder_table_unref(&d->table);
    free(d);
}
