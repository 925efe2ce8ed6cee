/* SPDX-License-Identifier: Apache-2.0
 *
 * Input: any bytes, read as each of the three messages. What is ready used no more than was there, and is read the same when only
 * its own bytes are there; what is not ready or wrong never becomes ready by fewer bytes. */
#include "proxy/socks5.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool good)
{
    if (!good)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str in = str_of(data, size);
    struct socks5_greeting g, g2;
    struct socks5_login l, l2;
    struct socks5_request q, q2;
    enum socks5_reply reply;
    struct err err;
    size_t n = 0, n2 = 0;
    enum socks5_result r = socks5_greeting(in, &g, &n, &err);
    if (r == SOCKS5_READY)
        check(n <= size && socks5_greeting(str_sub(in, 0, n), &g2, &n2, &err) == SOCKS5_READY && n2 == n && g2.login == g.login);
    else
        check(r != SOCKS5_MORE || size < SOCKS5_MESSAGE_MAX);
    r = socks5_login(in, &l, &n, &err);
    if (r == SOCKS5_READY)
        check(n <= size && socks5_login(str_sub(in, 0, n), &l2, &n2, &err) == SOCKS5_READY && n2 == n && str_eq(l.password, l2.password));
    else
        check(r != SOCKS5_MORE || size < SOCKS5_MESSAGE_MAX);
    r = socks5_request(in, &q, &n, &reply, &err);
    if (r == SOCKS5_READY)
        check(n <= size && q.port && q.host.n && socks5_request(str_sub(in, 0, n), &q2, &n2, &reply, &err) == SOCKS5_READY && n2 == n &&
              host_eq(&q.host, &q2.host));
    else
        check(r != SOCKS5_MORE || size < SOCKS5_MESSAGE_MAX);
    return 0;
}
