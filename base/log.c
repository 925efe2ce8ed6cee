/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINES_PER_SECOND = 50 };

static const char *who = "outgate";

void log_init(const char *name)
{
    who = name;
}

/* Control bytes and what is not ASCII are escaped; quotes are ours. */
static size_t make_safe(const char *text, char *out, size_t size)
{
    static const char hex[] = "0123456789abcdef";
    size_t n = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p && n + 5 < size; p++) {
        if (*p >= 0x20 && *p < 0x7f) {
            out[n++] = (char)*p;
            continue;
        }
        const char escaped[] = { '\\', 'x', hex[*p >> 4], hex[*p & 15] };
        memcpy(out + n, escaped, sizeof escaped);
        n += sizeof escaped;
    }
    out[n] = 0;
    return n;
}

static void put_line(const char *text)
{
    char safe[3200], line[3400];
    make_safe(text, safe, sizeof safe);
    int n = snprintf(line, sizeof line, "%s: %s\n", who, safe);
    if (n > 0) {
        ssize_t ignored = write(2, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
        (void)ignored; /* nobody to tell */
    }
}

static bool allowed(void)
{
    static uint64_t second;
    static unsigned count, suppressed;
    uint64_t now = clock_mono_ms() / 1000;
    if (now != second) {
        if (suppressed) {
            char text[64];
            snprintf(text, sizeof text, "%u lines suppressed", suppressed);
            put_line(text);
        }
        second = now;
        count = suppressed = 0;
    }
    if (count++ < LINES_PER_SECOND)
        return true;
    suppressed++;
    return false;
}

static void logv(const char *format, va_list ap) __attribute__((format(printf, 1, 0)));
static void logv(const char *format, va_list ap)
{
    char text[1600];
    vsnprintf(text, sizeof text, format, ap);
    put_line(text);
}

void log_info(const char *format, ...)
{
    if (!allowed())
        return;
    va_list ap;
    va_start(ap, format);
    logv(format, ap);
    va_end(ap);
}

void log_error(const char *format, ...)
{
    if (!allowed())
        return;
    va_list ap;
    va_start(ap, format);
    logv(format, ap);
    va_end(ap);
}

void log_fatal(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    logv(format, ap);
    va_end(ap);
    abort();
}
