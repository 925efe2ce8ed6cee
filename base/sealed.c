/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sealed.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL };

int sealed_new(const char *name, struct str bytes, struct err *err)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return err_set_errno(err, "memfd %s", name);
    for (size_t done = 0; done < bytes.n;) {
        ssize_t k = write(fd, bytes.p + done, bytes.n - done);
        if (k <= 0) {
            err_set_errno(err, "memfd %s: cannot write %zu bytes", name, bytes.n);
            close(fd);
            return -1;
        }
        done += (size_t)k;
    }
    if (fcntl(fd, F_ADD_SEALS, SEALS)) {
        err_set_errno(err, "memfd %s: cannot seal", name);
        close(fd);
        return -1;
    }
    return fd;
}

int sealed_map(int fd, size_t max, struct str *ret, struct err *err)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;
    if (seals < 0 || (seals & (SEALS & ~F_SEAL_SEAL)) != (SEALS & ~F_SEAL_SEAL) || fstat(fd, &st))
        return err_set(err, "expected a sealed memfd, got another descriptor");
    if (st.st_size < 0 || (uint64_t)st.st_size > max)
        return err_set(err, "expected at most %zu bytes, got %lld", max, (long long)st.st_size);
    if (st.st_size == 0) {
        *ret = STR("");
        return 0;
    }
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return err_set_errno(err, "cannot map a sealed memfd");
    *ret = str_of(p, (size_t)st.st_size);
    return 0;
}

void sealed_unmap(struct str bytes)
{
    if (bytes.n)
        munmap((void *)(uintptr_t)bytes.p, bytes.n);
}
