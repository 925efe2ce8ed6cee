/* SPDX-License-Identifier: Apache-2.0
 *
 * docs/AUDIT-LOG.md, from the table that the encoder goes by. */
#include "audit/checkpoint.h"
#include "audit/event.h"

static const char *const head_text =
    "<!-- Printed from audit/fields.def: change it there. -->\n"
    "# The audit log\n\n"
    "JSON lines in `state_dir/audit/*.jsonl`; file names sort in the order of their lines, and one chain runs through "
    "all of "
    "them. Every line begins\n\n"
    "```\n{\"v\":1,\"seq\":N,\"prev\":\"…\",\"ts\":\"…\",\"id\":\"…\",\"type\":\"…\"\n```\n\n"
    "- `seq` counts up by one over all files.\n"
    "- `prev` is the SHA-256 (lower-case hex) of the bytes of the line before, without its line feed; 64 zeros in line "
    "1. A "
    "file's first line links to the last line of the file before it.\n"
    "- `ts` is when the event was emitted (RFC 3339, microseconds, UTC); `id` sorts in the order of `seq`.\n"
    "- A line is printable ASCII and at most 64 KiB. Controls and everything above ASCII are escaped; what was not "
    "UTF-8 is "
    "`\\ufffd`.\n"
    "- A text over its maximum ends in `...[+BYTES sha256:HASH]`: how much is missing, and the first 16 hex digits of "
    "the "
    "SHA-256 of the whole text. `\"cut\":true` says that something was shortened or left out.\n\n";

static const char *const integrity_text =
    "\n## Integrity\n\n"
    "A `checkpoint` line comes as the thousandth line after the last one at the latest, and after 60 s. `count` is "
    "`seq` - 1, "
    "`head` equals its `prev`, and `signature` is Ed25519 (base64) over these bytes, each part ended by a line "
    "feed:\n\n"
    "```\noutgate-audit-checkpoint-v1\nSEQ\nCOUNT\nHEAD\n```\n\n"
    "The anchor (`" AUDIT_ANCHOR_NAME
    "`, in a folder of its own, replaced at least every 5 s while lines come and at the "
    "end) names the newest line and where the log legally begins: `seq`, `head` (the hash of that line), `first_seq`, "
    "`first_prev`, and a signature over\n\n"
    "```\noutgate-audit-anchor-v1\nSEQ\nHEAD\nFIRST_SEQ\nFIRST_PREV\n```\n\n"
    "`ts`, the time as far as the logger has seen it pass, is signed apart (`ts_signature`) over\n\n"
    "```\noutgate-audit-anchor-ts-v1\nSEQ\nHEAD\nTS\n```\n\n"
    "and only used by a logger that starts, for `audit.keep`; verification does not ask for it.\n\n"
    "`outgate audit verify` finds a changed, dropped, swapped, inserted or repeated line, a cut tail, a missing file "
    "and a "
    "chain that was computed again without the key. It cannot find: lines cut or changed behind the anchor of a logger "
    "that "
    "was killed (at most the last 5 s; after a regular end, none), and an older copy of files and anchor put back "
    "together.\n\n"
    "A logger that finds the log damaged when it starts goes on, and writes a `lifecycle` line with `what` "
    "`chain_broken`: "
    "verification fails from then on, for as long as that line is kept. Where lines are missing, `seq` goes on behind "
    "the last "
    "one that the anchor knew. Half a line at the end (a crash in mid write) is moved to `FILE.torn` and said in a "
    "`torn_line` event; nothing that was synced is lost by it.\n\n"
    "## The logger's own events\n\n"
    "`lifecycle` lines with `role` `logger`; `what` is one of\n\n"
    "| what | severity | when |\n|---|---|---|\n"
    "| `audit_started`, `audit_stopped` | info | the logger's start and its regular end |\n"
    "| `torn_line` | medium | the last run ended in the middle of a line |\n"
    "| `chain_broken` | critical | files and anchor do not fit |\n"
    "| `audit_blocked`, `audit_resumed` | critical, info | the disk refuses, or has no room left for more than the "
    "closes of "
    "what is open; new work is refused with `audit_unavailable` until it resumes by itself |\n"
    "| `write_failed`, `sync_failed` | critical | the file is left, a new one goes on; the message names the lines |\n"
    "| `anchor_failed` | high | the newest head could not be kept outside the segments |\n"
    "| `pruned` | info | segments past `audit.keep` were deleted |\n"
    "| `prune_waits` | high | the clock leapt ahead: what it would make older than `audit.keep` is not deleted yet |\n"
    "| `bad_record`, `ring_broken` | high, critical | a role wrote something into its ring that is no record |\n"
    "| `notes_lost` | medium | more such events than could be kept while the disk refused |\n";

static const char *kind_name(enum event_kind k)
{
    switch (k) {
    case KIND_STR:
        return "text";
    case KIND_U64:
        return "number";
    case KIND_BOOL:
        return "true, false";
    case KIND_LIST:
        return "list of texts";
    case KIND_RAW:
        return "object";
    case KIND_NULL:
    case KIND_NONE:
        break;
    }
    return "null";
}

void audit_print_doc(FILE *out)
{
    fputs(head_text, out);
    fputs("Types:", out);
    for (unsigned t = EVENT_NONE + 1; t < EVENT_TYPE_COUNT; t++)
        fprintf(out, "%s `%s`", t > EVENT_NONE + 1 ? "," : "", event_type_name((enum event_type)t));
    fputs(
        ". Every `open` and `close` has `rule` (or null) and `credentials` (or []), every `close` also `findings`; a `conn` and a "
        "`dns` say `rule` (or null). `agent` is null where nobody was recognised. What else is not known has no field.\n\n"
        "The sentence of a finding about a name (`dns_tunnel` of a question, `host_label` of a connection, `dns_placeholder`, "
        "`placeholder_elsewhere`) is words with numbers: `verdict` block, flag or allow, and `rule`, what it goes by: `llr` it "
        "looks encoded (`score` of 20 or more, in which `class`), `half` or `budget` (half of its bits, all of them), "
        "`placeholder` a piece of one (in which `form`, of whom), `wire` no name at all. `bits` is what the name costs, `spent` "
        "what its account has spent of how much, this name with it unless it was refused for its bits, `of` whose account that is: "
        "`zone`; `zone-above`, all zones of a public suffix's owner; `agent`, all zones that no rule approves; `new-zones`, how "
        "many of those are new; `any`, all names under `*`. `distinct` are the names seen in the zone, `sent` says whether it left. "
        "Bits are whole ones, rounded up. What an account may hold and how it is refilled stands under `exfiltration` in the "
        "configuration; `hint` says which key of it would let the name go.\n\n"
        "`features` of such a finding has the same: `rule`, `score`, `alphabet` (the sentence's `class`), `characters` (the name's length), `blocked` (true: "
        "refused), and where an account was asked `bits`, `spent`, `limit` (of how much), `of` and `distinct`; of a placeholder "
        "also `form` and `placeholder_of` (whose it is). `features` of any other finding has `where` in the request, and "
        "`placeholder_of` where there is one.\n\n"
        "## Fields, in their order in the line\n\n| field | kind | most bytes | what it says |\n|---|---|---|---|\n",
        out);
    for (unsigned f = FIELD_NONE + 1; f < FIELD_COUNT_OF; f++) {
        const struct event_field_desc *d = &event_fields[f];
        fprintf(out, "| `%s` | %s | ", d->path, kind_name(d->kind));
        if (d->max)
            fprintf(out, "%u", d->max);
        fprintf(out, " | %s |\n", d->doc);
    }
    fputs(integrity_text, out);
}
