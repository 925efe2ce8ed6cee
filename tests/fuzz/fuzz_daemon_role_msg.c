/* SPDX-License-Identifier: Apache-2.0
 *
 * Input: type, direction, number of descriptors, then a body. What parses is written back as the same bytes; the values
 * inside are parsed by whoever may get them. */
#include "daemon/role_msg.h"
#include "daemon/role_values.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void values(struct str text)
{
    struct tune t;
    struct mint_source s;
    struct own_list o;
    struct ticket_key keys[TICKET_KEYS_MAX];
    size_t n;
    tune_parse(text, &t);
    if (mint_source_parse(text, &s) == 0)
        free(s.argv);
    if (own_list_parse(text, &o) == 0)
        own_list_done(&o);
    tickets_parse(text, keys, &n);
    struct run_logins l;
    run_logins_parse(text, &l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fds[MSG_FDS_MAX] = { 0 };
    struct role_msg rm;
    if (size < 3 || size > MSG_BODY_MAX)
        return 0;
    struct msg m = { data[0], 1, str_of(data + 3, size - 3), fds, data[2] % MSG_FDS_MAX };
    values(m.body);
    if (role_msg_parse(&m, data[1] & 1, &rm))
        return 0;
    values(rm.text);
    struct msg_writer w;
    msg_writer_init(&w);
    if (role_msg_put(&rm, &w) || !str_eq(buf_str(&w.buf), m.body))
        abort();
    buf_done(&w.buf);
    return 0;
}
