/* SPDX-License-Identifier: Apache-2.0
 *
 * files: reading and writing whole small files, the only way this folder touches them. Bounded, regular files only; a
 * write goes to a new name, is synced and renamed over the old one. */
#ifndef DAEMON_FILES_H
#define DAEMON_FILES_H

#include "base/buf.h"
#include "base/err.h"

#include <sys/types.h>

/* Appends the bytes of the file to out (whose maximum is the limit). 0 or -1 (unreadable, not a regular file, larger).
 */
int file_read(const char *path, struct buf *out, struct err *err);
int file_read_at(int dir_fd, const char *name, struct buf *out, struct err *err);
/* From an open descriptor, which stays open. what: for the message. */
int file_read_fd(int fd, const char *what, struct buf *out, struct err *err);
/* Replaces DIR/name by bytes with that mode and owner ((uid_t)-1: as it comes). Atomic and synced. */
int file_replace_at(int dir_fd, const char *name, struct str bytes, mode_t mode, uid_t uid, gid_t gid, struct err *err);
/* As file_replace_at, but an existing file is an error. */
int file_create_at(int dir_fd, const char *name, struct str bytes, mode_t mode, uid_t uid, gid_t gid, struct err *err);
/* A NUL-terminated copy; the caller frees it. Aborts without memory. */
char *z_of(struct str s);
char *z_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
