/* SPDX-License-Identifier: Apache-2.0
 *
 * A real minter, served on a Unix socket by its own threads and asked by the real client (sidecar.c): env, file, a file
 * that changes, helpers that answer, refuse, lie, hang, flood, and what they see of our process. */
#include "base/clock.h"
#include "base/loop.h"
#include "base/secret.h"
#include "mint/minter.h"
#include "mint/sidecar.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

enum { SOURCES = 12 };

static struct {
    char dir[64], socket[108], file[108], script[SOURCES][160];
    struct str argv[SOURCES][3];
    struct minter_source sources[SOURCES];
    size_t n;
    struct minter *minter;
    struct loop *loop;
    struct sidecar_hub *hub;
    struct sidecar *sidecar;
    unsigned opened;
} M;

static int open_file(void *ctx, struct str credential, struct str path)
{
    char z[256];
    (void)ctx;
    (void)credential;
    M.opened++;
    snprintf(z, sizeof z, "%.*s", STR_ARG(path));
    return open(z, O_RDONLY | O_CLOEXEC);
}

static void write_file(const char *path, const char *text, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static struct minter_source *add(const char *name, enum minter_source_kind kind)
{
    struct minter_source *s = &M.sources[M.n++];
    *s = (struct minter_source) { .credential = str_c(name), .kind = kind, .ttl_ms = 600000, .value_fd = -1 };
    return s;
}

static void add_env(const char *name, const char *value)
{
    int fd = memfd_create("value", MFD_CLOEXEC);
    assert_int_equal(write(fd, value, strlen(value)), strlen(value));
    add(name, MINTER_ENV)->value_fd = fd;
}

/* A helper in shell: $rid, $end are there for its answer. */
static void add_exec(const char *name, const char *body)
{
    size_t i = M.n;
    struct minter_source *s = add(name, MINTER_EXEC);
    char text[2048], path[160];
    snprintf(path, sizeof path, "%s/%s.sh", M.dir, name);
    memcpy(M.script[i], path, sizeof path);
    snprintf(text, sizeof text,
             "#!/bin/sh\nread -r q\nrid=$(printf '%%s' \"$q\" | sed 's/.*\"request_id\":\"\\([^\"]*\\)\".*/\\1/')\n"
             "end=$(date -u -d '+300 seconds' +%%Y-%%m-%%dT%%H:%%M:%%SZ)\n%s\n",
             body);
    write_file(M.script[i], text, 0700);
    M.argv[i][0] = str_c(M.script[i]);
    M.argv[i][1] = STR("an argument");
    s->argv = M.argv[i];
    s->argc = 2;
}

#define HONEST                                                                                                         \
    "printf "                                                                                                          \
    "'{\"request_id\":\"%s\",\"lease_id\":\"H1\",\"expires_at\":\"%s\",\"value\":\"helper-value-0123456789\"}' "       \
    "\"$rid\" \"$end\""

static int start(void **state)
{
    (void)state;
    struct err err = { "" };
    snprintf(M.dir, sizeof M.dir, "/tmp/outgate-minter-XXXXXX");
    if (secret_init() || !mkdtemp(M.dir))
        return -1;
    snprintf(M.socket, sizeof M.socket, "%s/mint.sock", M.dir);
    snprintf(M.file, sizeof M.file, "%s/token", M.dir);
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    memcpy(a.sun_path, M.socket, sizeof a.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, (const struct sockaddr *)(const void *)&a, sizeof a) || listen(fd, 64))
        return -1;
    add_env("env", "env-value-0123456789\n");
    struct minter_source *file = add("file", MINTER_FILE);
    file->text = str_c(M.file);
    static const struct str only[] = { { "coder", 5 } };
    file->agents = only;
    file->nagents = 1;
    add_exec("honest", HONEST);
    add_exec("denies", "exit 77");
    add_exec("fails", "echo secret-in-stderr >&2; exit 3");
    add_exec("lies", "rid=other; " HONEST);
    add_exec("floods", "dd if=/dev/zero bs=65536 count=4 2>/dev/null");
    add_exec(
        "environ",
        "n=$(ls /proc/$$/fd | tr '\\n' '-'); v=\"$(env | cut -d= -f1 | sort | tr '\\n' '-')fds-$n$HOME-$#-$(pwd)\"\n"
        "printf '{\"request_id\":\"%s\",\"lease_id\":\"H2\",\"expires_at\":\"%s\",\"value\":\"%s\"}' \"$rid\" \"$end\" "
        "\"$v\"");
    add_exec("leaves", "sleep 300 & echo $! >"
                       "$0.pid\n" HONEST);
    add_exec("deaf", "exec 0<&-; " HONEST);
    add_exec("missing", "");
    unlink(M.script[M.n - 1]);
    struct minter_options o = { .listen_fd = fd,
                                .peer_uids = { geteuid() },
                                .npeer_uids = 1,
                                .sources = M.sources,
                                .nsources = M.n,
                                .open_file = open_file,
                                .home = STR("/nonexistent") };
    setenv("OUTGATE_TEST_SECRET", "must-not-be-inherited", 1);
    M.minter = minter_new(&o, &err);
    M.loop = loop_new();
    M.hub = sidecar_hub_new(M.loop, &err);
    struct sidecar_options so = {
        .name = STR("mint"), .socket = str_c(M.socket), .timeout_ms = 20000, .uid_given = true, .uid = geteuid()
    };
    M.sidecar = M.hub ? sidecar_new(M.hub, &so, &err) : NULL;
    if (!M.minter || !M.sidecar)
        print_error("%s\n", err.text);
    return M.minter && M.sidecar ? 0 : -1;
}

static int stop(void **state)
{
    (void)state;
    minter_free(&M.minter);
    sidecar_unref(&M.sidecar);
    sidecar_hub_free(&M.hub);
    loop_free(M.loop);
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf %s", M.dir);
    return system(cmd);
}

struct got {
    bool done;
    enum sidecar_result result;
    char value[400], why[128], lease[LEASE_ID_MAX + 1];
    int64_t expires_us;
};

static void on_answer(void *ctx, const struct sidecar_answer *a)
{
    struct got *g = ctx;
    g->done = true;
    g->result = a->result;
    snprintf(g->why, sizeof g->why, "%s", a->why ? a->why : "");
    if (!a->grant)
        return;
    snprintf(g->value, sizeof g->value, "%.*s", STR_ARG(a->grant->value));
    snprintf(g->lease, sizeof g->lease, "%.*s", STR_ARG(a->grant->lease_id));
    g->expires_us = a->grant->expires_us;
}

static void wait_for(const bool *done)
{
    uint64_t until = clock_mono_ms() + 15000;
    while (!*done && clock_mono_ms() < until)
        loop_run_once(M.loop, 50);
    assert_true(*done);
}

static struct got ask(const char *credential, const char *agent)
{
    struct got g = { 0 };
    struct sidecar_ask a = { .credential = str_c(credential),
                             .agent = str_c(agent),
                             .host = STR("api.test"),
                             .port = 443,
                             .method = STR("GET"),
                             .path = STR("/"),
                             .request_id = STR("rid-1"),
                             .min_ttl_s = 60 };
    assert_non_null(sidecar_lease(M.sidecar, &a, false, on_answer, &g));
    wait_for(&g.done);
    return g;
}

static void test_env(void **state)
{
    (void)state;
    struct got g = ask("env", "coder"), h = ask("env", "other");
    assert_int_equal(g.result, SIDECAR_GIVEN);
    assert_string_equal(g.value, "env-value-0123456789"); /* one LF taken off */
    assert_int_equal(strlen(g.lease), 32);
    assert_string_not_equal(g.lease, h.lease);
    assert_in_range((g.expires_us - clock_wall_us()) / 1000000, 598, 600);
}

static void test_unknown(void **state)
{
    (void)state;
    assert_int_equal(ask("nothing", "coder").result, SIDECAR_DENIED);
    assert_int_equal(ask("en", "coder").result, SIDECAR_DENIED);
    write_file(M.file, "file-value-0123456789", 0600);
    assert_int_equal(ask("file", "other").result, SIDECAR_DENIED);
    assert_int_equal(ask("file", "coder").result, SIDECAR_GIVEN);
}

static void test_file(void **state)
{
    (void)state;
    static const struct {
        const char *text, *value;
    } cases[] = {
        { "file-value-0123456789\n", "file-value-0123456789" },
        { "changed-value-0123456789", "changed-value-0123456789" },
        { "", NULL },
        { "\n", NULL },
        { "not UTF-8 \xff\xfe 0123456789", NULL },
        { "two\nlines-0123456789\n", NULL }, /* the client refuses it */
        { "crlf-value-0123456789\r\n", NULL },
        { "file-value-0123456789\n", "file-value-0123456789" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned opened = M.opened;
        write_file(M.file, cases[i].text, 0600);
        struct got g = ask("file", "coder");
        if ((g.result == SIDECAR_GIVEN) != (cases[i].value != NULL) ||
            (cases[i].value && strcmp(g.value, cases[i].value)))
            fail_msg("case %zu: %d %s", i, (int)g.result, g.value);
        assert_int_equal(M.opened, opened + 1); /* read anew each time */
    }
    unlink(M.file);
    assert_int_equal(ask("file", "coder").result, SIDECAR_BUSY);
    assert_int_equal(mkdir(M.file, 0700), 0);
    assert_int_equal(ask("file", "coder").result, SIDECAR_BUSY);
    assert_int_equal(rmdir(M.file), 0);
}

static void test_exec(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum sidecar_result result;
    } cases[] = {
        { "honest", SIDECAR_GIVEN }, { "denies", SIDECAR_DENIED }, { "fails", SIDECAR_BUSY },
        { "lies", SIDECAR_BUSY },    { "floods", SIDECAR_BUSY },   { "missing", SIDECAR_BUSY },
        { "deaf", SIDECAR_GIVEN },   { "honest", SIDECAR_GIVEN },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct got g = ask(cases[i].name, "coder");
        if (g.result != cases[i].result)
            fail_msg("%s: %d %s", cases[i].name, (int)g.result, g.why);
        if (g.result == SIDECAR_GIVEN) {
            assert_string_equal(g.value, "helper-value-0123456789");
            assert_string_equal(g.lease, "H1");
            assert_in_range((g.expires_us - clock_wall_us()) / 1000000, 297, 300); /* its own end, under the ttl */
        }
    }
}

/* A helper has a clean environment, stdin, stdout, stderr, its argument, and nothing else of ours. */
static void test_exec_environment(void **state)
{
    (void)state;
    struct got g = ask("environ", "coder");
    assert_int_equal(g.result, SIDECAR_GIVEN);
    assert_null(strstr(g.value, "OUTGATE"));
    assert_non_null(strstr(g.value, "HOME-LANG-"));
    assert_non_null(strstr(g.value, "PATH-"));
    assert_non_null(strstr(g.value, "/nonexistent-1-/"));
    const char *fds = strstr(g.value, "fds-");
    assert_non_null(fds);
    /* The shell's own: 10, the script, and 3, the pipe of the substitution that lists them. */
    if (strncmp(fds, "fds-0-1-10-2-3-/", 16) && strncmp(fds, "fds-0-1-2-3-/", 13))
        fail_msg("%s", fds);
}

/* What a helper leaves running ends with it. */
static void test_exec_group(void **state)
{
    (void)state;
    struct got g = ask("leaves", "coder");
    char path[200];
    int pid = 0;
    for (size_t i = 0; i < M.n; i++)
        if (str_eq(M.sources[i].credential, STR("leaves")))
            snprintf(path, sizeof path, "%s.pid", M.script[i]);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &pid), 1);
    fclose(f);
    assert_int_equal(g.result, SIDECAR_GIVEN); /* though it holds stdout open */
    uint64_t until = clock_mono_ms() + 5000;
    while (kill(pid, 0) == 0 && clock_mono_ms() < until)
        usleep(10000);
    assert_int_equal(kill(pid, 0), -1);
}

/* Many at once, on connections of their own. */
static void test_concurrent(void **state)
{
    (void)state;
    struct got g[40] = { 0 };
    for (size_t i = 0; i < 40; i++) {
        struct sidecar_ask a = { .credential = i % 2 ? STR("env") : STR("honest"),
                                 .agent = STR("coder"),
                                 .host = STR("api.test"),
                                 .port = 443,
                                 .method = STR("GET"),
                                 .path = STR("/"),
                                 .request_id = STR("rid-1"),
                                 .min_ttl_s = 60 };
        assert_non_null(sidecar_lease(M.sidecar, &a, false, on_answer, &g[i]));
    }
    for (size_t i = 0; i < 40; i++) {
        wait_for(&g[i].done);
        assert_int_equal(g[i].result, SIDECAR_GIVEN);
    }
}

static unsigned raw(const char *request, char *ret, size_t size)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    memcpy(a.sun_path, M.socket, sizeof a.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)(const void *)&a, sizeof a), 0);
    assert_int_equal(write(fd, request, strlen(request)), strlen(request));
    size_t n = 0;
    for (ssize_t k; n + 1 < size && (k = read(fd, ret + n, size - 1 - n)) > 0;)
        n += (size_t)k;
    ret[n] = 0;
    close(fd);
    unsigned status = 0;
    return sscanf(ret, "HTTP/1.1 %u", &status) == 1 ? status : 0;
}

#define CLOSE "Host: x\r\nConnection: close\r\n"

static void test_http(void **state)
{
    (void)state;
    static const struct {
        const char *request;
        unsigned status;
    } cases[] = {
        { "GET /v1/healthz HTTP/1.1\r\n" CLOSE "\r\n", 200 },
        { "POST /v1/healthz HTTP/1.1\r\n" CLOSE "Content-Length: 0\r\n\r\n", 405 },
        { "GET /v1/lease HTTP/1.1\r\n" CLOSE "\r\n", 405 },
        { "GET /v1/lease/abc HTTP/1.1\r\n" CLOSE "\r\n", 405 },
        { "DELETE /v1/lease/abc HTTP/1.1\r\n" CLOSE "\r\n", 204 },
        { "DELETE /v1/lease/ HTTP/1.1\r\n" CLOSE "\r\n", 404 },
        { "DELETE /v1/lease/a%2fb HTTP/1.1\r\n" CLOSE "\r\n", 404 },
        { "GET / HTTP/1.1\r\n" CLOSE "\r\n", 404 },
        { "POST /v1/lease HTTP/1.1\r\n" CLOSE "Content-Length: 2\r\n\r\n{}", 400 },
        { "POST /v1/lease HTTP/1.1\r\n" CLOSE "Content-Length: 3\r\n\r\nnot", 400 },
        { "POST /v1/lease HTTP/1.1\r\n" CLOSE "Content-Length: 91\r\n\r\n"
          "{\"version\":1,\"credential\":\"env\",\"agent\":\"a\",\"host\":\"h\",\"port\":443,\"request_id\":\"r\","
          "\"x\":\"1\"}",
          200 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char got[4096];
        unsigned status = raw(cases[i].request, got, sizeof got);
        if (status != cases[i].status)
            fail_msg("%s: %u\n%s", cases[i].request, status, got);
        assert_true(status == 200 || !strstr(got, "env-value"));
    }
}

/* Nobody but the listed users: a minter for another uid tells us nothing. */
static void test_peer(void **state)
{
    (void)state;
    struct err err;
    struct minter_source s = { .credential = STR("env"), .kind = MINTER_ENV, .ttl_ms = 1000 };
    for (uid_t extra = 0; extra < 2; extra++) { /* the deny, then its control */
        char keep[108], got[1024];
        memcpy(keep, M.socket, sizeof keep);
        snprintf(M.socket, sizeof M.socket, "%s/other%u.sock", M.dir, (unsigned)extra);
        struct sockaddr_un a = { .sun_family = AF_UNIX };
        memcpy(a.sun_path, M.socket, sizeof a.sun_path);
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(fd, (const struct sockaddr *)(const void *)&a, sizeof a) || listen(fd, 8), 0);
        s.value_fd = memfd_create("value", MFD_CLOEXEC);
        assert_int_equal(write(s.value_fd, "env-value-0123456789", 20), 20);
        struct minter_options o = { .listen_fd = fd,
                                    .peer_uids = { extra ? geteuid() : geteuid() + 1 },
                                    .npeer_uids = 1,
                                    .sources = &s,
                                    .nsources = 1 };
        struct minter *m = minter_new(&o, &err);
        assert_non_null(m);
        assert_int_equal(raw("GET /v1/healthz HTTP/1.1\r\n" CLOSE "\r\n", got, sizeof got), extra ? 200 : 403);
        minter_free(&m);
        memcpy(M.socket, keep, sizeof keep);
    }
}

static void test_bad_options(void **state)
{
    (void)state;
    struct minter_source bad[] = {
        { .credential = STR("x"), .kind = MINTER_EXEC, .value_fd = -1 },
        { .credential = STR("x"), .kind = MINTER_ENV, .value_fd = -1 },
    };
    for (size_t i = 0; i < 3; i++) {
        struct err err = { "" };
        if (i == 2) /* an empty variable */
            bad[1].value_fd = memfd_create("value", MFD_CLOEXEC);
        struct minter_options o = { .listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
                                    .sources = &bad[i ? 1 : 0],
                                    .nsources = 1 };
        assert_null(minter_new(&o, &err));
        assert_non_null(strstr(err.text, "credential x: "));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_env),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_exec),
        cmocka_unit_test(test_exec_environment),
        cmocka_unit_test(test_exec_group),
        cmocka_unit_test(test_concurrent),
        cmocka_unit_test(test_http),
        cmocka_unit_test(test_peer),
        cmocka_unit_test(test_bad_options),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
