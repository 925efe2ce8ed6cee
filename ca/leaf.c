/* SPDX-License-Identifier: Apache-2.0 */
#include "ca/leaf.h"

#include <arpa/inet.h>

/* ---- shapes ---- */

static bool is_number(struct str label)
{
    bool digits = true, hex = label.n >= 2 && label.p[0] == '0' && label.p[1] == 'x';
    for (size_t i = 0; i < label.n; i++) {
        digits &= ascii_digit(label.p[i]);
        hex &= i < 2 || ascii_hex(label.p[i]) >= 0;
    }
    return digits || hex;
}

static bool is_label(struct str label)
{
    if (!label.n || label.n > 63 || label.p[0] == '-') /* at the end there are some, as policy/host knows */
        return false;
    for (size_t i = 0; i < label.n; i++) {
        char c = label.p[i];
        if (!(c >= 'a' && c <= 'z') && !ascii_digit(c) && c != '-' && c != '_')
            return false;
    }
    return true;
}

bool leaf_name_is_dns(struct str name)
{
    struct str label = STR_NONE;
    if (!name.n || name.n > LEAF_NAME_MAX)
        return false;
    while (str_split(&name, '.', &label))
        if (!is_label(label))
            return false;
    return !is_number(label);
}

size_t leaf_name_to_ip(struct str name, unsigned char ret[16])
{
    char text[INET6_ADDRSTRLEN];
    if (!name.n || name.n >= sizeof text || memchr(name.p, 0, name.n))
        return 0;
    memcpy(text, name.p, name.n);
    text[name.n] = 0;
    if (inet_pton(AF_INET, text, ret) == 1)
        return 4;
    return inet_pton(AF_INET6, text, ret) == 1 ? 16 : 0;
}

/* SEQUENCE { SEQUENCE { id-ecPublicKey, prime256v1 }, BIT STRING { 0, 04 … */
static const unsigned char spki_head[] = { 0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48,
                                           0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48,
                                           0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04 };

bool leaf_spki_point(struct str spki, struct str *ret_point)
{
    if (spki.n != LEAF_SPKI_SIZE || !str_starts(spki, str_of(spki_head, sizeof spki_head)))
        return false;
    *ret_point = str_from(spki, LEAF_SPKI_SIZE - LEAF_POINT_SIZE);
    return true;
}

/* ---- the certificate, from back to front ---- */

static const unsigned char ecdsa_with_sha256[] = { 0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86,
                                                   0x48, 0xce, 0x3d, 0x04, 0x03, 0x02 };
#define BYTES(array) str_of(array, sizeof(array))

/* id-ce (2.5.29) extensions. */
enum {
    EXT_SUBJECT_KEY_ID = 14,
    EXT_KEY_USAGE = 15,
    EXT_SUBJECT_ALT_NAME = 17,
    EXT_BASIC_CONSTRAINTS = 19,
    EXT_AUTHORITY_KEY_ID = 35,
    EXT_EXTENDED_KEY_USAGE = 37,
};

/* Makes an Extension of the value written since mark. */
static void close_extension(struct der *d, unsigned char id, bool critical, size_t mark)
{
    der_close(d, DER_OCTET_STRING, mark);
    if (critical)
        der_put_element(d, DER_BOOLEAN, STR("\xff"));
    const unsigned char oid[] = { 0x55, 0x1d, id };
    der_put_element(d, DER_OID, BYTES(oid));
    der_close(d, DER_SEQUENCE, mark);
}

static void put_extensions(struct der *d, const struct leaf_fields *f)
{
    size_t all = d->at, mark = d->at;
    der_put_element(d, DER_CONTEXT_0, f->issuer_key); /* keyIdentifier [0] */
    der_close(d, DER_SEQUENCE, mark);
    close_extension(d, EXT_AUTHORITY_KEY_ID, false, mark);

    mark = d->at;
    der_put_element(d, DER_OCTET_STRING, f->key_id);
    close_extension(d, EXT_SUBJECT_KEY_ID, false, mark);

    mark = d->at; /* dNSName [2] or iPAddress [7]; critical because the subject is empty (4.2.1.6) */
    der_put_element(d, DER_CONTEXT_0 | (f->is_ip ? 7 : 2), f->name);
    der_close(d, DER_SEQUENCE, mark);
    close_extension(d, EXT_SUBJECT_ALT_NAME, true, mark);

    mark = d->at;
    static const unsigned char server_auth[] = { 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01 };
    der_put_element(d, DER_OID, BYTES(server_auth));
    der_close(d, DER_SEQUENCE, mark);
    close_extension(d, EXT_EXTENDED_KEY_USAGE, false, mark);

    mark = d->at;
    der_put_element(d, DER_BIT_STRING, STR("\x07\x80")); /* digitalSignature, 7 bits unused */
    close_extension(d, EXT_KEY_USAGE, true, mark);

    mark = d->at;
    der_close(d, DER_SEQUENCE, mark); /* cA DEFAULT FALSE: not encoded */
    close_extension(d, EXT_BASIC_CONSTRAINTS, true, mark);

    der_close(d, DER_SEQUENCE, all);
    der_close(d, DER_CONTEXT_CONSTRUCTED_0 | 3, all);
}

void leaf_put_tbs(struct der *d, const struct leaf_fields *f)
{
    size_t all = d->at;
    put_extensions(d, f);
    der_put(d, f->spki);
    der_put_element(d, DER_SEQUENCE, STR_NONE); /* subject: empty */
    size_t mark = d->at;
    der_put_time(d, f->to_s);
    der_put_time(d, f->from_s);
    der_close(d, DER_SEQUENCE, mark);
    der_put(d, f->issuer);
    der_put(d, BYTES(ecdsa_with_sha256));
    der_put_unsigned(d, f->serial);
    mark = d->at;
    der_put_unsigned(d, STR("\x02")); /* v3 */
    der_close(d, DER_CONTEXT_CONSTRUCTED_0, mark);
    der_close(d, DER_SEQUENCE, all);
}

void leaf_wrap(struct der *d, struct str tbs, struct str signature)
{
    size_t all = d->at;
    der_put(d, signature);
    der_put_byte(d, 0); /* unused bits */
    der_close(d, DER_BIT_STRING, all);
    der_put(d, BYTES(ecdsa_with_sha256));
    der_put(d, tbs);
    der_close(d, DER_SEQUENCE, all);
}
