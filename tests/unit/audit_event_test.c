/* SPDX-License-Identifier: Apache-2.0
 *
 * Events and their lines: what goes in comes out, whatever the bytes, as one line of printable ASCII. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "audit/encode.h"
#include "audit/line.h"
#include "audit/record.h"

#include <jansson.h>
#include <stdlib.h>

static const char zeros[65] = "0000000000000000000000000000000000000000000000000000000000000000";

/* The line of an event, in a static buffer; LF taken off. */
static struct str encode(const struct event *e)
{
    static char out[ENCODE_LINE_MAX];
    static struct record r;
    struct encode_head h = { .seq = 7,
                             .prev = zeros,
                             .id = "01ARZ3NDEKTSV4RRFFQ69G5FAV",
                             .role = STR("worker"),
                             .has_worker = true,
                             .worker = 3,
                             .wall_us = 1767225600123456 };
    assert_true(record_decode(e->bytes, e->n, &r));
    size_t n = encode_line(&r, &h, out);
    assert_true(n > 0 && out[n - 1] == '\n');
    for (size_t i = 0; i + 1 < n; i++)
        assert_in_range((unsigned char)out[i], 0x20, 0x7e);
    return str_of(out, n - 1);
}
static json_t *parse(struct str line)
{
    json_error_t error;
    json_t *root = json_loadb(line.p, line.n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!root)
        fail_msg("%s: %.*s", error.text, STR_ARG(line));
    return root;
}
static struct event event;

static void test_head(void **state)
{
    (void)state;
    event_init(&event, EVENT_OPEN);
    event_put_str(&event, FIELD_AGENT, STR("coder"));
    struct str line = encode(&event);
    static const char expect[] =
        "{\"v\":1,\"seq\":7,\"prev\":\"0000000000000000000000000000000000000000000000000000000000000000\","
        "\"ts\":\"2026-01-01T00:00:00.123456Z\",\"id\":\"01ARZ3NDEKTSV4RRFFQ69G5FAV\",\"type\":\"open\","
        "\"agent\":\"coder\",\"rule\":null,\"credentials\":[],\"role\":\"worker\",\"worker\":3}";
    assert_int_equal(line.n, sizeof expect - 1);
    assert_memory_equal(line.p, expect, line.n);
    struct line_head h;
    assert_true(line_parse(line, &h));
    assert_int_equal(h.seq, 7);
    assert_true(str_eq(h.type, STR("open")));
    assert_true(str_eq(line_member(h.rest, "agent"), STR("coder")));
    assert_false(line_parse(str_sub(line, 0, line.n - 1), &h));
}

static void test_escapes(void **state)
{
    (void)state;
    static const struct {
        struct str in;
        const char *out;
    } cases[] = {
        { STR(""), "\"\"" },
        { STR("plain"), "\"plain\"" },
        { STR("exactly8"), "\"exactly8\"" },
        { STR("a\"b\\c"), "\"a\\\"b\\\\c\"" },
        { STR("\r\nGET /"), "\"\\r\\nGET /\"" },
        { STR("\b\f\t"), "\"\\b\\f\\t\"" },
        { STR("\0\x01\x1f\x7f"), "\"\\u0000\\u0001\\u001f\\u007f\"" },
        { STR("\x1b[31mred"), "\"\\u001b[31mred\"" },
        { STR("\xe2\x80\xa8\xe2\x80\xa9"), "\"\\u2028\\u2029\"" },
        { STR("\xe2\x80\xae evil"), "\"\\u202e evil\"" },
        { STR("\xc3\xbc\xf0\x9f\x98\x80"), "\"\\u00fc\\ud83d\\ude00\"" },
        { STR("\xff\xc3"), "\"\\ufffd\\ufffd\"" },
        { STR("\xc0\xaf"), "\"\\ufffd\\ufffd\"" },                       /* overlong */
        { STR("\xed\xa0\x80"), "\"\\ufffd\\ufffd\\ufffd\"" },            /* a surrogate */
        { STR("\xf4\x90\x80\x80"), "\"\\ufffd\\ufffd\\ufffd\\ufffd\"" }, /* past U+10FFFF */
        { STR("\xe2\x80"), "\"\\ufffd\\ufffd\"" },
        { STR("</script>"), "\"</script>\"" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[256];
        char *end = encode_string(out, cases[i].in);
        *end = 0;
        assert_string_equal(out, cases[i].out);
    }
}

/* Every byte, at every place of the eight that are looked at together. */
static void test_every_byte_in_every_place(void **state)
{
    (void)state;
    for (unsigned c = 0; c < 256; c++) {
        for (size_t at = 0; at < 17; at++) {
            char in[17], out[17 * 6 + 3];
            memset(in, 'x', sizeof in);
            in[at] = (char)c;
            char *end = encode_string(out, str_of(in, sizeof in));
            for (char *p = out; p < end; p++)
                assert_in_range((unsigned char)*p, 0x20, 0x7e);
            json_t *v = json_loadb(out, (size_t)(end - out), JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
            assert_non_null(v);
            if (c < 128) {
                assert_int_equal(json_string_length(v), sizeof in);
                assert_memory_equal(json_string_value(v), in, sizeof in);
            } else {
                assert_memory_equal(json_string_value(v) + at, "\xef\xbf\xbd", 3);
            }
            json_decref(v);
        }
    }
}

static void test_nesting_and_order(void **state)
{
    (void)state;
    event_init(&event, EVENT_CLOSE);
    event_put_u64(&event, FIELD_MS_TLS, 5);
    event_put_str(&event, FIELD_TLS_ISSUER, STR("CN=x"));
    event_put_u64(&event, FIELD_MS, 99); /* would be a second "ms" */
    event_put_u64(&event, FIELD_BYTES_IN, UINT64_MAX);
    event_put_str(&event, FIELD_TLS_VERSION, STR("TLSv1.3"));
    event_add(&event, FIELD_CREDENTIALS, STR("a"));
    event_put_u64(&event, FIELD_MS_TOTAL, 12);
    event_add(&event, FIELD_CREDENTIALS, STR("b"));
    event_put_str(&event, FIELD_HOST, STR("one.test"));
    event_put_str(&event, FIELD_HOST, STR("two.test"));
    struct line_head h;
    assert_true(line_parse(encode(&event), &h));
    static const char expect[] =
        ",\"host\":\"two.test\",\"rule\":null,\"credentials\":[\"a\",\"b\"],\"tls\":{\"version\":\"TLSv1.3\","
        "\"issuer\":\"CN=x\"},\"bytes_in\":18446744073709551615,\"ms\":{\"total\":12,\"tls\":5},\"findings\":[],"
        "\"role\":\"worker\",\"worker\":3}";
    assert_int_equal(h.rest.n, sizeof expect - 1);
    assert_memory_equal(h.rest.p, expect, h.rest.n);
    event_init(&event, EVENT_DNS);
    event_put_u64(&event, FIELD_MS, 99);
    json_t *root = parse(encode(&event));
    assert_int_equal(json_integer_value(json_object_get(root, "ms")), 99);
    json_decref(root);
}

static void test_every_field(void **state)
{
    (void)state;
    for (unsigned f = 1; f < FIELD_COUNT_OF; f++) {
        event_init(&event, EVENT_FINDING);
        switch (event_fields[f].kind) {
        case KIND_STR:
            event_put_str(&event, (enum event_field)f, STR("v"));
            break;
        case KIND_RAW:
            event_put_str(&event, (enum event_field)f, STR("{\"a\":[1,true]}"));
            break;
        case KIND_U64:
            event_put_u64(&event, (enum event_field)f, 10);
            break;
        case KIND_BOOL:
            event_put_bool(&event, (enum event_field)f, true);
            break;
        case KIND_LIST:
            event_add(&event, (enum event_field)f, STR("v"));
            break;
        case KIND_NULL:
        case KIND_NONE:
            fail();
        }
        json_t *root = parse(encode(&event));
        char path[64], *leaf;
        snprintf(path, sizeof path, "%s", event_fields[f].path);
        const json_t *at = root;
        if ((leaf = strchr(path, '.'))) {
            *leaf++ = 0;
            at = json_object_get(root, path);
        }
        bool own = f == FIELD_ROLE || f == FIELD_WORKER,
             hidden = f == FIELD_HEAD || f == FIELD_SIGNATURE || f == FIELD_OLDEST_OPEN || f == FIELD_CUT;
        at = json_object_get(at, leaf ? leaf : path);
        if (hidden)
            assert_null(at);
        else
            assert_non_null(at);
        if (own) /* what the writer claims to be does not count */
            assert_true(json_is_string(at) ? !strcmp(json_string_value(at), "worker") : json_integer_value(at) == 3);
        json_decref(root);
    }
}

static void test_cutting(void **state)
{
    (void)state;
    char big[6000];
    memset(big, 'a', sizeof big);
    event_init(&event, EVENT_OPEN);
    event_put_str(&event, FIELD_SCHEME, str_of(big, 8));
    assert_false(event.cut);
    event_put_str(&event, FIELD_SCHEME, str_of(big, 9));
    assert_true(event.cut);
    event_put_str(&event, FIELD_PATH, str_of(big, sizeof big));
    json_t *root = parse(encode(&event));
    assert_int_equal(json_string_length(json_object_get(root, "scheme")), 8);
    const char *path = json_string_value(json_object_get(root, "path"));
    assert_true(strlen(path) <= 2048);
    assert_non_null(strstr(path, "a...[+4000 sha256:"));
    assert_true(json_is_true(json_object_get(root, "cut")));
    json_decref(root);

    /* two long texts that differ only where they are cut stay different */
    big[5999] = 'b';
    event_init(&event, EVENT_OPEN);
    event_put_str(&event, FIELD_PATH, str_of(big, sizeof big));
    struct str one = str_of(event.bytes, event.n);
    char *copy = malloc(one.n);
    memcpy(copy, one.p, one.n);
    size_t n = one.n;
    big[5999] = 'c';
    event_init(&event, EVENT_OPEN);
    event_put_str(&event, FIELD_PATH, str_of(big, sizeof big));
    assert_int_equal(event.n, n);
    assert_memory_not_equal(event.bytes + EVENT_HEAD, copy + EVENT_HEAD, n - EVENT_HEAD);
    free(copy);

    /* a cut does not split a character */
    for (size_t i = 0; i + 1 < sizeof big; i += 2)
        memcpy(big + i, "\xc3\xbc", 2);
    event_init(&event, EVENT_OPEN);
    event_put_str(&event, FIELD_SCHEME, str_of(big, 9));
    event_put_str(&event, FIELD_HINT, str_of(big + 1, 1001)); /* begins in mid character */
    root = parse(encode(&event));
    assert_string_equal(json_string_value(json_object_get(root, "scheme")), "\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc");
    assert_null(strstr(json_string_value(json_object_get(root, "hint")) + 3, "\xef\xbf\xbd"));
    json_decref(root);
}

/* The record fills up: what does not fit is left out, never written past the end. */
static void test_full_record(void **state)
{
    (void)state;
    char text[128];
    memset(text, 0x01, sizeof text); /* six bytes each in the line */
    event_init(&event, EVENT_CLOSE);
    for (int i = 0; i < 200; i++)
        event_add(&event, FIELD_CREDENTIALS, str_of(text, sizeof text));
    assert_true(event.cut);
    assert_true(event.n <= EVENT_MAX && event.n > EVENT_MAX - 200);
    for (unsigned i = 0; i < 3000; i++)
        event_put_null(&event, FIELD_RULE);
    event_put_u64(&event, FIELD_STATUS, 1);
    assert_true(event.n <= EVENT_MAX);
    json_t *root = parse(encode(&event));
    assert_int_equal(json_array_size(json_object_get(root, "credentials")),
                     (EVENT_MAX - EVENT_HEAD) / (4 + sizeof text));
    json_decref(root);
    event_init(&event, EVENT_CLOSE); /* the most lists can hold */
    for (int i = 0; i < 3000; i++)
        event_add(&event, FIELD_CREDENTIALS, STR_NONE);
    root = parse(encode(&event));
    assert_int_equal(json_array_size(json_object_get(root, "credentials")), (EVENT_MAX - EVENT_HEAD) / 4);
    json_decref(root);
}

static void test_raw(void **state)
{
    (void)state;
    static const struct {
        struct str in;
        bool ok;
    } cases[] = {
        { STR("{}"), true },
        { STR("[]"), true },
        { STR("{\"a\":1,\"b\":[1.5,-2e10,\"x\\u00fc\",null,true,false,{}]}"), true },
        { STR("\"\\ud83d\\ude00\""), true },
        { STR("0"), true },
        { STR(" { \"a\" : 1 } "), true },
        { STR(""), false },
        { STR("{"), false },
        { STR("}"), false },
        { STR("{}}"), false },
        { STR("{]"), false },
        { STR("[}"), false },
        { STR("[1,]"), false },
        { STR("[,1]"), false },
        { STR("{\"a\"}"), false },
        { STR("{\"a\":}"), false },
        { STR("{\"a\":1,}"), false },
        { STR("{a:1}"), false },
        { STR("{},\"type\":\"open\""), false },
        { STR("01"), false },
        { STR("1."), false },
        { STR("-"), false },
        { STR("1e999"), false },
        { STR("12345678901234567890"), false },
        { STR("\"\n\""), false },
        { STR("\"\\u0000\""), false },
        { STR("\"\\ud83d\""), false },
        { STR("\"\\ude00\""), false },
        { STR("\"\\x\""), false },
        { STR("\"\xc3\xbc\""), false },
        { STR("\"\x7f\""), false },
        { STR("\"a"), false },
        { STR("tru"), false },
        { STR("[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]"), true },
        { STR("[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]"), false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (encode_raw_ok(cases[i].in) != cases[i].ok)
            fail_msg("%.*s: expected %d", STR_ARG(cases[i].in), cases[i].ok);
        event_init(&event, EVENT_FINDING);
        event_put_str(&event, FIELD_FEATURES, cases[i].in);
        json_t *root = parse(encode(&event));
        const json_t *v = json_object_get(root, "features");
        assert_non_null(v);
        if (!cases[i].ok)
            assert_true(json_is_string(v));
        json_decref(root);
    }
}

static void test_decode_refuses(void **state)
{
    (void)state;
    static struct record r;
    unsigned char bytes[EVENT_MAX + 1];
    event_init(&event, EVENT_OPEN);
    event_put_str(&event, FIELD_AGENT, STR("coder"));
    event_put_u64(&event, FIELD_PORT, 443);
    assert_true(record_decode(event.bytes, event.n, &r)); /* the control */
    for (size_t n = 0; n < event.n; n++) {
        bool between = n == EVENT_HEAD || n == EVENT_HEAD + 4 + 5;
        assert_int_equal(record_decode(event.bytes, n, &r), between);
    }
    static const struct {
        size_t at;
        unsigned char value;
        const char *why;
    } cases[] = {
        { 0, 0, "type 0" },
        { 0, EVENT_TYPE_COUNT, "type past the end" },
        { 1, 1, "type high byte" },
        { EVENT_HEAD, 0, "field 0" },
        { EVENT_HEAD, FIELD_COUNT_OF, "field past the end" },
        { EVENT_HEAD + 1, KIND_U64, "a text that claims to be a number" },
        { EVENT_HEAD + 1, KIND_NULL, "a null with bytes" },
        { EVENT_HEAD + 1, KIND_NONE, "no kind" },
        { EVENT_HEAD + 1, 99, "kind past the end" },
        { EVENT_HEAD + 2, 6, "length into the next value" },
        { EVENT_HEAD + 3, 255, "length past the end" },
        { EVENT_HEAD + 9 + 2, 4, "a short number" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(bytes, event.bytes, event.n);
        bytes[cases[i].at] = cases[i].value;
        if (record_decode(bytes, event.n, &r))
            fail_msg("%s: accepted", cases[i].why);
    }
}

static void test_ids(void **state)
{
    (void)state;
    char a[27], b[27];
    event_id_new(a);
    event_id_new(b);
    assert_int_equal(strlen(a), 26);
    assert_string_not_equal(a, b);
    struct event_ids ids = { 0 };
    char last[27] = "";
    for (int i = 0; i < 100000; i++) { /* the clock stands, jumps back, goes on */
        event_ids_next(&ids, i % 1000 == 500 ? 5 : 1767225600000 + (uint64_t)i / 3000);
        if (strcmp(ids.text, last) <= 0)
            fail_msg("%s after %s", ids.text, last);
        memcpy(last, ids.text, sizeof last);
    }
    struct event_ids again = { 0 };
    event_ids_continue(&again, str_c(last));
    event_ids_next(&again, 1);
    assert_true(strcmp(again.text, last) > 0);
    memcpy(again.text + 10, "ZZZZZZZZZZZZZZZZ", 16); /* even here */
    memcpy(last, again.text, sizeof last);
    event_ids_next(&again, 1);
    assert_true(strcmp(again.text, last) > 0);
}

static void test_doc(void **state)
{
    (void)state;
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    audit_print_doc(f);
    fclose(f);
    for (unsigned i = 1; i < FIELD_COUNT_OF; i++) {
        char row[64];
        snprintf(row, sizeof row, "\n| `%s` | ", event_fields[i].path);
        if (!strstr(text, row))
            fail_msg("%s is missing", event_fields[i].path);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head),
        cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_every_byte_in_every_place),
        cmocka_unit_test(test_nesting_and_order),
        cmocka_unit_test(test_every_field),
        cmocka_unit_test(test_cutting),
        cmocka_unit_test(test_full_record),
        cmocka_unit_test(test_raw),
        cmocka_unit_test(test_decode_refuses),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_doc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
