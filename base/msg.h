/* SPDX-License-Identifier: Apache-2.0
 *
 * msg: typed messages between roles over a SOCK_SEQPACKET pair. One message is one packet: a fixed head and a body of
 * at most MSG_BODY_MAX bytes, with at most MSG_FDS_MAX descriptors. Never blocks: what the kernel does not take waits
 * in a bounded queue. The receiver trusts nothing: a packet whose head disagrees with its size, or a type the
 * receiver's table does not list, closes the channel (the peer is broken). Bodies are read with struct msg_reader,
 * written with struct msg_writer, never by casting a struct, so that a short body is an error and not an over-read. */
#ifndef BASE_MSG_H
#define BASE_MSG_H

#include "base/buf.h"
#include "base/loop.h"
#include "base/str.h"

enum {
    MSG_BODY_MAX =
        128 * 1024, /* larger things travel in sealed memfds (a packet of 220,000 bytes fails with EMSGSIZE) */
    MSG_FDS_MAX = 16,
    MSG_QUEUE_MAX = 4096, /* packets waiting in one channel */
};

struct msg {
    uint16_t type;
    uint64_t id; /* pairs an answer with its request; chosen by whoever asks */
    struct str body;
    int *fds; /* received descriptors, close-on-exec; take one by setting its slot to -1, the rest are closed */
    size_t nfds;
};

struct msg_channel;
struct msg_ops {
    /* One message; m and its body are borrowed for the call. 0, or -1: the message is unacceptable, close. */
    int (*on_message)(void *ctx, struct msg_channel *ch, struct msg *m);
    /* The peer is gone or was refused; the channel is already off the loop. The owner frees it later or now. */
    void (*on_closed)(void *ctx, struct msg_channel *ch);
};

/* Takes fd (closed by msg_channel_free). NULL on failure (fd stays the caller's). */
struct msg_channel *msg_channel_new(struct loop *l, int fd, const struct msg_ops *ops, void *ctx);
void msg_channel_free(struct msg_channel **ch);
/* Sends or queues; descriptors are duplicated (the caller keeps its own). 0; -1 when the queue is full or the peer
 * gone. */
int msg_send(struct msg_channel *ch, uint16_t type, uint64_t id, struct str body, const int *fds, size_t nfds);
bool msg_channel_open(const struct msg_channel *ch);
int msg_channel_fd(const struct msg_channel *ch);
/* A message whose descriptors found no room here (EMFILE) comes to cb, with nfds 0, instead of on_message; 0 or -1 as
 * there. Without a cb such a message closes the channel. */
void msg_channel_on_lost_fds(struct msg_channel *ch, int (*cb)(void *ctx, struct msg_channel *ch, struct msg *m));
/* Body buffers hold a real value: every copy the channel makes is wiped. Set on the keeper channels. */
void msg_channel_wipe(struct msg_channel *ch, bool wipe);

/* Blocking send and receive for the moments before a loop exists (role start). 0 or -1. recv: fds must hold
 * MSG_FDS_MAX. */
int msg_send_blocking(int fd, uint16_t type, uint64_t id, struct str body, const int *fds, size_t nfds);
int msg_recv_blocking(int fd, struct buf *body, struct msg *ret);

/* Little-endian fixed widths; a str is u32 length + bytes. A reader past its end sets bad and yields zeros. */
struct msg_writer {
    struct buf buf; /* init with msg_writer_init; done with buf_done(&w.buf) */
};
void msg_writer_init(struct msg_writer *w);
void msg_put_u8(struct msg_writer *w, uint8_t v);
void msg_put_u16(struct msg_writer *w, uint16_t v);
void msg_put_u32(struct msg_writer *w, uint32_t v);
void msg_put_u64(struct msg_writer *w, uint64_t v);
void msg_put_str(struct msg_writer *w, struct str s);

struct msg_reader {
    const char *p;
    size_t n;
    bool bad;
};
struct msg_reader msg_reader(struct str body);
uint8_t msg_get_u8(struct msg_reader *r);
uint16_t msg_get_u16(struct msg_reader *r);
uint32_t msg_get_u32(struct msg_reader *r);
uint64_t msg_get_u64(struct msg_reader *r);
/* Longer than max: bad. */
struct str msg_get_str(struct msg_reader *r, size_t max);
/* True when everything was read and nothing was missing. */
bool msg_reader_end(const struct msg_reader *r);

#endif
