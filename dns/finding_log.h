/* SPDX-License-Identifier: Apache-2.0
 *
 * finding_log: the `finding` events about names (PRODUCT: Events), from what the detector found. More than so many a
 * second of one (agent, class, severity) are counted together. */
#ifndef DNS_FINDING_LOG_H
#define DNS_FINDING_LOG_H

#include "audit/sink.h"
#include "base/loop.h"
#include "dns/detector.h"

/* Whose name it was; what is not known is empty. */
struct finding_about {
    struct str client, conn_id, request_id, dns_id;
};

/* Its event, for whoever writes it himself. */
void finding_log_build(struct event *e, const struct detector_finding *f, const struct finding_about *about);

struct finding_log;
/* sink is borrowed; NULL: nothing is ever taken. */
struct finding_log *finding_log_new(struct loop *l, struct sink *sink, struct err *err);
/* Writes what is still counted. */
void finding_log_free(struct finding_log **f);
void finding_log_configure(struct finding_log *f, uint64_t per_second);
/* 0: taken or counted. -1: the log has no room, so what was found must not pass; where it could be counted all the same,
 * its line comes later. */
int finding_log_write(struct finding_log *f, const struct detector_finding *found, const struct finding_about *about);

#endif
