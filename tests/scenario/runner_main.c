/* SPDX-License-Identifier: Apache-2.0
 *
 * runner: plays scenario files (cases, beside this file) against a real worker under a clock that only the script moves. A file is one
 * or more runs; each begins with `run NAME` and takes the configuration and names given before the first run, minus the lines that
 * `without TEXT` removes. A line that begins with # is a comment.
 *
 *   config:                       the configuration follows, indented by two spaces
 *   file: coder.token BYTES       a file beside it
 *   mint: github -> "ghs_…" ttl 300 [methods GET,POST] [hosts a.test]    mint: github refuse credential_denied
 *   dns: api.test 203.0.113.7            dns: api.test refuse address_denied
 *   run NAME [each 1..24]                 played once for each number, which stands for $K in its lines
 *   without TEXT / swap TEXT => TEXT / with LINE         (in the configuration)
 *   narrow                                (before the first step) the kernel keeps little between client and worker
 *   greet "bytes" | greet end             (before the first step) an origin in clear text says so, or closes, as soon as it is connected
 *   client: open [from 127.0.0.2] | close | shut | reset | tls NAME | tls-refused NAME | tls-distrust NAME   (client2… and origin2…)
 *   client: connect HOST:PORT [sni NAME | plain] [from ADDRESS]   CONNECT, expects 200, then TLS
 *   client: pieces 1 [together]   what is sent from now on goes in writes (TLS records) of so many bytes; together: at one moment
 *   client: split 7               the next thing sent goes in two writes, the first of 7 bytes
 *   client: pour 5000000          sends so much of a pattern, as it is taken;  client: drink 5000000: receives exactly that
 *   client: pouring | poured      some of it is not taken yet | all of it is
 *   client: deaf | hear           reads nothing; reads again
 *   client> HEAD | Field: value || body           a head: ` | ` is CRLF; `||` ends it; without `||` an empty body
 *   client> "raw\r\nbytes"                        exactly these bytes; \{1000*ab} stands for 1000 times ab
 *   client< STATUS-OR-START | Field: value | !Absent || body   the next message has this start, these fields, not this text, this body
 *                                                 (`...text`: a body with this text in it)
 *   client< HTTP/1.1 200 ||~ body [|| Trailer: x | !Y]   its chunks, whatever their sizes, are this text
 *   client< HTTP/1.1 200 ||+                      the body stays unread
 *   client< "raw"                                 the next bytes are exactly these
 *   client< end | cut | bare cut | closed | nothing   properly; not; not, and no bytes before it; either way; no bytes and no end
 *   origin< and origin> likewise; `origin: accept` takes the next connection (implied by the first origin<)
 *   gone: 61s        waits so long, again (the kernel may take some bytes more at its probes, which are progress), until no client is left
 *   wait: 10s        reload        revoke: github [oldest]   dials: 1        mints: 2        drain        calm (nothing spins)
 *   keeper: away | back | silent          resolver: away | back | silent
 *   event: TYPE k=v …     one line of this type has all of these (a.b for nested fields; k~v: holds the text v);  noevent: TYPE k=v …
 *   events: 2 TYPE k=v …  exactly so many
 *   never: TEXT in client, log, origin
 *
 * After each run, whatever it says: no real value of the mint is in the log, nor at a client (unless the run says `may leak`); no
 * control character is in what we said to a client (unless it says `binary`); every
 * request id has at most one `open` and exactly one `close`. */
#include "tests/scenario/rig.h"

#include "proxy/worker.h"
#include "tests/fakes/clock_fake.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { ACTORS = 8, LINE = 64 * 1024, GONE_TRIES = 20 };

struct script {
    const char *file;
    char **lines;
    size_t n;
};
struct run {
    struct rig rig;
    struct buf config;
    struct actor *client[ACTORS], *origin[ACTORS], *retired;
    struct buf seen_client, seen_origin, log;
    char why[2048];
    char values[16][600]; /* of the mint, which must not get out */
    size_t nvalues;
    bool may_leak, binary;
};

static char fail_text[4096];

static int fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int fail(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(fail_text, sizeof fail_text, format, ap);
    va_end(ap);
    return -1;
}

/* --- text --- */

/* "a\r\nb\x00" without its quotes. */
static void unescape(struct str s, struct buf *out)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] != '\\' || i + 1 == s.n) {
            buf_putc(out, s.p[i]);
            continue;
        }
        char c = s.p[++i];
        if (c == 'r')
            buf_putc(out, '\r');
        else if (c == 'n')
            buf_putc(out, '\n');
        else if (c == 't')
            buf_putc(out, '\t');
        else if (c == '{') { /* \{1000*ab} */
            ptrdiff_t star = str_find_char(str_from(s, i), '*'), end = str_find_char(str_from(s, i), '}');
            if (star > 0 && end > star) {
                struct str text = str_sub(s, i + (size_t)star + 1, (size_t)(end - star) - 1);
                for (unsigned long k = strtoul(s.p + i + 1, NULL, 10); k; k--)
                    unescape(text, out); /* no braces in braces, so no deeper */
                i += (size_t)end;
            }
        } else if (c == 'x' && i + 2 < s.n) {
            buf_putc(out, (char)(ascii_hex(s.p[i + 1]) * 16 + ascii_hex(s.p[i + 2])));
            i += 2;
        } else
            buf_putc(out, c);
    }
}

static bool quoted(struct str s)
{
    return s.n >= 2 && s.p[0] == '"' && s.p[s.n - 1] == '"';
}

/* `HEAD | Field: v || body` as bytes; a raw "…" as it is. `body` may be a quoted text. */
static void message_bytes(struct str s, struct buf *out)
{
    if (quoted(s)) {
        unescape(str_sub(s, 1, s.n - 2), out);
        return;
    }
    ptrdiff_t cut = str_find(s, STR(" ||"));
    struct str head = cut < 0 ? s : str_sub(s, 0, (size_t)cut), body = cut < 0 ? STR_NONE : str_trim(str_from(s, (size_t)cut + 3));
    while (head.n) {
        ptrdiff_t bar = str_find(head, STR(" | "));
        struct str line = bar < 0 ? head : str_sub(head, 0, (size_t)bar);
        unescape(str_trim(line), out);
        buf_put(out, STR("\r\n"));
        head = bar < 0 ? STR_NONE : str_from(head, (size_t)bar + 3);
    }
    buf_put(out, STR("\r\n"));
    if (quoted(body))
        unescape(str_sub(body, 1, body.n - 2), out);
    else
        buf_put(out, body);
}

static struct str unread(const struct actor *a)
{
    return str_from(buf_str(&a->got), a->taken);
}

/* --- expectations about bytes --- */

static bool has_line(struct str head, struct str line)
{
    struct str rest = head, one;
    while (rest.n) {
        ptrdiff_t at = str_find(rest, STR("\r\n"));
        one = at < 0 ? rest : str_sub(rest, 0, (size_t)at);
        if (str_eq(one, line))
            return true;
        rest = at < 0 ? STR_NONE : str_from(rest, (size_t)at + 2);
    }
    return false;
}

/* What a head says about its body: length, chunked, or none. */
static size_t body_size(struct str head, struct str rest)
{
    struct str lines = head;
    while (lines.n) {
        ptrdiff_t at = str_find(lines, STR("\r\n"));
        struct str one = at < 0 ? lines : str_sub(lines, 0, (size_t)at);
        uint64_t n;
        if (one.n > 15 && str_eq_nocase(str_sub(one, 0, 15), STR("content-length:")) && str_to_u64(str_trim(str_from(one, 15)), INT64_MAX, &n))
            return n < rest.n ? (size_t)n : rest.n;
        if (one.n > 18 && str_eq_nocase(str_sub(one, 0, 18), STR("transfer-encoding:"))) {
            ptrdiff_t end = str_find(rest, STR("\r\n0\r\n\r\n"));
            return end < 0 ? str_starts(rest, STR("0\r\n\r\n")) ? 5 : rest.n : (size_t)end + 7;
        }
        lines = at < 0 ? STR_NONE : str_from(lines, (size_t)at + 2);
    }
    return 0;
}

/* The chunks at the front of text, joined, and the trailer section. How many bytes that was; 0: not all there; -1: malformed. */
static ptrdiff_t dechunk(struct str text, struct buf *body, struct str *trailers)
{
    struct str rest = text;
    for (;;) {
        ptrdiff_t line = str_find(rest, STR("\r\n"));
        if (line < 0)
            return 0;
        size_t n = strtoul(rest.p, NULL, 16);
        rest = str_from(rest, (size_t)line + 2);
        if (!n)
            break;
        if (rest.n < n + 2)
            return 0;
        if (memcmp(rest.p + n, "\r\n", 2) != 0)
            return -1;
        buf_put(body, str_sub(rest, 0, n));
        rest = str_from(rest, n + 2);
    }
    *trailers = STR("");
    ptrdiff_t end = str_starts(rest, STR("\r\n")) ? 0 : str_find(rest, STR("\r\n\r\n"));
    if (end < 0)
        return 0;
    *trailers = str_sub(rest, 0, (size_t)end);
    return rest.p + end + (end ? 4 : 2) - text.p;
}

/* `body [|| Trailer: x | !Y]` against chunks. Bytes used, or -1. */
static ptrdiff_t expect_chunks(struct str got, struct str want)
{
    struct buf body, w;
    struct str trailers = STR("");
    buf_init(&body, 1 << 24);
    buf_init(&w, 1 << 24);
    ptrdiff_t cut = str_find(want, STR(" || "));
    struct str text = str_trim(cut < 0 ? want : str_sub(want, 0, (size_t)cut)), lines = cut < 0 ? STR("") : str_from(want, (size_t)cut + 4);
    unescape(quoted(text) ? str_sub(text, 1, text.n - 2) : text, &w);
    ptrdiff_t used = dechunk(got, &body, &trailers);
    bool part = str_starts(buf_str(&w), STR("..."));
    if (used <= 0)
        fail("the chunks are %s: %.*s", used ? "malformed" : "not complete", STR_ARG(str_sub(got, 0, 2000)));
    else if (part ? str_find(buf_str(&body), str_from(buf_str(&w), 3)) < 0 : !str_eq(buf_str(&body), buf_str(&w)))
        used = fail("expected the chunks %.*s, got %.*s", STR_ARG(str_sub(buf_str(&w), 0, 1500)), STR_ARG(str_sub(buf_str(&body), 0, 1500)));
    while (used > 0 && lines.n) {
        ptrdiff_t bar = str_find(lines, STR(" | "));
        struct str line = str_trim(bar < 0 ? lines : str_sub(lines, 0, (size_t)bar));
        lines = bar < 0 ? STR_NONE : str_from(lines, (size_t)bar + 3);
        bool absent = line.p[0] == '!';
        if (absent ? str_find(trailers, str_from(line, 1)) >= 0 : !has_line(trailers, line))
            used = fail("expected %.*s in the trailers: %.*s", STR_ARG(line), STR_ARG(trailers));
    }
    buf_done(&body);
    buf_done(&w);
    return used > 0 ? used : -1;
}

static int expect_message(struct actor *a, struct str want)
{
    struct str got = unread(a);
    ptrdiff_t end = str_find(got, STR("\r\n\r\n"));
    if (end < 0)
        return fail("expected a head, got %zu bytes: %.300s", got.n, got.n ? got.p : "");
    struct str head = str_sub(got, 0, (size_t)end), rest = str_from(got, (size_t)end + 4);
    ptrdiff_t cut = str_find(want, STR(" ||"));
    struct str lines = cut < 0 ? want : str_sub(want, 0, (size_t)cut), body = cut < 0 ? STR_NONE : str_trim(str_from(want, (size_t)cut + 3));
    bool chunks = str_starts(body, STR("~"));
    bool first = true;
    while (lines.n) {
        ptrdiff_t bar = str_find(lines, STR(" | "));
        struct str line = str_trim(bar < 0 ? lines : str_sub(lines, 0, (size_t)bar));
        lines = bar < 0 ? STR_NONE : str_from(lines, (size_t)bar + 3);
        bool absent = line.n && line.p[0] == '!';
        if (first ? !str_starts(head, line) && !str_eq(line, STR("*")) : absent ? str_find(head, str_from(line, 1)) >= 0 : !has_line(head, line))
            return fail("expected %s%.*s in the head:\n%.*s", first ? "the start " : "", STR_ARG(line), STR_ARG(head));
        first = false;
    }
    if (chunks) {
        ptrdiff_t used = expect_chunks(rest, str_from(body, 1));
        if (used < 0)
            return -1;
        a->taken += (size_t)end + 4 + (size_t)used;
        return 0;
    }
    size_t n = body_size(head, rest);
    if (str_eq(body, STR("+"))) {
        n = 0;
    } else if (body.p) {
        struct buf b;
        buf_init(&b, 1 << 24);
        if (quoted(body))
            unescape(str_sub(body, 1, body.n - 2), &b);
        else
            buf_put(&b, body);
        struct str w = buf_str(&b);
        bool part = w.n > 3 && str_starts(w, STR("...")); /* `...text`: contains */
        bool ok = part ? str_find(rest, str_from(w, 3)) >= 0 : str_starts(rest, w);
        if (!part)
            n = w.n > n ? w.n : n;
        if (!ok) {
            fail("expected the body %.*s, got %.*s", STR_ARG(w), STR_ARG(rest));
            buf_done(&b);
            return -1;
        }
        buf_done(&b);
    }
    a->taken += (size_t)end + 4 + n;
    return 0;
}

static int expect(struct run *r, struct actor *a, struct str want)
{
    uint64_t until = clock_fake_real_ms() + 10000; /* a narrow pair of sockets may need the kernel's probes, each later than the one before */
    for (;;) {
        rig_settle(&r->rig);
        int ok = -1;
        if (str_eq(want, STR("end")))
            ok = a->ended && unread(a).n == 0 ? 0 : fail("expected the end, got %s and %zu bytes: %.*s", a->cut ? "a cut" : "an open connection", unread(a).n, STR_ARG(unread(a)));
        else if (str_eq(want, STR("cut")))
            ok = a->cut ? 0 : fail("expected a cut, got %s", a->ended ? "a proper end" : "an open connection");
        else if (str_eq(want, STR("bare cut")))
            ok = a->cut && unread(a).n == 0 ? 0 : fail("expected a cut without further bytes, got %zu of them", unread(a).n);
        else if (str_eq(want, STR("closed")))
            ok = a->ended || a->cut ? 0 : fail("expected the end of the connection");
        else if (str_eq(want, STR("nothing"))) {
            return unread(a).n == 0 && !a->ended && !a->cut
                       ? 0
                       : fail("expected nothing, got %s%.*s", a->ended || a->cut ? "the end and " : "", STR_ARG(unread(a)));
        } else if (quoted(want)) {
            struct buf b;
            buf_init(&b, 1 << 24);
            unescape(str_sub(want, 1, want.n - 2), &b);
            if (str_starts(unread(a), buf_str(&b))) {
                a->taken += buf_size(&b);
                ok = 0;
            } else {
                ok = fail("expected the bytes %.*s, got %.*s", STR_ARG(want), STR_ARG(unread(a)));
            }
            buf_done(&b);
        } else {
            ok = expect_message(a, want);
        }
        if (ok == 0 || clock_fake_real_ms() > until)
            return ok;
    }
}

/* --- events --- */

static bool event_matches(struct str line, struct str want)
{
    char copy[LINE];
    snprintf(copy, sizeof copy, "%.*s", STR_ARG(want));
    json_t *j = json_loadb(line.p, line.n, 0, NULL);
    bool ok = j != NULL;
    char *save = NULL;
    for (char *word = strtok_r(copy, " ", &save); word && ok; word = strtok_r(NULL, " ", &save)) {
        char *eq = strpbrk(word, "=~");
        if (!eq) {
            ok = !strcmp(json_string_value(json_object_get(j, "type")) ? json_string_value(json_object_get(j, "type")) : "", word);
            continue;
        }
        bool part = *eq == '~';
        *eq = 0;
        json_t *v = j;
        char *dots = NULL;
        for (char *name = strtok_r(word, ".", &dots); name; name = strtok_r(NULL, ".", &dots))
            v = json_object_get(v, name);
        char *text = json_is_string(v) ? strdup(json_string_value(v)) : v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : strdup("(absent)");
        ok = text && (part ? strstr(text, eq + 1) != NULL : !strcmp(text, eq + 1));
        free(text);
    }
    json_decref(j);
    return ok;
}

static unsigned count_events(struct run *r, struct str want)
{
    rig_settle(&r->rig);
    buf_reset(&r->log);
    rig_log(&r->rig, &r->log);
    struct str rest = buf_str(&r->log), line;
    unsigned n = 0;
    while (str_split(&rest, '\n', &line))
        n += line.n && event_matches(line, want);
    return n;
}

static int check_event(struct run *r, struct str want, bool present)
{
    uint64_t until = clock_fake_real_ms() + 2000;
    for (;;) {
        bool found = count_events(r, want) > 0;
        if (found == present)
            return 0;
        if (!present || clock_fake_real_ms() > until)
            return fail("%s event %.*s in:\n%.*s", present ? "no" : "unwanted", STR_ARG(want), STR_ARG(str_sub(buf_str(&r->log), 0, 4000)));
    }
}

static int check_events(struct run *r, struct str what)
{
    unsigned long want = strtoul(what.p, NULL, 10);
    ptrdiff_t space = str_find_char(what, ' ');
    unsigned n = count_events(r, str_from(what, (size_t)(space < 0 ? (ptrdiff_t)what.n : space)));
    return n == want ? 0 : fail("%u of them in:\n%.*s", n, STR_ARG(str_sub(buf_str(&r->log), 0, 4000)));
}

/* --- steps --- */

static struct actor **actor_of(struct run *r, struct str who)
{
    bool client = str_starts(who, STR("client"));
    struct str digit = str_from(who, 6);
    size_t at = digit.n == 1 && ascii_digit(digit.p[0]) ? (size_t)(digit.p[0] - '0') : 0;
    return at < ACTORS ? client ? &r->client[at] : &r->origin[at] : NULL;
}

static int client_connect(struct run *r, struct actor **a, struct str what)
{
    char copy[1024], host[512] = "", mode[32] = "", name[512] = "", from[64] = "", line[2048];
    snprintf(copy, sizeof copy, "%.*s", STR_ARG(what));
    char *at = strstr(copy, " from ");
    if (at) {
        sscanf(at, " from %63s", from);
        *at = 0;
    }
    sscanf(copy, "%511s %31s %511s", host, mode, name);
    if (!*a)
        *a = actor_client_from(&r->rig, from);
    int n = snprintf(line, sizeof line, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", host, host);
    if (actor_send(&r->rig, *a, str_of(line, (size_t)n)) || expect(r, *a, STR("HTTP/1.1 200")))
        return -1;
    if (!strcmp(mode, "plain"))
        return 0;
    if (strcmp(mode, "sni")) {
        snprintf(name, sizeof name, "%s", host);
        *strrchr(name, ':') = 0;
    }
    if (actor_tls(&r->rig, *a, name))
        return fail("TLS to %s failed: %s", host, (*a)->error);
    return 0;
}

/* The next origin connection, if the actor has none yet. */
static int need_origin(struct run *r, struct actor **a)
{
    uint64_t until = clock_fake_real_ms() + 10000; /* a narrow pair of sockets may need the kernel's probes, each later than the one before */
    while (!*a && !(*a = rig_take_origin(&r->rig))) {
        if (clock_fake_real_ms() > until)
            return fail("no connection to an origin");
        rig_settle(&r->rig);
    }
    return 0;
}

static int drink(struct run *r, struct actor *a, size_t n)
{
    uint64_t until = clock_fake_real_ms() + 20000;
    for (;;) {
        int done = actor_drink(a, n);
        if (done <= 0)
            return done ? fail("other bytes than the pattern after %zu", a->drained) : 0;
        if (a->ended || a->cut || clock_fake_real_ms() > until)
            return fail("only %zu of the pattern came%s", a->drained, a->cut ? ", then a cut" : a->ended ? ", then the end" : "");
        loop_run_once(r->rig.loop, 1);
    }
}

/* How an actor sends and receives. 1: not such a step. */
static int step_flow(struct run *r, struct actor **a, bool client, struct str what)
{
    static const char *const words[] = { "pieces ", "split ", "pour ", "drink ", "pouring", "poured", "deaf", "hear" };
    size_t w = 0, count = sizeof words / sizeof *words;
    while (w < count && !str_starts(what, str_c(words[w])))
        w++;
    if (w == count)
        return 1;
    if (!client && need_origin(r, a))
        return -1;
    if (!*a)
        return fail("it is not open");
    size_t n = strtoul(what.p + strlen(words[w]), NULL, 10);
    switch (w) {
    case 0:
        (*a)->piece = n;
        (*a)->together = str_ends(what, STR(" together"));
        return 0;
    case 1:
        (*a)->split = n;
        return 0;
    case 2:
        actor_pour(*a, n);
        break;
    case 3:
        return drink(r, *a, n);
    case 4:
        rig_settle(&r->rig);
        return (*a)->pour ? 0 : fail("all of it was taken");
    case 5:
        for (uint64_t until = clock_fake_real_ms() + 20000; (*a)->pour && !(*a)->cut && clock_fake_real_ms() < until;)
            loop_run_once(r->rig.loop, 1);
        return (*a)->pour ? fail("%zu bytes are not taken", (*a)->pour) : 0;
    default:
        actor_hear(*a, w == 7);
    }
    rig_settle(&r->rig);
    return 0;
}

static int step_actor(struct run *r, struct str who, char op, struct str what)
{
    struct actor **a = actor_of(r, who);
    bool client = str_starts(who, STR("client"));
    if (!a)
        return fail("no such actor");
    if (op == ':') {
        if (str_starts(what, STR("connect ")))
            return client_connect(r, a, str_from(what, 8));
        if (str_starts(what, STR("open"))) {
            char from[64];
            snprintf(from, sizeof from, "%.*s", STR_ARG(str_starts(what, STR("open from ")) ? str_from(what, 10) : STR("")));
            *a = actor_client_from(&r->rig, from);
            return 0;
        }
        int done = step_flow(r, a, client, what);
        if (done <= 0)
            return done;
        if (str_eq(what, STR("accept"))) {
            if (*a) { /* stays open to the end of the run */
                buf_put(&r->seen_origin, buf_str(&(*a)->got));
                (*a)->next = r->retired;
                r->retired = *a;
            }
            *a = NULL;
        } else if (str_eq(what, STR("shut")) && *a) {
            actor_shut(&r->rig, *a);
            return 0;
        } else if (str_eq(what, STR("close")) && *a) {
            actor_shut(&r->rig, *a);
            rig_settle(&r->rig);
            buf_put(client ? &r->seen_client : &r->seen_origin, buf_str(&(*a)->got));
            actor_free(*a);
            *a = NULL;
            return 0;
        } else if (str_eq(what, STR("reset")) && *a) {
            struct linger now = { 1, 0 };
            setsockopt((*a)->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
            buf_put(client ? &r->seen_client : &r->seen_origin, buf_str(&(*a)->got));
            actor_free(*a);
            *a = NULL;
            return 0;
        } else if (str_starts(what, STR("tls-refused ")) && *a) {
            char name[512];
            snprintf(name, sizeof name, "%.*s", STR_ARG(str_from(what, 12)));
            return actor_tls(&r->rig, *a, name) ? 0 : fail("TLS was accepted");
        } else if (str_starts(what, STR("tls-distrust ")) && *a) {
            char name[512];
            snprintf(name, sizeof name, "%.*s", STR_ARG(str_from(what, 13)));
            return actor_distrust(&r->rig, *a, name) ? 0 : fail("TLS was accepted");
        } else if ((str_starts(what, STR("tls ")) || str_eq(what, STR("tls"))) && *a) {
            char name[512];
            snprintf(name, sizeof name, "%.*s", STR_ARG(str_from(what, 4)));
            return actor_tls(&r->rig, *a, name) ? fail("TLS: %s", (*a)->error) : 0;
        } else {
            return fail("unknown step %.*s", STR_ARG(what));
        }
    }
    if (!client && need_origin(r, a))
        return -1;
    if (!*a)
        return fail("%.*s is not open", STR_ARG(who));
    if (op == '<')
        return expect(r, *a, what);
    if (op == ':')
        return 0;
    struct buf b;
    buf_init(&b, 64 << 20);
    message_bytes(what, &b);
    int ok = actor_send(&r->rig, *a, buf_str(&b));
    buf_done(&b);
    rig_settle(&r->rig);
    return ok ? fail("cannot send") : 0;
}

static int check_never(struct run *r, struct str what)
{
    for (int i = 0; i < ACTORS; i++) {
        if (r->client[i])
            buf_put(&r->seen_client, buf_str(&r->client[i]->got));
        if (r->origin[i])
            buf_put(&r->seen_origin, buf_str(&r->origin[i]->got));
    }
    buf_reset(&r->log);
    rig_log(&r->rig, &r->log);
    ptrdiff_t in = str_find(what, STR(" in "));
    struct str text = in < 0 ? what : str_sub(what, 0, (size_t)in), where = in < 0 ? STR("client, log") : str_from(what, (size_t)in + 4);
    if (str_find(where, STR("client")) >= 0 && str_find(buf_str(&r->seen_client), text) >= 0)
        return fail("%.*s reached the client", STR_ARG(text));
    if (str_find(where, STR("log")) >= 0 && str_find(buf_str(&r->log), text) >= 0)
        return fail("%.*s is in the log", STR_ARG(text));
    if (str_find(where, STR("origin")) >= 0 && str_find(buf_str(&r->seen_origin), text) >= 0)
        return fail("%.*s reached an origin", STR_ARG(text));
    return 0;
}

static void note_value(struct run *r, struct str what)
{
    char copy[2048];
    snprintf(copy, sizeof copy, "%.*s", STR_ARG(what));
    if (r->nvalues < sizeof r->values / sizeof *r->values && sscanf(copy, "%*s -> \"%599[^\"]\"", r->values[r->nvalues]) == 1)
        r->nvalues++;
}

/* --- what holds after every run --- */

static json_t *ids_of(struct str log, const char *type)
{
    json_t *ids = json_object();
    struct str line;
    while (str_split(&log, '\n', &line)) {
        json_t *j = line.n ? json_loadb(line.p, line.n, 0, NULL) : NULL;
        const char *t = json_string_value(json_object_get(j, "type")), *id = json_string_value(json_object_get(j, "request_id"));
        if (t && id && *id && !strcmp(t, type))
            json_object_set_new(ids, id, json_integer(json_integer_value(json_object_get(ids, id)) + 1));
        json_decref(j);
    }
    return ids;
}

static int check_records(struct str log)
{
    json_t *opens = ids_of(log, "open"), *closes = ids_of(log, "close"), *n;
    const char *id;
    int result = 0;
    json_object_foreach(closes, id, n)
        if (json_integer_value(n) != 1)
            result = fail("request %s has %lld closes", id, json_integer_value(n));
    json_object_foreach(opens, id, n)
        if (json_integer_value(n) != 1 || !json_object_get(closes, id))
            result = fail("request %s has %lld opens and %s close", id, json_integer_value(n), json_object_get(closes, id) ? "a" : "no");
    json_decref(opens);
    json_decref(closes);
    return result;
}

static int check_after(struct run *r)
{
    rig_end_worker(&r->rig);
    if (!r->binary && check_never(r, STR("\x01 in client")))
        return -1;
    for (size_t i = 0; i < r->nvalues; i++) {
        struct str value = str_c(r->values[i]);
        if (str_find(buf_str(&r->log), value) >= 0)
            return fail("a real value is in the log");
        if (!r->may_leak && str_find(buf_str(&r->seen_client), value) >= 0)
            return fail("a real value reached the client");
    }
    return check_records(buf_str(&r->log));
}

static int step(struct run *r, struct str line)
{
    struct str word = line;
    size_t n = 0;
    while (n < line.n && line.p[n] != ':' && line.p[n] != '>' && line.p[n] != '<' && line.p[n] != ' ')
        n++;
    word = str_sub(line, 0, n);
    char op = n < line.n ? line.p[n] : 0;
    struct str what = n < line.n ? str_trim(str_from(line, n + 1)) : STR("");
    if (str_starts(word, STR("client")) || str_starts(word, STR("origin")))
        return step_actor(r, word, op, what);
    if (str_eq(word, STR("file")))
        return rig_file(&r->rig, what) ? fail("bad file line") : 0;
    if (str_eq(word, STR("keeper")))
        return rig_keeper(&r->rig, what) ? fail("away, back or silent") : 0;
    if (str_eq(word, STR("resolver")))
        return rig_resolver(&r->rig, what) ? fail("away, back or silent") : 0;
    if (str_eq(word, STR("calm")))
        return rig_calm(&r->rig) ? 0 : fail("the loop spins");
    if (str_eq(word, STR("drain"))) {
        worker_drain(r->rig.worker);
        rig_settle(&r->rig);
        return 0;
    }
    if (str_eq(word, STR("may"))) {
        r->may_leak = true;
        return 0;
    }
    if (str_eq(line, STR("binary"))) {
        r->binary = true;
        return 0;
    }
    if (str_eq(word, STR("mint")))
        note_value(r, what);
    if (str_eq(word, STR("mint")))
        return rig_mint(&r->rig, what) ? fail("bad mint line") : 0;
    if (str_eq(word, STR("dns")))
        return rig_name(&r->rig, what) ? fail("bad dns line") : 0;
    if (str_eq(word, STR("wait"))) {
        clock_fake_advance_ms(strtoul(what.p, NULL, 10) * (str_ends(what, STR("ms")) ? 1 : 1000));
        rig_settle(&r->rig);
        return 0;
    }
    if (str_eq(word, STR("gone"))) {
        struct worker_stats stats = { .clients = 1 };
        for (int i = 0; i < GONE_TRIES && stats.clients; i++) {
            clock_fake_advance_ms(strtoul(what.p, NULL, 10) * 1000);
            rig_settle(&r->rig);
            worker_stats(r->rig.worker, &stats);
        }
        return stats.clients ? fail("%llu clients are still there", (unsigned long long)stats.clients) : 0;
    }
    if (str_eq(word, STR("revoke"))) {
        rig_revoke(&r->rig, what);
        rig_settle(&r->rig);
        return 0;
    }
    if (str_eq(word, STR("dials"))) {
        rig_settle(&r->rig);
        return r->rig.dials == strtoul(what.p, NULL, 10) ? 0 : fail("%u dials", r->rig.dials);
    }
    if (str_eq(word, STR("mints"))) { /* leases that the mint has made */
        rig_settle(&r->rig);
        return r->rig.lease_number == strtoul(what.p, NULL, 10) ? 0 : fail("%lu mints", (unsigned long)r->rig.lease_number);
    }
    if (str_eq(word, STR("event")))
        return check_event(r, what, true);
    if (str_eq(word, STR("events")))
        return check_events(r, what);
    if (str_eq(word, STR("noevent")))
        return check_event(r, what, false);
    if (str_eq(word, STR("never")))
        return check_never(r, what);
    if (str_eq(word, STR("reload")))
        return rig_reload(&r->rig, buf_str(&r->config), r->why, sizeof r->why) ? fail("reload: %s", r->why) : 0;
    return fail("unknown step");
}

/* --- configuration edits --- */

static void edit(struct buf *config, struct str from, const struct str *to)
{
    struct buf out;
    buf_init(&out, 1 << 22);
    struct str rest = buf_str(config), line;
    while (str_split(&rest, '\n', &line)) {
        ptrdiff_t at = str_find(line, from);
        if (at >= 0 && !to)
            continue;
        if (at >= 0) {
            buf_put(&out, str_sub(line, 0, (size_t)at));
            buf_put(&out, *to);
            line = str_from(line, (size_t)at + from.n);
        }
        buf_put(&out, line);
        buf_putc(&out, '\n');
    }
    buf_done(config);
    *config = out;
}

static bool edit_line(struct buf *config, struct str line)
{
    if (str_starts(line, STR("without "))) {
        edit(config, str_from(line, 8), NULL);
        return true;
    }
    if (str_starts(line, STR("with "))) {
        buf_put(config, str_from(line, 5));
        buf_putc(config, '\n');
        return true;
    }
    if (str_starts(line, STR("swap "))) {
        ptrdiff_t at = str_find(line, STR(" => "));
        struct str to = at < 0 ? STR("") : str_from(line, (size_t)at + 4);
        edit(config, str_sub(line, 5, at < 0 ? 0 : (size_t)at - 5), &to);
        return true;
    }
    return false;
}

/* --- files --- */

static bool is_run(const char *line)
{
    return !strncmp(line, "run ", 4);
}

static void run_done(struct run *r)
{
    for (int i = 0; i < ACTORS; i++) {
        if (r->client[i])
            actor_free(r->client[i]);
        if (r->origin[i])
            actor_free(r->origin[i]);
    }
    while (r->retired) {
        struct actor *a = r->retired;
        r->retired = a->next;
        actor_free(a);
    }
    buf_done(&r->rig.greeting);
    rig_stop(&r->rig);
    buf_done(&r->config);
    buf_done(&r->seen_client);
    buf_done(&r->seen_origin);
    buf_done(&r->log);
}

/* The line with k for every $K. */
static char *with_number(const char *line, long k)
{
    static char out[LINE];
    size_t n = 0;
    while (*line && n < sizeof out - 24) {
        if (line[0] == '$' && line[1] == 'K') {
            n += (size_t)snprintf(out + n, 24, "%ld", k);
            line += 2;
        } else {
            out[n++] = *line++;
        }
    }
    out[n] = 0;
    return out;
}

/* Lines [from, to) are one run; [0, head) come before every run. */
static int play(const struct script *s, size_t head, size_t from, size_t to, long k)
{
    struct run r = { 0 };
    buf_init(&r.config, 1 << 22);
    buf_init(&r.seen_client, 1u << 30);
    buf_init(&r.seen_origin, 1u << 30);
    buf_init(&r.log, 1u << 30);
    buf_init(&r.rig.greeting, 65536);
    bool in_config = false, started = false;
    int result = 0;
    for (size_t i = 0; i < to && !result; i = i + 1 == head ? from + 1 : i + 1) {
        char *line = with_number(s->lines[i], k);
        if (in_config && (line[0] == ' ' || !line[0])) {
            buf_put(&r.config, str_c(line[0] ? line + 2 : line));
            buf_putc(&r.config, '\n');
            continue;
        }
        in_config = false;
        if (!line[0] || line[0] == '#')
            continue;
        if (!strcmp(line, "config:")) {
            in_config = true;
            continue;
        }
        if (edit_line(&r.config, str_c(line)))
            continue;
        if (!strcmp(line, "narrow")) {
            r.rig.narrow = true;
            continue;
        }
        if (!strcmp(line, "greet end")) {
            r.rig.greeting_ends = true;
            continue;
        }
        if (!strncmp(line, "greet \"", 7)) {
            message_bytes(str_c(line + 6), &r.rig.greeting);
            continue;
        }
        bool setup = !strncmp(line, "mint:", 5) || !strncmp(line, "dns:", 4) || !strncmp(line, "file:", 5);
        if (!started && !setup) {
            started = true;
            if (rig_start(&r.rig, buf_str(&r.config), r.why, sizeof r.why)) {
                printf("%s:%zu: cannot start: %s\n", s->file, i + 1, r.why);
                result = -1;
                break;
            }
        }
        if (step(&r, str_c(line))) {
            printf("%s:%zu: %s\n    %s\n", s->file, i + 1, line, fail_text);
            result = -1;
        }
    }
    if (started && !result && check_after(&r)) {
        printf("%s:%zu: after the run: %s\n", s->file, from + 1, fail_text);
        result = -1;
    }
    run_done(&r);
    return result;
}

static int read_script(const char *file, struct script *s)
{
    FILE *f = fopen(file, "r");
    static char line[LINE];
    if (!f)
        return -1;
    *s = (struct script) { .file = file };
    while (fgets(line, sizeof line, f)) {
        size_t n = strlen(line);
        while (n && (line[n - 1] == '\n' || line[n - 1] == ' '))
            line[--n] = 0;
        s->lines = realloc(s->lines, (s->n + 1) * sizeof *s->lines);
        s->lines[s->n++] = strdup(line);
    }
    fclose(f);
    return 0;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    unsigned passed = 0, failed = 0;
    const char *only = getenv("SCENARIO_RUN");
    for (int f = 1; f < argc; f++) {
        struct script s;
        if (read_script(argv[f], &s)) {
            printf("%s: cannot read\n", argv[f]);
            failed++;
            continue;
        }
        size_t head = 0;
        while (head < s.n && !is_run(s.lines[head]))
            head++;
        for (size_t from = head; from < s.n;) {
            size_t to = from + 1;
            while (to < s.n && !is_run(s.lines[to]))
                to++;
            long k = 0, last = 0;
            const char *each = strstr(s.lines[from], " each ");
            if (each)
                sscanf(each, " each %ld..%ld", &k, &last);
            for (; k <= last && (!only || strstr(s.lines[from], only)); k++) {
                if (play(&s, head, from, to, k)) {
                    printf("FAILED %s: %s (%ld)\n", argv[f], s.lines[from] + 4, k);
                    failed++;
                } else {
                    passed++;
                }
            }
            from = to;
        }
        for (size_t i = 0; i < s.n; i++)
            free(s.lines[i]);
        free(s.lines);
    }
    printf("%u passed, %u failed\n", passed, failed);
    return failed ? 1 : 0;
}
