/* SPDX-License-Identifier: Apache-2.0
 *
 * placeholder: the strings that agents hold. Derived per (agent, credential) from the install key, shaped like the real
 * thing (prefix, length class, alphabet, checksum), the body an id and a truncated MAC, so that ours can be told from
 * any other token without a list; or a literal from the configuration. All placeholders of a snapshot are one table:
 * exact look-up, and a needle set for finding them inside other text.
 *
 * A derived body is an id (from agent and credential) and a MAC of the id, in characters of the shape's alphabet
 * (lower-case base32 where the shape allows it): layout, derivation and bits are in placeholder_shape.h and
 * placeholder_shapes.def. */
#ifndef MINT_PLACEHOLDER_H
#define MINT_PLACEHOLDER_H

#include "base/needles.h"
#include "policy/policy.h"

/* Shapes by name: "github" ghp_ + 36 with CRC32 checksum, "github-app" ghs_, "github-pat" github_pat_, "gitlab" glpat-,
 * "openai" sk-proj-, "anthropic" sk-ant-api03-…AA, "slack" xoxb-, "stripe" sk_live_, "npm" npm_, "huggingface" hf_,
 * "google" AIza, "aws" AKIA, "generic" og_ … ; the table is placeholder_shapes.def. */
bool placeholder_shape_known(struct str like);
/* A placeholder of that shape from fresh randomness (for `outgate placeholder --like`), NUL-terminated into out, for
 * which PLACEHOLDER_MAX + 1 bytes are always enough. 0 or -1 with the reason. */
enum { PLACEHOLDER_MAX = 192 };
int placeholder_random(struct str like, char *out, size_t size, struct err *err);
/* The derived one of (agent, credential). Which shape: credential.like, else guessed from credential.env and hosts,
 * else generic. */
int placeholder_derive(struct str install_key, const struct agent *agent, const struct credential *c, char *out,
                       size_t size, struct err *err);
/* Prints one line per shape, for --help: name, length, what it is. */
void placeholder_shapes_put(struct buf *out);

struct placeholder {
    struct str text;
    const struct agent *agent;
    const struct credential *credential;
};
/* All placeholders of a snapshot; holds a reference on the policy. Immutable. table_new fails where two placeholders
 * are equal (a literal that is another's), or the install key is shorter than 16 bytes. */
struct placeholder_table;
struct placeholder_table *placeholder_table_new(struct policy *p, struct str install_key, struct err *err);
struct placeholder_table *placeholder_table_ref(struct placeholder_table *t);
void placeholder_table_unref(struct placeholder_table **t);
const struct placeholder *placeholder_of(const struct placeholder_table *t, const struct agent *a,
                                         const struct credential *c);
/* Bytes at its beginning that all of its shape have ("ghp_"); 0: it has no shape. */
size_t placeholder_fixed(const struct placeholder *p);
/* Exact token -> entry, or NULL. */
const struct placeholder *placeholder_find(const struct placeholder_table *t, struct str token);
/* Has the shape and MAC of one of ours (of any time), though it is not in the table. */
bool placeholder_is_ours(const struct placeholder_table *t, struct str token);
/* Needles of all placeholders (id = index for placeholder_at). */
struct needles *placeholder_needles(const struct placeholder_table *t);
const struct placeholder *placeholder_at(const struct placeholder_table *t, unsigned id);
/* The first placeholder in text at or after `from`, live or one of ours of any time, whatever stands around it. Derived
 * ones are found by their shape, so the cost does not grow with their number. */
struct placeholder_hit {
    size_t at, n;
    const struct placeholder *ph; /* NULL: ours, but not live */
};
/* What only looks like one costs a MAC to be told apart, and a text may be nothing but that. So many are looked at in one head, message
 * or record (*doubts counts them, from 0); those behind them are taken for foreign: one that is not live opens nothing. Whatever is
 * live is found in any case. */
enum { PLACEHOLDER_DOUBTS_MAX = 32 };
bool placeholder_scan(const struct placeholder_table *t, struct str text, size_t from, unsigned *doubts, struct placeholder_hit *ret);
/* As long as finding one that is ours and not live, and counted like it. */
void placeholder_doubt(const struct placeholder_table *t, struct str token, unsigned *doubts);
/* No placeholder is shorter: a shorter text need not be scanned. None is longer, live or not. */
size_t placeholder_shortest(const struct placeholder_table *t);
size_t placeholder_longest(const struct placeholder_table *t);
size_t placeholder_count(const struct placeholder_table *t);
/* Copies text with every placeholder replaced by [CRED:name], one that is ours but not live by [CRED:?], also where
 * its characters are percent-encoded: for anything that is logged. */
void placeholder_redact(const struct placeholder_table *t, struct str text, unsigned *doubts, struct buf *out);

#endif
