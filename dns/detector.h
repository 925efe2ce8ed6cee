/* SPDX-License-Identifier: Apache-2.0
 *
 * detector: may this name be asked, answered or dialled, as far as data in names is concerned? Policy is decided
 * before, by the caller, who says how the name was approved. Puts together canary, name_cost, zone, special_name and
 * budget, in this order, each of which can be read alone:
 *
 *   signal                  exact   wildcard        not approved   not approved, observe mode
 *   piece of a placeholder  block, critical, everywhere
 *   wire check              refuse  refuse          refuse, flag   refuse, flag
 *   special, not written    -       refuse          refuse         refuse
 *   score >= SCORE_FLAG     -       flag            refuse, flag   block, flag
 *     short, < SCORE_SURE   -       info            refuse, flag   flag
 *   budget half spent       -       flag once       -              flag once
 *   budget spent            -       block, flag     -              block, flag
 *   else                    allow   allow           refuse         allow
 *
 * "block" is refused unless the `action` of the class says otherwise (detector_options).
 *
 * Charged is what leaves: a question upstream, a dial. An answer that is made up here costs nothing, a refused name
 * neither. Nothing is allocated and nothing waits after detector_new; whoever calls writes the event. */
#ifndef DNS_DETECTOR_H
#define DNS_DETECTOR_H

#include "dns/budget.h"
#include "dns/canary.h"
#include "dns/name_cost.h"
#include "dns/zone.h"

enum { DETECTOR_SCORE_FLAG = 20, DETECTOR_SCORE_SURE = 40 };

enum detector_act { DETECTOR_BLOCK = 0, DETECTOR_FLAG, DETECTOR_LOG }; /* `action` of a class in the configuration */
struct detector_options {
    struct budget_limits limits;
    /* FLAG: what a score or a budget would refuse passes and is flagged; LOG: it passes and is told. */
    enum detector_act tunnel, placeholder;
};
void detector_options_default(struct detector_options *o);

struct detector;
/* NULL: out of memory, or a limit that cannot be. canary: NULL: there are no placeholders; a reference of its own. */
struct detector *detector_new(const struct detector_options *o, struct canary *canary, uint64_t now_ms,
                              struct err *err);
void detector_free(struct detector **d);
/* The next name is judged by these: what was spent stays. 0 or -1, and nothing is changed. */
int detector_set(struct detector *d, const struct detector_options *o, struct canary *canary, struct err *err);
/* For its state (budget_state.h). */
struct budget *detector_budget(struct detector *d);

enum detector_approval {
    DETECTOR_UNAPPROVED = 0, /* no rule; or one that refuses */
    DETECTOR_WILDCARD,       /* a rule that lets it through by "*." or "*" */
    DETECTOR_EXACT,          /* a rule that names it, resolver.hosts, exfiltration.exempt */
};
enum detector_event { DETECTOR_QUESTION = 0 /* goes upstream */, DETECTOR_SYNTHETIC, DETECTOR_DIAL };

struct detector_ask {
    struct str agent;
    struct str name; /* as policy saw it: lower case, no dot at the end, no address (nobody is asked for one); of a
                        question that cannot be that, its bytes */
    size_t fixed;    /* bytes at its end that a rule writes out: nobody's message, so no piece of a placeholder is looked for there */
    uint16_t qtype;  /* of a question or an answer */
    enum detector_approval approval;
    enum detector_event event;
    bool written; /* a rule or resolver.hosts names it or its suffix, and not by "*": special names are let through */
    bool observe; /* what is not approved is let through for now */
    bool hold;    /* as in struct budget_event: then not allowed, BUDGET_HELD, and nothing is told for that */
};

enum detector_rule {
    DETECTOR_NONE = 0,
    DETECTOR_PLACEHOLDER, /* a piece of one is in it */
    DETECTOR_WIRE,        /* not a name of [a-z0-9-_] labels */
    DETECTOR_SPECIAL,     /* not to be asked of anybody (special_name.h) */
    DETECTOR_SCORE,       /* looks encoded */
    DETECTOR_HALF,        /* an account passed its half */
    DETECTOR_SPENT,       /* an account has no room for it: see `verdict` */
    DETECTOR_DENIED,      /* policy, nothing else */
};
enum detector_severity { DETECTOR_QUIET = 0, DETECTOR_INFO, DETECTOR_FLAGGED, DETECTOR_CRITICAL };

struct detector_finding {
    bool allow; /* false: it must not leave, and no answer be made up for it */
    enum detector_severity severity;
    enum detector_rule rule;
    const char *class; /* dns_tunnel, host_label, dns_placeholder, placeholder_elsewhere */
    struct detector_ask ask;
    const struct canary *canaries; /* what was looked for; NULL: there are no placeholders */
    struct zone zone;
    struct name_score score;
    bool charged;
    uint64_t cost;   /* of all accounts together, 0: it left no trace */
    bool save_first; /* the budget's state must be saved before it leaves (budget_must_save) */
    enum budget_verdict verdict;
    struct budget_account account; /* where a budget was asked */
    struct canary_hit canary;      /* where there is a piece of a placeholder: whose it was; else all empty */
};
/* ret borrows from ask and from the detector: good until either goes or detector_set. */
void detector_judge(struct detector *d, const struct detector_ask *ask, uint64_t now_ms, struct detector_finding *ret);

/* The accounts that detector_judge would charge if it came to that, as budget_accounts; nothing is charged. */
size_t detector_accounts(struct detector *d, const struct detector_ask *ask, uint64_t now_ms, struct budget_account ret[BUDGET_ACCOUNTS]);

/* What is to be seen in a name that policy refused, where no purse is: it costs nothing, and is not let through. ask: not
 * approved, not observe. canary: NULL: there are no placeholders. */
void detector_look(const struct canary *canary, const struct detector_ask *ask, struct detector_finding *ret);

/* What is to be seen in a name whatever becomes of it: only zone, score and canary are set. Nothing is charged. */
void detector_scan(const struct canary *canary, const struct detector_ask *ask, struct detector_finding *ret);
const struct canary *detector_canary(const struct detector *d);
/* The labels of a name that are scored; within ask.name. */
struct str detector_scored(const struct detector_finding *f);
/* Does it look encoded, and longer than what services call their instances under a wildcard rule? */
bool detector_encoded(const struct detector_finding *f);

/* One line of printable ASCII that says what was found, numbers included; NUL-terminated. Of a name it has the first
 * characters and the length, of what a label decodes to seven characters at most. Returns out. */
enum { DETECTOR_LINE = 512 };
const char *detector_explain(const struct detector_finding *f, char out[DETECTOR_LINE]);
/* For the event: one JSON object of the numbers behind the finding; and what of the name made it, redacted. Both printable
 * ASCII. Return out. */
enum { DETECTOR_FEATURES = 640 };
const char *detector_features(const struct detector_finding *f, char out[DETECTOR_FEATURES]);
const char *detector_evidence(const struct detector_finding *f, char out[DETECTOR_LINE]);
/* Why a name that is not allowed is not, in a sentence for whoever is refused; static. */
const char *detector_why(const struct detector_finding *f);
/* What an operator can do who knows better; "": nothing. Returns out. */
enum { DETECTOR_HINT = 256 };
const char *detector_hint(const struct detector_finding *f, char out[DETECTOR_HINT]);
/* The class of that name as static text; NULL: there is none. */
const char *detector_class(struct str name);
/* "llr", "budget", ... of the finding's rule. */
const char *detector_rule_text(enum detector_rule r);
/* "info", "medium" or "critical"; and 0 to 100: for the event. */
const char *detector_severity_text(enum detector_severity s);
unsigned detector_score(const struct detector_finding *f);

#endif
