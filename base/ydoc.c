/* SPDX-License-Identifier: Apache-2.0
 *
 * libyaml's events drive a stack of open lists and maps; its own loader is not used (it recurses and resolves aliases).
 */
#include "base/ydoc.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct ydoc {
    struct arena arena;
    struct ynode *root;
    size_t nodes;
};

/* What begins with one of these signs is text as a rule: a pattern of hosts, a query. */
static const char got_alias[] = "expected a value, got an alias (\"*\"), which is not accepted: quote a text that begins with \"*\", as \"*.example.test\"";
static const char got_anchor[] = "expected a value, got an anchor (\"&\"), which is not accepted: quote a text that begins with \"&\"";

/* One open list or map. */
struct level {
    struct ynode *node;
    struct ynode **tail; /* where the next child is linked */
    bool have_key;       /* map: a key was read, its value comes next */
    struct str key;
    unsigned key_line, key_col;
};

struct builder {
    struct ydoc *doc;
    struct level stack[YDOC_DEPTH];
    size_t depth;
    bool seen_document;
    struct ydoc_fault *fault;
};

/* Sets the place; the words follow by err_set, which returns -1. */
static struct err *at(struct builder *b, yaml_mark_t mark)
{
    b->fault->line = (unsigned)mark.line + 1;
    b->fault->col = (unsigned)mark.column + 1;
    return &b->fault->err;
}

static void place_of(struct str text, size_t offset, struct ydoc_fault *fault)
{
    fault->line = fault->col = 1;
    for (size_t i = 0; i < offset && i < text.n; i++) {
        if (text.p[i] == '\n') {
            fault->line++;
            fault->col = 1;
        } else if (((unsigned char)text.p[i] & 0xc0) != 0x80) {
            fault->col++;
        }
    }
}

static struct ynode *node_new(struct builder *b, enum ynode_kind kind, yaml_mark_t mark)
{
    if (++b->doc->nodes > YDOC_NODES) {
        err_set(at(b, mark), "expected at most %d values, got more", YDOC_NODES);
        return NULL;
    }
    struct ynode *n = arena_alloc(&b->doc->arena, sizeof *n);
    if (!n) {
        err_set(at(b, mark), "out of memory");
        return NULL;
    }
    n->kind = kind;
    n->line = (unsigned)mark.line + 1;
    n->col = (unsigned)mark.column + 1;
    return n;
}

/* Links a finished or just opened value under the open list or map, or as the root. */
static void node_link(struct builder *b, struct ynode *n)
{
    if (!b->depth) {
        b->doc->root = n;
        return;
    }
    struct level *top = &b->stack[b->depth - 1];
    if (top->node->kind == YNODE_MAP) {
        n->key = top->key;
        n->key_line = top->key_line;
        n->key_col = top->key_col;
        top->have_key = false;
    }
    *top->tail = n;
    top->tail = &n->next;
    top->node->n++;
}

static bool wants_key(const struct builder *b)
{
    return b->depth && b->stack[b->depth - 1].node->kind == YNODE_MAP && !b->stack[b->depth - 1].have_key;
}

static int key_take(struct builder *b, const yaml_event_t *e)
{
    struct level *top = &b->stack[b->depth - 1];
    struct str key = str_of(e->data.scalar.value, e->data.scalar.length);
    if (!key.n)
        return err_set(at(b, e->start_mark), "expected a key before \":\", got nothing");
    if (str_eq(key, STR("<<")))
        return err_set(at(b, e->start_mark), "expected a key, got a merge key (\"<<\"), which is not accepted");
    top->key = arena_str(&b->doc->arena, key);
    if (!top->key.p)
        return err_set(at(b, e->start_mark), "out of memory");
    top->key_line = (unsigned)e->start_mark.line + 1;
    top->key_col = (unsigned)e->start_mark.column + 1;
    top->have_key = true;
    return 0;
}

static int on_scalar(struct builder *b, const yaml_event_t *e)
{
    if (e->data.scalar.anchor)
        return err_set(at(b, e->start_mark), "%s", got_anchor);
    if (e->data.scalar.tag)
        return err_set(at(b, e->start_mark), "expected a value, got a tag (\"!\"), which is not accepted");
    if (e->data.scalar.length && memchr(e->data.scalar.value, 0, e->data.scalar.length))
        return err_set(at(b, e->start_mark), "expected text, got a NUL byte in it");
    if (wants_key(b))
        return key_take(b, e);
    struct ynode *n = node_new(b, YNODE_SCALAR, e->start_mark);
    if (!n)
        return -1;
    n->plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    n->text = arena_str(&b->doc->arena, str_of(e->data.scalar.value, e->data.scalar.length));
    if (!n->text.p)
        return err_set(at(b, e->start_mark), "out of memory");
    node_link(b, n);
    return 0;
}

static int on_open(struct builder *b, const yaml_event_t *e, enum ynode_kind kind, const void *anchor, const void *tag)
{
    if (anchor)
        return err_set(at(b, e->start_mark), "%s", got_anchor);
    if (tag)
        return err_set(at(b, e->start_mark), "expected a value, got a tag (\"!\"), which is not accepted");
    if (wants_key(b))
        return err_set(at(b, e->start_mark), "expected a key, got a %s", kind == YNODE_MAP ? "map" : "list");
    if (b->depth == YDOC_DEPTH)
        return err_set(at(b, e->start_mark), "expected at most %d levels, got more", YDOC_DEPTH);
    struct ynode *n = node_new(b, kind, e->start_mark);
    if (!n)
        return -1;
    node_link(b, n);
    b->stack[b->depth++] = (struct level) { .node = n, .tail = &n->first };
    return 0;
}

static int by_key(const void *a, const void *b)
{
    const struct ynode *x = *(const struct ynode *const *)a, *y = *(const struct ynode *const *)b;
    int c = str_cmp(x->key, y->key);
    if (c)
        return c;
    return x->key_line != y->key_line ? (x->key_line < y->key_line ? -1 : 1) : (x->key_col < y->key_col ? -1 : 1);
}

static int duplicate(struct builder *b, const struct ynode *first, const struct ynode *again)
{
    b->fault->line = again->key_line;
    b->fault->col = again->key_col;
    str_escape(again->key, b->fault->key, sizeof b->fault->key);
    return err_set(&b->fault->err, "expected each key once, got it again (first on line %u)", first->key_line);
}

/* Small maps by comparing all pairs, large ones sorted: a 4 MiB map must not cost a quadratic time. */
static int check_duplicates(struct builder *b, const struct ynode *map)
{
    if (map->n <= 24) {
        for (const struct ynode *y = map->first; y; y = y->next)
            for (const struct ynode *x = map->first; x != y; x = x->next)
                if (str_eq(x->key, y->key))
                    return duplicate(b, x, y);
        return 0;
    }
    const struct ynode **v = calloc(map->n, sizeof(struct ynode *));
    if (!v)
        return err_set(&b->fault->err, "out of memory");
    size_t n = 0;
    for (const struct ynode *x = map->first; x; x = x->next)
        v[n++] = x;
    qsort(v, n, sizeof *v, by_key);
    int rc = 0;
    for (size_t i = 1; i < n && !rc; i++)
        if (str_eq(v[i - 1]->key, v[i]->key))
            rc = duplicate(b, v[i - 1], v[i]);
    free(v);
    return rc;
}

static int on_close(struct builder *b)
{
    const struct ynode *n = b->stack[--b->depth].node;
    return n->kind == YNODE_MAP ? check_duplicates(b, n) : 0;
}

static int on_document(struct builder *b, const yaml_event_t *e)
{
    if (b->seen_document)
        return err_set(at(b, e->start_mark), "expected one document, got a second one");
    if (e->data.document_start.version_directive ||
        e->data.document_start.tag_directives.start != e->data.document_start.tag_directives.end)
        return err_set(at(b, e->start_mark), "expected a document without directives, got a \"%%\" directive");
    b->seen_document = true;
    return 0;
}

static int on_event(struct builder *b, const yaml_event_t *e)
{
    switch (e->type) {
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_END_EVENT:
        return 0;
    case YAML_DOCUMENT_START_EVENT:
        return on_document(b, e);
    case YAML_ALIAS_EVENT:
        return err_set(at(b, e->start_mark), "%s", got_alias);
    case YAML_SCALAR_EVENT:
        return on_scalar(b, e);
    case YAML_SEQUENCE_START_EVENT:
        return on_open(b, e, YNODE_LIST, e->data.sequence_start.anchor, e->data.sequence_start.tag);
    case YAML_MAPPING_START_EVENT:
        return on_open(b, e, YNODE_MAP, e->data.mapping_start.anchor, e->data.mapping_start.tag);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return on_close(b);
    }
    return err_set(at(b, e->start_mark), "expected YAML, got something else");
}

/* An alias or anchor whose name the scanner could not read; NULL: it is something else. */
static const char *sign_fault(const yaml_parser_t *p)
{
    if (p->error != YAML_SCANNER_ERROR || !p->context)
        return NULL;
    return strcmp(p->context, "while scanning an alias") == 0    ? got_alias
           : strcmp(p->context, "while scanning an anchor") == 0 ? got_anchor
                                                                 : NULL;
}

static void syntax_fault(const yaml_parser_t *p, struct str text, struct ydoc_fault *fault)
{
    const char *sign = sign_fault(p);
    if (sign) {
        fault->line = (unsigned)p->context_mark.line + 1;
        fault->col = (unsigned)p->context_mark.column + 1;
        err_set(&fault->err, "%s", sign);
        return;
    }
    if (p->error == YAML_READER_ERROR)
        place_of(text, p->problem_offset, fault);
    else {
        fault->line = (unsigned)p->problem_mark.line + 1;
        fault->col = (unsigned)p->problem_mark.column + 1;
    }
    err_set(&fault->err, "expected well-formed YAML, got an error: %s", p->problem ? p->problem : "out of memory");
}

static int build(struct builder *b, struct str text)
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return err_set(&b->fault->err, "out of memory");
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)(text.p ? text.p : ""), text.n);
    int rc = 0;
    for (bool end = false; !end && !rc;) {
        yaml_event_t e;
        if (!yaml_parser_parse(&parser, &e)) {
            syntax_fault(&parser, text, b->fault);
            rc = -1;
            break;
        }
        end = e.type == YAML_STREAM_END_EVENT || e.type == YAML_NO_EVENT;
        rc = on_event(b, &e);
        yaml_event_delete(&e);
    }
    yaml_parser_delete(&parser);
    return rc;
}

struct ydoc *ydoc_parse(struct str text, size_t max_bytes, struct ydoc_fault *ret)
{
    *ret = (struct ydoc_fault) { .line = 1, .col = 1 };
    if (text.n > max_bytes) {
        err_set(&ret->err, "expected at most %zu bytes, got %zu", max_bytes, text.n);
        return NULL;
    }
    const char *nul = text.n ? memchr(text.p, 0, text.n) : NULL;
    if (nul) {
        place_of(text, (size_t)(nul - text.p), ret);
        err_set(&ret->err, "expected text, got a NUL byte");
        return NULL;
    }
    if (str_starts(text, STR("\xff\xfe")) || str_starts(text, STR("\xfe\xff"))) {
        err_set(&ret->err, "expected UTF-8, got UTF-16");
        return NULL;
    }
    if (str_starts(text, STR("\xef\xbb\xbf")))
        text = str_from(text, 3);
    struct ydoc *d = calloc(1, sizeof *d);
    if (!d) {
        err_set(&ret->err, "out of memory");
        return NULL;
    }
    arena_init(&d->arena, (size_t)512 << 20);
    struct builder b = { .doc = d, .fault = ret };
    if (build(&b, text)) {
        ydoc_free(d);
        return NULL;
    }
    return d;
}

void ydoc_free(struct ydoc *d)
{
    if (!d)
        return;
    arena_done(&d->arena);
    free(d);
}

const struct ynode *ydoc_root(const struct ydoc *d)
{
    return d->root;
}

bool ynode_is_null(const struct ynode *n)
{
    return n->kind == YNODE_SCALAR && n->plain &&
           (!n->text.n || str_eq(n->text, STR("null")) || str_eq(n->text, STR("~")));
}

const struct ynode *ynode_get(const struct ynode *map, struct str key)
{
    if (!map || map->kind != YNODE_MAP)
        return NULL;
    for (const struct ynode *n = map->first; n; n = n->next)
        if (str_eq(n->key, key))
            return n;
    return NULL;
}
