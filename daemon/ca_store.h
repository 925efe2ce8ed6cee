/* SPDX-License-Identifier: Apache-2.0
 *
 * ca_store: the places of this machine where clients look for the CAs they trust, and our certificate put into them or
 * taken out again, by the tools that own those places. Each entry is named after the certificate's fingerprint: what
 * stands under that name can only be ours, nothing else is ever changed, and what was taken out leaves what was before.
 * Every function may be called again and again, also after it was stopped half-way. */
#ifndef DAEMON_CA_STORE_H
#define DAEMON_CA_STORE_H

#include "base/err.h"
#include "base/str.h"

#include <sys/types.h>

struct ca_cert {
    struct str pem;    /* this one certificate, without any text around it */
    const char *label; /* "outgate-ca-" and 16 hex digits of its SHA-256 */
};

enum ca_store_end {
    CA_STORE_OK,     /* it is as asked, by us or before us */
    CA_STORE_ABSENT, /* this machine (or user) has no such store, or lacks the tool: *err says which */
    CA_STORE_FAILED, /* *err says why, and what to do */
};

/* What was done, or found done, where: for the user, on stdout. */
void ca_store_say(const char *store, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A new file in a folder. 0 or -1. */
int ca_store_create(const char *folder, const char *name, struct str bytes, mode_t mode, struct err *err);
/* Is the certificate among those of a text? White space does not count. */
bool ca_store_has(struct str text, struct str pem);

/* The system's: /usr/local/share/ca-certificates and update-ca-certificates (Debian and what comes from it). Root's. */
enum ca_store_end ca_store_system(const struct ca_cert *cert, bool install, struct err *err);
/* NSS, which Chromium and Firefox read: $HOME/.pki/nssdb, made where it does not exist (and taken away again), and the
 * profiles under $HOME/.mozilla/firefox. */
enum ca_store_end ca_store_nss(const struct ca_cert *cert, bool install, struct err *err);
/* Java: lib/security/cacerts of $JAVA_HOME; where that is not set, of the home of the keytool in PATH. */
enum ca_store_end ca_store_java(const struct ca_cert *cert, bool install, struct err *err);

#endif
