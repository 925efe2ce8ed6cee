/* SPDX-License-Identifier: Apache-2.0
 *
 * lease: one credential value that lives minutes, as the sidecar gave it: id, value (a struct secret), end, refresh
 * time, and the scope it was narrowed to. Immutable once made, reference-counted. "Expiry" everywhere means expires_at
 * minus 30 s of skew: lease_expired says whether it may still be used; lease_dead whether the origin itself must have
 * forgotten it, which is what ends the scrubbing. */
#ifndef MINT_LEASE_H
#define MINT_LEASE_H

#include "base/secret.h"
#include "policy/policy.h"

enum { LEASE_ID_MAX = 128, LEASE_SKEW_MS = 30000 };
enum {
    LEASE_SCOPE_ENTRIES = 256,   /* entries of one scope list */
    LEASE_ARENA_MAX = 96 * 1024, /* names and scope of one lease: the sidecar's answer is at most 64 KiB */
    LEASE_NAME_MAX = 256,        /* a credential's or agent's name */
    LEASE_VALUE_MIN = 4,         /* shortest value that scrub can find again (base/needles.h) */
    LEASE_VALUE_MAX = 10 * 1024, /* longest whose every form (mint/form.h: at most six times it) is a needle */
};

struct lease_scope {
    struct name_list hosts, methods; /* host patterns as text ("*.x" or exact); given == false: not narrowed */
    struct path_pattern *paths;
    size_t npaths;
    bool paths_given;
};
struct lease {
    unsigned refs;
    char id[LEASE_ID_MAX + 1];
    struct str credential, agent; /* names, in the lease's arena */
    struct secret *value;
    int64_t expires_us; /* as clamped, before skew */
    int64_t refresh_us;
    struct lease_scope scope;
    struct arena arena;
};

/* What a lease is made of. Strings are borrowed for the call. A list that is given and empty covers nothing. */
struct lease_spec {
    struct str id, credential, agent;
    struct str value; /* the real value; the caller wipes its copy */
    int64_t expires_us, refresh_us;
    struct name_list hosts, methods, paths;
};
/* A new lease with one reference. NULL with the reason (never the value) and errno ENOMEM (no memory, or no locked
 * memory for the value) or EINVAL: id not 1-128 of [A-Za-z0-9._-], value out of bounds or with CR, LF or NUL, a scope
 * entry that is no host pattern, method or path pattern, too many. Whether a short value (under 16 bytes) is allowed is
 * the keeper's to decide. */
struct lease *lease_new(const struct lease_spec *spec, struct err *err);
bool lease_id_ok(struct str id);
bool lease_value_ok(struct str value);

struct lease *lease_ref(struct lease *l);
/* Wipes the value with the last reference. */
void lease_unref(struct lease **l);
bool lease_expired(const struct lease *l, int64_t now_us);
/* Past expires_at itself, without skew. */
bool lease_dead(const struct lease *l, int64_t now_us);
/* May this lease serve the request (its own narrowed scope)? False for another agent. Does not look at the clock. */
bool lease_covers(const struct lease *l, const struct ask *ask);

#endif
