/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/name_shown.h"

#include <openssl/evp.h>
#include <stdio.h>

enum { SHOWN = 6, ODD_FROM = 33 };

const char *name_mask(struct str text, char out[NAME_MASK])
{
    unsigned char digest[EVP_MAX_MD_SIZE] = { 0 };
    unsigned size = 0;
    char head[SHOWN * 4 + 1];
    if (EVP_Digest(text.p, text.n, digest, &size, EVP_sha256(), NULL) != 1)
        memset(digest, 0, sizeof digest);
    size_t keep = text.n / 4 < SHOWN ? text.n / 4 : SHOWN;
    snprintf(out, NAME_MASK, "%.6s...[+%zu sha256:%02x%02x%02x%02x%02x%02x%02x%02x]",
             str_escape(str_sub(text, 0, keep), head, sizeof head), text.n - keep, digest[0], digest[1], digest[2], digest[3],
             digest[4], digest[5], digest[6], digest[7]);
    return out;
}

/* The labels from the first to the last that have part in the score. */
static struct str encoded_run(struct str labels)
{
    struct str rest = labels, label;
    size_t from = labels.n, to = 0;
    while (rest.n > 0 && str_split(&rest, '.', &label)) {
        struct name_score s;
        name_score(label, &s);
        if (s.bits == 0)
            continue;
        size_t at = (size_t)(label.p - labels.p);
        from = from == labels.n ? at : from;
        to = at + label.n;
    }
    return from < to ? str_sub(labels, from, to - from) : STR_NONE;
}

static void put_masked(struct str name, struct str run, char out[NAME_SHOWN])
{
    char mask[NAME_MASK];
    size_t at = (size_t)(run.p - name.p);
    struct str after = str_from(name, at + run.n);
    snprintf(out, NAME_SHOWN, "%.*s%s%.*s", STR_ARG(str_sub(name, 0, at)), name_mask(run, mask), STR_ARG(after));
}

/* What stands behind a piece of a placeholder and may be shown: the zone, or only so many labels of it that none is in them. */
static struct str kept_behind(const struct detector_finding *f)
{
    struct str name = f->ask.name, zone = f->zone.zone;
    struct canary_hit hit;
    size_t fixed = f->ask.fixed;
    while (zone.n > fixed && canary_find(f->canaries, str_sub(zone, 0, zone.n - fixed), &hit)) {
        ptrdiff_t dot = str_find_char(zone, '.');
        zone = dot < 0 ? STR_NONE : str_from(zone, (size_t)dot + 1);
    }
    return str_from(name, name.n - (zone.n > fixed ? zone.n : fixed));
}

bool name_shown(const struct detector_finding *f, char out[NAME_SHOWN])
{
    struct str name = f->ask.name;
    out[0] = '\0';
    if (f->canary.credential.n > 0) {
        struct str kept = kept_behind(f);
        snprintf(out, NAME_SHOWN, "[CRED:%.*s]%s%.*s", (int)(f->canary.credential.n < 64 ? f->canary.credential.n : 64),
                 f->canary.credential.p, kept.n > 0 && *kept.p != '.' ? "." : "", STR_ARG(kept));
        return true;
    }
    if (!name_cost_known(name)) {
        struct str before = f->zone.zone.n < name.n ? zone_before(name, f->zone.zone) : name;
        if (before.n < ODD_FROM)
            return false;
        put_masked(name, before, out);
        return true;
    }
    if (!detector_encoded(f))
        return false;
    struct str run = detector_scored(f);
    size_t unwritten = name.n - f->ask.fixed;
    run = encoded_run(str_sub(run, 0, run.n < unwritten ? run.n : unwritten));
    if (run.n == 0)
        return false;
    put_masked(name, run, out);
    return true;
}
