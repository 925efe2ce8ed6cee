/* SPDX-License-Identifier: Apache-2.0
 *
 * budget_file: where what was spent (budget_state.h) survives: one file, which its reader was given open, with two
 * places that are written by turns. A write that a crash cuts in two leaves the place before it whole. */
#ifndef DNS_BUDGET_FILE_H
#define DNS_BUDGET_FILE_H

#include "dns/budget_state.h"

enum { BUDGET_FILE_PLACE = BUDGET_STATE_MAX + 4096, BUDGET_FILE_HEAD = 24 };

struct budget_file {
    int fd; /* -1: nothing survives */
    uint64_t number; /* of the newest place */
};

/* Loads the newest whole place into a budget that has not been charged. A file without a byte is a new one. err: what
 * is wrong where it is damaged. fd stays the caller's. */
enum budget_state budget_file_open(struct budget_file *f, int fd, struct budget *b, uint64_t now_ms, struct err *err);
/* The bytes of the next place, for whoever writes them there and syncs them. out: of at most BUDGET_FILE_PLACE; what was
 * in it goes. last: as budget_state_put. 0, or -1: out of memory. */
int budget_file_put(const struct budget_file *f, struct budget *b, bool last, uint64_t now_ms, struct buf *out,
                    uint64_t *ret_offset, struct err *err);
/* What came of them. One that was not kept may have left its place torn: the next goes there again. */
void budget_file_kept(struct budget_file *f, struct budget *b, bool kept);

#endif
