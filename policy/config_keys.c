/* SPDX-License-Identifier: Apache-2.0
 *
 * The keyword tables, and the reference that is printed from them. */
#include "policy/config_read.h"

#include <stddef.h>

const struct config_key config_key_table[] = {
#define KEY(section, type, field, name, reader, flags, dflt, doc)                                                      \
    { SECTION_##section, #name, reader, offsetof(struct type, field), flags, dflt, doc },
#define LIST(section, type, field, count, name, reader, flags, dflt, doc)                                              \
    { SECTION_##section, #name, reader, offsetof(struct type, field), flags, dflt, doc },
#define WHOLE(section, type, name, reader, flags, dflt, doc) { SECTION_##section, #name, reader, 0, flags, dflt, doc },
#include "policy/config_keys.def"
#undef KEY
#undef LIST
#undef WHOLE
    { SECTION_COUNT, NULL, NULL, 0, 0, NULL, NULL },
};

/* config_read_list writes a pointer and the count behind it. */
#define KEY(...)
#define WHOLE(...)
#define LIST(section, type, field, count, ...)                                                                         \
    _Static_assert(offsetof(struct type, count) == offsetof(struct type, field) + sizeof(void *), #field);
#include "policy/config_keys.def"
#undef KEY
#undef LIST
#undef WHOLE

static const char *const section_title[SECTION_COUNT] = {
    [SECTION_TOP] = "Top level",
    [SECTION_USERS] = "users",
    [SECTION_LISTEN] = "listen",
    [SECTION_RESOLVER] = "resolver",
    [SECTION_SYNTHETIC] = "resolver.synthetic",
    [SECTION_ORIGIN] = "origin",
    [SECTION_PARENT] = "origin.parent_proxy",
    [SECTION_AGENT] = "agents[]",
    [SECTION_ADVERTISE] = "agents[].advertise",
    [SECTION_CLAIM] = "agents[].identify[]: each item is exactly one of these",
    [SECTION_LOGIN] = "agents[].identify[].login",
    [SECTION_RULE] = "rules[]",
    [SECTION_TIMEOUTS] = "rules[].timeouts",
    [SECTION_CREDENTIAL] = "credentials[]",
    [SECTION_SOURCE] = "credentials[].source: exactly one of these",
    [SECTION_SIDECAR] = "sidecars[]",
    [SECTION_EXFILTRATION] = "exfiltration",
    [SECTION_DNS_TUNNEL] = "exfiltration.dns_tunnel",
    [SECTION_EXFILTRATION_AGENT] = "exfiltration.agent",
    [SECTION_AUDIT] = "audit",
};

static void print_section(FILE *out, enum config_section section)
{
    fprintf(out, "\n## %s\n\n| key | default | |\n|---|---|---|\n", section_title[section]);
    for (const struct config_key *k = config_key_table; k->name; k++) {
        if (k->section != section)
            continue;
        bool later = k->read == read_later || k->read == read_console;
        fprintf(out, "| `%s` | %s | %s%s |\n", k->name, k->flags & KEY_REQUIRED ? "required" : k->dflt,
                later ? "not in this build: " : "", k->doc);
    }
}

static void print_limit(FILE *out, const struct limit_desc *d)
{
    static const char *const unit[] = { [LIMIT_COUNT] = "", [LIMIT_BYTES] = " bytes", [LIMIT_MS] = " ms" };
    fprintf(out, "| `%s` | %llu%s | %llu – %llu | %s |\n", d->name, (unsigned long long)d->dflt, unit[d->kind],
            (unsigned long long)d->min, (unsigned long long)d->max, d->reason);
}

void config_print_doc(FILE *out)
{
    fprintf(out, "# outgate.yaml\n\n"
                 "Printed from the tables the parser uses (`policy/config_keys.def`, `base/limits.def`); do not edit.\n"
                 "One YAML document of at most 4 MiB, without aliases, anchors and tags. Unknown and duplicate keys "
                 "are errors.\n"
                 "Durations are `500ms`, `8s`, `15m`, `2h`, `90d`; sizes are bytes or `64KiB`, `256MiB`, `20GiB`. "
                 "Relative paths\n"
                 "are relative to the file (sockets of `unix:` listeners: to the runtime folder). Nothing is expanded. "
                 "`null` is\n"
                 "the same as leaving the key out.\n");
    for (unsigned s = 0; s < SECTION_COUNT; s++)
        print_section(out, (enum config_section)s);
    fprintf(out, "\n## limits\n\n| key | default | range | |\n|---|---|---|---|\n");
    for (const struct limit_desc *d = limit_table; d->name; d++)
        print_limit(out, d);
}
