/* SPDX-License-Identifier: Apache-2.0
 *
 * config: outgate.yaml as a plain struct, the only interface between reading the file and acting on it. Parsing is
 * pure: it opens nothing and knows no clock. Every error is collected as FILE:LINE:COL: KEY: what was expected, what
 * came. Keys are in config_keys.def; a key of a feature that this build lacks is an error that names the feature. All
 * strings live in the config's arena. Relative paths are made absolute against the file's folder. */
#ifndef POLICY_CONFIG_H
#define POLICY_CONFIG_H

#include "base/arena.h"
#include "base/limits.h"
#include "policy/address_pool.h"
#include "policy/host.h"
#include "policy/ip.h"

#include <stdio.h>

enum { CONFIG_MAX = 4 * 1024 * 1024, CONFIG_NAME_MAX = 64 /* bytes of an agent's, a rule's, a credential's name */ };

/* Where a thing stands in the file, for explain and for errors that show only later. */
struct config_at {
    unsigned line, col;
};

enum listener_kind { LISTENER_TCP = 1, LISTENER_UNIX, LISTENER_TLS };
struct config_listener {
    enum listener_kind kind;
    struct str text; /* as written: "127.0.0.1:3128", "unix:coder.sock" */
    struct ip ip;
    uint16_t port;
    struct str path; /* unix: absolute (relative ones are under the runtime folder: see config_listener_path) */
    struct config_at at;
};

enum upstream_kind { UPSTREAM_SYSTEM = 1, UPSTREAM_UDP, UPSTREAM_TCP, UPSTREAM_TLS };
struct config_upstream {
    enum upstream_kind kind;
    struct ip ip;
    uint16_t port;
    struct host name; /* UPSTREAM_TLS: who its certificate must say it is */
    struct config_at at;
};
struct config_host_entry {
    struct host host;
    struct ip *ips;
    size_t nips;
};
struct config_ca_file {
    bool system; /* the system roots */
    struct str path;
    struct config_at at;
};

/* One claim of identify. Exactly one kind is set. */
enum claim_kind { CLAIM_SOURCE = 1, CLAIM_LOGIN, CLAIM_UNIX_UID, CLAIM_LISTENER };
struct config_claim {
    enum claim_kind kind;
    struct cidr source;
    struct str user, token_file;
    uint64_t unix_uid;
    struct str listener; /* as written in listen.proxy or listen.dns */
    struct config_at at;
};
struct agent {
    struct str name;
    unsigned index;
    struct config_claim *claims;
    size_t nclaims;
    struct str advertise_proxy, advertise_trust_dir; /* STR_NONE: not set */
    struct config_at at;
};

struct host_pattern {
    enum { PATTERN_EXACT = 1, PATTERN_SUFFIX, PATTERN_ANY } kind;
    struct host host; /* EXACT: the name or address; SUFFIX: what follows "*." */
    struct config_at at;
};
struct name_list {
    struct str *v;
    size_t n;
    bool given;           /* false: the key is absent (its default applies) */
    struct config_at *at; /* of each; NULL: not kept */
};
struct path_pattern {
    struct str text; /* "/repos/acme/" "**": compiled by path_pattern.h */
};

enum rule_action { RULE_DENY = 0, RULE_ALLOW, RULE_ASK, RULE_TUNNEL };
struct rule {
    struct str name;
    unsigned index;
    struct config_at at;
    struct name_list agents;
    bool https, http; /* schemes */
    struct host_pattern *hosts;
    size_t nhosts;
    uint16_t *ports; /* none given: 443 for https, 80 for http */
    size_t nports;
    struct name_list methods; /* given == false: all */
    struct path_pattern *paths;
    size_t npaths; /* 0: all */
    enum rule_action action;
    bool tls_none;   /* of a tunnel: its bytes need not be TLS */
    bool ech_passes; /* of a tunnel: its ClientHello may hide a name behind the one that it shows */
    uint16_t *dns_types; /* none given: A and AAAA */
    size_t ndns_types;
    struct cidr *allow_addresses;
    size_t nallow_addresses;
    uint64_t connect_ms, idle_ms, total_ms; /* 0: not set */
    int64_t expires_us;                     /* 0: never */
};

enum slot_kind { SLOT_NONE = 0, SLOT_HEADER, SLOT_BASIC_USER, SLOT_BASIC_PASSWORD, SLOT_WEBSOCKET };
struct slot {
    enum slot_kind kind;
    struct str name; /* header: lower case */
};
enum source_kind { SOURCE_NONE = 0, SOURCE_SIDECAR, SOURCE_ENV, SOURCE_FILE, SOURCE_EXEC };
struct credential {
    struct str name;
    unsigned index;
    struct config_at at;
    struct name_list agents;
    struct host_pattern *hosts; /* EXACT or SUFFIX */
    size_t nhosts;
    uint16_t *ports; /* default 443 (and 80 with allow_plain_http), filled in */
    size_t nports;
    bool ports_given;
    struct name_list methods;
    struct path_pattern *paths;
    size_t npaths;
    struct slot *slots;
    size_t nslots;
    unsigned max_occurrences;
    struct str placeholder; /* STR_NONE: derived */
    struct str like;        /* shape of the derived one, from the placeholder's env name or "" (mint/placeholder.h) */
    struct str env;
    enum source_kind source;
    struct config_at source_at;
    struct str source_text; /* sidecar name, variable, absolute path */
    struct str *exec;
    size_t nexec;
    uint64_t max_ttl_ms;
    bool allow_plain_http, allow_short, i_know;
    struct host_pattern *tolerate;
    size_t ntolerate;
};
struct config_sidecar {
    struct str name, socket;
    uint64_t timeout_ms;
    bool peer_uid_given;
    uint64_t peer_uid;
    struct config_at at;
};

/* `action` of a class of findings. */
enum finding_action { FINDING_BLOCK = 0, FINDING_FLAG, FINDING_LOG };

struct config {
    struct arena arena;
    struct str file, dir; /* as given; absolute folder */
    struct str state_dir; /* absolute */
    struct str runtime_dir;
    bool observe;
    struct {
        struct str net, ca, key, mint, log, console;
    } users;
    struct str *listen_names;
    size_t nlisten_names;
    struct config_listener *proxy;
    size_t nproxy;
    struct config_listener *dns; /* LISTENER_TCP, each also on UDP */
    size_t ndns;
    unsigned workers; /* 0: one per core */
    struct config_upstream *upstreams;
    size_t nupstreams;
    struct config_host_entry *hosts;
    size_t nhosts;
    bool dns_forward;                     /* resolver.answer: forward */
    struct ip synthetic_v4, synthetic_v6; /* family 0: none */
    struct address_pool synthetic_pool;
    struct config_at synthetic_pool_at, synthetic_v4_pool_at, synthetic_v6_pool_at; /* the value, and each network in it */
    struct config_ca_file *ca_files;
    size_t nca_files;
    struct cidr *allow_addresses;
    size_t nallow_addresses;
    struct {
        bool given;
        struct host host;
        uint16_t port;
        struct str login_file;
        bool resolve_parent;
        struct config_at at;
    } parent_proxy;
    bool absolute_https;
    struct agent *agents;
    size_t nagents;
    struct rule *rules;
    size_t nrules;
    struct credential *credentials;
    size_t ncredentials;
    struct config_sidecar *sidecars;
    size_t nsidecars;
    struct {
        enum finding_action tunnel;
        struct config_at tunnel_at, agent_at; /* line 0: not given */
        uint32_t zone_bits, zone_refill;  /* of an agent and a zone: at once, and a day */
        uint32_t agent_bits, agent_zones; /* a day; an hour */
        uint32_t any_bits;                /* a day */
        struct host_pattern *exempt;
        size_t nexempt;
    } exfiltration;
    struct {
        uint64_t segment_bytes, keep_ms, max_bytes;
        bool sync_always;
        uint64_t sync_ms;
        bool queries_keep; /* false: redact (default) */
    } audit;
    uint64_t ask_hold_ms;
    bool refuse_at_connect;
    struct limits limits;
    struct str *side_files; /* sorted, distinct: see config_side_files */
    size_t nside_files;
    unsigned char sha256[32]; /* of the file's bytes */
};

/* A list of findings about the file: errors and warnings, each one line without LF. */
struct diag_line {
    bool error;
    struct config_at at; /* line 0: none */
    struct str text; /* "FILE:LINE:COL: KEY: expected …, got …" */
};
struct diag {
    struct arena arena;
    struct diag_line *lines;
    size_t n, cap;
    size_t errors;
};
void diag_init(struct diag *d);
void diag_done(struct diag *d);
void diag_add(struct diag *d, bool error, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* About that place of the file; the text says it too. */
void diag_add_at(struct diag *d, bool error, struct config_at at, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* In the order of their places, those of one place as they came; what has none stands first. */
void diag_sort(struct diag *d);

/* Parses `text` (the bytes of `file`; `dir` is its absolute folder). Reports every error it can find, then returns NULL
 * when there was one. Warnings alone still give a config. Free with config_free. */
struct config *config_parse(struct str file, struct str dir, struct str text, struct diag *diag);
void config_free(struct config *c);

/* Every file that the configuration names and that a snapshot must carry: token files, CA files, the parent's login
 * file
 * ("system" CA roots are named "system"). Calls cb once per distinct path. */
void config_side_files(const struct config *c, void (*cb)(void *ctx, struct str path), void *ctx);

/* Does what is sent to (ip, port) of this machine come to the listener, as far as the file tells? One that listens on all addresses
 * hears on loopback; of others it is not known here whose they are. */
bool config_listener_hears(const struct config_listener *l, const struct ip *ip, uint16_t port);
/* Where a unix: listener's socket is: a relative path is under the runtime folder. STR_NONE when memory is out. */
struct str config_listener_path(const struct config_listener *l, struct str runtime_dir, struct arena *a);
/* The reference of every key, from the same tables that the parser uses, as Markdown: docs/CONFIG.md. */
void config_print_doc(FILE *out);

#endif
