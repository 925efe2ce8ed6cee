/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange_steps: what the files of an exchange share, and what codecs ask of its steps. */
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
/* Is its record safe, as far as sync: always asks for that? Else exchange_synced goes on with it. */
bool exchange_is_synced(struct exchange *x);
/* Something moved: the wait begins anew. */
void exchange_touch(struct exchange *x);
/* May its bytes go through unread, by x->view? END_OK with the verdict, or why not. */
enum end exchange_tunnel_policy(struct exchange *x);
bool exchange_tunnel_still_allowed(const struct exchange *x, const struct view *now);
/* So much of ms as its rule or a drain has left for a tunnel or a WebSocket: a request ends by itself, those could last for ever. */
uint64_t exchange_tunnel_lasts(const struct exchange *x, uint64_t ms);
/* There is nothing left. */
void exchange_tunnel_out_of_time(struct exchange *x);
/* Tells the client that the tunnel is open. */
void exchange_tunnel_start(struct exchange *x);
/* Asks for what is live, if that may have changed. */
void exchange_tunnel_renew(struct exchange *x);
/* Ends it when both ways have ended. */
void exchange_tunnel_settle(struct exchange *x);
/* The one way out, whatever happened: refuses or cuts or completes, writes `close`, releases everything. */
void exchange_end(struct exchange *x, enum end end, const char *why);
/* A finding, where the answer held a real value. */
void exchange_reflected(struct exchange *x);
/* May it be sent twice and mean the same (RFC 9110, 9.2.2)? */
bool exchange_idempotent(const struct exchange *x);
/* The body kept for sending it again is not wanted any more. */
void exchange_forget_replay(struct exchange *x);
/* Looks at what the client sends outside of any slot; where: "body", "websocket message". False: the exchange is over. */
bool exchange_watch(struct exchange *x, struct body_watch *watch, struct str data, const char *where);
/* A placeholder stands there and goes on as it is. */
void exchange_inert(struct exchange *x, const struct placeholder *ph, const char *where);
/* The finding of a placeholder that is refused. */
void exchange_report_fault(struct exchange *x, const struct swap_fault *f, enum end end);
/* The set to scrub with is the newest. */
void exchange_refresh_scrub(struct exchange *x);
/* Keeps the first reason given. */
void exchange_why(struct exchange *x, const char *why);

#endif
