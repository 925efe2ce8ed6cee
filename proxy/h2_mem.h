/* SPDX-License-Identifier: Apache-2.0
 *
 * h2_mem: the memory of an HTTP/2 session through which real values pass. nghttp2 copies fields into its queues, its frames and its
 * HPACK tables; whatever it frees or moves is wiped first, to the end of the block, so that nothing of a value outlives the session. */
#ifndef PROXY_H2_MEM_H
#define PROXY_H2_MEM_H

#include <nghttp2/nghttp2.h>

/* Static. For nghttp2_session_client_new3 and nghttp2_session_server_new3. */
nghttp2_mem *h2_mem_wiping(void);

#endif
