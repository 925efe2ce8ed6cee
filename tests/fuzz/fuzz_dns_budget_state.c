/* SPDX-License-Identifier: Apache-2.0
 *
 * A saved state of the budgets, as it is and with a checksum that fits, so that what is behind it is reached. What is
 * loaded can be charged, and saved again to a state that loads. */
#include "dns/budget_impl.h"
#include "dns/budget_state.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            abort();                                                                                                   \
    } while (0)

static void load(struct str bytes)
{
    struct budget_limits l;
    struct err err;
    budget_limits_default(&l);
    struct budget *b = budget_new(&l, 5, &err), *again = budget_new(&l, 5, &err);
    CHECK(b && again);
    enum budget_state s = budget_state_load(b, bytes, 9, &err);
    for (uint64_t now = 9; now < 4000000000u; now += 999999937u) {
        struct budget_account a;
        struct budget_event e = { .agent = STR("a"),
                                  .zone = STR("z.test"),
                                  .above = STR("test"),
                                  .name = STR("x.z.test"),
                                  .in_zone = 999,
                                  .in_above = 1999,
                                  .naming = 99,
                                  .each = 9 };
        if (budget_charge(b, &e, now, &a) == BUDGET_OK)
            CHECK(a.before + a.cost <= a.limit);
        e.zone = e.name = STR("y.test");
        e.approved = e.any = true;
        if (budget_charge(b, &e, now, &a) == BUDGET_OK)
            CHECK(a.before + a.cost <= a.limit);
    }
    struct buf out;
    buf_init(&out, BUDGET_STATE_MAX);
    CHECK(budget_state_put(b, true, 4000000000u, &out) == 0);
    if (s != BUDGET_STATE_DAMAGED && b->base_ms < INT64_MAX / 4)
        CHECK(budget_state_load(again, buf_str(&out), 7, &err) == BUDGET_STATE_WHOLE);
    buf_done(&out);
    budget_free(&b);
    budget_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    load(str_of(data, size));
    if (size < 16)
        return 0;
    unsigned char *copy = malloc(size);
    CHECK(copy);
    memcpy(copy, data, size);
    memcpy(copy, "OGBUDG\0\2", 8);
    uint64_t sum = budget_state_checksum(str_of(copy + 16, size - 16));
    for (unsigned i = 0; i < 8; i++)
        copy[8 + i] = (unsigned char)(sum >> (8 * i));
    load(str_of(copy, size));
    free(copy);
    return 0;
}
