/* SPDX-License-Identifier: Apache-2.0
 *
 * swap: from the head as received to the decision which placeholders become which credentials, and later to the bytes. The plan
 * is made before anything leaves and decides refusals (PRODUCT: Swapping): only a request that carries a placeholder is changed,
 * a placeholder is a whole token in a listed slot, once (max_occurrences), in scope; anything else in head or target is refused.
 * Also refuses a live real value in the agent's own request (END_EXFILTRATION, critical finding).
 *
 * Slots: header:NAME (whole token bounded by start, end, space, comma, semicolon), basic:user and basic:password (any case of
 * `Basic`, padded or not, decoded strictly, swapped, re-encoded with the padding it had; in Authorization; Basic that decodes to no
 * placeholder passes untouched). */
#ifndef MINT_SWAP_H
#define MINT_SWAP_H

#include "base/field.h"
#include "mint/lease_client.h"
#include "mint/placeholder.h"

enum { SWAP_MAX = 16 };

struct swap_item {
    const struct placeholder *ph;
    enum slot_kind slot;
    size_t field;      /* index in the fields given */
    size_t at, n;      /* of the token in the value; for basic: of the base64 text */
    unsigned lease;    /* index into the leases of the exchange, equal for equal credentials */
};
struct swap_plan {
    struct swap_item items[SWAP_MAX];
    size_t n;
    const struct credential *wanted[SWAP_MAX]; /* distinct credentials, in order of first use: lease i is for wanted[i] */
    size_t nwanted;
};
/* Why it was refused, for the finding. */
struct swap_fault {
    const struct placeholder *ph; /* NULL: none of ours */
    const char *finding;          /* class: "placeholder_elsewhere", "endpoint_redirect", "exfiltration"; NULL: none */
    const char *severity;
    bool tolerated; /* credential.tolerate lists the host: still refused, reported as info */
    char where[64]; /* "header user-agent", "target" */
};

/* END_OK with the plan (n == 0: nothing to swap), or the refusal. `target` is path and query as received; `fields` all header fields
 * of the request without hop-by-hop ones; `live` may be NULL: leases whose values must not occur in the request. */
enum end swap_plan_make(const struct placeholder_table *t, const struct policy *p, const struct ask *ask, struct str target,
                        const struct field *fields, size_t nfields, const struct lease_set *live, struct swap_plan *ret,
                        struct swap_fault *fault);
/* Is this field changed by the plan? */
bool swap_touches(const struct swap_plan *plan, size_t field);
/* Writes the field's new value, with real values, into out (out->wipe must be set). leases[i] belongs to plan->wanted[i]. END_OK or
 * END_CREDENTIAL_UNAVAILABLE (a value that cannot stand in a header). */
enum end swap_put_value(const struct swap_plan *plan, size_t field, struct str value, struct lease *const *leases, struct buf *out);

#endif
