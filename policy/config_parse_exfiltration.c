/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/config_read.h"

enum { BITS_MIN = 128, BITS_MAX = 1 << 22, ZONES_MAX = 4096 };

bool read_exfiltration(struct config_reader *r, const struct ynode *v, void *out)
{
    return config_read_section(r, v, SECTION_EXFILTRATION, out);
}

bool read_dns_tunnel(struct config_reader *r, const struct ynode *v, void *out)
{
    r->c->exfiltration.tunnel_at = (struct config_at) { v->line, v->col };
    return config_read_section(r, v, SECTION_DNS_TUNNEL, out);
}

bool read_exfiltration_agent(struct config_reader *r, const struct ynode *v, void *out)
{
    r->c->exfiltration.agent_at = (struct config_at) { v->line, v->col };
    return config_read_section(r, v, SECTION_EXFILTRATION_AGENT, out);
}

bool read_finding_action(struct config_reader *r, const struct ynode *v, void *out)
{
    static const struct {
        const char *name;
        enum finding_action action;
    } words[] = { { "block", FINDING_BLOCK }, { "flag", FINDING_FLAG }, { "log", FINDING_LOG } };
    for (size_t i = 0; is_scalar(v) && i < sizeof words / sizeof *words; i++)
        if (str_eq(v->text, str_c(words[i].name))) {
            memcpy(out, &words[i].action, sizeof words[i].action);
            return true;
        }
    return config_expected(r, v, "\"block\", \"flag\" or \"log\"");
}

/* N, or N and the unit behind a slash. */
static bool read_number_per(struct config_reader *r, const struct ynode *v, const char *unit, uint64_t min, uint64_t max, uint32_t *out)
{
    uint64_t n;
    struct str text = v->text;
    size_t tail = strlen(unit);
    bool fits = is_scalar(v) && text.n > tail && str_eq(str_from(text, text.n - tail), str_c(unit));
    if (!fits || !str_to_u64(str_sub(text, 0, text.n - tail), max, &n) || n < min)
        return config_expected(r, v, "a number from %llu to %llu%s%s%s", (unsigned long long)min, (unsigned long long)max,
                               tail ? " and \"" : "", unit, tail ? "\"" : "");
    *out = (uint32_t)n;
    return true;
}

bool read_bits(struct config_reader *r, const struct ynode *v, void *out)
{
    return read_number_per(r, v, "", BITS_MIN, BITS_MAX, out);
}

bool read_bits_a_day(struct config_reader *r, const struct ynode *v, void *out)
{
    return read_number_per(r, v, "/d", 0, BITS_MAX, out);
}

/* What there is at once is a day's refill. */
bool read_agent_bits(struct config_reader *r, const struct ynode *v, void *out)
{
    return read_number_per(r, v, "/d", BITS_MIN, BITS_MAX, out);
}

bool read_zones_an_hour(struct config_reader *r, const struct ynode *v, void *out)
{
    return read_number_per(r, v, "/h", 1, ZONES_MAX, out);
}
