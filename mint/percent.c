/* SPDX-License-Identifier: Apache-2.0 */
#include "mint/percent.h"

#include <stdlib.h>

enum { PERCENT_LAYERS = 3 };

/* One layer, in place: the decoded text is never longer. */
static bool decode_layer(struct percent *p)
{
    size_t o = 0;
    bool any = false;
    for (size_t i = 0; i < p->n; o++) {
        int hi, lo;
        p->from[o] = p->from[i];
        if (p->text[i] == '%' && i + 2 < p->n && (hi = ascii_hex(p->text[i + 1])) >= 0 &&
            (lo = ascii_hex(p->text[i + 2])) >= 0) {
            p->text[o] = (char)(hi << 4 | lo);
            i += 3;
            any = true;
        } else {
            p->text[o] = p->text[i++];
        }
    }
    p->from[o] = p->from[p->n];
    p->n = o;
    return any;
}

int percent_decode(struct str text, struct percent *ret)
{
    if (str_find_char(text, '%') < 0)
        return 0;
    struct percent p = { .text = malloc(text.n), .from = calloc(text.n + 1, sizeof *p.from), .n = text.n };
    if (!p.text || !p.from || text.n > UINT32_MAX) {
        free(p.text);
        free(p.from);
        return -1;
    }
    memcpy(p.text, text.p, text.n);
    for (size_t i = 0; i <= text.n; i++)
        p.from[i] = (uint32_t)i;
    bool any = decode_layer(&p);
    for (int layer = 1; layer < PERCENT_LAYERS && any && decode_layer(&p); layer++)
        ;
    if (!any) {
        percent_done(&p);
        return 0;
    }
    *ret = p;
    return 1;
}

void percent_done(struct percent *p)
{
    if (p->text)
        explicit_bzero(p->text, p->n);
    free(p->text);
    free(p->from);
    *p = (struct percent) { 0 };
}

bool percent_plain(const struct percent *p, size_t at, size_t n)
{
    return p->from[at + n] - p->from[at] == n;
}
