/* SPDX-License-Identifier: Apache-2.0
 *
 * A header block as HPACK encodes it, and then as a request and as trailers: what is taken can be written as HTTP/1.1 and read as the
 * same request. The first byte's lowest bit says whether a body follows. */
#include "proxy/h2_head.h"

#include <nghttp2/nghttp2.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const struct h1_limits limits = { 65536, 128, 32768 };
static struct h1_field fields[H1_FIELDS_MAX];

static void one_request(const struct h2_request *q)
{
    const struct request *r = &q->r;
    struct buf out;
    buf_init(&out, 1 << 20);
    h1_put_request_line(&out, r->method, r->target);
    h1_put_field(&out, STR("Host"), STR("a.test"));
    for (size_t i = 0; i < r->nfields; i++)
        if (r->fields[i].id != H1_TE)
            h1_put_field(&out, r->fields[i].f.name, r->fields[i].f.value);
    buf_put(&out, STR("\r\n"));
    if (out.failed)
        abort();
    struct h1_head h;
    struct h1_fault why;
    size_t from = 0;
    struct h1_limits wide = { 1 << 20, H1_FIELDS_MAX, 65536 };
    if (h1_request_parse(buf_str(&out), &wide, fields, &from, &h, &why) != H1_DONE || h.bytes != buf_size(&out))
        abort();
    if (!str_eq(h.method, r->method) || !str_eq(h.target, r->target))
        abort();
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!n)
        return 0;
    bool end = data[0] & 1;
    nghttp2_hd_inflater *hpack;
    struct h2_head h;
    h2_head_init(&h);
    if (nghttp2_hd_inflate_new(&hpack))
        return 0;
    const uint8_t *p = data + 1;
    size_t left = n - 1;
    for (int flags = 0; !(flags & NGHTTP2_HD_INFLATE_FINAL);) {
        nghttp2_nv nv;
        ssize_t used = nghttp2_hd_inflate_hd2(hpack, &nv, &flags, p, left, 1);
        if (used < 0)
            break;
        p += used;
        left -= (size_t)used;
        if (flags & NGHTTP2_HD_INFLATE_EMIT)
            h2_head_add(&h, str_of(nv.name, nv.namelen), str_of(nv.value, nv.valuelen), &limits);
        else if (!left)
            break;
    }
    struct h2_request q;
    struct field out[64];
    size_t k;
    if (h2_head_request(&h, end, &limits, &q) == 0) {
        bool connect = str_eq(q.r.method, STR("CONNECT"));
        if (!q.fault && !q.r.fault && !connect && !h.too_large)
            one_request(&q);
        free(q.r.mem);
    }
    (void)h2_head_trailers(&h, out, 64, &k);
    h2_head_done(&h);
    nghttp2_hd_inflate_del(hpack);
    return 0;
}
