/* SPDX-License-Identifier: Apache-2.0
 *
 * The supervisor (or outgate-mint itself) has moved the variable's value into a memfd and wiped the environment block;
 * here it is read once. */
#include "mint/source.h"

#include <errno.h>
#include <unistd.h>

int source_trim(struct buf *value, struct err *err)
{
    if (value->failed)
        return err_set(err, "the value is over %d bytes", LEASE_VALUE_MAX);
    struct str v = buf_str(value);
    if (v.n && v.p[v.n - 1] == '\n')
        value->tail--;
    return buf_size(value) ? 0 : err_set(err, "the value is empty");
}

int source_env_read(int fd, struct buf *ret, struct err *err)
{
    if (lseek(fd, 0, SEEK_SET) < 0)
        return err_set_errno(err, "the value of the variable");
    for (;;) {
        char *p = buf_reserve(ret, 4096);
        ssize_t n = p ? read(fd, p, 4096) : 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set_errno(err, "the value of the variable");
        if (n == 0)
            return source_trim(ret, err);
        buf_wrote(ret, (size_t)n);
    }
}
