/* SPDX-License-Identifier: Apache-2.0
 *
 * First byte: which message; the rest its body. What reads can be written, and reads and writes the same again. */
#include "mint/lease_wire.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(x)                                                                                                       \
    do {                                                                                                               \
        if (!(x))                                                                                                      \
            abort();                                                                                                   \
    } while (0)

/* Reads body as message `type` and writes it into w: 0, or -1 where it does not read. */
static int again(uint8_t type, struct str body, struct msg_writer *w)
{
    struct lease_wire_get g;
    struct lease_wire_answer a;
    struct lease_wire_watch v;
    struct lease_wire_gone e;
    struct lease *l;
    lease_wire_writer_init(w);
    switch (type) {
    case LEASE_GET:
        if (lease_wire_read_get(body, &g))
            return -1;
        lease_wire_put_get(w, &g);
        return 0;
    case LEASE_ANSWER:
        if (lease_wire_read_answer(body, &a))
            return -1;
        lease_wire_put_answer(w, &a);
        lease_unref(&a.lease);
        return 0;
    case LEASE_WATCH:
        if (lease_wire_read_watch(body, &v))
            return -1;
        lease_wire_put_watch(w, &v);
        return 0;
    case LEASE_LIVE:
        l = lease_wire_read_lease(body);
        if (!l)
            return -1;
        CHECK(lease_id_ok(str_c(l->id)) && lease_value_ok(secret_reveal(l->value)));
        lease_wire_put_lease(w, l);
        lease_unref(&l);
        return 0;
    default:
        if (lease_wire_read_gone(body, &e))
            return -1;
        lease_wire_put_gone(w, &e);
        return 0;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    if (!ready)
        CHECK(!secret_init());
    ready = true;
    if (!size)
        return 0;
    static const uint8_t types[] = { LEASE_GET, LEASE_ANSWER, LEASE_WATCH, LEASE_LIVE, LEASE_GONE };
    uint8_t type = types[data[0] % sizeof types];
    struct msg_writer a, b;
    if (again(type, str_of(data + 1, size - 1), &a)) {
        buf_done(&a.buf);
        return 0;
    }
    CHECK(!a.buf.failed);
    CHECK(!again(type, buf_str(&a.buf), &b));
    CHECK(str_eq(buf_str(&a.buf), buf_str(&b.buf)));
    buf_done(&a.buf);
    buf_done(&b.buf);
    return 0;
}
