/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/cli_explain_name.h"

#include "base/clock.h"
#include "daemon/files.h"
#include "daemon/placeholder_list.h"
#include "policy/dns_type.h"

#include <stdio.h>
#include <stdlib.h>

static struct canary *read_canary(const struct gather *g)
{
    struct err err;
    struct buf key, list;
    struct canary *c = NULL;
    buf_init(&key, 4096);
    buf_init(&list, 64 * 1024 * 1024);
    key.wipe = true;
    char *path = z_printf("%.*s/keys/install.key", STR_ARG(g->config->state_dir));
    if (file_read(path, &key, &err) == 0 && placeholder_list_put(g->policy, buf_str(&key), &list, &err) == 0)
        c = placeholder_list_canary(buf_str(&list), &err);
    free(path);
    buf_done(&key);
    buf_done(&list);
    return c;
}

int name_part_make(const struct gather *g, const struct agent *agent, const struct rule *rule, struct str name, uint16_t type,
                   struct name_part *ret, struct err *err)
{
    *ret = (struct name_part) { .type = type, .config = g->config, .canary = read_canary(g) };
    return name_explain(g->policy, agent, rule, name, type, ret->canary, clock_wall_us(), &ret->x, err);
}

void name_part_done(struct name_part *p)
{
    canary_unref(&p->canary);
}

enum end name_part_end(const struct name_part *p)
{
    if (p->x.dial.allow)
        return END_OK;
    return p->x.dial.rule == DETECTOR_SPECIAL ? END_HOST_DENIED : END_EXFILTRATION;
}

/* --- the answer --- */

/* What is answered, in a word. */
static const char *answer_word(const struct name_part *p)
{
    const struct name_ruling *r = &p->x.ruling;
    if (r->fate >= NAME_NO_DATA && !p->x.question.allow)
        return "refused";
    switch (r->fate) {
    case NAME_REFUSED:
        return "refused";
    case NAME_ABSENT:
        return "absent";
    case NAME_NO_DATA:
        return "no_data";
    case NAME_ADDRESS:
    case NAME_RECORDS:
        break;
    }
    return p->x.asked_upstream ? "forward" : p->config->dns_forward ? "hosts" : "synthetic";
}

/* The address that is made up here; NULL: none is. */
static const char *synthetic(const struct name_part *p, char out[46])
{
    const struct config *c = p->config;
    const struct ip *ip = p->type == DNS_TYPE_A ? &c->synthetic_v4 : &c->synthetic_v6;
    return strcmp(answer_word(p), "synthetic") == 0 && ip->family ? ip_format(ip, out) : NULL;
}

static const char *answer_sentence(const struct name_part *p)
{
    const char *word = answer_word(p);
    char text[46];
    if (strcmp(word, "synthetic") == 0)
        return synthetic(p, text) ? "an address of resolver.synthetic; nothing is asked upstream" : "NOERROR without an address: resolver.synthetic has none of this family";
    if (strcmp(word, "forward") == 0)
        return p->x.ruling.fate == NAME_RECORDS ? "asked upstream, and given as it comes" : "asked upstream, and what may not be dialled left out";
    if (strcmp(word, "hosts") == 0)
        return "what resolver.hosts has of it";
    if (strcmp(word, "no_data") == 0)
        return "NOERROR without a record";
    return strcmp(word, "absent") == 0 ? "NXDOMAIN" : "REFUSED";
}

static enum end answer_code(const struct name_part *p)
{
    bool refused = strcmp(answer_word(p), "refused") == 0;
    if (refused && p->x.ruling.fate >= NAME_NO_DATA)
        return END_EXFILTRATION;
    return p->x.ruling.fate <= NAME_ABSENT ? p->x.ruling.code : END_OK;
}

/* --- the name --- */

static const char *approval_word(const struct name_part *p)
{
    static const char *const words[] = { "unapproved", "wildcard", "exact" };
    return p->x.exempt ? "exempt" : words[p->x.approval];
}

static const char *approval_sentence(const struct name_part *p)
{
    if (p->x.exempt)
        return "exfiltration.exempt covers it: it costs nothing";
    switch (p->x.approval) {
    case DETECTOR_EXACT:
        return p->x.ruling.fixed ? "resolver.hosts writes it out: it costs nothing" : "a rule writes it out: it costs nothing";
    case DETECTOR_WILDCARD:
        return "a pattern lets it through: a new name costs what it can carry";
    case DETECTOR_UNAPPROVED:
        break;
    }
    return p->x.observe ? "mode observe lets it through: it costs what it can carry, each time" : "nothing lets it through";
}

static unsigned long long bits(uint64_t cost)
{
    return (cost + COST_BIT - 1) / COST_BIT;
}

static void put_at(const struct gather *g, const struct rule *rule)
{
    if (rule)
        printf(", by rule %.*s (%.*s:%u:%u)", STR_ARG(rule->name), STR_ARG(g->config->file), rule->at.line, rule->at.col);
    printf("\n");
}

static void print_cost(const struct name_part *p, const char *what, const struct detector_finding *f)
{
    char zone[300];
    if (f->account.limit > 0)
        printf("name: %s costs %llu of the %llu bits of %s, where nothing was spent yet\n", what, bits(f->account.cost),
               (unsigned long long)(p->config->exfiltration.zone_bits), str_escape(f->zone.zone, zone, sizeof zone));
}

static bool has_finding(const struct detector_finding *f)
{
    return f->severity != DETECTOR_QUIET;
}

void name_part_print(const struct gather *g, const struct name_part *p)
{
    char type[DNS_TYPE_NAME], line[DETECTOR_LINE], address[46];
    const struct name_ruling *r = &p->x.ruling;
    enum end code = answer_code(p);
    const char *ip = synthetic(p, address);
    printf("dns %s: %s%s%s%s%s", dns_type_format(p->type, type), ip ? ip : "", ip ? ", " : "", code != END_OK ? end_code(code) : "",
           code != END_OK ? ": " : "", answer_sentence(p));
    if (r->why)
        printf(" (%s)", r->why);
    put_at(g, r->rule);
    if (g->config->ndns == 0)
        printf("dns: nobody asks: there is no listen.dns\n");
    printf("name: %s: %s", approval_word(p), approval_sentence(p));
    put_at(g, p->x.approval == DETECTOR_WILDCARD ? p->x.rule : NULL);
    if (p->x.asked_upstream)
        print_cost(p, "a question", &p->x.question);
    print_cost(p, "a dial", &p->x.dial);
    if (p->x.dial.score.bits >= DETECTOR_SCORE_FLAG)
        printf("name: looks encoded: %u, %d and more do\n", p->x.dial.score.bits, DETECTOR_SCORE_FLAG);
    if (has_finding(&p->x.dial))
        printf("finding: %s\n", detector_explain(&p->x.dial, line));
    if (!p->canary)
        printf("(the install key cannot be read here: pieces of placeholders were not looked for)\n");
}

void name_part_json(const struct gather *g, const struct name_part *p, json_t *root)
{
    char type[DNS_TYPE_NAME], line[DETECTOR_LINE], address[46];
    const struct name_ruling *r = &p->x.ruling;
    const struct detector_finding *f = &p->x.dial;
    const char *ip = synthetic(p, address);
    enum end code = answer_code(p);
    json_t *dns = json_pack("{s:s, s:s, s:s, s:s, s:s, s:b}", "type", dns_type_format(p->type, type), "answer", answer_word(p), "code",
                            code == END_OK ? "" : end_code(code), "sentence", answer_sentence(p), "why", r->why ? r->why : "", "listens", g->config->ndns > 0);
    json_object_set_new(dns, "address", ip ? json_string(ip) : json_null());
    json_object_set_new(dns, "rule", r->rule ? json_stringn(r->rule->name.p, r->rule->name.n) : json_null());
    json_t *name = json_pack("{s:s, s:b, s:i, s:b, s:I, s:I, s:b}", "approval", approval_word(p), "passes", f->allow, "score", (int)f->score.bits,
                             "encoded", f->score.bits >= DETECTOR_SCORE_FLAG, "dial_bits", (json_int_t)bits(f->account.cost), "question_bits",
                             (json_int_t)bits(p->x.question.account.cost), "placeholders_known", p->canary != NULL);
    json_object_set_new(name, "zone", json_stringn_nocheck(f->zone.zone.p ? f->zone.zone.p : "", f->zone.zone.n));
    json_object_set_new(name, "of_bits", json_integer((json_int_t)p->config->exfiltration.zone_bits));
    json_object_set_new(name, "class", has_finding(f) ? json_string(f->class) : json_null());
    json_object_set_new(name, "sentence", has_finding(f) ? json_string(detector_explain(f, line)) : json_null());
    json_object_set_new(root, "dns", dns);
    json_object_set_new(root, "name", name);
}
