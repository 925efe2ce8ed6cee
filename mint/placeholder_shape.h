/* SPDX-License-Identifier: Apache-2.0
 *
 * placeholder_shape: what one kind of placeholder looks like, character by character, and how a body is made for it.
 * Pure: no table, no policy beyond a credential's hints. A shape (placeholder_shapes.def) is a template of literals and
 * character classes. The class characters in order are the body: first `id` of them are the id, the rest the MAC of the
 * id.
 *
 *   id  = stream(key, "placeholder id v1",  shape, agent, credential)
 *   MAC = stream(key, "placeholder mac v1", shape, id)
 *
 * where stream is HMAC-SHA256 in counter mode, its bytes mapped to characters by rejection, so that every character is
 * uniform. To tell ours from any other token needs only the key: recompute the MAC from the id
 * (placeholder_shape_is_ours). Who holds a live one unseen has guessed id and MAC; who forges one that looks like ours
 * has guessed the MAC. */
#ifndef MINT_PLACEHOLDER_SHAPE_H
#define MINT_PLACEHOLDER_SHAPE_H

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

enum { SHAPE_MAX = 192, SHAPE_KEY = 32 };

struct shape {
    struct str name, env, hosts, what;
    uint8_t id;              /* body characters that are the id */
    uint8_t body;            /* body characters in all, without the checksum */
    uint8_t n;               /* of the whole placeholder */
    uint8_t prefix;          /* literal characters in front */
    char literal[SHAPE_MAX]; /* where kind is 0 */
    uint8_t kind[SHAPE_MAX]; /* per position: 0 literal, 1.. class, SHAPE_CHECKSUM */
};

/* The shapes, compiled once. */
const struct shape *placeholder_shapes(size_t *ret_n);
const struct shape *placeholder_shape_named(struct str name);
/* By the variable, then by one of the host names; NULL: none fits. */
const struct shape *placeholder_shape_for_env(struct str env);
const struct shape *placeholder_shape_for_host(struct str host);
/* Has the token the shape's length, literals, classes and checksum? */
bool placeholder_shape_fits(const struct shape *s, struct str token);
/* May c stand at position i? */
bool placeholder_shape_char(const struct shape *s, size_t i, char c);

/* key has SHAPE_KEY bytes; out room for s->n and a NUL. */
void placeholder_shape_derive(const struct shape *s, const unsigned char *key, struct str agent, struct str credential,
                              char *out);
void placeholder_shape_random(const struct shape *s, char *out);
bool placeholder_shape_is_ours(const struct shape *s, const unsigned char *key, struct str token);
/* Bits of the id and of the MAC, rounded down. */
void placeholder_shape_bits(const struct shape *s, unsigned *ret_id, unsigned *ret_mac);

#endif
