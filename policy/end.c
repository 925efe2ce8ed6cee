/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/end.h"

struct end_desc {
    const char *code;
    unsigned status;
    const char *sentence, *hint;
};

static const struct end_desc end_table[END_COUNT] = {
#define END(name, code, status, sentence, hint) [END_##name] = { code, status, sentence, hint },
#include "policy/end.def"
#undef END
};

/* A value outside the enum can only be a broken message or memory: it reads as the undecided end, which is a refusal.
 */
static const struct end_desc *end_get(enum end e)
{
    return &end_table[(unsigned)e < END_COUNT ? e : END_UNSET];
}

const char *end_code(enum end e)
{
    return end_get(e)->code;
}

unsigned end_status(enum end e)
{
    return end_get(e)->status;
}

const char *end_sentence(enum end e)
{
    return end_get(e)->sentence;
}

const char *end_hint(enum end e)
{
    return end_get(e)->hint;
}

enum end end_from_code(struct str code)
{
    for (unsigned i = 0; i < END_COUNT; i++)
        if (str_eq(code, str_c(end_table[i].code)))
            return (enum end)i;
    return END_UNSET;
}

static const char doc_head[] =
    "<!-- Printed from policy/end.def: change it there. -->\n"
    "# Refusals\n\n"
    "Every code with which Outgate refuses a request or ends one, as a client gets it (`error.code` in the body, `Proxy-Status`) and the "
    "log has it (`code` and `end` of a `close`, `code` of a `dns` and a `conn`). The sentence is what the client reads first, and the hint "
    "what to do next. A code with several rows has several causes: sentence and hint tell them apart. `unknown_agent` is 403 where a login "
    "could not help; where no answer can be given (a tunnel that carries neither TLS nor HTTP) the connection is closed instead.\n\n"
    "| code | status | what it means | what to do |\n|---|---|---|---|\n";

static void print_row(FILE *out, const struct end_desc *d)
{
    fprintf(out, "| `%s` | %u | %s | %s |\n", d->code, d->status, d->sentence, d->hint);
}

void end_print_doc(FILE *out)
{
    fputs(doc_head, out);
    for (unsigned i = END_OK + 1; i < END_CLIENT_CLOSED; i++)
        print_row(out, &end_table[i]);
    print_row(out, &end_table[END_UNSET]);
    fputs("\n## How a request ends that had been let through\n\n"
          "These are in the log alone, unless nothing of an answer has gone to the client yet.\n\n"
          "| code | status | what it means | what to do |\n|---|---|---|---|\n",
          out);
    print_row(out, &end_table[END_OK]);
    for (unsigned i = END_CLIENT_CLOSED; i < END_COUNT; i++)
        print_row(out, &end_table[i]);
}
