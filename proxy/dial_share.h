/* SPDX-License-Identifier: Apache-2.0
 *
 * dial_share: requests of HTTP/2 clients that begin at once, where no connection to their host is there yet, wait for the one that the first
 * of them dials, and share it. Each waits once only: where that connection fails, speaks HTTP/1.1 or is full, it dials for itself. Who may
 * share is the pool's decision (its key); this only spares handshakes. */
#ifndef PROXY_DIAL_SHARE_H
#define PROXY_DIAL_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct exchange;
struct worker;

/* Of an exchange; zero at first. */
struct dial_share {
    struct exchange *leads_next, **leads_link; /* of the worker's that dial for others too; link NULL: it does not */
    struct exchange *first;                    /* who waits for it */
    size_t n;                                  /* how many */
    uint64_t hash;                             /* of its pool key */
    struct exchange *next, **link;             /* waits; link NULL: it does not */
    bool asked;                                /* it waited before */
};

/* It is about to dial. True: it waits for another instead. */
bool dial_share_wait(struct exchange *x);
static inline bool dial_share_waits(const struct dial_share *s)
{
    return s->link != NULL;
}
/* It has its connection, or will have none: whoever waited goes on, in a task of its own. */
void dial_share_over(struct exchange *x);
void dial_share_init(struct worker *w);
void dial_share_done(struct worker *w);

#endif
