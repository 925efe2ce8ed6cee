/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/event.h"
#include "base/limits.h"
#include "daemon/cli.h"
#include "policy/end.h"

#include <stdio.h>
#include <string.h>

static void print_limits(FILE *out)
{
    static const char *const kinds[] = {
        [LIMIT_COUNT] = "count", [LIMIT_BYTES] = "bytes", [LIMIT_MS] = "milliseconds"
    };
    fprintf(out, "| limit | unit | default | least | most | what it bounds |\n|---|---|---|---|---|---|\n");
    for (const struct limit_desc *d = limit_table; d->name; d++)
        fprintf(out, "| `%s` | %s | %llu | %llu | %llu | %s |\n", d->name, kinds[d->kind], (unsigned long long)d->dflt,
                (unsigned long long)d->min, (unsigned long long)d->max, d->reason);
}

/* Prints what docs/ holds of the tables, so that a test can compare the two. */
int cli_internal_docs(const struct cli *cli)
{
    const char *what = cli->args[0];
    if (strcmp(what, "config") == 0)
        config_print_doc(stdout);
    else if (strcmp(what, "audit-log") == 0)
        audit_print_doc(stdout);
    else if (strcmp(what, "refusals") == 0)
        end_print_doc(stdout);
    else if (strcmp(what, "limits") == 0)
        print_limits(stdout);
    else
        return cli_fail(CLI_USAGE, "internal-docs: expected config, audit-log, refusals or limits, got '%s'", what);
    return CLI_OK;
}
