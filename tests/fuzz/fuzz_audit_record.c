/* SPDX-License-Identifier: Apache-2.0
 *
 * Hostile ring memory: the input is what a broken writer left in the data area and in its position. Reading never
 * leaves the ring, always ends, and what decodes becomes a line. */
#include "audit/encode.h"
#include "audit/ring.h"
#include "audit/sink.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void encode(const unsigned char *bytes, size_t n)
{
    static struct record r, twice;
    static char out[ENCODE_LINE_MAX];
    static const char prev[65] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    struct encode_head h = { .seq = 1, .prev = prev, .id = "01ARZ3NDEKTSV4RRFFQ69G5FAV", .role = STR("worker") };
    if (!record_decode(bytes, n, &r))
        return;
    twice = r;
    if (n <= RING_CLOSE_RESERVE)
        record_inherit(&r, &twice);
    size_t length = encode_line(&r, &h, out);
    if (length < 2 || length > ENCODE_LINE_MAX || out[length - 1] != '\n' || memchr(out, '\n', length - 1))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ring_reader rd;
    static unsigned char out[EVENT_MAX];
    uint64_t start = 0, end = 0;
    if (size < 5)
        return 0;
    if (!rd.ring.head) {
        int fd = sink_ring_new(RING_MIN_BYTES, NULL);
        if (fd < 0 || ring_reader_init(&rd, fd, NULL))
            abort();
    }
    memcpy(&start, data, 2);
    memcpy(&end, data + 2, 3);
    data += 5;
    size -= 5;
    /* as written at `start`, over the ring's edge where that comes */
    start = start * 8 % RING_MIN_BYTES;
    size_t n = size < RING_MIN_BYTES ? size : RING_MIN_BYTES;
    memcpy(rd.ring.data + start, data, n);
    rd.pos = start + RING_MIN_BYTES; /* a lap on: positions only grow */
    if (end % 4 == 0)                /* as honest as it can be, so that the records themselves are reached */
        end = n & ~(size_t)7;
    atomic_store(&rd.ring.head->write_pos, rd.pos + end);
    size_t k;
    uint64_t before = rd.pos;
    while (ring_reader_next(&rd, out, &k) == RING_RECORD) {
        if (k > EVENT_MAX || rd.pos <= before || rd.pos - before > ring_frame_size(EVENT_MAX))
            abort();
        before = rd.pos;
        encode(out, k);
    }
    encode(data, n < EVENT_MAX ? n : EVENT_MAX); /* and without the frame */
    return 0;
}
