/* SPDX-License-Identifier: Apache-2.0
 *
 * Days on a clock that a test moves. An adversary who knows when budgets are refilled has many zones, or many agents,
 * or restarts the role, kills it, also in the middle of a save, and moves the wall clock; in no 24 hours a zone is told
 * more than its bits, and all over no more than a bucket and what was refilled. And ordinary days, in which nothing is
 * refused. The budget stands alone: what a score would block passes. dns_detector_bound_test.c asks the same of every
 * encoder; here it is when, not how. */
#include "audit/ring.h"
#include "dns/budget_file.h"
#include "dns/detector.h"
#include "dns/name_guard.h"
#include "dns_encoders.h"
#include "tests/fakes/clock_fake.c"
#include "tests/lib/budget_disk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { MINUTE = 60000, HOUR = 60 * MINUTE, DAY = 24 * HOUR, DAYS = 3, EVENTS_MAX = 1 << 18 };
enum { ZONE_BITS = 1024, AGENT_BITS = 8192, SENDERS_MAX = 512 };

/* --- the role: a detector, and its file --- */

struct role {
    struct detector *detector;
    struct budget_file file;
    int fd;
    uint64_t now, from, mono_from; /* true time; when this process began, and what its clock said then */
    unsigned restarts, damaged;
};

static uint64_t mono(const struct role *r)
{
    return r->mono_from + (r->now - r->from);
}

static void save(struct role *r, bool last)
{
    budget_disk_save(&r->file, detector_budget(r->detector), last, mono(r));
}

static void start(struct role *r)
{
    struct detector_options o;
    detector_options_default(&o);
    o.tunnel = DETECTOR_FLAG;
    r->from = r->now;
    r->mono_from = roll(1000000); /* the machine may have started anew */
    r->detector = detector_new(&o, NULL, mono(r), NULL);
    assert_non_null(r->detector);
    struct err err;
    r->damaged +=
        budget_file_open(&r->file, r->fd, detector_budget(r->detector), mono(r), &err) == BUDGET_STATE_DAMAGED;
    save(r, false); /* a role that starts says first that it has not ended */
}

static void role_init(struct role *r)
{
    *r = (struct role) { .fd = memfd_create("budgets", MFD_CLOEXEC) };
    assert_true(r->fd >= 0);
    start(r);
}

static void role_done(struct role *r)
{
    detector_free(&r->detector);
    close(r->fd);
}

/* Half of a place is written anew, and the rest is what stood there. */
static void tear(const struct role *r, uint64_t number)
{
    unsigned char noise[4096];
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (unsigned char)roll(256);
    assert_int_equal(pwrite(r->fd, noise, sizeof noise, (off_t)(number % 2 * BUDGET_FILE_PLACE)), sizeof noise);
}

enum death { STOPPED, KILLED, KILLED_WHILE_IT_WROTE };

static void restart(struct role *r, enum death how)
{
    if (how == STOPPED)
        save(r, true);
    if (how == KILLED_WHILE_IT_WROTE)
        tear(r, r->file.number + 1);
    detector_free(&r->detector);
    r->now += roll(5000);
    start(r);
    r->restarts++;
}

/* --- what arrived --- */

struct arrival {
    uint64_t at_ms;
    unsigned agent, zone, bits;
};

struct game {
    struct role role;
    uint64_t position; /* of the payload */
    struct arrival *arrivals;
    size_t n;
};

static void game_init(struct game *g)
{
    encoders_init();
    *g = (struct game) { .arrivals = calloc(EVENTS_MAX, sizeof *g->arrivals) };
    assert_non_null(g->arrivals);
    role_init(&g->role);
}

static void game_done(struct game *g)
{
    role_done(&g->role);
    free(g->arrivals);
}

/* The most bits in any 24 hours, and in all, of one zone of an agent; zone -1: of all of them. */
static unsigned most_in_a_day(const struct game *g, unsigned agent, int zone, unsigned *ret_all)
{
    unsigned sum = 0, most = 0;
    size_t from = 0;
    *ret_all = 0;
    for (size_t i = 0; i < g->n; i++) {
        const struct arrival *a = &g->arrivals[i];
        if (a->agent != agent || (zone >= 0 && a->zone != (unsigned)zone))
            continue;
        sum += a->bits;
        *ret_all += a->bits;
        for (; a->at_ms - g->arrivals[from].at_ms > DAY; from++) {
            const struct arrival *gone = &g->arrivals[from];
            sum -= gone->agent == agent && (zone < 0 || gone->zone == (unsigned)zone) ? gone->bits : 0;
        }
        most = sum > most ? sum : most;
    }
    return most;
}

/* --- the adversary --- */

struct sender {
    unsigned agent, zone;
};

/* One name; true: it left. A role that must save first may be killed in the middle of it: then it did not. */
static bool attempt(struct game *g, struct sender s, const struct encoder *e, unsigned groups, bool kills)
{
    struct text t;
    char name[NAME_ROOM + 64], zone[64], agent[24];
    unsigned type = payload_bit(g->position), bits = 0;
    encode(e, groups, g->position + 1, &t);
    snprintf(zone, sizeof zone, "zone-%u-of-%u.org", s.zone, s.agent);
    snprintf(agent, sizeof agent, "agent%u", s.agent);
    int n = snprintf(name, sizeof name, "%.*s%s%s", (int)t.n, t.p, t.n ? "." : "", zone);
    if (n > 253)
        return false;
    struct detector_finding f;
    struct detector_ask ask = {
        .agent = str_c(agent), .name = str_of(name, (size_t)n), .qtype = type ? 28 : 1, .observe = true
    };
    detector_judge(g->role.detector, &ask, mono(&g->role), &f);
    if (!f.charged)
        return false;
    if (f.save_first) {
        save(&g->role, false);
        if (kills && roll(12) == 0) {
            tear(&g->role, g->role.file.number);
            restart(&g->role, KILLED);
            return false;
        }
    }
    if (!decode(e, zone_before(ask.name, str_c(zone)), g->position + 1, &bits))
        fail_msg("%s: %s does not decode", e->what, name);
    assert_true(g->n < EVENTS_MAX);
    g->arrivals[g->n++] = (struct arrival) { g->role.now, s.agent, s.zone, bits + 1 };
    g->position += bits + 1;
    return true;
}

/* As much as goes, the largest names first. */
static unsigned burst(struct game *g, struct sender s, bool kills)
{
    unsigned left = 0;
    const struct encoder *e = &encoders[roll(ENCODERS)];
    for (unsigned groups = e->most; groups > 0 && left < 200;) {
        if (attempt(g, s, e, groups, kills))
            left++;
        else
            groups /= 2;
    }
    return left;
}

/* When it sends: the next wait, after so many rounds of which the last one sent something or did not. */
static uint64_t wait_of(unsigned schedule, unsigned round, bool sent)
{
    switch (schedule) {
    case 0: /* a drip */
        return 10 * MINUTE;
    case 1: /* each hour */
        return HOUR;
    case 2: /* both ends of a day, and of the next */
        return round % 2 ? 1 : DAY - 1;
    case 3: /* as soon as one more goes */
        return sent ? 6 * HOUR : 5 * MINUTE;
    case 4: /* each minute for an hour, then not for five */
        return round % 60 ? MINUTE : 5 * HOUR;
    default: /* at any time */
        return roll(4) ? roll(MINUTE) : roll(6 * HOUR);
    }
}
static const char *const schedules[] = {
    "a drip", "bursts by the hour", "both ends of a day", "just after a refill", "an hour in six", "at any time"
};
enum { SCHEDULES = sizeof schedules / sizeof *schedules };

static void check(const struct game *g, const struct sender *v, size_t n, unsigned agents, unsigned days,
                  const char *what)
{
    unsigned zone_most = 0, agent_most = 0, all;
    for (size_t i = 0; i < n; i++) {
        unsigned most = most_in_a_day(g, v[i].agent, (int)v[i].zone, &all);
        zone_most = most > zone_most ? most : zone_most;
        assert_true(most <= 2 * ZONE_BITS && all <= (1 + days) * ZONE_BITS);
    }
    for (unsigned a = 0; a < agents; a++) {
        unsigned most = most_in_a_day(g, a, -1, &all);
        agent_most = most > agent_most ? most : agent_most;
        assert_true(most <= 2 * AGENT_BITS && all <= (1 + days) * AGENT_BITS);
    }
    print_message(
        "%s, %u days, %u agents with %zu zones: %zu names, %u restarts; in a day %u bits a zone, %u an agent\n", what,
        days, agents, n / agents, g->n, g->role.restarts, zone_most, agent_most);
    assert_true(zone_most > ZONE_BITS / 8);
    assert_int_equal(g->role.damaged, 0);
}

static void play(unsigned schedule, unsigned agents, unsigned zones, unsigned days, bool restarts)
{
    static struct sender senders[SENDERS_MAX];
    struct game g;
    size_t n = 0;
    assert_true((size_t)agents * zones <= SENDERS_MAX);
    chance = schedule * 1000 + agents * 100 + zones + days;
    game_init(&g);
    for (unsigned a = 0; a < agents; a++)
        for (unsigned z = 0; z < zones; z++)
            senders[n++] = (struct sender) { a, z };
    bool sent = false;
    for (unsigned round = 0; g.role.now < (uint64_t)days * DAY; round++) {
        unsigned left = 0;
        for (size_t i = 0; i < n; i++)
            left += n == 1 || roll(4) ? burst(&g, senders[i], restarts) : 0;
        sent = left > 0;
        g.role.now += wait_of(schedule, round, sent);
        if (restarts &&
            roll(8) == 0) { /* a death is charged what may have gone unsaved: after many nothing is left to send */
            restart(&g.role, roll(4) ? STOPPED : (enum death)roll(3));
            g.role.now += roll(10);
        }
    }
    check(&g, senders, n, agents, days, schedules[schedule]);
    game_done(&g);
}

static void test_schedules(void **state)
{
    (void)state;
    for (unsigned schedule = 0; schedule < SCHEDULES; schedule++) {
        play(schedule, 1, 1, 1, false);
        play(schedule, 1, 1, DAYS, false);
        play(schedule, 1, 1, DAYS, true);
    }
}

static void test_many_zones(void **state)
{
    (void)state;
    play(1, 1, 200, DAYS, true);
    play(2, 1, 200, DAYS, false);
    play(5, 1, 64, DAYS, true);
}

static void test_many_agents(void **state)
{
    (void)state;
    play(1, 40, 2, DAYS, true);
    play(5, 100, 1, DAYS, true);
}

/* Nothing but restarts, of each kind, all day long: no death is worth a bit. */
static void test_deaths(void **state)
{
    (void)state;
    for (enum death how = STOPPED; how <= KILLED_WHILE_IT_WROTE; how++) {
        struct game g;
        struct sender s = { 0, 0 };
        unsigned all;
        chance = 77 + how;
        game_init(&g);
        for (unsigned i = 0; i < 300; i++) {
            burst(&g, s, how == KILLED_WHILE_IT_WROTE);
            g.role.now += 5 * MINUTE;
            restart(&g.role, how);
        }
        unsigned most = most_in_a_day(&g, 0, 0, &all);
        print_message("death %d, %u times: %u bits in a day\n", (int)how, g.role.restarts, most);
        assert_in_range(most, 64, 2 * ZONE_BITS);
        assert_int_equal(g.role.damaged, 0);
        game_done(&g);
    }
}

/* The control: a file that is lost begins everything anew, and the same deaths are worth a bucket each. */
static void test_control(void **state)
{
    (void)state;
    struct game g;
    struct sender s = { 0, 0 };
    unsigned all;
    chance = 78;
    game_init(&g);
    for (unsigned i = 0; i < 300; i++) {
        burst(&g, s, false);
        g.role.now += 5 * MINUTE;
        assert_int_equal(ftruncate(g.role.fd, 0), 0);
        g.role.file.number = 0;
        detector_free(&g.role.detector);
        start(&g.role);
    }
    assert_true(most_in_a_day(&g, 0, 0, &all) > 4 * ZONE_BITS);
    game_done(&g);
}

/* --- ordinary days --- */

struct work {
    struct role role;
    enum detector_approval approval;
    unsigned events, refused, flagged;
};

static void visit(struct work *w, const char *name, enum detector_event event)
{
    struct detector_finding f;
    char text[DETECTOR_LINE];
    struct detector_ask ask = { .agent = STR("coder"),
                                .name = str_c(name),
                                .qtype = 1,
                                .approval = w->approval,
                                .event = event,
                                .observe = w->approval == DETECTOR_UNAPPROVED };
    detector_judge(w->role.detector, &ask, mono(&w->role), &f);
    w->events++;
    if (f.save_first)
        save(&w->role, false);
    w->flagged += f.rule != DETECTOR_HALF && f.severity >= DETECTOR_FLAGGED;
    if (!f.allow || f.rule == DETECTOR_SPENT) {
        w->refused++;
        print_message("%s\n", detector_explain(&f, text));
    }
}

/* As a client does: looked up, then dialled. */
static void use(struct work *w, const char *name)
{
    visit(w, name, DETECTOR_QUESTION);
    visit(w, name, DETECTOR_DIAL);
}

static void work_init(struct work *w, enum detector_approval approval)
{
    *w = (struct work) { .approval = approval };
    chance = 5;
    role_init(&w->role);
    struct detector_options o;
    detector_options_default(&o); /* as it is configured by default: scores refuse, too */
    assert_int_equal(detector_set(w->role.detector, &o, NULL, NULL), 0);
}

/* So many hosts, three of a domain: what is read on the way, each a few times a day. */
static void read_around(struct work *w, unsigned different, unsigned times, unsigned pause_ms)
{
    static const char *const hosts[] = { "www", "api", "docs", "cdn", "static", "auth" };
    unsigned domains = different / 3;
    char name[80];
    for (unsigned k = 0; k < times; k++)
        for (unsigned i = 0; i < different; i++) {
            unsigned domain = i % domains;
            snprintf(name, sizeof name, "%s.%s%s.com", hosts[i / domains + domain % 3],
                     label_dictionary_word(by_cost[300 + domain]), domain % 3 ? "" : "-works");
            use(w, name);
            w->role.now += pause_ms / 2 + roll(pause_ms);
        }
}

/* What installers fetch: an index, and files from mirrors and the shards of a store, hundreds of times. */
static void install(struct work *w, unsigned files)
{
    char name[80];
    use(w, "index.packages-of-all.org");
    for (unsigned i = 0; i < files; i++) {
        if (i % 3 == 0)
            snprintf(name, sizeof name, "files-%u.packages-of-all.org", roll(4));
        else if (i % 3 == 1)
            snprintf(name, sizeof name, "objects%u.raw.gitforge.net", roll(6));
        else
            snprintf(name, sizeof name, "d%c%c8kq2m4x%u.cloudfront.net", 'a' + (char)roll(3), 'a' + (char)roll(2),
                     roll(3));
        use(w, name);
        w->role.now += roll(300);
    }
}

static void test_ordinary_days_under_rules(void **state)
{
    (void)state;
    struct work w;
    encoders_init();
    work_init(&w, DETECTOR_WILDCARD);
    for (unsigned day = 0; day < DAYS; day++) {
        uint64_t begin = w.role.now;
        read_around(&w, 200, 3, 2000);
        for (unsigned i = 0; i < 4; i++)
            install(&w, 300);
        for (unsigned minute = 0; minute < 24 * 60;
             minute++) { /* a service that is polled, and one whose instances are five */
            char name[64];
            use(&w, "status.build-service.dev");
            snprintf(name, sizeof name, "runner-%u.build-service.dev", roll(5));
            use(&w, name);
            uint64_t at = begin + (uint64_t)minute * MINUTE;
            w.role.now = w.role.now > at ? w.role.now : at;
        }
        for (unsigned i = 0; i < 60; i++) { /* sixty people's pages under a shared suffix */
            char name[64];
            snprintf(name, sizeof name, "%s%u.github.io", label_dictionary_word(by_cost[400 + i]), i);
            use(&w, name);
        }
        w.role.now = begin + DAY;
        restart(&w.role, STOPPED);
        struct detector_options o;
        detector_options_default(&o);
        assert_int_equal(detector_set(w.role.detector, &o, NULL, NULL), 0);
    }
    print_message("%u days under rules: %u events, %u refused, %u flagged\n", (unsigned)DAYS, w.events, w.refused,
                  w.flagged);
    assert_int_equal(w.refused, 0);
    assert_int_equal(w.flagged, 0);
    role_done(&w.role);
}

/* In observe mode each event is one, and new domains are 64 an hour: what is read in seven hours and installed passes.
 */
static void test_an_ordinary_day_in_observe_mode(void **state)
{
    (void)state;
    struct work w;
    encoders_init();
    work_init(&w, DETECTOR_UNAPPROVED);
    read_around(&w, 99, 1, 2 * MINUTE);
    install(&w, 60);
    print_message("a day in observe mode: %u events, %u refused, %u flagged, %u bits of %u\n", w.events, w.refused,
                  w.flagged, budget_agent_spent(detector_budget(w.role.detector), STR("coder"), mono(&w.role)),
                  (unsigned)AGENT_BITS);
    assert_int_equal(w.refused, 0);
    assert_int_equal(w.flagged, 0);
    role_done(&w.role);
}

/* --- the guard as the resolver has it: its loop's clock, its file --- */

static const char yaml[] = "version: 1\n"
                           "mode: observe\n"
                           "resolver: {answer: forward, upstreams: [127.0.0.1:1]}\n"
                           "agents:\n"
                           "  - {name: coder, identify: [{source: 10.77.0.2/32}]}\n"
                           "rules:\n"
                           "  - {name: other, hosts: [other.test], action: allow}\n";

static struct snapshot *snapshot_made(void)
{
    struct diag diag;
    diag_init(&diag);
    struct config *c = config_parse(STR("t.yaml"), STR("/etc/outgate"), str_c(yaml), &diag);
    struct policy *p = c ? policy_new(c, NULL, 0, &diag) : NULL;
    if (!p)
        fail_msg("%s", diag.n ? diag.lines[0].text.p : "?");
    diag_done(&diag);
    struct snapshot *s = snapshot_new(p, STR_NONE);
    policy_unref(&p);
    assert_non_null(s);
    return s;
}

struct guarded {
    struct loop *loop;
    struct name_guard *guard;
    struct snapshot *snapshot;
    struct sink *sink;
    struct ring_reader log; /* is emptied, and not looked at */
    int fd;
    unsigned names;
};

static void log_open(struct guarded *g)
{
    struct err err;
    int ring = sink_ring_new(RING_MIN_BYTES, &err);
    assert_int_equal(ring_reader_init(&g->log, ring, &err), 0);
    g->sink = sink_open(ring, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), &err);
    assert_non_null(g->sink);
}

static void log_empty(struct guarded *g)
{
    static unsigned char bytes[EVENT_MAX];
    size_t n;
    while (ring_reader_next(&g->log, bytes, &n) == RING_RECORD)
        ring_reader_commit(&g->log);
}

static void guard_start(struct guarded *g)
{
    struct err err;
    g->guard = name_guard_new(g->loop, g->sink, &err);
    assert_non_null(g->guard);
    name_guard_open(g->guard, dup(g->fd));
    assert_int_equal(name_guard_set(g->guard, g->snapshot, NULL, &err), 0);
}

static void pass_ms(struct guarded *g, uint64_t ms)
{
    clock_fake_advance_ms(ms);
    do
        loop_run_once(g->loop, name_guard_saves(g->guard) ? 1000 : 0);
    while (name_guard_saves(g->guard)); /* the disk keeps up with this clock */
}

/* Killed: the file stays what it was. */
static void guard_kill(struct guarded *g)
{
    static char kept[2 * BUDGET_FILE_PLACE];
    ssize_t n = pread(g->fd, kept, sizeof kept, 0);
    assert_true(n > 0);
    name_guard_free(&g->guard);
    assert_int_equal(ftruncate(g->fd, 0), 0);
    assert_int_equal(pwrite(g->fd, kept, (size_t)n, 0), n);
    guard_start(g);
}

/* A word that has not been there, eight bits by who reads it. */
static bool one_word(struct guarded *g)
{
    char text[64], dns_id[ANSWER_ID] = "";
    struct host host;
    snprintf(text, sizeof text, "%s%u.slow-zone.org", label_dictionary_word(by_cost[g->names % 256]), g->names);
    assert_int_equal(host_parse(str_c(text), &host, NULL), 0);
    struct name_guard_ask ask = { .agent = policy_agent(g->snapshot->policy, STR("coder")),
                                  .host = &host,
                                  .name = host_str(&host),
                                  .qtype = 1,
                                  .event = DETECTOR_QUESTION,
                                  .observe = true,
                                  .dns_id = dns_id };
    pass_ms(g, 1000); /* it saves so often a second and no more */
    enum end end = budget_disk_judge(g->loop, g->guard, &ask);
    log_empty(g);
    assert_true(end == END_OK || end == END_EXFILTRATION_NAME);
    g->names += end == END_OK;
    return end == END_OK;
}

static unsigned words_until_refused(struct guarded *g)
{
    unsigned n = 0;
    while (one_word(g))
        n++;
    return n;
}

static void test_leaps_of_the_wall_clock(void **state)
{
    (void)state;
    struct guarded g = { .loop = loop_new(), .snapshot = snapshot_made(), .fd = memfd_create("budgets", MFD_CLOEXEC) };
    encoders_init();
    assert_true(g.loop && g.fd >= 0);
    log_open(&g);
    guard_start(&g);
    unsigned first = words_until_refused(&g), later = 0;
    assert_in_range(first, 10, ZONE_BITS / 8);
    static const int64_t leaps[] = { 1, -1, 400, -400, 3650, -7300, 7300, 30 };
    for (size_t i = 0; i < sizeof leaps / sizeof *leaps; i++) {
        clock_fake_jump_wall_ms(leaps[i] * DAY);
        pass_ms(&g, 1);
        later += words_until_refused(&g); /* nor with the process ended or killed meanwhile */
        if (i % 4 == 0) {                 /* each is charged what may have gone in no saved state */
            guard_kill(&g);
            later += words_until_refused(&g);
        }
        name_guard_free(&g.guard);
        clock_fake_jump_wall_ms(leaps[(i + 3) % 8] * DAY);
        guard_start(&g);
        later += words_until_refused(&g);
    }
    print_message("%u words at once, %u more in %zu leaps\n", first, later, sizeof leaps / sizeof *leaps);
    assert_true(later <= 1); /* what a minute refills */
    /* The control: time that passes does refill, and a lost clock of the wall does not hinder it. */
    uint64_t day_words = 0;
    for (unsigned hour = 0; hour < 24; hour++) {
        pass_ms(&g, HOUR);
        clock_fake_jump_wall_ms(hour % 2 ? DAY : -DAY);
        day_words += words_until_refused(&g);
    }
    print_message("%u words in the day after\n", (unsigned)day_words);
    assert_in_range(day_words, 10, ZONE_BITS / 8 + 1);
    name_guard_free(&g.guard);
    sink_free(&g.sink);
    ring_reader_done(&g.log);
    snapshot_unref(&g.snapshot);
    loop_free(g.loop);
    close(g.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_many_zones),
        cmocka_unit_test(test_many_agents),
        cmocka_unit_test(test_deaths),
        cmocka_unit_test(test_control),
        cmocka_unit_test(test_ordinary_days_under_rules),
        cmocka_unit_test(test_an_ordinary_day_in_observe_mode),
        cmocka_unit_test(test_leaps_of_the_wall_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
