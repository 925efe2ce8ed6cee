/* SPDX-License-Identifier: Apache-2.0
 *
 * Saves are numbered. Whoever waits does so for the first one that has its charge; or for less, when after a save no
 * more is unsaved than may be. */
#include "dns/purse.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/saver.h"
#include "dns/budget_file.h"
#include "dns/unsaved_names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAVE_MS = 30000, SAVE_AGAIN_MS = 1000, SECOND_MS = 1000, LAST_MS = 1500 };

struct purse {
    struct loop *loop;
    struct budget *budget;
    struct budget_file file;
    struct saver *saver;
    struct buf bytes; /* the saver's while it is busy */
    bool keeps;       /* there is a file, or should be */
    bool failed;      /* the last save: until one succeeds */
    uint64_t saves, began_ms;
    uint64_t wanted; /* the save that has what was charged last */
    uint64_t per_second, wait_ms;
    size_t names_max;
    struct timer regular, due, patience;
    uint64_t patience_ms; /* when it is over for the first of those who wait */
    struct purse_wait *waits, **last;
    struct unsaved_names names;
};

static const char cannot[] = "what was spent on names cannot be saved";

/* --- who waits --- */

static bool stuck(const struct purse *p)
{
    return p->failed || (saver_busy(p->saver) && loop_now_ms(p->loop) - p->began_ms > p->wait_ms);
}

static void unlink_wait(struct purse_wait *w)
{
    struct purse *p = w->purse;
    *w->link = w->next;
    if (w->next)
        w->next->link = w->link;
    else
        p->last = w->link;
    w->purse = NULL;
}

/* Those of saves up to this number. */
static void decide(struct purse *p, uint64_t save, enum end end, const char *why)
{
    for (struct purse_wait *w = p->waits, *next; w; w = next) {
        next = w->next;
        if (w->save > save)
            continue;
        unlink_wait(w);
        w->end = end;
        w->why = why;
        loop_defer(p->loop, &w->decided);
    }
    if (!p->waits)
        timer_clear(&p->patience);
}

static void on_patience(struct timer *t)
{
    struct purse *p = (struct purse *)((char *)t - offsetof(struct purse, patience));
    uint64_t now = loop_now_ms(p->loop), soonest = UINT64_MAX;
    for (struct purse_wait *w = p->waits, *next; w; w = next) { /* a reload may have made the later ones the more impatient */
        next = w->next;
        if (w->until_ms > now) {
            soonest = w->until_ms < soonest ? w->until_ms : soonest;
            continue;
        }
        unlink_wait(w);
        w->end = END_AUDIT_UNAVAILABLE;
        w->why = "what was spent on names was not saved in time (limits.name_wait)";
        loop_defer(p->loop, &w->decided);
    }
    p->patience_ms = soonest;
    if (p->waits)
        timer_set(p->loop, t, soonest - now);
}

void purse_wait(struct purse *p, struct purse_wait *w)
{
    if (stuck(p)) {
        w->end = END_AUDIT_UNAVAILABLE;
        w->why = cannot;
        loop_defer(p->loop, &w->decided);
        return;
    }
    w->purse = p;
    w->save = p->wanted;
    w->until_ms = loop_now_ms(p->loop) + p->wait_ms;
    w->next = NULL;
    w->link = p->last;
    *p->last = w;
    p->last = &w->next;
    if (!p->patience.loop || p->patience_ms > w->until_ms) {
        p->patience_ms = w->until_ms;
        timer_set(p->loop, &p->patience, p->wait_ms);
    }
}

void purse_wait_done(struct purse_wait *w)
{
    if (w->purse)
        unlink_wait(w);
    task_cancel(&w->decided);
}

/* --- saving --- */

static void save_failed(struct purse *p, const char *why)
{
    if (!p->failed)
        log_error("%s: names that cost something are refused until it can be", why);
    p->failed = true;
    decide(p, UINT64_MAX, END_AUDIT_UNAVAILABLE, cannot);
    if (p->file.fd >= 0 && !p->due.loop)
        timer_set(p->loop, &p->due, SAVE_AGAIN_MS);
}

static void begin(struct purse *p, bool last)
{
    struct err err;
    uint64_t offset;
    p->began_ms = loop_now_ms(p->loop);
    p->saves++;
    if (budget_file_put(&p->file, p->budget, last, p->began_ms, &p->bytes, &offset, &err)) {
        save_failed(p, err.text);
        return;
    }
    unsaved_names_saving(&p->names);
    saver_start(p->saver, p->file.fd, offset, buf_str(&p->bytes));
}

/* As soon as may be. */
static void want_save(struct purse *p)
{
    if (p->file.fd < 0 || saver_busy(p->saver) || p->due.loop)
        return;
    uint64_t gap = p->failed ? SAVE_AGAIN_MS : p->per_second ? SECOND_MS / p->per_second : 0;
    uint64_t gone = loop_now_ms(p->loop) - p->began_ms;
    if (p->saves > 0 && gone < gap)
        timer_set(p->loop, &p->due, gap - gone);
    else
        begin(p, false);
}

static void on_due(struct timer *t)
{
    struct purse *p = (struct purse *)((char *)t - offsetof(struct purse, due));
    if (!saver_busy(p->saver))
        begin(p, false);
}

static void on_regular(struct timer *t)
{
    struct purse *p = (struct purse *)((char *)t - offsetof(struct purse, regular));
    timer_set(p->loop, t, SAVE_MS);
    if (budget_unsaved(p->budget) > 0)
        want_save(p);
}

static void on_saved(void *ctx, int error)
{
    struct purse *p = ctx;
    struct err err;
    budget_file_kept(&p->file, p->budget, error == 0);
    if (error) {
        errno = error;
        err_set_errno(&err, "budgets: the file cannot be written");
        save_failed(p, err.text);
        return;
    }
    if (p->failed)
        log_info("budgets: the file can be written again");
    p->failed = false;
    unsaved_names_saved(&p->names);
    decide(p, p->saves, END_OK, NULL);
    if (budget_must_save(p->budget)) {
        want_save(p);
        return;
    }
    unsaved_names_clear(&p->names);
    decide(p, UINT64_MAX, END_OK, NULL);
    if (budget_should_save(p->budget))
        want_save(p);
}

/* --- charging --- */

bool purse_ready(struct purse *p, uint64_t owner, enum end *ret_end, const char **ret_why)
{
    if (!p->keeps)
        return true;
    if (stuck(p)) {
        *ret_end = END_AUDIT_UNAVAILABLE;
        *ret_why = cannot;
        return false;
    }
    if (unsaved_names_may(&p->names, owner, p->names_max))
        return true;
    *ret_end = END_RATE_LIMITED;
    *ret_why = "too many new names wait until what they cost is saved (limits.names_unsaved)";
    return false;
}

bool purse_charged(struct purse *p, uint64_t owner, uint64_t name, uint64_t cost)
{
    if (!p->keeps)
        return false;
    if (cost == 0) {
        bool saving;
        if (p->names.n == 0 || !unsaved_names_has(&p->names, name, &saving))
            return false;
        p->wanted = p->saves + !(saving && saver_busy(p->saver));
        return true;
    }
    p->wanted = p->saves + 1; /* it may begin at once */
    bool waits = budget_must_save(p->budget);
    if (waits)
        MUST(unsaved_names_add(&p->names, name, owner, p->names_max));
    if (waits || budget_should_save(p->budget))
        want_save(p);
    return waits;
}

bool purse_saves(const struct purse *p)
{
    return p->saver && saver_busy(p->saver);
}

/* --- life --- */

void purse_open(struct purse *p, int fd)
{
    struct err err;
    p->keeps = true;
    if (budget_file_open(&p->file, fd, p->budget, loop_now_ms(p->loop), &err) == BUDGET_STATE_DAMAGED)
        log_error("%s", err.text);
    budget_owe(p->budget); /* from now on more may be out than the file says */
    p->saver = p->file.fd >= 0 ? saver_new(p->loop, on_saved, p, &err) : NULL;
    if (!p->saver) {
        if (p->file.fd >= 0)
            log_error("%s", err.text);
        close(fd);
        p->file.fd = -1;
        save_failed(p, "budgets: there is no file that can be kept");
        return;
    }
    timer_set(p->loop, &p->regular, SAVE_MS);
    begin(p, false);
}

void purse_set_limits(struct purse *p, const struct limits *l)
{
    p->per_second = l->name_saves;
    p->wait_ms = l->name_wait;
    p->names_max = l->names_unsaved;
}

struct purse *purse_new(struct loop *l, struct budget *b, struct err *err)
{
    struct purse *p = calloc(1, sizeof *p);
    if (!p) {
        err_set(err, "resolver: out of memory for what was spent on names");
        return NULL;
    }
    struct limits limits;
    limits_default(&limits);
    purse_set_limits(p, &limits);
    p->loop = l;
    p->budget = b;
    p->file.fd = -1;
    p->last = &p->waits;
    p->regular.cb = on_regular;
    p->due.cb = on_due;
    p->patience.cb = on_patience;
    buf_init(&p->bytes, BUDGET_FILE_PLACE);
    return p;
}

/* What goes on until the end goes first, so that nothing is charged behind the last word. */
static void save_last(struct purse *p)
{
    int error = 0;
    uint64_t start = clock_mono_ms(), passed;
    if (saver_busy(p->saver)) {
        error = saver_wait(p->saver, LAST_MS);
        budget_file_kept(&p->file, p->budget, error == 0);
    }
    if (error != ETIMEDOUT) {
        begin(p, true);
        passed = clock_mono_ms() - start;
        error = saver_busy(p->saver) ? saver_wait(p->saver, passed < LAST_MS ? (unsigned)(LAST_MS - passed) : 0) : ENOMEM;
    }
    if (error)
        log_error("budgets: the file cannot be written (%s): the next start charges what may be missing",
                  strerror(error));
}

void purse_free(struct purse **pp)
{
    struct purse *p = *pp;
    *pp = NULL;
    if (!p)
        return;
    MUST(!p->waits);
    if (p->saver)
        save_last(p);
    timer_clear(&p->regular);
    timer_clear(&p->due); /* a last save that failed may have set it */
    timer_clear(&p->patience);
    if (!saver_free(&p->saver)) /* it holds the bytes and the file until this process ends */
        p->file.fd = -1;
    else
        buf_done(&p->bytes);
    if (p->file.fd >= 0)
        close(p->file.fd);
    free(p);
}
