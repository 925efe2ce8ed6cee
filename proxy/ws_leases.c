/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/ws_leases.h"

#include <stdlib.h>
#include <string.h>

struct ws_lease {
    struct ws_lease *next;
    int64_t expires_us;
    char id[]; /* NUL-terminated */
};

static void drop(struct ws_lease **link)
{
    struct ws_lease *l = *link;
    *link = l->next;
    free(l);
}

const char *ws_leases_add(struct ws_leases *ls, const struct lease *lease, int64_t now_us, size_t most)
{
    size_t n = 0, id_size = strlen(lease->id) + 1;
    for (struct ws_lease **link = &ls->first; *link;) {
        if ((*link)->expires_us <= now_us || !strcmp((*link)->id, lease->id)) {
            drop(link);
            continue;
        }
        n++;
        link = &(*link)->next;
    }
    if (lease_dead(lease, now_us))
        return NULL;
    if (n >= most)
        return "more leases of one WebSocket live at a time than limits.ws_leases";
    struct ws_lease *l = malloc(sizeof *l + id_size);
    if (!l)
        return "out of memory";
    l->next = ls->first;
    l->expires_us = lease->expires_us;
    memcpy(l->id, lease->id, id_size);
    ls->first = l;
    return NULL;
}

bool ws_leases_has(const struct ws_leases *ls, const char *id)
{
    for (const struct ws_lease *l = ls->first; l; l = l->next)
        if (!strcmp(l->id, id))
            return true;
    return false;
}

void ws_leases_done(struct ws_leases *ls)
{
    while (ls->first)
        drop(&ls->first);
}
