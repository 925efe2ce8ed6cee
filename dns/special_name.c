/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/special_name.h"

#include "policy/host_pattern.h"

#include <libpsl.h>
#include <stdio.h>

static struct str last_label(struct str name)
{
    ptrdiff_t dot = str_rfind_char(name, '.');
    return dot < 0 ? name : str_from(name, (size_t)dot + 1);
}

static bool is_suffix(const char *text)
{
    return psl_is_public_suffix2(psl_builtin(), text, PSL_TYPE_ANY | PSL_TYPE_NO_STAR_RULE) != 0;
}

/* Is there a suffix of the list under this name's top label? Some top labels are listed only as "*.top" or as
 * "org.top". A list that is compiled in may lack a young one: hence "write it in a rule". */
static bool delegated(struct str name, struct str top)
{
    char text[2 * 64 + 2];
    if (!psl_builtin())
        return true;
    if (top.n > 63)
        return false;
    snprintf(text, sizeof text, "x.%.*s", STR_ARG(top));
    if (is_suffix(text + 2) || is_suffix(text))
        return true;
    struct str second = last_label(str_sub(name, 0, name.n - top.n - 1));
    snprintf(text, sizeof text, "%.*s.%.*s", STR_ARG(second), STR_ARG(top));
    return second.n <= 63 && is_suffix(text);
}

enum special_kind special_name(struct str name, const char **ret_why)
{
    static const struct {
        struct str top;
        const char *why;
    } table[] = {
        { { "localhost", 9 }, "special name: localhost" },
        { { "local", 5 }, "special name: .local" },
        { { "internal", 8 }, "special name: .internal" },
        { { "invalid", 7 }, "special name: .invalid" },
        { { "onion", 5 }, "special name: .onion" },
        { { "test", 4 }, "special name: .test" },
        { { "example", 7 }, "special name: .example" },
        { { "arpa", 4 }, "special name: .arpa" },
        { { "alt", 3 }, "special name: .alt" },
    };
    struct str top = last_label(name);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (str_eq(top, table[i].top)) {
            *ret_why = table[i].why;
            return SPECIAL_USE;
        }
    if (top.n == name.n) {
        *ret_why = "special name: a single label";
        return SPECIAL_USE;
    }
    if (!delegated(name, top)) {
        *ret_why = "its top-level domain does not exist (a name written in a rule is looked up all the same)";
        return SPECIAL_UNDELEGATED;
    }
    return SPECIAL_NO;
}

bool special_name_absent(struct str name)
{
    struct str top = last_label(name);
    bool meant = str_eq(top, STR("test")) || str_eq(top, STR("example")) ||
                 (top.n == name.n && !str_eq(top, STR("localhost")) && !str_eq(top, STR("arpa")));
    return !meant;
}

bool special_name_written(const struct rule *rule, const struct host *host)
{
    if (!rule)
        return false;
    for (size_t i = 0; i < rule->nhosts; i++)
        if (rule->hosts[i].kind != PATTERN_ANY && host_pattern_matches(&rule->hosts[i], host))
            return true;
    return false;
}
