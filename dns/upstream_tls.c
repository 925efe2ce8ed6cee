/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/upstream_tls_impl.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    PATIENCE = 3,
    BACK_OFF_MIN_MS = 1000,
    BACK_OFF_MAX_MS = 30000,
    SAY_MS = 60000, /* between two lines about one server */
    TEXT_MAX = 340, /* "tls://[V6]:PORT#NAME" */
};

/* --- what the operator is told --- */

static const char *server_text(const struct tls_server *s, char out[TEXT_MAX])
{
    char ip[46];
    bool v6 = s->ip.family == 6;
    snprintf(out, TEXT_MAX, "tls://%s%s%s:%u#%s", v6 ? "[" : "", ip_format(&s->ip, ip), v6 ? "]" : "", s->port,
             s->name.name);
    return out;
}

void tls_server_complain(struct upstream_tls *t, struct tls_server *s, const char *what, const char *so,
                         const char *hint)
{
    char text[TEXT_MAX];
    if (loop_now_ms(t->loop) < s->say_ms)
        return;
    s->say_ms = loop_now_ms(t->loop) + SAY_MS;
    log_error("DNS server %s: %s%s (%s)", server_text(s, text), what, so, hint);
}

/* --- servers --- */

void tls_server_failed(struct upstream_tls *t, struct tls_server *s, const char *what, const char *hint)
{
    uint64_t wait = BACK_OFF_MIN_MS;
    for (unsigned i = 0; i < s->failures && wait < BACK_OFF_MAX_MS; i++)
        wait *= 2;
    s->failures++;
    s->retry_ms = loop_now_ms(t->loop) + (wait < BACK_OFF_MAX_MS ? wait : BACK_OFF_MAX_MS);
    tls_server_complain(t, s, what, ": no name is asked there", hint);
}

void tls_server_forget(struct tls_server *s)
{
    SSL_SESSION_free(s->session);
    s->session = NULL;
}

/* --- the whole --- */

struct upstream_tls *upstream_tls_new(struct loop *l, unsigned try_ms)
{
    struct upstream_tls *t = calloc(1, sizeof *t);
    if (!t || tls_conn_init() < 0) {
        free(t);
        return NULL;
    }
    t->loop = l;
    t->patience_ms = PATIENCE * try_ms;
    return t;
}

/* Connections take no new question; those without any are closed. */
static void retire_all(struct upstream_tls *t)
{
    for (struct tls_conn *c = t->conns, *next; c; c = next) {
        next = c->next;
        tls_conn_retire(c);
        if (c->pipe.waiting == 0)
            tls_conn_free(c);
    }
    for (size_t i = 0; i < t->n; i++)
        tls_server_forget(&t->servers[i]);
}

/* What waits for a connection that was retired before it was ready waits for another. */
static void replace_unready(struct upstream_tls *t)
{
    for (struct tls_conn *c = t->conns, *next; c; c = next) {
        next = c->next;
        if (!c->server && c->state != CONN_UP)
            tls_conn_lost(c, true);
    }
}

void upstream_tls_free(struct upstream_tls **tp)
{
    struct upstream_tls *t = *tp;
    *tp = NULL;
    if (!t)
        return;
    retire_all(t);
    MUST(!t->conns);
    SSL_CTX_free(t->trust);
    free(t);
}

void upstream_tls_trust(struct upstream_tls *t, SSL_CTX *ctx)
{
    retire_all(t);
    SSL_CTX_free(t->trust);
    t->trust = ctx;
    if (ctx) {
        SSL_CTX_up_ref(ctx);
        tls_conn_sessions(ctx);
    }
    for (size_t i = 0; i < t->n; i++) {
        t->servers[i].failures = 0;
        t->servers[i].retry_ms = t->servers[i].say_ms = 0;
    }
    replace_unready(t);
}

void upstream_tls_clear(struct upstream_tls *t)
{
    retire_all(t);
    t->n = 0;
    t->generation++;
    replace_unready(t);
}

void upstream_tls_set(struct upstream_tls *t, size_t step, const struct dns_server *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        MUST(t->n < DNS_SERVERS_MAX && v[i].tls);
        t->servers[t->n++] = (struct tls_server) { .step = step, .ip = v[i].ip, .port = v[i].port, .name = *v[i].tls };
    }
}

uint64_t upstream_tls_strays(const struct upstream_tls *t)
{
    return t->strays;
}
