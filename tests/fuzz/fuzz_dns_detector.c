/* SPDX-License-Identifier: Apache-2.0
 *
 * Names as they come, one a line, judged one after another. The first byte of a line says how each was approved, what
 * it is for, and how much time has passed. */
#include "dns/name_shown.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            abort();                                                                                                   \
    } while (0)

static void check_printable(const char *line, size_t max)
{
    size_t n = strlen(line);
    CHECK(n > 0 && n < max);
    for (size_t i = 0; i < n; i++)
        CHECK(line[i] >= 0x20 && line[i] < 0x7f);
}

/* What the log says of it, which holds no placeholder that was found whole. */
static void check_texts(const struct detector_finding *f)
{
    char text[DETECTOR_LINE], features[DETECTOR_FEATURES], shown[NAME_SHOWN];
    struct canary_hit hit;
    check_printable(detector_explain(f, text), DETECTOR_LINE);
    check_printable(detector_features(f, features), DETECTOR_FEATURES);
    if (f->ask.name.n > 0)
        check_printable(detector_evidence(f, text), DETECTOR_LINE);
    bool masked = name_shown(f, shown);
    CHECK(masked == (shown[0] != '\0') && strlen(shown) < NAME_SHOWN);
    if (f->canary.credential.n > 0 && f->ask.fixed == 0)
        CHECK(masked && !canary_find(f->canaries, str_c(shown), &hit));
}

static void check(const struct detector_finding *f)
{
    check_texts(f);
    CHECK(f->zone.zone.n <= f->ask.name.n);
    if (f->ask.approval == DETECTOR_UNAPPROVED && !f->ask.observe)
        CHECK(!f->allow && !f->charged);
    if (!name_cost_known(f->ask.name))
        CHECK(!f->allow);
    if (f->charged)
        CHECK(f->allow && f->account.before + f->account.cost <= f->account.limit);
    if (f->ask.event == DETECTOR_SYNTHETIC)
        CHECK(!f->charged);
    if (f->rule == DETECTOR_PLACEHOLDER)
        CHECK(!f->allow && f->severity == DETECTOR_CRITICAL && f->canary.agent.n > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct detector *d;
    static uint64_t now;
    struct canary_source v = { .text = STR("og_k7q2mz5xwv3njd6thg4yb2rcf7lqesp6aoi3u5xk"),
                               .fixed = 3,
                               .agent = STR("coder"),
                               .credential = STR("github") };
    if (!d) { /* kept from one input to the next, as a role keeps it */
        struct detector_options o;
        detector_options_default(&o);
        struct canary *c = canary_new(&v, 1, NULL);
        d = detector_new(&o, c, 0, NULL);
        canary_unref(&c);
        CHECK(d);
    }
    struct str rest = str_of(data, size), line;
    while (str_split(&rest, '\n', &line)) {
        if (line.n < 2)
            continue;
        unsigned how = (unsigned char)line.p[0];
        struct detector_finding f;
        struct detector_ask ask = { .agent = how & 1 ? STR("a") : STR("b"),
                                    .name = str_from(line, 1),
                                    .qtype = (uint16_t)(how & 2 ? 1 : how * 257),
                                    .approval = (enum detector_approval)((how >> 2) % 3),
                                    .event = (enum detector_event)((how >> 4) % 3),
                                    .written = how & 64,
                                    .observe = how & 128 };
        now += how * 1000;
        detector_judge(d, &ask, now, &f);
        check(&f);
    }
    return 0;
}
