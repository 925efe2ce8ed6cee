/* SPDX-License-Identifier: Apache-2.0
 *
 * client_hello: the server name of a ClientHello that is passed on unread by us, for tunnels: no TLS object, nothing is answered. Strict: what
 * two readers could take for two names is refused (RFC 8446 4.1.2, RFC 6066 3). Pure: bytes in, a value out; any number of TLS records
 * and any number of pieces. Encrypted parts (ECH) cannot be seen through, only that they are there: the name is then the outer one. */
#ifndef PROXY_CLIENT_HELLO_H
#define PROXY_CLIENT_HELLO_H

#include "base/buf.h"

enum client_hello { HELLO_MORE = 0, HELLO_BAD, HELLO_READY };

struct client_hello_said {
    struct str sni;  /* STR_NONE: none */
    bool hides_name; /* it may carry another one encrypted: ECH (encrypted_client_hello), or its forerunner ESNI; GREASE looks the same */
    size_t bytes;    /* of its records */
};

/* bytes: all that came. HELLO_READY: *ret is what it says, in scratch (reset first). HELLO_BAD: *ret_why, static. What needs more than max
 * bytes, of the message or of records, is HELLO_BAD as soon as that is known, so HELLO_MORE ends. Cheap until the message is whole. */
enum client_hello client_hello_read(struct str bytes, size_t max, struct buf *scratch, struct client_hello_said *ret, const char **ret_why);

#endif
