/* SPDX-License-Identifier: Apache-2.0
 *
 * DNS answers. The first byte chooses name and type; the rest is the packet, once as it is and once with our id and
 * question put over its front, so that what is behind them is reached. */
#include "dns/wire.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct wire_query *q, const unsigned char *packet, size_t n)
{
    struct wire_answer a;
    struct err err;
    struct str p = str_of(packet, n);
    if (!wire_echoes(q, p))
        return;
    (void)wire_truncated(p);
    if (wire_answer_parse(q, p, &a, &err) < 0)
        return;
    bool positive = a.rcode == WIRE_NOERROR;
    if (a.n > WIRE_ADDRESSES_MAX || (a.n > 0 && !positive) || a.aliases > WIRE_CHAIN_MAX || strlen(a.alias) > 255)
        abort();
    if (a.n > 0 && a.soa)
        abort();
    for (size_t i = 0; i < a.n; i++)
        if (a.ips[i].family != (q->type == WIRE_A ? 4 : 6))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = { "a.test", "x", "www.long-label-0123456789.example.test", "_s.a_b.test" };
    static const unsigned char chance[WIRE_CHANCE] = { 0x12, 0x34, 0xa5, 0x5a };
    if (size < 1)
        return 0;
    struct wire_query q;
    if (wire_query_make(&q, str_c(names[data[0] >> 1 & 3]), data[0] & 1 ? WIRE_A : WIRE_AAAA, chance) < 0)
        abort();
    check(&q, data + 1, size - 1);
    size_t n = size - 1;
    if (n < q.n)
        return 0;
    unsigned char *packet = malloc(n);
    if (!packet)
        abort();
    memcpy(packet, data + 1, n);
    packet[0] = q.bytes[0];
    packet[1] = q.bytes[1];
    packet[2] = (unsigned char)((packet[2] & 0x07) | 0x80);
    packet[4] = 0;
    packet[5] = 1;
    memcpy(packet + 12, q.bytes + 12, q.n - 12);
    if (!wire_echoes(&q, str_of(packet, n)))
        abort();
    check(&q, packet, n);
    free(packet);
    return 0;
}
