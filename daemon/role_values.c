/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/role_values.h"

#include <stdlib.h>

void tune_from_config(const struct config *c, struct tune *ret)
{
    *ret = (struct tune) {
        .segment_bytes = c->audit.segment_bytes,
        .keep_ms = c->audit.keep_ms,
        .max_bytes = c->audit.max_bytes,
        .sync_ms = c->audit.sync_ms,
        .sync_always = c->audit.sync_always,
        .leaf_rate = c->limits.leaf_rate,
    };
}

void tune_put(const struct tune *t, struct msg_writer *w)
{
    msg_put_u64(w, t->segment_bytes);
    msg_put_u64(w, t->keep_ms);
    msg_put_u64(w, t->max_bytes);
    msg_put_u64(w, t->sync_ms);
    msg_put_u8(w, t->sync_always);
    msg_put_u64(w, t->leaf_rate);
}

int tune_parse(struct str body, struct tune *ret)
{
    struct msg_reader r = msg_reader(body);
    struct tune t = { .segment_bytes = msg_get_u64(&r) };
    t.keep_ms = msg_get_u64(&r);
    t.max_bytes = msg_get_u64(&r);
    t.sync_ms = msg_get_u64(&r);
    t.sync_always = msg_get_u8(&r) != 0;
    t.leaf_rate = msg_get_u64(&r);
    if (!msg_reader_end(&r))
        return -1;
    *ret = t;
    return 0;
}

void mint_source_put(const struct mint_source *s, struct msg_writer *w)
{
    msg_put_str(w, s->credential);
    msg_put_u8(w, (uint8_t)s->kind);
    msg_put_str(w, s->text);
    msg_put_u64(w, s->ttl_ms);
    msg_put_u64(w, s->peer_uid);
    msg_put_u32(w, (uint32_t)s->argc);
    for (size_t i = 0; i < s->argc; i++)
        msg_put_str(w, s->argv[i]);
}

int mint_source_parse(struct str body, struct mint_source *ret)
{
    struct msg_reader r = msg_reader(body);
    struct mint_source s = { .credential = msg_get_str(&r, 4096) };
    uint8_t kind = msg_get_u8(&r);
    s.text = msg_get_str(&r, 4096);
    s.ttl_ms = msg_get_u64(&r);
    s.peer_uid = msg_get_u64(&r);
    uint32_t argc = msg_get_u32(&r);
    if (r.bad || argc > MINT_ARGV_MAX || (kind != MINTER_ENV && kind != MINTER_FILE && kind != MINTER_EXEC))
        return -1;
    s.kind = (enum minter_source_kind)kind;
    s.argv = calloc((size_t)argc + 1, sizeof *s.argv);
    if (!s.argv)
        return -1;
    for (; s.argc < argc && !r.bad; s.argc++)
        s.argv[s.argc] = msg_get_str(&r, MSG_BODY_MAX);
    if (!msg_reader_end(&r)) {
        free(s.argv);
        return -1;
    }
    *ret = s;
    return 0;
}

void own_list_put(const struct own_list *o, struct msg_writer *w)
{
    msg_put_u32(w, (uint32_t)o->n);
    for (size_t i = 0; i < o->n; i++) {
        msg_put_u8(w, o->ips[i].family);
        msg_put_str(w, str_of(o->ips[i].b, o->ips[i].family == 4 ? 4 : 16));
        msg_put_u16(w, o->ports[i]);
    }
}

int own_list_parse(struct str body, struct own_list *ret)
{
    struct msg_reader r = msg_reader(body);
    uint32_t n = msg_get_u32(&r);
    if (r.bad || n > OWN_MAX)
        return -1;
    struct own_list o = { calloc((size_t)n + 1, sizeof *o.ips), calloc((size_t)n + 1, sizeof *o.ports), 0 };
    bool good = o.ips && o.ports;
    for (; good && o.n < n; o.n++) {
        struct ip *ip = &o.ips[o.n];
        ip->family = msg_get_u8(&r);
        struct str b = msg_get_str(&r, sizeof ip->b);
        o.ports[o.n] = msg_get_u16(&r);
        good = !r.bad && ((ip->family == 4 && b.n == 4) || (ip->family == 6 && b.n == 16));
        if (good)
            memcpy(ip->b, b.p, b.n);
    }
    if (!good || !msg_reader_end(&r)) {
        own_list_done(&o);
        return -1;
    }
    *ret = o;
    return 0;
}

void own_list_done(struct own_list *o)
{
    free(o->ips);
    free(o->ports);
    *o = (struct own_list) { NULL, NULL, 0 };
}

void tickets_put(const struct ticket_key *keys, size_t n, struct msg_writer *w)
{
    w->buf.wipe = true;
    msg_put_u8(w, (uint8_t)n);
    for (size_t i = 0; i < n; i++) {
        msg_put_str(w, str_of(keys[i].name, sizeof keys[i].name));
        msg_put_str(w, str_of(keys[i].aes, sizeof keys[i].aes));
        msg_put_str(w, str_of(keys[i].hmac, sizeof keys[i].hmac));
    }
}

static bool exact(struct msg_reader *r, unsigned char *out, size_t n)
{
    struct str s = msg_get_str(r, n);
    if (r->bad || s.n != n)
        return false;
    memcpy(out, s.p, n);
    return true;
}

int tickets_parse(struct str body, struct ticket_key keys[TICKET_KEYS_MAX], size_t *ret_n)
{
    struct msg_reader r = msg_reader(body);
    size_t n = msg_get_u8(&r);
    if (r.bad || n < 1 || n > TICKET_KEYS_MAX)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (!exact(&r, keys[i].name, sizeof keys[i].name) || !exact(&r, keys[i].aes, sizeof keys[i].aes) ||
            !exact(&r, keys[i].hmac, sizeof keys[i].hmac))
            return -1;
    if (!msg_reader_end(&r))
        return -1;
    *ret_n = n;
    return 0;
}

void run_logins_put(const struct run_logins *l, struct msg_writer *w)
{
    msg_put_u32(w, (uint32_t)l->n);
    for (size_t i = 0; i < l->n; i++) {
        msg_put_u64(w, l->v[i].id);
        msg_put_str(w, str_c(l->v[i].agent));
        msg_put_str(w, str_of(l->v[i].digest, sizeof l->v[i].digest));
    }
}

int run_logins_parse(struct str body, struct run_logins *ret)
{
    struct msg_reader r = msg_reader(body);
    struct run_logins l = { .n = msg_get_u32(&r) };
    if (r.bad || l.n > RUN_LOGINS_MAX)
        return -1;
    for (size_t i = 0; i < l.n; i++) {
        struct run_login *login = &l.v[i];
        login->id = msg_get_u64(&r);
        struct str agent = msg_get_str(&r, sizeof login->agent - 1);
        if (r.bad || !login->id || !agent.n || memchr(agent.p, '\0', agent.n) ||
            !exact(&r, login->digest, sizeof login->digest))
            return -1;
        memcpy(login->agent, agent.p, agent.n);
    }
    if (!msg_reader_end(&r))
        return -1;
    *ret = l;
    return 0;
}
