/* SPDX-License-Identifier: Apache-2.0
 *
 * sealed: bytes handed from one process to others in a memfd that nobody can change any more. */
#ifndef BASE_SEALED_H
#define BASE_SEALED_H

#include "base/err.h"
#include "base/str.h"

/* A new memfd (close-on-exec) that holds the bytes, fully sealed. The descriptor, or -1. */
int sealed_new(const char *name, struct str bytes, struct err *err);
/* Checks that fd is a memfd sealed against write, shrink and grow and at most max bytes, and maps it read-only.
 * Unmap with sealed_unmap. 0 or -1. */
int sealed_map(int fd, size_t max, struct str *ret, struct err *err);
void sealed_unmap(struct str bytes);

#endif
