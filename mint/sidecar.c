/* SPDX-License-Identifier: Apache-2.0
 *
 * libcurl tells by two callbacks which sockets and which timeout it wants; the loop tells libcurl what happened; a
 * finished transfer goes on the hub's list and its callback runs from a task. libcurl's memory goes through wiping
 * functions, so that its receive buffers are zeroed when they are freed; each transfer has a handle of its own, freed
 * at its end. */
#include "mint/sidecar.h"

#include "base/clock.h"
#include "base/log.h"

#include <curl/curl.h>
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct hub_socket {
    struct watch watch;
    struct sidecar_hub *hub;
    LIST_ENTRY(hub_socket) in_hub;
};

struct sidecar_call {
    TAILQ_ENTRY(sidecar_call) link; /* in the queue of its sidecar, then in the hub's running or done list */
    struct sidecar *sidecar;        /* referenced */
    enum { CALL_QUEUED = 1, CALL_RUNNING, CALL_DONE } state;
    int fresh_fd; /* a new connection's socket, until its peer was looked at */
    bool is_delete, allow_short, too_large, wrong_peer;
    void (*cb)(void *ctx, const struct sidecar_answer *a); /* NULL: nobody listens (any more) */
    void *ctx;
    uint64_t deadline_ms;
    CURL *easy;
    struct buf out, in;
    char request_id[LEASE_ID_MAX + 1], lease_id[LEASE_ID_MAX + 1];
    size_t request_id_n;
    const char *why;
    struct sidecar_answer answer;
};
TAILQ_HEAD(calls, sidecar_call);

struct sidecar {
    unsigned refs;
    struct sidecar_hub *hub; /* NULL once the hub is gone */
    LIST_ENTRY(sidecar) in_hub;
    struct sidecar_options options; /* its strings are below */
    char *name;
    uint64_t number; /* in its hub: libcurl's name for its connections, see set_options */
    struct sockaddr_un addr;
    struct calls queue;
    size_t nqueue, nrunning;
};

struct sidecar_hub {
    struct loop *loop;
    CURLM *multi;
    struct curl_slist *headers;
    uint64_t last_number;
    struct timer timer;
    struct task done_task;
    struct calls running, done;
    LIST_HEAD(, sidecar) sidecars;
    LIST_HEAD(, hub_socket) sockets;
};

/* --- memory --- */

static void wiping_free(void *p)
{
    if (!p)
        return;
    secret_wipe(p, malloc_usable_size(p));
    free(p);
}

static void *wiping_realloc(void *p, size_t n)
{
    size_t old = p ? malloc_usable_size(p) : 0;
    void *q = malloc(n ? n : 1);
    if (!q)
        return NULL;
    if (old)
        memcpy(q, p, old < n ? old : n);
    wiping_free(p);
    return q;
}

static char *plain_strdup(const char *z)
{
    return strdup(z);
}

static int curl_start(void)
{
    static bool started;
    /* NOTHING: no TLS, no configuration file of another library; the protocol is HTTP on a local socket. */
    if (!started &&
        curl_global_init_mem(CURL_GLOBAL_NOTHING, malloc, wiping_free, wiping_realloc, plain_strdup, calloc))
        return -1;
    started = true;
    return 0;
}

/* --- the hub and the loop --- */

static void call_free(struct sidecar_call *c)
{
    if (c->easy)
        curl_easy_cleanup(c->easy);
    buf_done(&c->out);
    buf_done(&c->in);
    sidecar_unref(&c->sidecar);
    free(c);
}

static void start_queued(struct sidecar *s);

static const char *fault_of(CURLcode code, const struct sidecar_call *c)
{
    if (c->why)
        return c->why;
    if (c->too_large)
        return "the answer is over 64 KiB";
    return code == CURLE_OPERATION_TIMEDOUT ? "the sidecar did not answer in time"
                                            : "the connection to the sidecar failed";
}

/* What the transfer came to; the body is looked at in deliver(). */
static void judge(struct sidecar_call *c, CURLcode code)
{
    long status = 0;
    curl_off_t retry = 0;
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(c->easy, CURLINFO_RETRY_AFTER, &retry);
    struct sidecar_answer *a = &c->answer;
    if (code) {
        bool unfit = c->wrong_peer || c->too_large;
        *a = (struct sidecar_answer) { unfit ? SIDECAR_UNFIT : SIDECAR_FAILED, 0, fault_of(code, c), NULL };
    } else if (status == 200) {
        *a = (struct sidecar_answer) { SIDECAR_GIVEN, 0, NULL, NULL };
    } else if (status == 403) {
        *a = (struct sidecar_answer) { SIDECAR_DENIED, 0, "the sidecar said no", NULL };
    } else if (status == 429 || status == 503) {
        uint32_t after = retry < 0 ? 0 : retry > 86400 ? 86400 : (uint32_t)retry;
        *a = (struct sidecar_answer) { SIDECAR_BUSY, after, "its source gives none now, or asks to wait: the operator's log says why", NULL };
    } else {
        *a = (struct sidecar_answer) { SIDECAR_FAILED, 0, "the sidecar answered with an unexpected status", NULL };
    }
}

static void collect_done(struct sidecar_hub *h)
{
    CURLMsg *m;
    int left;
    while ((m = curl_multi_info_read(h->multi, &left))) {
        if (m->msg != CURLMSG_DONE)
            continue;
        char *private = NULL;
        CURLcode code = m->data.result;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &private);
        struct sidecar_call *c = (struct sidecar_call *)(void *)private;
        judge(c, code);
        curl_multi_remove_handle(h->multi, c->easy);
        curl_easy_cleanup(c->easy);
        c->easy = NULL;
        TAILQ_REMOVE(&h->running, c, link);
        c->state = CALL_DONE;
        TAILQ_INSERT_TAIL(&h->done, c, link);
        c->sidecar->nrunning--;
        start_queued(c->sidecar);
        loop_defer(h->loop, &h->done_task);
    }
}

static void hub_act(struct sidecar_hub *h, curl_socket_t fd, int what)
{
    int running;
    curl_multi_socket_action(h->multi, fd, what, &running);
    collect_done(h);
}

static void on_socket_ready(struct watch *w, uint32_t revents)
{
    struct hub_socket *s = (struct hub_socket *)((char *)w - offsetof(struct hub_socket, watch));
    int what = (revents & EPOLLIN ? CURL_CSELECT_IN : 0) | (revents & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
               (revents & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
    hub_act(s->hub, w->fd, what); /* s may be gone afterwards */
}

static void on_timer(struct timer *t)
{
    struct sidecar_hub *h = (struct sidecar_hub *)((char *)t - offsetof(struct sidecar_hub, timer));
    hub_act(h, CURL_SOCKET_TIMEOUT, 0);
}

static void socket_drop(struct hub_socket *s)
{
    watch_del(&s->watch);
    LIST_REMOVE(s, in_hub);
    free(s);
}

static int want_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *assigned)
{
    (void)easy;
    struct sidecar_hub *h = ctx;
    struct hub_socket *s = assigned;
    if (what == CURL_POLL_REMOVE) {
        if (s)
            socket_drop(s);
        curl_multi_assign(h->multi, fd, NULL);
        return 0;
    }
    uint32_t events = (what & CURL_POLL_IN ? (uint32_t)EPOLLIN : 0) | (what & CURL_POLL_OUT ? (uint32_t)EPOLLOUT : 0);
    if (s) {
        watch_set(&s->watch, events);
        return 0;
    }
    s = calloc(1, sizeof *s);
    if (!s)
        return -1;
    *s = (struct hub_socket) { .watch = { .fd = fd, .events = events, .cb = on_socket_ready }, .hub = h };
    if (watch_add(h->loop, &s->watch)) {
        free(s);
        return -1;
    }
    LIST_INSERT_HEAD(&h->sockets, s, in_hub);
    curl_multi_assign(h->multi, fd, s);
    return 0;
}

static int want_timer(CURLM *multi, long timeout_ms, void *ctx)
{
    (void)multi;
    struct sidecar_hub *h = ctx;
    if (timeout_ms < 0)
        timer_clear(&h->timer);
    else
        timer_set(h->loop, &h->timer, (uint64_t)timeout_ms);
    return 0;
}

/* Runs the callback of one finished call. The grant lives only during it. */
static void deliver(struct sidecar_call *c)
{
    struct sidecar_grant grant = { 0 };
    struct sidecar_answer *a = &c->answer;
    if (!c->is_delete && a->result == SIDECAR_GIVEN) {
        struct str id = str_of(c->request_id, c->request_id_n);
        if (sidecar_json_read_grant(buf_str(&c->in), id, c->allow_short, &grant, &a->why) == 0)
            a->grant = &grant;
        else
            a->result = SIDECAR_UNFIT;
    }
    buf_done(&c->in);
    if (c->cb)
        c->cb(c->ctx, a);
    else if (a->grant) /* cancelled: give it back */
        sidecar_delete(c->sidecar, grant.lease_id);
    sidecar_grant_done(&grant);
}

static void run_done(struct task *t)
{
    struct sidecar_hub *h = (struct sidecar_hub *)((char *)t - offsetof(struct sidecar_hub, done_task));
    struct sidecar_call *c;
    while ((c = TAILQ_FIRST(&h->done))) {
        TAILQ_REMOVE(&h->done, c, link);
        deliver(c);
        call_free(c);
    }
}

struct sidecar_hub *sidecar_hub_new(struct loop *l, struct err *err)
{
    struct sidecar_hub *h = calloc(1, sizeof *h);
    if (!h || curl_start() || !(h->multi = curl_multi_init())) {
        free(h);
        err_set(err, "the sidecar client cannot start: no memory");
        return NULL;
    }
    static const char *const lines[] = { "Host: localhost", "Content-Type: application/json",
                                         "Accept: application/json", "Expect:" };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct curl_slist *list = curl_slist_append(h->headers, lines[i]);
        if (list)
            h->headers = list;
    }
    h->loop = l;
    h->timer.cb = on_timer;
    h->done_task.cb = run_done;
    TAILQ_INIT(&h->running);
    TAILQ_INIT(&h->done);
    curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, want_socket);
    curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
    curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, want_timer);
    curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
    curl_multi_setopt(h->multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
    curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, 64L);
    return h;
}

void sidecar_hub_free(struct sidecar_hub **hp)
{
    struct sidecar_hub *h = *hp;
    *hp = NULL;
    if (!h)
        return;
    struct sidecar *s;
    struct sidecar_call *c;
    while ((s = LIST_FIRST(&h->sidecars))) {
        LIST_REMOVE(s, in_hub);
        s->hub = NULL;
        sidecar_ref(s); /* its queue may hold the last ones */
        while ((c = TAILQ_FIRST(&s->queue))) {
            TAILQ_REMOVE(&s->queue, c, link);
            call_free(c);
        }
        sidecar_unref(&s);
    }
    while ((c = TAILQ_FIRST(&h->running))) {
        TAILQ_REMOVE(&h->running, c, link);
        curl_multi_remove_handle(h->multi, c->easy);
        c->sidecar->nrunning--;
        call_free(c);
    }
    while ((c = TAILQ_FIRST(&h->done))) {
        TAILQ_REMOVE(&h->done, c, link);
        call_free(c);
    }
    curl_multi_cleanup(h->multi);
    struct hub_socket *k;
    while ((k = LIST_FIRST(&h->sockets)))
        socket_drop(k);
    timer_clear(&h->timer);
    task_cancel(&h->done_task);
    curl_slist_free_all(h->headers);
    free(h);
}

void sidecar_hub_finish(struct sidecar_hub *h, unsigned max_ms)
{
    uint64_t until = clock_mono_ms() + max_ms;
    while (!TAILQ_EMPTY(&h->running) && clock_mono_ms() < until) {
        struct pollfd fds[64];
        nfds_t n = 0;
        struct hub_socket *k;
        LIST_FOREACH(k, &h->sockets, in_hub)
        if (n < 64)
            fds[n++] = (struct pollfd) { .fd = k->watch.fd,
                                         .events = (short)((k->watch.events & EPOLLIN ? POLLIN : 0) |
                                                           (k->watch.events & EPOLLOUT ? POLLOUT : 0)) };
        poll(fds, n, 2);
        for (nfds_t i = 0; i < n; i++)
            if (fds[i].revents)
                hub_act(h, fds[i].fd,
                        (fds[i].revents & POLLIN ? CURL_CSELECT_IN : 0) |
                            (fds[i].revents & POLLOUT ? CURL_CSELECT_OUT : 0) |
                            (fds[i].revents & (POLLERR | POLLHUP) ? CURL_CSELECT_ERR : 0));
        hub_act(h, CURL_SOCKET_TIMEOUT, 0);
    }
}

/* --- sidecars --- */

struct sidecar *sidecar_new(struct sidecar_hub *h, const struct sidecar_options *o, struct err *err)
{
    struct sidecar *s = calloc(1, sizeof *s);
    if (!s || !(s->name = strndup(o->name.p ? o->name.p : "", o->name.n))) {
        free(s);
        err_set(err, "no memory");
        return NULL;
    }
    if (!o->socket.n || o->socket.n >= sizeof s->addr.sun_path || memchr(o->socket.p, 0, o->socket.n)) {
        err_set(err, "sidecar %s: expected the path of a socket of at most %zu bytes, got %zu", s->name,
                sizeof s->addr.sun_path - 1, o->socket.n);
        free(s->name);
        free(s);
        return NULL;
    }
    s->addr.sun_family = AF_UNIX;
    memcpy(s->addr.sun_path, o->socket.p, o->socket.n);
    s->options = *o;
    s->options.name = str_c(s->name);
    s->options.socket = str_c(s->addr.sun_path);
    s->refs = 1;
    s->number = ++h->last_number;
    s->hub = h;
    TAILQ_INIT(&s->queue);
    LIST_INSERT_HEAD(&h->sidecars, s, in_hub);
    return s;
}

struct sidecar *sidecar_ref(struct sidecar *s)
{
    s->refs++;
    return s;
}

void sidecar_unref(struct sidecar **sp)
{
    struct sidecar *s = *sp;
    *sp = NULL;
    if (!s || --s->refs)
        return;
    MUST(TAILQ_EMPTY(&s->queue) && !s->nrunning); /* calls hold references */
    if (s->hub)
        LIST_REMOVE(s, in_hub);
    free(s->name);
    free(s);
}

bool sidecar_is(const struct sidecar *s, const struct sidecar_options *o)
{
    const struct sidecar_options *m = &s->options;
    return str_eq(m->name, o->name) && str_eq(m->socket, o->socket) && m->timeout_ms == o->timeout_ms &&
           m->uid_given == o->uid_given && (!m->uid_given || m->uid == o->uid) && m->or_root == o->or_root;
}

static bool owner_of(const struct sidecar *s, uid_t *ret)
{
    struct stat st;
    if (stat(s->addr.sun_path, &st) || !S_ISSOCK(st.st_mode))
        return false;
    *ret = st.st_uid;
    return true;
}

bool sidecar_speaks(const struct sidecar *s, uid_t uid)
{
    uid_t owner;
    if (s->options.uid_given)
        return uid == s->options.uid;
    return owner_of(s, &owner) && uid == owner;
}

/* --- one call --- */

static curl_socket_t open_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct sidecar_call *c = ctx;
    c->fresh_fd = -1;
    if (purpose == CURLSOCKTYPE_IPCXN && address->family == AF_UNIX)
        c->fresh_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return c->fresh_fd < 0 ? CURL_SOCKET_BAD : c->fresh_fd;
}

static const char *peer_fault(struct sidecar_call *c)
{
    const struct sidecar *s = c->sidecar;
    uid_t want = s->options.uid;
    struct ucred peer;
    socklen_t n = sizeof peer;
    if (getsockopt(c->fresh_fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) || peer.uid == (uid_t)-1)
        return "the sidecar is away"; /* its queue of connections is full */
    if (!s->options.uid_given && !owner_of(s, &want))
        return "the sidecar is away";
    if (peer.uid == want || (s->options.or_root && peer.uid == 0))
        return NULL;
    c->wrong_peer = true;
    return "another user listens on the sidecar's socket";
}

/* On a connection, before a byte of the request: who listens there? One that is reused was looked at when it was new.
 * (libcurl 7.88 connects a Unix socket again after CURL_SOCKOPT_ALREADY_CONNECTED, so it must connect, and we look
 * afterwards.) */
static int before_request(void *ctx, char *peer_ip, char *own_ip, int peer_port, int own_port)
{
    struct sidecar_call *c = ctx;
    (void)peer_ip;
    (void)own_ip;
    (void)peer_port;
    (void)own_port;
    if (c->fresh_fd < 0)
        return CURL_PREREQFUNC_OK;
    c->why = peer_fault(c);
    c->fresh_fd = -1;
    return c->why ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
}

static size_t take_body(char *p, size_t size, size_t n, void *ctx)
{
    struct sidecar_call *c = ctx;
    long status = 0;
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    n *= size;
    if (status != 200 || c->is_delete)
        return n; /* not looked at; the timeout bounds it */
    if (buf_put(&c->in, str_of(p, n))) {
        c->too_large = true;
        return 0;
    }
    return n;
}

static int set_options(struct sidecar_call *c, uint64_t timeout_ms)
{
    const struct sidecar *s = c->sidecar;
    CURL *e = c->easy;
    char url[96 + LEASE_ID_MAX];
    /* A host of its own, which nobody resolves and the Host field does not show: libcurl must not take a connection
     * whose peer was looked at under another sidecar's rule (the same path with another peer_uid, after a reload). */
    snprintf(url, sizeof url, "http://sidecar-%llu.invalid/v1/lease%s%s", (unsigned long long)s->number,
             c->is_delete ? "/" : "", c->is_delete ? c->lease_id : "");
    CURLcode r = curl_easy_setopt(e, CURLOPT_URL, url);
    r |= curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, s->addr.sun_path);
    r |= curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http");
    r |= curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    r |= curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    r |= curl_easy_setopt(e, CURLOPT_PROXY, "");
    r |= curl_easy_setopt(e, CURLOPT_NOPROXY, "*");
    r |= curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
    r |= curl_easy_setopt(e, CURLOPT_USERAGENT, "outgate/" OUTGATE_VERSION);
    r |= curl_easy_setopt(e, CURLOPT_HTTPHEADER, s->hub->headers);
    r |= curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    r |= curl_easy_setopt(e, CURLOPT_OPENSOCKETDATA, c);
    r |= curl_easy_setopt(e, CURLOPT_PREREQFUNCTION, before_request);
    r |= curl_easy_setopt(e, CURLOPT_PREREQDATA, c);
    r |= curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, take_body);
    r |= curl_easy_setopt(e, CURLOPT_WRITEDATA, c);
    r |= curl_easy_setopt(e, CURLOPT_PRIVATE, c);
    r |= curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    r |= curl_easy_setopt(e, CURLOPT_MAXAGE_CONN, 30L);
    if (c->is_delete) {
        r |= curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, "DELETE");
    } else {
        r |= curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE, (long)buf_size(&c->out));
        r |= curl_easy_setopt(e, CURLOPT_POSTFIELDS, buf_str(&c->out).p);
    }
    return r ? -1 : 0;
}

static int start(struct sidecar_call *c)
{
    struct sidecar_hub *h = c->sidecar->hub;
    uint64_t now = loop_now_ms(h->loop);
    if (now >= c->deadline_ms) {
        c->why = "the sidecar did not answer in time";
        return -1;
    }
    c->easy = curl_easy_init();
    if (!c->easy || set_options(c, c->deadline_ms - now) || curl_multi_add_handle(h->multi, c->easy)) {
        c->why = "no memory";
        return -1;
    }
    c->state = CALL_RUNNING;
    TAILQ_INSERT_TAIL(&h->running, c, link);
    c->sidecar->nrunning++;
    return 0;
}

static void start_queued(struct sidecar *s)
{
    struct sidecar_call *c;
    while (s->hub && s->nrunning < SIDECAR_CALLS && (c = TAILQ_FIRST(&s->queue))) {
        TAILQ_REMOVE(&s->queue, c, link);
        s->nqueue--;
        if (start(c) == 0)
            continue;
        c->answer = (struct sidecar_answer) { SIDECAR_FAILED, 0, c->why, NULL };
        c->state = CALL_DONE;
        TAILQ_INSERT_TAIL(&s->hub->done, c, link);
        loop_defer(s->hub->loop, &s->hub->done_task);
    }
}

static struct sidecar_call *call_new(struct sidecar *s)
{
    if (!s->hub || s->nqueue >= SIDECAR_QUEUE_MAX)
        return NULL;
    struct sidecar_call *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    buf_init(&c->out, SIDECAR_REQUEST_MAX);
    buf_init(&c->in, SIDECAR_BODY_MAX);
    c->in.wipe = true;
    c->sidecar = sidecar_ref(s);
    c->deadline_ms = loop_now_ms(s->hub->loop) + s->options.timeout_ms;
    c->state = CALL_QUEUED;
    c->fresh_fd = -1;
    return c;
}

static void call_queue(struct sidecar_call *c)
{
    TAILQ_INSERT_TAIL(&c->sidecar->queue, c, link);
    c->sidecar->nqueue++;
    start_queued(c->sidecar);
}

struct sidecar_call *sidecar_lease(struct sidecar *s, const struct sidecar_ask *a, bool allow_short,
                                   void (*cb)(void *ctx, const struct sidecar_answer *a), void *ctx)
{
    if (!a->request_id.n || a->request_id.n > LEASE_ID_MAX)
        return NULL;
    struct sidecar_call *c = call_new(s);
    if (!c)
        return NULL;
    if (sidecar_json_put_ask(&c->out, a)) {
        call_free(c);
        return NULL;
    }
    memcpy(c->request_id, a->request_id.p, a->request_id.n);
    c->request_id_n = a->request_id.n;
    c->allow_short = allow_short;
    c->cb = cb;
    c->ctx = ctx;
    call_queue(c);
    return c;
}

void sidecar_cancel(struct sidecar_call **cp)
{
    struct sidecar_call *c = *cp;
    *cp = NULL;
    if (!c)
        return;
    c->cb = NULL;
    if (c->state == CALL_QUEUED) {
        TAILQ_REMOVE(&c->sidecar->queue, c, link);
        c->sidecar->nqueue--;
        call_free(c);
    }
}

void sidecar_delete(struct sidecar *s, struct str lease_id)
{
    struct sidecar_call *c = lease_id_ok(lease_id) ? call_new(s) : NULL;
    if (!c)
        return;
    memcpy(c->lease_id, lease_id.p, lease_id.n);
    c->is_delete = true;
    call_queue(c);
}
