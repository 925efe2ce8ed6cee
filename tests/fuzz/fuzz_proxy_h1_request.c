/* SPDX-License-Identifier: Apache-2.0
 *
 * Request heads. The first byte sets where the input is cut. Whatever is accepted comes through writing unchanged and
 * reads the same in pieces; whatever is refused is not accepted in pieces; no limit is passed. */
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
    if (size < 1)
        return 0;
    size_t cut = data[0], from = 0;
    struct str in = str_of(data + 1, size - 1);
    struct h1_head h, pieces;
    struct h1_fault fault = { 0 };
    enum h1_result r = h1_request_parse(in, &lim, fields, &from, &h, &fault);
    if (r < 0 && (!fault.why || fault.at > in.n))
        die("a refusal without words, or outside");
    from = 0;
    enum h1_result r2 = H1_MORE;
    for (size_t n = cut ? cut : 1; r2 == H1_MORE; n += cut ? cut : 1) {
        bool last = n >= in.n;
        r2 = h1_request_parse(str_sub(in, 0, n), &lim, fields2, &from, &pieces, &fault);
        if (last)
            break;
    }
    if ((r == H1_DONE) != (r2 == H1_DONE) || (r == H1_MORE && r2 == H1_DONE))
        die("in pieces the verdict differs");
    if (r != H1_DONE)
        return 0;
    if (h.bytes != pieces.bytes || !h1_head_equal(&h, &pieces, false))
        die("in pieces the head differs");
    if (h.bytes > lim.head_bytes || h.bytes > in.n || h.nfields > lim.fields || h.target.n > lim.target_bytes)
        die("a limit is passed");
    struct buf out;
    buf_init(&out, 1 << 16);
    const char *differs = h1_round_trip(true, &h, STR_NONE, &out);
    if (differs)
        die(differs);
    buf_done(&out);
    return 0;
}
