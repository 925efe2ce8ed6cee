/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/clock.h"
#include "base/str.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LINES_PER_SECOND = 50 };

static const char *who = "outgate";

void log_init(const char *name)
{
    who = name;
}

static void put_line(const char *text)
{
    char safe[3200], line[3400];
    str_escape(str_c(text), safe, sizeof safe);
    /* Quotes and backslashes are ours here: only control bytes matter on a terminal. */
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
