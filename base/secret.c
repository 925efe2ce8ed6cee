/* SPDX-License-Identifier: Apache-2.0
 *
 * Secrets live in mappings of their own: memfd_secret where the kernel offers it (such pages are in no other mapping, not
 * even the kernel's), else anonymous memory that is locked, kept out of core dumps and wiped in children. The arena is a
 * row of regions, each split into slots of one size class; a freed slot is wiped at once. */
#include "base/secret.h"

#include "base/log.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { REGION_BYTES = 256 * 1024, REGIONS_MAX = 256, CLASSES = 5 };
static const size_t class_bytes[CLASSES] = { 256, 1024, 4096, 16384, 131072 };

struct region {
    char *mem;
    size_t slot_bytes;
    uint32_t used; /* slots handed out */
};

struct secret {
    unsigned refs;
    uint32_t n;
    struct region *region;
    struct secret *next_free;
    char bytes[];
};

static struct region regions[REGIONS_MAX];
static size_t nregions;
static struct secret *free_slots[CLASSES];
static bool use_memfd_secret = true;

static char *map_secret_memory(size_t n)
{
    if (use_memfd_secret) {
#ifdef SYS_memfd_secret
        int fd = (int)syscall(SYS_memfd_secret, 0x80000 /* O_CLOEXEC */);
        if (fd >= 0) {
            char *p = MAP_FAILED;
            if (ftruncate(fd, (off_t)n) == 0)
                p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            close(fd);
            if (p != MAP_FAILED)
                return p;
        }
#endif
        use_memfd_secret = false;
    }
    char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (mlock(p, n) != 0 && nregions == 0) { /* past the lock limit the pages still stay out of dumps and children */
        munmap(p, n);
        return NULL;
    }
    madvise(p, n, MADV_DONTDUMP);
    madvise(p, n, MADV_WIPEONFORK);
    return p;
}

static int add_region(unsigned cls)
{
    if (nregions == REGIONS_MAX)
        return -1;
    char *mem = map_secret_memory(REGION_BYTES);
    if (!mem)
        return -1;
    struct region *r = &regions[nregions++];
    *r = (struct region) { .mem = mem, .slot_bytes = class_bytes[cls] };
    for (size_t at = REGION_BYTES / class_bytes[cls]; at-- > 0;) {
        struct secret *s = (struct secret *)(void *)(mem + at * class_bytes[cls]);
        s->region = r;
        s->next_free = free_slots[cls];
        free_slots[cls] = s;
    }
    return 0;
}

int secret_init(void)
{
    return nregions ? 0 : add_region(0);
}

static unsigned class_of(size_t n)
{
    unsigned cls = 0;
    while (cls < CLASSES - 1 && sizeof(struct secret) + n > class_bytes[cls])
        cls++;
    return cls;
}

struct secret *secret_new(const void *p, size_t n)
{
    if (!n || n > SECRET_MAX)
        return NULL;
    unsigned cls = class_of(n);
    if (!free_slots[cls] && add_region(cls))
        return NULL;
    struct secret *s = free_slots[cls];
    free_slots[cls] = s->next_free;
    s->region->used++;
    s->refs = 1;
    s->n = (uint32_t)n;
    s->next_free = NULL;
    memcpy(s->bytes, p, n);
    return s;
}

struct secret *secret_ref(struct secret *s)
{
    MUST(s->refs > 0);
    s->refs++;
    return s;
}

void secret_unref(struct secret **sp)
{
    struct secret *s = *sp;
    *sp = NULL;
    if (!s)
        return;
    MUST(s->refs > 0);
    if (--s->refs)
        return;
    unsigned cls = class_of(s->n);
    explicit_bzero(s->bytes, s->n);
    s->n = 0;
    s->region->used--;
    s->next_free = free_slots[cls];
    free_slots[cls] = s;
}

size_t secret_size(const struct secret *s)
{
    return s->n;
}

struct str secret_reveal(const struct secret *s)
{
    MUST(s->refs > 0);
    return str_of(s->bytes, s->n);
}

void secret_wipe(void *p, size_t n)
{
    if (n)
        explicit_bzero(p, n);
}

bool secret_equal(struct str a, struct str b)
{
    size_t n = a.n > b.n ? a.n : b.n;
    unsigned char diff = (unsigned char)(a.n != b.n);
    for (size_t i = 0; i < n; i++) {
        unsigned char x = i < a.n ? (unsigned char)a.p[i] : 0, y = i < b.n ? (unsigned char)b.p[i] : 0;
        diff |= (unsigned char)(x ^ y);
    }
    return diff == 0;
}
