/* SPDX-License-Identifier: Apache-2.0 */
#include "mint/swap_text.h"

#include "mint/form.h"
#include "mint/swap_plan.h"

#include <stdio.h>

enum { OWN_MAX = 64 };

static bool in_scope(const struct policy *p, const struct credential *c, const struct ask *ask, enum slot_kind slot)
{
    return swap_slot_listed(c, slot, STR_NONE) && policy_credential_scope(p, c, ask) == END_OK;
}

bool swap_text_wanted(const struct policy *p, const struct ask *ask, enum slot_kind slot)
{
    const struct credential *own[OWN_MAX];
    size_t n = policy_credentials(p, ask->agent, ask->host, own, OWN_MAX);
    if (n > OWN_MAX) /* more than we look at: text is read in any case */
        return true;
    for (size_t i = 0; i < n; i++)
        if (in_scope(p, own[i], ask, slot))
            return true;
    return false;
}

bool swap_text_keeps(const struct policy *then, const struct ask *asked, const struct policy *now, const struct ask *ask, enum slot_kind slot)
{
    const struct credential *old[OWN_MAX], *own[OWN_MAX];
    size_t nold = policy_credentials(then, asked->agent, asked->host, old, OWN_MAX);
    size_t n = policy_credentials(now, ask->agent, ask->host, own, OWN_MAX);
    if (nold > OWN_MAX || n > OWN_MAX) /* more than we look at */
        return false;
    for (size_t i = 0; i < nold; i++) {
        bool kept = !in_scope(then, old[i], asked, slot);
        for (size_t k = 0; k < n && !kept; k++)
            kept = str_eq(own[k]->name, old[i]->name) && in_scope(now, own[k], ask, slot);
        if (!kept)
            return false;
    }
    return true;
}

static bool is_word(char c)
{
    return ascii_alpha(c) || ascii_digit(c) || c == '_' || c == '-';
}

/* The letter of an escape like \n belongs to no word. */
static bool is_escape(struct str text, size_t at)
{
    return at >= 2 && text.p[at - 2] == '\\' && memchr("nrtbf", text.p[at - 1], 5);
}

static bool is_whole(struct str text, size_t at, size_t n)
{
    return (at == 0 || !is_word(text.p[at - 1]) || is_escape(text, at)) && (at + n == text.n || !is_word(text.p[at + n]));
}

static bool item_add(struct swap_plan *plan, const struct placeholder *ph, enum slot_kind slot, struct str text, size_t at, size_t n)
{
    return is_whole(text, at, n) && swap_plan_add(plan, (struct swap_item) { .ph = ph, .slot = slot, .at = at, .n = n });
}

static bool judged_in_scope(struct swap_text_walk *w, const struct policy *p, const struct credential *c, const struct ask *ask,
                            enum slot_kind slot)
{
    if (w->judged != c) {
        w->judged = c;
        w->judged_in_scope = in_scope(p, c, ask, slot);
    }
    return w->judged_in_scope;
}

static void wrong(struct swap_text_walk *w, const struct placeholder *ph, enum end end)
{
    w->end = end;
    w->fault = (struct swap_fault) { .ph = ph, .finding = "placeholder_elsewhere", .severity = "high" };
    snprintf(w->fault.where, sizeof w->fault.where, "a websocket message");
}

enum end swap_text_plan(const struct placeholder_table *t, const struct policy *p, const struct ask *ask, enum slot_kind slot,
                        struct str text, size_t most, struct swap_text_walk *w, struct swap_plan *plan)
{
    struct placeholder_hit h;
    size_t to = text.n - w->from > most ? w->from + most : text.n;
    struct str seen = str_sub(text, 0, to + placeholder_longest(t)); /* one that begins before `to` is seen whole */
    if (!w->from)
        plan->n = plan->nwanted = 0;
    /* To the end, so that a grave fault is not hidden behind a light one; nothing is graver than one that is not the agent's. */
    while (w->from < to && w->end != END_UNKNOWN_PLACEHOLDER && placeholder_scan(t, seen, w->from, &w->doubts, &h) && h.at < to) {
        bool unknown = !h.ph || !swap_is_mine(ask, h.ph);
        w->from = h.at + h.n;
        if (unknown) {
            if (h.ph) /* another agent's costs the same time as one that is merely not live */
                placeholder_doubt(t, str_sub(text, h.at, h.n), &w->doubts);
            wrong(w, h.ph, END_UNKNOWN_PLACEHOLDER);
        } else if (!judged_in_scope(w, p, h.ph->credential, ask, slot)) {
            w->inert = h.ph;
        } else if (!item_add(plan, h.ph, slot, text, h.at, h.n) && w->end == END_UNSET) {
            wrong(w, h.ph, END_PLACEHOLDER_WRONG_SLOT);
        }
    }
    if (w->from < to)
        w->from = to;
    if (w->from < text.n && w->end != END_UNKNOWN_PLACEHOLDER)
        return END_UNSET;
    if (w->end == END_UNSET)
        return END_OK;
    plan->n = plan->nwanted = 0;
    return w->end;
}

/* UTF-8 without controls: what may stand in a text and be told apart from what is around it. Only ASCII, as values are. */
static bool text_ok(struct str v)
{
    for (size_t i = 0; i < v.n; i++) {
        unsigned char c = (unsigned char)v.p[i];
        if (c < 0x20 || c >= 0x7f)
            return false;
    }
    return v.n > 0;
}

/* --- values in strings of JSON ---
 *
 * Only a value with `"` or `\` in it is another one there; for such a one the quotes around decide, not what the text begins with: JSON
 * may stand behind a number (Socket.IO), a byte order mark, a command and its headers (STOMP). The nearest quotes at both sides of what
 * stands in a string are its own, or belong to strings within it. */

static bool is_json(struct str text)
{
    size_t i = 0;
    while (i < text.n && (text.p[i] == ' ' || text.p[i] == '\t' || text.p[i] == '\r' || text.p[i] == '\n'))
        i++;
    return i < text.n && (text.p[i] == '{' || text.p[i] == '[' || text.p[i] == '"');
}

enum quote { QUOTE_NONE = 0, QUOTE_PLAIN, QUOTE_ESCAPED /* of a string within a string */ };

static enum quote quote_at(struct str text, size_t at)
{
    size_t i = at;
    while (i && text.p[i - 1] == '\\')
        i--;
    return (at - i) % 2 ? QUOTE_ESCAPED : QUOTE_PLAIN;
}

/* The nearest quotes around a place. Places come in order, so that the text is looked through once. */
struct quotes {
    enum quote before, behind;
    size_t seen;      /* before: of what lies before it */
    size_t behind_at; /* behind lies there, where there is one (text.n: there is none) */
};

static void quotes_around(struct quotes *q, struct str text, size_t at, size_t n)
{
    const char *p = memrchr(text.p + q->seen, '"', at - q->seen);
    if (p)
        q->before = quote_at(text, (size_t)(p - text.p));
    q->seen = at;
    if (q->behind_at >= at + n)
        return;
    p = memchr(text.p + at + n, '"', text.n - at - n);
    q->behind_at = p ? (size_t)(p - text.p) : text.n;
    q->behind = p ? quote_at(text, q->behind_at) : QUOTE_NONE;
}

/* FORM_RAW or FORM_JSON. False: it would have to be escaped twice, and in that form it could not be told when it comes back. */
static bool form_here(struct quotes *q, struct str text, const struct swap_item *it, enum form *ret)
{
    quotes_around(q, text, it->at, it->n);
    bool between = q->before && q->behind;
    *ret = between || is_json(text) ? FORM_JSON : FORM_RAW;
    return !between || q->before == QUOTE_PLAIN || q->behind == QUOTE_PLAIN;
}

static bool is_same_in_json(struct str v)
{
    return !memchr(v.p, '"', v.n) && !memchr(v.p, '\\', v.n);
}

enum end swap_text_put(const struct swap_plan *plan, struct str text, struct lease *const *leases, struct buf *out)
{
    size_t done = 0;
    struct quotes quotes = { 0 };
    for (size_t i = 0; i < plan->n; i++) {
        const struct swap_item *it = &plan->items[i];
        struct lease *l = leases[it->lease];
        struct str v = l ? secret_reveal(l->value) : STR_NONE;
        enum form form = FORM_RAW;
        if (!text_ok(v) || it->at < done || it->at + it->n > text.n)
            return END_CREDENTIAL_UNAVAILABLE;
        if (!is_same_in_json(v) && !form_here(&quotes, text, it, &form))
            return END_CREDENTIAL_UNAVAILABLE;
        buf_put(out, str_sub(text, done, it->at - done));
        form_put(form, v, out);
        done = it->at + it->n;
    }
    buf_put(out, str_from(text, done));
    return out->failed ? END_CREDENTIAL_UNAVAILABLE : END_OK;
}
