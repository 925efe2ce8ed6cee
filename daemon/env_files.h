/* SPDX-License-Identifier: Apache-2.0
 *
 * env_files: the agent's settings for clients that read a file where others read a variable. wget knows no variable for
 * its CA, apt neither; both know one for a file of settings. So the trust folder holds such files, with the CA and
 * nothing that is secret, and `env` prints whole ones, with the proxy, to be put where root's apt or a fixed $HOME has
 * them. */
#ifndef DAEMON_ENV_FILES_H
#define DAEMON_ENV_FILES_H

#include "daemon/env_vars.h"
#include "policy/config.h"

enum env_file { ENV_FILE_WGETRC, ENV_FILE_APT, ENV_FILES };
/* "wgetrc", "apt"; false: none of these. */
bool env_file_parse(struct str format, enum env_file *ret);

/* The path of the trust folder's file for an agent to whom that folder (STATE_DIR/trust) is `folder`; the caller frees
 * it. The file holds the path of the bundle, so there is one for each such name of the folder. */
char *env_file_path(enum env_file file, struct str folder, struct str state_dir);
/* (Re)writes those files, where they differ: for agents that know the folder as STATE_DIR/trust, and for every agent of
 * a configuration. */
int env_files_write_own(int state_fd, struct str state_dir, struct err *err);
int env_files_write(int state_fd, const struct config *config, struct err *err);

/* A whole file with what the variables say. -1: a value cannot be written so. */
int env_file_put(enum env_file file, const struct env_vars *vars, struct buf *out, struct err *err);

#endif
