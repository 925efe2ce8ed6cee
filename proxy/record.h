/* SPDX-License-Identifier: Apache-2.0
 *
 * record: what an exchange or connection says to the log. `open` once before the first byte leaves, `close` exactly once (counted
 * instead of written when an agent is refused more than limits.refusals_per_second), findings, and `conn` for connections that made no
 * exchange. The verdict is the policy's, or ours where the request itself was unacceptable; a failure after it (the host, the credential,
 * the log) leaves the verdict as it was and has a code. Paths are logged with query values masked and placeholders as [CRED:name]; real values never stand in any field. */
#ifndef PROXY_RECORD_H
#define PROXY_RECORD_H

#include "audit/sink.h"
#include "proxy/exchange.h"

/* True when the log can take another request. */
bool record_ready(struct worker *w, const struct view *v);
/* 0, or -1: no room (refuse: audit_unavailable). */
int record_open(struct exchange *x);
void record_close(struct exchange *x);
/* A credential that a message uses for the first time, after the open. The message waits until exchange_is_synced. 0, or -1: no room. */
int record_used(struct exchange *x, const struct credential *c, const struct lease *lease);
/* Somebody else wrote a finding about it: its close lists the class, which is a static string. */
void record_found(struct exchange *x, const char *cls);
/* ph may be NULL. cls and severity are static strings. */
void record_finding(struct exchange *x, const char *cls, const char *severity, unsigned score, const struct placeholder *ph,
                    const char *where, struct str sentence);
/* The lines for what was only counted in seconds that are over; all: in this one too. */
void record_counted(struct worker *w, bool all);

struct record_conn {
    struct str agent, client, conn_id, host, sni;
    uint16_t port; /* 0: none */
    struct str rule;
    enum end code;                    /* END_UNSET: none */
    const char *verdict, *end, *hint; /* static */
};
void record_conn(struct worker *w, const struct record_conn *c);
/* target as it may be logged, appended to out. */
void record_target(const struct view *v, struct str target, struct buf *out);

#endif
