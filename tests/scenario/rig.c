/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/scenario/rig.h"

#include "audit/logger.h"
#include "audit/sink.h"
#include "ca/root.h"
#include "ca/signer.h"
#include "dns/dial_client.h"
#include "mint/lease_wire.h"
#include "proxy/worker.h"
#include "tests/fakes/clock_fake.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

struct mint_rule {
    struct mint_rule *next;
    char credential[64], value[600], refuse[40], hosts[200], methods[200];
    uint64_t ttl_s;
};
struct rig_file {
    struct rig_file *next;
    char name[64], bytes[600], path[160];
};
struct dial_rule {
    struct dial_rule *next;
    char host[256], addr[64], refuse[40];
};
struct watch_entry {
    struct watch_entry *next;
    char agent[64], credential[64];
};
struct live_lease {
    struct live_lease *next;
    struct lease *lease;
    struct host host; /* what it was given for */
    uint16_t port;
    bool revoked;
};

/* --- the mint --- */

int rig_mint(struct rig *r, struct str text)
{
    char copy[1024];
    snprintf(copy, sizeof copy, "%.*s", STR_ARG(text));
    struct mint_rule *m = calloc(1, sizeof *m);
    unsigned long ttl = 300;
    if (sscanf(copy, "%63s refuse %39s", m->credential, m->refuse) != 2 &&
        sscanf(copy, "%63s -> \"%599[^\"]\" ttl %lu", m->credential, m->value, &ttl) < 2) {
        free(m);
        return -1;
    }
    const char *narrow = strstr(copy, " hosts ");
    if (narrow)
        sscanf(narrow, " hosts %199s", m->hosts);
    narrow = strstr(copy, " methods ");
    if (narrow)
        sscanf(narrow, " methods %199s", m->methods);
    m->ttl_s = ttl;
    m->next = r->mints; /* the newest rule for a credential wins */
    r->mints = m;
    return 0;
}

static struct mint_rule *mint_find(struct rig *r, struct str credential)
{
    for (struct mint_rule *m = r->mints; m; m = m->next)
        if (str_eq(str_c(m->credential), credential))
            return m;
    return NULL;
}

/* "GET,POST" as a list; v has room. */
static struct name_list list_of(const char *text, struct str *v, size_t max)
{
    struct name_list l = { .given = text[0] != 0, .v = v };
    struct str rest = str_c(text), one;
    while (l.given && l.n < max && str_split(&rest, ',', &one))
        v[l.n++] = one;
    return l;
}

/* As the keeper does: who had a lease rejected is given the one that has taken its place since, and nothing is minted. NULL: none has. */
static struct lease *successor(const struct rig *r, const struct lease_wire_get *g)
{
    struct agent agent = { .name = g->agent };
    struct ask ask = { .agent = &agent, .scheme = g->scheme, .host = &g->host, .port = g->port, .method = g->method, .path = g->path };
    for (const struct live_lease *l = r->lives; l && g->reason == LEASE_REJECTED; l = l->next) /* the newest is first */
        if (str_eq(l->lease->credential, g->credential) && host_eq(&l->host, &g->host) && l->port == g->port && !l->revoked &&
            !lease_expired(l->lease, clock_wall_us()) && lease_covers(l->lease, &ask))
            return str_eq(str_c(l->lease->id), g->rejected) ? NULL : lease_ref(l->lease);
    return NULL;
}

static void answer_get(struct rig *r, struct msg_channel *ch, uint64_t id, const struct lease_wire_get *g)
{
    struct mint_rule *m = mint_find(r, g->credential);
    struct lease_wire_answer a = { .end = END_CREDENTIAL_UNAVAILABLE, .why = STR("no rule in the scenario") };
    struct msg_writer w;
    struct lease *given = successor(r, g);
    lease_wire_writer_init(&w);
    if (given) {
        a.end = END_OK;
    } else if (m && m->refuse[0]) {
        a.end = end_from_code(str_c(m->refuse));
        a.why = STR("the scenario refuses");
        a.retry_after_s = 7;
    } else if (m) {
        char lease_id[32];
        snprintf(lease_id, sizeof lease_id, "lease-%lu", (unsigned long)++r->lease_number);
        struct str hosts[8], methods[8];
        struct lease_spec spec = {
            .hosts = list_of(m->hosts, hosts, 8),
            .methods = list_of(m->methods, methods, 8),
            .id = str_c(lease_id),
            .credential = g->credential,
            .agent = g->agent,
            .value = str_c(m->value),
            .expires_us = clock_wall_us() + (int64_t)m->ttl_s * 1000000,
            .refresh_us = clock_wall_us() + (int64_t)m->ttl_s * 500000,
        };
        struct err err;
        a.lease = lease_new(&spec, &err);
        a.end = a.lease ? END_OK : END_CREDENTIAL_UNAVAILABLE;
        if (!a.lease)
            fprintf(stderr, "scenario mint: %s\n", err.text);
    }
    if (a.lease) { /* subscribers first, then the asker */
        struct msg_writer live;
        lease_wire_writer_init(&live);
        lease_wire_put_lease(&live, a.lease);
        for (struct watch_entry *e = r->watches; e; e = e->next)
            if (str_eq(str_c(e->agent), g->agent) && str_eq(str_c(e->credential), g->credential)) {
                msg_send(ch, LEASE_LIVE, 0, buf_str(&live.buf), NULL, 0);
                break;
            }
        buf_done(&live.buf);
        struct live_lease *l = calloc(1, sizeof *l);
        *l = (struct live_lease) { .lease = lease_ref(a.lease), .host = g->host, .port = g->port };
        l->next = r->lives;
        r->lives = l;
    }
    if (given)
        a.lease = given;
    lease_wire_put_answer(&w, &a);
    msg_send(ch, LEASE_ANSWER, id, buf_str(&w.buf), NULL, 0);
    buf_done(&w.buf);
    lease_unref(&a.lease);
}

static int on_keeper(void *ctx, struct msg_channel *ch, struct msg *m)
{
    struct rig *r = ctx;
    struct lease_wire_get g;
    struct lease_wire_watch v;
    if (r->keeper_silent)
        return 0;
    switch (m->type) {
    case LEASE_GET:
        if (lease_wire_read_get(m->body, &g))
            return -1;
        answer_get(r, ch, m->id, &g);
        return 0;
    case LEASE_WATCH:
        if (lease_wire_read_watch(m->body, &v))
            return -1;
        struct watch_entry *e = calloc(1, sizeof *e);
        snprintf(e->agent, sizeof e->agent, "%.*s", STR_ARG(v.agent));
        snprintf(e->credential, sizeof e->credential, "%.*s", STR_ARG(v.credential));
        e->next = r->watches;
        r->watches = e;
        for (struct live_lease *l = r->lives; l; l = l->next) { /* what is live already */
            struct msg_writer w;
            if (!str_eq(l->lease->agent, v.agent) || !str_eq(l->lease->credential, v.credential) || lease_dead(l->lease, clock_wall_us()))
                continue;
            lease_wire_writer_init(&w);
            lease_wire_put_lease(&w, l->lease);
            msg_send(ch, LEASE_LIVE, 0, buf_str(&w.buf), NULL, 0);
            buf_done(&w.buf);
        }
        msg_send(ch, LEASE_WATCHED, m->id, STR(""), NULL, 0);
        return 0;
    default:
        return 0;
    }
}

void rig_revoke(struct rig *r, struct str what)
{
    struct str credential;
    bool oldest = str_split(&what, ' ', &credential) && str_eq(what, STR("oldest"));
    const struct live_lease *last = NULL;
    for (const struct live_lease *l = r->lives; l; l = l->next) /* the newest is first */
        if (str_eq(l->lease->credential, credential) && !lease_expired(l->lease, clock_wall_us()))
            last = l;
    for (struct live_lease *l = r->lives; l; l = l->next) {
        if (!str_eq(l->lease->credential, credential) || (oldest && l != last))
            continue;
        l->revoked = true;
        struct lease_wire_gone g = { str_c(l->lease->id), l->lease->agent, l->lease->credential, 1 };
        struct msg_writer w;
        lease_wire_writer_init(&w);
        lease_wire_put_gone(&w, &g);
        msg_send(r->keeper, LEASE_GONE, 0, buf_str(&w.buf), NULL, 0);
        buf_done(&w.buf);
    }
}

/* --- the resolver --- */

int rig_name(struct rig *r, struct str text)
{
    char copy[512];
    snprintf(copy, sizeof copy, "%.*s", STR_ARG(text));
    struct dial_rule *d = calloc(1, sizeof *d);
    if (sscanf(copy, "%255s refuse %39s", d->host, d->refuse) != 2 && sscanf(copy, "%255s %63s", d->host, d->addr) != 2) {
        free(d);
        return -1;
    }
    d->next = r->names;
    r->names = d;
    return 0;
}

static void on_actor(struct watch *w, uint32_t ev);

static struct actor *actor_new(struct rig *r, int fd, SSL *ssl)
{
    struct actor *a = calloc(1, sizeof *a);
    a->fd = fd;
    a->ssl = ssl;
    buf_init(&a->got, 256u << 20);
    if (ssl)
        SSL_set_fd(ssl, fd);
    a->watch = (struct watch) { .fd = fd, .events = EPOLLIN, .cb = on_actor };
    if (watch_add(r->loop, &a->watch))
        abort();
    return a;
}

/* A certificate for this very host, from the origins' CA. */
static SSL *origin_ssl(struct rig *r, const char *host)
{
    struct buf der, spki;
    buf_init(&der, 65536);
    buf_init(&spki, 65536);
    unsigned char *p = NULL;
    int n = i2d_PUBKEY(r->origin_key, &p);
    struct err err;
    int64_t expires;
    struct ip ip;
    bool is_ip = ip_parse(str_c(host), &ip) == 0;
    if (signer_make_leaf(r->origin_ca, is_ip, str_c(host), str_of(p, (size_t)n), false, clock_wall_us(), &der, &expires, &err)) {
        fprintf(stderr, "scenario origin certificate: %s\n", err.text);
        abort();
    }
    OPENSSL_free(p);
    const unsigned char *d = (const unsigned char *)buf_str(&der).p;
    X509 *cert = d2i_X509(NULL, &d, (long)buf_size(&der));
    SSL *ssl = SSL_new(r->origin_ctx);
    SSL_use_certificate(ssl, cert);
    SSL_use_PrivateKey(ssl, r->origin_key);
    X509_free(cert);
    buf_done(&der);
    SSL_set_accept_state(ssl);
    return ssl;
}

static int on_resolver(void *ctx, struct msg_channel *ch, struct msg *m)
{
    struct rig *r = ctx;
    if (m->type != DIAL || r->resolver_silent)
        return 0;
    struct msg_reader in = msg_reader(m->body);
    msg_get_str(&in, 256);
    msg_get_str(&in, 256);
    struct str host = msg_get_str(&in, 256);
    uint16_t port = msg_get_u16(&in);
    struct dial_rule *d = r->names;
    while (d && !str_eq(str_c(d->host), host))
        d = d->next;
    enum end end = d ? END_OK : END_ORIGIN_DNS;
    if (d && d->refuse[0])
        end = end_from_code(str_c(d->refuse));
    struct msg_writer w;
    msg_writer_init(&w);
    char addr[80] = "";
    if (end == END_OK)
        snprintf(addr, sizeof addr, "%s:%u", d->addr, port);
    msg_put_u16(&w, (uint16_t)end);
    msg_put_str(&w, str_c(addr));
    msg_put_str(&w, end == END_OK ? STR("") : STR("the scenario refuses"));
    msg_put_str(&w, STR("dns-1"));
    msg_put_str(&w, STR(""));
    msg_put_u32(&w, 1);
    msg_put_u32(&w, 2);
    int s[2] = { -1, -1 };
    if (end == END_OK) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, s))
            abort();
        char name[256];
        snprintf(name, sizeof name, "%.*s", STR_ARG(host));
        struct actor *a = actor_new(r, s[0], port == 80 ? NULL : origin_ssl(r, name));
        snprintf(a->host, sizeof a->host, "%s", name);
        if (port == 80 && buf_size(&r->greeting) && write(s[0], buf_str(&r->greeting).p, buf_size(&r->greeting)) < 0)
            abort();
        if (port == 80 && r->greeting_ends)
            shutdown(s[0], SHUT_WR);
        struct actor **last = &r->waiting;
        while (*last)
            last = &(*last)->next;
        *last = a;
    }
    r->dials++;
    msg_send(ch, DIALLED, m->id, buf_str(&w.buf), &s[1], end == END_OK ? 1 : 0);
    if (s[1] >= 0)
        close(s[1]);
    buf_done(&w.buf);
    return 0;
}

struct actor *rig_take_origin(struct rig *r)
{
    struct actor *a = r->waiting;
    if (a) {
        r->waiting = a->next;
        a->next = NULL;
    }
    return a;
}

static void on_closed(void *ctx, struct msg_channel *ch)
{
    (void)ctx, (void)ch;
}

/* --- actors --- */

static void actor_ended(struct actor *a, bool proper)
{
    if (proper)
        a->ended = true;
    else
        a->cut = true;
    if (a->pour)
        watch_set(&a->watch, EPOLLOUT); /* half closed: it may still take */
    else
        watch_del(&a->watch);
}

/* The pattern of poured bytes: no period that a buffer's size could hide. */
static char pattern(size_t i)
{
    return (char)('a' + (i % 23 + i / 1009 + i / 65537) % 26);
}

/* >0 written, 0 no room now, -1 gone. */
static ssize_t actor_write(struct actor *a, struct str bytes)
{
    ssize_t n = a->ssl ? SSL_write(a->ssl, bytes.p, (int)bytes.n) : send(a->fd, bytes.p, bytes.n, MSG_NOSIGNAL);
    if (n > 0)
        return n;
    int e = a->ssl ? SSL_get_error(a->ssl, (int)n) : errno == EAGAIN ? SSL_ERROR_WANT_WRITE : SSL_ERROR_SYSCALL;
    ERR_clear_error();
    return e == SSL_ERROR_WANT_READ || e == SSL_ERROR_WANT_WRITE ? 0 : -1;
}

static void pour_some(struct actor *a)
{
    static char block[16384];
    while (a->pour) {
        size_t n = a->pour < sizeof block ? a->pour : sizeof block;
        if (a->piece && n > a->piece)
            n = a->piece;
        for (size_t i = 0; i < n; i++)
            block[i] = pattern(a->poured + i);
        ssize_t k = actor_write(a, str_of(block, n));
        if (k == 0)
            return;
        if (k < 0) {
            a->cut = true;
            watch_del(&a->watch);
            return;
        }
        a->poured += (size_t)k;
        a->pour -= (size_t)k;
    }
    if (a->ended || a->cut)
        watch_del(&a->watch);
    else
        watch_set(&a->watch, a->deaf ? 0 : EPOLLIN);
}

static void on_actor(struct watch *w, uint32_t ev)
{
    struct actor *a = (struct actor *)((char *)w - offsetof(struct actor, watch));
    if (ev & EPOLLOUT)
        pour_some(a);
    if (a->deaf || a->ended || a->cut) {
        if (ev & (EPOLLHUP | EPOLLERR))
            watch_del(&a->watch);
        return;
    }
    for (;;) {
        char *p = buf_reserve(&a->got, 65536);
        ssize_t n;
        if (a->ssl) {
            n = SSL_read(a->ssl, p, 65536);
            if (n <= 0) {
                int e = SSL_get_error(a->ssl, (int)n);
                ERR_clear_error();
                if (e == SSL_ERROR_WANT_READ || e == SSL_ERROR_WANT_WRITE)
                    return;
                actor_ended(a, e == SSL_ERROR_ZERO_RETURN);
                return;
            }
        } else {
            n = recv(a->fd, p, 65536, 0);
            if (n < 0 && errno == EAGAIN)
                return;
            if (n <= 0) {
                actor_ended(a, n == 0);
                return;
            }
        }
        buf_wrote(&a->got, (size_t)n);
    }
}

void actor_pour(struct actor *a, size_t n)
{
    a->pour += n;
    watch_set(&a->watch, (a->deaf ? 0u : EPOLLIN) | EPOLLOUT);
}

void actor_hear(struct actor *a, bool on)
{
    a->deaf = !on;
    watch_set(&a->watch, (on ? EPOLLIN : 0u) | (a->pour ? EPOLLOUT : 0u));
    if (on) /* TLS may hold bytes that came before */
        on_actor(&a->watch, EPOLLIN);
}

int actor_drink(struct actor *a, size_t n)
{
    struct str got = str_from(buf_str(&a->got), a->taken);
    size_t i = 0;
    for (; i < got.n && a->drained < n; i++, a->drained++)
        if (got.p[i] != pattern(a->drained))
            return -1;
    a->taken += i;
    if (a->drained < n)
        return 1;
    a->drained = 0;
    return 0;
}

struct actor *actor_client_from(struct rig *r, const char *from)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(r->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct sockaddr_in own = { .sin_family = AF_INET };
    int little = 2048; /* the least there is: the kernel must not take a whole answer */
    if (r->narrow)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
    if (from && *from && (inet_pton(AF_INET, from, &own.sin_addr) != 1 || bind(fd, (struct sockaddr *)&own, sizeof own)))
        abort();
    if (connect(fd, (struct sockaddr *)&sa, sizeof sa))
        abort();
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return actor_new(r, fd, NULL);
}

static int handshake(struct rig *r, struct actor *a, SSL_CTX *ctx, const char *sni)
{
    a->ssl = SSL_new(ctx);
    SSL_set_fd(a->ssl, a->fd);
    if (sni && *sni) {
        SSL_set_tlsext_host_name(a->ssl, (char *)(uintptr_t)sni);
        SSL_set1_host(a->ssl, sni);
    }
    SSL_set_connect_state(a->ssl);
    uint64_t until = clock_fake_real_ms() + 5000;
    watch_set(&a->watch, 0); /* the handshake reads by itself */
    for (;;) {
        int n = SSL_do_handshake(a->ssl);
        if (n == 1) {
            watch_set(&a->watch, EPOLLIN);
            return 0;
        }
        int e = SSL_get_error(a->ssl, n);
        if ((e != SSL_ERROR_WANT_READ && e != SSL_ERROR_WANT_WRITE) || clock_fake_real_ms() > until) {
            const char *why = ERR_reason_error_string(ERR_peek_error());
            snprintf(a->error, sizeof a->error, "%s", why ? why : "the connection ended");
            ERR_clear_error();
            watch_del(&a->watch);
            return -1;
        }
        loop_run_once(r->loop, 1);
    }
}

int actor_tls(struct rig *r, struct actor *a, const char *sni)
{
    return handshake(r, a, r->client_ctx, sni);
}

int actor_distrust(struct rig *r, struct actor *a, const char *sni)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    int n = handshake(r, a, ctx, sni);
    SSL_CTX_free(ctx);
    return n;
}

int actor_send(struct rig *r, struct actor *a, struct str bytes)
{
    uint64_t until = clock_fake_real_ms() + 10000;
    size_t split = a->split;
    a->split = 0;
    while (bytes.n) {
        size_t part = bytes.n > 16384 ? 16384 : bytes.n;
        if (a->piece && part > a->piece)
            part = a->piece;
        if (split && part > split)
            part = split;
        ssize_t n = actor_write(a, str_sub(bytes, 0, part));
        if (n < 0 || clock_fake_real_ms() > until)
            return -1;
        bytes = str_from(bytes, (size_t)n);
        if (n && split && (split -= (size_t)n) == 0)
            rig_settle(r);
        if (n == 0 || (a->piece && !a->together))
            loop_run_once(r->loop, 1);
    }
    return 0;
}

/* The last word may have to wait for room, like any other. */
static void say_goodbye(struct rig *r, struct actor *a)
{
    for (uint64_t until = clock_fake_real_ms() + 1000; clock_fake_real_ms() < until; loop_run_once(r->loop, 1)) {
        int n = SSL_shutdown(a->ssl);
        bool full = n < 0 && SSL_get_error(a->ssl, n) == SSL_ERROR_WANT_WRITE;
        ERR_clear_error();
        if (!full)
            return;
    }
}

void actor_shut(struct rig *r, struct actor *a)
{
    if (a->ssl)
        say_goodbye(r, a);
    shutdown(a->fd, SHUT_WR);
}

void actor_free(struct actor *a)
{
    watch_del(&a->watch);
    SSL_free(a->ssl);
    close(a->fd);
    buf_done(&a->got);
    free(a);
}

/* --- the rig --- */

static void make_ca(struct rig *r, struct buf *pem, struct signer **ret)
{
    EVP_PKEY *key;
    X509 *cert;
    struct err err;
    struct buf k;
    buf_init(&k, 65536);
    k.wipe = true;
    buf_init(pem, 65536);
    if (root_make(clock_wall_us(), &key, &cert, &err) || root_put_cert(cert, pem) || root_put_key(key, &k)) {
        fprintf(stderr, "scenario CA: %s\n", err.text);
        abort();
    }
    *ret = signer_new(r->loop, buf_str(pem), buf_str(&k), &err);
    if (!*ret)
        abort();
    buf_done(&k);
    EVP_PKEY_free(key);
    X509_free(cert);
}

static void make_contexts(struct rig *r)
{
    r->client_ctx = SSL_CTX_new(TLS_client_method());
    r->origin_ctx = SSL_CTX_new(TLS_server_method());
    SSL_CTX_set_verify(r->client_ctx, SSL_VERIFY_PEER, NULL);
    BIO *b = BIO_new_mem_buf(buf_str(&r->ca_pem).p, (int)buf_size(&r->ca_pem));
    X509 *x = PEM_read_bio_X509(b, NULL, NULL, NULL);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(r->client_ctx), x);
    X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(r->client_ctx), X509_V_FLAG_X509_STRICT);
    X509_free(x);
    BIO_free(b);
    r->origin_key = EVP_EC_gen("P-256");
    SSL_CTX_set_mode(r->client_ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_mode(r->origin_ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
}

static int make_policy(struct rig *r, struct str config, char *why, size_t why_size)
{
    struct diag d;
    diag_init(&d);
    struct config *c = config_parse(STR("scenario.yaml"), str_c(r->dir), config, &d);
    struct side_file files[8] = { { STR("system"), buf_str(&r->origin_ca_pem) } };
    size_t n = 1;
    for (struct rig_file *f = r->files; f && n < 8; f = f->next) {
        snprintf(f->path, sizeof f->path, "%s/%s", r->dir, f->name);
        files[n++] = (struct side_file) { str_c(f->path), str_c(f->bytes) };
    }
    struct policy *p = c ? policy_new(c, files, n, &d) : NULL;
    if (!p) {
        snprintf(why, why_size, "%.*s", STR_ARG(d.n ? d.lines[0].text : STR("no policy")));
        diag_done(&d);
        return -1;
    }
    diag_done(&d);
    struct err err;
    struct placeholder_table *t = placeholder_table_new(p, STR("0123456789abcdef0123456789abcdef"), &err);
    if (!t) {
        snprintf(why, why_size, "%s", err.text);
        policy_unref(&p);
        return -1;
    }
    policy_unref(&r->policy);
    placeholder_table_unref(&r->table);
    r->policy = p;
    r->table = t;
    return 0;
}

static struct worker_snapshot snapshot_of(struct rig *r)
{
    return (struct worker_snapshot) { r->policy, r->table, buf_str(&r->origin_ca_pem), buf_str(&r->ca_pem), NULL };
}

static int open_log(struct rig *r, char *why, size_t why_size)
{
    struct err err;
    char path[128];
    snprintf(path, sizeof path, "%s/audit", r->dir);
    mkdir(path, 0750);
    int dir = open(path, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof path, "%s/anchor", r->dir);
    mkdir(path, 0700);
    int anchor = open(path, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof path, "%s/key", r->dir);
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    FILE *f = fopen(path, "w");
    PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL);
    fclose(f);
    EVP_PKEY_free(key);
    struct logger_options o = {
        .dir_fd = dir,
        .anchor_fd = anchor,
        .key_fd = open(path, O_RDONLY | O_CLOEXEC),
        .segment_bytes = 64u << 20,
        .keep_ms = 86400000,
        .max_bytes = 1u << 30,
        .sync_ms = 1000,
    };
    r->logger = logger_new(r->loop, &o, &err);
    int ring = sink_ring_new(1 << 20, &err), done = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (!r->logger || ring < 0) {
        snprintf(why, why_size, "log: %s", err.text);
        return -1;
    }
    r->sink = sink_open(dup(ring), dup(logger_wake_fd(r->logger)), dup(done), &err);
    if (r->sink && logger_add_ring(r->logger, "worker", 0, 1, ring, done, &err) == 0)
        return 0;
    snprintf(why, why_size, "ring: %s", err.text);
    return -1;
}

static struct msg_channel *pair(struct rig *r, const struct msg_ops *ops, int *ret_other)
{
    int s[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s))
        abort();
    *ret_other = s[1];
    if (!ops) {
        struct err err;
        if (signer_add_worker(r->ca, 0, s[0], 10000, &err))
            abort();
        return NULL;
    }
    return msg_channel_new(r->loop, s[0], ops, r);
}

static const struct msg_ops keeper_ops = { on_keeper, on_closed }, resolver_ops = { on_resolver, on_closed };

int rig_file(struct rig *r, struct str text)
{
    ptrdiff_t space = str_find_char(text, ' ');
    if (space < 1)
        return -1;
    struct rig_file *f = calloc(1, sizeof *f);
    snprintf(f->name, sizeof f->name, "%.*s", STR_ARG(str_sub(text, 0, (size_t)space)));
    snprintf(f->bytes, sizeof f->bytes, "%.*s", STR_ARG(str_from(text, (size_t)space + 1)));
    f->next = r->files;
    r->files = f;
    return 0;
}

static void forget_watches(struct rig *r)
{
    while (r->watches) {
        struct watch_entry *e = r->watches;
        r->watches = e->next;
        free(e);
    }
}

int rig_keeper(struct rig *r, struct str what)
{
    int fd;
    struct err err;
    r->keeper_silent = str_eq(what, STR("silent"));
    if (r->keeper_silent)
        return 0;
    msg_channel_free(&r->keeper);
    forget_watches(r);
    if (str_eq(what, STR("away")))
        return 0;
    r->keeper = pair(r, &keeper_ops, &fd);
    return str_eq(what, STR("back")) ? worker_connect_keeper(r->worker, fd, &err) : -1;
}

int rig_resolver(struct rig *r, struct str what)
{
    int fd;
    struct err err;
    r->resolver_silent = str_eq(what, STR("silent"));
    if (r->resolver_silent)
        return 0;
    msg_channel_free(&r->resolver);
    if (str_eq(what, STR("away")))
        return 0;
    r->resolver = pair(r, &resolver_ops, &fd);
    return str_eq(what, STR("back")) ? worker_connect_resolver(r->worker, fd, &err) : -1;
}

bool rig_calm(struct rig *r)
{
    uint64_t until = clock_fake_real_ms() + 3000;
    for (int rests = 0; rests < 4 && clock_fake_real_ms() < until;) {
        uint64_t start = clock_fake_real_ms();
        loop_run_once(r->loop, 20);
        rests = clock_fake_real_ms() - start >= 15 ? rests + 1 : 0;
        if (rests == 4)
            return true;
    }
    return false;
}

int rig_start(struct rig *r, struct str config, char *why, size_t why_size)
{
    snprintf(r->dir, sizeof r->dir, "/tmp/outgate-scenario-XXXXXX");
    if (!mkdtemp(r->dir))
        return -1;
    r->loop = loop_new();
    make_ca(r, &r->ca_pem, &r->ca);
    make_ca(r, &r->origin_ca_pem, &r->origin_ca);
    make_contexts(r);
    if (make_policy(r, config, why, why_size))
        return -1;
    if (open_log(r, why, why_size)) {

        return -1;
    }
    struct err err;
    struct worker_options o = { 0, r->sink };
    struct worker_snapshot s = snapshot_of(r);
    r->worker = worker_new(r->loop, &o, &s, &err);
    if (!r->worker) {
        snprintf(why, why_size, "%s", err.text);
        return -1;
    }
    int fd;
    r->keeper = pair(r, &keeper_ops, &fd);
    worker_connect_keeper(r->worker, fd, &err);
    r->resolver = pair(r, &resolver_ops, &fd);
    worker_connect_resolver(r->worker, fd, &err);
    pair(r, NULL, &fd);
    worker_connect_ca(r->worker, fd, &err);
    struct ticket_key key;
    rand_bytes(&key, sizeof key);
    worker_set_ticket_keys(r->worker, &key, 1);
    int ls = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof sa;
    int little = 2048; /* the least there is: the kernel must not take a whole answer */
    if (r->narrow) /* handed down to what it accepts */
        setsockopt(ls, SOL_SOCKET, SO_SNDBUF, &little, sizeof little);
    if (bind(ls, (struct sockaddr *)&sa, sizeof sa) || listen(ls, 64) || getsockname(ls, (struct sockaddr *)&sa, &n))
        return -1;
    r->port = ntohs(sa.sin_port);
    return worker_add_listener(r->worker, &policy_config(r->policy)->proxy[0], ls, &err);
}

int rig_reload(struct rig *r, struct str config, char *why, size_t why_size)
{
    struct err err;
    if (make_policy(r, config, why, why_size))
        return -1;
    struct worker_snapshot s = snapshot_of(r);
    if (worker_set_snapshot(r->worker, &s, &err)) {
        snprintf(why, why_size, "%s", err.text);
        return -1;
    }
    return 0;
}

void rig_settle(struct rig *r)
{
    /* Quiet means: several rounds in a row without waiting found nothing to do that moves bytes. Real sockets on one machine need a
     * moment, so each round may wait one millisecond. */
    for (int i = 0; i < 12; i++)
        loop_run_once(r->loop, 1);
}

void rig_log(struct rig *r, struct buf *out)
{
    char path[128];
    snprintf(path, sizeof path, "%s/audit", r->dir);
    struct dirent **v;
    int n = scandir(path, &v, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        struct str name = str_c(v[i]->d_name);
        if (str_ends(name, STR(".jsonl"))) {
            char file[512];
            snprintf(file, sizeof file, "%s/%s", path, v[i]->d_name);
            FILE *f = fopen(file, "r");
            char block[4096];
            for (size_t k; f && (k = fread(block, 1, sizeof block, f)) > 0;)
                buf_put(out, str_of(block, k));
            if (f)
                fclose(f);
        }
        free(v[i]);
    }
    free(v);
}

void rig_end_worker(struct rig *r)
{
    if (!r->worker)
        return;
    worker_free(&r->worker);
    rig_settle(r);
    logger_flush(r->logger);
}

void rig_stop(struct rig *r)
{
    worker_free(&r->worker);
    msg_channel_free(&r->keeper);
    msg_channel_free(&r->resolver);
    for (int i = 0; i < 3 && r->loop; i++)
        loop_run_once(r->loop, 0);
    sink_free(&r->sink);
    logger_free(&r->logger);
    signer_free(&r->ca);
    signer_free(&r->origin_ca);
    placeholder_table_unref(&r->table);
    policy_unref(&r->policy);
    SSL_CTX_free(r->client_ctx);
    SSL_CTX_free(r->origin_ctx);
    EVP_PKEY_free(r->origin_key);
    buf_done(&r->ca_pem);
    buf_done(&r->origin_ca_pem);
    for (struct actor *a; (a = rig_take_origin(r));)
        actor_free(a);
    while (r->mints) {
        struct mint_rule *m = r->mints;
        r->mints = m->next;
        free(m);
    }
    while (r->names) {
        struct dial_rule *d = r->names;
        r->names = d->next;
        free(d);
    }
    forget_watches(r);
    while (r->files) {
        struct rig_file *f = r->files;
        r->files = f->next;
        free(f);
    }
    while (r->lives) {
        struct live_lease *l = r->lives;
        r->lives = l->next;
        lease_unref(&l->lease);
        free(l);
    }
    loop_free(r->loop);
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf -- '%s'", r->dir);
    if (system(cmd) != 0)
        fprintf(stderr, "cannot remove %s\n", r->dir);
    *r = (struct rig) { 0 };
}
