/* SPDX-License-Identifier: Apache-2.0
 *
 * Any values -> one line that is printable ASCII and JSON, and gives the values back. The input is a list of
 * (field, length, bytes). */
#include "audit/encode.h"
#include "audit/line.h"

#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void put(struct event *e, enum event_field f, struct str v)
{
    uint64_t u = 0;
    memcpy(&u, v.p, v.n < 8 ? v.n : 8);
    if (v.n == 255) {
        event_put_null(e, f);
        return;
    }
    switch (event_fields[f].kind) {
    case KIND_STR:
    case KIND_RAW:
        event_put_str(e, f, v);
        break;
    case KIND_LIST:
        event_add(e, f, v);
        break;
    case KIND_U64:
        event_put_u64(e, f, u >> 1); /* jansson's integers are signed */
        break;
    case KIND_BOOL:
        event_put_bool(e, f, u & 1);
        break;
    case KIND_NULL:
    case KIND_NONE:
        break;
    }
}

/* Text that was ASCII comes back as it was. */
static void check_back(const struct record *r, const json_t *root)
{
    static const enum event_field fields[] = { FIELD_AGENT, FIELD_PATH, FIELD_HOST, FIELD_EVIDENCE };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        struct str v = record_str(r, fields[i]);
        bool ascii = v.p != NULL;
        for (size_t k = 0; k < v.n; k++)
            ascii &= (unsigned char)v.p[k] < 0x80;
        if (!ascii)
            continue;
        const json_t *j = json_object_get(root, event_fields[fields[i]].path);
        check(json_is_string(j) && str_eq(str_of(json_string_value(j), json_string_length(j)), v));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct event e;
    static struct record r;
    static char out[ENCODE_LINE_MAX];
    static const char prev[65] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    if (size < 1)
        return 0;
    event_init(&e, (enum event_type)(1 + data[0] % (EVENT_TYPE_COUNT - 1)));
    for (size_t at = 1; at + 2 <= size;) {
        enum event_field f = (enum event_field)(1 + data[at] % (FIELD_COUNT_OF - 1));
        size_t n = data[at + 1], left = size - at - 2;
        n = n == 254 ? left : n < left ? n : left;
        put(&e, f, str_of(data + at + 2, n));
        at += 2 + n;
    }
    check(record_decode(e.bytes, e.n, &r));
    struct encode_head h = {
        .seq = 1, .prev = prev, .id = "01ARZ3NDEKTSV4RRFFQ69G5FAV", .role = STR("worker"), .wall_us = r.wall_us
    };
    size_t n = encode_line(&r, &h, out);
    check(n > 1 && n <= ENCODE_LINE_MAX && out[n - 1] == '\n');
    for (size_t i = 0; i + 1 < n; i++)
        check(out[i] >= 0x20 && out[i] < 0x7f);
    struct line_head head;
    check(line_parse(str_of(out, n - 1), &head) && head.seq == 1);
    json_t *root = json_loadb(out, n - 1, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    if (!root) /* jansson refuses duplicate keys inside `features` too, which are the role's own */
        root = json_loadb(out, n - 1, JSON_ALLOW_NUL, NULL);
    check(json_is_object(root));
    check_back(&r, root);
    json_decref(root);
    return 0;
}
