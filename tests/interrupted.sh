#!/bin/sh
# The tests that are interrupted leave nothing: each is ended by a signal in the middle of its work; then none of its processes runs, nothing of it is in
# its directory for temporary files, and none of its cgroups is there. $B: where the programs are built.
set -u

build=${B:-build}
dir=$(mktemp -d) || exit 1
run=
trap 'test -z "$run" || kill "$run" 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP
mkdir "$dir/tmp"
rc=0

fail() {
	echo "interrupted: $*" >&2
	rc=1
}

# Processes that have the mark of this run in their environment, and what they are.
marked() {
	grep -lzx "SPIKEWATCH_INTERRUPTED=$$" /proc/[0-9]*/environ 2>/dev/null | while IFS=/ read -r _ _ pid _; do
		echo "$pid $(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline")"
	done
}

cgroups() {
	find /sys/fs/cgroup -maxdepth 3 -type d -name 'check-*' 2>/dev/null
}

# interrupted SIGNAL READY COMMAND...: READY says whether it is in the middle of its work.
interrupted() {
	signal=$1 ready=$2
	shift 2
	what="$* and $signal"
	cgroups >"$dir/before"
	# A shell has its background commands ignore SIGINT.
	TMPDIR="$dir/tmp" SPIKEWATCH_INTERRUPTED=$$ SPIKEWATCH_BUILD=$build B=$build CHECK_JOBS=2 \
		env --default-signal=INT "$@" >"$dir/said" 2>&1 &
	run=$!
	waited=0
	until $ready; do
		kill -0 "$run" 2>/dev/null && test $waited -lt 600 || {
			cat "$dir/said" >&2
			fail "$what: it did not come to the middle of its work"
			return
		}
		waited=$((waited + 1))
		sleep 0.1
	done
	kill -s "$signal" "$run"
	wait "$run"
	code=$?
	run=
	test $code -gt 128 || fail "$what: it ended with exit code $code"
	left=$(ls -A "$dir/tmp")
	test -z "$left" || fail "$what: these files are left: $left"
	left=$(marked)
	test -z "$left" || fail "$what: these processes are left: $left"
	# Those of other runs of the tests on this machine have the ids of their processes in their names.
	cgroups | comm -13 "$dir/before" - | while read -r cgroup; do
		test -e "/proc/${cgroup##*-}" || echo "$cgroup"
	done >"$dir/left"
	test ! -s "$dir/left" || fail "$what: these cgroups are left: $(cat "$dir/left")"
}

# A test of the suites has started a program; a script has begun to use its directory; spikewatchd runs.
program_runs() {
	marked | grep -q "/spikewatch trap"
}

file_is_there() {
	test -n "$(find "$dir/tmp" -mindepth 2)"
}

daemon_runs() {
	marked | grep -q "/spikewatchd"
}

interrupted INT program_runs "$build/check-spikewatch" trap
interrupted TERM program_runs "$build/check-spikewatch" trap
interrupted HUP file_is_there sh tests/install.sh
interrupted INT daemon_runs bash tests/demo.sh
interrupted TERM daemon_runs sh tests/shipped.sh
exit $rc
