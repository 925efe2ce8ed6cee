/* SPDX-License-Identifier: Apache-2.0
 *
 * origin_path: finds a chain that both OpenSSL and origin_chain accept. OpenSSL builds one chain and judges that; where
 * an intermediate has several certificates (cross-signed roots, one of them expired, constrained or badly made),
 * another chain may be good. So a chain that is refused is built again without one of the certificates that the origin
 * sent, then without two, a few times in all. Each attempt is a whole verification: this accepts nothing that
 * X509_verify_cert and origin_chain would not have accepted had the origin sent less. */
#ifndef POLICY_ORIGIN_PATH_H
#define POLICY_ORIGIN_PATH_H

#include "policy/origin_chain.h"

/* In place of X509_verify_cert, as a cert_verify_callback calls it. True: store has no error, and its chain is the one
 * that was found. False: its error, and *ret_verdict where the error is X509_V_ERR_APPLICATION_VERIFICATION, are those
 * of the first chain. */
bool origin_path_verify(X509_STORE_CTX *store, struct chain_verdict *ret_verdict);

#endif
