/* SPDX-License-Identifier: Apache-2.0
 *
 * server_fault: what is the matter with one DNS server: a line for the operator, at most one a minute for each server, and
 * the words that stand in the event of a question that nobody answered. Nothing of it reaches a client. */
#ifndef DNS_SERVER_FAULT_H
#define DNS_SERVER_FAULT_H

#include "dns/resolv_conf.h"

enum { SERVER_FAULT_WORDS = 160, SERVER_BLAME = 400, SERVER_TEXT = 340 };

struct server_fault {
    char what[SERVER_FAULT_WORDS]; /* the last one; "": none since it answered */
    uint64_t say_ms;               /* not complained about before */
};

/* "192.0.2.53:53", "tcp://[2001:db8::53]:53", "tls://192.0.2.53:853#dns.test". Returns out. */
const char *dns_server_text(const struct dns_server *s, char out[SERVER_TEXT]);
/* Remembers what, cut to fit, and says it if a minute has passed. so: what comes of it. */
void server_fault_note(struct server_fault *f, const struct dns_server *s, uint64_t now_ms, const char *what, const char *so,
                       const char *hint);

/* Who was asked one question and did not help: "192.0.2.53:53 (Connection refused), …". Zero: nobody yet. */
struct server_blame {
    char text[SERVER_BLAME];
    size_t n;
};
/* Servers that do not fit are counted as others. */
void server_blame_add(struct server_blame *b, const struct dns_server *s, const char *what);

#endif
