/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the last run ended. The newest segment may end in half a line (a crash) or in zeros (a power cut): what follows
 * its last whole line is moved to FILE.torn and said. Then the lines since the last checkpoint, or since the oldest
 * open without a close where that is older, are read again: for the opens nobody closed, and to see that they fit each
 * other and the anchor.
 *
 * What does not fit (a cut tail, a missing segment or anchor, a changed line) must not stop the service, and must not
 * be forgotten: the chain goes on, and a `chain_broken` line in it makes every later verification fail. Where lines are
 * missing the new ones go on behind the anchor, so that the hole stays visible in the numbers too. */
#include "audit/logger_impl.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WINDOW_MIN = 1 << 20, COPY_BYTES = 64 << 10 };

struct start {
    struct logger *lg;
    enum anchor_result anchor_result;
    struct anchor anchor;
    uint64_t last_seq;
    uint64_t checkpoint_seq; /* 0: none found */
    uint64_t from_seq;       /* first line to look at again */
    char broken[256];        /* why the chain does not fit; empty: it does */
};

static void broken(struct start *st, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void broken(struct start *st, const char *format, ...)
{
    if (st->broken[0])
        return;
    va_list ap;
    va_start(ap, format);
    vsnprintf(st->broken, sizeof st->broken, format, ap);
    va_end(ap);
}

static int open_segment(const struct logger *lg, size_t i, int flags)
{
    return openat(lg->dir_fd, lg->segments.list.v[i].name, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
}

/* --- the torn end --- */

/* Reads n bytes at `at`; fewer at the end of the file, -1 on an error. */
static ssize_t read_at(int fd, char *out, size_t n, uint64_t at)
{
    size_t done = 0;
    while (done < n) {
        ssize_t k = pread(fd, out + done, n - done, (off_t)(at + done));
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return -1;
        if (k == 0)
            break;
        done += (size_t)k;
    }
    return (ssize_t)done;
}

struct last_line {
    uint64_t end; /* offset past its LF; 0: there is none */
    uint64_t seq;
    char hash[64];
    char id[26];
};

/* Looks in [at, at + n) of the file for the last line that is one; lines that begin before `at` are not seen. */
static bool last_in(const char *p, size_t n, uint64_t at, struct last_line *ret)
{
    struct line_head h;
    const char *end = memrchr(p, '\n', n);
    while (end) {
        const char *before = end > p ? memrchr(p, '\n', (size_t)(end - p)) : NULL;
        if (!before && at) /* may begin before the window */
            return false;
        const char *start = before ? before + 1 : p;
        struct str line = str_of(start, (size_t)(end - start));
        if (line_parse(line, &h)) {
            ret->end = at + (uint64_t)(end - p) + 1;
            ret->seq = h.seq;
            memcpy(ret->id, h.id.p, sizeof ret->id);
            line_hash(line, ret->hash);
            return true;
        }
        end = before;
    }
    return false;
}

static int find_last(int fd, uint64_t size, struct last_line *ret)
{
    *ret = (struct last_line) { 0 };
    for (uint64_t window = WINDOW_MIN; size; window *= 4) {
        uint64_t n = window < size ? window : size;
        char *p = malloc(n);
        ssize_t k = p ? read_at(fd, p, n, size - n) : -1;
        bool found = k > 0 && last_in(p, (size_t)k, size - n, ret);
        free(p);
        if (k < 0)
            return -1;
        if (found || n == size)
            break;
    }
    return 0;
}

static int move_torn(struct logger *lg, int fd, const char *name, uint64_t from, uint64_t size, struct err *err)
{
    char torn[SEGMENT_NAME_MAX + 16], copy[COPY_BYTES];
    int out = -1;
    for (unsigned i = 0; out < 0 && i < 1000; i++) {
        snprintf(torn, sizeof torn, i ? "%s.torn.%u" : "%s.torn", name, i);
        out = openat(lg->dir_fd, torn, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
        if (out < 0 && errno != EEXIST)
            break;
    }
    if (out < 0)
        return err_set_errno(err, "%s", torn);
    for (uint64_t at = from; at < size;) {
        ssize_t n = read_at(fd, copy, size - at < sizeof copy ? (size_t)(size - at) : sizeof copy, at);
        if (n <= 0 || write(out, copy, (size_t)n) != n) {
            err_set_errno(err, "%s: the torn end of the log could not be kept", torn);
            unlinkat(lg->dir_fd, torn, 0);
            close(out);
            return -1;
        }
        at += (uint64_t)n;
    }
    int r = fsync(out) || ftruncate(fd, (off_t)from) || fsync(fd) || fsync(lg->dir_fd);
    if (r)
        err_set_errno(err, "%s", torn);
    close(out);
    if (r)
        return -1;
    logger_note(lg, "torn_line", "medium", "the last run ended in the middle of a line: %llu bytes are in %s",
                (unsigned long long)(size - from), torn);
    return 0;
}

/* The last line of the newest segment that has one; newer ones without any are removed. */
static int find_end(struct start *st, struct last_line *ret, struct err *err)
{
    struct logger *lg = st->lg;
    struct segment_list *l = &lg->segments.list;
    *ret = (struct last_line) { 0 };
    while (l->n) {
        struct segment *s = &l->v[l->n - 1];
        int fd = open_segment(lg, l->n - 1, O_RDWR);
        if (fd < 0)
            return err_set_errno(err, "%s", s->name);
        int r = find_last(fd, s->bytes, ret);
        if (r)
            err_set_errno(err, "%s", s->name);
        if (!r && ret->end < s->bytes)
            r = move_torn(lg, fd, s->name, ret->end, s->bytes, err);
        close(fd);
        if (r)
            return -1;
        s->bytes = ret->end;
        if (ret->end)
            break;
        if (unlinkat(lg->dir_fd, s->name, 0))
            return err_set_errno(err, "%s", s->name);
        l->n--;
    }
    return 0;
}

/* --- what is looked at again --- */

/* The last checkpoint within the newest three segments: its line and the oldest open it knew of. */
static void checkpoint_in(struct start *st, const char *p, size_t n)
{
    static const char mark[] = "\",\"type\":\"checkpoint\",";
    const char *found = NULL;
    struct line_head h;
    for (const char *at = p; (at = memmem(at, n - (size_t)(at - p), mark, sizeof mark - 1)); at++)
        found = at;
    if (!found)
        return;
    const char *start = memrchr(p, '\n', (size_t)(found - p)), *end = memchr(found, '\n', n - (size_t)(found - p));
    start = start ? start + 1 : p;
    if (!end || !line_parse(str_of(start, (size_t)(end - start)), &h))
        return;
    uint64_t oldest;
    st->checkpoint_seq = h.seq;
    st->from_seq = line_member_u64(h.rest, "oldest_open", &oldest) && oldest && oldest < h.seq ? oldest : h.seq;
}

static int find_checkpoint(struct start *st, struct err *err)
{
    struct segment_list *l = &st->lg->segments.list;
    size_t least = l->n > 3 ? l->n - 3 : 0;
    for (size_t i = l->n; i-- > least && !st->checkpoint_seq;) {
        int fd = open_segment(st->lg, i, O_RDONLY);
        if (fd < 0)
            return err_set_errno(err, "%s", l->v[i].name);
        for (uint64_t window = WINDOW_MIN; l->v[i].bytes && !st->checkpoint_seq; window *= 8) {
            uint64_t n = window < l->v[i].bytes ? window : l->v[i].bytes;
            char *p = malloc(n);
            ssize_t k = p ? read_at(fd, p, n, l->v[i].bytes - n) : -1;
            if (k > 0)
                checkpoint_in(st, p, (size_t)k);
            free(p);
            if (k < 0 || n == l->v[i].bytes)
                break;
        }
        close(fd);
    }
    if (!st->checkpoint_seq)
        st->from_seq = l->v[least].first_seq;
    return 0;
}

/* --- a line -> a record, for an open that nobody closed --- */

static void put_json(struct event *e, enum event_field f, const json_t *v)
{
    size_t i;
    json_t *element;
    switch (event_fields[f].kind) {
    case KIND_STR:
        if (json_is_string(v))
            event_put_str(e, f, str_of(json_string_value(v), json_string_length(v)));
        else if (json_is_null(v))
            event_put_null(e, f);
        break;
    case KIND_U64:
        if (json_is_integer(v) && json_integer_value(v) >= 0)
            event_put_u64(e, f, (uint64_t)json_integer_value(v));
        break;
    case KIND_LIST:
        json_array_foreach(v, i, element) if (json_is_string(element))
            event_add(e, f, str_of(json_string_value(element), json_string_length(element)));
        break;
    case KIND_BOOL:
    case KIND_RAW:
    case KIND_NULL:
    case KIND_NONE:
        break;
    }
}

static bool event_from_line(struct str line, const struct line_head *h, struct event *e)
{
    int64_t wall_us;
    json_t *root = json_loadb(line.p, line.n, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(root) || clock_parse_rfc3339(h->ts.p, h->ts.n, &wall_us)) {
        json_decref(root);
        return false;
    }
    event_init(e, EVENT_OPEN);
    memcpy(e->bytes + 8, &wall_us, sizeof wall_us);
    for (unsigned f = 1; f < FIELD_COUNT_OF; f++) {
        struct str leaf = str_c(event_fields[f].path), head;
        const json_t *at = root;
        char key[32];
        while (at && str_split(&leaf, '.', &head) && head.n < sizeof key) {
            memcpy(key, head.p, head.n);
            key[head.n] = 0;
            at = json_object_get(at, key);
        }
        if (at)
            put_json(e, (enum event_field)f, at);
    }
    json_decref(root);
    return true;
}

static void note_exchange(struct start *st, struct str line, const struct line_head *h)
{
    struct logger *lg = st->lg;
    uint64_t worker = 0;
    if (str_eq(h->type, STR("open"))) {
        struct event e EVENT_LOCAL;
        if (event_from_line(line, h, &e) && line_member_u64(h->rest, "worker", &worker))
            opens_add(&lg->orphans, e.bytes, e.n, h->seq, (unsigned)worker);
    } else if (str_eq(h->type, STR("close"))) {
        struct open_entry *e = opens_find(&lg->orphans, line_member(h->rest, "request_id"));
        if (e) {
            opens_take(&lg->orphans, e);
            free(e);
        }
    }
}

/* Lines from from_seq on: do they fit each other and the anchor, and which opens have no close. */
static int scan_segment(struct start *st, size_t i, uint64_t *expect, char prev[64], struct err *err)
{
    struct logger *lg = st->lg;
    struct line_reader r;
    struct line_head h;
    struct str line;
    enum line_result result;
    int fd = open_segment(lg, i, O_RDONLY);
    if (fd < 0 || line_reader_init(&r, fd, 0)) {
        err_set_errno(err, "%s", lg->segments.list.v[i].name);
        if (fd >= 0)
            close(fd);
        return -1;
    }
    while ((result = line_next(&r, &line)) == LINE_OK) {
        if (!line_parse(line, &h)) {
            broken(st, "%s:%llu is no line of this log", lg->segments.list.v[i].name, (unsigned long long)r.number);
            continue;
        }
        if (h.seq < st->from_seq)
            continue;
        if (*expect && (h.seq != *expect || memcmp(h.prev.p, prev, 64)))
            broken(st, "line %llu does not follow the one before it", (unsigned long long)h.seq);
        *expect = h.seq + 1;
        line_hash(line, prev);
        if (h.seq == st->anchor.seq && st->anchor_result == ANCHOR_OK && memcmp(prev, st->anchor.head, 64))
            broken(st, "line %llu is not the one that the anchor names", (unsigned long long)h.seq);
        if (str_ends(line, STR(",\"role\":\"logger\"}"))) /* the end of a line is ours alone: texts are escaped */
            lg->own_lines[lg->nown_lines++ % LOGGER_OWN_LINES] = h.seq;
        note_exchange(st, line, &h);
    }
    line_reader_done(&r);
    close(fd);
    return result == LINE_ERROR ? err_set_errno(err, "%s", lg->segments.list.v[i].name) : 0;
}

static int scan(struct start *st, struct err *err)
{
    struct segment_list *l = &st->lg->segments.list;
    uint64_t expect = 0, bytes = 0;
    char prev[64];
    size_t first = l->n - 1;
    if (st->anchor_result == ANCHOR_OK && st->anchor.seq && st->anchor.seq < st->from_seq)
        st->from_seq = st->anchor.seq;
    while (first > 0 && l->v[first].first_seq > st->from_seq && bytes + l->v[first].bytes < LOGGER_SCAN_MAX)
        bytes += l->v[first--].bytes;
    for (size_t i = first; i < l->n; i++)
        if (scan_segment(st, i, &expect, prev, err))
            return -1;
    return 0;
}

/* --- the decision --- */

static void judge_anchor(struct start *st, bool empty)
{
    const struct anchor *a = &st->anchor;
    if (st->anchor_result == ANCHOR_NONE && !empty)
        broken(st, "the anchor is missing");
    else if (st->anchor_result == ANCHOR_BAD)
        broken(st, "the anchor is not signed by this log's key");
    else if (st->anchor_result == ANCHOR_OK && a->seq > st->last_seq)
        broken(st, "lines %llu to %llu are missing", (unsigned long long)st->last_seq + 1, (unsigned long long)a->seq);
}

/* A log without a usable anchor begins where its first line says. */
static void anchor_from_log(struct start *st)
{
    struct logger *lg = st->lg;
    struct line_reader r;
    struct line_head h;
    struct str line;
    int fd = lg->segments.list.n ? open_segment(lg, 0, O_RDONLY) : -1;
    if (fd < 0)
        return;
    if (line_reader_init(&r, fd, 0) == 0) {
        if (line_next(&r, &line) == LINE_OK && line_parse(line, &h)) {
            lg->anchor.first_seq = h.seq;
            memcpy(lg->anchor.first_prev, h.prev.p, 64);
        }
        line_reader_done(&r);
    }
    close(fd);
}

/* Where no anchor says what time it was, it was that of the oldest name, which at worst delays pruning: a newer one may
 * have been given while the clock was wrong. The same goes for the oldest where it lies ahead. */
static void start_age(struct start *st)
{
    const struct segment_list *l = &st->lg->segments.list;
    int64_t wall_us = clock_wall_us(), from_us = st->anchor_result == ANCHOR_OK ? st->anchor.ts_us : 0;
    if (!from_us && l->n && l->v[0].start_us < wall_us)
        from_us = l->v[0].start_us;
    age_clock_start(&st->lg->age, from_us, wall_us, clock_mono_us());
}

static int begin_fresh(struct logger *lg, struct err *err)
{
    /* Signed before the first line: from here on a log without an anchor is a broken one. */
    lg->anchor.ts_us = logger_age_own_us(lg);
    if (anchor_write(lg->key, lg->anchor_fd, &lg->anchor))
        return err_set_errno(err, "the log's anchor");
    return 0;
}

static int check_folder(int fd, const char *what, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st))
        return err_set_errno(err, "%s", what);
    if (!S_ISDIR(st.st_mode))
        return err_set(err, "%s: expected a folder", what);
    if (st.st_uid != geteuid())
        return err_set(err, "%s: belongs to uid %u, expected %u", what, (unsigned)st.st_uid, (unsigned)geteuid());
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return err_set(err, "%s: others may write here (mode %03o), expected 0750", what, (unsigned)st.st_mode & 0777);
    return 0;
}

int logger_start(struct logger *lg, struct err *err)
{
    struct start st = { .lg = lg };
    struct last_line last;
    lg->anchor = (struct anchor) { .first_seq = 1 };
    memset(lg->anchor.head, '0', sizeof lg->anchor.head);
    memset(lg->anchor.first_prev, '0', sizeof lg->anchor.first_prev);
    memset(lg->prev, '0', sizeof lg->prev);
    lg->next_seq = 1;
    if (check_folder(lg->dir_fd, "the log's folder", err) || check_folder(lg->anchor_fd, "the anchor's folder", err) ||
        segment_list_read(lg->dir_fd, geteuid(), &lg->segments.list, err))
        return -1;
    st.anchor_result = anchor_read(lg->key, lg->anchor_fd, AUDIT_ANCHOR_NAME, &st.anchor, err);
    if (st.anchor_result == ANCHOR_ERROR || find_end(&st, &last, err))
        return -1;
    bool empty = lg->segments.list.n == 0;
    start_age(&st);
    if (empty && st.anchor_result == ANCHOR_NONE)
        return begin_fresh(lg, err);
    if (st.anchor_result == ANCHOR_OK)
        lg->anchor = st.anchor;
    else
        anchor_from_log(&st);
    if (!empty) {
        st.last_seq = last.seq;
        lg->next_seq = last.seq + 1;
        memcpy(lg->prev, last.hash, sizeof lg->prev);
        event_ids_continue(&lg->ids, str_of(last.id, sizeof last.id));
        if (find_checkpoint(&st, err) || scan(&st, err) || segments_resume(&lg->segments, err))
            return -1;
        lg->since_checkpoint = st.last_seq > st.checkpoint_seq ? st.last_seq - st.checkpoint_seq : 0;
    }
    judge_anchor(&st, empty);
    if (st.anchor_result == ANCHOR_OK && st.anchor.seq > st.last_seq) {
        lg->next_seq = st.anchor.seq + 1;
        memcpy(lg->prev, st.anchor.head, sizeof lg->prev);
        lg->new_segment = true;
    }
    lg->written_seq = lg->found_seq = lg->next_seq - 1;
    lg->stats.seq = lg->written_seq;
    memcpy(lg->written_head, lg->prev, sizeof lg->written_head);
    if (st.broken[0])
        logger_note(lg, "chain_broken", "critical",
                    "%s: verification fails from here on, for as long as this line is kept", st.broken);
    return 0;
}
