/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/grpc_frames.h"

bool grpc_type(struct str content_type)
{
    struct str grpc = STR("application/grpc");
    if (content_type.n < grpc.n || !str_eq_nocase(str_sub(content_type, 0, grpc.n), grpc))
        return false;
    return content_type.n == grpc.n || content_type.p[grpc.n] == '+' || content_type.p[grpc.n] == ';' || content_type.p[grpc.n] == ' ';
}

size_t grpc_frames_next(struct grpc_frames *g, struct str bytes, bool *ret_end, bool *ret_compressed)
{
    size_t used = 0;
    while (g->have < sizeof g->head && used < bytes.n) {
        g->head[g->have++] = (unsigned char)bytes.p[used++];
        if (g->have == sizeof g->head)
            g->left = (uint64_t)g->head[1] << 24 | (uint64_t)g->head[2] << 16 | (uint64_t)g->head[3] << 8 | g->head[4];
    }
    size_t more = bytes.n - used;
    if (g->have == sizeof g->head) {
        more = more < g->left ? more : (size_t)g->left;
        g->left -= more;
    } else {
        more = 0;
    }
    *ret_compressed = g->have && g->head[0];
    *ret_end = g->have == sizeof g->head && !g->left;
    if (*ret_end)
        g->have = 0;
    return used + more;
}
