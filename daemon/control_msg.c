/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control_msg.h"

#include <jansson.h>

static const struct {
    const char *name;
    bool guarded;
} commands[CONTROL_COMMAND_COUNT] = {
    [CONTROL_NONE] = { "", true },
    [CONTROL_STATUS] = { "status", false },
    [CONTROL_RELOAD] = { "reload", false }, /* whoever shares the uid can write the file; the check decides */
    [CONTROL_DRAIN] = { "drain", true },
    [CONTROL_LEASE_LIST] = { "lease.list", true },
    [CONTROL_LEASE_REVOKE] = { "lease.revoke", true },
    [CONTROL_LOGIN] = { "login", false }, /* whoever shares the uid can read the agents' tokens */
};

const char *control_command_name(enum control_command c)
{
    return (unsigned)c < CONTROL_COMMAND_COUNT ? commands[c].name : "";
}

bool control_command_guarded(enum control_command c)
{
    return (unsigned)c >= CONTROL_COMMAND_COUNT || commands[c].guarded;
}

enum control_access control_access(const struct control_peer *p, enum control_command c)
{
    bool operator_uid = p->uid == 0 || p->uid == p->server_uid;
    if (p->agent_uid && !operator_uid)
        return CONTROL_REFUSED;
    bool shared = !p->separate || p->agent_uid;
    return shared && control_command_guarded(c) ? CONTROL_TOKEN : CONTROL_ALLOWED;
}

static int get_text(const json_t *root, const char *key, char *out, size_t size, struct err *err)
{
    const json_t *v = json_object_get(root, key);
    out[0] = '\0';
    if (!v)
        return 0;
    if (!json_is_string(v))
        return err_set(err, "%s: expected a string", key);
    size_t n = json_string_length(v);
    if (n >= size)
        return err_set(err, "%s: expected at most %zu bytes", key, size - 1);
    if (memchr(json_string_value(v), '\0', n))
        return err_set(err, "%s: a NUL is not allowed", key);
    memcpy(out, json_string_value(v), n + 1);
    return 0;
}

static int get_command(const json_t *root, enum control_command *ret, struct err *err)
{
    char name[32];
    if (get_text(root, "command", name, sizeof name, err))
        return -1;
    for (unsigned c = CONTROL_NONE + 1; c < CONTROL_COMMAND_COUNT; c++)
        if (strcmp(commands[c].name, name) == 0) {
            *ret = (enum control_command)c;
            return 0;
        }
    return err_set(err, "command: expected one of status, reload, drain, lease.list, lease.revoke, login");
}

int control_request_parse(struct str line, struct control_request *ret, struct err *err)
{
    if (line.n > CONTROL_LINE_MAX)
        return err_set(err, "the request is longer than %d bytes", CONTROL_LINE_MAX);
    json_t *root = json_loadb(line.p ? line.p : "", line.n, JSON_REJECT_DUPLICATES, NULL);
    const json_t *v = json_object_get(root, "v");
    int r = 0;
    *ret = (struct control_request) { 0 };
    if (!json_is_object(root))
        r = err_set(err, "expected one line with a JSON object");
    else if (!json_is_integer(v) || json_integer_value(v) != 1)
        r = err_set(err, "v: expected 1");
    else
        r = get_command(root, &ret->command, err) || get_text(root, "config", ret->config, sizeof ret->config, err) ||
                    get_text(root, "lease_id", ret->lease_id, sizeof ret->lease_id, err) ||
                    get_text(root, "credential", ret->credential, sizeof ret->credential, err) ||
                    get_text(root, "token", ret->token, sizeof ret->token, err) ||
                    get_text(root, "agent", ret->agent, sizeof ret->agent, err)
                ? -1
                : 0;
    json_decref(root);
    if (r == 0 && ret->command == CONTROL_LEASE_REVOKE && !ret->lease_id[0] == !ret->credential[0])
        r = err_set(err, "lease.revoke: expected either lease_id or credential");
    if (r == 0 && ret->command == CONTROL_LOGIN && !ret->agent[0])
        r = err_set(err, "login: expected an agent");
    return r;
}

int control_request_put(const struct control_request *q, struct buf *out)
{
    json_t *root = json_pack("{s:i, s:s}", "v", 1, "command", control_command_name(q->command));
    const struct {
        const char *key, *value;
    } texts[] = {
        { "config", q->config }, { "lease_id", q->lease_id }, { "credential", q->credential }, { "token", q->token },
        { "agent", q->agent }
    };
    for (size_t i = 0; root && i < sizeof texts / sizeof *texts; i++)
        if (texts[i].value[0])
            json_object_set_new(root, texts[i].key, json_string(texts[i].value));
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    int r = text ? buf_put(out, str_c(text)) || buf_putc(out, '\n') ? -1 : 0 : -1;
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
    return r;
}
