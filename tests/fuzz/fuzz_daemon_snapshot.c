/* SPDX-License-Identifier: Apache-2.0
 *
 * A snapshot that unpacks packs to the same bytes, but for a side file "system" that came with bytes of its own. */
#include "daemon/snapshot.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct snapshot s, again;
    struct err err;
    if (snapshot_unpack(str_of(data, size), &s, &err))
        return 0;
    struct buf out;
    buf_init(&out, SNAPSHOT_MAX);
    if (snapshot_pack(&s, &out) || snapshot_unpack(buf_str(&out), &again, &err))
        abort();
    bool own_system = false;
    for (size_t i = 0; i < s.nfiles; i++)
        own_system = own_system || str_eq(s.files[i].path, STR("system"));
    if (!own_system && !str_eq(buf_str(&out), str_of(data, size)))
        abort();
    if (again.nfiles != s.nfiles || again.number != s.number || !str_eq(again.text, s.text))
        abort();
    snapshot_done(&again);
    snapshot_done(&s);
    buf_done(&out);
    return 0;
}
