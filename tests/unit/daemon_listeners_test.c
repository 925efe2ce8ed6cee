/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of our own addresses, with the machine's interfaces played by this file: what could not be listed stays
 * known. */
#include "daemon/listeners.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static struct {
    uint32_t first; /* addresses 10.0.0.first to 10.0.0.first + n - 1 */
    size_t n;
    bool fails;
} machine;

int getifaddrs(struct ifaddrs **ret)
{
    *ret = NULL;
    if (machine.fails) {
        errno = ENOBUFS;
        return -1;
    }
    for (size_t i = 0; i < machine.n; i++) {
        struct ifaddrs *one = calloc(1, sizeof *one);
        struct sockaddr_in *sin = calloc(1, sizeof *sin);
        assert_true(one && sin);
        sin->sin_family = AF_INET;
        sin->sin_addr.s_addr = htonl(0x0a000000u + machine.first + (uint32_t)i);
        one->ifa_addr = (struct sockaddr *)sin;
        one->ifa_next = *ret;
        *ret = one;
    }
    return 0;
}

void freeifaddrs(struct ifaddrs *all)
{
    for (struct ifaddrs *next; all; all = next) {
        next = all->ifa_next;
        free(all->ifa_addr);
        free(all);
    }
}

static bool has(const struct own_list *o, const char *text, uint16_t port)
{
    struct ip ip;
    assert_int_equal(ip_parse(str_c(text), &ip), 0);
    for (size_t i = 0; i < o->n; i++)
        if (o->ports[i] == port && ip_equal(&o->ips[i], &ip))
            return true;
    return false;
}

static int bound(const char *address, uint16_t *ret_port)
{
    struct sockaddr_in sin = { .sin_family = AF_INET };
    socklen_t n = sizeof sin;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(inet_pton(AF_INET, address, &sin.sin_addr), 1);
    assert_int_equal(bind(fd, (struct sockaddr *)&sin, n), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sin, &n), 0);
    *ret_port = ntohs(sin.sin_port);
    return fd;
}

static void test_own(void **state)
{
    (void)state;
    uint16_t port = 0;
    struct listener any = { .text = "any", .fd = bound("0.0.0.0", &port) };
    struct listeners ls = { &any, 1, -1, (gid_t)-1 };
    struct own_list own = { NULL, NULL, 0 };

    machine.first = 1, machine.n = 2, machine.fails = false;
    assert_true(listeners_own(&ls, &own));
    assert_true(own.n == 3 && has(&own, "0.0.0.0", port) && has(&own, "10.0.0.1", port) && has(&own, "10.0.0.2", port));
    assert_false(listeners_own(&ls, &own)); /* the same again */

    /* it cannot be listed: what was known stays */
    machine.fails = true;
    assert_false(listeners_own(&ls, &own));
    assert_true(own.n == 3 && has(&own, "10.0.0.2", port));

    /* the control: listed, and gone, it goes */
    machine.first = 2, machine.n = 2, machine.fails = false;
    assert_true(listeners_own(&ls, &own));
    assert_true(own.n == 3 && !has(&own, "10.0.0.1", port) && has(&own, "10.0.0.3", port));

    /* more than there is room for */
    machine.first = 100, machine.n = OWN_MAX + 10;
    listeners_own(&ls, &own);
    assert_true(own.n == OWN_MAX && has(&own, "10.0.0.3", port));

    own_list_done(&own);
    close(any.fd);
}

/* A listener on one address needs no list. */
static void test_own_single(void **state)
{
    (void)state;
    uint16_t port = 0;
    struct listener one = { .text = "one", .fd = bound("127.0.0.1", &port) };
    struct listeners ls = { &one, 1, -1, (gid_t)-1 };
    struct own_list own = { NULL, NULL, 0 };
    machine.first = 1, machine.n = 2, machine.fails = true;
    assert_true(listeners_own(&ls, &own));
    assert_true(own.n == 1 && has(&own, "127.0.0.1", port));
    own_list_done(&own);
    close(one.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_own), cmocka_unit_test(test_own_single) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
