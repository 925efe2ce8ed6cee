/* SPDX-License-Identifier: Apache-2.0
 *
 * grpc_frames: where in a body the messages of gRPC end (a byte that says whether it is compressed, four of length, and so many bytes),
 * so that nothing of a message waits for the next one: in a conversation that may never come. Pure. */
#ifndef PROXY_GRPC_FRAMES_H
#define PROXY_GRPC_FRAMES_H

#include "base/str.h"

struct grpc_frames {
    unsigned char head[5];
    unsigned have; /* bytes of the head */
    uint64_t left; /* of the message */
};

/* Is this the Content-Type of gRPC over HTTP/2 ("application/grpc", "application/grpc+proto")? Not gRPC-Web's. */
bool grpc_type(struct str content_type);
/* How many of the bytes in hand (n > 0, returned > 0) belong to one message; *ret_end: it ends with them; *ret_compressed: it is
 * compressed. Begins anew behind an end. */
size_t grpc_frames_next(struct grpc_frames *g, struct str bytes, bool *ret_end, bool *ret_compressed);

#endif
