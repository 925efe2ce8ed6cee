/* SPDX-License-Identifier: Apache-2.0
 *
 * name_shown: a name as every line of the log shows it. Logs are sent further and read by more people than the network
 * that a name was meant for, so what a name carries out must not stand in them whole; but whoever reads them has to see
 * that it was tried, where to, and which lines speak of the same:
 *
 *   a piece of a placeholder   [CRED:github].evil.test                        all before the zone
 *   labels that look encoded   onvs2y...[+42 sha256:9f86d081884c7d65].evil.test   the first characters, how many more, their hash
 *   bytes that no name has     the same, from 33 bytes on
 *
 * What an operator wrote, and what only looks a little odd, is shown as it is. Pure. */
#ifndef DNS_NAME_SHOWN_H
#define DNS_NAME_SHOWN_H

#include "dns/detector.h"

enum { NAME_SHOWN = 320 };
/* False: it is shown as it is, and out is "". Else out has it, NUL-terminated. */
bool name_shown(const struct detector_finding *f, char out[NAME_SHOWN]);
/* Some text of a name, masked: its first characters (six, a quarter of it at most), how many more, and the hash of the whole. */
enum { NAME_MASK = 48 };
const char *name_mask(struct str text, char out[NAME_MASK]);

#endif
