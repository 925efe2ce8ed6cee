/* SPDX-License-Identifier: Apache-2.0
 *
 * control_msg: one line of JSON each way on RUNTIME/control.sock.
 *   request  {"v":1,"command":"status","config":"/abs/outgate.yaml"} and, by command, "lease_id", "credential", "token",
 *            "agent"
 *   answer   {"ok":true,…} or {"ok":false,"code":"…","message":"…","errors":["FILE:LINE:COL: …"]}
 * `config` names the configuration that the caller means; a server that runs another one refuses. `token` is the
 * console token, wanted where agents and operators share a uid. */
#ifndef DAEMON_CONTROL_MSG_H
#define DAEMON_CONTROL_MSG_H

#include "base/buf.h"
#include "base/err.h"

#include <sys/types.h>

enum { CONTROL_LINE_MAX = 64 * 1024, CONTROL_ANSWER_MAX = 80 * 1024 * 1024 };

enum control_command {
    CONTROL_NONE = 0,
    CONTROL_STATUS,
    CONTROL_RELOAD,
    CONTROL_DRAIN,
    CONTROL_LEASE_LIST,
    CONTROL_LEASE_REVOKE,
    CONTROL_LOGIN, /* of `run`: lasts until the connection is closed */
    CONTROL_COMMAND_COUNT
};

struct control_request {
    enum control_command command;
    /* NUL-terminated, "" when absent; cut never: too long is an error */
    char config[4096], lease_id[160], credential[256], token[128], agent[128];
};

/* One line without its LF. 0 or -1 with the reason. Wipe a request that may hold a token. */
int control_request_parse(struct str line, struct control_request *ret, struct err *err);
/* Writes the line with its LF. */
int control_request_put(const struct control_request *r, struct buf *out);
const char *control_command_name(enum control_command c);
/* Does it change something or show leases: is the token wanted where uids are shared? */
bool control_command_guarded(enum control_command c);

/* May this peer ask this? Pure, for the table test. */
struct control_peer {
    uid_t uid;
    uid_t server_uid;
    bool separate;  /* the server was started as root: agents and operators have their own uids */
    bool agent_uid; /* some agent's unix_uid claim names the peer's uid */
};
enum control_access { CONTROL_REFUSED = 0, CONTROL_TOKEN, CONTROL_ALLOWED };
enum control_access control_access(const struct control_peer *p, enum control_command c);

#endif
