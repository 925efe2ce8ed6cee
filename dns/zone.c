/* SPDX-License-Identifier: Apache-2.0
 *
 * libpsl says where the registrable domain begins, for both sections of the list together, and our own table what an
 * older list lacks. The public zone above is what the ICANN section alone makes of it: the longest suffix there, and
 * one label more. */
#include "dns/zone.h"

#include "policy/host.h"
#include "policy/shared_suffix.h"

#include <libpsl.h>

/* The longest rules of the list have five labels; what stands before them changes nothing, and is not gone through. */
enum { RULE_LABELS = 6 };

/* What the list said lately: it takes half a microsecond, a quarter of what a question costs here, and the same names
 * are asked for again and again. Under str_hash's secret key nobody finds two names for one hash. */
enum { KEPT = 8192 };
static struct {
    uint64_t name;          /* hash; 0: free */
    uint8_t zone_n, above_n; /* their bytes; 0: none above */
} kept[KEPT];
_Static_assert(HOST_MAX <= UINT8_MAX, "lengths fit");

static struct str last_labels(struct str name, unsigned n)
{
    size_t at = name.n;
    while (at > 0 && !(name.p[at - 1] == '.' && n-- == 1))
        at--;
    return str_from(name, at);
}

/* The start of the label before `at`; 0 where there is none. */
static size_t label_before(const char *text, size_t at)
{
    size_t i = at > 0 ? at - 1 : 0;
    while (i > 0 && text[i - 1] != '.')
        i--;
    return i;
}

static bool is_icann(const char *text)
{
    return psl_is_public_suffix2(psl_builtin(), text, PSL_TYPE_ICANN) != 0;
}

/* Where the registrable domain by the ICANN section begins; `registrable` is that of both sections, or NULL. */
static size_t icann_start(const char *text, size_t n, const char *registrable)
{
    const char *dot = registrable ? strchr(registrable, '.') : NULL;
    if (dot && is_icann(dot + 1))
        return (size_t)(registrable - text);
    size_t at = label_before(text, n);
    while (at > 0) {
        size_t next = label_before(text, at);
        if (!is_icann(text + next))
            return next;
        at = next;
    }
    return at;
}

static void look_up(struct str name, struct zone *ret)
{
    char text[HOST_MAX + 1];
    struct str last = last_labels(name, RULE_LABELS + 1);
    memcpy(text, last.p, last.n);
    text[last.n] = '\0';
    const char *registrable = psl_registrable_domain(psl_builtin(), text);
    struct str above = str_from(last, icann_start(text, last.n, registrable)), tenant = shared_suffix_tenant(name);
    /* Without one the name is a suffix itself: what is not below a private one belongs to who lets it. */
    struct str zone = registrable ? str_from(last, (size_t)(registrable - text)) : above;
    if (tenant.n > zone.n)
        zone = tenant;
    ret->zone = zone;
    ret->above = above.n < zone.n ? above : STR_NONE;
}

void zone_of(struct str name, struct zone *ret)
{
    *ret = (struct zone) { .zone = name, .above = STR_NONE };
    if (name.n == 0 || name.n > HOST_MAX || !psl_builtin())
        return;
    uint64_t hash = str_hash(name);
    size_t at = hash % KEPT, other = at ^ 1;
    if (kept[at].name != hash && kept[other].name == hash)
        at = other;
    if (kept[at].name != hash || kept[at].zone_n > name.n || kept[at].above_n > name.n) {
        look_up(name, ret);
        kept[other] = kept[at]; /* two names that want one place */
        kept[at].name = hash;
        kept[at].zone_n = (uint8_t)ret->zone.n;
        kept[at].above_n = (uint8_t)ret->above.n;
        return;
    }
    ret->zone = str_from(name, name.n - kept[at].zone_n);
    if (kept[at].above_n > 0)
        ret->above = str_from(name, name.n - kept[at].above_n);
}

struct str zone_before(struct str name, struct str zone)
{
    return name.n > zone.n ? str_sub(name, 0, name.n - zone.n - 1) : STR_NONE;
}
