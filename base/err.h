/* SPDX-License-Identifier: Apache-2.0
 *
 * err: one error message on its way up. A function that can fail returns 0 or a negative code and takes a struct err *
 * last (NULL is allowed: the caller does not want the words). The message says what was expected, what came, and what
 * to do; it never holds a secret. Only the top prints. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stdarg.h>
#include <stddef.h>

struct err {
    char text[480];
};

/* Formats the message and returns -1, so that `return err_set(err, "…")` reads well. */
int err_set(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* As err_set, with ": " and the words for errno appended. */
int err_set_errno(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Puts "prefix: " before what is there; returns -1. */
int err_prefix(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
