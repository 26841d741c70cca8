#!/usr/bin/env bash
# make demo: the daemon in the foreground with directories of its own, a workload with planted spikes, and a look at what was caught.
# Exits 0 only if every planted spike was caught and every incident is whole. Needs no root, takes half a minute.
set -u

build=${B:-build}
out=$(mktemp -d "${TMPDIR:-/tmp}/spikewatch-demo.XXXXXX") || exit 1
incidents=$out/incidents
daemon_pid= workload_pid=

cleanup() {
	[ -n "$workload_pid" ] && kill "$workload_pid" 2>/dev/null
	[ -n "$daemon_pid" ] && kill "$daemon_pid" 2>/dev/null
	wait 2>/dev/null
	[ -n "${KEEP:-}" ] && cp -r "$out" "$KEEP"; rm -rf "$out"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say() { printf '\n== %s\n' "$*"; }
fail() { printf 'demo: FAILED: %s\n' "$*"; failed=1; }
failed=0

# The shipped demo configuration, with directories of this run.
sed "s|^{|{ \"state_file\": \"$out/state.json\",|
     s|\"lock\": false|\"lock\": false, \"path\": \"$out/ring\"|
     s|\"before\": \"3s\"|\"directory\": \"$incidents\", \"before\": \"3s\"|" conf/demo.json > "$out/demo.json"

say "spikewatchd, watching for processes called workload_demo"
"$build/spikewatchd" -c "$out/demo.json" 2> >(sed 's/^/   /' | tee "$out/log" >&2) &
daemon_pid=$!
for _ in $(seq 50); do
	[ -e "$out/ring" ] && break
	kill -0 "$daemon_pid" 2>/dev/null || { wait "$daemon_pid"; echo "demo: the daemon did not start"; exit 1; }
	sleep 0.1
done

say "the workload: 300 ms of CPU, 3 s of CPU, a balloon of memory for less than 50 ms, idle in between"
"$build/workload_demo" | sed 's/^/   /' &
pipeline=$!
wait "$pipeline"
sleep 2

say "stopping the daemon"
kill -TERM "$daemon_pid"
wait "$daemon_pid"
code=$?
daemon_pid=
[ "$code" = 0 ] || fail "the daemon ended with exit code $code"

say "spikewatch list"
"$build/spikewatch" list -d "$incidents" || fail "list"

say "spikewatch verify"
"$build/spikewatch" verify "$incidents"/*/ || fail "verify: an incident is damaged"

longest=$(grep -l '"rule": "cpu-hot"' "$incidents"/*/incident.json 2>/dev/null | head -1)
longest=${longest%/incident.json}
if [ -n "$longest" ]; then
	say "spikewatch show $(basename "$longest")"
	"$build/spikewatch" show "$longest" || fail "show"
fi

say "what was planted, and what was caught"
count() { ls -d "$incidents"/*-"$1"-[0-9]* 2>/dev/null | wc -l; }
check() { # name, how many are there, how many must be
	if [ "$2" -ge "$3" ]; then echo "   caught: $1"; else fail "$1 was missed"; fi
}
check "300 ms of CPU" "$(count cpu-burst)" 1
check "3 s of CPU" "$([ -n "$longest" ] && echo 1 || echo 0)" 1
check "both bursts, each in an incident of its own" "$(count cpu-burst)" 2
check "memory that came and went within 50 ms" "$(count memory-peak)" 1

exit $failed
