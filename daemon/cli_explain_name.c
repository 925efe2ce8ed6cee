/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/cli_explain_name.h"

#include "base/clock.h"
#include "daemon/files.h"
#include "daemon/placeholder_list.h"
#include "dns/special_name.h"
#include "policy/address_known.h"
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

/* With answer: forward, what resolver.hosts has of the family: is none of it to be dialled? */
static bool all_closed(const struct gather *g, const struct name_explained *x, uint16_t type)
{
    const struct config_host_entry *fixed = x->ruling.fixed;
    struct address_fault fault;
    size_t n = 0;
    if (!g->config->dns_forward || !fixed || x->ruling.fate != NAME_ADDRESS)
        return false;
    for (size_t i = 0; i < fixed->nips; i++) {
        const struct config_host_entry one = { .host = fixed->host, .ips = &fixed->ips[i], .nips = 1 };
        if (fixed->ips[i].family != (type == DNS_TYPE_A ? 4 : 6))
            continue;
        if (!address_known_refused(g->policy, x->ruling.rule, &one.host, &one, 0, &fault))
            return false;
        n++;
    }
    return n > 0;
}

int name_part_make(const struct gather *g, const struct agent *agent, const struct rule *rule, struct str name, uint16_t type,
                   struct name_part *ret, struct err *err)
{
    int64_t now_us = clock_wall_us();
    int r = 0;
    *ret = (struct name_part) { .config = g->config, .agent = agent, .canary = read_canary(g), .n = type ? 1 : 2 };
    ret->v[0].type = type ? type : DNS_TYPE_A;
    ret->v[1].type = DNS_TYPE_AAAA;
    for (size_t i = 0; i < ret->n && r == 0; i++) {
        r = name_explain(g->policy, agent, rule, name, ret->v[i].type, ret->canary, now_us, &ret->v[i].x, err);
        ret->v[i].closed = r == 0 && all_closed(g, &ret->v[i].x, ret->v[i].type);
    }
    return r;
}

void name_part_done(struct name_part *p)
{
    canary_unref(&p->canary);
}

enum end name_part_end(const struct name_part *p)
{
    const struct detector_finding *dial = &p->v[0].x.dial;
    if (dial->allow)
        return END_OK;
    return dial->rule == DETECTOR_SPECIAL ? END_HOST_DENIED : END_EXFILTRATION_NAME;
}

/* --- the answer --- */

/* What is answered to a question for one type, in a word. */
static const char *answer_word(const struct name_part *p, size_t i)
{
    const struct name_explained *x = &p->v[i].x;
    if (p->v[i].closed || (x->ruling.fate >= NAME_NO_DATA && !x->question.allow))
        return "refused";
    switch (x->ruling.fate) {
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
    return x->asked_upstream ? "forward" : p->config->dns_forward ? "hosts" : "synthetic";
}

/* The network whose addresses are given out, each for one name; NULL: none is. */
static const struct cidr *pool_of(const struct name_part *p, size_t i)
{
    const struct address_pool *pool = &p->config->synthetic_pool;
    uint8_t family = p->v[i].type == DNS_TYPE_A ? 4 : 6;
    if (strcmp(answer_word(p, i), "synthetic") != 0 || !address_pool_has(pool, family))
        return NULL;
    return family == 4 ? &pool->v4 : &pool->v6;
}

/* The address that is made up for all names alike; NULL: none is. */
static const char *synthetic(const struct name_part *p, size_t i, char out[46])
{
    const struct config *c = p->config;
    const struct ip *ip = p->v[i].type == DNS_TYPE_A ? &c->synthetic_v4 : &c->synthetic_v6;
    return strcmp(answer_word(p, i), "synthetic") == 0 && !pool_of(p, i) && ip->family ? ip_format(ip, out) : NULL;
}

enum { NETWORK_TEXT = 46 + 4, SENTENCE = 160, HINTS_MAX = 4096 };

static const char *network_text(const struct cidr *net, char out[NETWORK_TEXT])
{
    char ip[46];
    snprintf(out, NETWORK_TEXT, "%s/%u", ip_format(&net->net, ip), net->bits);
    return out;
}

static const char *answer_sentence(const struct name_part *p, size_t i, char out[SENTENCE])
{
    const struct name_explained *x = &p->v[i].x;
    const char *word = answer_word(p, i);
    const struct cidr *pool = pool_of(p, i);
    char text[NETWORK_TEXT];
    if (strcmp(word, "synthetic") == 0 && p->config->ndns == 0)
        return "nobody asks: there is no listen.dns";
    if (pool) {
        snprintf(out, SENTENCE, "an address of its own out of %s, which the running server chooses; nothing is asked upstream", network_text(pool, text));
        return out;
    }
    if (strcmp(word, "synthetic") == 0)
        return synthetic(p, i, text) ? "an address of resolver.synthetic; nothing is asked upstream" : "NOERROR without an address: resolver.synthetic has none of this family";
    if (strcmp(word, "forward") == 0)
        return x->ruling.fate == NAME_RECORDS ? "asked upstream, and given as it comes" : "asked upstream, and what may not be dialled left out";
    if (strcmp(word, "hosts") == 0)
        return "what resolver.hosts has of it";
    if (strcmp(word, "no_data") == 0)
        return "NOERROR without a record";
    return strcmp(word, "absent") == 0 ? "NXDOMAIN" : "REFUSED";
}

static enum end answer_code(const struct name_part *p, size_t i)
{
    const struct name_explained *x = &p->v[i].x;
    bool refused = strcmp(answer_word(p, i), "refused") == 0;
    if (p->v[i].closed)
        return END_ADDRESS_DENIED;
    if (refused && x->ruling.fate >= NAME_NO_DATA)
        return END_EXFILTRATION_NAME;
    return x->ruling.fate <= NAME_ABSENT ? x->ruling.code : END_OK;
}

bool name_part_answers(const struct name_part *p)
{
    const char *word = answer_word(p, 0);
    return strcmp(word, "refused") != 0 && strcmp(word, "absent") != 0;
}

/* --- the name --- */

static const char *approval_word(const struct name_explained *x)
{
    static const char *const words[] = { "unapproved", "wildcard", "exact" };
    return x->exempt ? "exempt" : words[x->approval];
}

static const char *approval_sentence(const struct name_explained *x)
{
    if (x->exempt)
        return "exfiltration.exempt covers it: it costs nothing";
    switch (x->approval) {
    case DETECTOR_EXACT:
        return x->ruling.fixed ? "resolver.hosts writes it out: it costs nothing" : "a rule writes it out: it costs nothing";
    case DETECTOR_WILDCARD:
        return "a pattern lets it through: a new name costs what it can carry";
    case DETECTOR_UNAPPROVED:
        break;
    }
    return x->observe ? "mode observe lets it through: it costs what it can carry, each time" : "nothing lets it through";
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

/* By the account; key: of the limit. */
static const struct {
    const char *word, *whose, *key;
} accounts[] = {
    [BUDGET_ZONE_SPENT] = { "zone", "bits of ", "exfiltration.dns_tunnel.bits" },
    [BUDGET_ABOVE_SPENT] = { "zone-above", "bits of all zones under ", "four times exfiltration.dns_tunnel.bits" },
    [BUDGET_AGENT_SPENT] = { "agent", "bits a day of all zones that no rule approves", "exfiltration.agent.bits" },
    [BUDGET_NEW_ZONES] = { "new-zones", "new zones an hour that no rule approves", "exfiltration.agent.zones" },
    [BUDGET_ANY_SPENT] = { "any", "bits a day of all zones that no rule writes", "exfiltration.agent.any_bits" },
};

static struct str account_zone(const struct detector_finding *f, const struct budget_account *a)
{
    return a->of == BUDGET_ZONE_SPENT ? f->zone.zone : a->of == BUDGET_ABOVE_SPENT ? f->zone.above : STR_NONE;
}

static uint64_t zone_cost(const struct name_accounts *costs)
{
    return costs->n > 0 ? costs->v[0].cost : 0;
}

static void print_costs(const char *what, const struct detector_finding *f, const struct name_accounts *costs)
{
    char zone[300];
    for (size_t i = 0; i < costs->n; i++) {
        const struct budget_account *a = &costs->v[i];
        printf("name: %s costs %llu of the %llu %s%s (%s), not counting what a running server has spent\n", what, bits(a->cost),
               bits(a->limit), accounts[a->of].whose, str_escape(account_zone(f, a), zone, sizeof zone), accounts[a->of].key);
    }
}

static void costs_json(const char *what, const struct detector_finding *f, const struct name_accounts *costs, json_t *list)
{
    for (size_t i = 0; i < costs->n; i++) {
        const struct budget_account *a = &costs->v[i];
        struct str zone = account_zone(f, a);
        json_t *o = json_pack("{s:s, s:s, s:s, s:I, s:I}", "event", what, "account", accounts[a->of].word, "key", accounts[a->of].key, "bits",
                              (json_int_t)bits(a->cost), "of_bits", (json_int_t)bits(a->limit));
        json_object_set_new(o, "zone", zone.n ? json_stringn_nocheck(zone.p, zone.n) : json_null());
        json_array_append_new(list, o);
    }
}

static bool has_finding(const struct detector_finding *f)
{
    return f->severity != DETECTOR_QUIET;
}

static void print_answer(const struct gather *g, const struct name_part *p, size_t i)
{
    const struct name_ruling *r = &p->v[i].x.ruling;
    char type[DNS_TYPE_NAME], address[46], sentence[SENTENCE];
    enum end code = answer_code(p, i);
    const char *ip = synthetic(p, i, address);
    printf("dns %s: %s%s%s%s%s", dns_type_format(p->v[i].type, type), ip ? ip : "", ip ? ", " : "", code != END_OK ? end_code(code) : "",
           code != END_OK ? ": " : "", answer_sentence(p, i, sentence));
    if (r->why)
        printf(" (%s)", r->why);
    put_at(g, r->rule);
}

/* Where nobody asks, only what is refused whoever asks is worth a line to who did ask. */
static void print_answers(const struct gather *g, const struct name_part *p)
{
    if (g->config->ndns == 0)
        printf("dns: nobody asks: there is no listen.dns\n");
    for (size_t i = 0; i < p->n; i++)
        if (g->config->ndns > 0 || (!p->request && strcmp(answer_word(p, i), "synthetic") != 0))
            print_answer(g, p, i);
}

void name_part_hints(const struct gather *g, const struct name_part *p, struct buf *out)
{
    const struct name_explained *x = &p->v[0].x;
    const struct host *host = &x->ruling.host;
    const struct host_pattern *suffix;
    const struct rule *rule;
    const char *why;
    if ((x->approval != DETECTOR_UNAPPROVED && x->dial.rule != DETECTOR_SPECIAL) || host->n == 0)
        return;
    suffix = policy_suffix_of(g->policy, p->agent, host, &rule);
    if (suffix)
        buf_putf(out, "hint: rule %.*s lets \"*.%s\" through (%.*s:%u:%u), and \"*.\" never covers the bare name: write \"%s\" beside it\n", STR_ARG(rule->name),
                 host->name, STR_ARG(g->config->file), suffix->at.line, suffix->at.col, host->name);
    else if (special_name(host_str(host), &why) != SPECIAL_NO && x->ruling.verdict != VERDICT_ASK)
        buf_putf(out, "hint: %s: it passes only where a rule writes it, by itself or by \"*.\" and a suffix: \"*\" and mode: observe do not reach it\n", why);
}

void name_part_print(const struct gather *g, const struct name_part *p)
{
    const struct name_explained *x = &p->v[0].x;
    char line[DETECTOR_LINE];
    struct buf hints;
    print_answers(g, p);
    printf("name: %s: %s", approval_word(x), approval_sentence(x));
    put_at(g, x->approval == DETECTOR_WILDCARD ? x->rule : NULL);
    if (x->asked_upstream)
        print_costs("a question", &x->question, &x->question_costs);
    print_costs("a dial", &x->dial, &x->dial_costs);
    if (x->dial.score.bits >= DETECTOR_SCORE_FLAG)
        printf("name: looks encoded: %u, %d and more do\n", x->dial.score.bits, DETECTOR_SCORE_FLAG);
    if (has_finding(&x->dial))
        printf("finding: %s\n", detector_explain(&x->dial, line));
    if (!p->canary)
        printf("(the install key cannot be read here: pieces of placeholders were not looked for)\n");
    buf_init(&hints, HINTS_MAX);
    name_part_hints(g, p, &hints);
    printf("%.*s", STR_ARG(buf_str(&hints)));
    buf_done(&hints);
}

static json_t *answer_json(const struct gather *g, const struct name_part *p, size_t i)
{
    const struct name_ruling *r = &p->v[i].x.ruling;
    char type[DNS_TYPE_NAME], address[46], sentence[SENTENCE], network[NETWORK_TEXT];
    const char *ip = synthetic(p, i, address);
    const struct cidr *pool = pool_of(p, i);
    enum end code = answer_code(p, i);
    json_t *dns = json_pack("{s:s, s:s, s:s, s:s, s:s, s:b}", "type", dns_type_format(p->v[i].type, type), "answer", answer_word(p, i), "code",
                            code == END_OK ? "" : end_code(code), "sentence", answer_sentence(p, i, sentence), "why", r->why ? r->why : "", "listens",
                            g->config->ndns > 0);
    json_object_set_new(dns, "address", ip ? json_string(ip) : json_null());
    json_object_set_new(dns, "pool", pool ? json_string(network_text(pool, network)) : json_null());
    json_object_set_new(dns, "rule", r->rule ? json_stringn(r->rule->name.p, r->rule->name.n) : json_null());
    return dns;
}

void name_part_json(const struct gather *g, const struct name_part *p, json_t *root)
{
    char line[DETECTOR_LINE];
    const struct name_explained *x = &p->v[0].x;
    const struct detector_finding *f = &x->dial;
    json_t *name = json_pack("{s:s, s:b, s:i, s:b, s:I, s:I, s:b}", "approval", approval_word(x), "passes", f->allow, "score", (int)f->score.bits,
                             "encoded", f->score.bits >= DETECTOR_SCORE_FLAG, "dial_bits", (json_int_t)bits(zone_cost(&x->dial_costs)), "question_bits",
                             (json_int_t)bits(zone_cost(&x->question_costs)), "placeholders_known", p->canary != NULL);
    json_object_set_new(name, "zone", json_stringn_nocheck(f->zone.zone.p ? f->zone.zone.p : "", f->zone.zone.n));
    json_t *costs = json_array();
    costs_json("question", &x->question, &x->question_costs, costs);
    costs_json("dial", f, &x->dial_costs, costs);
    json_object_set_new(name, "accounts", costs);
    json_object_set_new(name, "spent_counted", json_false()); /* only a running server knows */
    json_object_set_new(name, "of_bits", json_integer((json_int_t)p->config->exfiltration.zone_bits));
    json_object_set_new(name, "class", has_finding(f) ? json_string(f->class) : json_null());
    json_object_set_new(name, "sentence", has_finding(f) ? json_string(detector_explain(f, line)) : json_null());
    struct buf hints;
    buf_init(&hints, HINTS_MAX);
    name_part_hints(g, p, &hints);
    struct str rest = buf_str(&hints), text;
    json_t *list = json_array();
    while (str_split(&rest, '\n', &text))
        if (text.n)
            json_array_append_new(list, json_stringn(text.p, text.n));
    buf_done(&hints);
    json_object_set_new(root, "hints", list);
    json_object_set_new(root, "dns", answer_json(g, p, 0));
    if (p->n > 1)
        json_object_set_new(root, "dns_aaaa", answer_json(g, p, 1));
    json_object_set_new(root, "name", name);
}
