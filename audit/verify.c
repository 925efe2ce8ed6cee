/* SPDX-License-Identifier: Apache-2.0
 *
 * One pass in order of the lines. A changed line shows at its successor, whose prev is not its hash: the successor's
 * own successor tells which of the two was changed. */
#include "audit/verify.h"

#include "audit/line.h"
#include "audit/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <unistd.h>

enum { TRIES = 3 };

struct suspect {
    uint64_t seq; /* 0: none */
    uint64_t number;
    char file[SEGMENT_NAME_MAX];
    char hash[64];
};

struct verify {
    const char *anchor_file;
    struct checkpoint_key *key;
    enum anchor_result anchor_result;
    struct anchor anchor;
    int dir_fd;
    struct segment_list list;
    struct verify_result *ret;

    uint64_t next_seq; /* 0: no line yet */
    char prev[64];
    uint64_t since_checkpoint;
    bool anchor_seen;
    struct suspect suspect;
    char torn[LINE_MAX_BYTES]; /* the unfinished end of the last segment read */
    size_t torn_n;
    size_t torn_segment;
    bool vanished; /* a segment went while we read: pruned */
};

static bool bad(struct verify *v, uint64_t seq, const char *file, uint64_t line, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Keeps the first fault; returns false. */
static bool bad(struct verify *v, uint64_t seq, const char *file, uint64_t line, const char *format, ...)
{
    struct verify_result *r = v->ret;
    if (!r->ok)
        return false;
    int n = line ? snprintf(r->bad_where, sizeof r->bad_where, "%s:%llu: ", file, (unsigned long long)line)
                 : snprintf(r->bad_where, sizeof r->bad_where, "%s: ", file);
    va_list ap;
    va_start(ap, format);
    if (n > 0 && (size_t)n < sizeof r->bad_where)
        vsnprintf(r->bad_where + n, sizeof r->bad_where - (size_t)n, format, ap);
    va_end(ap);
    r->ok = false;
    r->bad_seq = seq;
    return false;
}

static uint64_t expected_seq(const struct verify *v)
{
    return v->next_seq ? v->next_seq : v->anchor_result == ANCHOR_OK ? v->anchor.first_seq : 1;
}

/* --- one line --- */

static bool check_first(struct verify *v, const struct line_head *h, const char *file)
{
    static const char zeros[65] = "0000000000000000000000000000000000000000000000000000000000000000";
    bool anchored = v->anchor_result == ANCHOR_OK;
    uint64_t first = anchored ? v->anchor.first_seq : 1;
    const char *prev = anchored ? v->anchor.first_prev : zeros;
    if (h->seq > first)
        return bad(v, first, file, 1, "lines %llu to %llu are missing", (unsigned long long)first,
                   (unsigned long long)h->seq - 1);
    if (h->seq == first && memcmp(h->prev.p, prev, 64))
        return bad(v, first, file, 1, "line %llu, the first, does not begin the chain", (unsigned long long)first);
    return true; /* older than first: pruning announced its end and has not reached it */
}

/* Line `seq` does not link to the one before: which of the two is not the original? The line after tells, or the
 * anchor. */
static void suspect_link(struct verify *v, uint64_t seq, const char *file, uint64_t number, struct str line)
{
    v->suspect = (struct suspect) { .seq = seq, .number = number };
    snprintf(v->suspect.file, sizeof v->suspect.file, "%s", file);
    line_hash(line, v->suspect.hash);
}

/* intact: the line at which the link broke is the original, so the one before it is not. */
static bool settle_suspect(struct verify *v, bool intact)
{
    const struct suspect s = v->suspect;
    v->suspect.seq = 0;
    if (intact)
        return bad(v, s.seq - 1, s.file, s.number > 1 ? s.number - 1 : s.number,
                   "line %llu was changed: its hash is not the prev of line %llu", (unsigned long long)s.seq - 1,
                   (unsigned long long)s.seq);
    return bad(v, s.seq, s.file, s.number, "line %llu was changed: its prev is not the hash of line %llu",
               (unsigned long long)s.seq, (unsigned long long)s.seq - 1);
}

static bool check_checkpoint(struct verify *v, const struct line_head *h, const char *file, uint64_t number)
{
    uint64_t count;
    struct str head = line_member(h->rest, "head");
    if (!line_member_u64(h->rest, "count", &count) || count != h->seq - 1 || head.n != 64 ||
        memcmp(head.p, h->prev.p, 64) ||
        !checkpoint_verify(v->key, h->seq, count, head, line_member(h->rest, "signature")))
        return bad(v, h->seq, file, number, "checkpoint %llu is not signed by this log's key",
                   (unsigned long long)h->seq);
    v->since_checkpoint = 0;
    v->ret->checkpoints++;
    return true;
}

static bool check_line(struct verify *v, struct line_reader *r, const char *file, struct str line)
{
    struct line_head h;
    uint64_t expect = v->next_seq;
    bool parsed = line_parse(line, &h);
    if (v->suspect.seq)
        return settle_suspect(v, parsed && !memcmp(h.prev.p, v->suspect.hash, 64));
    if (!parsed)
        return bad(v, expected_seq(v), file, r->number, "no line of this log where line %llu is expected",
                   (unsigned long long)expected_seq(v));
    if (!expect && !check_first(v, &h, file))
        return false;
    if (expect && h.seq > expect)
        return bad(v, expect, file, r->number, "line %llu is expected, got %llu: missing or moved",
                   (unsigned long long)expect, (unsigned long long)h.seq);
    if (expect && h.seq < expect)
        return bad(v, expect, file, r->number, "line %llu is expected, got %llu: repeated or moved",
                   (unsigned long long)expect, (unsigned long long)h.seq);
    if (expect && memcmp(h.prev.p, v->prev, 64)) {
        suspect_link(v, h.seq, file, r->number, line);
        return true;
    }
    v->next_seq = h.seq + 1;
    line_hash(line, v->prev);
    v->ret->lines++;
    v->ret->last_seq = h.seq;
    v->since_checkpoint++;
    if (h.seq == v->anchor.seq && v->anchor_result == ANCHOR_OK) {
        if (memcmp(v->prev, v->anchor.head, 64))
            return bad(v, h.seq, file, r->number, "line %llu was changed: it is not the one that the anchor names",
                       (unsigned long long)h.seq);
        v->anchor_seen = true;
    }
    if (str_eq(h.type, STR("checkpoint")))
        return check_checkpoint(v, &h, file, r->number);
    if (v->since_checkpoint >= CHECKPOINT_LINES)
        return bad(v, h.seq, file, r->number, "%d lines without a checkpoint", CHECKPOINT_LINES);
    if (str_eq(h.type, STR("lifecycle")) && str_eq(line_member(h.rest, "what"), STR("chain_broken")) &&
        str_eq(line_member(h.rest, "role"), STR("logger")))
        return bad(v, h.seq, file, r->number, "the logger found the log damaged when it started: %.*s",
                   STR_ARG(line_member(h.rest, "message")));
    return true;
}

/* --- one segment --- */

/* A writer whose disk failed may leave the beginning of a line that it wrote again, whole, in the next segment. */
static bool check_torn(struct verify *v, struct str line, const char *file)
{
    if (!v->torn_n)
        return true;
    size_t n = v->torn_n;
    v->torn_n = 0;
    if (line.n >= n && !memcmp(line.p, v->torn, n))
        return true;
    return bad(v, expected_seq(v), v->list.v[v->torn_segment].name, 0, "its last line is cut and does not go on in %s",
               file);
}

static int check_segment(struct verify *v, size_t i, struct err *err)
{
    const char *file = v->list.v[i].name;
    struct line_reader r;
    struct str line;
    int fd = openat(v->dir_fd, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) {
        v->vanished = true;
        return 0;
    }
    if (fd < 0 || line_reader_init(&r, fd, 0)) {
        err_set_errno(err, "%s", file);
        if (fd >= 0)
            close(fd);
        return -1;
    }
    enum line_result result = LINE_OK;
    bool good = true;
    while (good && (result = line_next(&r, &line)) == LINE_OK)
        good = check_torn(v, line, file) && check_line(v, &r, file, line);
    int rc = 0;
    if (good && result == LINE_ERROR) {
        rc = err_set_errno(err, "%s", file);
    } else if (good && result == LINE_TOO_LONG) {
        bad(v, expected_seq(v), file, r.number + 1, "a line of more than %d bytes", LINE_MAX_BYTES);
    } else if (good && result == LINE_TORN) {
        v->torn_n = line.n < sizeof v->torn ? line.n : sizeof v->torn;
        v->torn_segment = i;
        memcpy(v->torn, line.p, v->torn_n);
    }
    v->ret->segments++;
    line_reader_done(&r);
    close(fd);
    return rc;
}

/* --- the whole --- */

static void check_end(struct verify *v)
{
    const struct anchor *a = &v->anchor;
    uint64_t last = v->next_seq ? v->next_seq - 1 : 0;
    if (v->suspect.seq)
        settle_suspect(v, a->seq != v->suspect.seq || !memcmp(a->head, v->suspect.hash, 64));
    if (v->anchor_result == ANCHOR_NONE)
        bad(v, 0, v->anchor_file, 0,
            v->list.n ? "the anchor is missing"
                      : "there is neither a line nor an anchor: either the server never ran, or its log was removed");
    else if (v->anchor_result == ANCHOR_BAD)
        bad(v, 0, v->anchor_file, 0, "the anchor is not signed by this log's key");
    else if (a->seq > last)
        bad(v, last + 1, v->list.n ? v->list.v[v->list.n - 1].name : "the log", 0,
            "lines %llu to %llu are missing at the end", (unsigned long long)last + 1, (unsigned long long)a->seq);
    else if (a->seq && !v->anchor_seen)
        bad(v, a->seq, v->anchor_file, 0, "line %llu, which the anchor names, is missing", (unsigned long long)a->seq);
}

static int verify_once(struct verify *v, struct err *err)
{
    *v->ret = (struct verify_result) { .ok = true };
    v->next_seq = v->since_checkpoint = v->torn_n = 0;
    v->anchor_seen = v->vanished = false;
    v->suspect.seq = 0;
    v->anchor_result = anchor_read(v->key, AT_FDCWD, v->anchor_file, &v->anchor, err);
    if (v->anchor_result == ANCHOR_ERROR)
        return -1;
    if (v->anchor_result != ANCHOR_OK)
        v->anchor = (struct anchor) { 0 };
    v->ret->anchored_seq = v->anchor.seq;
    segment_list_done(&v->list);
    if (segment_list_read(v->dir_fd, (unsigned)-1, &v->list, err))
        return -1;
    for (size_t i = 0; i < v->list.n && v->ret->ok && !v->vanished; i++)
        if (check_segment(v, i, err))
            return -1;
    if (v->ret->ok && !v->vanished)
        check_end(v);
    return 0;
}

int audit_verify(const char *audit_dir, const char *anchor_file, const char *public_key_file, struct verify_result *ret,
                 struct err *err)
{
    static struct verify v; /* 64 KiB; verification is a command of its own */
    v = (struct verify) { .anchor_file = anchor_file, .ret = ret };
    if (!(v.key = checkpoint_public_read(public_key_file, err)))
        return -1;
    v.dir_fd = open(audit_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = v.dir_fd < 0 ? err_set_errno(err, "%s", audit_dir) : verify_once(&v, err);
    for (int i = 1; i < TRIES && !rc && v.vanished; i++)
        rc = verify_once(&v, err);
    if (!rc && v.vanished)
        rc = err_set(err, "%s: segments vanish while they are read", audit_dir);
    if (v.dir_fd >= 0)
        close(v.dir_fd);
    segment_list_done(&v.list);
    checkpoint_key_free(&v.key);
    return rc;
}
