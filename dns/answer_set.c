/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/answer_set.h"

#include "base/log.h"

#include <stdlib.h>

struct answer_set *answer_set_new(enum answer_state state, const struct ip *ips, size_t n)
{
    struct answer_set *s = calloc(1, sizeof *s + n * sizeof *ips);
    if (!s)
        return NULL;
    s->refs = 1;
    s->state = state;
    s->n = n;
    if (n > 0)
        memcpy(s->ips, ips, n * sizeof *ips);
    return s;
}

struct answer_set *answer_set_ref(struct answer_set *s)
{
    if (s) {
        MUST(s->refs > 0);
        s->refs++;
    }
    return s;
}

void answer_set_unref(struct answer_set **s)
{
    struct answer_set *old = *s;
    *s = NULL;
    if (!old)
        return;
    MUST(old->refs > 0);
    if (--old->refs == 0) {
        free(old->alias);
        free(old->detail);
        free(old);
    }
}
