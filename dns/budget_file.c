/* SPDX-License-Identifier: Apache-2.0
 *
 * A place: checksum of all that follows (8 bytes), number (8), length (8), then the state. Numbers are little-endian. */
#include "dns/budget_file.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PLACES = 2 };

static uint64_t get(const char *p)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < 8; i++)
        v |= (uint64_t)(unsigned char)p[i] << (8 * i);
    return v;
}

static void set(char *p, uint64_t v)
{
    for (unsigned i = 0; i < 8; i++)
        p[i] = (char)(v >> (8 * i) & 0xff);
}

/* It finds what broke; there is nothing to hide. */
static uint64_t checksum(struct str place)
{
    return str_hash_keyed(0x6f75746761746521u, 0x706c616365732121u, str_from(place, 8));
}

/* *ret_some: there are bytes. 0, or the number of a whole one. */
static uint64_t read_place(int fd, size_t which, struct buf *out, bool *ret_some)
{
    buf_reset(out);
    char *p = buf_reserve(out, BUDGET_FILE_PLACE);
    size_t n = 0;
    ssize_t got = p ? 1 : -1;
    while (got > 0 && n < BUDGET_FILE_PLACE) {
        got = pread(fd, p + n, BUDGET_FILE_PLACE - n, (off_t)(which * BUDGET_FILE_PLACE + n));
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got > 0)
            n += (size_t)got;
    }
    *ret_some |= n > 0 || got < 0; /* what cannot be read is not nothing */
    if (n < BUDGET_FILE_HEAD)
        return 0;
    uint64_t length = get(p + 16);
    if (length > n - BUDGET_FILE_HEAD)
        return 0;
    struct str place = str_of(p, BUDGET_FILE_HEAD + (size_t)length);
    if (get(p) != checksum(place))
        return 0;
    buf_wrote(out, place.n);
    buf_consume(out, BUDGET_FILE_HEAD);
    return get(p + 8);
}

enum budget_state budget_file_open(struct budget_file *f, int fd, struct budget *b, uint64_t now_ms, struct err *err)
{
    struct buf places[PLACES];
    uint64_t numbers[PLACES];
    bool some = false;
    struct stat st;
    f->fd = fd;
    f->number = 0;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) { /* what cannot be kept is not begun */
        f->fd = -1;
        return budget_state_load(b, STR_NONE, now_ms, err);
    }
    for (size_t i = 0; i < PLACES; i++) {
        buf_init(&places[i], BUDGET_FILE_PLACE);
        numbers[i] = read_place(fd, i, &places[i], &some);
    }
    size_t newest = numbers[1] > numbers[0];
    enum budget_state r = BUDGET_STATE_WHOLE;
    if (numbers[newest]) {
        f->number = numbers[newest];
        r = budget_state_load(b, buf_str(&places[newest]), now_ms, err);
    } else if (some) {
        r = budget_state_load(b, STR_NONE, now_ms, err);
    }
    for (size_t i = 0; i < PLACES; i++)
        buf_done(&places[i]);
    return r;
}

int budget_file_put(const struct budget_file *f, struct budget *b, bool last, uint64_t now_ms, struct buf *out,
                    uint64_t *ret_offset, struct err *err)
{
    buf_reset(out);
    char *head = buf_reserve(out, BUDGET_FILE_HEAD);
    if (head)
        buf_wrote(out, BUDGET_FILE_HEAD);
    if (!head || budget_state_put(b, last, now_ms, out))
        return err_set(err, "budgets: out of memory");
    uint64_t number = f->number + 1;
    struct str bytes = buf_str(out);
    char *p = out->mem + out->head;
    set(p + 8, number);
    set(p + 16, bytes.n - BUDGET_FILE_HEAD);
    set(p, checksum(bytes));
    *ret_offset = number % PLACES * BUDGET_FILE_PLACE;
    return 0;
}

void budget_file_kept(struct budget_file *f, struct budget *b, bool kept)
{
    f->number += kept;
    budget_kept(b, kept);
}
