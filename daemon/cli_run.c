/* SPDX-License-Identifier: Apache-2.0
 *
 * `outgate run`: CMD with the agent's variables. Everything that would hold a real credential is taken out of what CMD
 * inherits, and named. This is a convenience for one's own machine, not a boundary, and it says so. When no server
 * answers, one is started for the time of the command, in a process group of its own, so that ^C reaches CMD alone. */
#include "base/clock.h"
#include "daemon/cli_agent.h"
#include "daemon/control_client.h"
#include "daemon/files.h"
#include "daemon/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { START_MS = 20000, LOOK_MS = 30, STOP_MS = 35000 };

extern char **environ;

static volatile sig_atomic_t command_pid;

static void pass_on(int signum)
{
    if (command_pid > 0)
        kill((pid_t)command_pid, signum);
}

/* Is a server there that is ready and runs this configuration? 1 yes, 0 not (yet), -1 another configuration's. */
static int server_answers(const char *runtime, const char *config)
{
    struct control_request q = { .command = CONTROL_STATUS };
    struct err err;
    json_t *root = NULL;
    snprintf(q.config, sizeof q.config, "%s", config);
    if (control_ask(runtime, &q, &root, &err))
        return 0;
    const char *code = json_string_value(json_object_get(root, "code"));
    const char *state = json_string_value(json_object_get(root, "state"));
    int r = code && strcmp(code, "other_config") == 0 ? -1 : state && strcmp(state, "running") == 0;
    json_decref(root);
    return r;
}

static pid_t start_server(const char *config)
{
    pid_t parent = getpid(), pid = fork();
    if (pid)
        return pid;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(126);
    int null_fd = open("/dev/null", O_RDWR);
    if (null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(2, 1) < 0)
        _exit(126);
    execl("/proc/self/exe", "outgate", "serve", "-c", config, (char *)NULL);
    _exit(127);
}

/* Waits until it is ready. 0 or the exit status. */
static int await_server(pid_t pid, const char *runtime, const char *config)
{
    int status;
    for (uint64_t end = clock_mono_ms() + START_MS; clock_mono_ms() < end; poll(NULL, 0, LOOK_MS)) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return cli_fail(CLI_UNREADABLE, "run: the private server did not start");
        if (server_answers(runtime, config) > 0)
            return 0;
    }
    kill(pid, SIGTERM);
    waitpid(pid, &status, 0);
    return cli_fail(CLI_UNREACHABLE, "run: the private server is not ready after %d s", START_MS / 1000);
}

static void stop_server(pid_t pid)
{
    int status;
    kill(pid, SIGTERM);
    for (uint64_t end = clock_mono_ms() + STOP_MS; clock_mono_ms() < end; poll(NULL, 0, LOOK_MS))
        if (waitpid(pid, &status, WNOHANG) == pid)
            return;
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
}

static bool logs_in(const struct agent *a)
{
    for (size_t i = 0; i < a->nclaims; i++)
        if (a->claims[i].kind == CLAIM_LOGIN)
            return true;
    return false;
}

/* The variables, with a login that the server forgets when *ret_fd is closed, so that CMD never sees the agent's own
 * token. 0 or the exit status. */
static int log_in(struct agent_view *v, const char *runtime, int *ret_fd)
{
    struct control_request q = { .command = CONTROL_LOGIN };
    struct err err;
    json_t *root = NULL;
    if (!logs_in(v->agent))
        return agent_view_vars(v, STR_NONE);
    snprintf(q.config, sizeof q.config, "%s", v->g.path);
    snprintf(q.agent, sizeof q.agent, "%.*s", STR_ARG(v->agent->name));
    if (control_ask_held(runtime, &q, &root, ret_fd, &err))
        return cli_fail(CLI_UNREACHABLE, "run: no login: %s", err.text);
    const char *token = json_string_value(json_object_get(root, "token"));
    const char *message = json_string_value(json_object_get(root, "message"));
    int r = token ? agent_view_vars(v, str_c(token))
                  : cli_fail(CLI_UNREACHABLE, "run: no login: %s", message ? message : "the server gave none");
    json_decref(root);
    return r;
}

/* What CMD inherits: ours without the secrets, and the agent's variables on top. */
static char **environment(const struct agent_view *v)
{
    size_t n = 0, kept = 0;
    while (environ[n])
        n++;
    char **env = calloc(n + v->vars.n + 1, sizeof *env);
    if (!env)
        abort();
    for (size_t i = 0; i < n; i++) {
        size_t len = strcspn(environ[i], "=");
        char *name = z_of(str_of(environ[i], len));
        if (env_is_secret(v->g.config, &v->vars, name))
            fprintf(stderr, "outgate: run: %s is not passed on: no placeholder replaces it\n", name);
        else if (!env_vars_get(&v->vars, name))
            env[kept++] = z_of(str_c(environ[i]));
        free(name);
    }
    for (size_t i = 0; i < v->vars.n; i++)
        env[kept++] = z_printf("%s=%s", v->vars.v[i].name, v->vars.v[i].value);
    /* Our own block holds the real values: CMD may look at its parent's. */
    for (size_t i = 0; i < n; i++)
        explicit_bzero(environ[i], strlen(environ[i]));
    environ = env;
    return env;
}

static int run_command(const struct cli *cli, char **env)
{
    static const int forwarded[] = { SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 };
    for (size_t i = 0; i < sizeof forwarded / sizeof *forwarded; i++)
        signal(forwarded[i], pass_on);
    /* The terminal sends these to CMD as well, which is in our group. */
    signal(SIGINT, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGINT, SIG_DFL);
        signal(SIGQUIT, SIG_DFL);
        for (size_t i = 0; i < sizeof forwarded / sizeof *forwarded; i++)
            signal(forwarded[i], SIG_DFL);
        execvpe(cli->args[0], cli->args, env);
        int saved = errno;
        fprintf(stderr, "outgate: run: %s: %s\n", cli->args[0], strerror(saved));
        _exit(saved == ENOENT ? 127 : 126);
    }
    if (pid < 0)
        return cli_fail(CLI_UNREADABLE, "run: cannot start a process: %s", strerror(errno));
    command_pid = pid;
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return cli_fail(CLI_UNREADABLE, "run: cannot wait: %s", strerror(errno));
    command_pid = 0;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int run(const struct cli *cli, struct agent_view *v, const char *runtime)
{
    pid_t server = 0;
    int login_fd = -1;
    int answers = server_answers(runtime, v->g.path);
    if (answers < 0)
        return cli_fail(CLI_UNREACHABLE,
                        "run: the server in %s runs another configuration: stop it, or set another runtime_dir",
                        runtime);
    if (answers == 0) {
        server = start_server(v->g.path);
        int r = server < 0 ? cli_fail(CLI_UNREADABLE, "run: cannot start a server")
                           : await_server(server, runtime, v->g.path);
        if (r)
            return r;
    }
    int status = log_in(v, runtime, &login_fd);
    if (status == 0) {
        fprintf(stderr, "outgate: run: this is no boundary: the command can leave around the proxy and can read what "
                        "this user can read\n");
        status = run_command(cli, environment(v));
    }
    if (login_fd >= 0)
        close(login_fd);
    if (server)
        stop_server(server);
    return status;
}

int cli_run(const struct cli *cli)
{
    struct agent_view v;
    struct err err;
    if (cli->sandbox)
        return cli_fail(CLI_USAGE, "run: --sandbox: this build lacks sandboxes; without it there is no boundary");
    int r = agent_view_make(cli, &v);
    char *runtime = r == 0 ? runtime_path(v.g.config, &err) : NULL;
    if (r == 0 && !runtime)
        r = cli_fail(CLI_UNREADABLE, "%s", err.text);
    if (r == 0)
        r = run(cli, &v, runtime);
    free(runtime);
    agent_view_done(&v);
    return r;
}
