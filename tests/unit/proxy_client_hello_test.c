/* SPDX-License-Identifier: Apache-2.0
 *
 * The name in a ClientHello: OpenSSL's own, in any number of pieces and records, and what two readers could read differently. */
#include "proxy/client_hello.h"

#include <openssl/ssl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MAX = 65536 };

static struct client_hello_said said;

static enum client_hello read_hello(struct str bytes, size_t max, char *ret_name, size_t size)
{
    struct buf scratch;
    const char *why = NULL;
    said = (struct client_hello_said) { .sni = STR_NONE };
    char *copy = malloc(bytes.n ? bytes.n : 1); /* exact, for the sanitizer to see a byte too far */
    memcpy(copy, bytes.p, bytes.n);
    buf_init(&scratch, 1 << 20);
    struct client_hello_walk walk = { 0 };
    enum client_hello r = client_hello_read(&walk, str_of(copy, bytes.n), max, &scratch, &said, &why);
    assert_int_equal(r == HELLO_BAD, why != NULL);
    if (r != HELLO_MORE) /* and the next one begins anew */
        assert_int_equal(walk.at | walk.have | walk.want | walk.head, 0);
    snprintf(ret_name, size, "%.*s", STR_ARG(r == HELLO_READY && said.sni.p ? said.sni : STR("")));
    buf_done(&scratch);
    free(copy);
    return r;
}

static struct str openssl_hello(const char *name, int version, char *mem, size_t size)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_max_proto_version(ctx, version);
    SSL *ssl = SSL_new(ctx);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl, in, out);
    SSL_set_connect_state(ssl);
    if (name)
        SSL_set_tlsext_host_name(ssl, (char *)(uintptr_t)name);
    SSL_do_handshake(ssl);
    int n = BIO_read(out, mem, (int)size);
    assert_true(n > 0);
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    return str_of(mem, (size_t)n);
}

/* The same message in records of at most k bytes. */
static void split(struct str hello, size_t k, struct buf *out)
{
    struct str body = str_from(hello, 5);
    buf_reset(out);
    while (body.n) {
        size_t n = body.n < k ? body.n : k;
        const char head[5] = { 22, 3, 1, (char)(n >> 8), (char)n };
        buf_put(out, str_of(head, sizeof head));
        buf_put(out, str_sub(body, 0, n));
        body = str_from(body, n);
    }
}

static void test_openssl(void **state)
{
    (void)state;
    static const char *const names[] = { "api.test", "a", NULL };
    for (size_t i = 0; i < 3; i++)
        for (int v = 0; v < 2; v++) {
            char mem[4096], name[300];
            struct str hello = openssl_hello(names[i], v ? TLS1_2_VERSION : TLS1_3_VERSION, mem, sizeof mem);
            for (size_t n = 0; n < hello.n; n++)
                assert_int_equal(read_hello(str_sub(hello, 0, n), MAX, name, sizeof name), HELLO_MORE);
            assert_int_equal(read_hello(hello, MAX, name, sizeof name), HELLO_READY);
            assert_string_equal(name, names[i] ? names[i] : "");
            assert_int_equal(said.bytes, hello.n);
            assert_false(said.hides_name);
            struct buf pieces;
            buf_init(&pieces, 1 << 20);
            for (size_t k = 1; k < 40; k++) {
                split(hello, k, &pieces);
                for (size_t n = 0; n < buf_size(&pieces); n += 17)
                    assert_int_equal(read_hello(str_sub(buf_str(&pieces), 0, n), MAX, name, sizeof name), HELLO_MORE);
                assert_int_equal(read_hello(buf_str(&pieces), MAX, name, sizeof name), HELLO_READY);
                assert_string_equal(name, names[i] ? names[i] : "");
            }
            /* the limit holds, for the message and for its records */
            assert_int_equal(read_hello(hello, hello.n - 6, name, sizeof name), HELLO_BAD);
            split(hello, 1, &pieces);
            assert_int_equal(read_hello(buf_str(&pieces), hello.n + 5, name, sizeof name), HELLO_BAD);
            buf_done(&pieces);
            /* what follows is none of its business: another record, or bytes */
            char more[4200];
            memcpy(more, hello.p, hello.n);
            memcpy(more + hello.n, "\x14\x03\x03\x00\x01\x01", 6);
            assert_int_equal(read_hello(str_of(more, hello.n + 6), MAX, name, sizeof name), HELLO_READY);
            assert_int_equal(said.bytes, hello.n);
        }
}

#define RANDOM "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define FRONT "\x03\x03" RANDOM "\0\0\x02\x13\x01\x01\0"
#define NAME "\0\0\0\x0b\0\x09\0\0\x06" "a.test"

/* Each is a message's body; the record and the handshake's header are put before it. */
static const struct {
    const char *what, *bytes;
    size_t n;
    enum client_hello result;
    const char *name;
    bool hides;
} bodies[] = {
#define BODY(what, bytes, result, name) { what, bytes, sizeof(bytes) - 1, result, name, false }
#define HIDES(what, bytes, name) { what, bytes, sizeof(bytes) - 1, HELLO_READY, name, true }
    BODY("control", FRONT "\0\x0f" NAME, HELLO_READY, "a.test"),
    BODY("no extensions at all", FRONT, HELLO_READY, ""),
    BODY("an empty block", FRONT "\0\0", HELLO_READY, ""),
    HIDES("an encrypted hello inside: the outer name", FRONT "\0\x15" NAME "\xfe\x0d\0\x02\0\0", "a.test"),
    HIDES("the same before the name", FRONT "\0\x15" "\xfe\x0d\0\x02\0\0" NAME, "a.test"),
    HIDES("an encrypted name, and none to be seen", FRONT "\0\x06" "\xff\xce\0\x02\0\0", ""),
    BODY("their neighbours say nothing", FRONT "\0\x1b" NAME "\xfe\x0c\0\x02\0\0" "\xff\xcd\0\x02\0\0", HELLO_READY, "a.test"),
    BODY("the name twice", FRONT "\0\x1e" NAME NAME, HELLO_BAD, ""),
    BODY("another extension twice", FRONT "\0\x08\x12\x34\0\0\x12\x34\0\0", HELLO_BAD, ""),
    BODY("two names in the list", FRONT "\0\x13\0\0\0\x0f\0\x0d\0\0\x01" "a\0\0\x01" "b\0\0\x01" "c", HELLO_BAD, ""),
    BODY("a name of another type", FRONT "\0\x0f\0\0\0\x0b\0\x09\x01\0\x06" "a.test", HELLO_BAD, ""),
    BODY("an empty name", FRONT "\0\x09\0\0\0\x05\0\x03\0\0\0", HELLO_BAD, ""),
    BODY("an empty list", FRONT "\0\x06\0\0\0\x02\0\0", HELLO_BAD, ""),
    BODY("an empty extension", FRONT "\0\x04\0\0\0\0", HELLO_BAD, ""),
    BODY("a list shorter than its extension", FRONT "\0\x10\0\0\0\x0c\0\x09\0\0\x06" "a.testX", HELLO_BAD, ""),
    BODY("a list longer than its extension", FRONT "\0\x0f\0\0\0\x0b\0\x0a\0\0\x06" "a.test", HELLO_BAD, ""),
    BODY("a name longer than its list", FRONT "\0\x0f\0\0\0\x0b\0\x09\0\0\x07" "a.test", HELLO_BAD, ""),
    BODY("an extension longer than the block", FRONT "\0\x0f\0\0\0\x0c\0\x09\0\0\x06" "a.test", HELLO_BAD, ""),
    BODY("a block longer than the message", FRONT "\0\x10" NAME, HELLO_BAD, ""),
    BODY("bytes behind the block", FRONT "\0\x0f" NAME "X", HELLO_BAD, ""),
    BODY("half an extension", FRONT "\0\x03\0\0\0", HELLO_BAD, ""),
    BODY("no cipher suite", "\x03\x03" RANDOM "\0\0\0\x01\0\0\0", HELLO_BAD, ""),
    BODY("half a cipher suite", "\x03\x03" RANDOM "\0\0\x03\x13\x01\x13\x01\0\0\0", HELLO_BAD, ""),
    BODY("no compression", "\x03\x03" RANDOM "\0\0\x02\x13\x01\0\0\0", HELLO_BAD, ""),
    BODY("a session id of 33 bytes", "\x03\x03" RANDOM "\x21" RANDOM "a\0\x02\x13\x01\x01\0\0\0", HELLO_BAD, ""),
    BODY("another version", "\x02\x03" RANDOM "\0\0\x02\x13\x01\x01\0\0\0", HELLO_BAD, ""),
    BODY("nothing", "", HELLO_BAD, ""),
    BODY("a NUL in the name is left to whoever reads names", FRONT "\0\x0f\0\0\0\x0b\0\x09\0\0\x06" "a\0test", HELLO_READY, "a"),
};

static void test_bodies(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        char mem[512], name[300];
        size_t n = bodies[i].n, record = n + 4;
        const char head[9] = { 22, 3, 1, (char)(record >> 8), (char)record, 1, 0, (char)(n >> 8), (char)n };
        memcpy(mem, head, sizeof head);
        memcpy(mem + sizeof head, bodies[i].bytes, n);
        enum client_hello r = read_hello(str_of(mem, sizeof head + n), MAX, name, sizeof name);
        if (r != bodies[i].result || strcmp(name, bodies[i].name) != 0 || said.hides_name != bodies[i].hides)
            fail_msg("%s: %d, %s, %d", bodies[i].what, (int)r, name, said.hides_name);
    }
}

static void test_records(void **state)
{
    (void)state;
    static const struct {
        const char *what, *bytes;
        size_t n;
        enum client_hello result;
    } cases[] = {
#define CASE(what, bytes, result) { what, bytes, sizeof(bytes) - 1, result }
        CASE("nothing yet", "", HELLO_MORE),
        CASE("application data", "\x17", HELLO_BAD),
        CASE("SSL 2", "\x16\x02", HELLO_BAD),
        CASE("an empty record", "\x16\x03\x01\0\0", HELLO_BAD),
        CASE("a record over 16 KiB", "\x16\x03\x01\x40\x01", HELLO_BAD),
        CASE("control: one of 16 KiB", "\x16\x03\x01\x40\0\x01", HELLO_MORE),
        CASE("a ServerHello", "\x16\x03\x01\0\x05\x02", HELLO_BAD),
        CASE("a message over the limit", "\x16\x03\x01\x40\0\x01\x01\0\0", HELLO_BAD),
        CASE("another message in its record", "\x16\x03\x01\0\x20\x01\0\0\x10", HELLO_BAD),
        CASE("another kind between", "\x16\x03\x01\0\x04\x01\0\0\x40\x14", HELLO_BAD),
        CASE("control: the next record", "\x16\x03\x01\0\x04\x01\0\0\x40\x16\x03\x03\0\x01z", HELLO_MORE),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[300];
        enum client_hello r = read_hello(str_of(cases[i].bytes, cases[i].n), MAX, name, sizeof name);
        if (r != cases[i].result)
            fail_msg("%s: %d", cases[i].what, (int)r);
    }
}

/* The longest that fits, in records of one byte that come byte by byte. What was whole is not looked at again: it is made unreadable
 * until the last byte is there. Else the work would grow with the square of the length. */
static void test_byte_by_byte(void **state)
{
    (void)state;
    enum { RECORDS = MAX / 6, BODY_BYTES = RECORDS - 4, PAD = BODY_BYTES - ((int)sizeof FRONT - 1) - 2 - ((int)sizeof NAME - 1) - 4 };
    struct buf message, records, scratch;
    buf_init(&message, MAX);
    buf_init(&records, MAX);
    buf_init(&scratch, 1 << 20);
    const char head[] = { 22, 3, 1, (char)(RECORDS >> 8), (char)RECORDS, 1, 0, (char)(BODY_BYTES >> 8), (char)BODY_BYTES };
    const size_t block = sizeof NAME - 1 + 4 + PAD;
    const char pad[] = { 0, 21, (char)(PAD >> 8), (char)PAD }; /* RFC 7685 */
    buf_put(&message, str_of(head, sizeof head));
    buf_put(&message, str_of(FRONT, sizeof FRONT - 1));
    buf_put(&message, str_of((char[]) { (char)(block >> 8), (char)block }, 2));
    buf_put(&message, str_of(NAME, sizeof NAME - 1));
    buf_put(&message, str_of(pad, sizeof pad));
    for (size_t i = 0; i < PAD; i++)
        buf_putc(&message, 0);
    assert_int_equal(buf_size(&message), 5 + RECORDS);
    split(buf_str(&message), 1, &records);
    struct str all = buf_str(&records);
    char name[300];
    assert_int_equal(read_hello(all, MAX, name, sizeof name), HELLO_READY); /* the whole */
    assert_string_equal(name, "a.test");

    struct client_hello_walk walk = { 0 };
    const char *why;
    char *come = malloc(all.n);
    assert_non_null(come);
    for (size_t n = 1; n < all.n; n++) {
        come[n - 1] = all.p[n - 1];
        if (client_hello_read(&walk, str_of(come, n), MAX, &scratch, &said, &why) != HELLO_MORE)
            fail_msg("byte %zu of %zu: %s", n, all.n, why ? why : "ready");
        assert_int_equal(walk.at, n / 6 * 6);
        if (n == walk.at)
            memset(come + n - 6, 0xff, 6);
    }
    assert_int_equal(client_hello_read(&walk, all, MAX, &scratch, &said, &why), HELLO_READY);
    assert_true(str_eq(said.sni, STR("a.test")));
    assert_int_equal(said.bytes, all.n);
    free(come);
    buf_done(&scratch);
    buf_done(&records);
    buf_done(&message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_openssl),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_byte_by_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
