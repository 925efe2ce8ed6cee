/* SPDX-License-Identifier: Apache-2.0
 *
 * env_vars: the variables of one agent: proxy, CA and placeholders (env_vars.def), for `env`, which prints them, and
 * `run`, which sets them. Holds no real credential; a proxy login is a token of this agent and part of the URL. */
#ifndef DAEMON_ENV_VARS_H
#define DAEMON_ENV_VARS_H

#include "daemon/gather.h"

struct env_var {
    char *name, *value;
};
struct env_vars {
    struct env_var *v;
    size_t n;
};

/* install_key: 32 bytes of the state_dir. login: the token of the proxy URL where the agent logs in; STR_NONE: the
 * agent's own, from its token_file. 0, or -1 (no listener that a URL can name; the install key does not fit). */
int env_vars_make(const struct gather *g, const struct agent *agent, struct str install_key, struct str login,
                  struct env_vars *ret, struct err *err);
void env_vars_done(struct env_vars *vars);
const char *env_vars_get(const struct env_vars *vars, const char *name);
/* In the format "sh", "docker", "json" or one of env_files.h; 0, or -1: a value cannot be written so (a line end for
 * docker). */
int env_vars_put(const struct env_vars *vars, struct str format, struct buf *out, struct err *err);

/* Is NAME one that must not reach the agent: an env source of some credential, or a known provider's variable, and no
 * placeholder replaces it? */
bool env_is_secret(const struct config *c, const struct env_vars *vars, const char *name);

#endif
