/* SPDX-License-Identifier: Apache-2.0
 *
 * h1_head: the one HTTP/1.1 head parser, for both directions (RFC 9112, RFC 9110). Pure and strict: bytes in, model
 * out, "need more" or a fault with its sentence. It refuses what two parsers could read differently: bare CR or LF,
 * NUL, obs-fold, space before the colon, empty or non-token names, control characters in values, two Content-Length
 * fields even when equal lists ("1, 1"), Content-Length with Transfer-Encoding, any Transfer-Encoding but exactly
 * `chunked` in an HTTP/1.1 message, Content-Length over 2^63-1 or with a sign, more than one Host, versions other than
 * HTTP/1.0 and HTTP/1.1, whitespace variants in the start line. One empty line before a request line is skipped (RFC
 * 9112 2.2). Underscores in names are kept, but a name that equals a framing or auth name once `_` is read as `-` is
 * refused.
 *
 * The model borrows from the bytes given. What is sent on is serialised from the model (h1_put_*), never copied whole.
 */
#ifndef PROXY_H1_HEAD_H
#define PROXY_H1_HEAD_H

#include "base/buf.h"
#include "base/field.h"
#include "base/str.h"

enum { H1_FIELDS_MAX = 1024, H1_TRAILER_FIELDS_MAX = 256 /* the most that limits.trailer_fields may be */ };

enum h1_result { H1_MORE = 0, H1_DONE = 1, H1_BAD = -1, H1_TOO_LARGE = -2 };

/* A field whose meaning the proxy knows; the rest is H1_OTHER. Found by length and case-insensitive compare (no hash of
 * outside bytes). */
enum h1_name {
    H1_OTHER = 0,
    H1_HOST,
    H1_CONTENT_LENGTH,
    H1_TRANSFER_ENCODING,
    H1_CONNECTION,
    H1_KEEP_ALIVE,
    H1_PROXY_CONNECTION,
    H1_TE,
    H1_TRAILER,
    H1_UPGRADE,
    H1_EXPECT,
    H1_PROXY_AUTHORIZATION,
    H1_PROXY_AUTHENTICATE,
    H1_PROXY_OTHER /* any other Proxy-* */,
    H1_AUTHORIZATION,
    H1_COOKIE,
    H1_ACCEPT_ENCODING,
    H1_CONTENT_ENCODING,
    H1_GRPC_ACCEPT_ENCODING,
    H1_RANGE,
    H1_IF_RANGE,
    H1_ALT_SVC,
    H1_NEL,
    H1_REPORT_TO,
    H1_REPORTING_ENDPOINTS,
    H1_METHOD_OVERRIDE /* X-HTTP-Method-Override, X-HTTP-Method, X-Method-Override */,
    H1_PATH_OVERRIDE /* X-Original-URL, X-Rewrite-URL */,
    H1_HTTP2_SETTINGS,
    H1_USER_AGENT,
    H1_ACCEPT,
    H1_CONTENT_TYPE,
    H1_LOCATION,
    H1_SET_COOKIE,
    H1_DATE,
    H1_SERVER,
    H1_CONTENT_RANGE,
    H1_MAX_FORWARDS,
    H1_NAME_COUNT
};
struct h1_field {
    struct field f;
    enum h1_name id;
};

enum h1_body { H1_BODY_NONE = 0, H1_BODY_LENGTH, H1_BODY_CHUNKED, H1_BODY_UNTIL_CLOSE };

struct h1_limits {
    size_t head_bytes, fields, target_bytes;
};

struct h1_head {
    /* request: */
    struct str method, target;
    /* response: */
    unsigned status;
    struct str reason;
    /* both: */
    uint8_t minor;           /* HTTP/1.minor: 0 or 1 */
    struct h1_field *fields; /* caller's array */
    size_t nfields;
    size_t bytes; /* consumed, with the empty line */
    enum h1_body body;
    uint64_t length; /* with H1_BODY_LENGTH */
    bool keep_alive; /* by version and Connection */
    bool upgrade;    /* Connection names upgrade and there is an Upgrade field */
    bool expect_continue;
    int host; /* index of Host, or -1 */
};

struct h1_fault {
    const char *why; /* static sentence: "a header name is followed by white space" */
    size_t at;       /* offset in the bytes */
};

/* Request head. max fields: limits.fields slots in `fields`. CONNECT's target is an authority; a body on CONNECT is
 * refused; TRACE and TRACK are refused by policy elsewhere, not here. `*from` lets a caller that got H1_MORE go on
 * where the search for the end stopped: 0 at first, opaque afterwards, kept by the caller as long as it adds bytes to
 * the same head, 0 again after H1_DONE. Total work is linear in the bytes, however they come. `fault` may be NULL. Also
 * refused: an Expect other than one 100-continue; a Connection option that names a framing or auth field (it would
 * vanish at the next hop). */
enum h1_result h1_request_parse(struct str bytes, const struct h1_limits *lim, struct h1_field *fields, size_t *from,
                                struct h1_head *ret, struct h1_fault *fault);
/* Response head to a request of this method (HEAD, CONNECT change the framing). 1xx, 204 and 304 have no body; two
 * lengths, a length with 204 or 1xx... see tests/http1/responses.txt for the table. Neither length nor chunked: until
 * close. Lenient where no framing hangs on it: an empty reason with or without its space, obs-text, codes up to 999,
 * `Content-Length: 0` with 204. */
enum h1_result h1_response_parse(struct str bytes, struct str request_method, const struct h1_limits *lim,
                                 struct h1_field *fields, size_t *from, struct h1_head *ret, struct h1_fault *fault);
/* Trailer section after the last chunk, up to the empty line or to the end of the bytes (H1_BODY_TRAILERS gives it
 * without); the same field rules. Fields that must not be in a trailer (framing, routing, auth, hop-by-hop, and every
 * other name we know but Date and Server) are checked but left out of `fields`: they can neither be merged nor sent on.
 * lim->head_bytes bounds the section. */
enum h1_result h1_trailers_parse(struct str bytes, const struct h1_limits *lim, struct h1_field *fields,
                                 size_t *ret_nfields, size_t *ret_bytes, struct h1_fault *fault);

/* A Content-Length, of whichever version: one number under 2^63, in no more digits than that has (zeros in front count). */
bool h1_length_parse(struct str value, uint64_t *ret);
enum h1_name h1_name_of(struct str name);
/* Is `token` (lower case) listed in a comma-separated field value? */
bool h1_list_has(struct str value, struct str token);
/* Does the head's Connection field nominate this name? */
bool h1_connection_names(const struct h1_head *h, struct str name);
/* May a field of a request (or of a trailer section) have this name: a token, and none that a server which maps marks to one character
 * would take for a framing or credential field? */
bool h1_request_name_ok(struct str name);
/* A value may be written into a head: no CR, LF, NUL or other control (HTAB allowed), RFC 9110 5.5. */
bool h1_value_ok(struct str value);
/* "Name: value\r\n". The caller looks at out->failed, which is also set, and nothing written, where name or value could
 * not be a field (see h1_value_ok): the last gate before the wire. */
void h1_put_field(struct buf *out, struct str name, struct str value);
/* "METHOD target HTTP/1.1\r\n" and "HTTP/1.1 200 reason\r\n", with the same gate. A head ends with "\r\n". */
void h1_put_request_line(struct buf *out, struct str method, struct str target);
void h1_put_status_line(struct buf *out, unsigned status, struct str reason);

#endif
