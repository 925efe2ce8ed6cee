/* SPDX-License-Identifier: Apache-2.0
 *
 * One put and one read per message, in the order of the enum. A lease on the wire is: str id, credential, agent, value,
 * u64 expires_us, refresh_us, then hosts, methods, paths, each u8 given, and if given u16 count and the strings. */
#include "mint/lease_wire.h"

#include <errno.h>
#include <stdlib.h>

void lease_wire_writer_init(struct msg_writer *w)
{
    msg_writer_init(w);
    w->buf.wipe = true;
}

static struct str scheme_text(enum scheme s)
{
    return s == SCHEME_HTTPS ? STR("https") : s == SCHEME_HTTP ? STR("http") : STR("");
}

static bool token_ok(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!ascii_tchar(s.p[i]))
            return false;
    return s.n > 0;
}

void lease_wire_put_get(struct msg_writer *w, const struct lease_wire_get *g)
{
    msg_put_str(w, g->credential);
    msg_put_str(w, g->agent);
    msg_put_str(w, host_str(&g->host));
    msg_put_u16(w, g->port);
    msg_put_str(w, g->method);
    msg_put_str(w, g->path);
    msg_put_str(w, scheme_text(g->scheme));
    msg_put_str(w, g->request_id);
    msg_put_u8(w, (uint8_t)g->reason);
    msg_put_str(w, g->rejected);
}

int lease_wire_read_get(struct str body, struct lease_wire_get *ret)
{
    struct msg_reader r = msg_reader(body);
    struct lease_wire_get g = { 0 };
    g.credential = msg_get_str(&r, LEASE_NAME_MAX);
    g.agent = msg_get_str(&r, LEASE_NAME_MAX);
    struct str host = msg_get_str(&r, HOST_MAX);
    g.port = msg_get_u16(&r);
    g.method = msg_get_str(&r, LEASE_WIRE_METHOD_MAX);
    g.path = msg_get_str(&r, LEASE_WIRE_PATH_MAX);
    struct str scheme = msg_get_str(&r, 8);
    g.request_id = msg_get_str(&r, LEASE_WIRE_REQUEST_ID_MAX);
    uint8_t reason = msg_get_u8(&r);
    g.rejected = msg_get_str(&r, LEASE_ID_MAX);
    if (!msg_reader_end(&r) || !g.credential.n || !g.agent.n || !g.port || reason > LEASE_REJECTED)
        return -1;
    if (host_parse(host, &g.host, NULL) || !str_eq(host_str(&g.host), host))
        return -1;
    if (reason == LEASE_REJECTED ? !lease_id_ok(g.rejected) : g.rejected.n > 0)
        return -1;
    if (!token_ok(g.method) || !g.path.n || g.path.p[0] != '/')
        return -1;
    g.scheme = str_eq(scheme, STR("https")) ? SCHEME_HTTPS : str_eq(scheme, STR("http")) ? SCHEME_HTTP : SCHEME_NONE;
    if (g.scheme == SCHEME_NONE)
        return -1;
    g.reason = (enum lease_reason)reason;
    *ret = g;
    return 0;
}

static void put_list(struct msg_writer *w, bool given, size_t n)
{
    msg_put_u8(w, given);
    if (given)
        msg_put_u16(w, (uint16_t)n); /* at most LEASE_SCOPE_ENTRIES: lease_new saw to it */
}

void lease_wire_put_lease(struct msg_writer *w, const struct lease *l)
{
    msg_put_str(w, str_c(l->id));
    msg_put_str(w, l->credential);
    msg_put_str(w, l->agent);
    msg_put_str(w, secret_reveal(l->value));
    msg_put_u64(w, (uint64_t)l->expires_us);
    msg_put_u64(w, (uint64_t)l->refresh_us);
    const struct lease_scope *s = &l->scope;
    put_list(w, s->hosts.given, s->hosts.n);
    for (size_t i = 0; i < s->hosts.n; i++)
        msg_put_str(w, s->hosts.v[i]);
    put_list(w, s->methods.given, s->methods.n);
    for (size_t i = 0; i < s->methods.n; i++)
        msg_put_str(w, s->methods.v[i]);
    put_list(w, s->paths_given, s->npaths);
    for (size_t i = 0; i < s->npaths; i++)
        msg_put_str(w, s->paths[i].text);
}

static void get_list(struct msg_reader *r, struct str *room, size_t *used, struct name_list *ret)
{
    uint8_t given = msg_get_u8(r);
    if (given > 1)
        r->bad = true;
    ret->given = given == 1;
    size_t n = ret->given ? msg_get_u16(r) : 0;
    if (n > LEASE_SCOPE_ENTRIES)
        r->bad = true;
    ret->v = room + *used;
    for (ret->n = 0; !r->bad && ret->n < n; ret->n++)
        ret->v[ret->n] = msg_get_str(r, LEASE_WIRE_PATH_MAX);
    *used += ret->n;
}

/* The lease is the last thing of every body that has one. */
static struct lease *read_lease(struct msg_reader *r)
{
    struct lease_spec s = { 0 };
    s.id = msg_get_str(r, LEASE_ID_MAX);
    s.credential = msg_get_str(r, LEASE_NAME_MAX);
    s.agent = msg_get_str(r, LEASE_NAME_MAX);
    s.value = msg_get_str(r, LEASE_VALUE_MAX);
    s.expires_us = (int64_t)msg_get_u64(r);
    s.refresh_us = (int64_t)msg_get_u64(r);
    struct str *room = calloc((size_t)3 * LEASE_SCOPE_ENTRIES, sizeof *room);
    size_t used = 0;
    if (!room) {
        errno = ENOMEM;
        return NULL;
    }
    get_list(r, room, &used, &s.hosts);
    get_list(r, room, &used, &s.methods);
    get_list(r, room, &used, &s.paths);
    errno = EINVAL;
    struct lease *l = msg_reader_end(r) ? lease_new(&s, NULL) : NULL;
    int why = errno;
    free(room);
    errno = why;
    return l;
}

struct lease *lease_wire_read_lease(struct str body)
{
    struct msg_reader r = msg_reader(body);
    return read_lease(&r);
}

void lease_wire_put_answer(struct msg_writer *w, const struct lease_wire_answer *a)
{
    msg_put_u16(w, (uint16_t)a->end);
    if (a->end == END_OK) {
        lease_wire_put_lease(w, a->lease);
        return;
    }
    msg_put_u32(w, a->retry_after_s);
    msg_put_str(w, str_sub(a->why, 0, LEASE_WIRE_WHY_MAX));
}

int lease_wire_read_answer(struct str body, struct lease_wire_answer *ret)
{
    struct msg_reader r = msg_reader(body);
    uint16_t end = msg_get_u16(&r);
    if (r.bad || end == END_UNSET || end >= END_COUNT)
        return -1;
    struct lease_wire_answer a = { .end = (enum end)end };
    if (a.end == END_OK) {
        a.lease = read_lease(&r);
        if (!a.lease && errno != ENOMEM)
            return -1;
        if (!a.lease)
            a = (struct lease_wire_answer) { .end = END_CREDENTIAL_UNAVAILABLE,
                                             .why = STR("no memory for another value") };
        *ret = a;
        return 0;
    }
    a.retry_after_s = msg_get_u32(&r);
    a.why = msg_get_str(&r, LEASE_WIRE_WHY_MAX);
    if (!msg_reader_end(&r))
        return -1;
    *ret = a;
    return 0;
}

void lease_wire_put_watch(struct msg_writer *w, const struct lease_wire_watch *v)
{
    msg_put_str(w, v->agent);
    msg_put_str(w, v->credential);
}

int lease_wire_read_watch(struct str body, struct lease_wire_watch *ret)
{
    struct msg_reader r = msg_reader(body);
    struct lease_wire_watch v = { 0 };
    v.agent = msg_get_str(&r, LEASE_NAME_MAX);
    v.credential = msg_get_str(&r, LEASE_NAME_MAX);
    if (!msg_reader_end(&r) || !v.agent.n || !v.credential.n)
        return -1;
    *ret = v;
    return 0;
}

void lease_wire_put_gone(struct msg_writer *w, const struct lease_wire_gone *g)
{
    msg_put_str(w, g->lease_id);
    msg_put_str(w, g->agent);
    msg_put_str(w, g->credential);
    msg_put_u8(w, (uint8_t)g->why);
}

int lease_wire_read_gone(struct str body, struct lease_wire_gone *ret)
{
    struct msg_reader r = msg_reader(body);
    struct lease_wire_gone g = { 0 };
    g.lease_id = msg_get_str(&r, LEASE_ID_MAX);
    g.agent = msg_get_str(&r, LEASE_NAME_MAX);
    g.credential = msg_get_str(&r, LEASE_NAME_MAX);
    uint8_t why = msg_get_u8(&r);
    bool one = lease_id_ok(g.lease_id) && g.agent.n && g.credential.n;
    bool any = why == LEASE_GONE_REVOKED && !g.agent.n &&
               (g.lease_id.n ? lease_id_ok(g.lease_id) && !g.credential.n : g.credential.n > 0);
    if (!msg_reader_end(&r) || !(one || any) || why > LEASE_GONE_REPLACED)
        return -1;
    g.why = (enum lease_gone)why;
    *ret = g;
    return 0;
}
