/* SPDX-License-Identifier: Apache-2.0
 *
 * A head with bytes \x01 … \x06 for placeholders, \x07 for a live value: lines of target, then "name:value". Whatever
 * comes of it: a plan's items are whole placeholders of the agent in slots of their credential; a head that is let
 * through holds no placeholder outside the items and no live value; and what is put holds every real value and no
 * placeholder of the plan. */
#include "mint/base64.h"
#include "mint/percent.h"
#include "mint/swap.h"
#include "tests/unit/mint_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(x)                                                                                                       \
    do {                                                                                                               \
        if (!(x))                                                                                                      \
            abort();                                                                                                   \
    } while (0)

enum { FIELDS = 16 };

static struct fixture f;
static struct lease *leases[2];
static struct lease_set *live;
static char stale[PLACEHOLDER_MAX + 1];
static const char real[] = "REAL-value-of-some-length", other_live[] = "another-live-value-0123";

static struct lease *lease_of(struct str credential, const char *value)
{
    struct lease_spec s = {
        .id = STR("1"), .credential = credential, .agent = STR("coder"), .value = str_c(value), .expires_us = INT64_MAX
    };
    struct lease *l = lease_new(&s, NULL);
    CHECK(l);
    return l;
}

static void setup(void)
{
    CHECK(!secret_init());
    f = fixture_new();
    struct agent gone = { .name = STR("gone") };
    CHECK(!placeholder_derive(FIXTURE_KEY, &gone, f.github, stale, sizeof stale, NULL));
    leases[0] = lease_of(STR("github"), real);
    leases[1] = lease_of(STR("key"), other_live);
    struct lease_set_item item = { leases[1], placeholder_of(f.table, f.coder, f.key)->text };
    live = lease_set_new(f.table, &item, 1, 1, NULL);
    CHECK(live);
}

static struct str mark(char c)
{
    switch (c) {
    case 1:
        return placeholder_of(f.table, f.coder, f.github)->text;
    case 2:
        return placeholder_of(f.table, f.other, f.github)->text;
    case 3:
        return placeholder_of(f.table, f.coder, f.key)->text;
    case 4:
        return placeholder_of(f.table, f.coder, f.twice)->text;
    case 5:
        return placeholder_of(f.table, f.coder, f.literal)->text;
    case 6:
        return str_c(stale);
    case 7:
        return str_c(other_live);
    default:
        return STR_NONE;
    }
}

/* \x08 … \x0e: base64 of "u:" and the mark, to get into Basic. */
static void expand(struct str in, struct buf *out)
{
    for (size_t i = 0; i < in.n; i++) {
        char c = in.p[i];
        if (c >= 8 && c < 15 && c != '\n') {
            struct buf plain;
            buf_init(&plain, 4096);
            buf_put(&plain, STR("u:"));
            buf_put(&plain, mark((char)(c - 7)));
            base64_put(out, buf_str(&plain), i % 2);
            buf_done(&plain);
        } else if (c > 0 && c < 8) {
            buf_put(out, mark(c));
        } else {
            buf_putc(out, c);
        }
    }
}

enum { LOOKS = 4 }; /* at most, of the plan, at one text: as it is and decoded, and both again in Basic */
static unsigned doubts;
static bool dead;

static bool holds(struct str text)
{
    struct placeholder_hit h;
    struct needle_match m;
    dead |= placeholder_scan(f.table, text, 0, &doubts, &h) && !h.ph;
    unsigned all = PLACEHOLDER_DOUBTS_MAX; /* what is live is found in any case */
    return placeholder_scan(f.table, text, 0, &all, &h) || needles_find(live->needles, text, 0, &m);
}

static void check_clean(struct str text)
{
    struct percent p;
    CHECK(!holds(text));
    if (percent_decode(text, &p) == 1) {
        CHECK(!holds(percent_str(&p)));
        percent_done(&p);
    }
}

static void check_plan(const struct swap_plan *plan, const struct ask *ask, const struct field *fields, size_t n)
{
    struct lease *given[SWAP_MAX];
    for (size_t i = 0; i < SWAP_MAX; i++)
        given[i] = leases[0];
    for (size_t i = 0; i < plan->n; i++) {
        const struct swap_item *it = &plan->items[i];
        CHECK(it->field < n && it->lease < plan->nwanted && plan->wanted[it->lease] == it->ph->credential);
        CHECK(it->ph->agent == f.coder && policy_credential_scope(f.policy, it->ph->credential, ask) == END_OK);
        CHECK(it->at + it->n <= fields[it->field].value.n);
        if (it->slot == SLOT_HEADER)
            CHECK(str_eq(str_sub(fields[it->field].value, it->at, it->n), it->ph->text));
    }
    for (size_t i = 0; i < n; i++) {
        struct buf out;
        buf_init(&out, 1 << 20);
        out.wipe = true;
        CHECK(swap_put_value(plan, i, fields[i].value, given, &out) == END_OK);
        CHECK(swap_touches(plan, i) || str_eq(buf_str(&out), fields[i].value));
        check_clean(fields[i].name);
        check_clean(buf_str(&out));
        buf_done(&out);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!f.table)
        setup();
    if (size < 1 || size > 4096)
        return 0;
    static const char *const hosts[] = { "api.test", "git.test", "evil.test", "a.wild.test" };
    struct host host;
    CHECK(!host_parse(str_c(hosts[data[0] % 4]), &host, NULL));
    struct buf text[FIELDS + 1];
    struct field fields[FIELDS];
    struct str rest = str_of(data + 1, size - 1), line, target = STR("/");
    size_t n = 0, used = 0;
    while (n < FIELDS && used <= FIELDS && str_split(&rest, '\n', &line)) {
        struct buf *b = &text[used++];
        buf_init(b, 1 << 20);
        expand(line, b);
        ptrdiff_t colon = str_find_char(buf_str(b), ':');
        if (used == 1)
            target = buf_str(b);
        else if (colon > 0)
            fields[n++] = (struct field) { str_sub(buf_str(b), 0, (size_t)colon),
                                           str_trim(str_from(buf_str(b), (size_t)colon + 1)) };
        else
            buf_done(&text[--used]);
    }
    struct ask ask = { .agent = f.coder,
                       .scheme = data[0] & 16 ? SCHEME_HTTP : SCHEME_HTTPS,
                       .host = &host,
                       .port = 443,
                       .method = STR("GET"),
                       .path = STR("/v1/x") };
    struct swap_plan plan;
    struct swap_fault fault;
    enum end end = swap_plan_make(f.table, f.policy, &ask, target, fields, n, live, &plan, &fault);
    doubts = 0;
    dead = false;
    if (end == END_OK) {
        check_clean(target);
        check_plan(&plan, &ask, fields, n);
        CHECK(!dead || LOOKS * doubts >= PLACEHOLDER_DOUBTS_MAX);
    } else {
        CHECK(plan.n == 0 && fault.where[0]);
    }
    while (used)
        buf_done(&text[--used]);
    return 0;
}
