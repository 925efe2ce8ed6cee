/* SPDX-License-Identifier: Apache-2.0
 *
 * listener: a listening socket of the worker. All workers share it with EPOLLEXCLUSIVE, so an idle one takes the
 * connection. Short of descriptors, idle origins and the connections that gave no name make room; without any it pauses
 * a moment instead of spinning. */
#ifndef PROXY_LISTENER_H
#define PROXY_LISTENER_H

#include "proxy/core.h"

struct listener {
    struct listener *next;
    struct worker *w;
    struct watch watch;
    bool paused;
    unsigned refs; /* clients that came through it */
    bool dropped;
    enum listener_kind kind;
    bool local; /* loopback or unix: absolute-form https may come in clear text */
    size_t text_n;
    char text[];
};

/* How many descriptors clients may take, of the process's limit. */
int listener_fd_most(void);
/* How many of them agents share: those that the worker itself has are taken off. */
uint64_t listener_fd_shared(int most);
int listener_add(struct worker *w, const struct config_listener *cl, int fd, struct err *err);
void listener_drop(struct worker *w, struct str text);
void listener_drop_all(struct worker *w);
/* Accepts again after a pause. */
void listener_resume(struct worker *w);
void listener_unref(struct listener *l);

#endif
