/* SPDX-License-Identifier: Apache-2.0
 *
 * ydoc: a YAML file as a read-only tree in which every node knows its line and column. The subset is small on purpose:
 * one document of maps, lists and scalars. Refused, each with its place: aliases, anchors, tags, directives, a second
 * document, duplicate, empty or non-scalar keys, merge keys, NUL, encodings other than UTF-8, more than a given size,
 * more than YDOC_DEPTH levels or YDOC_NODES nodes. Scalars stay text (`no` is "no"): the reader's tables decide what
 * they mean. Iterative: nothing recurses on the input. */
#ifndef BASE_YDOC_H
#define BASE_YDOC_H

#include "base/err.h"
#include "base/str.h"

enum { YDOC_DEPTH = 24, YDOC_NODES = 1000000 };

enum ynode_kind { YNODE_SCALAR = 1, YNODE_LIST, YNODE_MAP };
struct ynode {
    enum ynode_kind kind;
    bool plain;         /* scalar without quotes */
    unsigned line, col; /* of the value, from 1 */
    struct str text;    /* scalar */
    struct str key;     /* when the parent is a map */
    unsigned key_line, key_col;
    size_t n;            /* children */
    struct ynode *first; /* list items, or values of a map in the order of the file */
    struct ynode *next;
};

struct ydoc;
struct ydoc_fault {
    unsigned line, col; /* from 1 */
    char key[64];       /* the duplicate key; "" for any other fault */
    struct err err;     /* "expected …, got …" */
};

/* NULL with the first fault. An empty file gives a document whose root is NULL. Free with ydoc_free. */
struct ydoc *ydoc_parse(struct str text, size_t max_bytes, struct ydoc_fault *ret);
void ydoc_free(struct ydoc *d);
/* Borrowed; NULL for an empty document. */
const struct ynode *ydoc_root(const struct ydoc *d);
/* A plain empty scalar, `~` or `null`: the key is there but says nothing. */
bool ynode_is_null(const struct ynode *n);
/* The value of a key, or NULL. */
const struct ynode *ynode_get(const struct ynode *map, struct str key);

#endif
