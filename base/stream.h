/* SPDX-License-Identifier: Apache-2.0
 *
 * stream: a connected socket, plain, under TLS, or under TLS within TLS (a `tls:` listener carrying an intercepted
 * tunnel), behind one interface. Non-blocking. Everything written in one call leaves in one system call: TLS records
 * are first put side by side in a buffer shared by the process. What the kernel does not take waits in `wire`; the
 * caller bounds it by not writing while stream_waiting says so.
 *
 * TLS objects are made and configured by the caller (SSL_new, accept or connect state, names); the stream only moves
 * bytes. Truncation is told apart from an end: a TLS peer that goes without close_notify gives IO_TRUNCATED. */
#ifndef BASE_STREAM_H
#define BASE_STREAM_H

#include "base/buf.h"

#include <openssl/ssl.h>

enum io {
    IO_OK = 0,
    IO_AGAIN,     /* nothing now; wait for the socket */
    IO_EOF,       /* the peer ended its side properly */
    IO_TRUNCATED, /* the peer went without saying so (TLS without close_notify, reset) */
    IO_ERROR,     /* protocol error; stream_error says which */
    IO_PAUSED,    /* a handshake waits for a certificate (SSL_ERROR_WANT_X509_LOOKUP): call again when there is one */
};

struct stream {
    int fd;            /* -1: none */
    SSL *ssl;          /* innermost TLS, or NULL */
    SSL *outer;        /* TLS below it, or NULL */
    struct buf prefix; /* bytes that come before what the socket gives (already read by the caller) */
    struct buf wire;   /* bytes the kernel did not take yet */
    enum io ended;     /* what ended reading behind bytes that were given out; IO_OK: nothing yet */
    bool cut;          /* the last read had no room for more */
    int reason;        /* OpenSSL reason code of the last IO_ERROR, 0 otherwise */
    bool alert;        /* that error was an alert from the peer */
    bool broken;
    bool stopped; /* stream_stop */
};

enum { STREAM_WIRE_MAX = 4 * 1024 * 1024 };

/* What every TLS context here has in common: TLS 1.2 or later, forward secrecy and AEAD only, how records are buffered.
 * 0, or -1 where OpenSSL refuses it. */
int stream_tls_context(SSL_CTX *ctx);
/* Takes fd (non-blocking). */
void stream_init(struct stream *s, int fd);
/* Bytes that were read from the socket by other means and come first. 0 or -1 (memory). */
int stream_prefix(struct stream *s, struct str bytes);
/* Puts ssl (taken, also on failure) on top of what is there; at most two layers. 0 or -1. */
int stream_tls(struct stream *s, SSL *ssl);
/* One step of the handshake of the innermost TLS. IO_OK: done. IO_AGAIN: wait for the socket (readable, or writable
 * while stream_waiting). */
enum io stream_handshake(struct stream *s);
/* Reads at most cap bytes. IO_OK with *ret_n > 0. Of TLS several records at once, where they are there. */
enum io stream_read(struct stream *s, char *p, size_t cap, size_t *ret_n);
/* May a read give bytes without the socket becoming readable again? */
bool stream_pending(const struct stream *s);
/* Writes all of it: IO_OK sent, IO_AGAIN some of it waits in wire (watch for writable, then stream_flush), IO_ERROR
 * gone. */
enum io stream_write(struct stream *s, struct str bytes);
enum io stream_flush(struct stream *s);
static inline bool stream_waiting(const struct stream *s)
{
    return s->wire.head != s->wire.tail;
}
/* Sends close_notify (layers from the inside out) and shuts our write side; reading goes on. */
void stream_shutdown(struct stream *s);
/* Nothing more is read from the socket: what runs in OpenSSL ends with IO_TRUNCATED when it has used what it has. For
 * its callbacks, which cannot end it otherwise. */
void stream_stop(struct stream *s);
/* Gives back the TLS layers' record buffers (about 34 KB) of a connection at rest; they come back with the next record.
 * Nothing is given back while part of a record is there. */
void stream_rest(struct stream *s);
/* Frees all and closes the socket. A TLS session stays resumable when the handshake was complete. */
void stream_close(struct stream *s);
/* Short words for the last error ("unknown ca", "certificate verify failed"): OpenSSL's own reason text, static. */
const char *stream_error(const struct stream *s);

#endif
