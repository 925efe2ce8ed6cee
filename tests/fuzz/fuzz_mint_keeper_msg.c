/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker gone wrong: messages of any type and body to a real keeper whose sidecar is away. Each piece of the input is
 * one packet: u8 type, u16 length (little-endian), body. The keeper either answers or closes the channel; the next
 * input gets a new one. No value is ever to be had. */
#include "audit/ring.h"
#include "mint/keeper.h"
#include "mint/lease_wire.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char yaml[] = "version: 1\nstate_dir: state\n"
                           "agents:\n  - {name: coder, identify: [{source: 10.77.0.2/32}]}\n"
                           "sidecars:\n  - {name: local, socket: /nonexistent/mint.sock, timeout: 500ms}\n"
                           "rules:\n  - {name: api, hosts: [api.test], action: allow}\n"
                           "credentials:\n  - {name: github, agents: [coder], hosts: [api.test], slots: "
                           "[\"header:authorization\"], source: {sidecar: local}}\n";

static struct loop *loop;
static struct keeper *keeper;
static struct ring_reader reader;

static void start(void)
{
    struct diag d;
    struct err err;
    diag_init(&d);
    struct config *c = config_parse(STR("f.yaml"), STR("/"), str_of(yaml, sizeof yaml - 1), &d);
    struct policy *p = c ? policy_new(c, NULL, 0, &d) : NULL;
    loop = loop_new();
    int fd = sink_ring_new(1 << 20, &err);
    if (ring_reader_init(&reader, fd, &err))
        abort();
    struct sink *s = sink_open(fd, eventfd(0, EFD_NONBLOCK), eventfd(0, EFD_NONBLOCK), &err);
    if (!p || secret_init() || !s || !(keeper = keeper_new(loop, p, STR_NONE, 0, s, &err)))
        abort();
}

/* Everything that came: no answer may carry a lease, no lease may be live. */
static void read_answers(int fd)
{
    int fds[MSG_FDS_MAX];
    char byte;
    while (recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0) {
        struct msg m = { .fds = fds };
        struct buf body;
        struct lease_wire_answer a;
        buf_init(&body, 2 * MSG_BODY_MAX);
        if (msg_recv_blocking(fd, &body, &m))
            abort();
        if (m.type != LEASE_WATCHED &&
            (m.type != LEASE_ANSWER || lease_wire_read_answer(m.body, &a) || a.end == END_OK))
            abort();
        buf_done(&body);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int sv[2];
    struct err err;
    if (!keeper)
        start();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) || keeper_add_worker(keeper, 0, sv[0], &err))
        abort();
    for (int n = 0; size >= 3 && n < 16; n++) {
        size_t len = (size_t)(data[1] | data[2] << 8);
        if (len > size - 3)
            len = size - 3;
        if (msg_send_blocking(sv[1], data[0], 7, str_of(data + 3, len), NULL, 0))
            break; /* it has closed */
        data += 3 + len;
        size -= 3 + len;
        loop_run_once(loop, 0);
        loop_run_once(loop, 0);
        read_answers(sv[1]);
    }
    unsigned char record[EVENT_MAX];
    while (ring_reader_next(&reader, record, &(size_t) { 0 }) == RING_RECORD)
        ;
    ring_reader_commit(&reader);
    close(sv[1]);
    loop_run_once(loop, 0);
    loop_run_once(loop, 0);
    return 0;
}
