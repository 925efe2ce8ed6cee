/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages to the DNS port: whatever is answered repeats id and question, fits its size, and is read back by our own
 * parser as what was written. The first byte chooses how many addresses. */
#include "dns/answer.h"
#include "dns/wire.h"
#include "policy/dns_type.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool holds)
{
    if (!holds)
        abort();
}

static void check_name(const struct query *q)
{
    need(q->n <= QUERY_TEXT_MAX && q->name[q->n] == '\0');
    for (size_t i = 0; i < q->n; i++) {
        char c = q->name[i];
        need((c >= 'a' && c <= 'z') || ascii_digit(c) || c == '-' || c == '_' || c == '.' || (q->odd && c == '\\'));
    }
}

/* Read back as an answer to the question, where that is one that we could have asked. */
static void check_answer(const struct query *q, struct str message, struct str answer, size_t count)
{
    static struct wire_answer a;
    struct wire_query w = { .n = QUERY_HEADER + q->question.n, .type = q->type };
    if (q->type != WIRE_A || w.n > sizeof w.bytes)
        return;
    memcpy(w.bytes, message.p, w.n);
    need(wire_echoes(&w, answer));
    need(wire_answer_parse(&w, answer, &a, NULL) == 0);
    need(wire_truncated(answer) ? a.n < count : a.n == count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct query q;
    static unsigned char out[QUERY_UDP_BYTES];
    if (size < 1)
        return 0;
    struct str message = str_of(data + 1, size - 1);
    enum query_result result = query_parse(message, &q);
    if (result == QUERY_IGNORE)
        return 0;
    check_name(&q);
    struct answer r;
    answer_start(&r, &q, result == QUERY_REFUSE ? q.rcode : WIRE_REFUSED, out, q.udp_bytes);
    size_t n = answer_end(&r);
    need(n <= QUERY_HEADER + q.question.n + 11 && n <= message.n + 11 && memcmp(out, message.p, 2) == 0 &&
         out[2] & 0x80);
    need(q.question.n == 0 || memcmp(out + QUERY_HEADER, q.question.p, q.question.n) == 0);
    if (result != QUERY_ASK)
        return 0;
    size_t count = data[0];
    answer_start(&r, &q, WIRE_NOERROR, out, q.udp_bytes);
    for (size_t i = 0; i < count; i++)
        answer_address(&r, &(struct ip) { 4, { 192, 0, 2, (uint8_t)i } }, 60);
    if (count == 0)
        answer_soa(&r, 30);
    n = answer_end(&r);
    need(n <= q.udp_bytes);
    check_answer(&q, message, str_of(out, n), count);
    return 0;
}
