/* SPDX-License-Identifier: Apache-2.0
 *
 * trust: the files that make clients trust our CA: the certificate, the system's roots with ours appended (OpenSSL, Go
 * and others replace their pool by what they are given), and the same as a PKCS#12 trust store, which is what Java
 * reads. */
#ifndef DAEMON_TRUST_H
#define DAEMON_TRUST_H

#include "base/buf.h"
#include "base/err.h"

#define TRUST_SYSTEM_ROOTS "/etc/ssl/certs/ca-certificates.crt"
#define TRUST_P12_PASSWORD "changeit" /* what Java tools assume; the file holds nothing secret */

enum { TRUST_ROOTS_MAX = 16 * 1024 * 1024 };

/* The system's roots; empty where there are none (not an error: only who uses them minds). */
int trust_system_roots(struct buf *out, struct err *err);
/* (Re)writes trust/ under state_fd where it differs: ca.pem, bundle.pem, truststore.p12. */
int trust_write(int state_fd, struct str ca_pem, struct str system_roots, struct err *err);

#endif
