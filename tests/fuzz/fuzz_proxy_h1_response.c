/* SPDX-License-Identifier: Apache-2.0
 *
 * Response heads, to GET, HEAD or CONNECT by the first byte; the second sets where the input is cut. As for requests.
 */
#include "tests/lib/h1_cases.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void die(const char *why)
{
    fprintf(stderr, "%s\n", why);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct h1_field fields[64], fields2[64];
    static const struct h1_limits lim = { .head_bytes = 4096, .fields = 64, .target_bytes = 1024 };
    static const struct str methods[] = { STR("GET"), STR("HEAD"), STR("CONNECT") };
    if (size < 2)
        return 0;
    struct str method = methods[data[0] % 3];
    size_t cut = data[1], from = 0;
    struct str in = str_of(data + 2, size - 2);
    struct h1_head h, pieces;
    struct h1_fault fault = { 0 };
    enum h1_result r = h1_response_parse(in, method, &lim, fields, &from, &h, &fault);
    if (r < 0 && (!fault.why || fault.at > in.n))
        die("a refusal without words, or outside");
    from = 0;
    enum h1_result r2 = H1_MORE;
    for (size_t n = cut ? cut : 1; r2 == H1_MORE; n += cut ? cut : 1) {
        bool last = n >= in.n;
        r2 = h1_response_parse(str_sub(in, 0, n), method, &lim, fields2, &from, &pieces, &fault);
        if (last)
            break;
    }
    if ((r == H1_DONE) != (r2 == H1_DONE))
        die("in pieces the verdict differs");
    if (r != H1_DONE)
        return 0;
    if (h.bytes != pieces.bytes || !h1_head_equal(&h, &pieces, false))
        die("in pieces the head differs");
    if (h.status < 100 || h.status > 999 || h.bytes > in.n || h.nfields > lim.fields)
        die("a limit is passed");
    if (h.body != H1_BODY_NONE && (h.status < 200 || h.status == 204 || h.status == 304 || str_eq(method, STR("HEAD"))))
        die("a body where there is none");
    struct buf out;
    buf_init(&out, 1 << 16);
    const char *differs = h1_round_trip(false, &h, method, &out);
    if (differs)
        die(differs);
    buf_done(&out);
    return 0;
}
