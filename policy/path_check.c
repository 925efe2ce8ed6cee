/* SPDX-License-Identifier: Apache-2.0
 *
 * Targets that are refused whatever the rules say (PRODUCT: Paths), because some server behind us reads them as another
 * path than the one decided on. Dot segments are looked for the way the most generous reader would: slashes and
 * backslashes raw, encoded, encoded twice or as overlong UTF-8 all end a segment, and so does ";" (path parameters).
 * Everything else passes as it came. */
#include "policy/policy.h"

/* The byte behind "%XX" at the front, or -1. */
static int escaped(struct str s)
{
    if (s.n < 3 || s.p[0] != '%' || ascii_hex(s.p[1]) < 0 || ascii_hex(s.p[2]) < 0)
        return -1;
    return ascii_hex(s.p[1]) << 4 | ascii_hex(s.p[2]);
}

/* An ASCII character in more UTF-8 bytes than it needs, all of them escaped; *n grows by what follows the first byte.
 */
static int overlong(int first, struct str rest, size_t *n)
{
    unsigned follow = first == 0xc0 || first == 0xc1 ? 1 : first == 0xe0 ? 2 : first == 0xf0 ? 3 : 0;
    unsigned c = first == 0xc1;
    for (unsigned i = 0; i < follow; i++) {
        int b = escaped(str_from(rest, 3 * i));
        if (b < 0 || (b & 0xc0) != 0x80)
            return first;
        c = c << 6 | ((unsigned)b & 0x3f);
    }
    if (!follow || c > 0x7f)
        return first;
    *n += 3 * follow;
    return (int)c;
}

/* One character as that reader sees it, and how many bytes it takes. */
static char generous(struct str s, size_t *ret_n)
{
    size_t extra = 0;
    *ret_n = 1;
    if (s.p[0] != '%')
        return s.p[0];
    while (str_starts(str_from(s, 1 + extra), STR("25"))) /* %25…: encoded more than once */
        extra += 2;
    struct str last = str_from(s, extra + 1);
    int hi = last.n >= 2 ? ascii_hex(last.p[0]) : -1, lo = last.n >= 2 ? ascii_hex(last.p[1]) : -1;
    if (hi < 0 || lo < 0)
        return '%';
    *ret_n = extra + 3;
    return (char)overlong(hi << 4 | lo, str_from(s, extra + 3), ret_n);
}

static bool has_dot_segment(struct str path)
{
    size_t dots = 0; /* dots so far in a segment that holds nothing else; SIZE_MAX: it does */
    for (size_t i = 0, n; i < path.n; i += n) {
        char c = generous(str_from(path, i), &n);
        if (c == '/' || c == '\\' || c == ';') {
            if (dots == 1 || dots == 2)
                return true;
            dots = c == ';' ? SIZE_MAX : 0;
        } else if (c == '.' && dots != SIZE_MAX) {
            dots++;
        } else {
            dots = SIZE_MAX;
        }
    }
    return dots == 1 || dots == 2;
}

static const char *bad_escape(struct str path, size_t i)
{
    int byte = escaped(str_from(path, i));
    if (byte < 0)
        return "a \"%\" in the path is not followed by two hex digits";
    return byte ? NULL : "the path contains %00";
}

int policy_path_check(struct str target, struct err *err)
{
    if (!target.n || target.p[0] != '/')
        return err_set(err, "the path does not start with \"/\"");
    ptrdiff_t query = str_find_char(target, '?');
    struct str path = query < 0 ? target : str_sub(target, 0, (size_t)query);
    for (size_t i = 0; i < target.n; i++) {
        unsigned char c = (unsigned char)target.p[i];
        if (c <= 0x20 || c == 0x7f)
            return err_set(err, "the target contains a space or control character");
        if (c == '#')
            return err_set(err, "the target contains a fragment");
    }
    for (size_t i = 0; i < path.n; i++) {
        if (path.p[i] == '\\')
            return err_set(err, "the path contains a backslash");
        const char *why = path.p[i] == '%' ? bad_escape(path, i) : NULL;
        if (why)
            return err_set(err, "%s", why);
    }
    if (has_dot_segment(path))
        return err_set(err, "the path contains a dot segment");
    return 0;
}
