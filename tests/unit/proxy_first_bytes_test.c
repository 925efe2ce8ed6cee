/* SPDX-License-Identifier: Apache-2.0
 *
 * What the first bytes of a tunnel are: a row for each protocol, and for each pair that begins alike. */
#include "proxy/first_bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#define BYTES(s) { s, sizeof(s) - 1 }

static const struct {
    struct str in;
    enum first_bytes result;
    const char *name;
} cases[] = {
    { BYTES("\x16"), FIRST_TLS, NULL },
    { BYTES("\x16\x03\x01\x02\x00"), FIRST_TLS, NULL },
    { BYTES("G"), FIRST_HTTP, NULL },
    { BYTES("GET / HTTP/1.1\r\n"), FIRST_HTTP, NULL },
    { BYTES("!odd"), FIRST_HTTP, NULL },
    { BYTES("P"), FIRST_MORE, NULL },
    { BYTES("PO"), FIRST_HTTP, NULL },
    { BYTES("PR"), FIRST_MORE, NULL },
    { BYTES("PROPFIND /"), FIRST_HTTP, NULL },
    { BYTES("PRI * HTTP/2.0\r\n\r\nSM\r\n\r"), FIRST_MORE, NULL },
    { BYTES("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), FIRST_HTTP2, NULL },
    { BYTES("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4"), FIRST_HTTP2, NULL },
    { BYTES("PRI * HTTP/1.1\r\n"), FIRST_HTTP, NULL },
    { BYTES("S"), FIRST_MORE, NULL },
    { BYTES("SSH"), FIRST_MORE, NULL },
    { BYTES("SSH-2.0-OpenSSH_9.2p1\r\n"), FIRST_OTHER, "SSH" },
    { BYTES("SEARCH / HTTP/1.1\r\n"), FIRST_HTTP, NULL },
    { BYTES("0033git-upload-pack /x"), FIRST_OTHER, "git" },
    { BYTES("0033"), FIRST_MORE, NULL },
    { BYTES("0033 / HTTP/1.1\r\n"), FIRST_HTTP, NULL },
    { BYTES("*"), FIRST_MORE, NULL },
    { BYTES("*1\r\n$4\r\nPING\r\n"), FIRST_OTHER, "Redis" },
    { BYTES("* / HTTP/1.1\r\n"), FIRST_HTTP, NULL },
    { BYTES("AMQP\0\0\x09\x01"), FIRST_OTHER, "AMQP" },
    { BYTES("AMQPX /"), FIRST_HTTP, NULL },
    { BYTES("EHLO x\r\n"), FIRST_OTHER, "SMTP" },
    { BYTES("HELO x\r\n"), FIRST_OTHER, "SMTP" },
    { BYTES("HEAD / HTTP/1.1\r\n"), FIRST_HTTP, NULL },
    { BYTES("NICK bot\r\n"), FIRST_OTHER, "IRC" },
    { BYTES("@RSYNCD: 31.0\n"), FIRST_OTHER, "rsync" },
    { BYTES("\x13" "BitTorrent protocol"), FIRST_OTHER, "BitTorrent" },
    { BYTES("\0\0\0\x08\x04\xd2\x16\x2f"), FIRST_OTHER, "PostgreSQL" },
    { BYTES("\0\0\0\x08\x04\xd2\x16\x30"), FIRST_OTHER, "PostgreSQL" },
    { BYTES("\0\0\0\x54\0\x03\0\0user\0x"), FIRST_OTHER, "PostgreSQL" },
    { BYTES("\0\0\0\x08"), FIRST_OTHER, "PostgreSQL" }, /* in part */
    { BYTES("\x3a\1\0\0\1\0\0\0\0\0\0\0\xd4\x07\0\0"), FIRST_OTHER, "MongoDB" },
    { BYTES("\x3a\1\0\0\1\0\0\0\0\0\0\0\xdd\x07\0\0"), FIRST_OTHER, "MongoDB" },
    { BYTES("\x12\x01\0\x2f\0\0\x01\0"), FIRST_OTHER, "SQL Server" },
    { BYTES("\0\xf0\0\0\x01\0\0\0\x01\x3f\x01\x2c"), FIRST_OTHER, "Oracle" },
    { BYTES("\x04\0\0\0\x05\0\0\0\0"), FIRST_OTHER, "Cassandra" },
    { BYTES("\0\0\0\x1d\0\x12\0\x03"), FIRST_OTHER, "Kafka" },
    { BYTES("\x10\x0c\0\x04MQTT\x04\x02"), FIRST_OTHER, "MQTT" },
    { BYTES("\x10\x8c\x01\0\x04MQTT\x05"), FIRST_OTHER, "MQTT" },
    { BYTES("\x03\0\0\x13\x0e\xe0\0\0"), FIRST_OTHER, "RDP" },
    { BYTES("\0\0\0\x55\xffSMB"), FIRST_OTHER, "SMB" },
    { BYTES("\0\0\0\x55\xfeSMB"), FIRST_OTHER, "SMB" },
    { BYTES("\x30\x0c\x02\x01\x01\x60\x07"), FIRST_OTHER, "LDAP" },
    { BYTES("\0\x1d\xab\xcd\x01\0\0\x01\0\0"), FIRST_OTHER, "DNS over TCP" },
    { BYTES("\0\x0e\x38\1\2\3"), FIRST_OTHER, "OpenVPN" },
    { BYTES("\x05\x01\0"), FIRST_OTHER, "SOCKS" },
    { BYTES("\x80\x2e\x01\x03\x01"), FIRST_OTHER, "TLS in an SSLv2 hello" },
    { BYTES("\0"), FIRST_OTHER, NULL },
    { BYTES("\xff\xff"), FIRST_OTHER, NULL },
    { BYTES("\r\n"), FIRST_OTHER, NULL },
    { BYTES(" GET"), FIRST_OTHER, NULL },
    { BYTES("\x17\x03\x03"), FIRST_OTHER, NULL },
};

static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *name = NULL;
        char mem[64];
        memcpy(mem, cases[i].in.p, cases[i].in.n);
        enum first_bytes r = first_bytes_look(str_of(mem, cases[i].in.n), &name);
        bool same = (!name && !cases[i].name) || (name && cases[i].name && !strcmp(name, cases[i].name));
        if (r != cases[i].result || !same)
            fail_msg("row %zu: %d %s", i, (int)r, name ? name : "-");
    }
}

/* Any bytes come to an end: no printable beginning waits for more than the longest pattern. */
static void test_ends(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char mem[FIRST_BYTES_MOST];
        const char *name = NULL;
        for (size_t k = 0; k < sizeof mem; k++)
            mem[k] = cases[i].in.p[k % cases[i].in.n];
        assert_int_not_equal(first_bytes_look(str_of(mem, sizeof mem), &name), FIRST_MORE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
