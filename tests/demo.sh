#!/usr/bin/env bash
# make demo: the daemon in the foreground with directories of its own, a workload with planted spikes, what was caught.
# Exits 0 only if every planted spike was caught and every incident is whole. Needs no root, takes half a minute.
#
# The workload says when it did what and how much CPU and memory it really got; that is what is looked for. On a busy
# machine a burst gets only part of a core: the thresholds follow, and what could not be planted is planted again, up to
# twice. A spike that was planted and is missed is a failure at once. KEEP=DIR keeps a copy of everything.
set -u

build=${B:-build}
out=$(mktemp -d "${TMPDIR:-/tmp}/spikewatch-demo.XXXXXX") || exit 1
daemon_pid= workload_pid=

cleanup() {
	[ -n "$workload_pid" ] && kill "$workload_pid" 2>/dev/null
	[ -n "$daemon_pid" ] && kill "$daemon_pid" 2>/dev/null
	wait
	[ -n "${KEEP:-}" ] && cp -r "$out" "$KEEP"
	rm -rf "$out"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

say() { printf '\n== %s\n' "$*"; }
fail() { printf 'demo: FAILED: %s\n' "$*"; failed=1; }

# Sets percent to the CPU threshold: 80 % of a core as in the shipped file, or a third of what a busy loop gets now.
choose_threshold() {
	local TIMEFORMAT='%R %U %S' end=$((${EPOCHREALTIME/[.,]/} + 500000)) times
	times=$( { time while ((${EPOCHREALTIME/[.,]/} < end)); do :; done; } 2>&1)
	percent=$(echo "${times//,/.}" | awk '{ share = 100 * ($2 + $3) / $1; print (share >= 90 ? 80 : int(share / 3) + 1) }')
	[ "$percent" = 80 ] || say "this machine is busy: bursts are looked for above $percent % of a core instead of 80 %"
}

# The shipped demo configuration, with directories of this run.
configure() {
	sed "s|^{|{ \"state_file\": \"$run/state.json\",|
	     s|\"lock\": false|\"lock\": false, \"path\": \"$run/ring\"|
	     s|\"before\": \"3s\"|\"directory\": \"$incidents\", \"before\": \"3s\"|
	     s|\"80%\"|\"$percent%\"|" conf/demo.json >"$run/demo.json"
}

start_daemon() {
	say "spikewatchd, watching for processes called workload_demo"
	exec {to_screen}> >(exec sed -u 's/^/   /')
	daemon_printer=$!
	"$build/spikewatchd" -c "$run/demo.json" 2>&$to_screen {to_screen}>&- &
	daemon_pid=$!
	exec {to_screen}>&-
	for _ in $(seq 300); do
		[ -e "$run/ring" ] && return
		kill -0 "$daemon_pid" 2>/dev/null || break
		sleep 0.1
	done
	wait "$daemon_printer"
	echo "demo: FAILED: the daemon did not start"
	exit 1
}

run_workload() {
	say "the workload: 300 ms of CPU, 3 s of CPU, a balloon of memory for less than 50 ms, idle in between"
	"$build/workload_demo" > >(tee "$run/said" | sed -u 's/^/   /') &
	workload_pid=$!
	wait "$workload_pid" || { echo "demo: FAILED: the workload ended with exit code $?" && exit 1; }
	workload_pid=
	sleep 2
}

stop_daemon() {
	say "stopping the daemon"
	kill -TERM "$daemon_pid"
	wait "$daemon_pid" || fail "the daemon ended with exit code $?"
	daemon_pid=
	wait "$daemon_printer"
}

# said N PATTERN: the Nth line of the workload with it.
said() { grep -- "$2" "$run/said" | sed -n "$1p"; }

# when N PATTERN: its time, as it stands in the names of incidents: 20261120T123229.831Z.
when() { said "$1" "$2" | sed 's/ .*//; s/[-:]//g'; }

# share N: how much of a core, in percent, the Nth CPU burst really got: "... ends: 0.266 s of CPU time in 0.300 s".
share() { said "$1" "CPU burst ends" | sed 's/.*ends: //' | awk '{ print int(100 * $1 / $7) }'; }

# caught RULE FROM TO: the incident that begins within this time and that this rule opened, or became part of.
caught() {
	local dir id LC_ALL=C
	for dir in "$incidents"/*; do
		id=${dir##*/}
		[[ ! $id < $2 && $id < $3 ]] || continue
		[[ $id == *-"$1"-* ]] || grep -qs "\"rule\": \"$1\"" "$dir/incident.json" || continue
		echo "$dir" && return
	done
	return 1
}

# judge NAME RULE FROM TO GOT NEEDED: caught, missed, or never there.
judge() {
	if caught "$2" "$3" "$4" >/dev/null; then
		echo "   caught: $1"
	elif [ "$5" -ge "$6" ]; then
		fail "$1 was missed"
	else
		echo "   not planted: $1; the machine is too busy ($5, at least $6 is needed)"
		unplanted=1
	fi
}

judge_all() {
	local enough=$((percent == 80 ? 95 : percent * 8 / 5)) first second balloon end mib ms
	first=$(when 1 "burst of .*main") second=$(when 1 "burst of .*hot-loop")
	balloon=$(when 1 "memory burst begins") end=$(when 1 "done")
	read -r mib ms < <(said 1 "memory burst ends" | sed 's/.*ends: \([0-9]*\) MiB.* in \([0-9.]*\) ms.*/\1 \2/')
	say "what was planted, and what was caught"
	judge "300 ms of CPU, at $(share 1) % of a core" cpu-burst "$first" "$second" "$(share 1)" $enough
	judge "3 s of CPU, at $(share 2) % of a core" cpu-hot "$second" "$balloon" "$(share 2)" $enough
	judge "$mib MiB of memory that came and went within $ms ms" memory-peak "$balloon" "$end" "$mib" 10
}

show_what_was_caught() {
	local hot
	say "spikewatch list"
	"$build/spikewatch" list -d "$incidents" || fail "list"
	say "spikewatch verify"
	"$build/spikewatch" verify "$incidents"/*/ || fail "verify: an incident is damaged"
	hot=$(caught cpu-hot 0 Z) || return
	say "spikewatch show ${hot##*/}"
	"$build/spikewatch" show "$hot" || fail "show"
}

for attempt in 1 2 3; do
	failed=0 unplanted=0
	run=$out/$attempt
	incidents=$run/incidents
	mkdir "$run" || exit 1
	choose_threshold
	configure
	start_daemon
	run_workload
	stop_daemon
	show_what_was_caught
	judge_all
	[ $failed = 0 ] || exit 1
	[ $unplanted = 1 ] || exit 0
done
fail "this machine is too busy to plant a spike"
exit 1
