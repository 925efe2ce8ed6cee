/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/shared_suffix.h"

/* `*` is one label. */
static const char *const suffixes[] = {
    "*.core.windows.net",
    "*.web.core.windows.net",
    "database.windows.net",
    "servicebus.windows.net",
    "*.cloudapp.azure.com",
    "s3.*.amazonaws.com",
    "lambda-url.*.on.aws",
    "storage.googleapis.com",
    "execute-api.*.amazonaws.com",
    "firebaseio.com",
    "*.firebasedatabase.app",
    "ngrok-free.app",
    "ngrok.app",
    "ngrok.dev",
    "ngrok.io",
    "loca.lt",
};

static struct str last_label(struct str *rest)
{
    size_t n = rest->n;
    while (n && rest->p[n - 1] != '.')
        n--;
    struct str label = str_from(*rest, n);
    rest->n = n ? n - 1 : 0;
    return label;
}

static bool reaches(struct str suffix, struct str shared)
{
    while (suffix.n) {
        if (!shared.n)
            return false;
        struct str want = last_label(&shared);
        if (!str_eq(last_label(&suffix), want) && !str_eq(want, STR("*")))
            return false;
    }
    return true;
}

bool shared_suffix_reaches(struct str suffix)
{
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (reaches(suffix, str_c(suffixes[i])))
            return true;
    return false;
}

struct str shared_suffix_tenant(struct str name)
{
    struct str found = STR_NONE;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        struct str rest = name, shared = str_c(suffixes[i]), want, label = STR_NONE;
        bool below = str_ends(name, str_c(strrchr(suffixes[i], '*') ? strrchr(suffixes[i], '*') + 1 : suffixes[i]));
        while (below && shared.n) {
            want = last_label(&shared);
            label = last_label(&rest);
            below = label.n && (str_eq(label, want) || str_eq(want, STR("*")));
        }
        if (!below || !rest.n)
            continue;
        label = last_label(&rest);
        struct str tenant = str_from(name, (size_t)(label.p - name.p));
        if (tenant.n > found.n)
            found = tenant;
    }
    return found;
}
