/* SPDX-License-Identifier: Apache-2.0
 *
 * sidecar_json: the JSON of the minting protocol (PRODUCT: Leases and the minting protocol), both ways, as values.
 * Pure: bytes in, value out. Strict: one object, no key twice, every type as written, every length capped; a key that
 * we do not know is passed over in a message but not in a `scope`, because a narrowing that is not understood must not
 * be lost. jansson holds a value for the moment between parsing and lease_new; its memory is wiped when it is freed
 * (see sidecar_json.c), and its error text, which quotes the input, is never used. */
#ifndef MINT_SIDECAR_JSON_H
#define MINT_SIDECAR_JSON_H

#include "base/buf.h"
#include "mint/lease.h"
#include "mint/lease_client.h"

enum {
    SIDECAR_BODY_MAX = 64 * 1024,     /* an answer; PRODUCT */
    SIDECAR_REQUEST_MAX = 512 * 1024, /* a question: a path of 64 KiB, escaped */
    SIDECAR_VALUE_SHORT = 16,         /* values under this need allow_short */
    SIDECAR_MIN_TTL_S = 60,
};

/* What is asked of a sidecar, an exec helper, a minter. Strings are borrowed. */
struct sidecar_ask {
    struct str credential, agent, host;
    uint16_t port;
    struct str method, path, request_id;
    enum lease_reason reason;
    uint32_t min_ttl_s;
};
/* Appends the request body. Bytes over 0x7e of a path are written as %XX, so that it is JSON whatever the client sent.
 * 0 or -1 (out is full). */
int sidecar_json_put_ask(struct buf *out, const struct sidecar_ask *a);

/* Parsed messages borrow from `json`, which they own. */
struct sidecar_question {
    struct sidecar_ask ask;
    void *json;
};
/* version, credential, agent, host, port and request_id are required. 0, or -1 and a sentence of ours. */
int sidecar_json_read_ask(struct str body, struct sidecar_question *ret, const char **ret_why);
void sidecar_question_done(struct sidecar_question *q);

struct sidecar_grant {
    struct str lease_id, value;
    int64_t expires_us, refresh_us; /* refresh_us 0: not given */
    struct name_list hosts, methods, paths;
    void *json;
    struct str *lists; /* owned room of the three */
};
/* The answer to the question with this request_id. Refused: another or no request_id, a lease_id that is none, no
 * value, one with control characters, one under 16 bytes unless allow_short, no readable expires_at, an unreadable
 * scope. Whether the end has passed is the caller's to see. 0, or -1 and a static sentence that quotes nothing. */
int sidecar_json_read_grant(struct str body, struct str request_id, bool allow_short, struct sidecar_grant *ret,
                            const char **ret_why);
void sidecar_grant_done(struct sidecar_grant *g);
/* Appends a grant as the answer to request_id; out->wipe must be set. -1: out is full, or the value is not UTF-8 and so
 * cannot travel in JSON. */
int sidecar_json_put_grant(struct buf *out, struct str request_id, const struct sidecar_grant *g);

/* NULL when the value may be used, else why not (static). */
const char *sidecar_value_fault(struct str value, bool allow_short);

/* Can these bytes be a JSON string as they are (RFC 3629)? */
bool sidecar_json_utf8(struct str s);

/* {"lease_id":…} or {"credential":…}, exactly one; strings borrow from *ret_json (free with sidecar_json_free). */
int sidecar_json_read_revoke(struct str body, struct str *ret_lease_id, struct str *ret_credential, void **ret_json);
void sidecar_json_free(void **json);

#endif
