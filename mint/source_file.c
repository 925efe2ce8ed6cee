/* SPDX-License-Identifier: Apache-2.0 */
#include "mint/source.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_all(int fd, struct buf *ret, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st))
        return err_set_errno(err, "cannot look at the file");
    if (!S_ISREG(st.st_mode))
        return err_set(err, "expected a regular file");
    if (st.st_size > LEASE_VALUE_MAX)
        return err_set(err, "expected at most %d bytes, got %lld", LEASE_VALUE_MAX, (long long)st.st_size);
    for (;;) {
        char *p = buf_reserve(ret, 4096);
        ssize_t n = p ? read(fd, p, 4096) : 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set_errno(err, "cannot read the file");
        if (n == 0)
            return source_trim(ret, err);
        buf_wrote(ret, (size_t)n);
    }
}

int source_file_read(int fd, struct buf *ret, struct err *err)
{
    int r = read_all(fd, ret, err);
    close(fd);
    return r;
}
