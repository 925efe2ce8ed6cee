/* SPDX-License-Identifier: Apache-2.0
 *
 * log: the operator's lines on stderr ("outgate: worker 2: …"). Not the audit log: events go through audit/. One write()
 * per line, control characters escaped, rate-limited to 50 lines a second per process (the number suppressed is said).
 * Never a credential, never bytes of a body. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

/* `who` is kept by reference: "outgate", "outgate: worker 2". */
void log_init(const char *who);
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Says why and ends the process with abort semantics: for a state that must not go on (docs: fail closed). */
void log_fatal(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* An assert that stays on in production: unsure whose token this is, die and be restarted. */
#define MUST(condition)                                                                                                \
    do {                                                                                                               \
        if (__builtin_expect(!(condition), 0))                                                                         \
            log_fatal("%s:%d: broken invariant: %s", __FILE__, __LINE__, #condition);                                  \
    } while (0)

#endif
