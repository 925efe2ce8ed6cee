/* SPDX-License-Identifier: Apache-2.0
 *
 * Golden messages: every tests/config/NAME.yaml is parsed and compiled. What must be said about it stands in the file,
 * one comment per line, in any order:
 *   #! LINE:COL: KEY: expected …, got …     an error
 *   #? LINE:COL: KEY: …                     a warning
 * A file without "#!" must give a snapshot. Side files are the fakes below, by the last part of their path. A case is
 * added without C. */
#include "policy/policy.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static const struct {
    const char *name, *bytes;
} fakes[] = {
    { "coder.token", "0123456789abcdef0123456789abcdef\n" },
    { "other.token", "Vq3t-YbQ9pZ_k2LmN8sRxw\n" },
    { "short.token", "0123456789abcdef\n" },
    { "hex31.token", "0123456789abcdef0123456789abcde\n" },
    { "same.token", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n" },
    { "lines.token", "0123456789abcdef0123456789abcdef\nx\n" },
    { "empty.token", "" },
    { "ca.pem", "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n" },
    { "empty.pem", "" },
    { "parent.login", "user:word\n" },
    { "bad.login", "userword\n" },
};

struct fake_files {
    struct side_file v[64];
    size_t n;
};

static void give_file(void *ctx, struct str path)
{
    struct fake_files *files = ctx;
    for (size_t i = 0; i < sizeof fakes / sizeof *fakes; i++)
        if (str_ends(path, str_c(fakes[i].name)) && files->n < 64)
            files->v[files->n++] = (struct side_file) { path, str_c(fakes[i].bytes) };
}

/* Parses and compiles; the snapshot or NULL. */
static struct policy *make(const char *name, struct str text, struct diag *diag)
{
    struct config *c = config_parse(str_c(name), STR("/etc/outgate"), text, diag);
    struct fake_files files = { .n = 0 };
    if (!c)
        return NULL;
    config_side_files(c, give_file, &files);
    return policy_new(c, files.v, files.n, diag);
}

static char *read_file(const char *path, size_t *ret_n)
{
    FILE *f = fopen(path, "rb");
    char *bytes = malloc(1 << 20);
    assert_non_null(f);
    assert_non_null(bytes);
    *ret_n = fread(bytes, 1, 1 << 20, f);
    fclose(f);
    return bytes;
}

/* Does the golden line say this about file `name`? */
static bool is_said(const struct diag *d, const char *name, bool error, struct str golden, bool *said)
{
    char full[1024];
    snprintf(full, sizeof full, "%s:%.*s", name, STR_ARG(golden));
    for (size_t i = 0; i < d->n; i++)
        if (!said[i] && d->lines[i].error == error && str_eq(d->lines[i].text, str_c(full))) {
            said[i] = true;
            return true;
        }
    return false;
}

static size_t check_file(const char *name)
{
    char path[512];
    size_t n, bad = 0, errors = 0;
    snprintf(path, sizeof path, "tests/config/%s", name);
    char *bytes = read_file(path, &n);
    struct diag diag;
    bool said[512] = { false };
    diag_init(&diag);
    struct policy *p = make(name, str_of(bytes, n), &diag);
    struct str rest = str_of(bytes, n), line;
    while (str_split(&rest, '\n', &line)) {
        bool error = str_starts(line, STR("#! "));
        if (!error && !str_starts(line, STR("#? ")))
            continue;
        errors += error;
        if (!is_said(&diag, name, error, str_from(line, 3), said)) {
            bad++;
            printf("%s: not said: %.*s\n", name, STR_ARG(line));
        }
    }
    for (size_t i = 0; i < diag.n; i++)
        if (!said[i]) {
            bad++;
            printf("%s: said but not expected: %s %s\n", name, diag.lines[i].error ? "error" : "warning",
                   diag.lines[i].text.p);
        }
    if (!p != (errors > 0)) {
        bad++;
        printf("%s: %s\n", name, p ? "gave a snapshot" : "gave none");
    }
    policy_unref(&p);
    diag_done(&diag);
    free(bytes);
    return bad;
}

static void test_golden(void **state)
{
    (void)state;
    DIR *d = opendir("tests/config");
    size_t n = 0, bad = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (!str_ends(str_c(e->d_name), STR(".yaml")))
            continue;
        n++;
        bad += check_file(e->d_name);
    }
    closedir(d);
    printf("%zu files\n", n);
    assert_true(n >= 30);
    assert_int_equal(bad, 0);
}

/* What an editor does not show. */
static void test_bytes(void **state)
{
    (void)state;
    static const struct {
        struct str text;
        const char *message; /* NULL: fine */
    } cases[] = {
        { STR("\xef\xbb\xbfversion: 1\n"), NULL },
        { STR("version: 1\r\nrules: []\r\n"), NULL },
        { STR("version: 1\n\0"), "t.yaml:2:1: yaml: expected text, got a NUL byte" },
        { STR("version: \"\\0\"\n"), "t.yaml:1:10: yaml: expected text, got a NUL byte in it" },
        { STR("\xff\xfev\0"), "t.yaml:1:4: yaml: expected text, got a NUL byte" },
        { STR("\xff\xfe\x31\x32"), "t.yaml:1:1: yaml: expected UTF-8, got UTF-16" },
        { STR("version: 1\nmode: \xff\n"),
          "t.yaml:2:7: yaml: expected well-formed YAML, got an error: invalid leading UTF-8 octet" },
        { STR(""), "t.yaml:1:1: file: expected a map that starts with \"version: 1\", got an empty file" },
        { STR("# nothing\n"), "t.yaml:1:1: file: expected a map that starts with \"version: 1\", got an empty file" },
        { STR("- 1\n"), "t.yaml:1:1: file: expected a map, got a list" },
        { STR("version: 1\n\tmode: enforce\n"),
          "t.yaml:2:1: yaml: expected well-formed YAML, got an error: found a tab "
          "character that violates indentation" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct diag diag;
        diag_init(&diag);
        struct policy *p = make("t.yaml", cases[i].text, &diag);
        if (!cases[i].message && !p)
            fail_msg("%zu: %s", i, diag.lines[0].text.p);
        if (cases[i].message) {
            assert_null(p);
            assert_string_equal(diag.lines[0].text.p, cases[i].message);
        }
        policy_unref(&p);
        diag_done(&diag);
    }
}

static void test_size_and_depth(void **state)
{
    (void)state;
    size_t n = CONFIG_MAX + 1;
    char *text = malloc(n);
    struct diag diag;
    assert_non_null(text);
    memset(text, '#', n);
    diag_init(&diag);
    assert_null(make("t.yaml", str_of(text, n), &diag));
    assert_string_equal(diag.lines[0].text.p, "t.yaml:1:1: yaml: expected at most 4194304 bytes, got 4194305");
    diag_done(&diag);
    /* 1,000 levels; a flat million of values */
    memset(text, '[', 1000);
    diag_init(&diag);
    assert_null(make("t.yaml", str_of(text, 1000), &diag));
    assert_non_null(strstr(diag.lines[0].text.p, "expected at most 24 levels, got more"));
    diag_done(&diag);
    for (size_t i = 0; i + 2 <= CONFIG_MAX; i += 2)
        memcpy(text + i, i ? "a," : "[ ", 2);
    diag_init(&diag);
    assert_null(make("t.yaml", str_of(text, CONFIG_MAX), &diag));
    assert_non_null(strstr(diag.lines[0].text.p, "expected at most 1000000 values, got more"));
    diag_done(&diag);
    free(text);
}

/* Messages are many or long without growing without end, and the count of errors is kept. */
static void test_many_errors(void **state)
{
    (void)state;
    enum { N = 3000 };
    char *text = malloc(64 * N);
    size_t n = 0;
    struct diag diag;
    assert_non_null(text);
    n += (size_t)sprintf(text, "version: 1\nrules:\n");
    for (int i = 0; i < N; i++)
        n += (size_t)sprintf(text + n, "  - {name: r%d, hosts: [a.test], action: maybe}\n", i);
    diag_init(&diag);
    assert_null(make("t.yaml", str_of(text, n), &diag));
    assert_int_equal(diag.errors, N);
    assert_int_equal(diag.n, 500);
    diag_done(&diag);
    free(text);
}

/* In the order of the file, whatever was looked at first: credentials are before rules here. */
static void test_sorted(void **state)
{
    (void)state;
    static const unsigned places[][2] = { { 5, 25 }, { 6, 25 }, { 8, 24 }, { 8, 31 } };
    struct diag diag;
    diag_init(&diag);
    assert_null(make("t.yaml",
                     STR("version: 1\nagents:\n  - {name: coder, identify: [{source: 10.77.0.2/32}]}\nrules:\n"
                         "  - {name: r1, agents: [one], hosts: [a.test], action: allow}\n"
                         "  - {name: r2, agents: [two], hosts: [b.test], action: allow}\n"
                         "credentials:\n  - {name: c, agents: [three, four], hosts: [a.test], slots: [\"basic:user\"], source: {env: X}}\n"),
                     &diag));
    assert_int_equal(diag.n, 4);
    assert_int_equal(diag.lines[0].at.line, 8); /* as they came: or there is nothing to sort */
    diag_sort(&diag);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(diag.lines[i].at.line, places[i][0]);
        assert_int_equal(diag.lines[i].at.col, places[i][1]);
    }
    diag_done(&diag);
}

/* Whatever is private in the file is in no message. */
static void test_no_secret_in_messages(void **state)
{
    (void)state;
    static const struct str cases[] = {
        STR("version: 1\ncredentials:\n  - {name: c, agents: [a], hosts: [a.test], slots: [basic:user], source: "
            "TOPSECRET}\n"),
        STR("version: 1\ncredentials:\n  - {name: c, agents: [a], hosts: [a.test], slots: [basic:user], source: {env: "
            "TOP-SECRET}}\n"),
        STR("version: 1\ncredentials:\n  - {name: c, source: {file: [TOPSECRET]}}\n"),
        STR("version: 1\ncredentials: [TOPSECRET]\n"),
        STR("version: 1\nagents:\n  - {name: a, identify: [{login: TOPSECRET}]}\n"),
        STR("version: 1\nagents:\n  - {name: a, identify: [{login: {user: a, token_file: ~TOPSECRET}}]}\n"),
        STR("version: 1\nagents:\n  - {name: a, identify: [{login: {user: a, token: TOPSECRET}}]}\n"),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct diag diag;
        diag_init(&diag);
        assert_null(make("t.yaml", cases[i], &diag));
        assert_true(diag.errors > 0);
        for (size_t k = 0; k < diag.n; k++)
            assert_null(strstr(diag.lines[k].text.p, "SECRET"));
        diag_done(&diag);
    }
}

/* The reference names every key that the parser knows, and docs/CONFIG.md, where it is there, is that text. */
static void test_doc(void **state)
{
    (void)state;
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    config_print_doc(f);
    fclose(f);
    static const char *const keys[] = { "state_dir",       "token_file", "allow_addresses",
                                        "max_occurrences", "head_bytes", "peer_uid" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_non_null(strstr(text, keys[i]));
    if (!access("docs/CONFIG.md", R_OK)) {
        size_t m;
        char *file = read_file("docs/CONFIG.md", &m);
        if (!str_eq(str_of(text, n), str_of(file, m)))
            fail_msg("docs/CONFIG.md is not what config_print_doc prints");
        free(file);
    }
    free(text);
}

static void count_file(void *ctx, struct str path)
{
    assert_true(str_starts(path, STR("/")) || str_eq(path, STR("system")));
    ++*(size_t *)ctx;
}

static void test_values(void **state)
{
    (void)state;
    size_t n, files = 0;
    char *bytes = read_file("tests/config/sample.yaml", &n);
    struct diag diag;
    diag_init(&diag);
    struct config *c = config_parse(STR("sample.yaml"), STR("/etc/outgate"), str_of(bytes, n), &diag);
    assert_non_null(c);
    assert_true(str_eq(c->state_dir, STR("/etc/outgate/state")));
    assert_null(c->runtime_dir.p);
    assert_int_equal(c->nproxy, 2);
    assert_int_equal(c->proxy[0].port, 3128);
    assert_int_equal(c->proxy[1].kind, LISTENER_UNIX);
    assert_true(str_eq(c->proxy[1].path, STR("coder.sock")));
    struct arena a;
    arena_init(&a, 4096);
    assert_true(str_eq(config_listener_path(&c->proxy[1], STR("/run/outgate"), &a), STR("/run/outgate/coder.sock")));
    arena_done(&a);
    assert_int_equal(c->nupstreams, 1);
    assert_int_equal(c->upstreams[0].kind, UPSTREAM_SYSTEM);
    assert_string_equal(c->hosts[0].host.name, "api.test");
    assert_int_equal(c->agents[0].nclaims, 4);
    assert_true(str_eq(c->agents[0].claims[1].token_file, STR("/etc/outgate/coder.token")));
    assert_true(c->rules[0].https && !c->rules[0].http);
    assert_int_equal(c->rules[0].connect_ms, 10000);
    assert_int_equal(c->rules[0].idle_ms, 300000);
    assert_int_equal(c->rules[0].total_ms, 0);
    assert_int_equal(c->credentials[0].slots[0].kind, SLOT_HEADER);
    assert_int_equal(c->credentials[0].max_ttl_ms, 900000);
    assert_int_equal(c->sidecars[0].timeout_ms, 5000);
    assert_int_equal(c->audit.segment_bytes, 256u << 20);
    assert_int_equal(c->audit.keep_ms, (uint64_t)90 * 86400000);
    assert_int_equal(c->ask_hold_ms, 8000);
    assert_int_equal(c->limits.head_bytes, 65536);
    config_side_files(c, count_file, &files);
    assert_int_equal(files, 2);
    config_free(c);
    diag_done(&diag);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_size_and_depth),
        cmocka_unit_test(test_many_errors),
        cmocka_unit_test(test_sorted),
        cmocka_unit_test(test_no_secret_in_messages),
        cmocka_unit_test(test_doc),
        cmocka_unit_test(test_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
