/* SPDX-License-Identifier: Apache-2.0
 *
 * audit_lab: a logger in a temporary folder, for the audit tests: keys, folders, rings, lines read back. */
#ifndef TESTS_AUDIT_LAB_H
#define TESTS_AUDIT_LAB_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "audit/checkpoint.h"
#include "audit/logger.h"
#include "audit/record.h"
#include "audit/ring.h"
#include "audit/sink.h"
#include "audit/verify.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

struct lab {
    char root[64], audit[96], keys[96], anchor[128], pub[128], key[128];
    struct loop *loop;
    struct logger *logger;
    struct logger_options options;
};

static inline void lab_init(struct lab *lab, const char *base)
{
    *lab = (struct lab) { 0 };
    snprintf(lab->root, sizeof lab->root, "%s/outgate-audit-XXXXXX", base);
    assert_non_null(mkdtemp(lab->root));
    snprintf(lab->audit, sizeof lab->audit, "%s/audit", lab->root);
    snprintf(lab->keys, sizeof lab->keys, "%s/keys", lab->root);
    snprintf(lab->anchor, sizeof lab->anchor, "%s/%s", lab->keys, AUDIT_ANCHOR_NAME);
    snprintf(lab->key, sizeof lab->key, "%s/log.pem", lab->keys);
    snprintf(lab->pub, sizeof lab->pub, "%s/log.pub", lab->keys);
    assert_int_equal(mkdir(lab->audit, 0750), 0);
    assert_int_equal(mkdir(lab->keys, 0700), 0);
    EVP_PKEY *pkey = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    assert_non_null(pkey);
    FILE *f = fopen(lab->key, "w");
    assert_non_null(f);
    assert_int_equal(PEM_write_PKCS8PrivateKey(f, pkey, NULL, NULL, 0, NULL, NULL), 1);
    fclose(f);
    f = fopen(lab->pub, "w");
    assert_non_null(f);
    assert_int_equal(PEM_write_PUBKEY(f, pkey), 1);
    fclose(f);
    EVP_PKEY_free(pkey);
    lab->options =
        (struct logger_options) { .segment_bytes = 1 << 20, .keep_ms = 3600000, .max_bytes = 1 << 30, .sync_ms = 50 };
    lab->loop = loop_new();
    assert_non_null(lab->loop);
}

static inline int lab_try_start(struct lab *lab, struct err *err)
{
    struct logger_options o = lab->options;
    o.dir_fd = open(lab->audit, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    o.anchor_fd = open(lab->keys, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    o.key_fd = open(lab->key, O_RDONLY | O_CLOEXEC);
    lab->logger = logger_new(lab->loop, &o, err);
    close(o.dir_fd);
    close(o.anchor_fd);
    close(o.key_fd);
    return lab->logger ? 0 : -1;
}

static inline void lab_start(struct lab *lab)
{
    struct err err = { "" };
    if (lab_try_start(lab, &err))
        fail_msg("logger_new: %s", err.text);
}

static inline void lab_stop(struct lab *lab)
{
    if (!lab->logger)
        return;
    logger_flush(lab->logger);
    logger_free(&lab->logger);
}

static inline void lab_remove_dir(const char *path)
{
    DIR *d = opendir(path);
    char file[512];
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        unlink(file);
    }
    closedir(d);
    rmdir(path);
}

static inline void lab_done(struct lab *lab)
{
    lab_stop(lab);
    loop_free(lab->loop);
    lab_remove_dir(lab->audit);
    lab_remove_dir(lab->keys);
    rmdir(lab->root);
}

/* A ring with its writer, added to the logger. */
struct lab_ring {
    int fd; /* kept, to add it again to a second logger */
    int done_fd;
    struct sink *sink;
};
static inline void lab_ring_init(struct lab *lab, struct lab_ring *r, size_t bytes)
{
    struct err err = { "" };
    r->fd = sink_ring_new(bytes, &err);
    assert_true(r->fd >= 0);
    r->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int wake = lab->logger ? dup(logger_wake_fd(lab->logger)) : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r->sink = sink_open(dup(r->fd), wake, dup(r->done_fd), &err);
    assert_non_null(r->sink);
}
static inline void lab_ring_add(struct lab *lab, struct lab_ring *r, const char *role, unsigned index,
                                unsigned generation)
{
    struct err err = { "" };
    if (logger_add_ring(lab->logger, role, index, generation, dup(r->fd), dup(r->done_fd), &err))
        fail_msg("logger_add_ring: %s", err.text);
}
static inline void lab_ring_done(struct lab_ring *r)
{
    sink_free(&r->sink);
    close(r->fd);
    close(r->done_fd);
}

static inline void lab_open_event(struct event *e, const char *request_id)
{
    event_init(e, EVENT_OPEN);
    event_put_str(e, FIELD_AGENT, STR("coder"));
    event_put_str(e, FIELD_CLIENT, STR("10.77.0.2"));
    event_put_str(e, FIELD_REQUEST_ID, str_c(request_id));
    event_put_str(e, FIELD_METHOD, STR("GET"));
    event_put_str(e, FIELD_SCHEME, STR("https"));
    event_put_str(e, FIELD_HOST, STR("api.test"));
    event_put_u64(e, FIELD_PORT, 443);
    event_put_str(e, FIELD_PATH, STR("/user?z=1"));
    event_put_str(e, FIELD_RULE, STR("github"));
    event_add(e, FIELD_CREDENTIALS, STR("github"));
}
static inline void lab_close_event(struct event *e, const char *request_id)
{
    lab_open_event(e, request_id);
    uint16_t type = EVENT_CLOSE;
    memcpy(e->bytes, &type, sizeof type);
    e->type = EVENT_CLOSE;
    event_put_str(e, FIELD_VERDICT, STR("allow"));
    event_put_u64(e, FIELD_STATUS, 200);
    event_put_str(e, FIELD_END, STR("ok"));
}
static inline void lab_write(struct lab_ring *r, enum event_type type, const char *request_id)
{
    static struct event e;
    if (type == EVENT_OPEN)
        lab_open_event(&e, request_id);
    else
        lab_close_event(&e, request_id);
    assert_int_equal(sink_write(r->sink, &e, type == EVENT_CLOSE), 0);
}

/* Rounds of the loop until everything taken is in the file (or the logger is blocked, or 5 s passed). */
static inline void lab_settle(struct lab *lab, struct lab_ring *r)
{
    for (int i = 0; i < 500 && sink_written(r->sink) != sink_position(r->sink); i++)
        loop_run_once(lab->loop, 10);
    assert_true(sink_written(r->sink) == sink_position(r->sink));
}

/* --- reading back --- */

static int lab_is_segment(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 6 && !strcmp(e->d_name + n - 6, ".jsonl");
}
/* Names of the segments, sorted; returns how many. */
static inline int lab_segments(const struct lab *lab, struct dirent ***ret)
{
    int n = scandir(lab->audit, ret, lab_is_segment, alphasort);
    assert_true(n >= 0);
    return n;
}
static inline void lab_segments_free(struct dirent **v, int n)
{
    for (int i = 0; i < n; i++)
        free(v[i]);
    free(v);
}
static inline char *lab_read(const char *dir, const char *name, size_t *ret_n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    char *p = malloc((size_t)n + 1);
    assert_non_null(p);
    assert_int_equal(fread(p, 1, (size_t)n, f), n);
    p[n] = 0;
    fclose(f);
    *ret_n = (size_t)n;
    return p;
}
static inline void lab_put(const char *dir, const char *name, const char *p, size_t n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}
/* All lines, parsed, as one array. */
static inline json_t *lab_lines(const struct lab *lab)
{
    struct dirent **v;
    int n = lab_segments(lab, &v);
    json_t *all = json_array();
    for (int i = 0; i < n; i++) {
        size_t size;
        char *text = lab_read(lab->audit, v[i]->d_name, &size);
        for (char *p = text, *lf; (lf = memchr(p, '\n', size - (size_t)(p - text))); p = lf + 1) {
            json_t *line = json_loadb(p, (size_t)(lf - p), JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
            assert_non_null(line);
            json_array_append_new(all, line);
        }
        free(text);
    }
    lab_segments_free(v, n);
    return all;
}
static inline const char *lab_text(const json_t *line, const char *key)
{
    const char *s = json_string_value(json_object_get(line, key));
    return s ? s : "";
}
/* How many lines have this type and, where given, this member. */
static inline size_t lab_count(const struct lab *lab, const char *type, const char *key, const char *value)
{
    json_t *all = lab_lines(lab), *line;
    size_t i, n = 0;
    json_array_foreach(all, i, line) n +=
        !strcmp(lab_text(line, "type"), type) && (!key || !strcmp(lab_text(line, key), value));
    json_decref(all);
    return n;
}

static inline bool lab_verify(const struct lab *lab, struct verify_result *ret)
{
    struct err err = { "" };
    if (audit_verify(lab->audit, lab->anchor, lab->pub, ret, &err))
        fail_msg("audit_verify: %s", err.text);
    return ret->ok;
}
#define assert_verifies(lab)                                                                                           \
    do {                                                                                                               \
        struct verify_result result_;                                                                                  \
        if (!lab_verify(lab, &result_))                                                                                \
            fail_msg("%s", result_.bad_where);                                                                         \
    } while (0)

#endif
