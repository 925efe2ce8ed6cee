/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/segment.h"

#include "audit/age_clock.h"
#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { SEQ_DIGITS = 16, CHUNK_MAX = 8 << 20, CHUNK_MIN = 64 << 10, FREE_MARGIN = 64 << 10 };

/* --- names --- */

void segment_name_put(uint64_t first_seq, int64_t start_us, char out[SEGMENT_NAME_MAX])
{
    char ts[28];
    clock_format_us(start_us, ts); /* 2026-01-01T00:10:00.… -> 20260101T001000Z */
    snprintf(out, SEGMENT_NAME_MAX, "%0*llu-%.4s%.2s%.2sT%.2s%.2s%.2sZ.jsonl", SEQ_DIGITS,
             (unsigned long long)first_seq, ts, ts + 5, ts + 8, ts + 11, ts + 14, ts + 17);
}

bool segment_name_parse(struct str name, struct segment *ret)
{
    struct str rest = name, seq;
    uint64_t first;
    char iso[24];
    int64_t us;
    if (!str_split(&rest, '-', &seq) || seq.n < SEQ_DIGITS || !str_to_u64(seq, UINT64_MAX, &first) || rest.n != 22 ||
        rest.p[8] != 'T' || !str_eq(str_from(rest, 15), STR("Z.jsonl")))
        return false;
    const char *p = rest.p;
    snprintf(iso, sizeof iso, "%.4s-%.2s-%.2sT%.2s:%.2s:%.2sZ", p, p + 4, p + 6, p + 9, p + 11, p + 13);
    if (clock_parse_rfc3339(iso, strlen(iso), &us) || name.n >= SEGMENT_NAME_MAX)
        return false;
    *ret = (struct segment) { .first_seq = first, .start_us = us };
    memcpy(ret->name, name.p, name.n);
    return true;
}

/* --- the folder --- */

static int list_push(struct segment_list *l, const struct segment *s)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 32;
        struct segment *v = realloc(l->v, cap * sizeof *v);
        if (!v)
            return -1;
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = *s;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct segment *)a)->name, ((const struct segment *)b)->name);
}

static int list_entry(int dir_fd, unsigned owner, const char *name, struct segment_list *l, struct err *err)
{
    struct stat st;
    struct segment s = { 0 };
    struct str text = str_c(name);
    if (!str_ends(text, STR(".jsonl")))
        return 0;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT ? 0 : err_set_errno(err, "%s", name);
    if (!S_ISREG(st.st_mode))
        return err_set(err, "%s: expected a regular file in the log's folder, got a %s", name,
                       S_ISLNK(st.st_mode) ? "symbolic link" : "special file");
    if (owner != (unsigned)-1 && st.st_uid != owner)
        return err_set(err, "%s: belongs to uid %u, expected %u", name, (unsigned)st.st_uid, owner);
    if (!segment_name_parse(text, &s)) {
        if (text.n >= SEGMENT_NAME_MAX || owner != (unsigned)-1)
            return err_set(err, "%.80s: not the name of a segment: move it out of the log's folder", name);
        memcpy(s.name, text.p, text.n);
    }
    s.bytes = (uint64_t)st.st_size;
    return list_push(l, &s) ? err_set(err, "segments: out of memory") : 0;
}

int segment_list_read(int dir_fd, unsigned owner, struct segment_list *ret, struct err *err)
{
    struct segment_list l = { 0 };
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        err_set_errno(err, "the log's folder");
        if (fd >= 0)
            close(fd);
        return -1;
    }
    int r = 0;
    for (struct dirent *e; !r && (e = readdir(d));)
        r = list_entry(dir_fd, owner, e->d_name, &l, err);
    closedir(d);
    if (r) {
        segment_list_done(&l);
        return -1;
    }
    if (l.n)
        qsort(l.v, l.n, sizeof *l.v, by_name);
    *ret = l;
    return 0;
}

void segment_list_done(struct segment_list *l)
{
    free(l->v);
    *l = (struct segment_list) { 0 };
}

/* --- writing --- */

static void opened(struct segments *s, int fd, const struct stat *st)
{
    s->fd = fd;
    s->size = (uint64_t)st->st_size;
    uint64_t blocks = (uint64_t)st->st_blocks * 512;
    s->allocated = blocks > s->size ? blocks : s->size;
}

int segments_resume(struct segments *s, struct err *err)
{
    const char *name = s->list.v[s->list.n - 1].name;
    struct stat st;
    int fd = openat(s->dir_fd, name, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_set_errno(err, "%s", name);
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        return err_set(err, "%s: not a regular file", name);
    }
    opened(s, fd, &st);
    return 0;
}

static void current_bytes(struct segments *s)
{
    if (s->list.n && s->fd >= 0)
        s->list.v[s->list.n - 1].bytes = s->size;
}

void segments_trim(struct segments *s)
{
    if (s->fd >= 0 && s->allocated > s->size && ftruncate(s->fd, (off_t)s->size) == 0)
        s->allocated = s->size;
    /* on failure the blocks stay allocated: space, not truth */
}

int segments_begin(struct segments *s, uint64_t first_seq, int64_t now_us)
{
    struct segment next = { .first_seq = first_seq };
    struct stat st;
    int fd = -1;
    for (int i = 0; fd < 0 && i < 16; i++) { /* one that was abandoned empty may bear this very second's name */
        next.start_us = now_us + (int64_t)i * 1000000;
        segment_name_put(first_seq, next.start_us, next.name);
        fd = openat(s->dir_fd, next.name, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0640);
        if (fd < 0 && errno != EEXIST)
            return -errno;
    }
    if (fd < 0)
        return -EEXIST;
    /* The mode is ours whatever the umask: the console reads by group. */
    if (fchmod(fd, 0640) || fstat(fd, &st) || fsync(s->dir_fd)) {
        int saved = errno;
        unlinkat(s->dir_fd, next.name, 0);
        close(fd);
        return -saved;
    }
    current_bytes(s);
    if (list_push(&s->list, &next)) {
        unlinkat(s->dir_fd, next.name, 0);
        close(fd);
        return -ENOMEM;
    }
    if (s->fd >= 0) {
        segments_trim(s);
        close(s->fd);
    }
    opened(s, fd, &st);
    return 0;
}

void segments_abandon(struct segments *s)
{
    current_bytes(s);
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    s->size = s->allocated = 0;
}

ssize_t segments_write(struct segments *s, const char *p, size_t n)
{
    for (;;) {
        ssize_t k = write(s->fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return -errno;
        s->size += (uint64_t)k;
        if (s->allocated < s->size)
            s->allocated = s->size;
        return k ? k : -ENOSPC;
    }
}

int segments_cut(struct segments *s, uint64_t size)
{
    if (ftruncate(s->fd, (off_t)size))
        return -errno;
    s->size = s->allocated = size;
    current_bytes(s);
    return 0;
}

void segments_start_writeback(struct segments *s)
{
    sync_file_range(s->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

int segments_sync(struct segments *s)
{
    return fdatasync(s->fd) ? -errno : 0;
}

static int enough_free(const struct segments *s, uint64_t need)
{
    struct statfs fs;
    if (fstatfs(s->fd, &fs))
        return -errno;
    if (fs.f_bsize <= 0 || fs.f_blocks == 0) /* a file system that does not say */
        return 0;
    return (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize >= need + FREE_MARGIN ? 0 : -ENOSPC;
}

int segments_reserve(struct segments *s, uint64_t need)
{
    uint64_t end = s->size + need;
    if (s->allocated >= end)
        return 0;
    if (s->no_fallocate)
        return enough_free(s, need);
    uint64_t chunk = s->chunk > CHUNK_MAX ? CHUNK_MAX : s->chunk < CHUNK_MIN ? CHUNK_MIN : s->chunk;
    for (;; chunk /= 4) {
        uint64_t ahead = chunk < CHUNK_MIN ? 0 : chunk;
        uint64_t from = s->allocated > s->size ? s->allocated : s->size;
        if (fallocate(s->fd, FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(end + ahead - from)) == 0) {
            s->allocated = end + ahead;
            return 0;
        }
        if (errno == EOPNOTSUPP || errno == ENOSYS) {
            s->no_fallocate = true;
            return enough_free(s, need);
        }
        if (errno != EINTR && ahead == 0)
            return -errno;
    }
}

/* --- age and size --- */

uint64_t segments_total(const struct segments *s)
{
    uint64_t total = 0;
    for (size_t i = 0; i < s->list.n; i++)
        total += i + 1 == s->list.n && s->fd >= 0 ? s->size : s->list.v[i].bytes;
    return total;
}

/* Not given by a clock that was ahead (of now), or behind (what came before it), or not set. */
static bool name_believed(const struct segment *s, int64_t newest_us, int64_t now_us)
{
    return s->start_us >= newest_us && s->start_us <= now_us;
}

size_t segments_expired(const struct segments *s, int64_t before_us, int64_t now_us)
{
    size_t n = 0, next = 0;
    int64_t ended_us = AGE_CLOCK_SET_US; /* the newest name that is believed so far */
    if (s->list.n && name_believed(&s->list.v[0], ended_us, now_us))
        ended_us = s->list.v[0].start_us;
    /* A segment's last line is no younger than the beginning of whichever later one has a name to be believed. */
    for (; n + 1 < s->list.n; n++) {
        if (next <= n)
            next = n + 1;
        while (next < s->list.n && !name_believed(&s->list.v[next], ended_us, now_us))
            next++;
        if (next == s->list.n)
            break;
        ended_us = s->list.v[next].start_us;
        if (ended_us >= before_us)
            break;
    }
    return n;
}

void segments_drop(struct segments *s, size_t n)
{
    size_t gone = 0;
    while (gone < n && (unlinkat(s->dir_fd, s->list.v[gone].name, 0) == 0 || errno == ENOENT))
        gone++;
    memmove(s->list.v, s->list.v + gone, (s->list.n - gone) * sizeof *s->list.v);
    s->list.n -= gone;
}

void segments_done(struct segments *s)
{
    segments_trim(s);
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    segment_list_done(&s->list);
}
