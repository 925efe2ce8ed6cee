/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/address_pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct address_pool pool_of(const char *v4, const char *v6)
{
    struct address_pool p = { 0 };
    if (v4)
        assert_int_equal(cidr_parse(str_c(v4), &p.v4), 0);
    if (v6)
        assert_int_equal(cidr_parse(str_c(v6), &p.v6), 0);
    return p;
}

static struct ip ip_of(const char *text)
{
    struct ip ip;
    assert_int_equal(ip_parse(str_c(text), &ip), 0);
    return ip;
}

static const struct {
    const char *v4, *v6;
    uint32_t places;
    const char *first, *last; /* of the first network given */
} sizes[] = {
    { NULL, NULL, 0, NULL, NULL },
    { "10.78.0.0/30", NULL, 2, "10.78.0.1", "10.78.0.2" },
    { "10.78.0.0/31", NULL, 0, NULL, NULL },
    { "10.78.0.0/32", NULL, 0, NULL, NULL },
    { "10.78.0.0/24", NULL, 254, "10.78.0.1", "10.78.0.254" },
    { "10.78.0.0/16", NULL, 65534, "10.78.0.1", "10.78.255.254" },
    { "10.78.64.0/18", NULL, 16382, "10.78.64.1", "10.78.127.254" },
    { "10.0.0.0/8", NULL, ADDRESS_POOL_MAX, "10.0.0.1", "10.255.255.254" },
    { NULL, "fd78::/126", 2, "fd78::1", "fd78::2" },
    { NULL, "fd78::/127", 0, NULL, NULL },
    { NULL, "fd78::/64", ADDRESS_POOL_MAX, "fd78::1", "fd78::ff:fffe" },
    { NULL, "fd78::4:0/112", 65534, "fd78::4:1", "fd78::4:fffe" },
    { NULL, "fc00::/7", ADDRESS_POOL_MAX, "fc00::1", "fc00::ff:fffe" },
    { "10.78.0.0/16", "fd78::/64", 65534, "10.78.0.1", "10.78.255.254" }, /* the smaller one's */
    { "10.0.0.0/8", "fd78::/120", 254, "10.0.0.1", "10.0.0.254" },
};

static void test_places(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct address_pool p = pool_of(sizes[i].v4, sizes[i].v6);
        assert_int_equal(address_pool_given(&p), sizes[i].v4 || sizes[i].v6);
        assert_int_equal(address_pool_places(&p), sizes[i].places);
        if (!sizes[i].places)
            continue;
        uint8_t family = sizes[i].v4 ? 4 : 6;
        const struct {
            const char *ip;
            uint32_t place;
        } ends[] = { { sizes[i].first, 0 }, { sizes[i].last, sizes[i].places - 1 } };
        for (size_t k = 0; k < 2; k++) {
            struct ip ip = ip_of(ends[k].ip), made = address_pool_address(&p, family, ends[k].place);
            uint32_t place = UINT32_MAX;
            assert_true(ip_equal(&ip, &made));
            assert_true(address_pool_contains(&p, &ip));
            assert_true(address_pool_place(&p, &ip, &place));
            assert_int_equal(place, ends[k].place);
        }
    }
}

static void test_round_trip(void **state)
{
    (void)state;
    struct address_pool p = pool_of("172.20.0.0/14", "fd00:1:2:3::/80");
    for (uint32_t place = 0; place < address_pool_places(&p); place += place % 997 + 1)
        for (uint8_t family = 4; family <= 6; family = (uint8_t)(family + 2)) {
            struct ip ip = address_pool_address(&p, family, place);
            uint32_t back = UINT32_MAX;
            assert_true(address_pool_place(&p, &ip, &back));
            assert_int_equal(back, place);
        }
}

static const struct {
    const char *ip;
    bool inside, has_place;
} members[] = {
    { "10.78.0.1", true, true },       { "10.78.3.254", true, true }, { "10.78.0.0", true, false },   { "10.78.3.255", true, false },
    { "10.78.4.1", false, false },     { "10.77.3.1", false, false }, { "::ffff:10.78.0.1", true, true }, { "::ffff:10.79.0.1", false, false },
    { "::10.78.0.1", false, false },   { "fd78::1", true, true },     { "fd78::", true, false },      { "fd78::3fe", true, true },
    { "fd78::3ff", true, false }, /* the IPv4 network ends here */
    { "fd78::1:0:0:1", true, false },  { "fd78::100:1", true, false }, { "fd79::1", false, false },   { "64:ff9b::10.78.0.1", false, false },
};

static void test_members(void **state)
{
    (void)state;
    struct address_pool p = pool_of("10.78.0.0/22", "fd78::/64");
    struct ip none = { 0 };
    uint32_t place;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        struct ip ip = ip_of(members[i].ip);
        if (address_pool_contains(&p, &ip) != members[i].inside || address_pool_place(&p, &ip, &place) != members[i].has_place)
            fail_msg("%s", members[i].ip);
    }
    assert_false(address_pool_contains(&p, &none));
    assert_false(address_pool_place(&p, &none, &place));
    struct address_pool nothing = { 0 }, one = pool_of("10.78.0.0/22", NULL);
    struct ip ip = ip_of("10.78.0.1"), six = ip_of("fd78::1");
    assert_false(address_pool_contains(&nothing, &ip));
    assert_false(address_pool_place(&nothing, &none, &place));
    assert_false(address_pool_contains(&one, &six));
    assert_true(address_pool_equal(&p, &p));
    assert_false(address_pool_equal(&p, &one));
    assert_true(address_pool_equal(&nothing, &nothing));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
