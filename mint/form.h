/* SPDX-License-Identifier: Apache-2.0
 *
 * form: the ways in which a real value may come back, and what stands in its place there. One function writes both: the
 * needle is the form of the value, the replacement the same form of the placeholder. In base64 the placeholder is first
 * cut or padded to the value's length, so that the text around it keeps its alignment and still decodes. */
#ifndef MINT_FORM_H
#define MINT_FORM_H

#include "base/buf.h"
#include "base/str.h"

enum form {
    FORM_RAW = 0,
    FORM_BASE64_0, /* the value begins at a multiple of three bytes, */
    FORM_BASE64_1, /* one byte after it, */
    FORM_BASE64_2, /* two after it */
    FORM_BASE64URL_0,
    FORM_BASE64URL_1,
    FORM_BASE64URL_2,
    FORM_HEX_LOWER,
    FORM_HEX_UPPER,
    FORM_PERCENT_UPPER, /* all but RFC 3986's unreserved characters as %2F */
    FORM_PERCENT_LOWER, /* as %2f */
    FORM_PERCENT_ALL_UPPER, /* every byte as %XX */
    FORM_PERCENT_ALL_LOWER,
    FORM_JSON,          /* RFC 8259: " and \ escaped, controls as \u00XX */
    FORM_JSON_SLASH,    /* and / as \/ */
    FORM_COUNT,
};

/* Appends the value in this form. */
void form_put(enum form f, struct str value, struct buf *out);
/* Must the search look for this form of the value? Not where an earlier form is the same text, nor where so little of
 * it is left (base64 of a value under five bytes) that ordinary text would match. `value` in `f` is in `text`. */
bool form_wanted(enum form f, struct str value, struct str text);
/* Appends what replaces a value of value_n bytes that was found in form f. */
void form_put_instead(enum form f, struct str placeholder, size_t value_n, struct buf *out);

#endif
