/* SPDX-License-Identifier: Apache-2.0
 *
 * The last lines, and new ones as they come. What is printed is safe for a terminal whatever stands in the files: the
 * logger writes printable ASCII only, but these bytes may have been changed since, so nothing else passes. */
#include "audit/line.h"
#include "audit/segment.h"
#include "audit/verify.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { WINDOW = 256 << 10, POLL_MS = 200 };

/* --- one readable line --- */

static void print_safe(FILE *out, struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c >= 0x20 && c < 0x7f)
            putc(c, out);
        else
            fprintf(out, "\\x%02x", c);
    }
}

static void print_value(FILE *out, const json_t *v)
{
    size_t i;
    json_t *element;
    if (json_is_string(v)) {
        print_safe(out, str_of(json_string_value(v), json_string_length(v)));
    } else if (json_is_array(v)) {
        json_array_foreach(v, i, element)
        {
            if (i)
                putc(',', out);
            print_value(out, json_is_array(element) ? NULL : element);
        }
    } else if (v) {
        char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
        print_safe(out, str_c(text ? text : "?"));
        free(text);
    }
}

static bool has(const json_t *root, const char *key)
{
    const json_t *v = json_object_get(root, key);
    return v && !json_is_null(v) && !(json_is_array(v) && json_array_size(v) == 0);
}

static void print_member(FILE *out, const json_t *root, const char *before, const char *key)
{
    if (!has(root, key))
        return;
    fputs(before, out);
    print_value(out, json_object_get(root, key));
}

static bool in_headline(const char *key)
{
    static const char *const keys[] = { "v",      "seq",    "prev", "ts",   "id",   "type",    "agent",  "conn_id",
                                        "method", "scheme", "host", "port", "path", "verdict", "status", "role" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(keys[i], key))
            return true;
    return false;
}

static void print_readable(FILE *out, struct str line)
{
    json_t *root = json_loadb(line.p, line.n, JSON_ALLOW_NUL, NULL), *value;
    const char *key;
    if (!json_is_object(root)) {
        fputs("(not a line of this log) ", out);
        print_safe(out, line);
        putc('\n', out);
        json_decref(root);
        return;
    }
    print_member(out, root, "", "ts");
    print_member(out, root, " ", "type");
    print_member(out, root, " ", "agent");
    print_member(out, root, " ", "verdict");
    print_member(out, root, " ", "status");
    print_member(out, root, " ", "method");
    print_member(out, root, " ", "scheme");
    print_member(out, root, has(root, "scheme") ? "://" : " ", "host");
    print_member(out, root, ":", "port");
    print_member(out, root, "", "path");
    json_object_foreach(root, key, value)
    {
        if (in_headline(key) || !has(root, key))
            continue;
        putc(' ', out);
        print_safe(out, str_c(key));
        putc('=', out);
        print_value(out, value);
    }
    putc('\n', out);
    json_decref(root);
}

static void print_line(FILE *out, struct str line, bool json)
{
    if (!json) {
        print_readable(out, line);
        return;
    }
    print_safe(out, line);
    putc('\n', out);
}

/* --- where to begin --- */

/* The offset at which the last `want` whole lines begin; *ret_found says how many there are from there (at most want).
 */
static int offset_from_end(int fd, uint64_t size, size_t want, uint64_t *ret_offset, size_t *ret_found)
{
    char *p = malloc(WINDOW);
    size_t lfs = 0; /* seen from the end: the want+1-th ends the line before the first wanted */
    uint64_t at = size;
    if (!p)
        return -1;
    *ret_offset = want ? 0 : size;
    while (at > 0 && lfs <= want) {
        size_t n = at < WINDOW ? (size_t)at : WINDOW;
        at -= n;
        if (pread(fd, p, n, (off_t)at) != (ssize_t)n) {
            free(p);
            return -1;
        }
        for (size_t i = n; i-- > 0 && lfs <= want;)
            if (p[i] == '\n' && ++lfs > want)
                *ret_offset = at + i + 1;
    }
    free(p);
    *ret_found = lfs > want ? want : lfs;
    return 0;
}

/* --- following --- */

struct tail {
    int dir_fd, fd; /* fd: the segment being read; -1: none yet */
    char name[SEGMENT_NAME_MAX];
    struct line_reader reader;
};

static void tail_close(struct tail *t)
{
    if (t->fd < 0)
        return;
    line_reader_done(&t->reader);
    close(t->fd);
    t->fd = -1;
}

static int tail_open(struct tail *t, const char *name, uint64_t offset, struct err *err)
{
    int fd = openat(t->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_set_errno(err, "%s", name);
    tail_close(t);
    if (line_reader_init(&t->reader, fd, offset)) {
        close(fd);
        return err_set(err, "tail: out of memory");
    }
    t->fd = fd;
    snprintf(t->name, sizeof t->name, "%s", name);
    return 0;
}

/* The segment in which the last n lines begin. */
static int tail_start(struct tail *t, size_t n, struct err *err)
{
    struct segment_list l;
    if (segment_list_read(t->dir_fd, (unsigned)-1, &l, err))
        return -1;
    int rc = 0;
    for (size_t i = l.n; i-- > 0 && !rc;) {
        uint64_t offset = 0;
        size_t found = 0;
        rc = tail_open(t, l.v[i].name, 0, err);
        if (!rc && offset_from_end(t->fd, l.v[i].bytes, n, &offset, &found))
            rc = err_set_errno(err, "%s", l.v[i].name);
        if (!rc)
            rc = tail_open(t, l.v[i].name, offset, err);
        n -= found;
        if (!n)
            break;
    }
    segment_list_done(&l);
    return rc;
}

/* Name of the segment after the current one; empty: there is none. */
static int tail_peek(struct tail *t, char ret[SEGMENT_NAME_MAX], struct err *err)
{
    struct segment_list l;
    if (segment_list_read(t->dir_fd, (unsigned)-1, &l, err))
        return -1;
    ret[0] = 0;
    for (size_t i = 0; i < l.n && !ret[0]; i++)
        if (t->fd < 0 || strcmp(l.v[i].name, t->name) > 0)
            memcpy(ret, l.v[i].name, SEGMENT_NAME_MAX);
    segment_list_done(&l);
    return 0;
}

/* Prints what is there; -1 when it cannot be read. */
static int tail_drain(struct tail *t, bool json, FILE *out, struct err *err)
{
    struct str line;
    enum line_result r;
    if (t->fd < 0)
        return 0;
    while ((r = line_next(&t->reader, &line)) == LINE_OK)
        print_line(out, line, json);
    if (r == LINE_ERROR || r == LINE_TOO_LONG)
        return err_set(err, "%s:%llu: cannot be read", t->name, (unsigned long long)t->reader.number + 1);
    return 0;
}

static int tail_run(struct tail *t, bool follow, bool json, FILE *out, const volatile bool *stop, struct err *err)
{
    char next[SEGMENT_NAME_MAX];
    while (!stop || !*stop) {
        /* The next segment is looked for first: once it is there, the current one is complete. */
        if (tail_peek(t, next, err) || tail_drain(t, json, out, err))
            return -1;
        if (next[0]) {
            if (tail_open(t, next, 0, err))
                return -1;
            continue;
        }
        if (fflush(out) || ferror(out))
            return err_set_errno(err, "output");
        if (!follow)
            return 0;
        nanosleep(&(struct timespec) { .tv_nsec = POLL_MS * 1000000L }, NULL);
    }
    return 0;
}

int audit_tail(const char *audit_dir, size_t last, bool follow, bool json, FILE *out, const volatile bool *stop,
               struct err *err)
{
    struct tail t = { .fd = -1 };
    t.dir_fd = open(audit_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (t.dir_fd < 0)
        return err_set_errno(err, "%s", audit_dir);
    int rc = tail_start(&t, last, err);
    if (!rc)
        rc = tail_run(&t, follow, json, out, stop, err);
    tail_close(&t);
    close(t.dir_fd);
    return rc;
}
