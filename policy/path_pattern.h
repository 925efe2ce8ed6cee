/* SPDX-License-Identifier: Apache-2.0
 *
 * path_pattern: what a rule or credential says about paths. `*` is any run of bytes within a segment, `**` any run
 * across segments; all else stands for itself. Both sides are compared with unreserved characters decoded (RFC
 * 3986 6.2.2.2) and the hex digits of what stays encoded in upper case; `%2F` is an ordinary character of its segment
 * and never equals `/`. Matching is a bit-parallel automaton: time is linear in the path whatever the pattern (no
 * backtracking). */
#ifndef POLICY_PATH_PATTERN_H
#define POLICY_PATH_PATTERN_H

#include "policy/config.h"

enum { PATH_PATTERN_MAX = 500 };

/* Checks the syntax and puts the canonical text into the arena. 0 or -1 with the reason ("expected …, got …"). */
int path_pattern_parse(struct str text, struct arena *a, struct path_pattern *ret, struct err *err);
/* `path`: the received bytes up to the first '?', as policy_path_check let them pass. A pattern that is not canonical
 * (was not made by path_pattern_parse) matches nothing it should not. */
bool path_pattern_matches(const struct path_pattern *p, struct str path);
/* The same with ASCII letters in any case: for deny rules, because the server may not tell /ADMIN from /admin. */
bool path_pattern_matches_nocase(const struct path_pattern *p, struct str path);
/* Every path that b matches is matched by a. May say false where a closer look would say true. */
bool path_pattern_covers(const struct path_pattern *a, const struct path_pattern *b);

#endif
