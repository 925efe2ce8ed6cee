/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/upstream_tls_impl.h"

#include "base/log.h"

#include <stdlib.h>

enum {
    PATIENCE = 3,
    BACK_OFF_MIN_MS = 1000,
    BACK_OFF_MAX_MS = 30000,
};

/* --- what the operator is told --- */

static struct dns_server server_of(const struct tls_server *s)
{
    return (struct dns_server) { .ip = s->ip, .port = s->port, .tls = &s->name };
}

void tls_server_complain(struct upstream_tls *t, struct tls_server *s, const char *what, const char *so,
                         const char *hint)
{
    struct dns_server server = server_of(s);
    server_fault_note(&s->fault, &server, loop_now_ms(t->loop), what, so, hint);
}

void upstream_tls_blame(struct upstream_leg *leg)
{
    const struct tls_ask *a = leg->carrier;
    for (size_t i = 0; a && a->generation == a->t->generation && i < a->t->n; i++) {
        const struct tls_server *s = &a->t->servers[i];
        struct dns_server server = server_of(s);
        if (s->step == leg->step && a->tried >> i & 1)
            server_blame_add(leg->blame, &server, s->fault.what[0] ? s->fault.what : "it gave no answer that helps");
    }
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
        t->servers[i].retry_ms = 0;
        t->servers[i].fault = (struct server_fault) { .say_ms = 0 };
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
