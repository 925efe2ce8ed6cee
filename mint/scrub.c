/* SPDX-License-Identifier: Apache-2.0
 *
 * Why the result does not depend on the chunks. Let T be where the longest tail begins that is a proper prefix of some
 * needle (needles_tail). A match that begins before T is final: whatever follows, no needle can begin earlier and still
 * end later (its part here would be a longer such tail), and none that begins at the same place can become longer
 * (likewise). So everything before T is settled, and everything from T on waits. */
#include "mint/scrub.h"

#include "mint/form.h"

/* A chunk that meets held bytes is joined to them in pieces of this size, so that `held` stays small. */
enum { SCRUB_PIECE = 16 * 1024, SCRUB_HELD_MAX = 6 * LEASE_VALUE_MAX + 2 * SCRUB_PIECE };

void scrub_init(struct scrub *s, struct lease_set *set)
{
    *s = (struct scrub) { .set = lease_set_ref(set) };
    buf_init(&s->held, SCRUB_HELD_MAX);
    s->held.wipe = true;
}

void scrub_done(struct scrub *s)
{
    lease_set_unref(&s->set);
    buf_done(&s->held);
}

static uint64_t item_bit(size_t i)
{
    return i < 64 ? UINT64_C(1) << i : 0;
}

void scrub_update(struct scrub *s, struct lease_set *set)
{
    if (s->set == set)
        return;
    uint64_t bits = 0;
    for (size_t i = 0; s->set && set && s->hit_credentials && i < s->set->n; i++) {
        if (!(s->hit_credentials & item_bit(i)))
            continue;
        for (size_t k = 0; k < set->n; k++)
            if (str_eq(set->items[k].lease->credential, s->set->items[i].lease->credential)) {
                bits |= item_bit(k);
                break;
            }
    }
    s->hit_credentials = bits;
    struct lease_set *old = s->set;
    s->set = lease_set_ref(set);
    lease_set_unref(&old);
}

static void replace(const struct lease_set *set, const struct needle_match *m, struct buf *out, uint64_t *hits,
                    uint64_t *items)
{
    size_t item = m->id / LEASE_SET_FORMS;
    const struct lease_set_item *it = &set->items[item];
    form_put_instead((enum form)(m->id % LEASE_SET_FORMS), it->placeholder, secret_size(it->lease->value), out);
    ++*hits;
    *items |= item_bit(item);
}

/* Scrubs what of text is settled, or all of it (last), and returns how many bytes that was. */
static size_t scrub_settled(struct scrub *s, struct str text, bool last, struct buf *out)
{
    const struct needles *needles = s->set->needles;
    size_t done = 0, tail = last ? text.n : text.n - needles_tail(needles, text);
    struct needle_match m;
    while (needles_find(needles, text, done, &m) && m.at < tail) {
        buf_put(out, str_sub(text, done, m.at - done));
        replace(s->set, &m, out, &s->hits, &s->hit_credentials);
        done = m.at + m.n;
        if (done > tail) /* the tail began inside the match: look for the one behind it */
            tail = last ? text.n : text.n - needles_tail(needles, str_from(text, done));
    }
    if (tail > done) {
        buf_put(out, str_sub(text, done, tail - done));
        done = tail;
    }
    return done;
}

static int feed_pieces(struct scrub *s, struct str in, bool last, struct buf *out)
{
    do {
        struct str piece = str_sub(in, 0, SCRUB_PIECE);
        in = str_from(in, piece.n);
        if (!buf_size(&s->held)) {
            size_t done = scrub_settled(s, piece, last && !in.n, out);
            buf_put(&s->held, str_from(piece, done));
        } else {
            buf_put(&s->held, piece);
            if (!s->held.failed)
                buf_consume(&s->held, scrub_settled(s, buf_str(&s->held), last && !in.n, out));
        }
        if (s->held.failed || out->failed)
            return -1;
    } while (in.n);
    buf_release_if_empty(&s->held);
    return 0;
}

bool scrub_clean(struct scrub *s, struct str in, struct str *ret)
{
    struct needle_match m;
    if (buf_size(&s->held))
        return false;
    size_t tail = 0;
    if (s->set && s->set->n) {
        if (needles_find(s->set->needles, in, 0, &m))
            return false;
        tail = needles_tail(s->set->needles, in);
        if (buf_put(&s->held, str_from(in, in.n - tail)))
            return false;
    }
    *ret = str_sub(in, 0, in.n - tail);
    return true;
}

int scrub_feed(struct scrub *s, struct str in, bool last, struct buf *out)
{
    if (s->set && s->set->n)
        return feed_pieces(s, in, last, out);
    if (buf_size(&s->held)) {
        buf_put(out, buf_str(&s->held));
        buf_done(&s->held);
    }
    buf_put(out, in);
    return out->failed ? -1 : 0;
}

bool scrub_text(struct lease_set *set, struct str in, struct buf *out, uint64_t *hits)
{
    struct needle_match m;
    if (!set || !set->n || in.n < set->shortest || !needles_find(set->needles, in, 0, &m))
        return false;
    size_t done = 0;
    uint64_t items = 0;
    do {
        buf_put(out, str_sub(in, done, m.at - done));
        replace(set, &m, out, hits, &items);
        done = m.at + m.n;
    } while (needles_find(set->needles, in, done, &m));
    buf_put(out, str_from(in, done));
    return true;
}
