#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what the tests need, builds, and runs every test there is. The last line is "N passed, N failed, N skipped" for the whole;
# exit status 1 when anything failed.
#
#   tests/run.sh            everything that fits into twelve minutes on two cores
#   tests/run.sh --quick    for one's own machine: sanitizer build, unit tests, scenarios, fuzz replays, checks of the tree
#   tests/run.sh --full     also: a minute of fuzzing for each target, system tests of the sanitizer build, long transfers, valgrind on
#                           what handles secrets, the role tests again and again, real clients end to end
#
# Builds: build/ (Release), build-asan/ (gcc, ASan and UBSan), build-fuzz/ (clang, libFuzzer, ASan and UBSan). Logs: build-asan/run/.
set -uo pipefail
IFS=$' \n\t'
umask 022
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
exec </dev/null
unset MAKEFLAGS CFLAGS CPPFLAGS LDFLAGS OUTGATE_EXE
export LC_ALL=C.UTF-8 ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1

PACKAGES="gcc libc6-dev clang cmake ninja-build pkg-config libssl-dev libyaml-dev libpsl-dev libidn2-dev libc-ares-dev libcurl4-openssl-dev
libmicrohttpd-dev libnghttp2-dev zlib1g-dev libjansson-dev libseccomp-dev libcmocka-dev node-llhttp ca-certificates curl git openssl python3 iproute2 util-linux
nghttp2-client shellcheck cppcheck iodine dns2tcp bind9-dnsutils iputils-ping"
# For --full: valgrind, the clients of tests/system/real_clients.py, and what needs a newer Node than Debian's (looked for where npm is there).
FULL_PACKAGES="valgrind wget gh golang-go cargo awscli skopeo chromium libnss3-tools default-jdk-headless python3-requests python3-httpx
python3-aiohttp python3-h2 python3-grpcio python3-websockets python3-pip ruby libwww-perl musl-tools"
NPM_PACKAGES="undici@7 @anthropic-ai/claude-code@2.1.197 @openai/codex@0.171.0 @google/gemini-cli@0.61.0 @grpc/grpc-js@1.12.4 ws@8.18.0"
FUZZ_BOX=70   # seconds for all fuzz targets together
CHECK_BOX=120 # seconds for the static analysis

MODE=normal
for word in "$@"; do
    case $word in
        --quick) MODE=quick ;;
        --full) MODE=full ;;
        -h | --help) sed -n '4,13s/^# \{0,1\}//p' tests/run.sh; exit 0 ;;
        *) echo "run.sh: unknown option '$word' (--quick, --full)" >&2; exit 2 ;;
    esac
done

JOBS=$(nproc)
LOGS=$PWD/build-asan/run
START=$(date +%s)
PASSED=0 FAILED=0 SKIPPED=0 TIMES=''
mkdir -p "$LOGS"
rm -f "$LOGS"/*.log "$LOGS"/*.xml

count() { PASSED=$((PASSED + $1)) FAILED=$((FAILED + $2)) SKIPPED=$((SKIPPED + $3)); }

# stage NAME FUNCTION: runs it, and keeps its time.
stage() {
    local at
    at=$(date +%s)
    printf '\n== %s\n' "$1"
    "$2"
    TIMES+=$(printf '%5d s  %s' $(($(date +%s) - at)) "$1")$'\n'
}

# one NAME COMMAND...: a test that is one command; what it printed is shown when it fails.
one() {
    local name=$1 log
    shift
    log=$LOGS/${name//[ \/]/_}.log
    if "$@" >"$log" 2>&1; then
        printf 'ok    %s%s\n' "$name" "$(tail -n 1 "$log" | sed -n 's/^[a-z ]*: \(.*looked at\)$/ (\1)/p')"
        count 1 0 0
    else
        printf 'FAIL  %s\n' "$name"
        tail -n 40 "$log" | sed 's/^/      /'
        count 0 1 0
        return 1
    fi
}

skip() {
    printf 'skip  %s: %s\n' "$1" "$2"
    count 0 0 1
}

# ---------------------------------------------------------------- packages and builds

packages() {
    local missing=() name
    command -v dpkg-query >/dev/null || { echo "no dpkg here: hoping that everything is there"; return; }
    for name in $PACKAGES $([ "$MODE" != full ] || echo "$FULL_PACKAGES"); do
        [ "$(dpkg-query -W -f '${Status}' "$name" 2>/dev/null)" = "install ok installed" ] || missing+=("$name")
    done
    [ ${#missing[@]} -gt 0 ] || { echo "all there"; return; }
    if [ "$(id -u)" -ne 0 ]; then
        echo "missing, and only root can install them: apt-get install --no-install-recommends ${missing[*]}"
        return
    fi
    echo "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    one packages sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@"' sh "${missing[@]}"
}

build() { # FOLDER CMAKE-ARGUMENTS...: configures and builds everything
    local folder=$1 generator=()
    shift
    [ -f "$folder/CMakeCache.txt" ] || generator=(-G Ninja)
    cmake -S . -B "$folder" "${generator[@]}" "$@" && cmake --build "$folder" -j "$JOBS"
}

release() { one "build, release" build build -DCMAKE_BUILD_TYPE=Release -DOUTGATE_TESTS=ON; }
sanitized() { one "build, gcc with sanitizers" build build-asan -DCMAKE_BUILD_TYPE=Debug -DOUTGATE_SANITIZE=ON; }
fuzzers() {
    command -v clang >/dev/null || { skip "build, clang" "no clang"; return; }
    one "build, clang with sanitizers and libFuzzer" build build-fuzz -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=Debug -DOUTGATE_FUZZ=ON
}

# ---------------------------------------------------------------- tests

units() {
    local out
    [ -f build-asan/build.ninja ] || [ -f build-asan/Makefile ] || { count 0 1 0; echo "FAIL  no sanitizer build"; return; }
    timeout 600 ctest --test-dir build-asan -j "$JOBS" --timeout 120 --output-junit "$LOGS/ctest.xml" >"$LOGS/ctest.log" 2>&1
    if ! out=$(python3 tests/tree/counts.py "$LOGS/ctest.xml" 2>&1); then
        echo "FAIL  ctest: $out"
        tail -n 5 "$LOGS/ctest.log"
        count 0 1 0
        return
    fi
    # shellcheck disable=SC2046 # three numbers
    count $(head -n 1 <<<"$out")
    tail -n +2 <<<"$out"
    tail -n 4 "$LOGS/ctest.log" | head -n 2
}

system_tests() { # LOG PROGRAM ARGUMENTS...: a program that ends with a line of counts
    local log=$LOGS/$1 last
    shift
    timeout 2400 python3 "$@" >"$log" 2>&1
    grep -E -A 1 '^(FAIL|skip)' "$log" | grep -v -e '^ok ' -e '^--$'
    last=$(tail -n 1 "$log")
    if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
        count "${BASH_REMATCH[@]:1}"
        echo "$last"
    else
        echo "FAIL  $*: it did not come to its end"
        tail -n 5 "$log"
        count 0 1 0
    fi
}
system_release() {
    OUTGATE_EXE=$PWD/build/outgate system_tests system.log tests/system/run.py
    one "quickstart" deploy/quickstart.sh
}
system_sanitized() {
    OUTGATE_EXE=$PWD/build-asan/outgate OUTGATE_TEST_TIMEOUT=300 system_tests system-asan.log tests/system/run.py
}
system_again() {
    local i
    export OUTGATE_EXE=$PWD/build/outgate
    for i in 1 2 3 4 5; do OUTGATE_TEST_FULL=1 system_tests "roles-$i.log" tests/system/run.py test_roles; done
    OUTGATE_TEST_FULL=1 OUTGATE_TEST_TIMEOUT=900 system_tests durability-full.log tests/system/run.py test_durability
    OUTGATE_TEST_FULL=1 OUTGATE_TEST_TIMEOUT=1800 system_tests floods-full.log tests/system/run.py test_floods test_chaos
    OUTGATE_TEST_FULL=1 OUTGATE_TEST_TIMEOUT=900 system_tests h2-full.log tests/system/run.py test_h2_
    OUTGATE_TEST_FULL=1 OUTGATE_TEST_TIMEOUT=900 system_tests dns-full.log tests/system/run.py test_dns_tunnels test_name_floods test_dns:crash_loop
    system_tests long.log tests/system/long_transfers.py
    unset OUTGATE_EXE
}
clients() {
    export OUTGATE_EXE=$PWD/build/outgate OUTGATE_NPM=$PWD/build/clients
    if ! command -v npm >/dev/null; then
        skip "clients from npm" "npm is not installed"
    elif ! npm_clients >"$LOGS/npm.log" 2>&1; then
        skip "clients from npm" "$(tail -n 1 "$LOGS/npm.log")"
    fi
    OUTGATE_TEST_FULL=1 OUTGATE_TEST_TIMEOUT=900 system_tests ca-stores-full.log tests/system/run.py test_ca_stores
    system_tests real-clients.log tests/system/real_clients.py
    unset OUTGATE_EXE OUTGATE_NPM
}
npm_clients() {
    mkdir -p "$OUTGATE_NPM"
    # shellcheck disable=SC2086 # words
    npm install --prefix "$OUTGATE_NPM" --no-audit --no-fund --no-save $NPM_PACKAGES
}

tree_checks() {
    local scripts
    export OUTGATE_EXE
    for OUTGATE_EXE in "$PWD/build/outgate" "$PWD/build-asan/outgate"; do [ ! -x "$OUTGATE_EXE" ] || break; done
    one "order of the folders" python3 tests/tree/folder_order.py
    one "words" python3 tests/tree/words.py
    one "map" python3 tests/tree/map.py
    one "printed documents" python3 tests/tree/generated.py
    one "documents" python3 tests/tree/docs.py
    unset OUTGATE_EXE
    if command -v shellcheck >/dev/null; then
        scripts=$(find deploy tests .ci -name '*.sh' -o -path .ci/run | sort)
        # shellcheck disable=SC2086 # no blanks in our names
        one "shellcheck" shellcheck $scripts
    else
        skip "shellcheck" "it is not installed"
    fi
}

# Checkers that tell something here; those that read our list and string idioms wrongly are off (docs/decisions/0014).
ANALYZER="-O1 -fanalyzer -Wno-analyzer-null-argument -Wno-analyzer-null-dereference -Wno-analyzer-malloc-leak -Wno-analyzer-use-after-free
-Wno-analyzer-possible-null-argument -Wno-analyzer-possible-null-dereference -Wno-analyzer-use-of-uninitialized-value -Wno-analyzer-too-complex"
analyze_one() { # FILE: what gcc finds, on stdout; 1 when it found something
    local out
    # shellcheck disable=SC2086 # words
    out=$(gcc -std=gnu17 -D_GNU_SOURCE '-DOUTGATE_VERSION="0"' -I. $FLAGS $ANALYZER -c "$1" -o /dev/null 2>&1) && [ -z "$out" ] && return 0
    printf '%s\n' "$out"
    return 1
}
export -f analyze_one
analysis() {
    local files
    files=$(find base policy audit ca mint dns proxy daemon -name '*.c' | sort)
    FLAGS=$(pkg-config --cflags libssl yaml-0.1 libpsl libidn2 libcares libcurl libmicrohttpd libnghttp2 jansson libseccomp)
    export FLAGS ANALYZER
    local status
    # shellcheck disable=SC2016 # expanded by the inner shell
    timeout "$CHECK_BOX" xargs -P "$JOBS" -I{} bash -c 'analyze_one "$1"' bash {} <<<"$files" >"$LOGS/analyzer.log" 2>&1
    status=$?
    if [ "$status" -eq 124 ]; then
        skip "gcc -fanalyzer" "not done within $CHECK_BOX s"
    else
        one "gcc -fanalyzer" bash -c "cat '$LOGS/analyzer.log'; exit $status"
    fi
    if command -v cppcheck >/dev/null; then
        # shellcheck disable=SC2086 # no blanks in our names
        one "cppcheck" timeout "$CHECK_BOX" cppcheck -q -j "$JOBS" --std=c11 -D_GNU_SOURCE -I. --inline-suppr --error-exitcode=1 --suppress=unknownMacro \
            --suppress=syntaxError --suppress=uninitvar --suppress=legacyUninitvar --suppress=pointerOutOfBoundsCond --suppress=nullPointer $files
    else
        skip "cppcheck" "it is not installed"
    fi
}

fuzz_one() { # TARGET SECONDS: its corpus is read, what is new stays in a folder of the build
    local name=$1 seeds=() scratch=build-fuzz/corpus/$1
    mkdir -p "$scratch"
    [ ! -d "tests/corpus/$name" ] || seeds=("tests/corpus/$name")
    "build-fuzz/tests/$name" -max_total_time="$2" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 \
        -artifact_prefix="build-fuzz/$name-" "$scratch" "${seeds[@]}" >"$LOGS/$name.log" 2>&1
}
export -f fuzz_one
fuzzing() {
    local targets=() t seconds
    for t in build-fuzz/tests/fuzz_*; do [ ! -x "$t" ] || [ -d "$t" ] || targets+=("$(basename "$t")"); done
    [ ${#targets[@]} -gt 0 ] || { skip "fuzzing" "no clang build"; return; }
    seconds=$((FUZZ_BOX * JOBS / ${#targets[@]}))
    [ "$seconds" -ge 1 ] || seconds=1
    [ "$MODE" != full ] || seconds=60
    export LOGS
    # shellcheck disable=SC2016 # expanded by the inner shell
    printf '%s\n' "${targets[@]}" | xargs -P "$JOBS" -I{} bash -c 'fuzz_one "$1" "$2" || echo "$1"' bash {} "$seconds" >"$LOGS/fuzz-failed.log"
    for t in "${targets[@]}"; do
        if grep -qx "$t" "$LOGS/fuzz-failed.log"; then
            printf 'FAIL  %s: the input is build-fuzz/%s-*\n' "$t" "$t"
            tail -n 20 "$LOGS/$t.log" | sed 's/^/      /'
            count 0 1 0
        else
            printf 'ok    %s (%s runs in %d s)\n' "$t" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$LOGS/$t.log")" "$seconds"
            count 1 0 0
        fi
    done
}

secrets() {
    local t
    command -v valgrind >/dev/null || { skip "valgrind" "it is not installed"; return; }
    for t in mint_swap_test mint_scrub_test mint_lease_client_test mint_sidecar_json_test mint_placeholder_test ca_root_test proxy_h1_head_test \
        policy_eval_test; do
        [ ! -x "build/tests/$t" ] || one "valgrind $t" timeout 600 valgrind -q --error-exitcode=9 --track-fds=no --leak-check=full --errors-for-leak-kinds=definite "build/tests/$t"
    done
}

# ---------------------------------------------------------------- one after the other

result() {
    printf '\n== times\n%s%5d s  all\n\n' "$TIMES" $(($(date +%s) - START))
    echo "$PASSED passed, $FAILED failed, $SKIPPED skipped"
    [ "$FAILED" -eq 0 ]
}
exec 3>&1 # a signal may come while stdout is a test's log
trap 'exec >&3; echo "FAIL  ended from outside"; count 0 1 0; result; exit 1' TERM INT

all() { # a function is read as a whole before it runs: this file may be edited meanwhile
    stage "packages" packages
    [ "$MODE" = quick ] || stage "build, release" release
    stage "build, gcc with sanitizers" sanitized
    stage "checks of the tree" tree_checks
    stage "unit tests, scenarios, fuzz replays (sanitizers)" units
    if [ "$MODE" != quick ]; then
        stage "system tests (release)" system_release
        stage "static analysis" analysis
        stage "build, clang" fuzzers
        stage "fuzzing" fuzzing
    fi
    if [ "$MODE" = full ]; then
        stage "system tests (sanitizers)" system_sanitized
        stage "roles and durability again, long transfers" system_again
        stage "real clients" clients
        stage "valgrind" secrets
    fi
    result
}
all
