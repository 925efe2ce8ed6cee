/* SPDX-License-Identifier: Apache-2.0
 *
 * origin_versions: what one worker knows of the versions of HTTP that hosts speak, for clients of HTTP/1.1: these are carried over
 * HTTP/1.1 where a host has it, since that costs less for each request, and over HTTP/2 where a host has nothing else. A host that was
 * never met is offered both. One that took HTTP/2 is offered HTTP/1.1 alone the next time; from then on it is known. Forgotten after
 * VERSIONS_MS, or when another host needs the place: then it is found out anew. Decides nothing but what is offered. */
#ifndef PROXY_ORIGIN_VERSIONS_H
#define PROXY_ORIGIN_VERSIONS_H

#include "policy/host.h"

/* 24 KiB of a worker, for the hosts of ten minutes. What has lost its place costs one handshake that offers both, never a failure, so that nobody
 * need set it. */
enum { VERSIONS_PLACES = 1024, VERSIONS_MS = 600 * 1000 };

enum version_known {
    VERSIONS_UNKNOWN = 0,
    VERSIONS_TOOK_H2, /* offered both; whether it has HTTP/1.1 is not known */
    VERSIONS_HAS_H1,
    VERSIONS_ONLY_H2,
};

/* Zero at first. */
struct origin_versions {
    struct {
        uint64_t hash, at_ms;
        enum version_known known;
    } v[VERSIONS_PLACES];
};

enum version_known origin_versions_get(const struct origin_versions *t, const struct host *host, uint16_t port, uint64_t now_ms);
void origin_versions_set(struct origin_versions *t, const struct host *host, uint16_t port, enum version_known known, uint64_t now_ms);

#endif
