/* SPDX-License-Identifier: Apache-2.0
 *
 * A match lies inside the new data, or across the border. For the second, the end of what came before is kept as far as it is
 * a prefix of some needle (nearly always nothing), and searched once more together with the beginning of what follows. */
#include "proxy/body_watch.h"

void body_watch_init(struct body_watch *b, struct needles *placeholders, struct needles *values)
{
    size_t longest = 1;
    if (placeholders && needles_longest(placeholders) > longest)
        longest = needles_longest(placeholders);
    if (values && needles_longest(values) > longest)
        longest = needles_longest(values);
    *b = (struct body_watch) { .placeholders = placeholders, .values = values };
    buf_init(&b->carry, 2 * longest + 64);
    b->carry.wipe = true;
}

void body_watch_renew(struct body_watch *b, struct needles *values)
{
    size_t longest = values ? needles_longest(values) : 0;
    b->values = values;
    if (b->carry.max < 2 * longest + 64)
        b->carry.max = 2 * longest + 64;
}

void body_watch_done(struct body_watch *b)
{
    buf_done(&b->carry);
}

static enum body_sight look(struct body_watch *b, struct str text)
{
    struct needle_match m;
    if (b->values && needles_find(b->values, text, 0, &m))
        return BODY_REAL_VALUE;
    if (b->placeholders && !b->found_placeholder && needles_find(b->placeholders, text, 0, &m)) {
        b->found_placeholder = true;
        b->placeholder_id = m.id;
        return BODY_PLACEHOLDER;
    }
    return BODY_CLEAN;
}

static size_t tail_of(const struct body_watch *b, struct str text)
{
    size_t n = b->values ? needles_tail(b->values, text) : 0;
    size_t k = b->placeholders && !b->found_placeholder ? needles_tail(b->placeholders, text) : 0;
    return n > k ? n : k;
}

enum body_sight body_watch_feed(struct body_watch *b, struct str data)
{
    enum body_sight sight = BODY_CLEAN;
    size_t longest = (b->carry.max - 64) / 2;
    if (buf_size(&b->carry)) {
        buf_put(&b->carry, str_sub(data, 0, longest));
        sight = look(b, buf_str(&b->carry));
        if (sight == BODY_REAL_VALUE)
            return sight;
    }
    enum body_sight inside = look(b, data);
    if (inside != BODY_CLEAN)
        sight = inside;
    if (sight == BODY_REAL_VALUE)
        return sight;
    /* What to keep: of the join when the new data was too short to stand alone. */
    bool joined = buf_size(&b->carry) && data.n < longest;
    struct str text = joined ? buf_str(&b->carry) : data;
    size_t keep = tail_of(b, text);
    if (joined) {
        buf_consume(&b->carry, buf_size(&b->carry) - keep);
    } else {
        buf_reset(&b->carry);
        if (keep)
            buf_put(&b->carry, str_from(text, text.n - keep));
    }
    return sight;
}
