/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/record.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "dns/finding_log.h"
#include "dns/name_approval.h"
#include "dns/name_shown.h"
#include "policy/host_pattern.h"
#include "proxy/agent_table.h"
#include "proxy/exchange_ws.h"

#include <stdio.h>
#include <stdlib.h>

static struct event ev; /* 8 KiB: too much for every stack, and one thread */

bool record_ready(struct worker *w, const struct view *v)
{
    return sink_ready(w->sink, loop_now_ms(w->loop), v->limits->event_lag);
}

/* --- paths --- */

/* `a=1&b=PLACEHOLDER&c` -> `a=*&b=[CRED:github]&c`: names stay, values do not; a bare word keeps only its shape. */
static void put_query(const struct view *v, struct str query, unsigned *doubts, struct buf *out)
{
    struct str pair;
    bool first = true;
    while (str_split(&query, '&', &pair)) {
        if (!first)
            buf_putc(out, '&');
        first = false;
        ptrdiff_t eq = str_find_char(pair, '=');
        struct needle_match m;
        struct str value = eq < 0 ? pair : str_from(pair, (size_t)eq + 1);
        if (eq >= 0)
            placeholder_redact(v->placeholders, str_sub(pair, 0, (size_t)eq + 1), doubts, out);
        if (!value.n)
            continue;
        if (v->placeholder_needles && needles_find(v->placeholder_needles, value, 0, &m)) {
            const struct placeholder *ph = placeholder_at(v->placeholders, m.id);
            buf_putf(out, "[CRED:%.*s]", STR_ARG(ph->credential->name));
        } else if (v->config->audit.queries_keep) {
            buf_put(out, value);
        } else {
            buf_putc(out, '*');
        }
    }
}

void record_target(const struct view *v, struct str target, struct buf *out)
{
    ptrdiff_t q = str_find_char(target, '?');
    struct str path = q < 0 ? target : str_sub(target, 0, (size_t)q);
    unsigned doubts = 0;
    placeholder_redact(v->placeholders, path, &doubts, out);
    if (q >= 0) {
        buf_putc(out, '?');
        put_query(v, str_from(target, (size_t)q + 1), &doubts, out);
    }
}

/* --- the fields that open and close share --- */

static const char *scheme_name(enum scheme s)
{
    return s == SCHEME_HTTPS ? "https" : s == SCHEME_HTTP ? "http" : "";
}

static void put_path(struct exchange *x, struct event *e)
{
    /* One thread: the blocks are kept from record to record, their contents are not. */
    static struct buf path = { .max = 512 * 1024, .wipe = true }, clean = { .max = 2 * 1024 * 1024, .wipe = true };
    buf_reset(&path);
    buf_reset(&clean);
    struct str text = x->req.target;
    uint64_t hits = 0;
    if (scrub_text(x->known, text, &clean, &hits)) /* a real value becomes its placeholder, and that [CRED:name] */
        text = buf_str(&clean);
    record_target(x->view, text, &path);
    event_put_str(e, FIELD_PATH, buf_str(&path));
    buf_reset(&path);
    buf_reset(&clean);
}

/* A host may carry a value, where that has no upper case, and a method any; a message or sentence may repeat them. All are short. */
static void put_clean(struct lease_set *known, const struct view *v, struct event *e, enum event_field id, struct str text)
{
    uint64_t hits = 0;
    struct buf clean, plain;
    buf_init(&clean, 64 * 1024);
    buf_init(&plain, 64 * 1024);
    if (scrub_text(known, text, &clean, &hits))
        text = buf_str(&clean);
    struct needle_match m;
    unsigned doubts = 0;
    if (v->placeholder_needles && needles_find(v->placeholder_needles, text, 0, &m)) {
        placeholder_redact(v->placeholders, text, &doubts, &plain);
        text = buf_str(&plain);
    }
    event_put_str(e, id, text);
    buf_done(&clean);
    buf_done(&plain);
}

/* Of all that rules and resolver.hosts say of a host, what approves it most: whose message it is does not hang on which of them decided. */
static void approve(const struct config *c, const struct host *host, struct detector_ask *ask)
{
    for (size_t i = 0; i < c->nrules && ask->approval != DETECTOR_EXACT; i++) {
        size_t written;
        bool matches = false;
        for (size_t k = 0; k < c->rules[i].nhosts && !matches; k++)
            matches = host_pattern_matches(&c->rules[i].hosts[k], host);
        if (!matches)
            continue;
        enum detector_approval approval = name_approval_of(c, &c->rules[i], host, false, &written);
        ask->approval = approval > ask->approval ? approval : ask->approval;
        ask->fixed = written > ask->fixed ? written : ask->fixed;
    }
    for (size_t i = 0; i < c->nhosts && ask->approval != DETECTOR_EXACT; i++)
        if (host_eq(&c->hosts[i].host, host)) {
            ask->approval = DETECTOR_EXACT;
            ask->fixed = host->n;
        }
}

/* A name as the log shows it (dns/name_shown.h). rule: that decided; NULL: none. The text of host itself where that is as it is. */
static struct str shown_name(const struct view *v, const struct rule *rule, const struct host *host, char out[NAME_SHOWN])
{
    struct detector_finding f;
    struct detector_ask ask = { .name = host_str(host), .event = DETECTOR_DIAL };
    if (host_is_ip(host))
        return ask.name;
    if (rule)
        ask.approval = name_approval_of(v->config, rule, host, false, &ask.fixed);
    if (ask.fixed == host->n)
        return ask.name;
    detector_scan(v->canary, &ask, &f);
    if (!name_shown(&f, out))
        return ask.name;
    approve(v->config, host, &ask); /* only where it matters: there may be many rules */
    detector_scan(v->canary, &ask, &f);
    return name_shown(&f, out) ? str_c(out) : ask.name;
}

static struct str shown_host(const struct exchange *x, char out[NAME_SHOWN])
{
    return shown_name(x->view, x->verdict.rule, &x->host, out);
}

static void put_word(struct exchange *x, struct event *e, enum event_field id, struct str text)
{
    put_clean(x->known, x->view, e, id, text);
}

static void put_host(struct exchange *x, struct event *e)
{
    char shown[NAME_SHOWN];
    put_word(x, e, FIELD_HOST, shown_host(x, shown));
}

/* Words of ours that may name the host. */
static void put_words(struct exchange *x, struct event *e, enum event_field id, struct str text)
{
    char shown[NAME_SHOWN];
    struct str name = host_str(&x->host), as = x->bad_target ? name : shown_host(x, shown);
    struct buf out;
    if (as.p == name.p) {
        put_word(x, e, id, text);
        return;
    }
    buf_init(&out, 64 * 1024);
    for (ptrdiff_t at; (at = str_find(text, name)) >= 0; text = str_from(text, (size_t)at + name.n)) {
        buf_put(&out, str_sub(text, 0, (size_t)at));
        buf_put(&out, as);
    }
    buf_put(&out, text);
    put_word(x, e, id, buf_str(&out));
    buf_done(&out);
}

/* A server name may be any text; one that can be a host's is shown as a host's. */
static void put_server_name(struct lease_set *known, const struct view *v, const struct rule *rule, struct event *e, struct str sni)
{
    char shown[NAME_SHOWN];
    struct host h;
    struct str as = host_parse(sni, &h, NULL) == 0 ? shown_name(v, rule, &h, shown) : sni;
    put_clean(known, v, e, FIELD_SNI, as.p == h.name ? sni : as);
}

/* What is not known has no field: an empty text would be a value of its own to whoever reads the log. */
static void put_known(struct event *e, enum event_field id, struct str text)
{
    if (text.n)
        event_put_str(e, id, text);
}

/* Of these two a reader counts on the field: null says that there is none. */
static void put_or_null(struct event *e, enum event_field id, struct str text)
{
    if (text.n)
        event_put_str(e, id, text);
    else
        event_put_null(e, id);
}

static void put_shared(struct exchange *x, struct event *e)
{
    put_or_null(e, FIELD_AGENT, str_c(x->agent_name));
    event_put_str(e, FIELD_CLIENT, str_c(x->client_addr));
    event_put_str(e, FIELD_CONN_ID, str_c(x->conn_id));
    event_put_str(e, FIELD_REQUEST_ID, str_c(x->request_id));
    if (x->req.method.n)
        put_word(x, e, FIELD_METHOD, x->req.method);
    put_known(e, FIELD_SCHEME, str_c(x->tunnel ? (x->tunnel == TUNNEL_ANY ? "tcp" : "tls") : scheme_name(x->scheme)));
    if (!x->bad_target) {
        char said[46];
        put_host(x, e);
        if (x->said.family)
            event_put_str(e, FIELD_HOST_ADDR, str_c(ip_format(&x->said, said)));
        event_put_u64(e, FIELD_PORT, x->port);
    }
    if (x->sni[0])
        put_server_name(x->known, x->view, x->verdict.rule, e, str_c(x->sni));
    if (x->req.target.p)
        put_path(x, e);
    put_or_null(e, FIELD_RULE, x->verdict.rule ? x->verdict.rule->name : STR_NONE);
}

/* Did the request itself, or what the rules make of it, lead to this end? Else something failed that had been allowed. */
static bool is_refusal(enum end end)
{
    switch ((unsigned)end) {
    case END_OK:
    case END_CREDENTIAL_DENIED:
    case END_CREDENTIAL_UNAVAILABLE:
    case END_CREDENTIAL_EXPIRED:
    case END_ORIGIN_DNS:
    case END_ORIGIN_DNS_SERVERS:
    case END_ORIGIN_CONNECT:
    case END_ORIGIN_TLS:
    case END_ORIGIN_PROTOCOL:
    case END_ORIGIN_TIMEOUT:
    case END_ORIGIN_CLOSED:
    case END_RATE_LIMITED:
    case END_AUDIT_UNAVAILABLE:
    case END_DRAINING:
    case END_CLIENT_CLOSED:
    case END_TIMEOUT:
    case END_WORKER_DIED:
        return false;
    default:
        return true;
    }
}

static const char *verdict_name(const struct exchange *x)
{
    if (x->verdict.kind == VERDICT_ASK)
        return "ask";
    if (x->verdict.kind == VERDICT_DENY || (!x->recorded && is_refusal(x->end)))
        return "deny";
    return x->verdict.kind == VERDICT_OBSERVE ? "observe" : "allow";
}

static void put_credentials(struct exchange *x, struct event *e)
{
    for (size_t i = 0; i < x->plan.nwanted; i++)
        event_add(e, FIELD_CREDENTIALS, x->plan.wanted[i]->name);
}

/* Those that were first swapped after the open. */
static void put_message_credentials(struct exchange *x, struct event *e)
{
    const struct credential *c;
    for (size_t i = 0; (c = exchange_ws_credential(x, i)); i++) {
        bool listed = false;
        for (size_t k = 0; k < x->plan.nwanted; k++)
            listed |= x->plan.wanted[k] == c;
        if (!listed)
            event_add(e, FIELD_CREDENTIALS, c->name);
    }
}

int record_open(struct exchange *x)
{
    event_init(&ev, EVENT_OPEN);
    size_t start = ev.n;
    put_shared(x, &ev);
    put_credentials(x, &ev);
    size_t n = ev.n - start;
    unsigned char *copy = malloc(n ? n : 1);
    if (!copy)
        return -1;
    memcpy(copy, ev.bytes + start, n);
    if (sink_write(x->w->sink, &ev, false)) {
        free(copy);
        return -1;
    }
    x->record = copy;
    x->record_n = n;
    x->record_at = sink_position(x->w->sink);
    x->recorded = true;
    return 0;
}

int record_used(struct exchange *x, const struct credential *c, const struct lease *lease)
{
    char at[28];
    event_init(&ev, EVENT_LEASE);
    put_or_null(&ev, FIELD_AGENT, str_c(x->agent_name));
    event_put_str(&ev, FIELD_CONN_ID, str_c(x->conn_id));
    event_put_str(&ev, FIELD_REQUEST_ID, str_c(x->request_id));
    put_host(x, &ev);
    event_put_u64(&ev, FIELD_PORT, x->port);
    event_put_str(&ev, FIELD_CREDENTIAL, c->name);
    event_put_str(&ev, FIELD_LEASE_ID, str_c(lease->id));
    event_put_str(&ev, FIELD_EXPIRES_AT, str_c(clock_format_us(lease->expires_us, at)));
    event_put_str(&ev, FIELD_RESULT, STR("used"));
    if (sink_write(x->w->sink, &ev, false))
        return -1;
    x->record_at = sink_position(x->w->sink);
    return 0;
}

static void put_times(struct exchange *x, struct event *e)
{
    event_put_u64(e, FIELD_MS_TOTAL, loop_now_ms(x->w->loop) - x->t_start);
    if (!x->recorded)
        return;
    event_put_u64(e, FIELD_MS_RESOLVE, x->ms_resolve);
    event_put_u64(e, FIELD_MS_LEASE, x->ms_lease);
    event_put_u64(e, FIELD_MS_CONNECT, x->ms_connect);
    event_put_u64(e, FIELD_MS_TLS, x->ms_tls);
    event_put_u64(e, FIELD_MS_FIRST_BYTE, x->ms_first_byte);
}

static void count_refusal(const struct exchange *x, struct agent_state *a, const char *verdict)
{
    uint64_t hits = 0;
    struct buf clean;
    buf_init(&clean, 64 * 1024);
    char shown[NAME_SHOWN];
    struct str host = x->bad_target ? STR("") : shown_host(x, shown);
    if (scrub_text(x->known, host, &clean, &hits))
        host = buf_str(&clean);
    agent_event_count(&a->refusals, verdict, x->end, end_code(x->end), host, loop_now_ms(x->w->loop));
    buf_done(&clean);
}

/* A name that policy refused may have been an attempt: it is told, where its close is a line of its own. */
static void look_at_name(struct exchange *x)
{
    struct detector_finding f;
    struct detector_ask ask = { .agent = str_c(x->agent_name), .name = host_str(&x->host), .event = DETECTOR_DIAL };
    if (x->bad_target || !x->host.n || host_is_ip(&x->host))
        return;
    detector_look(x->view->canary, &ask, &f);
    if (f.severity == DETECTOR_QUIET)
        return;
    record_found(x, f.class);
    struct finding_about about = { str_c(x->client_addr), str_c(x->conn_id), str_c(x->request_id), STR_NONE };
    finding_log_build(&ev, &f, &about);
    put_host(x, &ev); /* and what may stand in it of real values goes out, as everywhere here */
    event_put_u64(&ev, FIELD_PORT, x->port);
    if (x->req.method.n)
        put_word(x, &ev, FIELD_METHOD, x->req.method);
    char line[DETECTOR_LINE];
    put_word(x, &ev, FIELD_SENTENCE, str_c(detector_explain(&f, line)));
    put_word(x, &ev, FIELD_EVIDENCE, str_c(detector_evidence(&f, line)));
    if (sink_write(x->w->sink, &ev, false))
        log_error("the audit log has no room for a finding (%s) of request %s", f.class, x->request_id);
}

void record_close(struct exchange *x)
{
    struct worker *w = x->w;
    const char *verdict = verdict_name(x);
    struct agent_state *a = x->recorded ? NULL : agent_table_get(w->agents, str_c(x->agent_name));
    if (!strcmp(verdict, "deny") || !strcmp(verdict, "ask")) {
        w->stats.refused++;
        if (a && !agent_event_fits(a, x->view->limits, loop_now_ms(w->loop))) {
            count_refusal(x, a, verdict);
            return;
        }
        if (x->end == END_HOST_DENIED)
            look_at_name(x);
    }
    event_init(&ev, EVENT_CLOSE);
    if (x->recorded && ev.n + x->record_n <= EVENT_MAX) {
        memcpy(ev.bytes + ev.n, x->record, x->record_n);
        ev.n = (uint16_t)(ev.n + x->record_n);
    } else {
        put_shared(x, &ev);
        if (x->recorded) /* else nothing left, whatever it asked for */
            put_credentials(x, &ev);
    }
    put_message_credentials(x, &ev);
    if (x->req.method.n || x->socks) /* else its first line could not be read */
        put_known(&ev, FIELD_HTTP_VERSION, str_c(x->req.version));
    event_put_str(&ev, FIELD_VERDICT, str_c(verdict));
    enum end code = x->end != END_OK ? x->end : x->verdict.kind == VERDICT_OBSERVE ? x->verdict.code : END_OK;
    if (code != END_OK) {
        event_put_str(&ev, FIELD_CODE, str_c(end_code(code)));
        event_put_str(&ev, FIELD_HINT, str_c(end_hint(code)));
        if (x->why[0])
            put_words(x, &ev, FIELD_MESSAGE, str_c(x->why));
    }
    event_put_u64(&ev, FIELD_STATUS, x->status);
    if (x->origin_addr[0])
        event_put_str(&ev, FIELD_ORIGIN_ADDR, str_c(x->origin_addr));
    if (x->tls_version[0]) {
        event_put_str(&ev, FIELD_TLS_VERSION, str_c(x->tls_version));
        event_put_str(&ev, FIELD_TLS_CIPHER, str_c(x->tls_cipher));
        event_put_str(&ev, FIELD_TLS_ISSUER, str_c(x->tls_issuer));
    }
    event_put_u64(&ev, FIELD_BYTES_IN, x->bytes_in);
    event_put_u64(&ev, FIELD_BYTES_OUT, x->bytes_out);
    put_times(x, &ev);
    if (x->scrub.hits)
        event_put_u64(&ev, FIELD_SCRUBBED, x->scrub.hits);
    for (unsigned i = 0; i < x->nfindings; i++)
        event_add(&ev, FIELD_FINDINGS, str_c(x->findings[i]));
    if (x->dns_id[0])
        event_put_str(&ev, FIELD_DNS_ID, str_c(x->dns_id));
    event_put_str(&ev, FIELD_END, str_c(end_code(x->end)));
    if (sink_write(w->sink, &ev, x->recorded)) {
        if (x->recorded)
            log_fatal("the audit ring refused a close that it had reserved room for");
        if (a) /* the log has no room now: the line comes with those that are like it */
            count_refusal(x, a, verdict);
    }
    x->recorded = false; /* the reservation is used up: never a second close */
}

/* --- findings --- */

void record_found(struct exchange *x, const char *cls)
{
    for (unsigned i = 0; i < x->nfindings; i++)
        if (!strcmp(x->findings[i], cls))
            return;
    if (x->nfindings < sizeof x->findings / sizeof *x->findings)
        x->findings[x->nfindings++] = cls;
}

void record_finding(struct exchange *x, const char *cls, const char *severity, unsigned score, const struct placeholder *ph,
                    const char *where, struct str sentence)
{
    record_found(x, cls);
    event_init(&ev, EVENT_FINDING);
    put_or_null(&ev, FIELD_AGENT, str_c(x->agent_name));
    event_put_str(&ev, FIELD_CLIENT, str_c(x->client_addr));
    event_put_str(&ev, FIELD_CONN_ID, str_c(x->conn_id));
    event_put_str(&ev, FIELD_REQUEST_ID, str_c(x->request_id));
    if (x->req.method.n)
        put_word(x, &ev, FIELD_METHOD, x->req.method);
    if (!x->bad_target) {
        put_host(x, &ev);
        event_put_u64(&ev, FIELD_PORT, x->port);
    }
    if (ph) {
        char evidence[160];
        snprintf(evidence, sizeof evidence, "[CRED:%.*s] in %s", STR_ARG(ph->credential->name), where);
        event_put_str(&ev, FIELD_CREDENTIAL, ph->credential->name);
        event_put_str(&ev, FIELD_EVIDENCE, str_c(evidence));
    }
    event_put_str(&ev, FIELD_CLASS, str_c(cls));
    event_put_str(&ev, FIELD_SEVERITY, str_c(severity));
    event_put_u64(&ev, FIELD_SCORE, score);
    struct buf f;
    buf_init(&f, 1000);
    buf_put(&f, STR("{\"where\":"));
    json_put_str(&f, str_c(where));
    if (ph) {
        buf_put(&f, STR(",\"placeholder_of\":"));
        json_put_str(&f, ph->agent->name);
    }
    buf_putc(&f, '}');
    if (!f.failed)
        event_put_str(&ev, FIELD_FEATURES, buf_str(&f));
    buf_done(&f);
    put_words(x, &ev, FIELD_SENTENCE, sentence);
    event_add(&ev, FIELD_SUBJECTS, str_c(x->request_id));
    if (sink_write(x->w->sink, &ev, false))
        log_error("the audit log has no room for a finding (%s) of request %s", cls, x->request_id);
}

/* --- connections, and what was only counted --- */

/* What is live for the agent. False: that is not known without asking, for which a line in the log does not wait. */
static bool live_values(struct worker *w, struct str agent, struct lease_set **ret)
{
    struct lease_wait *wait = NULL;
    const struct agent *a = agent.n ? policy_agent(w->view->policy, agent) : NULL;
    int r = a ? lease_live(w->leases, a, NULL, ret, NULL, NULL, &wait) : 1;
    lease_cancel(&wait);
    return r == 1;
}

/* Unlike a host it may be any text. Of one that may hold a value only what makes a host name is shown, and no upper case. */
static void put_sni(struct worker *w, const struct record_conn *c, struct lease_set *known, bool all_known)
{
    struct host h;
    if (all_known)
        put_server_name(known, w->view, NULL, &ev, c->sni);
    else if (host_parse(c->sni, &h, NULL) == 0)
        put_server_name(known, w->view, NULL, &ev, host_str(&h));
    else
        event_put_str(&ev, FIELD_SNI, STR("(not shown: it is no host name)"));
}

void record_conn(struct worker *w, const struct record_conn *c)
{
    struct agent_state *a = agent_table_get(w->agents, c->agent);
    char shown[NAME_SHOWN];
    struct host h;
    struct str host = c->host.n && host_parse(c->host, &h, NULL) == 0 ? shown_name(w->view, NULL, &h, shown) : c->host;
    if (a && !agent_event_fits(a, w->view->limits, loop_now_ms(w->loop))) {
        agent_event_count(&a->conns, c->verdict, c->code, c->end, host, loop_now_ms(w->loop));
        return;
    }
    struct lease_set *known = NULL;
    bool all_known = (!c->host.n && !c->sni.n) || live_values(w, c->agent, &known);
    event_init(&ev, EVENT_CONN);
    put_or_null(&ev, FIELD_AGENT, c->agent);
    event_put_str(&ev, FIELD_CLIENT, c->client);
    event_put_str(&ev, FIELD_CONN_ID, c->conn_id);
    if (c->host.n) {
        put_clean(known, w->view, &ev, FIELD_HOST, host);
        event_put_u64(&ev, FIELD_PORT, c->port);
    }
    if (c->sni.n)
        put_sni(w, c, known, all_known);
    lease_set_unref(&known);
    put_or_null(&ev, FIELD_RULE, c->rule);
    event_put_str(&ev, FIELD_VERDICT, str_c(c->verdict));
    if (c->code != END_UNSET && c->code != END_OK)
        event_put_str(&ev, FIELD_CODE, str_c(end_code(c->code)));
    if (c->hint && *c->hint)
        event_put_str(&ev, FIELD_HINT, str_c(c->hint));
    event_put_str(&ev, FIELD_END, str_c(c->end));
    if (sink_write(w->sink, &ev, false) && a)
        agent_event_count(&a->conns, c->verdict, c->code, c->end, host, loop_now_ms(w->loop));
}

static bool on_counted(void *ctx, const struct agent_state *a, const struct agent_count *c)
{
    struct worker *w = ctx;
    event_init(&ev, c == &a->conns ? EVENT_CONN : EVENT_CLOSE);
    put_or_null(&ev, FIELD_AGENT, str_of(a->name, a->name_n));
    if (c->host[0])
        event_put_str(&ev, FIELD_HOST, str_c(c->host));
    event_put_str(&ev, FIELD_VERDICT, str_c(c->verdict));
    if (c->code != END_UNSET && c->code != END_OK)
        event_put_str(&ev, FIELD_CODE, str_c(end_code(c->code)));
    event_put_str(&ev, FIELD_HINT, STR("more than limits.refusals_per_second, or than the log had room for: the last one stands for all of them"));
    event_put_str(&ev, FIELD_END, str_c(c->end));
    event_put_u64(&ev, FIELD_COUNT, c->n);
    return sink_write(w->sink, &ev, false) == 0;
}

void record_counted(struct worker *w, bool all)
{
    agent_table_counted(w->agents, loop_now_ms(w->loop), all, on_counted, w);
}
