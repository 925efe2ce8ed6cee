/* SPDX-License-Identifier: Apache-2.0
 *
 * Two peers of any bytes: the first byte of a turn says whose it is and the second how long. What is said of them does
 * not depend on how they are cut, and a client's record of a handshake never goes on before the server has answered. */
#include "proxy/hello_watch.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct outcome {
    int state;
    bool refused;
    size_t passed; /* bytes of the client */
};

static void check(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "fuzz_proxy_hello_watch: %s\n", what);
        abort();
    }
}

static struct outcome play(struct str turns, size_t piece)
{
    struct hello_watch w;
    struct outcome o = { 0 };
    hello_watch_init(&w, 0);
    while (turns.n > 2 && !o.refused && w.state != HELLO_HELD) {
        bool server = turns.p[0] & 1;
        size_t n = (unsigned char)turns.p[1];
        turns = str_from(turns, 2);
        struct str turn = str_sub(turns, 0, n < turns.n ? n : turns.n);
        turns = str_from(turns, turn.n);
        while (turn.n && !o.refused && w.state != HELLO_HELD) {
            const char *why = NULL;
            struct str part = str_sub(turn, 0, turn.n < piece ? turn.n : piece);
            bool asked = w.state == HELLO_ASKED && !w.client.left && !w.client.head_n;
            size_t took = server ? part.n : hello_watch_client(&w, part, &why);
            if (server)
                why = hello_watch_server(&w, part);
            else
                o.passed += took;
            check(took <= part.n && (why || w.state == HELLO_HELD || took == part.n),
                  "bytes that are neither passed nor refused");
            check(server || !asked || part.p[0] != 22 || !took, "a handshake before the answer");
            o.refused = why != NULL;
            turn = str_from(turn, took);
        }
    }
    o.state = (int)w.state;
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str turns = str_of((const char *)data, size);
    struct outcome whole = play(turns, 256);
    for (size_t piece = 1; piece < 8; piece++) {
        struct outcome o = play(turns, piece);
        check(o.state == whole.state && o.refused == whole.refused && o.passed == whole.passed,
              "it depends on the pieces");
    }
    return 0;
}
