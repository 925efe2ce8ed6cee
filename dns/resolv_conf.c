/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/resolv_conf.h"

static bool next_word(struct str *rest, struct str *ret)
{
    size_t from = 0;
    while (from < rest->n && (rest->p[from] == ' ' || rest->p[from] == '\t' || rest->p[from] == '\r'))
        from++;
    size_t to = from;
    while (to < rest->n && rest->p[to] != ' ' && rest->p[to] != '\t' && rest->p[to] != '\r')
        to++;
    *ret = str_sub(*rest, from, to - from);
    *rest = str_from(*rest, to);
    return ret->n > 0;
}

void resolv_conf_parse(struct str text, struct resolv_conf *ret)
{
    *ret = (struct resolv_conf) { 0 };
    bool tcp = false;
    for (struct str line; str_split(&text, '\n', &line);) {
        struct str word, value;
        /* The keyword stands at the start of the line; a comment is a line that starts with ; or #. */
        if (line.n == 0 || line.p[0] == ' ' || line.p[0] == '\t' || !next_word(&line, &word))
            continue;
        if (str_eq(word, STR("nameserver")) && next_word(&line, &value)) {
            struct ip ip;
            if (ret->n == DNS_SERVERS_MAX || ip_parse(value, &ip) != 0)
                ret->skipped++;
            else
                ret->servers[ret->n++] = (struct dns_server) { .ip = ip, .port = 53 };
        } else if (str_eq(word, STR("options"))) {
            while (next_word(&line, &value))
                tcp |= str_eq(value, STR("use-vc"));
        }
    }
    for (size_t i = 0; i < ret->n; i++)
        ret->servers[i].tcp = tcp;
}
