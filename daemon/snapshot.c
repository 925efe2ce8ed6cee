/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed: 8 bytes of magic, then the fields in the order of struct snapshot: numbers as u64, strings as u32 length and
 * bytes, u32 number of side files and for each its path and bytes. The roots are there once: a side file named "system"
 * is written empty and reads as the roots. */
#include "daemon/snapshot.h"

#include "base/msg.h"

#include <stdlib.h>

static const char magic[8] = { 'O', 'G', 'S', 'N', 'A', 'P', '0', '1' };

enum { PATH_BYTES_MAX = 4096 };

static void put_u32(struct buf *out, size_t v)
{
    uint32_t n = (uint32_t)v;
    buf_put(out, str_of(&n, sizeof n));
}

static void put_u64(struct buf *out, uint64_t v)
{
    buf_put(out, str_of(&v, sizeof v));
}

static void put_str(struct buf *out, struct str s)
{
    if (s.n > SNAPSHOT_MAX) {
        out->failed = true;
        return;
    }
    put_u32(out, s.n);
    buf_put(out, s);
}

int snapshot_pack(const struct snapshot *s, struct buf *out)
{
    if (s->nfiles > SNAPSHOT_FILES_MAX)
        return -1;
    buf_put(out, str_of(magic, sizeof magic));
    put_u64(out, s->number);
    put_str(out, s->file);
    put_str(out, s->dir);
    put_str(out, s->text);
    put_str(out, s->install_key);
    put_str(out, s->placeholders);
    put_str(out, s->own_ca);
    put_str(out, s->system_roots);
    put_str(out, s->resolv_conf);
    put_str(out, s->mint_socket);
    put_u64(out, s->mint_uid);
    put_u32(out, s->nfiles);
    for (size_t i = 0; i < s->nfiles; i++) {
        put_str(out, s->files[i].path);
        put_str(out, str_eq(s->files[i].path, STR("system")) ? STR("") : s->files[i].bytes);
    }
    return out->failed ? -1 : 0;
}

int snapshot_unpack(struct str bytes, struct snapshot *ret, struct err *err)
{
    if (bytes.n > SNAPSHOT_MAX || !str_starts(bytes, str_of(magic, sizeof magic)))
        return err_set(err, "snapshot: expected the magic of this build, got something else");
    struct msg_reader r = msg_reader(str_from(bytes, sizeof magic));
    struct snapshot s = { .number = msg_get_u64(&r) };
    s.file = msg_get_str(&r, PATH_BYTES_MAX);
    s.dir = msg_get_str(&r, PATH_BYTES_MAX);
    s.text = msg_get_str(&r, CONFIG_MAX);
    s.install_key = msg_get_str(&r, PATH_BYTES_MAX);
    s.placeholders = msg_get_str(&r, SNAPSHOT_MAX);
    s.own_ca = msg_get_str(&r, SNAPSHOT_MAX);
    s.system_roots = msg_get_str(&r, SNAPSHOT_MAX);
    s.resolv_conf = msg_get_str(&r, SNAPSHOT_MAX);
    s.mint_socket = msg_get_str(&r, PATH_BYTES_MAX);
    s.mint_uid = msg_get_u64(&r);
    uint32_t nfiles = msg_get_u32(&r);
    if (r.bad || nfiles > SNAPSHOT_FILES_MAX)
        return err_set(err, "snapshot: cut short or too large");
    s.files = calloc(nfiles + 1, sizeof *s.files);
    if (!s.files)
        return err_set(err, "snapshot: out of memory");
    for (; s.nfiles < nfiles && !r.bad; s.nfiles++) {
        struct side_file *f = &s.files[s.nfiles];
        f->path = msg_get_str(&r, PATH_BYTES_MAX);
        f->bytes = msg_get_str(&r, SNAPSHOT_MAX);
        if (str_eq(f->path, STR("system")) && f->bytes.n == 0)
            f->bytes = s.system_roots;
    }
    if (!msg_reader_end(&r)) {
        snapshot_done(&s);
        return err_set(err, "snapshot: cut short, or bytes after its end");
    }
    *ret = s;
    return 0;
}

void snapshot_done(struct snapshot *s)
{
    free(s->files);
    s->files = NULL;
    s->nfiles = 0;
}
