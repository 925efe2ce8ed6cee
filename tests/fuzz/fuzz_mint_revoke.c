/* SPDX-License-Identifier: Apache-2.0
 *
 * A request on keeper.sock from anything: a prefix never says more than the whole, and what is taken has its body at
 * the end. */
#include "mint/revoke_server.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str in = str_of(data, size), body;
    unsigned whole = revoke_request_parse(in, &body);
    if (whole == 200 && (body.p + body.n != in.p + in.n || body.n > REVOKE_BODY_MAX))
        abort();
    for (size_t n = 0; n < size; n += 1 + n / 4)
        if (revoke_request_parse(str_sub(in, 0, n), &body) == 200 && whole != 400)
            abort(); /* bytes after a whole request make it a bad one */
    return 0;
}
