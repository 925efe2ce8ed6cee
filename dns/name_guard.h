/* SPDX-License-Identifier: Apache-2.0
 *
 * name_guard: the detector at work. Every name that the DNS port is asked or that a dial would look up passes here once,
 * after policy and before a packet leaves; also one that policy refuses, which is scored and costs nothing. What is found
 * goes to finding_log, and what was spent is kept by the purse, for which a name may have to wait. */
#ifndef DNS_NAME_GUARD_H
#define DNS_NAME_GUARD_H

#include "audit/sink.h"
#include "base/loop.h"
#include "dns/answer_set.h"
#include "dns/name_shown.h"
#include "dns/purse.h"
#include "dns/snapshot.h"

struct name_guard;
/* sink is borrowed; NULL: no name about which there is a finding passes. */
struct name_guard *name_guard_new(struct loop *l, struct sink *sink, struct err *err);
/* Saves what was spent, and writes what was counted. Nobody waits any more. */
void name_guard_free(struct name_guard **g);
/* Before the first name: loads what was spent. Takes fd; -1: nothing is kept. */
void name_guard_open(struct name_guard *g, int fd);
/* From now on. 0, or -1: out of memory (what was said before holds). Takes references of its own. */
int name_guard_set(struct name_guard *g, struct snapshot *s, struct canary *canary, struct err *err);

/* What the configuration says of names, as the detector takes it. */
void name_guard_options(const struct config *c, struct detector_options *ret);

struct name_guard_ask {
    const struct agent *agent;
    const struct rule *rule;   /* that lets it through; NULL: none */
    const struct host *host;   /* NULL: it can be none */
    struct str name;           /* as policy saw it */
    uint16_t qtype; /* of a question */
    uint16_t port;  /* of a dial, else 0 */
    enum detector_event event;
    bool fixed;                /* resolver.hosts has it */
    bool observe;              /* no rule lets it through, mode: observe does */
    int64_t now_us;            /* clock_wall_us: which rules hold */
    struct str client, conn_id, request_id;
    char *dns_id; /* ANSWER_ID bytes: of the dns event that will speak of it; "": made here where there is a finding */
};
struct name_guard_ruling {
    enum end end;
    bool waits;          /* with END_OK: it may leave when name_guard_wait says so */
    const char *why;     /* static words; NULL with END_OK */
    const char *finding; /* class of what was found in it, static; NULL: nothing */
    char shown[NAME_SHOWN]; /* the name as the log shows it; "": as it is */
};
/* May it go? END_OK; or END_EXFILTRATION_NAME, END_AUDIT_UNAVAILABLE (a finding about it that the log cannot take, too), or
 * END_RATE_LIMITED (too many new names of its agent wait). */
struct name_guard_ruling name_guard_judge(struct name_guard *g, const struct name_guard_ask *ask);
/* For the name that was judged last. Who gives up says so with purse_wait_done. */
void name_guard_wait(struct name_guard *g, struct purse_wait *w);
/* As purse_saves. */
bool name_guard_saves(const struct name_guard *g);
/* How the log shows a name that was not judged. */
void name_guard_show(const struct name_guard *g, struct str name, char out[NAME_SHOWN]);

#endif
