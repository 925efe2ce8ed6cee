/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/stranger.h"

#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the ones above */
#include <cmocka.h>

static struct stranger_set set;

static void come(struct stranger *s, const char *from)
{
    struct ip ip;
    assert_int_equal(ip_parse(str_c(from), &ip), 0);
    stranger_add(&set, s, &ip, 0);
}

static void whoever_has_most_loses_its_oldest(void **state)
{
    (void)state;
    struct stranger quiet, flood[5], uid[2];
    set = (struct stranger_set) { 0 };
    assert_null(stranger_first_to_go(&set));
    come(&quiet, "127.0.0.1");
    assert_null(stranger_first_to_go(&set)); /* alone */
    for (size_t i = 0; i < 5; i++)
        come(&flood[i], "127.0.0.66");
    for (size_t i = 0; i < 4; i++) {
        assert_ptr_equal(stranger_first_to_go(&set), &flood[i]);
        stranger_del(&set, &flood[i]);
        stranger_del(&set, &flood[i]); /* harmless */
    }
    assert_ptr_equal(stranger_first_to_go(&set), &quiet); /* one each: the first */
    struct ip none = { 0 };
    stranger_add(&set, &uid[0], &none, 1000);
    stranger_add(&set, &uid[1], &none, 1000);
    assert_ptr_equal(stranger_first_to_go(&set), &uid[0]);
    stranger_del(&set, &uid[1]);
    stranger_del(&set, &uid[0]);
    stranger_del(&set, &quiet);
    assert_null(stranger_first_to_go(&set));
    stranger_del(&set, &flood[4]);
    assert_int_equal(set.n, 0);
}

static void a_network_of_six_is_one_source(void **state)
{
    (void)state;
    struct stranger quiet[2], flood[3];
    set = (struct stranger_set) { 0 };
    come(&quiet[0], "fd00:0:0:1::5");
    come(&quiet[1], "fd00:0:0:1::5");
    come(&flood[0], "fd00:0:0:2::1");
    come(&flood[1], "fd00:0:0:2::2");
    come(&flood[2], "fd00:0:0:2:ffff::3");
    assert_ptr_equal(stranger_first_to_go(&set), &flood[0]);
    stranger_del(&set, &flood[1]); /* from the middle */
    stranger_del(&set, &flood[0]);
    assert_ptr_equal(stranger_first_to_go(&set), &quiet[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whoever_has_most_loses_its_oldest),
        cmocka_unit_test(a_network_of_six_is_one_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
