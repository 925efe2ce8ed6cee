/* SPDX-License-Identifier: Apache-2.0
 *
 * Tampering: every kind, at every line, found; put back, verifies again. */
#include "audit_lab.h"

#include "audit/line.h"

struct text {
    char *p;
    size_t n;
    size_t *at; /* offset of each line; at[lines] == n */
    size_t lines;
};

static struct text text_split(char *p, size_t n)
{
    struct text t = { .p = p, .n = n, .at = calloc(n + 2, sizeof(size_t)) };
    assert_non_null(t.at);
    for (size_t i = 0; i < n; i++)
        if (p[i] == '\n')
            t.at[++t.lines] = i + 1;
    return t;
}
static void text_free(struct text *t)
{
    free(t->p);
    free(t->at);
}

/* A log of three segments and its end, as a regular stop leaves it. */
static void make_log(struct lab *lab, unsigned pairs, size_t segment_bytes)
{
    struct lab_ring ring;
    char id[16];
    lab_init(lab, "/tmp");
    lab->options.segment_bytes = segment_bytes;
    lab_start(lab);
    lab_ring_init(lab, &ring, 4 << 20);
    lab_ring_add(lab, &ring, "worker", 0, 1);
    for (unsigned i = 0; i < pairs; i++) {
        snprintf(id, sizeof id, "R%u", i);
        lab_write(&ring, EVENT_OPEN, id);
        lab_write(&ring, EVENT_CLOSE, id);
        if (segment_bytes < 1 << 20 && i % 4 == 3)
            lab_settle(lab, &ring);
    }
    lab_settle(lab, &ring);
    lab_stop(lab);
    lab_ring_done(&ring);
}

static uint64_t seq_at(const struct text *t, size_t i)
{
    struct line_head h;
    assert_true(line_parse(str_of(t->p + t->at[i], t->at[i + 1] - t->at[i] - 1), &h));
    return h.seq;
}

static void expect_bad(const struct lab *lab, uint64_t low, uint64_t high, const char *what, size_t line)
{
    struct verify_result r;
    if (lab_verify(lab, &r))
        fail_msg("%s line %zu: not found", what, line);
    if (r.bad_seq < low || r.bad_seq > high)
        fail_msg("%s line %zu: expected bad seq %llu to %llu, got %llu (%s)", what, line, (unsigned long long)low,
                 (unsigned long long)high, (unsigned long long)r.bad_seq, r.bad_where);
}

enum mutation { CHANGE, DROP, SWAP, REPEAT, INSERT, CUT, RECHAIN, MUTATIONS };
static const char *const mutation_names[] = { "changed",  "dropped", "swapped",  "repeated",
                                              "inserted", "cut",     "rechained" };

/* The last letter before `end`: within a value, so that the line still reads. */
static void change_letter(char *p, size_t end)
{
    while (!ascii_alpha(p[--end]))
        ;
    p[end] = p[end] == 'q' ? 'p' : 'q';
}

/* The bytes after mutation m of line i; NULL: it makes no sense there. */
static char *mutate(const struct text *t, size_t i, enum mutation m, size_t *ret_n)
{
    const char *line = t->p + t->at[i];
    size_t n = t->at[i + 1] - t->at[i], rest = t->n - t->at[i + 1];
    char *out = malloc(t->n * 2 + 2);
    assert_non_null(out);
    size_t at = t->at[i];
    memcpy(out, t->p, at);
#define COPY(p, size) (memcpy(out + at, (p), (size)), at += (size))
    switch (m) {
    case CHANGE:
        COPY(line, n);
        change_letter(out, at);
        COPY(line + n, rest);
        break;
    case DROP:
        COPY(line + n, rest);
        break;
    case SWAP:
        if (i + 1 >= t->lines) {
            free(out);
            return NULL;
        }
        COPY(t->p + t->at[i + 1], t->at[i + 2] - t->at[i + 1]);
        COPY(line, n);
        COPY(t->p + t->at[i + 2], t->n - t->at[i + 2]);
        break;
    case REPEAT:
        COPY(line, n);
        COPY(line, n);
        COPY(line + n, rest);
        break;
    case INSERT:
        COPY("{\"type\":\"open\"}\n", 16);
        COPY(line, n);
        COPY(line + n, rest);
        break;
    case CUT: /* in the middle of this line, and all that follows */
        COPY(line, n / 2);
        break;
    case RECHAIN: { /* changed, and every prev after it computed again: all but the key */
        char prev[64];
        for (size_t k = i; k < t->lines; k++) {
            size_t start = at;
            COPY(t->p + t->at[k], t->at[k + 1] - t->at[k]);
            char *field = memmem(out + start, at - start, "\"prev\":\"", 8);
            assert_non_null(field);
            char *head = memmem(out + start, at - start, ",\"head\":\"", 9);
            if (k > i)
                memcpy(field + 8, prev, 64);
            else
                change_letter(out, at);
            if (k > i && head)
                memcpy(head + 9, prev, 64);
            line_hash(str_of(out + start, at - start - 1), prev);
        }
        break;
    }
    case MUTATIONS:
        break;
    }
#undef COPY
    *ret_n = at;
    return out;
}

static void test_mutations(void **state)
{
    (void)state;
    struct lab lab;
    struct dirent **v;
    make_log(&lab, 24, 8192);
    assert_verifies(&lab);
    int n = lab_segments(&lab, &v);
    assert_in_range(n, 3, 20);
    for (int s = 0; s < n; s++) {
        size_t size;
        char *p = lab_read(lab.audit, v[s]->d_name, &size);
        struct text t = text_split(p, size);
        for (size_t i = 0; i < t.lines; i++) {
            for (unsigned m = 0; m < MUTATIONS; m++) {
                size_t out_n = 0;
                char *out = mutate(&t, i, (enum mutation)m, &out_n);
                if (!out)
                    continue;
                lab_put(lab.audit, v[s]->d_name, out, out_n);
                free(out);
                uint64_t seq = seq_at(&t, i);
                /* a chain computed again shows at the end of the file, at a checkpoint, or at the anchor */
                expect_bad(&lab, seq, m == RECHAIN ? UINT64_MAX : seq + (m == REPEAT), mutation_names[m], i);
            }
        }
        lab_put(lab.audit, v[s]->d_name, t.p, t.n);
        assert_verifies(&lab);
        text_free(&t);
    }
    lab_segments_free(v, n);
    lab_done(&lab);
}

static void test_missing_segments(void **state)
{
    (void)state;
    struct lab lab;
    struct dirent **v;
    make_log(&lab, 24, 8192);
    int n = lab_segments(&lab, &v);
    for (int s = 0; s < n; s++) {
        size_t size;
        char *p = lab_read(lab.audit, v[s]->d_name, &size), path[512];
        snprintf(path, sizeof path, "%s/%s", lab.audit, v[s]->d_name);
        assert_int_equal(unlink(path), 0);
        expect_bad(&lab, 1, UINT64_MAX, "missing segment", (size_t)s);
        lab_put(lab.audit, v[s]->d_name, p, size);
        free(p);
        assert_verifies(&lab);
    }
    /* emptied, and all of them gone */
    for (int s = 0; s < n; s++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", lab.audit, v[s]->d_name);
        unlink(path);
    }
    expect_bad(&lab, 1, 1, "no segment at all", 0);
    unlink(lab.anchor);
    expect_bad(&lab, 0, 0, "nothing at all", 0);
    lab_segments_free(v, n);
    lab_done(&lab);
}

static void test_anchor(void **state)
{
    (void)state;
    struct lab lab, other;
    size_t n, k;
    make_log(&lab, 4, 1 << 20);
    make_log(&other, 4, 1 << 20);
    char *mine = lab_read(lab.keys, AUDIT_ANCHOR_NAME, &n), *theirs = lab_read(other.keys, AUDIT_ANCHOR_NAME, &k);
    lab_put(lab.keys, AUDIT_ANCHOR_NAME, theirs, k);
    expect_bad(&lab, 0, 0, "another log's anchor", 0);
    for (size_t i = 0; i < n; i += 7) { /* no byte of it can be changed for another that reads as well */
        char *digit = mine + i;
        if (!ascii_digit(*digit) || (size_t)(strstr(mine, "\"ts\"") - mine) < i)
            continue;
        char was = *digit;
        *digit = was == '9' ? '8' : (char)(was + 1);
        lab_put(lab.keys, AUDIT_ANCHOR_NAME, mine, n);
        expect_bad(&lab, 0, UINT64_MAX, "changed anchor", i);
        *digit = was;
    }
    unlink(lab.anchor);
    expect_bad(&lab, 0, 0, "missing anchor", 0);
    lab_put(lab.keys, AUDIT_ANCHOR_NAME, mine, n);
    assert_verifies(&lab);
    free(mine);
    free(theirs);
    lab_done(&lab);
    lab_done(&other);
}

/* Behind the anchor (an old one put back) only the checkpoints' signatures stand against a chain computed again. */
static void test_recomputed_chain_behind_the_anchor(void **state)
{
    (void)state;
    struct lab lab;
    struct dirent **v;
    size_t n, size, out_n;
    make_log(&lab, 2, 1 << 20);
    char *old = lab_read(lab.keys, AUDIT_ANCHOR_NAME, &n);
    struct lab_ring ring;
    lab_start(&lab);
    lab_ring_init(&lab, &ring, 1 << 20);
    lab_ring_add(&lab, &ring, "worker", 0, 1);
    for (int i = 0; i < 20; i++)
        lab_write(&ring, EVENT_CLOSE, "R");
    lab_settle(&lab, &ring);
    lab_stop(&lab);
    lab_ring_done(&ring);
    lab_put(lab.keys, AUDIT_ANCHOR_NAME, old, n);
    assert_verifies(&lab);
    assert_int_equal(lab_segments(&lab, &v), 1);
    char *p = lab_read(lab.audit, v[0]->d_name, &size);
    struct text t = text_split(p, size);
    char *out = mutate(&t, t.lines - 10, RECHAIN, &out_n);
    lab_put(lab.audit, v[0]->d_name, out, out_n);
    struct verify_result r;
    assert_false(lab_verify(&lab, &r));
    assert_non_null(strstr(r.bad_where, "not signed"));
    free(out);
    free(old);
    text_free(&t);
    lab_segments_free(v, 1);
    lab_done(&lab);
}

/* What was damaged while the logger was away: it starts, goes on, and the damage stays visible. */
static void test_restart_does_not_heal(void **state)
{
    (void)state;
    enum { TAIL, MIDDLE, ANCHOR, ALL, KINDS };
    for (int kind = 0; kind < KINDS; kind++) {
        struct lab lab;
        struct dirent **v;
        size_t size;
        make_log(&lab, 4, 1 << 20);
        int n = lab_segments(&lab, &v);
        assert_int_equal(n, 1);
        char *p = lab_read(lab.audit, v[0]->d_name, &size), path[512];
        snprintf(path, sizeof path, "%s/%s", lab.audit, v[0]->d_name);
        struct text t = text_split(p, size);
        if (kind == TAIL)
            lab_put(lab.audit, v[0]->d_name, t.p, t.at[t.lines - 2]);
        if (kind == MIDDLE) {
            size_t out_n;
            char *out = mutate(&t, t.lines - 1, RECHAIN, &out_n);
            lab_put(lab.audit, v[0]->d_name, out, out_n);
            free(out);
        }
        if (kind == ANCHOR)
            unlink(lab.anchor);
        if (kind == ALL)
            unlink(path);
        for (int again = 0; again < 2; again++) {
            struct lab_ring ring;
            lab_start(&lab);
            lab_ring_init(&lab, &ring, RING_MIN_BYTES);
            lab_ring_add(&lab, &ring, "worker", 0, 1);
            lab_write(&ring, EVENT_CLOSE, "AFTER");
            lab_settle(&lab, &ring);
            lab_stop(&lab);
            lab_ring_done(&ring);
            expect_bad(&lab, 1, UINT64_MAX, "after a restart, kind", (size_t)kind);
            assert_int_equal(lab_count(&lab, "lifecycle", "what", "chain_broken"), 1);
        }
        assert_int_equal(lab_count(&lab, "close", "request_id", "AFTER"), 2);
        text_free(&t);
        lab_segments_free(v, n);
        lab_done(&lab);
    }
}

static void test_pruned_log_verifies(void **state)
{
    (void)state;
    struct lab lab;
    struct dirent **v;
    make_log(&lab, 24, 8192);
    lab.options.keep_ms = 0;
    usleep(1100000); /* segment names count seconds */
    lab_start(&lab);
    lab_stop(&lab);
    assert_int_equal(lab_count(&lab, "lifecycle", "what", "pruned"), 1);
    assert_int_equal(lab_count(&lab, "open", "request_id", "R0"), 0);
    assert_verifies(&lab);
    /* one more taken by hand is not pruning */
    lab.options.keep_ms = 3600000;
    lab.options.segment_bytes = 1;
    lab_start(&lab);
    lab_stop(&lab);
    assert_verifies(&lab);
    int n = lab_segments(&lab, &v);
    assert_in_range(n, 2, 20);
    char path[512];
    snprintf(path, sizeof path, "%s/%s", lab.audit, v[0]->d_name);
    assert_int_equal(unlink(path), 0);
    expect_bad(&lab, 1, UINT64_MAX, "first segment removed", 0);
    lab_segments_free(v, n);
    lab_done(&lab);
}

static void test_checkpoints_every_thousand(void **state)
{
    (void)state;
    struct lab lab;
    struct verify_result r;
    make_log(&lab, 1700, 1 << 20);
    assert_true(lab_verify(&lab, &r));
    assert_true(r.lines > 3400);
    assert_int_equal(r.checkpoints, 4); /* 3 on the way, 1 at the end */
    assert_int_equal(r.anchored_seq, r.last_seq);
    lab_done(&lab);
}

static void test_tail(void **state)
{
    (void)state;
    struct lab lab;
    struct err err;
    char *text = NULL;
    size_t n = 0, lines = 0;
    make_log(&lab, 24, 8192);
    static const size_t wanted[] = { 0, 1, 5, 30, 1000 };
    json_t *all = lab_lines(&lab);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        for (int json = 0; json < 2; json++) {
            FILE *f = open_memstream(&text, &n);
            assert_int_equal(audit_tail(lab.audit, wanted[i], false, json, f, NULL, &err), 0);
            fclose(f);
            lines = 0;
            for (size_t k = 0; k < n; k++) {
                lines += text[k] == '\n';
                assert_true(text[k] == '\n' || (text[k] >= 0x20 && text[k] < 0x7f));
            }
            size_t expect = wanted[i] < json_array_size(all) ? wanted[i] : json_array_size(all);
            assert_int_equal(lines, expect);
            free(text);
        }
    }
    json_decref(all);
    /* bytes that were changed behind our back do not reach the terminal */
    struct dirent **v;
    int s = lab_segments(&lab, &v);
    lab_put(lab.audit, v[s - 1]->d_name, "\x1b[2J\x9b\n", 6);
    FILE *f = open_memstream(&text, &n);
    assert_int_equal(audit_tail(lab.audit, 1, false, true, f, NULL, &err), 0);
    fclose(f);
    assert_string_equal(text, "\\x1b[2J\\x9b\n");
    free(text);
    lab_segments_free(v, s);
    lab_done(&lab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_missing_segments),
        cmocka_unit_test(test_anchor),
        cmocka_unit_test(test_recomputed_chain_behind_the_anchor),
        cmocka_unit_test(test_restart_does_not_heal),
        cmocka_unit_test(test_pruned_log_verifies),
        cmocka_unit_test(test_checkpoints_every_thousand),
        cmocka_unit_test(test_tail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
