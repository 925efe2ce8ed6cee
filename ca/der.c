/* SPDX-License-Identifier: Apache-2.0 */
#include "ca/der.h"

#include "base/clock.h"

void der_init(struct der *d)
{
    d->at = DER_MAX;
    d->bad = false;
}

void der_put(struct der *d, struct str bytes)
{
    if (bytes.n > d->at)
        d->bad = true;
    if (d->bad || !bytes.n)
        return;
    d->at -= bytes.n;
    memcpy(d->bytes + d->at, bytes.p, bytes.n);
}

void der_put_byte(struct der *d, unsigned char byte)
{
    der_put(d, str_of(&byte, 1));
}

void der_close(struct der *d, unsigned tag, size_t mark)
{
    size_t n = mark - d->at;
    if (n < 0x80) {
        der_put_byte(d, (unsigned char)n);
    } else {
        unsigned char octets = 0;
        for (; n; n >>= 8, octets++)
            der_put_byte(d, (unsigned char)(n & 0xff));
        der_put_byte(d, (unsigned char)(0x80 | octets));
    }
    der_put_byte(d, (unsigned char)tag);
}

void der_put_element(struct der *d, unsigned tag, struct str content)
{
    size_t mark = d->at;
    der_put(d, content);
    der_close(d, tag, mark);
}

void der_put_unsigned(struct der *d, struct str v)
{
    size_t mark = d->at;
    while (v.n > 1 && v.p[0] == 0)
        v = str_from(v, 1);
    der_put(d, v);
    if ((unsigned char)v.p[0] & 0x80)
        der_put_byte(d, 0);
    der_close(d, DER_INTEGER, mark);
}

void der_put_time(struct der *d, int64_t seconds)
{
    char iso[28], out[15]; /* "2026-01-01T00:10:00.123456Z" -> "20260101001000Z" */
    clock_format_us(seconds * 1000000, iso);
    static const unsigned char from[14] = { 0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18 };
    for (size_t i = 0; i < sizeof from; i++)
        out[i] = iso[from[i]];
    out[14] = 'Z';
    bool utc = memcmp(out, "1950", 4) >= 0 && memcmp(out, "2050", 4) < 0;
    der_put_element(d, utc ? DER_UTC_TIME : DER_GENERALIZED_TIME, str_from(str_of(out, sizeof out), utc ? 2 : 0));
}
