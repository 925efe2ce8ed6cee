/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenSSL has decoded most extensions when we come here (they are cached with the certificate); what is decoded again
 * is what has no accessor, and what it does not look at. Nothing here trusts that it did look. */
#include "policy/origin_chain.h"

#include "base/str.h"
#include "policy/host.h"

#include <openssl/asn1.h>
#include <openssl/evp.h>
#include <openssl/x509v3.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { EXTENSIONS_MAX = 64, SERIAL_OCTETS_MAX = 20, RSA_BITS_MIN = 2048, RSA_BITS_MAX = 8192, SUBTREES_MAX = 4096 };

static const struct {
    const char *name, *what, *where;
} faults[CHAIN_FAULTS] = {
    [CHAIN_FINE] = { "FINE", "is acceptable", "" },
#define CHAIN(n, what_, where_) [CHAIN_##n] = { #n, what_, where_ },
#include "policy/origin_chain.def"
#undef CHAIN
};

/* --- which kind of certificate --- */

struct cert {
    X509 *x;
    uint32_t flags;  /* EXFLAG_…: the extensions are cached by having asked for them */
    bool host, ca;   /* first in the chain; everything else */
    bool anchor;     /* last in the chain */
    bool system;     /* an anchor that the system's store vouches for */
    bool pinned;     /* the host's own, named by the operator */
    const char *ext; /* which extension a fault is about */
};

static int system_index = -1;

int origin_chain_system_root(X509 *root)
{
    if (system_index < 0)
        system_index = X509_get_ex_new_index(0, NULL, NULL, NULL, NULL);
    return system_index >= 0 && X509_set_ex_data(root, system_index, &system_index) == 1 ? 0 : -1;
}

static struct cert cert_at(STACK_OF(X509) * chain, int i)
{
    int n = sk_X509_num(chain);
    X509 *x = sk_X509_value(chain, i);
    struct cert c = { .x = x, .flags = X509_get_extension_flags(x), .host = i == 0, .ca = i > 0, .anchor = i == n - 1 };
    c.system = c.anchor && system_index >= 0 && X509_get_ex_data(x, system_index) == &system_index;
    c.pinned = n == 1 && !c.system;
    return c;
}

static enum chain_fault with(struct cert *c, int nid, enum chain_fault f)
{
    c->ext = OBJ_nid2sn(nid);
    return f;
}

static const X509_EXTENSION *extension(const struct cert *c, int nid)
{
    int at = X509_get_ext_by_NID(c->x, nid, -1);
    return at < 0 ? NULL : X509_get_ext(c->x, at);
}

/* --- key and signature --- */

static bool named_curve(X509 *x)
{
    X509_ALGOR *alg;
    const ASN1_OBJECT *curve;
    const void *value;
    int type;
    if (X509_PUBKEY_get0_param(NULL, NULL, NULL, &alg, X509_get_X509_PUBKEY(x)) != 1)
        return false;
    X509_ALGOR_get0(NULL, &type, &value, alg);
    if (type != V_ASN1_OBJECT) /* explicit parameters: a curve of the signer's own making (CVE-2020-0601) */
        return false;
    curve = value;
    int nid = OBJ_obj2nid(curve);
    return nid == NID_X9_62_prime256v1 || nid == NID_secp384r1 || nid == NID_secp521r1;
}

/* Odd and at least 3. Read from RSAPublicKey's DER (RFC 8017 A.1.1), which OpenSSL has decoded: asking it for the
 * number costs more than everything else here. */
static bool exponent_fine(X509 *x)
{
    const unsigned char *p;
    int total, tag, class;
    long n;
    if (X509_PUBKEY_get0_param(NULL, &p, &total, NULL, X509_get_X509_PUBKEY(x)) != 1)
        return false;
    const unsigned char *end = p + total;
    for (int i = 0; i < 3; i++) { /* the SEQUENCE is entered, the modulus passed over, the exponent stood before */
        if (ASN1_get_object(&p, &n, &tag, &class, end - p) & 0x80 || tag != (i ? V_ASN1_INTEGER : V_ASN1_SEQUENCE))
            return false;
        p += i == 1 ? n : 0;
    }
    return n > 0 && end - p == n && p[0] < 0x80 && p[n - 1] & 1 && !(n == 1 && p[0] == 1);
}

static enum chain_fault key_fault(X509 *x)
{
    EVP_PKEY *key = X509_get0_pubkey(x);
    int bits = key ? EVP_PKEY_get_bits(key) : 0;
    switch (key ? EVP_PKEY_get_base_id(key) : EVP_PKEY_NONE) {
    case EVP_PKEY_RSA:
    case EVP_PKEY_RSA_PSS:
        if (bits < RSA_BITS_MIN || bits > RSA_BITS_MAX || bits % 8)
            return CHAIN_KEY;
        return exponent_fine(x) ? CHAIN_FINE : CHAIN_EXPONENT;
    case EVP_PKEY_EC:
        return named_curve(x) ? CHAIN_FINE : CHAIN_KEY;
    case EVP_PKEY_ED25519:
    case EVP_PKEY_ED448:
        return CHAIN_FINE;
    default:
        return CHAIN_KEY;
    }
}

static bool signature_fine(X509 *x)
{
    int md, pk, bits;
    uint32_t flags;
    if (X509_get_signature_info(x, &md, &pk, &bits, &flags) != 1)
        return false;
    if (pk == EVP_PKEY_ED25519 || pk == EVP_PKEY_ED448)
        return true;
    if (md != NID_sha256 && md != NID_sha384 && md != NID_sha512)
        return false;
    /* RSASSA-PSS has parameters; with this flag they are one of the three sets that TLS 1.3 knows. */
    return pk == EVP_PKEY_RSA || pk == EVP_PKEY_EC || (pk == EVP_PKEY_RSA_PSS && flags & X509_SIG_INFO_TLS);
}

/* --- the fields outside the extensions --- */

/* RFC 5280 4.1.2.5: YYMMDDHHMMSSZ until 2049, YYYYMMDDHHMMSSZ from 2050 on. */
static bool date_fine(const ASN1_TIME *t)
{
    struct str s = str_of(ASN1_STRING_get0_data(t), (size_t)ASN1_STRING_length(t));
    if (!str_ends(s, STR("Z")))
        return false;
    if (ASN1_STRING_type(t) == V_ASN1_UTCTIME)
        return s.n == 13;
    return ASN1_STRING_type(t) == V_ASN1_GENERALIZEDTIME && s.n == 15 && str_cmp(str_sub(s, 0, 4), STR("2050")) >= 0;
}

static bool serial_fine(const ASN1_INTEGER *serial)
{
    if (ASN1_STRING_type(serial) != V_ASN1_INTEGER) /* V_ASN1_NEG_INTEGER */
        return false;
    const unsigned char *p = ASN1_STRING_get0_data(serial);
    int n = ASN1_STRING_length(serial); /* without the octet that keeps it positive in DER */
    return n > 0 && p[0] && n + (p[0] >> 7) <= SERIAL_OCTETS_MAX;
}

static bool name_empty(const X509_NAME *name)
{
    return X509_NAME_entry_count(name) == 0;
}

static enum chain_fault fields_fault(const struct cert *c)
{
    const X509_ALGOR *inner = X509_get0_tbs_sigalg(c->x), *outer;
    X509_get0_signature(NULL, &outer, c->x);
    if (X509_get_version(c->x) != X509_VERSION_3)
        return CHAIN_NOT_V3;
    if (X509_ALGOR_cmp(inner, outer))
        return CHAIN_ALGORITHMS_DIFFER;
    enum chain_fault f = key_fault(c->x);
    if (f)
        return f;
    if (!c->anchor && !signature_fine(c->x))
        return CHAIN_SIGNATURE;
    if (c->system)
        return CHAIN_FINE;
    if (!serial_fine(X509_get0_serialNumber(c->x)))
        return CHAIN_SERIAL;
    if (!date_fine(X509_get0_notBefore(c->x)) || !date_fine(X509_get0_notAfter(c->x)))
        return CHAIN_DATES;
    if (name_empty(X509_get_issuer_name(c->x)))
        return CHAIN_NO_ISSUER;
    if (c->ca && name_empty(X509_get_subject_name(c->x)))
        return CHAIN_NO_SUBJECT;
    return CHAIN_FINE;
}

/* --- the extensions, each for itself --- */

enum mark { ANY, MUST, MUST_NOT, IN_CA }; /* critical; IN_CA: must be in a CA's */

static const struct extension_rule {
    int nid;
    enum mark critical;
    bool ca_only;
    bool decoded; /* OpenSSL has it in its cache and says EXFLAG_INVALID when it cannot be read */
} extension_rules[] = {
    { NID_authority_key_identifier, MUST_NOT, false, true },      /* RFC 5280 4.2.1.1 */
    { NID_subject_key_identifier, MUST_NOT, false, true },        /* 4.2.1.2 */
    { NID_key_usage, ANY, false, true },                          /* 4.2.1.3: "SHOULD" */
    { NID_certificate_policies, ANY, false, false },              /* 4.2.1.4 */
    { NID_policy_mappings, ANY, true, false },                    /* 4.2.1.5: "SHOULD" */
    { NID_subject_alt_name, ANY, false, true },                   /* 4.2.1.6: names_fault */
    { NID_issuer_alt_name, ANY, false, false },                   /* 4.2.1.7: "SHOULD" */
    { NID_subject_directory_attributes, MUST_NOT, false, false }, /* 4.2.1.8; no decoder */
    { NID_basic_constraints, IN_CA, false, true },                /* 4.2.1.9 */
    { NID_name_constraints, ANY, true, true },         /* 4.2.1.10: critical, but BR 7.1.2.5.2 permits what it is not */
    { NID_policy_constraints, MUST, true, false },     /* 4.2.1.11 */
    { NID_ext_key_usage, ANY, false, true },           /* 4.2.1.12 */
    { NID_crl_distribution_points, ANY, false, true }, /* 4.2.1.13: "SHOULD" */
    { NID_inhibit_any_policy, MUST, true, false },     /* 4.2.1.14 */
    { NID_freshest_crl, MUST_NOT, false, false },      /* 4.2.1.15 */
    { NID_info_access, MUST_NOT, false, false },       /* 4.2.2.1 */
    { NID_sinfo_access, MUST_NOT, false, false },      /* 4.2.2.2 */
};

static const struct extension_rule *rule_of(int nid)
{
    for (size_t i = 0; i < sizeof extension_rules / sizeof *extension_rules; i++)
        if (extension_rules[i].nid == nid)
            return &extension_rules[i];
    return NULL;
}

/* One DER value fills the extension, and a SEQUENCE has something in it: each of RFC 5280's is SIZE (1..MAX), but for
 * basic constraints (the default is "no CA") and key identifiers (looked at elsewhere). */
static bool whole_value(const X509_EXTENSION *e, int nid)
{
    const ASN1_OCTET_STRING *value = X509_EXTENSION_get_data((X509_EXTENSION *)(uintptr_t)e);
    const unsigned char *p = ASN1_STRING_get0_data(value);
    long n = ASN1_STRING_length(value), len;
    const unsigned char *end = p + n;
    int tag, class;
    int how = ASN1_get_object(&p, &len, &tag, &class, n);
    if (how & 0x81 || end - p != len) /* 0x80: an error; 0x01: indefinite length, which is not DER */
        return false;
    return len > 0 || nid == NID_basic_constraints || nid == NID_authority_key_identifier;
}

/* Every SEQUENCE OF decodes to a stack; an empty one within is caught by whole_value alone at the top. */
static bool decodes(const X509_EXTENSION *e, int nid)
{
    const X509V3_EXT_METHOD *method = X509V3_EXT_get_nid(nid);
    if (!method)
        return true; /* no decoder: nobody reads it */
    void *value = X509V3_EXT_d2i((X509_EXTENSION *)(uintptr_t)e);
    if (!value)
        return false;
    if (method->it)
        ASN1_item_free(value, ASN1_ITEM_ptr(method->it));
    else
        method->ext_free(value);
    return true;
}

static enum chain_fault extension_fault(struct cert *c, const X509_EXTENSION *e, int nid)
{
    const struct extension_rule *r = rule_of(nid);
    if (!r)
        return CHAIN_FINE; /* an unknown critical one OpenSSL refused */
    if (!whole_value(e, nid) || (!r->decoded && !decodes(e, nid)))
        return with(c, nid, CHAIN_MALFORMED);
    if (c->host && r->ca_only && !c->pinned)
        return with(c, nid, CHAIN_CA_ONLY);
    if (c->system)
        return CHAIN_FINE;
    bool critical = X509_EXTENSION_get_critical(e) == 1;
    if (critical && r->critical == MUST_NOT)
        return with(c, nid, CHAIN_CRITICAL);
    if (!critical && (r->critical == MUST || (r->critical == IN_CA && c->ca)))
        return with(c, nid, CHAIN_NOT_CRITICAL);
    return CHAIN_FINE;
}

static enum chain_fault extensions_fault(struct cert *c)
{
    int n = X509_get_ext_count(c->x);
    if (n > EXTENSIONS_MAX)
        return CHAIN_TOO_MANY;
    for (int i = 0; i < n; i++) {
        X509_EXTENSION *e = X509_get_ext(c->x, i);
        const ASN1_OBJECT *object = X509_EXTENSION_get_object(e);
        int nid = OBJ_obj2nid(object);
        if (X509_get_ext_by_OBJ(c->x, object, i) >= 0)
            return with(c, nid, CHAIN_TWICE);
        enum chain_fault f = extension_fault(c, e, nid);
        if (f)
            return f;
    }
    return c->flags & EXFLAG_INVALID ? CHAIN_MALFORMED : CHAIN_FINE;
}

/* --- what the extensions say --- */

static enum chain_fault identifier_fault(const struct cert *c)
{
    const ASN1_OCTET_STRING *own = X509_get0_subject_key_id(c->x), *issuer = X509_get0_authority_key_id(c->x);
    if (c->ca && !own)
        return CHAIN_NO_SKI;
    if (!c->anchor)
        return issuer && ASN1_STRING_length(issuer) ? CHAIN_FINE : CHAIN_NO_AKI;
    bool self = c->flags & EXFLAG_SI; /* a root may be another's intermediate: who signed it is not asked */
    if (c->pinned || !self || !extension(c, NID_authority_key_identifier))
        return CHAIN_FINE;
    bool alone = issuer && !X509_get0_authority_issuer(c->x) && !X509_get0_authority_serial(c->x);
    return alone && !ASN1_OCTET_STRING_cmp(own, issuer) ? CHAIN_FINE : CHAIN_SELF_AKI;
}

static enum chain_fault usage_fault(const struct cert *c)
{
    uint32_t usage = X509_get_key_usage(c->x); /* all bits when there is none */
    if (!(c->flags & EXFLAG_KUSAGE))
        return c->ca && !c->anchor ? CHAIN_NO_KEY_USAGE : CHAIN_FINE;
    if (c->host && !c->pinned && usage & (KU_KEY_CERT_SIGN | KU_CRL_SIGN))
        return CHAIN_SIGNS;
    /* The server signs the handshake in every suite that we offer. */
    return c->host && !(usage & KU_DIGITAL_SIGNATURE) ? CHAIN_CANNOT_SIGN : CHAIN_FINE;
}

static enum chain_fault purpose_fault(const struct cert *c)
{
    if (!c->host || !(c->flags & EXFLAG_XKUSAGE))
        return CHAIN_FINE;
    uint32_t purpose = X509_get_extended_key_usage(c->x);
    return purpose & XKU_SSL_SERVER && !(purpose & XKU_ANYEKU) ? CHAIN_FINE : CHAIN_PURPOSE;
}

static enum chain_fault basic_fault(const struct cert *c)
{
    if (c->host && c->flags & EXFLAG_CA && !c->pinned)
        return CHAIN_IS_CA;
    if (c->ca && !(c->flags & EXFLAG_BCONS && c->flags & EXFLAG_CA))
        return CHAIN_NOT_CA;
    if (!(c->flags & EXFLAG_BCONS) || c->flags & EXFLAG_CA)
        return CHAIN_FINE;
    BASIC_CONSTRAINTS *b = X509_get_ext_d2i(c->x, NID_basic_constraints, NULL, NULL);
    bool length = !b || b->pathlen;
    BASIC_CONSTRAINTS_free(b);
    return length ? CHAIN_PATHLEN : CHAIN_FINE;
}

/* --- names --- */

static struct str string_of(const ASN1_STRING *s)
{
    return str_of(ASN1_STRING_get0_data(s), (size_t)ASN1_STRING_length(s));
}

/* A name as RFC 5280 4.2.1.6 wants it (with underscores): A-labels, no address, no trailing dot. */
static bool dns_name(struct str s)
{
    struct host h;
    return !str_ends(s, STR(".")) && !host_parse(s, &h, NULL) && !host_is_ip(&h);
}

static struct str without_star(struct str s)
{
    return str_starts(s, STR("*.")) ? str_from(s, 2) : s;
}

/* RFC 5280 4.2.1.6: one mailbox; a quoted part with an @ in it is nobody's. */
static bool mailbox(struct str s)
{
    ptrdiff_t at = str_find_char(s, '@');
    return at > 0 && (size_t)at + 1 < s.n && at == str_rfind_char(s, '@');
}

static bool name_fine(const GENERAL_NAME *g)
{
    switch (g->type) {
    case GEN_DNS:
        return dns_name(without_star(string_of(g->d.dNSName)));
    case GEN_IPADD:
        return ASN1_STRING_length(g->d.iPAddress) == 4 || ASN1_STRING_length(g->d.iPAddress) == 16;
    case GEN_EMAIL:
        return mailbox(string_of(g->d.rfc822Name));
    case GEN_URI:
        return str_find_char(string_of(g->d.uniformResourceIdentifier), ':') > 0; /* not a relative one */
    default:
        return true; /* others never name a host */
    }
}

static bool names_fine(const GENERAL_NAMES *names)
{
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++)
        if (!name_fine(sk_GENERAL_NAME_value(names, i)))
            return false;
    return true;
}

/* Nobody reads the common name where there are alternative names (RFC 9525 2), and it may be any text. Where it is an
 * address, another reader would take an odd form for another address than the one that was checked. */
static bool odd_address(struct str cn)
{
    struct host h;
    unsigned dots = 0;
    for (size_t i = 0; i < cn.n; i++)
        dots += cn.p[i] == '.';
    bool like = dots == 3 || str_find_char(cn, ':') >= 0;
    return like && !host_parse(cn, &h, NULL) && host_is_ip(&h) && !str_eq(host_str(&h), cn);
}

static bool common_names_fine(X509 *x)
{
    const X509_NAME *subject = X509_get_subject_name(x);
    for (int at = -1; (at = X509_NAME_get_index_by_NID(subject, NID_commonName, at)) >= 0;)
        if (odd_address(string_of(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)))))
            return false;
    return true;
}

static enum chain_fault names_fault(const struct cert *c, const GENERAL_NAMES *names)
{
    if (!names)
        return CHAIN_NO_NAMES;
    if (!names_fine(names))
        return CHAIN_BAD_NAME;
    bool critical = X509_EXTENSION_get_critical(extension(c, NID_subject_alt_name)) == 1;
    if (critical != name_empty(X509_get_subject_name(c->x)))
        return CHAIN_NAMES_CRITICAL;
    return common_names_fine(c->x) ? CHAIN_FINE : CHAIN_COMMON_NAME;
}

/* --- name constraints --- */

/* An address and a mask of as many octets, the mask ones and then zeros (RFC 4632). */
static bool range_fine(struct str s)
{
    if (s.n != 8 && s.n != 32)
        return false;
    bool zeros = false;
    for (size_t i = s.n / 2; i < s.n; i++)
        for (int bit = 7; bit >= 0; bit--) {
            bool one = s.p[i] >> bit & 1;
            if (one && zeros)
                return false;
            zeros = zeros || !one;
        }
    return true;
}

static bool subtree_fine(const GENERAL_SUBTREE *t)
{
    if (t->maximum || (t->minimum && ASN1_INTEGER_get(t->minimum) != 0))
        return false;
    if (t->base->type ==
        GEN_DNS) /* the empty one is every name; one that begins with a dot is none (that is for URIs) */
        return !ASN1_STRING_length(t->base->d.dNSName) || dns_name(string_of(t->base->d.dNSName));
    return t->base->type != GEN_IPADD || range_fine(string_of(t->base->d.iPAddress));
}

/* "*.x.test" covers "a.x.test", which an excluded "a.x.test" says this CA must not vouch for; OpenSSL compares the text
 * alone. */
static bool covers(struct str wildcard, struct str excluded)
{
    ptrdiff_t dot = str_find_char(excluded, '.');
    return str_starts(wildcard, STR("*.")) && dot > 0 &&
           str_eq_nocase(str_from(wildcard, 2), str_from(excluded, (size_t)dot + 1));
}

static bool wildcard_excluded(const GENERAL_NAMES *names, const STACK_OF(GENERAL_SUBTREE) * excluded)
{
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *g = sk_GENERAL_NAME_value(names, i);
        struct str name = g->type == GEN_DNS ? string_of(g->d.dNSName) : STR_NONE;
        if (!str_starts(name, STR("*.")))
            continue;
        for (int j = 0; j < sk_GENERAL_SUBTREE_num(excluded); j++) {
            const GENERAL_NAME *base = sk_GENERAL_SUBTREE_value(excluded, j)->base;
            if (base->type == GEN_DNS && covers(name, string_of(base->d.dNSName)))
                return true;
        }
    }
    return false;
}

static enum chain_fault subtrees_fault(const STACK_OF(GENERAL_SUBTREE) * trees)
{
    int n = sk_GENERAL_SUBTREE_num(trees);
    if (trees && !n)
        return CHAIN_EMPTY_CONSTRAINTS;
    if (n > SUBTREES_MAX)
        return CHAIN_BAD_CONSTRAINT;
    for (int i = 0; i < n; i++)
        if (!subtree_fine(sk_GENERAL_SUBTREE_value(trees, i)))
            return CHAIN_BAD_CONSTRAINT;
    return CHAIN_FINE;
}

static enum chain_fault constraints_fault(const struct cert *c, const GENERAL_NAMES *names)
{
    if (!extension(c, NID_name_constraints))
        return CHAIN_FINE;
    NAME_CONSTRAINTS *nc = X509_get_ext_d2i(c->x, NID_name_constraints, NULL, NULL);
    enum chain_fault f = CHAIN_FINE;
    if (!nc)
        f = CHAIN_MALFORMED;
    else if (!c->system) {
        f = !nc->permittedSubtrees && !nc->excludedSubtrees ? CHAIN_EMPTY_CONSTRAINTS
                                                            : subtrees_fault(nc->permittedSubtrees);
        f = f ? f : subtrees_fault(nc->excludedSubtrees);
    }
    if (!f && wildcard_excluded(names, nc->excludedSubtrees))
        f = CHAIN_WILDCARD_EXCLUDED;
    NAME_CONSTRAINTS_free(nc);
    return f;
}

/* --- the chain --- */

static enum chain_fault cert_fault(struct cert *c, const GENERAL_NAMES *names)
{
    enum chain_fault f = fields_fault(c);
    f = f ? f : extensions_fault(c);
    f = f ? f : basic_fault(c);
    if (!c->system) {
        f = f ? f : identifier_fault(c);
        f = f ? f : usage_fault(c);
        f = f ? f : purpose_fault(c);
    } else if (c->host) {
        f = f ? f : CHAIN_IS_CA;
    }
    f = f || !c->host ? f : names_fault(c, names);
    return f || !c->ca ? f : constraints_fault(c, names);
}

struct chain_verdict origin_chain_check(STACK_OF(X509) * chain)
{
    int n = sk_X509_num(chain);
    if (n < 1)
        return (struct chain_verdict) { .fault = CHAIN_MALFORMED };
    GENERAL_NAMES *names = X509_get_ext_d2i(sk_X509_value(chain, 0), NID_subject_alt_name, NULL, NULL);
    struct chain_verdict v = { .fault = CHAIN_FINE };
    for (int i = 0; i < n && !v.fault; i++) {
        struct cert c = cert_at(chain, i);
        v.fault = cert_fault(&c, names);
        v.extension = v.fault ? c.ext : NULL;
        v.place = c.host ? CHAIN_HOST : c.anchor ? CHAIN_ROOT : CHAIN_INTERMEDIATE;
    }
    GENERAL_NAMES_free(names);
    return v;
}

enum { POLICIES_MAX = 64 };

bool origin_chain_policies_fit(X509 *cert)
{
    if (X509_get_ext_by_NID(cert, NID_policy_constraints, -1) < 0)
        return true;
    CERTIFICATEPOLICIES *p = X509_get_ext_d2i(cert, NID_certificate_policies, NULL, NULL);
    int n = p ? sk_POLICYINFO_num(p) : 0;
    bool fit = n > 0 && n <= POLICIES_MAX;
    for (int i = 0; fit && i < n; i++)
        for (int j = 0; fit && j < i; j++)
            fit = OBJ_cmp(sk_POLICYINFO_value(p, i)->policyid, sk_POLICYINFO_value(p, j)->policyid) != 0;
    CERTIFICATEPOLICIES_free(p);
    return fit;
}

int64_t origin_chain_until(STACK_OF(X509) * chain)
{
    int64_t until = INT64_MAX;
    for (int i = 0; i < sk_X509_num(chain); i++) {
        struct tm tm;
        int64_t end = ASN1_TIME_to_tm(X509_get0_notAfter(sk_X509_value(chain, i)), &tm) == 1 ? (int64_t)timegm(&tm) : 0;
        until = end < until ? end : until;
    }
    return until;
}

const char *origin_chain_say(const struct chain_verdict *v, char *out, size_t size)
{
    static const char *const places[] = {
        [CHAIN_HOST] = "the host's certificate",
        [CHAIN_INTERMEDIATE] = "an intermediate certificate",
        [CHAIN_ROOT] = "the root certificate",
    };
    snprintf(out, size, "%s %s (%s%s%s)", places[v->place], faults[v->fault].what, v->extension ? v->extension : "",
             v->extension ? "; " : "", faults[v->fault].where);
    return out;
}

const char *origin_chain_name(enum chain_fault f)
{
    return faults[f].name;
}
