/* SPDX-License-Identifier: Apache-2.0
 *
 * client: one connection from a sandbox, from accept to close: the proxy port's requests, the tunnel behind a CONNECT (whose first
 * bytes show TLS or HTTP), and the codecs that make exchanges and write their answers: client_h1.c one at a time (what a client sends ahead
 * waits, bounded), client_h2*.c many, client_relay.c a tunnel's bytes. Only client*.c know this struct. */
#ifndef PROXY_CLIENT_H
#define PROXY_CLIENT_H

#include "base/stream.h"
#include "proxy/agent_table.h"
#include "proxy/client_hello.h"
#include "proxy/exchange.h"
#include "proxy/hello_watch.h"
#include "proxy/listener.h"

enum client_state {
    CLIENT_LISTENER_TLS = 0, /* handshake of a tls: listener */
    CLIENT_PROXY,            /* a request head on the proxy port */
    CLIENT_TUNNEL,           /* after CONNECT: the first bytes show what it is */
    CLIENT_TLS,              /* our handshake inside the tunnel */
    CLIENT_HELLO,            /* the ClientHello of a tunnel that is let through unread */
    CLIENT_RELAY,            /* its exchange runs */
    CLIENT_HEAD,             /* a request head inside the tunnel */
    CLIENT_EXCHANGE,         /* an exchange runs */
    CLIENT_H2,               /* HTTP/2 inside the tunnel: client_h2.c has its streams */
    CLIENT_DRAIN,            /* the rest of a refused or answered request's body is read and thrown away */
    CLIENT_LINGER,           /* our side is shut; what comes is thrown away until the peer ends */
    CLIENT_DEAD,
};

/* Which message of a SOCKS5 client comes next. */
enum client_socks { SOCKS_NONE = 0, SOCKS_GREETING, SOCKS_LOGIN, SOCKS_REQUEST };

/* Our side of a tunnel that is let through unread. */
enum client_relay { RELAY_OPEN = 0, RELAY_ENDING /* after what waits */, RELAY_SHUT };

#define TUNNEL_OPEN "HTTP/1.1 200 Connection established\r\n\r\n"

struct client {
    struct corpse corpse;
    struct client *next, **link; /* of worker.clients */
    struct worker *w;
    struct listener *listener;
    struct view *view; /* the one its tunnel was admitted under; renewed at each request */
    struct stream stream;
    struct watch watch;
    struct timer timer;
    uint64_t active_ms; /* of the last event or write */
    bool rested;        /* its TLS buffers were given back since */
    enum client_state state;

    /* who */
    struct ip source;
    uint16_t source_port;
    bool has_uid;
    uint64_t uid;
    char addr[64];
    char conn_id[27];
    char agent_name[CONFIG_NAME_MAX + 1]; /* "" until known */
    struct client_login_known {
        bool given;
        char *user; /* its bytes, user_n of them */
        size_t user_n;
        unsigned char digest[RUN_LOGIN_DIGEST]; /* of its token */
    } login;             /* what it came with, to be judged again under a new snapshot */
    uint64_t run_login;  /* id of the run whose login it came with; 0: none */
    struct agent_state *agent_state; /* whose connections count this one; until then: */
    struct stranger stranger;

    /* the tunnel */
    enum client_socks socks;
    uint8_t socks_reply; /* to a request that cannot be read; 0: by the refusal */
    bool by_socks; /* it was, and has its reply */
    bool tunnel;
    enum client_relay relay_out;
    struct client_hello_walk hello; /* of a tunnel with TLS: the one that is being read */
    struct hello_watch hellos;
    bool refused_host; /* admitted only to be refused inside */
    struct host host;
    struct ip said; /* the virtual address by which the client named it; family 0: it did not */
    uint16_t port;
    enum scheme scheme; /* of the tunnel, once its first bytes showed it */
    struct client_tls_job tls;
    struct task resume;

    struct client_h2 *h2; /* NULL: HTTP/1.1 */
    /* the current message */
    struct exchange *x;
    size_t head_from;
    bool head_begun;     /* bytes of a head have come: the head's deadline runs */
    struct h1_body_in body;
    bool body_done;
    bool answer_chunked, answer_sized;
    bool close_after;    /* no further request on this connection */
    bool http10;
    bool made_exchange;
    bool eof;            /* the client ended its side */
    bool busy;           /* client_process is on the stack */
    uint64_t drained;
    struct buf in, out;
};

struct sockaddr_storage;
/* Takes fd, accepted on this listener from this address. */
void client_new(struct worker *w, struct listener *l, int fd, const struct sockaddr_storage *from);
/* Closes at once; an exchange that runs is ended. */
void client_close(struct client *c, const char *end, enum end code, const char *hint);
/* Says why, shuts our side behind what is in out, and waits a moment for the peer. */
void client_leave(struct client *c, const char *end, enum end code, const char *hint);
/* Closes the connection that gives way first when descriptors are short. False: none does. */
bool client_make_room(struct worker *w);
/* Closes now if idle, else after the exchange that runs. */
void client_drain(struct client *c);
/* Without traffic for WORKER_REST_MS it gives its TLS buffers back. True: it rests. */
bool client_rest(struct client *c);

/* --- between client.c and its codec, client_h1.c --- */
/* Parses what is in `in` as far as it goes. */
void client_process(struct client *c);
/* Wants to read, also what the TLS layer has read already. */
void client_want_bytes(struct client *c);
/* Writes what is in out. */
void client_flush(struct client *c);
/* After an answer: the next request, or the end. */
void client_next(struct client *c);
/* Shuts our side and waits for the peer a moment, so that it can read what it was sent. */
void client_linger(struct client *c);
/* The request head in `in`, in any state that expects one. False: needs more, or the connection ended. */
bool client_h1_head(struct client *c);
/* Body bytes of the current request, as far as the exchange takes them. */
void client_h1_body(struct client *c);
/* What the proxy port says itself: /healthz, /ca.pem, /proxy.pac; else how to use a proxy. */
void client_own_page(struct client *c, const struct h1_head *h);
/* Begins TLS or HTTP in a tunnel, by its first bytes; what is neither is refused by its name. False: it takes more of them to know. */
bool client_tunnel_begin(struct client *c);
/* Its first bytes did not come in time. */
void client_tunnel_silent(struct client *c);
extern const struct client_ops client_h1_ops, client_relay_ops;
/* What of client_h1_ops holds for a tunnel too: an answer that is cut, has to wait, is over. */
void client_h1_cut(struct client *c, struct exchange *x);
bool client_h1_full(struct client *c, const struct exchange *x);
void client_h1_done(struct client *c, struct exchange *x);
/* A CONNECT or SOCKS5 request that a tunnel rule lets through unread (client_relay.c). tls: its ClientHello is looked at first, and reply
 * is said before. */
void client_relay_open(struct client *c, const struct h1_head *h, bool tls, struct str reply);
/* The ClientHello in `in`. False: needs more, or it was begun, or refused. */
bool client_relay_hello(struct client *c);
/* Bytes in `in`, or the end of them, as far as the exchange takes them. */
void client_relay_bytes(struct client *c);
/* After a new snapshot or the end of a run: a tunnel or a WebSocket asks nothing again by itself, so it is asked here whose it is. */
void client_review(struct worker *w);
/* The client took what waited for it. */
void client_relay_room(struct client *c);
/* The next message of a SOCKS5 client in `in` (client_socks.c). False: needs more, or the connection ended. */
bool client_socks(struct client *c);
/* The request is granted. */
void client_socks_accept(struct client *c);
/* Answers a refused SOCKS5 request, or login. */
void client_socks_refuse(struct client *c);
/* Who is it, given this login (NULL: none was given)? Fills agent_name and returns the agent in the current view. */
struct client_login {
    struct str user, token;
};
enum identify_result client_identify(struct client *c, const struct client_login *login, const struct agent **ret);
/* Forgets what it came with. */
void client_forget_login(struct client *c);
/* The next request on an open connection is judged by the newest snapshot: the request, and who sends it. */
void client_renew_view(struct client *c);
/* The head's clock starts with its first byte, and is not wound up by further ones. */
void client_head_begins(struct client *c);
/* The same with the login of this head. */
enum identify_result client_h1_identify(struct client *c, const struct h1_head *h, const struct agent **ret);
/* Counts the connection for its agent. False: that agent has too many. */
bool client_count(struct client *c);
/* Which of its shares that is. */
const char *client_too_many(const struct client *c);
/* An exchange for what this head asks (taken over), in state CLIENT_EXCHANGE. NULL: out of memory. */
struct exchange *client_exchange(struct client *c, const struct h1_head *h);
/* May a tunnel to c->host and c->port open? END_OK, with *ret_inside true when it opens only to be refused inside TLS, where
 * clients show the reason; or why not, with the verdict. Nothing is resolved or dialled for it. */
enum end client_tunnel_judge(struct client *c, const struct agent *agent, struct verdict *ret, bool *ret_inside);
/* Opens it; reply is what the client is told. */
void client_tunnel_accept(struct client *c, bool refused_host, struct str reply);
/* A CONNECT, whose agent is known. */
void client_tunnel_connect(struct client *c, const struct h1_head *h, const struct agent *agent);
/* Refuses it, as an exchange: with its line in the log. target: c->host and c->port are known. v or NULL. */
void client_tunnel_refuse(struct client *c, const struct h1_head *h, enum end end, const char *why, const struct verdict *v, bool target);
const struct agent *client_agent(struct client *c);
/* No agent's connections count it any more. */
void client_uncount(struct client *c);
/* A whole answer of ours on HTTP/1.1. */
void client_h1_answer(struct client *c, unsigned status, struct str reason, const struct field *fields, size_t n, struct str body,
                      bool head_only);
/* Our handshake: as a tls: listener, or inside a tunnel. 0, or -1: out of memory. */
int client_start_tls(struct client *c, enum client_state state);
/* A line in the log about the connection itself. */
void client_say(struct client *c, const char *end, enum end code, const char *hint);
/* The deadline of its state. */
void client_set_deadline(struct client *c);

#endif
