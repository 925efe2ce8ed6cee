/* SPDX-License-Identifier: Apache-2.0
 *
 * Dates as text and back, by the proleptic Gregorian calendar, without the C library's time zone code: days from civil
 * after Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms". */
#include "base/clock.h"
#include "base/str.h"

static int64_t days_from_civil(int64_t y, unsigned m, unsigned d)
{
    y -= m <= 2;
    int64_t era = (y >= 0 ? y : y - 399) / 400;
    unsigned yoe = (unsigned)(y - era * 400);
    unsigned doy = (153 * (m > 2 ? m - 3 : m + 9) + 2) / 5 + d - 1;
    unsigned doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    return era * 146097 + (int64_t)doe - 719468;
}

static void civil_from_days(int64_t z, int64_t *ret_y, unsigned *ret_m, unsigned *ret_d)
{
    z += 719468;
    int64_t era = (z >= 0 ? z : z - 146096) / 146097;
    unsigned doe = (unsigned)(z - era * 146097);
    unsigned yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    unsigned doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    unsigned mp = (5 * doy + 2) / 153;
    *ret_d = doy - (153 * mp + 2) / 5 + 1;
    *ret_m = mp < 10 ? mp + 3 : mp - 9;
    *ret_y = (int64_t)yoe + era * 400 + (*ret_m <= 2);
}

static char *put_digits(char *p, uint64_t v, int width)
{
    for (int i = width - 1; i >= 0; i--, v /= 10)
        p[i] = (char)('0' + v % 10);
    return p + width;
}

const char *clock_format_us(int64_t wall_us, char out[28])
{
    const int64_t day_us = 86400000000;
    if (wall_us < 0) /* years before 1970 and past 9999 do not happen: clamp, so that the shape always holds */
        wall_us = 0;
    if (wall_us > 253402300799999999)
        wall_us = 253402300799999999;
    int64_t days = wall_us / day_us, rest = wall_us % day_us, y;
    unsigned m, d;
    civil_from_days(days, &y, &m, &d);
    char *p = put_digits(out, (uint64_t)y, 4);
    *p++ = '-';
    p = put_digits(p, m, 2);
    *p++ = '-';
    p = put_digits(p, d, 2);
    *p++ = 'T';
    p = put_digits(p, (uint64_t)(rest / 3600000000), 2);
    *p++ = ':';
    p = put_digits(p, (uint64_t)(rest / 60000000 % 60), 2);
    *p++ = ':';
    p = put_digits(p, (uint64_t)(rest / 1000000 % 60), 2);
    *p++ = '.';
    p = put_digits(p, (uint64_t)(rest % 1000000), 6);
    *p++ = 'Z';
    *p = 0;
    return out;
}

static bool take_digits(struct str *s, int width, unsigned *ret)
{
    unsigned v = 0;
    if (s->n < (size_t)width)
        return false;
    for (int i = 0; i < width; i++) {
        if (!ascii_digit(s->p[i]))
            return false;
        v = v * 10 + (unsigned)(s->p[i] - '0');
    }
    *s = str_from(*s, (size_t)width);
    *ret = v;
    return true;
}

static bool take(struct str *s, char a, char b)
{
    if (!s->n || (s->p[0] != a && s->p[0] != b))
        return false;
    *s = str_from(*s, 1);
    return true;
}

int clock_parse_rfc3339(const char *text, size_t n, int64_t *ret_wall_us)
{
    static const unsigned month_days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    struct str s = str_of(text, n);
    unsigned y, m, d, hh, mm, ss;
    if (!take_digits(&s, 4, &y) || !take(&s, '-', '-') || !take_digits(&s, 2, &m) || !take(&s, '-', '-') ||
        !take_digits(&s, 2, &d) || !take(&s, 'T', 't') || !take_digits(&s, 2, &hh) || !take(&s, ':', ':') ||
        !take_digits(&s, 2, &mm) || !take(&s, ':', ':') || !take_digits(&s, 2, &ss))
        return -1;
    if (m < 1 || m > 12 || hh > 23 || mm > 59 || ss > 60)
        return -1;
    bool leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
    if (d < 1 || d > month_days[m - 1] + (m == 2 && leap))
        return -1;
    int64_t us = 0;
    if (take(&s, '.', '.')) {
        int digits = 0;
        for (; s.n && ascii_digit(s.p[0]); s = str_from(s, 1), digits++)
            if (digits < 6)
                us = us * 10 + (s.p[0] - '0');
        if (!digits)
            return -1;
        for (; digits < 6; digits++)
            us *= 10;
    }
    int64_t offset_min = 0;
    if (!take(&s, 'Z', 'z')) {
        if (!s.n)
            return -1;
        int sign = s.p[0] == '-' ? -1 : 1;
        unsigned oh, om;
        if (!take(&s, '+', '-') || !take_digits(&s, 2, &oh) || !take(&s, ':', ':') || !take_digits(&s, 2, &om) ||
            oh > 23 || om > 59)
            return -1;
        offset_min = sign * (int64_t)(oh * 60 + om);
    }
    if (s.n)
        return -1;
    int64_t secs = days_from_civil((int64_t)y, m, d) * 86400 + (int64_t)(hh * 3600 + mm * 60 + ss) - offset_min * 60;
    *ret_wall_us = secs * 1000000 + us;
    return 0;
}
