/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/role_msg.h"

struct row {
    uint16_t type;
    const char *body;
    uint8_t min_fds, max_fds;
};

static const struct row rows[] = {
#define ROLE_MSG(name, number, body, min, max, doc) { number, body, min, max },
#include "daemon/role_msg.def"
#undef ROLE_MSG
};

enum { FROM_ROLE = 64 };

static const char *const kind_names[ROLE_KIND_COUNT] = {
    [ROLE_KIND_NONE] = "none",         [ROLE_KIND_SUPERVISOR] = "supervisor",
    [ROLE_KIND_LOGGER] = "logger",     [ROLE_KIND_CA] = "ca",
    [ROLE_KIND_MINTER] = "minter",     [ROLE_KIND_KEEPER] = "keeper",
    [ROLE_KIND_RESOLVER] = "resolver", [ROLE_KIND_WORKER] = "worker",
};

const char *role_kind_name(enum role_kind kind)
{
    return (unsigned)kind < ROLE_KIND_COUNT ? kind_names[kind] : kind_names[0];
}

enum role_kind role_kind_from_name(const char *name)
{
    for (unsigned k = ROLE_KIND_NONE + 1; k < ROLE_KIND_COUNT; k++)
        if (strcmp(kind_names[k], name) == 0)
            return (enum role_kind)k;
    return ROLE_KIND_NONE;
}

static const struct row *row_of(unsigned type)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].type == type)
            return &rows[i];
    return NULL;
}

static void field_get(char letter, struct msg_reader *r, struct role_msg *m)
{
    switch (letter) {
    case 'k': {
        uint8_t kind = msg_get_u8(r);
        if (kind == ROLE_KIND_NONE || kind >= ROLE_KIND_COUNT)
            r->bad = true;
        else
            m->kind = (enum role_kind)kind;
        break;
    }
    case 'f':
        m->flag = msg_get_u8(r);
        break;
    case 'i':
        m->index = msg_get_u32(r);
        break;
    case 'g':
        m->generation = msg_get_u32(r);
        break;
    case 'n':
        m->number = msg_get_u64(r);
        break;
    case 'o':
        m->other = msg_get_u64(r);
        break;
    case 's':
        m->text = msg_get_str(r, MSG_BODY_MAX);
        break;
    case 't':
        m->more = msg_get_str(r, MSG_BODY_MAX);
        break;
    case 'u':
        m->who = msg_get_str(r, MSG_BODY_MAX);
        break;
    default:
        r->bad = true;
    }
}

int role_msg_parse(const struct msg *m, bool to_role, struct role_msg *ret)
{
    const struct row *row = row_of(m->type);
    if (!row || (row->type < FROM_ROLE) != to_role || m->nfds < row->min_fds || m->nfds > row->max_fds)
        return -1;
    struct role_msg v = { .type = (enum role_msg_type)row->type, .id = m->id, .fds = m->fds, .nfds = m->nfds };
    struct msg_reader r = msg_reader(m->body);
    for (const char *p = row->body; *p; p++)
        field_get(*p, &r, &v);
    if (!msg_reader_end(&r))
        return -1;
    *ret = v;
    return 0;
}

static void field_put(char letter, struct msg_writer *w, const struct role_msg *m)
{
    switch (letter) {
    case 'k':
        msg_put_u8(w, (uint8_t)m->kind);
        break;
    case 'f':
        msg_put_u8(w, m->flag);
        break;
    case 'i':
        msg_put_u32(w, m->index);
        break;
    case 'g':
        msg_put_u32(w, m->generation);
        break;
    case 'n':
        msg_put_u64(w, m->number);
        break;
    case 'o':
        msg_put_u64(w, m->other);
        break;
    case 's':
        msg_put_str(w, m->text);
        break;
    case 't':
        msg_put_str(w, m->more);
        break;
    default:
        msg_put_str(w, m->who);
        break;
    }
}

int role_msg_put(const struct role_msg *m, struct msg_writer *w)
{
    const struct row *row = row_of((unsigned)m->type);
    if (!row || m->nfds < row->min_fds || m->nfds > row->max_fds)
        return -1;
    for (const char *p = row->body; *p; p++)
        field_put(*p, w, m);
    return w->buf.failed ? -1 : 0;
}

int role_msg_send(struct msg_channel *ch, const struct role_msg *m)
{
    struct msg_writer w;
    msg_writer_init(&w);
    w.buf.wipe = true; /* ticket keys pass here */
    int r = role_msg_put(m, &w);
    if (r == 0)
        r = msg_send(ch, (uint16_t)m->type, m->id, buf_str(&w.buf), m->fds, m->nfds);
    buf_done(&w.buf);
    return r;
}

int role_msg_send_blocking(int fd, const struct role_msg *m)
{
    struct msg_writer w;
    msg_writer_init(&w);
    w.buf.wipe = true; /* ticket keys pass here */
    int r = role_msg_put(m, &w);
    if (r == 0)
        r = msg_send_blocking(fd, (uint16_t)m->type, m->id, buf_str(&w.buf), m->fds, m->nfds);
    buf_done(&w.buf);
    return r;
}
