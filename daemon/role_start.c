/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/files.h"
#include "daemon/role.h"

#include "base/log.h"

#include <stdlib.h>
#include <unistd.h>

static void input_init(struct role_input *in)
{
    *in = (struct role_input) {
        .uid = UINT32_MAX, .gid = UINT32_MAX, .ring = { -1, -1, -1 }, .snapshot_fd = -1, .names_fd = -1, .listen_fd = -1
    };
    for (int i = 0; i < ROLE_FILE_COUNT; i++)
        in->files[i] = -1;
}

static int take(struct role_msg *m, size_t i)
{
    int fd = m->fds[i];
    m->fds[i] = -1;
    return fd;
}

static int source_add(struct role_input *in, struct role_msg *m)
{
    if (in->nsources == ROLE_SOURCES_MAX)
        return -1;
    if (!in->sources)
        in->sources = calloc(ROLE_SOURCES_MAX, sizeof *in->sources);
    if (!in->sources)
        return -1;
    struct role_source *s = &in->sources[in->nsources];
    s->body = str_of(z_of(m->text), m->text.n);
    if (mint_source_parse(s->body, &s->source)) {
        free((void *)(uintptr_t)s->body.p);
        return -1;
    }
    s->value_fd = m->nfds ? take(m, 0) : -1;
    in->nsources++;
    return 0;
}

/* One message before GO. 0 more, 1 GO, -1 unacceptable. */
static int input_message(struct role *r, struct role_msg *m)
{
    struct role_input *in = &r->in;
    if (m->type == ROLE_START) {
        r->index = m->index;
        r->generation = m->generation;
        in->uid = m->number;
        in->gid = m->other;
        return m->kind == r->ops->kind ? 0 : -1;
    }
    if (m->type == ROLE_RING && in->ring[0] < 0) {
        for (size_t i = 0; i < 3; i++)
            in->ring[i] = take(m, i);
        return 0;
    }
    if (m->type == ROLE_FILE && m->flag > ROLE_FILE_NONE && m->flag < ROLE_FILE_COUNT && in->files[m->flag] < 0) {
        in->files[m->flag] = take(m, 0);
        return 0;
    }
    if (m->type == ROLE_SNAPSHOT && in->snapshot_fd < 0) {
        in->snapshot_fd = take(m, 0);
        in->names_fd = m->nfds > 1 ? take(m, 1) : -1;
        return 0;
    }
    if (m->type == ROLE_TUNE)
        return tune_parse(m->text, &in->tune);
    if (m->type == ROLE_SOURCE)
        return source_add(in, m);
    if (m->type == ROLE_LISTEN && in->listen_fd < 0) {
        in->listen_fd = take(m, 0);
        return 0;
    }
    return m->type == ROLE_GO ? 1 : -1;
}

int role_input_read(struct role *r, struct err *err)
{
    struct buf body;
    buf_init(&body, MSG_BODY_MAX + 4096);
    input_init(&r->in);
    int done = 0;
    while (!done) {
        int fds[MSG_FDS_MAX];
        struct msg m = { .fds = fds };
        struct role_msg rm;
        if (msg_recv_blocking(ROLE_FD, &body, &m)) {
            done = err_set(err, "the supervisor went away before the start");
            break;
        }
        done = role_msg_parse(&m, true, &rm);
        if (done == 0)
            done = input_message(r, &rm);
        if (done < 0)
            err_set(err, "message %u from the supervisor is unacceptable before the start", (unsigned)m.type);
        for (size_t i = 0; i < m.nfds; i++)
            if (fds[i] >= 0)
                close(fds[i]);
    }
    buf_done(&body);
    return done > 0 ? 0 : -1;
}

static void fd_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void role_input_done(struct role_input *in)
{
    for (size_t i = 0; i < 3; i++)
        fd_close(&in->ring[i]);
    for (size_t i = 0; i < ROLE_FILE_COUNT; i++)
        fd_close(&in->files[i]);
    fd_close(&in->snapshot_fd);
    fd_close(&in->names_fd);
    fd_close(&in->listen_fd);
    for (size_t i = 0; i < in->nsources; i++) {
        free(in->sources[i].source.argv);
        free((void *)(uintptr_t)in->sources[i].body.p);
        fd_close(&in->sources[i].value_fd);
    }
    free(in->sources);
    in->sources = NULL;
    in->nsources = 0;
}
