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
