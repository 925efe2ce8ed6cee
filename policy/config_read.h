/* SPDX-License-Identifier: Apache-2.0
 *
 * config_read: what the parsers of configuration sections share: the reader (where errors go, which key is being read),
 * the section walker that is driven by config_keys.def, and readers for the common kinds of values. Private to
 * policy/config*.c.
 *
 * A value reader gets the YAML value and the address of the field, reports what is wrong itself, and returns false
 * then. The key's name in messages is relative to the nearest list item: `listen.proxy`, but `methods` for a rule's. */
#ifndef POLICY_CONFIG_READ_H
#define POLICY_CONFIG_READ_H

#include "base/ydoc.h"
#include "policy/config.h"

enum config_section {
    SECTION_TOP,
    SECTION_USERS,
    SECTION_LISTEN,
    SECTION_RESOLVER,
    SECTION_SYNTHETIC,
    SECTION_ORIGIN,
    SECTION_PARENT,
    SECTION_AGENT,
    SECTION_ADVERTISE,
    SECTION_CLAIM,
    SECTION_LOGIN,
    SECTION_RULE,
    SECTION_TIMEOUTS,
    SECTION_CREDENTIAL,
    SECTION_SOURCE,
    SECTION_SIDECAR,
    SECTION_EXFILTRATION,
    SECTION_DNS_TUNNEL,
    SECTION_EXFILTRATION_AGENT,
    SECTION_AUDIT,
    SECTION_COUNT
};

struct config_reader;
enum { KEY_REQUIRED = 1, KEY_PRIVATE = 2 /* its value is not repeated in messages */ };
struct config_key {
    enum config_section section;
    const char *name;
    bool (*read)(struct config_reader *r, const struct ynode *v, void *out);
    size_t offset;
    unsigned flags;
    const char *dflt, *doc;
};
/* config_keys.def, ended by a NULL name. */
extern const struct config_key config_key_table[];

struct config_reader {
    struct config *c;
    struct diag *diag;
    const struct config_key *key; /* being read; for readers that serve many keys */
    char path[128];               /* its name in messages */
    bool hide;                    /* values below a KEY_PRIVATE key */
};

/* FILE:LINE:COL: KEY: expected …, got (what the node is). Returns false. */
bool config_expected(struct config_reader *r, const struct ynode *v, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* FILE:LINE:COL: KEY: … in the caller's own words. Returns false. */
bool config_error(struct config_reader *r, unsigned line, unsigned col, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void config_warning(struct config_reader *r, unsigned line, unsigned col, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Reports that memory is out, once. */
bool config_no_memory(struct config_reader *r);

/* Reads a map by its table into obj. A null map is an empty one. */
bool config_read_section(struct config_reader *r, const struct ynode *v, enum config_section section, void *obj);
/* Reads a list: an item reader per element into a new array. `out` is the address of a pointer member followed by its
 * size_t count (asserted where keys are listed). */
bool config_read_list(struct config_reader *r, const struct ynode *v, void *out, size_t item_size, size_t max,
                      bool (*item)(struct config_reader *r, const struct ynode *v, void *out));

bool is_scalar(const struct ynode *v);
bool parse_duration(struct str text, uint64_t *ret_ms);
bool parse_size(struct str text, uint64_t *ret_bytes);
/* "host port" forms of listen and upstreams: ADDR, ADDR:PORT, [V6]:PORT. dflt 0: the port is required. */
bool parse_address(struct str text, uint16_t dflt, struct ip *ret_ip, uint16_t *ret_port);

/* Values of one kind. */
bool read_bool(struct config_reader *r, const struct ynode *v, void *out);          /* bool */
bool read_text(struct config_reader *r, const struct ynode *v, void *out);          /* struct str, any printable */
bool read_name(struct config_reader *r, const struct ynode *v, void *out);          /* struct str, an identifier */
bool read_names(struct config_reader *r, const struct ynode *v, void *out);         /* struct name_list of them */
bool read_path(struct config_reader *r, const struct ynode *v, void *out);          /* struct str, absolute */
bool read_variable(struct config_reader *r, const struct ynode *v, void *out);      /* struct str, NAME of a variable */
bool read_timeout(struct config_reader *r, const struct ynode *v, void *out);       /* uint64_t ms, 1 ms to 7 d */
bool read_bytes(struct config_reader *r, const struct ynode *v, void *out);         /* uint64_t */
bool read_uid(struct config_reader *r, const struct ynode *v, void *out);           /* uint64_t */
bool read_host_patterns(struct config_reader *r, const struct ynode *v, void *out); /* list of struct host_pattern */
bool read_paths(struct config_reader *r, const struct ynode *v, void *out);         /* list of struct path_pattern */
bool read_ports(struct config_reader *r, const struct ynode *v, void *out);         /* list of uint16_t */
bool read_methods(struct config_reader *r, const struct ynode *v, void *out);       /* struct name_list */
bool read_cidrs(struct config_reader *r, const struct ynode *v, void *out);         /* list of struct cidr */
/* A feature that this build lacks: only what asks for nothing (null, an empty list or map) is accepted. */
bool read_later(struct config_reader *r, const struct ynode *v, void *out);

/* Sections, each in its file. */
bool read_version(struct config_reader *r, const struct ynode *v, void *out);
bool read_mode(struct config_reader *r, const struct ynode *v, void *out);
bool read_users(struct config_reader *r, const struct ynode *v, void *out);
bool read_listen(struct config_reader *r, const struct ynode *v, void *out);
bool read_listen_names(struct config_reader *r, const struct ynode *v, void *out);
bool read_listen_proxy(struct config_reader *r, const struct ynode *v, void *out);
bool read_listen_dns(struct config_reader *r, const struct ynode *v, void *out);
bool read_console(struct config_reader *r, const struct ynode *v, void *out);
bool read_workers(struct config_reader *r, const struct ynode *v, void *out);
bool read_resolver(struct config_reader *r, const struct ynode *v, void *out);
bool read_upstreams(struct config_reader *r, const struct ynode *v, void *out);
bool read_resolver_hosts(struct config_reader *r, const struct ynode *v, void *out);
bool read_dns_answer(struct config_reader *r, const struct ynode *v, void *out);
bool read_synthetic(struct config_reader *r, const struct ynode *v, void *out);
bool read_synthetic_pool(struct config_reader *r, const struct ynode *v, void *out);
bool read_ipv4(struct config_reader *r, const struct ynode *v, void *out);
bool read_ipv6(struct config_reader *r, const struct ynode *v, void *out);
bool read_origin(struct config_reader *r, const struct ynode *v, void *out);
bool read_ca_files(struct config_reader *r, const struct ynode *v, void *out);
bool read_parent(struct config_reader *r, const struct ynode *v, void *out);
bool read_parent_address(struct config_reader *r, const struct ynode *v, void *out);
bool read_parent_resolve(struct config_reader *r, const struct ynode *v, void *out);
bool read_agents(struct config_reader *r, const struct ynode *v, void *out);
bool read_advertise(struct config_reader *r, const struct ynode *v, void *out);
bool read_identify(struct config_reader *r, const struct ynode *v, void *out);
bool read_claim_source(struct config_reader *r, const struct ynode *v, void *out);
bool read_claim_login(struct config_reader *r, const struct ynode *v, void *out);
bool read_claim_uid(struct config_reader *r, const struct ynode *v, void *out);
bool read_claim_listener(struct config_reader *r, const struct ynode *v, void *out);
bool read_user(struct config_reader *r, const struct ynode *v, void *out);
bool read_rules(struct config_reader *r, const struct ynode *v, void *out);
bool read_rule_name(struct config_reader *r, const struct ynode *v, void *out);
bool read_schemes(struct config_reader *r, const struct ynode *v, void *out);
bool read_action(struct config_reader *r, const struct ynode *v, void *out);
bool read_dns_types(struct config_reader *r, const struct ynode *v, void *out);
bool read_rule_ech(struct config_reader *r, const struct ynode *v, void *out);
bool read_rule_tls(struct config_reader *r, const struct ynode *v, void *out);
bool read_timeouts(struct config_reader *r, const struct ynode *v, void *out);
bool read_expires(struct config_reader *r, const struct ynode *v, void *out);
bool read_credentials(struct config_reader *r, const struct ynode *v, void *out);
bool read_slots(struct config_reader *r, const struct ynode *v, void *out);
bool read_occurrences(struct config_reader *r, const struct ynode *v, void *out);
bool read_source(struct config_reader *r, const struct ynode *v, void *out);
bool read_source_sidecar(struct config_reader *r, const struct ynode *v, void *out);
bool read_source_env(struct config_reader *r, const struct ynode *v, void *out);
bool read_source_file(struct config_reader *r, const struct ynode *v, void *out);
bool read_source_exec(struct config_reader *r, const struct ynode *v, void *out);
bool read_sidecars(struct config_reader *r, const struct ynode *v, void *out);
bool read_peer_uid(struct config_reader *r, const struct ynode *v, void *out);
bool read_exfiltration(struct config_reader *r, const struct ynode *v, void *out);
bool read_dns_tunnel(struct config_reader *r, const struct ynode *v, void *out);
bool read_exfiltration_agent(struct config_reader *r, const struct ynode *v, void *out);
bool read_finding_action(struct config_reader *r, const struct ynode *v, void *out);
bool read_bits(struct config_reader *r, const struct ynode *v, void *out);
bool read_bits_a_day(struct config_reader *r, const struct ynode *v, void *out);
bool read_agent_bits(struct config_reader *r, const struct ynode *v, void *out);
bool read_zones_an_hour(struct config_reader *r, const struct ynode *v, void *out);
bool read_audit(struct config_reader *r, const struct ynode *v, void *out);
bool read_keep(struct config_reader *r, const struct ynode *v, void *out);
bool read_sync(struct config_reader *r, const struct ynode *v, void *out);
bool read_queries(struct config_reader *r, const struct ynode *v, void *out);
bool read_refuse_at(struct config_reader *r, const struct ynode *v, void *out);
bool read_limits(struct config_reader *r, const struct ynode *v, void *out);

/* Defaults that tables alone do not give. */
void rule_defaults(struct rule *rule);

#endif
