#!/bin/sh
# spikewatchd without any configuration file catches a process that burns one core: one outside of any service, for 45 s, and, where cgroups can be made, one
# inside of a service, for 15 s. What it writes goes below a directory of this test. $B: where the programs are built.
#
# The process counts its CPU time. What got less than a core, because the machine was busy, is planted again, up to twice.
set -u

build=${B:-build}
# Percent of a core that the process must have had to be caught: what it lacks of 15 s may all lie in one window of 4 s, which must be above 80 %.
needed=96
daemon= burner= made= attempt=0
dir=$(mktemp -d) || exit 1
export RUNTIME_DIRECTORY="$dir/run" STATE_DIRECTORY="$dir/state"

cleanup() {
	test -z "$burner" || kill "$burner"
	test -z "$daemon" || kill "$daemon"
	wait
	test -z "$made" || rmdir $made
	rm -rf "$dir"
} 2>/dev/null
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

fail() {
	echo "shipped: $*" >&2
	test ! -s "$dir/log" || tail -n 20 "$dir/log" >&2
	exit 1
}

# An installed configuration is hidden from this daemon.
start_daemon() {
	hidden=
	test ! -e /etc/spikewatch/spikewatch.json || hidden=yes
	${hidden:+unshare --map-root-user --mount sh -c 'mount -t tmpfs none /etc/spikewatch && exec "$@"' sh} \
		"$build/spikewatchd" 2>"$dir/log" &
	daemon=$!
	for _ in $(seq 300); do
		"$build/spikewatch" status --socket "$dir/run/control" >/dev/null 2>&1 && break
		kill -0 "$daemon" 2>/dev/null || fail "spikewatchd has ended"
		sleep 0.1
	done
	head -n 1 "$dir/log" | grep -q 'no /etc/spikewatch/spikewatch.json: running with the built-in configuration' ||
		fail "the first line does not say that the configuration is built in"
}

# A service in each hierarchy, which has most of the CPU where it has competitors. False: this user may make none.
make_service() {
	for hierarchy in $(awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/self/mounts); do
		top=$hierarchy/check-shipped-$$
		test -e "$top" || mkdir "$top" 2>/dev/null || continue
		made="$top/system.slice/burner.service $top/system.slice $top $made"
		mkdir "$top/system.slice" "$top/system.slice/burner.service"
		for file in "$top/cpu.shares" "$top/cpu.weight"; do
			test ! -w "$file" || echo 10000 >"$file"
		done
	done
	test -n "$made"
}

# burn NAME [CGROUP...]: as a process called NAME, which goes into these cgroups. Where that is allowed it comes before others on its CPU: by its nice value, and by that
# of its session, between which the kernel shares CPUs first (autogroup, sched(7)).
burn() {
	ln -sf /bin/sh "$dir/$1"
	shift
	nice=
	test "$(id -u)" -ne 0 || nice='nice -n -20'
	SECONDS_LONG=$seconds setsid $nice "$dir/$name" -c '
		echo -20 2>/dev/null >/proc/self/autogroup
		times=$1
		shift
		for cgroup; do echo $$ 2>/dev/null >"$cgroup/cgroup.procs"; done
		begin=$(date +%s%N)
		end=$((begin / 1000000000 + SECONDS_LONG))
		while test "$(date +%s)" -lt $end; do
			i=0
			while test $i -lt 300000; do i=$((i + 1)); done
		done
		times >"$times"
		echo $((($(date +%s%N) - begin) / 1000000)) >"$times.ms"' burn "$dir/times" "$@" &
	burner=$!
}

# The sealed incident of the rule that names the process, in words.
incident() {
	for found in "$dir"/state/incidents/*-"$rule"-[0-9]; do
		test -e "$found" && "$build/spikewatch" show --full "$found" 2>/dev/null | grep -q "$name" && echo "$found" && return
	done
	return 1
}

# Of "0m13.960000s 0m0.010000s" for itself and for its children, and of the milliseconds that passed: percent of a core.
share() {
	tr 'ms' '  ' <"$dir/times" |
		awk -v ms="$(cat "$dir/times.ms")" '{ cpu += 60 * ($1 + $3) + $2 + $4 } END { print int(100000 * cpu / ms) }'
}

# caught WHERE RULE SECONDS [CGROUP...]
caught() {
	where=$1 rule=$2 seconds=$3
	shift 3
	for _ in 1 2 3; do
		attempt=$((attempt + 1))
		name=burner-$$-$attempt
		begin=$(date +%s)
		burn "$name" "$@"
		# It is there once it is sealed: ten seconds after it fired, and more where the machine is busy.
		for _ in $(seq $((seconds + 30))); do
			found=$(incident) && break
			sleep 1
		done
		wait "$burner"
		burner=
		if test -n "$found"; then
			fired=$(date -d "$(sed -n 's/.*"utc": "\([^"]*\)".*/\1/p' "$found/incident.json" | head -n 1)" +%s)
			test $((fired - begin)) -le $((seconds + 15)) || fail "the rule fired $((fired - begin)) s after $name began"
			echo "shipped: caught one core $where"
			return
		fi
		test "$(share)" -lt $needed || fail "a process $where that had $(share) % of a core was missed"
		echo "shipped: this machine is busy: the process had $(share) % of a core, $needed are needed"
	done
	echo "shipped: SKIPPED: one core $where: this machine is too busy to burn one"
	found=
}

start_daemon
caught "outside of any service" cpu-process 45
if make_service; then
	caught "inside of a service" cpu-core 15 $(printf '%s\n' $made | grep '/burner\.service$')
	test -z "$found" || grep -q '"cgroup": "[^"]*/system\.slice/burner\.service"' "$found/incident.json" ||
		fail "the incident is not of the service"
else
	echo "shipped: SKIPPED: one core inside of a service: no cgroup can be made here"
fi
kill "$daemon"
wait "$daemon" || fail "spikewatchd ended with exit code $?"
daemon=
