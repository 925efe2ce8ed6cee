/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange_steps: what exchange.c, exchange_stream.c and exchange_end.c share. */
#ifndef PROXY_EXCHANGE_STEPS_H
#define PROXY_EXCHANGE_STEPS_H

#include "proxy/exchange.h"

enum { EXCHANGE_REPLAY_MAX = 64 * 1024 };

void exchange_go(struct exchange *x, enum step step);
void exchange_run(struct exchange *x);
/* What the policy and the keeper are asked about it. */
struct ask exchange_ask(const struct exchange *x);
/* Sets the deadline of the wait that begins, within the rule's total. */
void exchange_wait(struct exchange *x, uint64_t ms);
/* Looks up what the agent must not send, as far as it can be told without waiting. */
void exchange_know(struct exchange *x);
void exchange_on_deadline(struct timer *t);
void exchange_stream_start(struct exchange *x);
/* The one way out, whatever happened: refuses or cuts or completes, writes `close`, releases everything. */
void exchange_end(struct exchange *x, enum end end, const char *why);
/* A finding, where the answer held a real value. */
void exchange_reflected(struct exchange *x);
/* May it be sent twice and mean the same (RFC 9110, 9.2.2)? */
bool exchange_idempotent(const struct exchange *x);
/* The body kept for sending it again is not wanted any more. */
void exchange_forget_replay(struct exchange *x);
/* Keeps the first reason given. */
void exchange_why(struct exchange *x, const char *why);

#endif
