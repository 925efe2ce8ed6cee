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

/* How far it was read; zero at first, and again after HELLO_READY and HELLO_BAD. */
struct client_hello_walk {
    size_t at;   /* what lies before it is whole records, which are not looked at again until the message is whole */
    size_t have; /* bytes of the message in them */
    size_t want; /* bytes of the message; 0: not known yet */
    size_t head; /* type and length of the message, as far as they have come */
};

/* bytes: all that came, what came before still at its front. HELLO_READY: *ret is what it says, in scratch (reset first). HELLO_BAD:
 * *ret_why, static. What needs more than max bytes, of the message or of records, is HELLO_BAD as soon as that is known, so HELLO_MORE
 * ends. Linear in the bytes, however many pieces they come in. */
enum client_hello client_hello_read(struct client_hello_walk *walk, struct str bytes, size_t max, struct buf *scratch,
                                    struct client_hello_said *ret, const char **ret_why);

#endif
