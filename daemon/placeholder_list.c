/* SPDX-License-Identifier: Apache-2.0
 *
 * A u32 count, then of each: str text, u16 bytes of it that all of its shape begin with, str agent, str credential. */
#include "daemon/placeholder_list.h"

#include "base/msg.h"
#include "mint/placeholder.h"

#include <stdlib.h>

enum { NAME_BYTES_MAX = 256 };

int placeholder_list_put(struct policy *p, struct str install_key, struct buf *out, struct err *err)
{
    struct placeholder_table *t = placeholder_table_new(p, install_key, err);
    if (!t)
        return -1;
    struct msg_writer w;
    msg_writer_init(&w);
    size_t n = placeholder_count(t);
    w.buf.max = out->max;
    msg_put_u32(&w, (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        const struct placeholder *ph = placeholder_at(t, (unsigned)i);
        msg_put_str(&w, ph->text);
        msg_put_u16(&w, (uint16_t)placeholder_fixed(ph));
        msg_put_str(&w, ph->agent->name);
        msg_put_str(&w, ph->credential->name);
    }
    buf_put(out, buf_str(&w.buf));
    bool failed = w.buf.failed || out->failed;
    buf_done(&w.buf);
    placeholder_table_unref(&t);
    return failed ? err_set(err, "out of memory for the list of %zu placeholders", n) : 0;
}

struct canary *placeholder_list_canary(struct str bytes, struct err *err)
{
    struct msg_reader r = msg_reader(bytes);
    uint32_t n = msg_get_u32(&r);
    if (!r.bad && n > CANARY_SOURCES_MAX) {
        err_set(err, "expected at most %d placeholders (agents times their credentials), got %u", CANARY_SOURCES_MAX, n);
        return NULL;
    }
    struct canary_source *v = r.bad ? NULL : calloc(n + 1, sizeof *v);
    struct canary *canary = NULL;
    for (uint32_t i = 0; v && i < n; i++) {
        v[i].text = msg_get_str(&r, CANARY_TEXT_MAX);
        v[i].fixed = msg_get_u16(&r);
        v[i].agent = msg_get_str(&r, NAME_BYTES_MAX);
        v[i].credential = msg_get_str(&r, NAME_BYTES_MAX);
    }
    if (v && msg_reader_end(&r))
        canary = canary_new(v, n, err);
    else
        err_set(err, "the list of placeholders is cut short");
    free(v);
    return canary;
}
