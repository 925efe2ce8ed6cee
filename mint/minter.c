/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread per connection (libmicrohttpd), because a source may block: a helper, a file on a slow disk. What threads
 * share is read-only but for three things under one lock: random bytes, secrets, open_file. Request bodies hold no
 * secret; an answer's body is wiped when the server lets go of it. */
#include "mint/minter.h"

#include "base/clock.h"
#include "base/log.h"
#include "mint/source.h"

#include <fcntl.h>
#include <malloc.h>
#include <microhttpd.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CONNECTIONS = 64,
    IDLE_S = 60,
    SHORT_TTL_MS = 60000, /* under this the keeper's 30 s of skew come on top (see keeper: KEEPER_SHORT_TTL_MS) */
};

struct minted {
    struct minter_source spec; /* strings are owned */
    char *credential, *text;
    char **argv; /* ends with NULL */
    struct str *agents;
    struct secret *value; /* env */
};

struct minter {
    struct MHD_Daemon *daemon;
    uid_t peer_uids[8];
    size_t npeer_uids;
    struct minted *sources;
    size_t nsources;
    int (*open_file)(void *ctx, struct str credential, struct str path);
    void *ctx;
    char *home;
    pthread_mutex_t lock;
    atomic_bool stop;
};

struct request {
    struct buf body;
};

/* --- answers --- */

static void wiping_free(void *p)
{
    secret_wipe(p, malloc_usable_size(p));
    free(p);
}

static enum MHD_Result respond(struct MHD_Connection *conn, unsigned status, struct str body)
{
    char *copy = malloc(body.n + 1);
    if (!copy)
        return MHD_NO;
    if (body.n)
        memcpy(copy, body.p, body.n);
    struct MHD_Response *r = MHD_create_response_from_buffer_with_free_callback(body.n, copy, wiping_free);
    if (!r) {
        wiping_free(copy);
        return MHD_NO;
    }
    if (body.n)
        MHD_add_response_header(r, "Content-Type", "application/json");
    MHD_add_response_header(r, "Cache-Control", "no-store");
    if (status == 405)
        MHD_add_response_header(r, "Allow", "POST, DELETE, GET");
    if (status == 503)
        MHD_add_response_header(r, "Retry-After", "1");
    enum MHD_Result done = MHD_queue_response(conn, status, r);
    MHD_destroy_response(r);
    return done;
}

/* why is ours and quotes nothing. */
static enum MHD_Result respond_error(struct MHD_Connection *conn, unsigned status, const char *why)
{
    char body[256];
    int n = snprintf(body, sizeof body, "{\"error\":\"%s\"}\n", why);
    return respond(conn, status, str_of(body, n < 0 ? 0 : (size_t)n));
}

/* --- minting --- */

static const struct minted *find_source(const struct minter *m, const struct sidecar_ask *a)
{
    for (size_t i = 0; i < m->nsources; i++) {
        const struct minted *s = &m->sources[i];
        if (!str_eq(s->spec.credential, a->credential))
            continue;
        bool may = s->spec.nagents == 0;
        for (size_t k = 0; k < s->spec.nagents; k++)
            may |= str_eq(s->agents[k], a->agent);
        return may ? s : NULL;
    }
    return NULL;
}

static int64_t ttl_end(const struct minted *s)
{
    uint64_t ttl = s->spec.ttl_ms + (s->spec.ttl_ms < SHORT_TTL_MS ? LEASE_SKEW_MS : 0);
    return clock_wall_us() + (int64_t)ttl * 1000;
}

static void lease_id_new(struct minter *m, char out[33])
{
    unsigned char b[16];
    pthread_mutex_lock(&m->lock);
    rand_bytes(b, sizeof b);
    pthread_mutex_unlock(&m->lock);
    for (size_t i = 0; i < sizeof b; i++)
        snprintf(out + 2 * i, 3, "%02x", b[i]);
}

/* The value of an env or file source into value. */
static int read_value(struct minter *m, const struct minted *s, struct buf *value, struct err *err)
{
    if (s->spec.kind == MINTER_ENV) {
        pthread_mutex_lock(&m->lock);
        int r = buf_put(value, secret_reveal(s->value));
        pthread_mutex_unlock(&m->lock);
        return r ? err_set(err, "no memory") : 0;
    }
    pthread_mutex_lock(&m->lock);
    int fd = m->open_file ? m->open_file(m->ctx, s->spec.credential, s->spec.text) : -1;
    pthread_mutex_unlock(&m->lock);
    return fd < 0 ? err_set(err, "the file cannot be opened") : source_file_read(fd, value, err);
}

static enum source_result mint_value(struct minter *m, const struct minted *s, const struct sidecar_ask *a,
                                     struct buf *out, struct err *err)
{
    char id[33];
    struct buf value;
    buf_init(&value, LEASE_VALUE_MAX + 1);
    value.wipe = true;
    int r = read_value(m, s, &value, err);
    const char *fault = r ? NULL : sidecar_value_fault(buf_str(&value), true);
    if (fault)
        r = err_set(err, "%s", fault);
    if (r == 0) {
        lease_id_new(m, id);
        struct sidecar_grant g = { .lease_id = str_c(id), .value = buf_str(&value), .expires_us = ttl_end(s) };
        r = sidecar_json_put_grant(out, a->request_id, &g);
        if (r)
            err_set(err, "the value is not UTF-8, or too large");
    }
    buf_done(&value);
    return r ? SOURCE_RESULT_UNAVAILABLE : SOURCE_RESULT_GIVEN;
}

/* A helper speaks the protocol itself; its answer is checked, cut to the source's ttl, and written anew. */
static enum source_result mint_exec(struct minter *m, const struct minted *s, const struct sidecar_ask *a,
                                    struct buf *out, struct err *err)
{
    struct buf question, answer;
    struct sidecar_grant g;
    const char *why = NULL;
    buf_init(&question, SIDECAR_REQUEST_MAX);
    buf_init(&answer, SIDECAR_BODY_MAX);
    answer.wipe = true;
    enum source_result r = SOURCE_RESULT_UNAVAILABLE;
    if (sidecar_json_put_ask(&question, a) == 0 && buf_putc(&question, '\n') == 0) {
        struct source_exec x = { .argv = s->argv, .home = m->home, .stop = &m->stop };
        r = source_exec_run(&x, buf_str(&question), &answer, err);
    }
    if (r == SOURCE_RESULT_GIVEN && sidecar_json_read_grant(buf_str(&answer), a->request_id, true, &g, &why)) {
        err_set(err, "the helper's answer: %s", why);
        r = SOURCE_RESULT_UNAVAILABLE;
    } else if (r == SOURCE_RESULT_GIVEN) {
        int64_t end = ttl_end(s);
        if (g.expires_us > end)
            g.expires_us = end;
        if (sidecar_json_put_grant(out, a->request_id, &g))
            r = SOURCE_RESULT_UNAVAILABLE;
        sidecar_grant_done(&g);
    }
    buf_done(&question);
    buf_done(&answer);
    return r;
}

static enum MHD_Result serve_lease(struct minter *m, struct MHD_Connection *conn, struct str body)
{
    struct sidecar_question q;
    const char *why;
    struct err err = { .text = "" };
    if (sidecar_json_read_ask(body, &q, &why))
        return respond_error(conn, 400, why);
    const struct minted *s = find_source(m, &q.ask);
    if (!s) {
        sidecar_question_done(&q);
        return respond_error(conn, 403, "no such credential for this agent");
    }
    struct buf out;
    buf_init(&out, 8 * SIDECAR_BODY_MAX);
    out.wipe = true;
    enum source_result r =
        s->spec.kind == MINTER_EXEC ? mint_exec(m, s, &q.ask, &out, &err) : mint_value(m, s, &q.ask, &out, &err);
    enum MHD_Result done;
    if (r == SOURCE_RESULT_GIVEN) {
        done = respond(conn, 200, buf_str(&out));
    } else {
        pthread_mutex_lock(&m->lock);
        log_error("credential %s: %s", s->credential, r == SOURCE_RESULT_REFUSED ? "the helper said no" : err.text);
        pthread_mutex_unlock(&m->lock);
        done = r == SOURCE_RESULT_REFUSED ? respond_error(conn, 403, "the helper said no")
                                          : respond_error(conn, 503, "the source is unavailable");
    }
    buf_done(&out);
    sidecar_question_done(&q);
    return done;
}

/* --- requests --- */

static bool peer_may(const struct minter *m, struct MHD_Connection *conn)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct ucred peer;
    socklen_t n = sizeof peer;
    if (!info || getsockopt(info->connect_fd, SOL_SOCKET, SO_PEERCRED, &peer, &n))
        return false;
    for (size_t i = 0; i < m->npeer_uids; i++)
        if (peer.uid == m->peer_uids[i])
            return true;
    return false;
}

static enum MHD_Result route(struct minter *m, struct MHD_Connection *conn, struct str method, struct str url,
                             struct request *r)
{
    const struct str leases = STR("/v1/lease"), one = STR("/v1/lease/");
    if (!peer_may(m, conn))
        return respond_error(conn, 403, "this user may not ask");
    if (str_eq(url, STR("/v1/healthz")))
        return str_eq(method, STR("GET")) ? respond(conn, 200, STR("{\"status\":\"ok\"}\n"))
                                          : respond_error(conn, 405, "expected GET");
    if (str_eq(url, leases)) {
        if (!str_eq(method, STR("POST")))
            return respond_error(conn, 405, "expected POST");
        if (r->body.failed)
            return respond_error(conn, 413, "the request is too large");
        return serve_lease(m, conn, buf_str(&r->body));
    }
    if (!str_starts(url, one) || !lease_id_ok(str_from(url, one.n)))
        return respond_error(conn, 404, "no such thing here");
    /* Nothing is kept of a lease, so there is nothing to take back; whoever drops one is heard. */
    return str_eq(method, STR("DELETE")) ? respond(conn, 204, STR("")) : respond_error(conn, 405, "expected DELETE");
}

static enum MHD_Result on_request(void *ctx, struct MHD_Connection *conn, const char *url, const char *method,
                                  const char *version, const char *data, size_t *n, void **req)
{
    struct request *r = *req;
    (void)version;
    if (!r) {
        r = calloc(1, sizeof *r);
        if (!r)
            return MHD_NO;
        buf_init(&r->body, SIDECAR_REQUEST_MAX);
        *req = r;
        return MHD_YES;
    }
    if (*n) {
        buf_put(&r->body, str_of(data, *n)); /* past the maximum: failed stays set, the rest is read and dropped */
        *n = 0;
        return MHD_YES;
    }
    return route(ctx, conn, str_c(method), str_c(url), r);
}

static void on_completed(void *ctx, struct MHD_Connection *conn, void **req, enum MHD_RequestTerminationCode how)
{
    struct request *r = *req;
    (void)ctx;
    (void)conn;
    (void)how;
    *req = NULL;
    if (!r)
        return;
    buf_done(&r->body);
    free(r);
}

static void no_log(void *ctx, const char *format, va_list ap) __attribute__((format(printf, 2, 0)));
static void no_log(void *ctx, const char *format, va_list ap)
{
    (void)ctx;
    (void)format;
    (void)ap;
}

/* --- life --- */

static char *copy_z(struct str s)
{
    return strndup(s.p ? s.p : "", s.n);
}

static int minted_init(struct minted *d, const struct minter_source *s, struct err *err)
{
    d->spec = *s;
    d->credential = copy_z(s->credential);
    d->text = copy_z(s->text);
    d->argv = calloc(s->argc + 1, sizeof *d->argv);
    d->agents = calloc(s->nagents + 1, sizeof *d->agents);
    if (!d->credential || !d->text || !d->argv || !d->agents)
        return err_set(err, "no memory");
    for (size_t i = 0; i < s->argc; i++)
        if (!(d->argv[i] = copy_z(s->argv[i])))
            return err_set(err, "no memory");
    for (size_t i = 0; i < s->nagents; i++) {
        d->agents[i] = str_of(copy_z(s->agents[i]), s->agents[i].n);
        if (!d->agents[i].p)
            return err_set(err, "no memory");
    }
    d->spec.credential = str_of(d->credential, s->credential.n);
    d->spec.text = str_of(d->text, s->text.n);
    if (s->kind == MINTER_EXEC)
        return s->argc && s->argv[0].n ? 0 : err_set(err, "expected a command, got none");
    if (s->kind != MINTER_ENV)
        return 0;
    struct buf value;
    buf_init(&value, LEASE_VALUE_MAX + 1);
    value.wipe = true;
    int r = source_env_read(s->value_fd, &value, err);
    if (!r && !(d->value = secret_new(buf_str(&value).p, buf_size(&value))))
        r = err_set(err, "no locked memory for the value, or it is too large");
    buf_done(&value);
    return r;
}

static void minted_done(struct minted *d)
{
    for (size_t i = 0; d->argv && i < d->spec.argc; i++)
        free(d->argv[i]);
    for (size_t i = 0; d->agents && i < d->spec.nagents; i++)
        free((void *)(uintptr_t)d->agents[i].p);
    free(d->argv);
    free(d->agents);
    free(d->credential);
    free(d->text);
    secret_unref(&d->value);
}

static int fill(struct minter *m, const struct minter_options *o, struct err *err)
{
    m->home = copy_z(o->home.n ? o->home : STR("/"));
    m->sources = calloc(o->nsources + 1, sizeof *m->sources);
    if (!m->home || !m->sources)
        return err_set(err, "no memory");
    if (o->npeer_uids > sizeof m->peer_uids / sizeof *m->peer_uids)
        return err_set(err, "expected at most 8 users who may ask");
    memcpy(m->peer_uids, o->peer_uids, sizeof m->peer_uids);
    m->npeer_uids = o->npeer_uids;
    m->open_file = o->open_file;
    m->ctx = o->ctx;
    for (; m->nsources < o->nsources; m->nsources++)
        if (minted_init(&m->sources[m->nsources], &o->sources[m->nsources], err)) {
            err_prefix(err, "credential %s", m->sources[m->nsources].credential);
            m->nsources++; /* what was begun is released too */
            return -1;
        }
    return 0;
}

static void ignore_pipe(void)
{
    struct sigaction now;
    if (sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        signal(SIGPIPE, SIG_IGN);
}

static int listen_start(struct minter *m, int listen_fd, struct err *err)
{
    /* The library closes its descriptor at its end, and on some failures: it gets one of its own. */
    int fd = fcntl(listen_fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return err_set_errno(err, "the minter's socket");
    struct MHD_OptionItem options[] = {
        { MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS, NULL },
        { MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, NULL },
        { MHD_OPTION_LISTEN_SOCKET, fd, NULL },
        { MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)on_completed, m },
        { MHD_OPTION_END, 0, NULL },
    };
    m->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL | MHD_USE_ERROR_LOG, 0, NULL,
        NULL, on_request, m, MHD_OPTION_EXTERNAL_LOGGER, no_log, NULL, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
    return m->daemon ? 0 : err_set(err, "the minter cannot serve its socket");
}

struct minter *minter_new(const struct minter_options *o, struct err *err)
{
    struct minter *m = calloc(1, sizeof *m);
    int r = m ? fill(m, o, err) : err_set(err, "no memory");
    for (size_t i = 0; i < o->nsources; i++)
        if (o->sources[i].kind == MINTER_ENV && o->sources[i].value_fd >= 0)
            close(o->sources[i].value_fd);
    if (m)
        pthread_mutex_init(&m->lock, NULL);
    ignore_pipe();
    if (!r)
        r = listen_start(m, o->listen_fd, err);
    close(o->listen_fd);
    if (r)
        minter_free(&m);
    return m;
}

void minter_free(struct minter **mp)
{
    struct minter *m = *mp;
    *mp = NULL;
    if (!m)
        return;
    atomic_store(&m->stop, true);
    if (m->daemon)
        MHD_stop_daemon(m->daemon); /* joins the threads, closes the socket */
    for (size_t i = 0; i < m->nsources; i++)
        minted_done(&m->sources[i]);
    free(m->sources);
    free(m->home);
    pthread_mutex_destroy(&m->lock);
    free(m);
}
