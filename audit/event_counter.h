/* SPDX-License-Identifier: Apache-2.0
 *
 * event_counter: events that come too often are counted. So many a second of one key are written; the others end, when the
 * second is over, as one line that carries their count and a late one of them as a sample. What the keys mean is the
 * caller's. Places are made once and never grow: where all that a key may have are taken, the one that began first gives
 * way, and writes its line before it does. So nothing counted is forgotten, and nothing here can fail for want of memory. */
#ifndef AUDIT_EVENT_COUNTER_H
#define AUDIT_EVENT_COUNTER_H

#include "audit/sink.h"
#include "base/err.h"
#include "base/loop.h"

struct event_counter;
struct event_place;

/* places: a second's keys that are told apart. sink is borrowed. NULL: out of memory. */
struct event_counter *event_counter_new(struct loop *l, struct sink *sink, size_t places, struct err *err);
/* Writes what is still counted; what finds no room in the log is said on stderr. */
void event_counter_free(struct event_counter **c);

/* The place of this key in this second, good until the next call. NULL: the log has no room for the line of the one that
 * would have to give way. */
struct event_place *event_counter_at(struct event_counter *c, uint64_t key);
/* May one more be written? Takes it where it may. */
bool event_place_take(struct event_place *p, uint64_t per_second);
/* One more is counted. Where it shall stand for the others, it is to be built here; NULL: another does. That is the first,
 * second, fourth, eighth … of them: a flood's lines cost no building. */
struct event *event_place_count(struct event_place *p);

#endif
