/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control_client.h"

#include "daemon/files.h"
#include "daemon/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <termios.h>
#include <unistd.h>

enum { ANSWER_S = 40 };

static int exchange(int fd, const struct control_request *q, struct buf *in, struct err *err)
{
    struct buf out;
    buf_init(&out, CONTROL_LINE_MAX);
    out.wipe = true;
    int r = control_request_put(q, &out);
    struct str line = buf_str(&out);
    while (r == 0 && line.n) {
        ssize_t n = send(fd, line.p, line.n, MSG_NOSIGNAL);
        if (n <= 0)
            r = -1;
        else
            line = str_from(line, (size_t)n);
    }
    buf_done(&out);
    while (r == 0 && str_find_char(buf_str(in), '\n') < 0) {
        char *p = buf_reserve(in, 65536);
        ssize_t n = p ? recv(fd, p, 65536, 0) : -1;
        if (n < 0 && p && errno == EINTR)
            continue;
        if (n <= 0)
            r = -1;
        else
            buf_wrote(in, (size_t)n);
    }
    return r ? err_set(err, "the server did not answer") : 0;
}

int control_ask_held(const char *runtime, struct control_request *q, json_t **ret, int *ret_fd, struct err *err)
{
    char *path = z_printf("%s/control.sock", runtime);
    int fd = unix_connect_at(AT_FDCWD, path, SOCK_STREAM);
    if (fd < 0)
        err_set(err, errno == EACCES ? "%s: not permitted: be root or in the group outgate" : "no server answers at %s",
                path);
    free(path);
    if (fd < 0)
        return -1;
    struct timeval limit = { .tv_sec = ANSWER_S };
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    struct buf in;
    buf_init(&in, CONTROL_ANSWER_MAX);
    in.wipe = true;
    int r = exchange(fd, q, &in, err);
    json_t *root = r == 0 ? json_loadb(buf_str(&in).p, buf_size(&in), JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    buf_done(&in);
    if (r == 0 && !json_is_object(root)) {
        json_decref(root);
        r = err_set(err, "the server's answer cannot be read: is it another version?");
    }
    if (r) {
        close(fd);
        return r;
    }
    *ret = root;
    *ret_fd = fd;
    return 0;
}

int control_ask(const char *runtime, struct control_request *q, json_t **ret, struct err *err)
{
    int fd;
    if (control_ask_held(runtime, q, ret, &fd, err))
        return -1;
    close(fd);
    return 0;
}

/* From the terminal itself, whatever stdin is: a program cannot type it. */
static int ask_token(char *out, size_t size)
{
    FILE *tty = fopen("/dev/tty", "r+e");
    struct termios old, quiet;
    if (!tty || tcgetattr(fileno(tty), &old)) {
        if (tty)
            fclose(tty);
        return cli_fail(CLI_UNREADABLE,
                        "agents and operators share a uid here: the console token must be typed at a terminal");
    }
    quiet = old;
    quiet.c_lflag &= ~(tcflag_t)ECHO;
    tcsetattr(fileno(tty), TCSAFLUSH, &quiet);
    fputs("console token (state_dir/keys/console.token): ", tty);
    fflush(tty);
    bool got = fgets(out, (int)size, tty) != NULL;
    tcsetattr(fileno(tty), TCSAFLUSH, &old);
    fputc('\n', tty);
    fclose(tty);
    out[strcspn(out, "\n")] = '\0';
    return got ? 0 : cli_fail(CLI_UNREADABLE, "no token was typed");
}

static int status_of(const char *code)
{
    return strcmp(code, "other_config") == 0 || strcmp(code, "unavailable") == 0 ? CLI_UNREACHABLE
           : strcmp(code, "usage") == 0                                          ? CLI_USAGE
           : strcmp(code, "config_errors") == 0                                  ? CLI_NO
                                                                                 : CLI_UNREADABLE;
}

static const char *text_of(const json_t *root, const char *key)
{
    const char *s = json_string_value(json_object_get(root, key));
    return s ? s : "";
}

struct target {
    char *runtime;
    struct diag diag; /* what is wrong with the file, shown when no server answers */
    bool broken;
};

static int find_target(const struct cli *cli, struct control_request *q, struct target *t)
{
    struct gather g = { 0 };
    struct err err;
    int r = 0;
    *t = (struct target) { 0 };
    diag_init(&t->diag);
    if (cli->config) {
        t->broken = gather_config(&g, cli->config, &t->diag) != 0;
        if (t->broken && !g.was_read) {
            diag_print(&t->diag, 2, true);
            r = CLI_UNREADABLE;
        } else {
            snprintf(q->config, sizeof q->config, "%s", g.path);
        }
    }
    if (r == 0 && t->broken)
        t->runtime = gather_guess(&g, "runtime_dir"); /* which the handshake confirms */
    if (r == 0 && !t->runtime)
        t->runtime = runtime_path(g.config, &err);
    if (r == 0 && !t->runtime)
        r = cli_fail(CLI_UNREADABLE, "%s", err.text);
    if (cli->config)
        gather_done(&g);
    return r;
}

static void target_done(struct target *t)
{
    free(t->runtime);
    diag_done(&t->diag);
}

static int ask_or_fail(const struct target *t, struct control_request *q, json_t **ret)
{
    struct err err;
    if (control_ask(t->runtime, q, ret, &err) == 0)
        return 0;
    if (t->broken)
        diag_print(&t->diag, 2, true);
    return cli_fail(t->broken ? CLI_UNREADABLE : CLI_UNREACHABLE, "%s", err.text);
}

int control_print_json(const json_t *root)
{
    char *text = json_dumps(root, JSON_INDENT(2));
    if (text)
        printf("%s\n", text);
    free(text);
    return text ? CLI_OK : CLI_UNREADABLE;
}

static int print_refusal(const struct cli *cli, const json_t *root, const char *runtime)
{
    size_t i;
    const json_t *line;
    if (cli->json)
        control_print_json(root);
    json_array_foreach(json_object_get(root, "errors"), i, line)
        fprintf(stderr, "%s\n", json_string_value(line) ? json_string_value(line) : "");
    const char *code = text_of(root, "code");
    if (strcmp(code, "other_config") == 0)
        return cli_fail(status_of(code), "%s: the server in %s runs %s", text_of(root, "message"), runtime,
                        text_of(root, "config"));
    return cli_fail(status_of(code), "%s", text_of(root, "message"));
}

int control_command(const struct cli *cli, struct control_request *q, json_t **ret)
{
    struct target t;
    json_t *root = NULL;
    int r = find_target(cli, q, &t);
    if (r == 0)
        r = ask_or_fail(&t, q, &root);
    if (r == 0 && strcmp(text_of(root, "code"), "token_required") == 0) {
        json_decref(root);
        root = NULL;
        r = ask_token(q->token, sizeof q->token);
        if (r == 0)
            r = ask_or_fail(&t, q, &root);
        explicit_bzero(q->token, sizeof q->token);
    }
    if (r == 0 && !json_is_true(json_object_get(root, "ok")))
        r = print_refusal(cli, root, t.runtime);
    target_done(&t);
    if (r)
        json_decref(root);
    else
        *ret = root;
    return r;
}
