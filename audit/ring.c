/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/ring.h"

#include "audit/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const int ring_seals = F_SEAL_SHRINK | F_SEAL_GROW;

int sink_ring_new(size_t bytes, struct err *err)
{
    if (bytes < RING_MIN_BYTES || bytes > RING_MAX_BYTES || (bytes & (bytes - 1)))
        return err_set(err, "event ring: expected a power of two from %d to %d bytes, got %zu", RING_MIN_BYTES,
                       RING_MAX_BYTES, bytes);
    int fd = memfd_create("outgate-events", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return err_set_errno(err, "event ring");
    struct ring_head head = { .magic = RING_MAGIC, .version = RING_VERSION, .bytes = bytes };
    if (ftruncate(fd, (off_t)(RING_HEAD_BYTES + bytes)) || pwrite(fd, &head, sizeof head, 0) != (ssize_t)sizeof head ||
        fcntl(fd, F_ADD_SEALS, ring_seals | F_SEAL_SEAL)) {
        err_set_errno(err, "event ring of %zu bytes", bytes);
        close(fd);
        return -1;
    }
    return fd;
}

int ring_map(int fd, struct ring *ret, struct err *err)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & ring_seals) != ring_seals)
        return err_set(err, "event ring: not a size-sealed memfd");
    if (fstat(fd, &st))
        return err_set_errno(err, "event ring");
    if (st.st_size < RING_HEAD_BYTES + RING_MIN_BYTES || st.st_size > (off_t)RING_HEAD_BYTES + RING_MAX_BYTES)
        return err_set(err, "event ring: odd size %lld", (long long)st.st_size);
    size_t bytes = (size_t)st.st_size - RING_HEAD_BYTES;
    if (bytes & (bytes - 1))
        return err_set(err, "event ring: odd size %zu", bytes);

    const size_t span = RING_HEAD_BYTES + 2 * bytes;
    unsigned char *base = mmap(NULL, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return err_set_errno(err, "event ring");
    const int prot = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_FIXED;
    if (mmap(base, RING_HEAD_BYTES + bytes, prot, flags, fd, 0) == MAP_FAILED ||
        mmap(base + RING_HEAD_BYTES + bytes, bytes, prot, flags, fd, RING_HEAD_BYTES) == MAP_FAILED) {
        err_set_errno(err, "event ring");
        munmap(base, span);
        return -1;
    }
    struct ring r = { .head = (void *)base, .data = base + RING_HEAD_BYTES, .bytes = bytes };
    if (r.head->magic != RING_MAGIC || r.head->version != RING_VERSION || r.head->bytes != bytes) {
        munmap(base, span);
        return err_set(err, "event ring: not a ring of this version");
    }
    *ret = r;
    return 0;
}

void ring_unmap(struct ring *r)
{
    if (r->head)
        munmap(r->head, RING_HEAD_BYTES + 2 * r->bytes);
    *r = (struct ring) { 0 };
}

int ring_reader_init(struct ring_reader *rd, int fd, struct err *err)
{
    *rd = (struct ring_reader) { 0 };
    if (ring_map(fd, &rd->ring, err))
        return -1;
    rd->pos = atomic_load(&rd->ring.head->read_pos);
    return 0;
}

void ring_reader_done(struct ring_reader *rd)
{
    ring_unmap(&rd->ring);
}

bool ring_reader_pending(const struct ring_reader *rd)
{
    return rd->ring.head && atomic_load_explicit(&rd->ring.head->write_pos, memory_order_acquire) != rd->pos;
}

enum ring_next ring_reader_next(struct ring_reader *rd, unsigned char out[EVENT_MAX], size_t *ret_n)
{
    uint64_t end = atomic_load_explicit(&rd->ring.head->write_pos, memory_order_acquire);
    uint64_t waiting = end - rd->pos;
    if (waiting == 0)
        return RING_EMPTY;
    if (waiting > rd->ring.bytes || waiting < RING_FRAME + EVENT_HEAD || (end | rd->pos) & 7)
        return RING_BROKEN;
    const unsigned char *p = rd->ring.data + (rd->pos & (rd->ring.bytes - 1));
    uint32_t frame[2];
    memcpy(frame, p, sizeof frame); /* once: the writer may change it under us */
    __asm__ volatile("" ::: "memory");
    if (frame[1] != RING_RECORD_MAGIC || frame[0] < EVENT_HEAD || frame[0] > EVENT_MAX ||
        ring_frame_size(frame[0]) > waiting)
        return RING_BROKEN;
    memcpy(out, p + RING_FRAME, frame[0]);
    *ret_n = frame[0];
    rd->pos += ring_frame_size(frame[0]);
    return RING_RECORD;
}

void ring_reader_commit(struct ring_reader *rd)
{
    atomic_store_explicit(&rd->ring.head->read_pos, rd->pos, memory_order_release);
}
