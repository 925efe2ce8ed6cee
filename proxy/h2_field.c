/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/h2_field.h"

#include "proxy/h1_scan.h"

const char *h2_field_fault(struct str name, struct str value)
{
    bool token = name.n > 0;
    for (size_t i = 0; i < name.n; i++)
        token = token && ascii_tchar(name.p[i]) && !(name.p[i] >= 'A' && name.p[i] <= 'Z');
    return !token               ? "a field name that is no lower-case token"
           : h1_value_ok(value) ? NULL
                                : "a control character in a field value";
}

nghttp2_nv h2_field_nv(struct str name, struct str value, bool secret)
{
    return (nghttp2_nv) {
        .name = (uint8_t *)(uintptr_t)name.p, /* which is not written to */
        .value = (uint8_t *)(uintptr_t)value.p,
        .namelen = name.n,
        .valuelen = value.n,
        .flags = secret ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE,
    };
}
