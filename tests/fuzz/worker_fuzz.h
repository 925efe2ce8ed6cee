/* SPDX-License-Identifier: Apache-2.0
 *
 * worker_fuzz: what the fuzz targets share that play one peer of a whole worker: the rig, started once for all inputs, its rounds, and that
 * nothing of an input outlives it. One target includes it; names are as short as there. */
#ifndef TESTS_FUZZ_WORKER_FUZZ_H
#define TESTS_FUZZ_WORKER_FUZZ_H

#include "proxy/worker.h"
#include "tests/scenario/rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct rig rig;

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    abort();
}

/* On one machine, in one thread, nothing has to be waited for: rounds are enough. */
static void settle(void)
{
    for (int i = 0; i < 24; i++)
        loop_run_once(rig.loop, 0);
}

static void end(void)
{
    rig_stop(&rig);
}

/* False: it was begun before. */
static bool begin_once(const char *config)
{
    static bool begun;
    char why[256];
    if (begun)
        return false;
    begun = true;
    must(rig_start(&rig, str_c(config), why, sizeof why) == 0, why);
    atexit(end);
    return true;
}

static void must_rest(void)
{
    struct worker_stats s;
    for (int i = 0; i < 50; i++) {
        worker_stats(rig.worker, &s);
        if (!s.exchanges && !s.clients && !s.pooled)
            break;
        settle();
    }
    must(!s.exchanges, "an exchange outlived its connection");
    must(!s.clients, "a client outlived its connection");
    must(!s.pooled, "a connection outlived its end");
}

#endif
