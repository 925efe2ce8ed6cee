/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/cli.h"
#include "daemon/role.h"

#include "base/clock.h"

#include <openssl/crypto.h>
#include <string.h>

int main(int argc, char **argv)
{
    /* Before anything of OpenSSL: no configuration file, wherever OPENSSL_CONF points. */
    OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
    if (argc == 3 && strcmp(argv[1], "--role") == 0)
        return role_main(argv[2]);
    uint64_t seed[2];
    rand_bytes(seed, sizeof seed);
    str_hash_seed(seed[0], seed[1]);
    return cli_main(argc, argv);
}
