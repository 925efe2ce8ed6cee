/* SPDX-License-Identifier: Apache-2.0
 *
 * A request that parses is written as a line that parses to the same. */
#include "daemon/control_msg.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct control_request q, again;
    struct err err;
    if (control_request_parse(str_of(data, size), &q, &err))
        return 0;
    struct buf out;
    buf_init(&out, CONTROL_LINE_MAX * 2);
    if (control_request_put(&q, &out))
        abort();
    struct str line = buf_str(&out);
    if (control_request_parse(str_sub(line, 0, line.n - 1), &again, &err) || memcmp(&q, &again, sizeof q) != 0)
        abort();
    buf_done(&out);
    return 0;
}
