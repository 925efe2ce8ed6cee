/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/host_pattern.h"

#include <stdio.h>

int host_pattern_parse(struct str text, struct host_pattern *ret, bool *ret_converted, struct err *err)
{
    struct host_pattern p = { 0 };
    bool converted = false;
    if (str_eq(text, STR("*"))) {
        p.kind = PATTERN_ANY;
    } else if (str_starts(text, STR("*."))) {
        p.kind = PATTERN_SUFFIX;
        if (host_parse_config(str_from(text, 2), &p.host, &converted, err))
            return -1;
        if (host_is_ip(&p.host))
            return err_set(err, "expected a name after \"*.\", got an address");
        if (p.host.n > HOST_MAX - 2)
            return err_set(err, "expected a shorter name after \"*.\"");
    } else if (text.n && memchr(text.p, '*', text.n)) {
        char shown[80];
        return err_set(err, "expected \"*\" only alone or as \"*.\" at the start, got \"%s\"",
                       str_escape(text, shown, sizeof shown));
    } else {
        p.kind = PATTERN_EXACT;
        struct str bare = text;
        if (text.n > 2 && text.p[0] == '[' && text.p[text.n - 1] == ']') /* [v6], as in a URL */
            bare = str_sub(text, 1, text.n - 2);
        if (host_parse_config(bare, &p.host, &converted, err))
            return -1;
        if (bare.n != text.n && p.host.ip.family != 6)
            return err_set(err, "expected an IPv6 address in brackets");
    }
    *ret = p;
    *ret_converted = converted;
    return 0;
}

/* h is one label or more in front of suffix. */
static bool under(struct str h, struct str suffix)
{
    return h.n > suffix.n + 1 && h.p[h.n - suffix.n - 1] == '.' && str_ends(h, suffix);
}

bool host_pattern_matches(const struct host_pattern *p, const struct host *h)
{
    switch (p->kind) {
    case PATTERN_EXACT:
        return host_eq(&p->host, h);
    case PATTERN_SUFFIX:
        return !host_is_ip(h) && under(host_str(h), host_str(&p->host));
    case PATTERN_ANY:
        return !host_is_ip(h) && h->n;
    }
    return false;
}

bool host_pattern_covers(const struct host_pattern *a, const struct host_pattern *b)
{
    if (b->kind == PATTERN_EXACT)
        return host_pattern_matches(a, &b->host);
    if (a->kind == PATTERN_ANY)
        return true;
    if (a->kind != PATTERN_SUFFIX || b->kind != PATTERN_SUFFIX)
        return false;
    return host_eq(&a->host, &b->host) || under(host_str(&b->host), host_str(&a->host));
}
