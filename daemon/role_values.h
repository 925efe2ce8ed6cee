/* SPDX-License-Identifier: Apache-2.0
 *
 * role_values: the values inside some role messages (role_msg.def) that are more than a number or a name. Each has one
 * writer and one strict reader. */
#ifndef DAEMON_ROLE_VALUES_H
#define DAEMON_ROLE_VALUES_H

#include "base/msg.h"
#include "mint/minter.h"
#include "policy/policy.h"
#include "proxy/worker.h"

/* TUNE: what a role that reads no configuration takes from it. */
struct tune {
    uint64_t segment_bytes, keep_ms, max_bytes, sync_ms; /* logger */
    bool sync_always;
    uint64_t leaf_rate; /* ca */
};
void tune_from_config(const struct config *c, struct tune *ret);
void tune_put(const struct tune *t, struct msg_writer *w);
int tune_parse(struct str body, struct tune *ret);

/* SOURCE: one credential source. Strings of a parsed one are borrowed from the body; argv is a table of its own. */
enum { MINT_ARGV_MAX = 256, MINT_PEERS_MAX = 8 };
struct mint_source {
    struct str credential;
    enum minter_source_kind kind;
    struct str text;
    struct str *argv; /* free() it after mint_source_parse */
    size_t argc;
    uint64_t ttl_ms;
    uint64_t peer_uid; /* who may ask the minter */
};
void mint_source_put(const struct mint_source *s, struct msg_writer *w);
int mint_source_parse(struct str body, struct mint_source *ret);

/* OWN: addresses and ports that we listen on. */
enum { OWN_MAX = 4096 };
struct own_list {
    struct ip *ips; /* free() both */
    uint16_t *ports;
    size_t n;
};
void own_list_put(const struct own_list *o, struct msg_writer *w);
int own_list_parse(struct str body, struct own_list *ret);
void own_list_done(struct own_list *o);

/* TICKETS: n keys (1 to 3), newest first. */
enum { TICKET_KEYS_MAX = 3 };
void tickets_put(const struct ticket_key *keys, size_t n, struct msg_writer *w);
int tickets_parse(struct str body, struct ticket_key keys[TICKET_KEYS_MAX], size_t *ret_n);

/* LOGINS: the whole list each time. */
void run_logins_put(const struct run_logins *l, struct msg_writer *w);
int run_logins_parse(struct str body, struct run_logins *ret);

#endif
