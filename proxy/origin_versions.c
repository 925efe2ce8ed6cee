/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/origin_versions.h"

static uint64_t hash_of(const struct host *host, uint16_t port)
{
    return str_hash(host_str(host)) ^ (uint64_t)port * UINT64_C(0x9e3779b97f4a7c15);
}

enum version_known origin_versions_get(const struct origin_versions *t, const struct host *host, uint16_t port, uint64_t now_ms)
{
    uint64_t hash = hash_of(host, port);
    size_t at = hash % VERSIONS_PLACES;
    return t->v[at].hash == hash && now_ms - t->v[at].at_ms < VERSIONS_MS ? t->v[at].known : VERSIONS_UNKNOWN;
}

void origin_versions_set(struct origin_versions *t, const struct host *host, uint16_t port, enum version_known known, uint64_t now_ms)
{
    uint64_t hash = hash_of(host, port);
    t->v[hash % VERSIONS_PLACES].hash = hash;
    t->v[hash % VERSIONS_PLACES].at_ms = now_ms;
    t->v[hash % VERSIONS_PLACES].known = known;
}
