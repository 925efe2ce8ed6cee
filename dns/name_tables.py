#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The two tables that dns/name_cost.h reads names by.

  name_tables.py letters LIST   prints dns/letter_model.inc, trained on the distinct labels of LIST (one a line; not part of the tree)
  name_tables.py words          prints dns/label_dictionary.inc from dns/label_words.txt, whose words stand in order of frequency

Costs are bits in units of 1/24, rounded up, so that what may follow never has more than one unit of probability together."""
import math
import os
import sys

UNIT = 24
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-_"
EDGE = len(LETTERS)  # before the first letter; after the last one
SYMBOLS = EDGE + 1
WEIGHT1, WEIGHT2, FLOOR = 8, 8, 0.10


def units(p):
    """The least n with 2 ** (-n / UNIT) <= p."""
    return math.ceil(-math.log2(p) * UNIT - 1e-9)


def letter_rows(labels):
    """Per pair of letters before it, the cost of each letter and of the end: order 2, interpolated with order 1 and 0, and a uniform floor."""
    n0 = [0] * SYMBOLS
    n1 = [[0] * SYMBOLS for _ in range(SYMBOLS)]
    n2 = [[0] * SYMBOLS for _ in range(SYMBOLS * SYMBOLS)]
    for label in sorted(labels):
        a = b = EDGE
        for c in [*map(LETTERS.index, label), EDGE]:
            n0[c] += 1
            n1[b][c] += 1
            n2[a * SYMBOLS + b][c] += 1
            a, b = b, c
    all0 = sum(n0) + SYMBOLS
    p0 = [(n + 1) / all0 for n in n0]
    rows = []
    for a in range(SYMBOLS):
        for b in range(SYMBOLS):
            one, two = n1[b], n2[a * SYMBOLS + b]
            all1, all2 = sum(one) + WEIGHT1, sum(two) + WEIGHT2
            p1 = [(one[c] + WEIGHT1 * p0[c]) / all1 for c in range(SYMBOLS)]
            p2 = [(two[c] + WEIGHT2 * p1[c]) / all2 for c in range(SYMBOLS)]
            rows.append([units((1 - FLOOR) * p + FLOOR / SYMBOLS) for p in p2])
    return rows


def letters(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        labels = {line.strip().lower() for line in f}
    labels = {l for l in labels if 0 < len(l) <= 63 and all(c in LETTERS for c in l)}
    if not labels:
        sys.exit(f"{path}: expected labels of [a-z0-9_-], one a line, got none")
    print("/* SPDX-License-Identifier: Apache-2.0")
    print(" * Printed by dns/name_tables.py letters: a row for each two letters before, in it 1/24 bits for each letter and the end. */")
    for row in letter_rows(labels):
        print(",".join(map(str, row)) + ",")


def words():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "label_words.txt"), encoding="ascii") as f:
        ranked = f.read().split()
    if len(set(ranked)) != len(ranked):
        sys.exit("label_words.txt: a word stands twice")
    total = sum(1 / (i + 1) for i in range(len(ranked)))
    print("/* SPDX-License-Identifier: Apache-2.0")
    print(" * Printed by dns/name_tables.py words: dns/label_words.txt sorted, with 1/24 bits by rank. */")
    for word, cost in sorted((w, units(1 / ((i + 1) * total))) for i, w in enumerate(ranked)):
        print(f'{{ "{word}", {len(word)}, {cost} }},')


if len(sys.argv) == 3 and sys.argv[1] == "letters":
    letters(sys.argv[2])
elif len(sys.argv) == 2 and sys.argv[1] == "words":
    words()
else:
    sys.exit("usage: name_tables.py letters LIST | words")
