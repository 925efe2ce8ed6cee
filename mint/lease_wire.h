/* SPDX-License-Identifier: Apache-2.0
 *
 * lease_wire: the messages of the worker<->keeper channel as values, and their bytes (struct msg_writer and
 * msg_reader). Both ends use these functions and nothing else, so that there is one encoding. Readers are strict: every
 * length capped, every enum checked, nothing left over; anything else is -1 and the channel is closed. Bodies hold real
 * values: writers are wiping, and both ends call msg_channel_wipe. Layouts are in lease_client.h and beside each
 * function. */
#ifndef MINT_LEASE_WIRE_H
#define MINT_LEASE_WIRE_H

#include "base/msg.h"
#include "mint/lease.h"
#include "mint/lease_client.h"

enum {
    LEASE_WIRE_METHOD_MAX = 64,
    LEASE_WIRE_PATH_MAX = 64 * 1024,
    LEASE_WIRE_REQUEST_ID_MAX = 64,
    LEASE_WIRE_WHY_MAX = 256,
};

/* As msg_writer_init, and the buffer is wiped on release (buf_done(&w.buf)). */
void lease_wire_writer_init(struct msg_writer *w);

/* LEASE_GET: str credential, agent, host, u16 port, str method, path, scheme ("https", "http"), request_id, u8 reason,
 * rejected: the id of the lease that an origin answered with 401, with LEASE_REJECTED and no other reason. */
struct lease_wire_get {
    struct str credential, agent;
    struct host host;
    uint16_t port;
    struct str method, path;
    enum scheme scheme;
    struct str request_id;
    enum lease_reason reason;
    struct str rejected;
};
void lease_wire_put_get(struct msg_writer *w, const struct lease_wire_get *g);
/* Strings borrow from body. A host that is not canonical, port 0, an unknown scheme or reason, a rejected
 * id that is missing, malformed or not called for: -1. */
int lease_wire_read_get(struct str body, struct lease_wire_get *ret);

/* LEASE_ANSWER: u16 end; END_OK: the lease; otherwise u32 retry_after_s, str why. */
struct lease_wire_answer {
    enum end end;
    struct lease *lease; /* with END_OK. put: borrowed. read: a new lease with one reference, the caller's */
    uint32_t retry_after_s;
    struct str why;
};
void lease_wire_put_answer(struct msg_writer *w, const struct lease_wire_answer *a);
/* A lease for which there is no memory here reads as END_CREDENTIAL_UNAVAILABLE. */
int lease_wire_read_answer(struct str body, struct lease_wire_answer *ret);

/* LEASE_WATCH and LEASE_UNWATCH: str agent, credential. A watch of something watched already is answered like the
 * first. */
struct lease_wire_watch {
    struct str agent, credential;
};
void lease_wire_put_watch(struct msg_writer *w, const struct lease_wire_watch *v);
int lease_wire_read_watch(struct str body, struct lease_wire_watch *ret);

/* LEASE_LIVE: the lease alone. LEASE_WATCHED: an empty body (the message id pairs it with its LEASE_WATCH). */
void lease_wire_put_lease(struct msg_writer *w, const struct lease *l);
/* NULL with errno as lease_new's: EINVAL is unacceptable (close), ENOMEM is ours. */
struct lease *lease_wire_read_lease(struct str body);

/* LEASE_GONE: str lease_id, agent, credential, u8 why. Ids are the sidecar's and unique only within a credential. A
 * revocation of what the keeper does not know, because the keeper before it gave it out, names only the id, or only the
 * credential: whatever a worker holds of it is meant. */
struct lease_wire_gone {
    struct str lease_id, agent, credential;
    enum lease_gone why;
};
void lease_wire_put_gone(struct msg_writer *w, const struct lease_wire_gone *g);
int lease_wire_read_gone(struct str body, struct lease_wire_gone *ret);

#endif
