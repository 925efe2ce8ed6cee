/* SPDX-License-Identifier: Apache-2.0
 *
 * env_listener: through which listener an agent's clients can come in with a proxy URL and be known as that agent. */
#ifndef DAEMON_ENV_LISTENER_H
#define DAEMON_ENV_LISTENER_H

#include "base/err.h"
#include "policy/config.h"

/* One that the agent claims, before one that nobody claims, each in the order written. NULL: there is none, and *err
 * says how the agent gets in instead. The source addresses of an agent are not looked at: from where it will come is
 * not known here. */
const struct config_listener *env_listener_of(const struct config *c, const struct agent *a, struct err *err);

#endif
