/* SPDX-License-Identifier: Apache-2.0
 *
 * budget_disk: what was spent into its file at once, and a name's wait for it, for tests that look at something else. */
#ifndef TESTS_LIB_BUDGET_DISK_H
#define TESTS_LIB_BUDGET_DISK_H

#include "dns/budget_file.h"
#include "dns/name_guard.h"

#include <stdlib.h>
#include <unistd.h>

static inline void budget_disk_save(struct budget_file *f, struct budget *b, bool last, uint64_t now_ms)
{
    struct buf bytes;
    struct err err;
    uint64_t at;
    buf_init(&bytes, BUDGET_FILE_PLACE);
    if (budget_file_put(f, b, last, now_ms, &bytes, &at, &err) ||
        pwrite(f->fd, buf_str(&bytes).p, buf_size(&bytes), (off_t)at) != (ssize_t)buf_size(&bytes))
        abort();
    budget_file_kept(f, b, true);
    buf_done(&bytes);
}

struct budget_disk_wait {
    struct purse_wait wait;
    bool decided;
};

static inline void budget_disk_decided(struct task *t)
{
    ((struct budget_disk_wait *)((char *)t - offsetof(struct budget_disk_wait, wait.decided)))->decided = true;
}

/* What becomes of a name in the end. */
static inline enum end budget_disk_judge(struct loop *l, struct name_guard *g, const struct name_guard_ask *ask)
{
    struct budget_disk_wait w = { .wait.decided.cb = budget_disk_decided };
    struct name_guard_ruling r = name_guard_judge(g, ask);
    if (r.end != END_OK || !r.waits)
        return r.end;
    name_guard_wait(g, &w.wait);
    while (!w.decided)
        loop_run_once(l, 1000);
    return w.wait.end;
}

#endif
