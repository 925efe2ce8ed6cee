/* SPDX-License-Identifier: Apache-2.0
 *
 * DNS answers. The first byte chooses name and type (addresses, or one whose records are kept as they are); the rest is the packet, once as it is and once with our id and
 * question put over its front, so that what is behind them is reached. */
#include "dns/record_text.h"
#include "dns/wire.h"
#include "policy/dns_type.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_records(const struct wire_query *q, const struct wire_answer *a)
{
    size_t at = 0, n = 0;
    for (size_t size; at + 2 <= a->data_n; n++, at += 2 + size) {
        char text[RECORD_TEXT];
        size = (size_t)(a->data[at] << 8 | a->data[at + 1]);
        for (const char *p = record_text(q->type, str_of(a->data + at + 2, size), text); *p; p++)
            if (*p < 0x20 || *p > 0x7e)
                abort();
    }
    bool address = q->type == WIRE_A || q->type == WIRE_AAAA;
    if (at != a->data_n || n != a->records || a->data_n > WIRE_DATA_MAX || (address ? a->records : a->n) != 0)
        abort();
}

static void check(const struct wire_query *q, const unsigned char *packet, size_t n)
{
    static struct wire_answer a;
    struct err err;
    struct str p = str_of(packet, n);
    if (!wire_echoes(q, p))
        return;
    (void)wire_truncated(p);
    if (wire_answer_parse(q, p, &a, &err) < 0)
        return;
    check_records(q, &a);
    bool positive = a.rcode == WIRE_NOERROR;
    if (a.n > WIRE_ADDRESSES_MAX || (a.n + a.records > 0 && !positive) || a.aliases > WIRE_CHAIN_MAX || strlen(a.chain) >= WIRE_CHAIN_TEXT || (a.aliases == 0 && a.chain[0]))
        abort();
    if (a.n + a.records > 0 && a.soa)
        abort();
    for (size_t i = 0; i < a.n; i++)
        if (a.ips[i].family != (q->type == WIRE_A ? 4 : 6))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = { "a.test", "x", "www.long-label-0123456789.example.test", "_s.a_b.test" };
    static const unsigned char chance[WIRE_CHANCE] = { 0x12, 0x34, 0xa5, 0x5a };
    static const uint16_t types[8][2] = { { WIRE_AAAA, WIRE_A },        { DNS_TYPE_TXT, DNS_TYPE_MX },
                                          { DNS_TYPE_SRV, DNS_TYPE_NS }, { DNS_TYPE_PTR, DNS_TYPE_CAA },
                                          { WIRE_AAAA, WIRE_A },        { DNS_TYPE_TLSA, DNS_TYPE_SSHFP },
                                          { WIRE_AAAA, WIRE_A },        { WIRE_AAAA, WIRE_A } };
    if (size < 1)
        return 0;
    struct wire_query q;
    if (wire_query_make(&q, str_c(names[data[0] >> 1 & 3]), types[data[0] >> 3 & 7][data[0] & 1], chance) < 0)
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
