/* SPDX-License-Identifier: Apache-2.0
 *
 * outgate-mint's configuration: what is read, and every error at its place. */
#include "mint/mint_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define HEAD "version: 1\nsocket: mint.sock\n"
#define ONE  "credentials:\n  - {name: github, source: {file: token}}\n"

static void test_read(void **state)
{
    (void)state;
    struct diag d;
    diag_init(&d);
    struct mint_config *c =
        mint_config_parse(STR("m.yaml"), STR("/etc/mint"),
                          STR("version: 1\nsocket: mint.sock\npeer_uids: [61103, 0]\nkeeper: /run/keeper.sock\n"
                              "credentials:\n"
                              "  - {name: a, source: {file: token}, ttl: 5m, agents: [coder, other]}\n"
                              "  - {name: b, source: {env: B_TOKEN}}\n"
                              "  - name: c\n    source:\n      exec: [./helper, --flag, x y]\n"
                              "  - {name: d, source: {exec: [gh, auth, token]}}\n"),
                          &d);
    assert_non_null(c);
    assert_true(str_eq(c->socket, STR("/etc/mint/mint.sock")) && str_eq(c->keeper, STR("/run/keeper.sock")));
    assert_int_equal(c->npeer_uids, 2);
    assert_int_equal(c->peer_uids[0], 61103);
    assert_int_equal(c->nsources, 4);
    assert_int_equal(c->sources[0].kind, MINTER_FILE);
    assert_true(str_eq(c->sources[0].text, STR("/etc/mint/token")));
    assert_int_equal(c->sources[0].ttl_ms, 300000);
    assert_int_equal(c->sources[0].nagents, 2);
    assert_int_equal(c->sources[1].kind, MINTER_ENV);
    assert_true(str_eq(c->sources[1].text, STR("B_TOKEN")));
    assert_int_equal(c->sources[1].ttl_ms, MINT_TTL_DEFAULT_MS);
    assert_int_equal(c->sources[1].value_fd, -1);
    assert_int_equal(c->sources[2].argc, 3);
    assert_true(str_eq(c->sources[2].argv[0], STR("/etc/mint/./helper")) && str_eq(c->sources[2].argv[2], STR("x y")));
    assert_true(str_eq(c->sources[3].argv[0], STR("gh")));
    mint_config_free(&c);
    assert_null(c);
    diag_done(&d);
}

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error; /* NULL: fine (the control) */
    } cases[] = {
        { HEAD ONE, NULL },
        { "", "m.yaml:1:1: file: " },
        { "socket: s\n" ONE, "m.yaml:1:1: version: expected to be there" },
        { "version: 2\nsocket: s\n" ONE, "m.yaml:1:10: version: expected 1" },
        { "version: 1\n" ONE, "socket: expected to be there" },
        { HEAD, "credentials: expected to be there" },
        { HEAD "credentials: []\n", "m.yaml:3:14: credentials: expected a list of at least one" },
        { HEAD "surprise: 1\n" ONE, "m.yaml:3:1: surprise: expected one of version, " },
        { HEAD HEAD ONE, "version" },
        { HEAD "peer_uids: []\n" ONE, "peer_uids: expected a list of one to eight" },
        { HEAD "peer_uids: [root]\n" ONE, "m.yaml:3:13: peer_uids: expected a numeric user id" },
        { HEAD "peer_uids: [1,2,3,4,5,6,7,8,9]\n" ONE, "peer_uids: expected a list of one to eight" },
        { HEAD "peer_uids: [4294967295]\n" ONE, "numeric user id" },
        { HEAD "credentials:\n  - {source: {file: t}}\n", "m.yaml:4:5: name: expected to be there" },
        { HEAD "credentials:\n  - {name: x}\n", "source: expected to be there" },
        { HEAD "credentials:\n  - {name: x, source: {}}\n", "source: expected one of env, file, exec" },
        { HEAD "credentials:\n  - {name: x, source: {file: t, env: T}}\n", "source: expected one of env, file, exec" },
        { HEAD "credentials:\n  - {name: x, source: {value: ghs_0123456789}}\n", "value: expected one of env, file, exec, got an unknown key" },
        { HEAD "credentials:\n  - {name: x, source: ghs_0123456789}\n", "source: expected a map" },
        { HEAD "credentials:\n  - {name: x, source: {env: ghs-0123456789}}\n",
          "source.env: expected the name of an environment variable" },
        { HEAD "credentials:\n  - {name: x, source: {env: 1A}}\n", "source.env: expected" },
        { HEAD "credentials:\n  - {name: x, source: {exec: gh}}\n", "source.exec: expected a list" },
        { HEAD "credentials:\n  - {name: x, source: {exec: []}}\n", "source.exec: expected a list" },
        { HEAD "credentials:\n  - {name: x, source: {file: t}, ttl: 15}\n",
          "m.yaml:4:39: ttl: expected a duration of 1s to 1d, as 15m, got \"15\"" },
        { HEAD "credentials:\n  - {name: x, source: {file: t}, ttl: 0}\n", "ttl: expected a duration" },
        { HEAD "credentials:\n  - {name: x, source: {file: t}, ttl: 25h}\n", "ttl: expected a duration" },
        { HEAD "credentials:\n  - {name: x, source: {file: t}, agents: coder}\n", "agents: expected a list" },
        { HEAD "credentials:\n  - {name: x, source: {file: t}}\n  - {name: x, source: {file: u}}\n",
          "m.yaml:5:5: name: expected another name" },
        { "version: 1\nsocket: "
          "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
          "aaaaa\n" ONE,
          "socket: expected a path of at most 107" },
        { HEAD "credentials: *x\n", "m.yaml:3:" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct diag d;
        diag_init(&d);
        struct mint_config *c = mint_config_parse(STR("m.yaml"), STR("/etc/mint"), str_c(cases[i].text), &d);
        bool found = false;
        for (size_t k = 0; k < d.n; k++) {
            found |= cases[i].error && str_find(d.lines[k].text, str_c(cases[i].error)) >= 0;
            assert_true(str_find(d.lines[k].text, STR("ghs")) < 0); /* what is written is not repeated */
        }
        if ((c != NULL) != (cases[i].error == NULL) || (cases[i].error && !found))
            fail_msg("%s\ngot: %.*s", cases[i].text, d.n ? (int)d.lines[0].text.n : 0, d.n ? d.lines[0].text.p : "");
        mint_config_free(&c);
        diag_done(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_read), cmocka_unit_test(test_errors) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
