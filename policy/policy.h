/* SPDX-License-Identifier: Apache-2.0
 *
 * policy: one immutable, reference-counted snapshot: may this agent send this request, and which credentials may it
 * carry? Pure: no I/O, no clock (the caller gives the time), no globals. Deny is the zero value everywhere. Look-ups cost
 * about the same with one rule or ten thousand: rules and credentials are indexed by exact host and by suffix. */
#ifndef POLICY_POLICY_H
#define POLICY_POLICY_H

#include "policy/config.h"
#include "policy/end.h"

struct policy;

/* One file of the snapshot: the bytes that the supervisor read. */
struct side_file {
    struct str path;
    struct str bytes;
};

/* Compiles a parsed configuration, which it takes over (also on failure). Checks what parsing could not: token files
 * (>= 128 bits), shadowed rules, overlapping claims, suffix scopes (libpsl), placeholders that overlap. NULL with the
 * errors in diag. */
struct policy *policy_new(struct config *take, const struct side_file *files, size_t nfiles, struct diag *diag);
struct policy *policy_ref(struct policy *p);
void policy_unref(struct policy **p);
const struct config *policy_config(const struct policy *p);
/* Bytes of a side file, or STR_NONE. */
struct str policy_side_file(const struct policy *p, struct str path);
/* First 16 hex digits of the SHA-256 of the configuration and its side files: names the snapshot in events. */
struct str policy_hash(const struct policy *p);

/* --- who --- */
struct claims {
    struct ip source;     /* family 0: not an IP listener */
    struct str listener;  /* text of the listener that accepted */
    bool has_unix_uid;
    uint64_t unix_uid;
    bool has_login; /* Proxy-Authorization was given */
    struct str user, token;
    const unsigned char *token_digest; /* SHA-256 of the token, where only that is at hand; NULL: token counts */
    struct str run_agent; /* of a live `outgate run` whose token this is: its agent. Empty: none */
};
enum identify_result {
    IDENTIFY_UNKNOWN = 0, /* no agent, and no login could make it one */
    IDENTIFY_LOGIN,       /* a login could help: 407 */
    IDENTIFY_OK,
};
/* Every claim present must agree on one agent; tokens are compared in constant time. *ret_agent only with IDENTIFY_OK. */
enum identify_result policy_identify(const struct policy *p, const struct claims *c, const struct agent **ret_agent);
const struct agent *policy_agent(const struct policy *p, struct str name);

/* --- may it --- */
enum scheme { SCHEME_NONE = 0, SCHEME_HTTPS, SCHEME_HTTP };
struct ask {
    const struct agent *agent;
    enum scheme scheme;
    const struct host *host;
    uint16_t port;
    struct str method;
    struct str path; /* the received bytes up to the first '?' */
    int64_t now_us;
};
enum verdict_kind { VERDICT_DENY = 0, VERDICT_ALLOW, VERDICT_ASK, VERDICT_OBSERVE, VERDICT_TUNNEL /* only of policy_eval_connect */ };
struct verdict {
    enum verdict_kind kind;
    enum end code;           /* of a deny, ask or observe: why; END_OK for allow */
    const struct rule *rule; /* that decided; NULL: none did */
    const struct rule *near; /* nearest miss, for the hint; NULL: none */
    bool by_method, by_path; /* a rule up to the one that decided lists methods (paths): another one might end otherwise */
};
/* First match decides; none: deny with the nearest miss's code. In observe mode what a rule refuses is VERDICT_OBSERVE
 * with the code it would have had. */
void policy_eval(const struct policy *p, const struct ask *ask, struct verdict *ret);
/* At CONNECT, when scheme (SCHEME_NONE: not known yet), method and path are unknown: three-valued. VERDICT_ALLOW here means
 * "intercept and decide per request", VERDICT_TUNNEL: its bytes go through unread (a tunnel rule is the first that is not "no").
 * A deny is certain. */
void policy_eval_connect(const struct policy *p, const struct agent *agent, const struct host *host, uint16_t port,
                         int64_t now_us, struct verdict *ret);
/* For the DNS port, which knows a name and no port: may a connection of this agent's to the host end well on some port, as far as
 * can be told at CONNECT? VERDICT_ALLOW with the rule that lets it (a tunnel's too), VERDICT_ASK where a person must approve
 * first, VERDICT_OBSERVE, or a deny, which is certain. */
void policy_eval_name(const struct policy *p, const struct agent *agent, const struct host *host, int64_t now_us,
                      struct verdict *ret);
/* May a question of this type be asked under the rule? Without dns_types: A and AAAA. */
bool policy_rule_lists(const struct rule *rule, uint16_t dns_type);
/* How much of the name did an operator write, in some rule that would let this agent through if all those by `*` or by a
 * longer pattern were away? Bytes at its end: all of it, a suffix ("*.x.test": 6), or 0. What else is in the name may be
 * somebody's message. port: of a dial, 0: of a question (on some port of the rule's own); dns_type: of a question, or 0. */
size_t policy_written(const struct policy *p, const struct agent *agent, const struct host *host, uint16_t port,
                      uint16_t dns_type, int64_t now_us);
/* Would a client that comes to this host by CONNECT or SOCKS5 be tunnelled? Then *ret is that verdict, and no request is seen. */
bool policy_tunnels(const struct policy *p, const struct ask *ask, struct verdict *ret);
/* Paths that are refused whatever the rules say: dot segments in any encoding, `\`, %00, bad %, fragments, raw control
 * characters and spaces (PRODUCT: Paths). `target` is the origin-form target with its query. 0 or -1 with the reason. */
int policy_path_check(struct str target, struct err *err);

/* --- with what --- */
/* Credentials of this agent whose hosts cover this host, whatever the port, method and path: the ones whose values must not
 * come back from it. Writes at most max and returns how many there are. */
size_t policy_credentials(const struct policy *p, const struct agent *agent, const struct host *host,
                          const struct credential **ret, size_t max);
/* END_OK; END_PLACEHOLDER_WRONG_HOST when agent or host do not fit; END_PLACEHOLDER_OUT_OF_SCOPE when port, scheme, method or
 * path do not. */
enum end policy_credential_scope(const struct policy *p, const struct credential *c, const struct ask *ask);
/* Is the host one that the client is known to send this credential to (credential.tolerate)? */
bool policy_credential_tolerates(const struct credential *c, const struct host *host);

/* --- where to --- */
/* Addresses that the server itself listens on, as bound, so that nobody reaches us through us. */
struct own_addresses {
    const struct ip *ips; /* family-any addresses (0.0.0.0, ::) included as bound; local interface addresses listed */
    const uint16_t *ports;
    size_t n;
};
/* END_OK or END_ADDRESS_DENIED with a word for the event ("loopback", "metadata", "own listener", …; static). Embedded IPv4
 * (v4-mapped, v4-compatible, 6to4, NAT64, Teredo, ISATAP) is judged too. `rule` may widen (allow_addresses), metadata
 * addresses and our own listeners never open. */
enum end address_guard(const struct policy *p, const struct rule *rule, const struct ip *ip, uint16_t port,
                       const struct own_addresses *own, const char **ret_why);

/* --- why --- */
/* The pattern of a rule that lets the agent (as far as can be told without port, method and path) through to the hosts under this one,
 * and not to itself: "*." never covers the bare name. NULL: there is none. Looks at each rule. */
const struct host_pattern *policy_suffix_of(const struct policy *p, const struct agent *agent, const struct host *host, const struct rule **ret_rule);
/* The decision step by step, as lines for `outgate explain`, each with the config line that made it. */
struct buf;
int policy_explain(const struct policy *p, const struct ask *ask, struct buf *out);

#endif
