/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/stranger.h"

#include "base/str.h"

static unsigned place_of(const struct ip *source, uint64_t uid)
{
    uint64_t hash = source->family == 4   ? str_hash(str_of(source->b, 4))
                    : source->family == 6 ? str_hash(str_of(source->b, 8))
                                          : str_hash(str_of(&uid, sizeof uid));
    return (unsigned)(hash % STRANGER_PLACES);
}

void stranger_add(struct stranger_set *set, struct stranger *s, const struct ip *source, uint64_t uid)
{
    s->place = place_of(source, uid);
    s->number = ++set->last;
    s->newer = NULL;
    s->older = set->places[s->place].newest;
    *(s->older ? &s->older->newer : &set->places[s->place].oldest) = s;
    set->places[s->place].newest = s;
    set->places[s->place].n++;
    set->n++;
}

void stranger_del(struct stranger_set *set, struct stranger *s)
{
    if (!s->number)
        return;
    *(s->newer ? &s->newer->older : &set->places[s->place].newest) = s->older;
    *(s->older ? &s->older->newer : &set->places[s->place].oldest) = s->newer;
    set->places[s->place].n--;
    set->n--;
    *s = (struct stranger) { 0 };
}

struct stranger *stranger_first_to_go(const struct stranger_set *set)
{
    size_t at = 0;
    for (size_t i = 1; set->n > 1 && i < STRANGER_PLACES; i++) {
        bool more = set->places[i].n > set->places[at].n;
        bool first = set->places[i].n && set->places[i].n == set->places[at].n &&
                     set->places[i].oldest->number < set->places[at].oldest->number;
        at = more || first ? i : at;
    }
    return set->n > 1 ? set->places[at].oldest : NULL;
}
