/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_explain_name: the part of `explain` about the name: what the DNS port answers, who approved it, what it may carry. */
#ifndef DAEMON_CLI_EXPLAIN_NAME_H
#define DAEMON_CLI_EXPLAIN_NAME_H

#include "daemon/gather.h"
#include "dns/name_explain.h"

#include <jansson.h>

struct name_part {
    const struct config *config;
    const struct agent *agent;
    struct canary *canary; /* NULL: the install key cannot be read here */
    struct {
        uint16_t type;
        struct name_explained x;
        bool closed; /* the addresses of resolver.hosts, which are what is answered, may not be dialled */
    } v[2]; /* of A and of AAAA; or of the one type that was asked for */
    size_t n;
    bool request; /* the name is a request's host: nobody asked what the DNS port answers */
};
/* rule: of a request that passes; NULL: as the question finds it. type: 0: A and AAAA. Texts borrow from name. 0 or -1.
 * name_part_done in either case. */
int name_part_make(const struct gather *g, const struct agent *agent, const struct rule *rule, struct str name, uint16_t type,
                   struct name_part *ret, struct err *err);
void name_part_done(struct name_part *p);
/* What an operator who meant to let it through can have overlooked, a line each; nothing where a rule lets it through. */
void name_part_hints(const struct gather *g, const struct name_part *p, struct buf *out);
/* As lines; as members of root: "hints", "dns", "dns_aaaa" where no type was asked for, and "name". */
void name_part_print(const struct gather *g, const struct name_part *p);
void name_part_json(const struct gather *g, const struct name_part *p, json_t *root);
/* Is the question (the first, of two) answered, be it without a record? */
bool name_part_answers(const struct name_part *p);
/* What a dial of the name, that the rules let through, would be refused for; END_OK: nothing. */
enum end name_part_end(const struct name_part *p);

#endif
