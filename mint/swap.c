/* SPDX-License-Identifier: Apache-2.0
 *
 * One walk over everything of the head that leaves: method, host name, target, header names and values. Every text is
 * seen as it came, with its %XX decoded, and in Authorization: Basic also as what the base64 says. Each placeholder
 * found is judged; a clean one becomes an item of the plan, the gravest fault of all the others decides (enum grave).
 * The walk always goes to the end, so that an agent cannot hide a grave fault behind a light one.
 *
 * A search costs more to start than to run, and heads are many short texts. So texts are first joined, with LF between
 * them (no placeholder, value or form of one holds a LF), and the joined text is searched once. */
#include "mint/swap.h"

#include "mint/base64.h"
#include "mint/form.h"
#include "mint/percent.h"
#include "mint/swap_plan.h"

#include <stdio.h>
#include <stdlib.h>

enum { BASIC_STACK = 768, LIVE_TOKEN_MIN = 8, LIVE_ANYWHERE_MIN = 16, JOIN_BYTES = 4000, JOIN_TEXTS = 96 };

/* Not worth zeroing: written before it is read. */
#define UNINITIALIZED __attribute__((uninitialized))

/* From light to grave. */
enum grave {
    GRAVE_NONE = 0,
    GRAVE_OUT_OF_SCOPE,
    GRAVE_WRONG_SLOT,
    GRAVE_WRONG_HOST,
    GRAVE_UNKNOWN,
    GRAVE_EXFILTRATION,
    GRAVE_BROKEN, /* could not look everywhere: out of memory */
};
static const enum end grave_end[] = {
    [GRAVE_NONE] = END_OK,
    [GRAVE_OUT_OF_SCOPE] = END_PLACEHOLDER_OUT_OF_SCOPE,
    [GRAVE_WRONG_SLOT] = END_PLACEHOLDER_WRONG_SLOT,
    [GRAVE_WRONG_HOST] = END_PLACEHOLDER_WRONG_HOST,
    [GRAVE_UNKNOWN] = END_UNKNOWN_PLACEHOLDER,
    [GRAVE_EXFILTRATION] = END_EXFILTRATION,
    [GRAVE_BROKEN] = END_UNSET,
};

/* Where the walk is. Of a header, only the field can be swapped. */
enum place { PLACE_METHOD, PLACE_HOST, PLACE_TARGET, PLACE_NAME, PLACE_FIELD };

struct text {
    struct str s; /* in `joined`, or where it came from when it is too long for that */
    enum place place;
    bool basic; /* an Authorization field */
    size_t field;
};

struct walk {
    const struct placeholder_table *t;
    const struct policy *p;
    const struct ask *ask;
    const struct lease_set *live;
    struct swap_plan *plan;
    struct swap_fault *fault;
    enum grave grave;
    size_t shortest;         /* texts below it hold neither placeholder nor value */
    unsigned doubts;
    const struct field *fields;
    /* where the walk is: */
    enum place place;
    size_t field;
    struct str name; /* of the field */
    /* what is to be searched next: */
    size_t njoined, ntexts;
    char *joined;
    struct text *texts;
};

static void where_put(struct walk *w, char *out, size_t size)
{
    static const char *const words[] = {
        [PLACE_METHOD] = "method", [PLACE_HOST] = "host name", [PLACE_TARGET] = "target", [PLACE_NAME] = "header name"
    };
    if (w->place != PLACE_FIELD) {
        snprintf(out, size, "%s", words[w->place]);
        return;
    }
    size_t n = (size_t)snprintf(out, size, "header ");
    /* A name that itself holds one is not repeated. */
    struct placeholder_hit h;
    struct str name = placeholder_scan(w->t, w->name, 0, &w->doubts, &h) ? STR("?") : w->name;
    for (size_t i = 0; i < name.n && n + 1 < size; i++)
        out[n++] = ascii_tchar(name.p[i]) ? ascii_lower(name.p[i]) : '?';
    out[n] = 0;
}

static void fault_note(struct walk *w, enum grave grave, const struct placeholder *ph)
{
    if (grave <= w->grave)
        return;
    w->grave = grave;
    struct swap_fault f = { .ph = ph };
    where_put(w, f.where, sizeof f.where);
    if (grave == GRAVE_EXFILTRATION) {
        f.finding = "exfiltration";
        f.severity = "critical";
    } else if (grave == GRAVE_UNKNOWN || grave == GRAVE_WRONG_HOST || grave == GRAVE_WRONG_SLOT) {
        f.finding = "placeholder_elsewhere";
        f.tolerated = grave == GRAVE_WRONG_HOST && policy_credential_tolerates(ph->credential, w->ask->host);
        f.severity = f.tolerated ? "info" : "high";
    }
    *w->fault = f;
}

/* token: as it stands. slot: SLOT_NONE where it is not whole or in no slot. at, n: of the item it would become. */
static void judge(struct walk *w, const struct placeholder *ph, struct str token, enum slot_kind slot, size_t at,
                  size_t n)
{
    if (!ph || !swap_is_mine(w->ask, ph)) {
        /* Another agent's costs the same time as one that is merely not live (whose MAC was just checked). */
        if (ph)
            placeholder_doubt(w->t, token, &w->doubts);
        fault_note(w, GRAVE_UNKNOWN, ph);
        return;
    }
    enum end scope = policy_credential_scope(w->p, ph->credential, w->ask);
    if (scope == END_OK && w->ask->scheme != SCHEME_HTTPS && !ph->credential->allow_plain_http)
        scope = END_PLACEHOLDER_OUT_OF_SCOPE;
    enum grave g = GRAVE_NONE;
    if (scope != END_OK && scope != END_PLACEHOLDER_OUT_OF_SCOPE)
        g = GRAVE_WRONG_HOST;
    else if (slot == SLOT_NONE || !swap_slot_listed(ph->credential, slot, w->name))
        g = GRAVE_WRONG_SLOT;
    else if (!swap_plan_add(w->plan, (struct swap_item) { .ph = ph, .slot = slot, .field = w->field, .at = at, .n = n }))
        g = GRAVE_WRONG_SLOT;
    if (g == GRAVE_NONE && scope != END_OK)
        g = GRAVE_OUT_OF_SCOPE;
    fault_note(w, g, ph);
}

static bool is_bound(char c)
{
    return c == ' ' || c == ',' || c == ';';
}

static bool is_whole(struct str text, size_t at, size_t n)
{
    return (at == 0 || is_bound(text.p[at - 1])) && (at + n == text.n || is_bound(text.p[at + n]));
}

static bool is_word(char c)
{
    return ascii_alpha(c) || ascii_digit(c);
}

static void go_to(struct walk *w, const struct text *t)
{
    w->place = t->place;
    w->field = t->field;
    w->name = t->place == PLACE_FIELD ? w->fields[t->field].name : STR_NONE;
}

/* The text that holds offset `at` of all. */
static size_t text_at(const struct walk *w, struct str all, size_t at)
{
    size_t i = 0;
    while (i + 1 < w->ntexts && at >= (size_t)(w->texts[i + 1].s.p - all.p))
        i++;
    return i;
}

/* A real value in what the agent itself sends. Short values (allow_short) are ordinary words all too often: they count
 * only as a word of their own, and the shortest not at all. */
static bool is_live_value(const struct lease_set *s, const struct needle_match *m, struct str text)
{
    size_t n = secret_size(s->items[m->id / LEASE_SET_FORMS].lease->value);
    bool word = m->id % LEASE_SET_FORMS == FORM_RAW && (m->at == 0 || !is_word(text.p[m->at - 1])) &&
                (m->at + m->n == text.n || !is_word(text.p[m->at + m->n]));
    return n >= LIVE_ANYWHERE_MIN || (n >= LIVE_TOKEN_MIN && word);
}

static bool find_live(const struct walk *w, struct str text, struct needle_match *ret)
{
    const struct lease_set *s = w->live;
    if (!s || !s->n || text.n < s->shortest)
        return false;
    for (size_t from = 0; needles_find(s->needles, text, from, ret); from = ret->at + 1)
        if (is_live_value(s, ret, text))
            return true;
    return false;
}

static void look_for_live(struct walk *w, struct str text)
{
    struct needle_match m;
    if (find_live(w, text, &m))
        fault_note(w, GRAVE_EXFILTRATION, placeholder_find(w->t, w->live->items[m.id / LEASE_SET_FORMS].placeholder));
}

/* What only shows once %XX is decoded is never in its slot. */
static void look_decoded(struct walk *w, struct str text)
{
    struct percent p;
    int r = percent_decode(text, &p);
    if (r < 0)
        fault_note(w, GRAVE_BROKEN, NULL);
    if (r <= 0)
        return;
    struct placeholder_hit h;
    struct str seen = percent_str(&p);
    for (size_t from = 0; placeholder_scan(w->t, seen, from, &w->doubts, &h); from = h.at + h.n)
        if (!percent_plain(&p, h.at, h.n))
            judge(w, h.ph, str_sub(seen, h.at, h.n), SLOT_NONE, 0, 0);
    look_for_live(w, seen);
    percent_done(&p);
}

/* The base64 text of "Basic …", or nothing. */
static struct str basic_payload(struct str value)
{
    if (value.n < 7 || !str_eq_nocase(str_sub(value, 0, 5), STR("Basic")) || value.p[5] != ' ')
        return STR_NONE;
    size_t at = 6;
    while (at < value.n && value.p[at] == ' ')
        at++;
    return str_from(value, at);
}

static void look_basic_plain(struct walk *w, struct str plain, size_t at, size_t n)
{
    ptrdiff_t colon = str_find_char(plain, ':');
    struct placeholder_hit h;
    for (size_t from = 0; placeholder_scan(w->t, plain, from, &w->doubts, &h); from = h.at + h.n) {
        enum slot_kind slot = SLOT_NONE;
        if (colon >= 0 && h.at == 0 && h.n == (size_t)colon)
            slot = SLOT_BASIC_USER;
        else if (colon >= 0 && h.at == (size_t)colon + 1 && h.at + h.n == plain.n)
            slot = SLOT_BASIC_PASSWORD;
        judge(w, h.ph, str_sub(plain, h.at, h.n), slot, at, n);
    }
    look_for_live(w, plain);
}

static void look_basic(struct walk *w, struct str value)
{
    struct str b64 = basic_payload(value);
    char stack[BASIC_STACK], *room = stack;
    size_t size = base64_room(b64.n), n;
    if (b64.n < w->shortest)
        return;
    if (size > sizeof stack && !(room = malloc(size))) {
        fault_note(w, GRAVE_BROKEN, NULL);
        return;
    }
    bool padded;
    if (!base64_decode(b64, room, &n, &padded)) {
        look_basic_plain(w, str_of(room, n), (size_t)(b64.p - value.p), b64.n);
        look_decoded(w, str_of(room, n));
        explicit_bzero(room, n);
    }
    if (room != stack)
        free(room);
}

/* Searches the joined texts, or the one that is too long to be joined. */
static void search(struct walk *w, struct str all)
{
    struct needle_match m;
    if (w->live && w->grave < GRAVE_EXFILTRATION && find_live(w, all, &m)) {
        const struct text *t = &w->texts[text_at(w, all, m.at)];
        go_to(w, t);
        look_for_live(w, t->s);
    }
    bool coded = str_find_char(all, '%') >= 0;
    struct placeholder_hit h;
    bool hit = placeholder_scan(w->t, all, 0, &w->doubts, &h);
    for (size_t i = 0; i < w->ntexts; i++) {
        const struct text *t = &w->texts[i];
        size_t from = (size_t)(t->s.p - all.p), to = from + t->s.n;
        go_to(w, t);
        for (; hit && h.at < to; hit = placeholder_scan(w->t, all, h.at + h.n, &w->doubts, &h)) {
            bool slot = t->place == PLACE_FIELD && is_whole(t->s, h.at - from, h.n);
            judge(w, h.ph, str_sub(all, h.at, h.n), slot ? SLOT_HEADER : SLOT_NONE, h.at - from, h.n);
        }
        if (t->basic)
            look_basic(w, t->s);
        if (coded)
            look_decoded(w, t->s);
    }
    w->njoined = w->ntexts = 0;
}

static void flush(struct walk *w)
{
    if (w->ntexts)
        search(w, str_of(w->joined, w->njoined));
}

static void join(struct walk *w, enum place place, size_t field, struct str s)
{
    if (w->ntexts == JOIN_TEXTS || s.n >= JOIN_BYTES - w->njoined)
        flush(w);
    struct text *t = &w->texts[w->ntexts++];
    *t = (struct text) { .s = s, .place = place, .field = field };
    t->basic = place == PLACE_FIELD && w->fields[field].name.n == 13 &&
               str_eq_nocase(w->fields[field].name, STR("authorization"));
    if (s.n >= JOIN_BYTES) {
        search(w, s);
        return;
    }
    t->s.p = memcpy(w->joined + w->njoined, s.p, s.n);
    w->joined[w->njoined + s.n] = '\n';
    w->njoined += s.n + 1;
}

/* Most names and values are too short to hold anything. */
static inline void look(struct walk *w, enum place place, size_t field, struct str s)
{
    if (s.n >= w->shortest)
        join(w, place, field, s);
}

enum end swap_plan_make(const struct placeholder_table *t, const struct policy *p, const struct ask *ask,
                        struct str target, const struct field *fields, size_t nfields, const struct lease_set *live,
                        struct swap_plan *ret, struct swap_fault *fault)
{
    char joined[JOIN_BYTES] UNINITIALIZED;
    struct text texts[JOIN_TEXTS] UNINITIALIZED;
    struct walk w = { .t = t,
                      .p = p,
                      .ask = ask,
                      .live = live,
                      .plan = ret,
                      .fault = fault,
                      .shortest = placeholder_shortest(t),
                      .fields = fields,
                      .joined = joined,
                      .texts = texts };
    if (live && live->n && live->shortest < w.shortest)
        w.shortest = live->shortest;
    ret->n = ret->nwanted = 0;
    *fault = (struct swap_fault) { 0 };
    look(&w, PLACE_METHOD, 0, ask->method);
    look(&w, PLACE_HOST, 0, host_str(ask->host));
    look(&w, PLACE_TARGET, 0, target);
    for (size_t i = 0; i < nfields; i++) {
        look(&w, PLACE_NAME, i, fields[i].name);
        look(&w, PLACE_FIELD, i, fields[i].value);
    }
    flush(&w);
    if (w.grave != GRAVE_NONE)
        ret->n = ret->nwanted = 0;
    return grave_end[w.grave];
}

bool swap_touches(const struct swap_plan *plan, size_t field)
{
    for (size_t i = 0; i < plan->n; i++)
        if (plan->items[i].field == field)
            return true;
    return false;
}

/* A value that stands in a header as text: visible ASCII, inner spaces, nothing that ends or splits a field (RFC
 * 9110 5.5, without obs-text). */
static bool header_ok(struct str v)
{
    for (size_t i = 0; i < v.n; i++) {
        unsigned char c = (unsigned char)v.p[i];
        if (c < 0x20 || c >= 0x7f || (c == ',' && i + 1 < v.n && v.p[i + 1] == ' '))
            return false;
    }
    return v.n && v.p[0] != ' ' && v.p[v.n - 1] != ' ';
}

/* RFC 7617: no control characters; no colon in the user. */
static bool basic_ok(struct str v, bool user)
{
    for (size_t i = 0; i < v.n; i++) {
        unsigned char c = (unsigned char)v.p[i];
        if (c < 0x20 || c == 0x7f || (user && c == ':'))
            return false;
    }
    return v.n > 0;
}

static struct str item_value(const struct swap_item *it, struct lease *const *leases)
{
    struct lease *l = leases[it->lease];
    return l ? secret_reveal(l->value) : STR_NONE;
}

/* The whole value of an Authorization: Basic field with its one or two items. */
static enum end put_basic(const struct swap_plan *plan, size_t field, struct str value, struct lease *const *leases,
                          struct buf *out)
{
    struct buf plain, user_password;
    struct str user = STR_NONE, password = STR_NONE, b64 = STR_NONE;
    buf_init(&plain, base64_room(value.n));
    buf_init(&user_password, 2 * SECRET_MAX + value.n);
    plain.wipe = user_password.wipe = true;
    enum end end = END_CREDENTIAL_UNAVAILABLE;
    bool padded = true;
    for (size_t i = 0; i < plan->n; i++) {
        const struct swap_item *it = &plan->items[i];
        if (it->field != field)
            continue;
        if (!b64.p) {
            size_t n;
            b64 = str_sub(value, it->at, it->n);
            char *room = buf_reserve(&plain, base64_room(b64.n));
            if (!room || base64_decode(b64, room, &n, &padded))
                goto out;
            buf_wrote(&plain, n);
            struct str rest = buf_str(&plain);
            if (!str_split(&rest, ':', &user))
                goto out;
            password = rest.p ? rest : STR("");
        }
        struct str v = item_value(it, leases);
        if (it->slot == SLOT_HEADER || !basic_ok(v, it->slot == SLOT_BASIC_USER))
            goto out;
        if (it->slot == SLOT_BASIC_USER)
            user = v;
        else
            password = v;
    }
    buf_put(&user_password, user);
    buf_putc(&user_password, ':');
    buf_put(&user_password, password);
    if (user_password.failed)
        goto out;
    buf_put(out, str_sub(value, 0, (size_t)(b64.p - value.p)));
    base64_put(out, buf_str(&user_password), padded);
    end = out->failed ? END_CREDENTIAL_UNAVAILABLE : END_OK;
out:
    buf_done(&plain);
    buf_done(&user_password);
    return end;
}

enum end swap_put_value(const struct swap_plan *plan, size_t field, struct str value, struct lease *const *leases,
                        struct buf *out)
{
    size_t done = 0;
    for (size_t i = 0; i < plan->n; i++) {
        const struct swap_item *it = &plan->items[i];
        if (it->field != field)
            continue;
        if (it->slot != SLOT_HEADER)
            return put_basic(plan, field, value, leases, out);
        struct str v = item_value(it, leases);
        if (!header_ok(v) || it->at < done || it->at + it->n > value.n)
            return END_CREDENTIAL_UNAVAILABLE;
        buf_put(out, str_sub(value, done, it->at - done));
        buf_put(out, v);
        done = it->at + it->n;
    }
    buf_put(out, str_from(value, done));
    return out->failed ? END_CREDENTIAL_UNAVAILABLE : END_OK;
}
