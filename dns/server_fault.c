/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/server_fault.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum { SAY_MS = 60000 };

const char *dns_server_text(const struct dns_server *s, char out[SERVER_TEXT])
{
    char ip[46];
    bool v6 = s->ip.family == 6;
    snprintf(out, SERVER_TEXT, "%s%s%s%s:%u%s%s", s->tls ? "tls://" : s->tcp ? "tcp://" : "", v6 ? "[" : "", ip_format(&s->ip, ip), v6 ? "]" : "",
             s->port, s->tls ? "#" : "", s->tls ? s->tls->name : "");
    return out;
}

void server_fault_note(struct server_fault *f, const struct dns_server *s, uint64_t now_ms, const char *what, const char *so,
                       const char *hint)
{
    char text[SERVER_TEXT];
    snprintf(f->what, sizeof f->what, "%s", what);
    if (now_ms < f->say_ms)
        return;
    f->say_ms = now_ms + SAY_MS;
    log_error("DNS server %s: %s%s (%s)", dns_server_text(s, text), what, so, hint);
}

void server_blame_add(struct server_blame *b, const struct dns_server *s, const char *what)
{
    static const char others[] = ", and others";
    char text[SERVER_TEXT], one[SERVER_TEXT + SERVER_FAULT_WORDS];
    size_t room = sizeof b->text - b->n;
    int n = snprintf(one, sizeof one, "%s%s (%s)", b->n ? ", " : "", dns_server_text(s, text), what);
    if (n > 0 && (size_t)n + sizeof others <= room) {
        memcpy(b->text + b->n, one, (size_t)n + 1);
        b->n += (size_t)n;
    } else if (!str_ends(str_c(b->text), str_c(others)) && sizeof others <= room) {
        memcpy(b->text + b->n, others, sizeof others);
    }
}
