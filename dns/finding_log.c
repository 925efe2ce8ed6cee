/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/finding_log.h"

#include "audit/event_counter.h"
#include "dns/name_shown.h"

#include <stdlib.h>

enum { PLACES = 64 };

struct finding_log {
    struct sink *sink;
    struct event_counter *counter;
    uint64_t per_second;
};

struct finding_log *finding_log_new(struct loop *l, struct sink *sink, struct err *err)
{
    struct finding_log *f = calloc(1, sizeof *f);
    if (!f) {
        err_set(err, "resolver: out of memory");
        return NULL;
    }
    f->sink = sink;
    f->per_second = 50;
    f->counter = event_counter_new(l, sink, PLACES, err);
    if (!f->counter)
        finding_log_free(&f);
    return f;
}

void finding_log_free(struct finding_log **fp)
{
    struct finding_log *f = *fp;
    *fp = NULL;
    if (!f)
        return;
    event_counter_free(&f->counter);
    free(f);
}

void finding_log_configure(struct finding_log *f, uint64_t per_second)
{
    f->per_second = per_second;
}

static void put(struct event *e, enum event_field id, struct str s)
{
    if (s.n > 0)
        event_put_str(e, id, s);
}

void finding_log_build(struct event *e, const struct detector_finding *f, const struct finding_about *about)
{
    char line[DETECTOR_LINE], evidence[DETECTOR_LINE], features[DETECTOR_FEATURES], shown[NAME_SHOWN], hint[DETECTOR_HINT];
    event_init(e, EVENT_FINDING);
    event_put_str(e, FIELD_AGENT, f->ask.agent);
    put(e, FIELD_CLIENT, about->client);
    put(e, FIELD_CONN_ID, about->conn_id);
    put(e, FIELD_REQUEST_ID, about->request_id);
    put(e, FIELD_DNS_ID, about->dns_id);
    event_put_str(e, FIELD_HOST, name_shown(f, shown) ? str_c(shown) : f->ask.name);
    put(e, FIELD_CREDENTIAL, f->canary.credential);
    put(e, FIELD_HINT, str_c(detector_hint(f, hint)));
    event_put_str(e, FIELD_CLASS, str_c(f->class));
    event_put_str(e, FIELD_SEVERITY, str_c(detector_severity_text(f->severity)));
    event_put_u64(e, FIELD_SCORE, detector_score(f));
    event_put_str(e, FIELD_FEATURES, str_c(detector_features(f, features)));
    event_put_str(e, FIELD_EVIDENCE, str_c(detector_evidence(f, evidence)));
    event_put_str(e, FIELD_SENTENCE, str_c(detector_explain(f, line)));
    struct str subjects[] = { about->request_id, about->dns_id };
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
        if (subjects[i].n > 0)
            event_add(e, FIELD_SUBJECTS, subjects[i]);
}

int finding_log_write(struct finding_log *f, const struct detector_finding *found, const struct finding_about *about)
{
    if (!f->sink)
        return -1;
    uint64_t key = str_hash_keyed(str_hash(found->ask.agent), 1 + (uint64_t)found->severity, str_c(found->class));
    struct event_place *at = event_counter_at(f->counter, key);
    if (!at)
        return -1;
    if (!event_place_take(at, f->per_second)) {
        struct event *sample = event_place_count(at);
        if (sample)
            finding_log_build(sample, found, about);
        return 0;
    }
    struct event e EVENT_LOCAL;
    finding_log_build(&e, found, about);
    if (sink_write(f->sink, &e, false) == 0)
        return 0;
    struct event *sample = event_place_count(at);
    if (sample)
        *sample = e;
    return -1;
}
