/* SPDX-License-Identifier: Apache-2.0
 *
 * A finding as one line. Every part that came from outside is escaped and cut. */
#include "dns/name_shown.h"

#include "base/json.h"

#include <stdarg.h>
#include <stdio.h>

enum { SHOWN = 6, PREVIEW = 7 };

struct line {
    char *out;
    size_t n;
};

__attribute__((format(printf, 2, 3))) static void put(struct line *l, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(l->out + l->n, DETECTOR_LINE - l->n, format, ap);
    va_end(ap);
    if (n > 0)
        l->n += (size_t)n < DETECTOR_LINE - l->n ? (size_t)n : DETECTOR_LINE - l->n - 1;
}

const char *detector_class(struct str name)
{
    static const char *const classes[] = { "dns_tunnel", "host_label", "dns_placeholder", "placeholder_elsewhere" };
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (str_eq(name, str_c(classes[i])))
            return classes[i];
    return NULL;
}

const char *detector_rule_text(enum detector_rule r)
{
    static const char *const texts[] = { "none", "placeholder", "wire", "special", "llr", "half", "budget", "policy" };
    return texts[r];
}

const char *detector_severity_text(enum detector_severity s)
{
    static const char *const texts[] = { "info", "info", "medium", "critical" };
    return texts[s];
}

unsigned detector_score(const struct detector_finding *f)
{
    return f->rule == DETECTOR_PLACEHOLDER || f->score.bits > 100 ? 100 : f->score.bits;
}

/* Of an account: what the log calls it, what in the configuration bounds it, and what a name that found no room needs. */
static const struct {
    const char *of, *key, *needs;
} accounts[] = {
    [BUDGET_OK] = { "zone", "exfiltration.dns_tunnel.bits", "" },
    [BUDGET_ZONE_SPENT] = { "zone", "exfiltration.dns_tunnel.bits",
                            "the name needs more bits than its zone has left (exfiltration.dns_tunnel.bits); see the finding" },
    [BUDGET_ABOVE_SPENT] = { "zone-above", "exfiltration.dns_tunnel.bits",
                             "the name needs more bits than all zones under its suffix have left (four times exfiltration.dns_tunnel.bits); see the finding" },
    [BUDGET_AGENT_SPENT] = { "agent", "exfiltration.agent.bits",
                             "the name needs more bits than all zones that no rule approves have left (exfiltration.agent.bits); see the finding" },
    [BUDGET_NEW_ZONES] = { "new-zones", "exfiltration.agent.zones",
                           "the agent has had its new zones for now (exfiltration.agent.zones); see the finding" },
    [BUDGET_HELD] = { "zone", "exfiltration.dns_tunnel.bits", "" },
    [BUDGET_ANY_SPENT] = { "any", "exfiltration.agent.any_bits",
                           "the name needs more bits than all names under `*` have left (exfiltration.agent.any_bits); see the finding" },
};

const char *detector_why(const struct detector_finding *f)
{
    switch ((unsigned)f->rule) {
    case DETECTOR_SPENT:
        return accounts[f->verdict].needs;
    case DETECTOR_PLACEHOLDER:
        return "a piece of a placeholder is in the name; see the finding";
    default:
        return "the name looks like data being carried out; see the finding";
    }
}

const char *detector_hint(const struct detector_finding *f, char out[DETECTOR_HINT])
{
    bool spent = f->rule == DETECTOR_SPENT;
    out[0] = '\0';
    if (spent || f->rule == DETECTOR_HALF)
        snprintf(out, DETECTOR_HINT, "if this is no data, list the zone in exfiltration.exempt or raise %s%s", accounts[f->account.of].key,
                 spent && !f->allow && f->verdict != BUDGET_NEW_ZONES ? "; a name that needs no more than is left still passes" : "");
    else if (f->rule == DETECTOR_SCORE && !f->allow && f->ask.observe)
        snprintf(out, DETECTOR_HINT, "if this is no data, write the name into a rule, or list its zone in exfiltration.exempt");
    return out;
}

/* Whole bits, rounded up: everywhere. */
static unsigned long long bits_up(uint64_t units)
{
    return (unsigned long long)((units + COST_BIT - 1) / COST_BIT);
}

/* By its account, this name with them where it was charged. */
static unsigned long long spent_bits(const struct detector_finding *f)
{
    return bits_up(f->account.before + (f->charged ? f->account.cost : 0));
}

/* What hex or base32 (RFC 4648) decodes to, its first bytes, a third of them at most; false: not printable, or too few. */
static bool preview(const struct name_score *s, char out[PREVIEW + 1])
{
    unsigned per = s->class == CLASS_HEX ? 4 : s->class == CLASS_BASE32 ? 5 : 0, acc = 0, bits = 0;
    size_t n = 0, third = s->part.n * per / 8 / 3, most = third < PREVIEW ? third : PREVIEW;
    for (size_t i = 0; per && i < s->part.n && n < most; i++) {
        char c = s->part.p[i];
        int v = per == 4 ? ascii_hex(c) : ascii_alpha(c) ? c - 'a' : c >= '2' && c <= '7' ? c - '2' + 26 : -1;
        if (v < 0)
            return false;
        acc = acc << per | (unsigned)v;
        bits += per;
        if (bits < 8)
            continue;
        bits -= 8;
        out[n] = (char)(acc >> bits & 0xff);
        if (out[n] < 0x20 || out[n] > 0x7e || out[n] == '"' || out[n] == '\\')
            return false;
        n++;
    }
    out[n] = '\0';
    return n >= 4;
}

static void put_budget(struct line *l, const struct detector_finding *f)
{
    const struct budget_account *a = &f->account;
    put(l, " bits=%llu spent=%llu/%llu of=%s distinct=%u", bits_up(a->cost), spent_bits(f), bits_up(a->limit), accounts[a->of].of,
        a->names);
}

const char *detector_explain(const struct detector_finding *f, char out[DETECTOR_LINE])
{
    static const char *const types[] = {
        [1] = "A", [5] = "CNAME", [12] = "PTR", [15] = "MX", [16] = "TXT", [28] = "AAAA"
    };
    struct line l = { .out = out };
    char zone[80], name[40], owner[80], credential[80], text[PREVIEW + 1], shown[NAME_SHOWN];
    uint16_t type = f->ask.qtype;
    out[0] = '\0';
    bool hidden = name_shown(f, shown) && !str_ends(str_c(shown), f->zone.zone);
    put(&l, "%s zone=%s name=%s", f->class, str_escape(hidden ? str_c(shown) : f->zone.zone, zone, sizeof zone),
        str_escape(str_sub(f->ask.name, 0, SHOWN), name, sizeof name));
    if (f->ask.name.n > SHOWN)
        put(&l, "...(%zu)", f->ask.name.n);
    if (f->ask.event == DETECTOR_DIAL)
        put(&l, " dial");
    else if (type < sizeof types / sizeof *types && types[type])
        put(&l, " type=%s", types[type]);
    else
        put(&l, " type=TYPE%u", type);
    put(&l, " verdict=%s rule=%s", f->allow ? f->severity == DETECTOR_QUIET ? "allow" : "flag" : "block",
        detector_rule_text(f->rule));
    if (f->rule == DETECTOR_PLACEHOLDER)
        put(&l, " form=%s credential=%s of=%s", canary_form_text(f->canary.form),
            str_escape(f->canary.credential, credential, sizeof credential),
            str_escape(f->canary.agent, owner, sizeof owner));
    if (f->score.bits > 0)
        put(&l, " score=%u (%s%d) class=%s", f->score.bits, f->score.bits >= DETECTOR_SCORE_FLAG ? ">=" : "<",
            DETECTOR_SCORE_FLAG, name_class_text(f->score.class));
    if (f->account.limit > 0)
        put_budget(&l, f);
    if (f->score.bits >= DETECTOR_SCORE_FLAG && preview(&f->score, text))
        put(&l, " preview=\"%s...\"", text);
    put(&l, " sent=%d", f->allow && f->ask.event != DETECTOR_SYNTHETIC);
    return out;
}

const char *detector_features(const struct detector_finding *f, char out[DETECTOR_FEATURES])
{
    struct buf b;
    buf_init(&b, DETECTOR_FEATURES - 1);
    buf_putf(&b, "{\"rule\":\"%s\",\"characters\":%zu,\"score\":%u,\"alphabet\":\"%s\",\"blocked\":%s", detector_rule_text(f->rule),
             f->ask.name.n, f->score.bits, name_class_text(f->score.class), f->allow ? "false" : "true");
    if (f->account.limit > 0)
        buf_putf(&b, ",\"bits\":%llu,\"spent\":%llu,\"limit\":%llu,\"of\":\"%s\",\"distinct\":%u", bits_up(f->account.cost), spent_bits(f),
                 bits_up(f->account.limit), accounts[f->account.of].of, f->account.names);
    if (f->canary.credential.n > 0) {
        buf_putf(&b, ",\"form\":\"%s\",\"placeholder_of\":", canary_form_text(f->canary.form));
        json_put_str(&b, f->canary.agent);
    }
    buf_putc(&b, '}');
    struct str text = b.failed ? STR("{}") : buf_str(&b);
    memcpy(out, text.p, text.n);
    out[text.n] = '\0';
    buf_done(&b);
    return out;
}

const char *detector_evidence(const struct detector_finding *f, char out[DETECTOR_LINE])
{
    char shown[NAME_SHOWN], escaped[NAME_SHOWN], mask[NAME_MASK], text[PREVIEW + 1];
    struct line l = { .out = out };
    out[0] = '\0';
    if (f->canary.credential.n > 0) {
        put(&l, "[CRED:%s] as %s", str_escape(f->canary.credential, escaped, sizeof escaped), canary_form_text(f->canary.form));
    } else if (f->score.bits >= DETECTOR_SCORE_FLAG) {
        put(&l, "%s as %s", name_mask(f->score.part, mask), name_class_text(f->score.class));
        if (preview(&f->score, text))
            put(&l, ", begins with \"%s\"", text);
    } else {
        put(&l, "%s", str_escape(name_shown(f, shown) ? str_c(shown) : f->ask.name, escaped, sizeof escaped));
    }
    return out;
}
