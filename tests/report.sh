#!/bin/sh
# make check-report: reports of made incidents (tests/programs/make_incident.c), and of a real one if the demo's workload can be recorded here, opened in a
# headless Chromium without a network (tests/report.mjs); and their files taken out again. Everything is in a directory of its own, which is removed;
# KEEP=DIR keeps a copy, with pictures of the pages.
set -u

build=${B:-build}
out=$(mktemp -d "${TMPDIR:-/tmp}/spikewatch-report.XXXXXX") || exit 1
daemon=
trap '[ -n "$daemon" ] && kill "$daemon" 2>/dev/null; [ -n "${KEEP:-}" ] && cp -r "$out" "$KEEP"; rm -rf "$out"' EXIT
trap 'exit 130' INT TERM HUP

good() { printf '   ok: %s\n' "$*"; }
fail() {
	printf '   FAILED: %s\n' "$*"
	exit 1
}

# A spike of the demo's workload, as the daemon records it.
record() {
	mkdir -p "$out/real"
	sed "s|^{|{ \"state_file\": \"$out/state.json\",|
	     s|\"lock\": false|\"lock\": false, \"path\": \"$out/ring\"|
	     s|\"before\": \"3s\"|\"directory\": \"$out/real\", \"before\": \"3s\"|
	     s|\"80%\"|\"20%\"|" conf/demo.json >"$out/demo.json"
	"$build/spikewatchd" -c "$out/demo.json" >"$out/daemon.log" 2>&1 &
	daemon=$!
	"$build/workload_demo" >"$out/workload.log" 2>&1
	sleep 2
	kill "$daemon" && wait "$daemon"
	daemon=
	set -- "$out"/real/*-cpu-*
	test -e "$1/MANIFEST" || fail "the daemon has recorded no spike, see its log: $(tail -3 "$out/daemon.log")"
	real=$1
}

# A spike of memory, of a shell and what it has started, and which has it until all is captured.
grow() {
	"$build/spikewatch" trap --memory 24M -t 30 --after 1s -o "$out/grown" -- sh -c 'sleep 2
		{ head -c 96000000 /dev/zero; sleep 4; } | tail -n 1 >/dev/null' >"$out/grown.log" 2>&1
	set -- "$out"/grown/*-memory-*
	test -e "$1/MANIFEST" || fail "no spike of memory was caught: $(tail -3 "$out/grown.log")"
	memory=$1
}

# page INCIDENT NAME CODE: writes the page.
page() {
	"$build/spikewatch" report "$1/" -o "$out/$2.html" >"$out/said"
	test $? -eq "$3" || fail "report of $2: $(cat "$out/said")"
	good "$2: $(du -b "$1" | cut -f1) bytes of incident, a page of $(wc -c <"$out/$2.html")"
}

# back INCIDENT NAME: takes the incident out of the page again.
back() {
	"$build/spikewatch" export "$out/$2.html" -o "$out/$2.again" >"$out/said" 2>&1
	diff -r "$1" "$out/$2.again" >"$out/diff" || fail "$2: not as it was: $(cat "$out/diff")"
	good "$2: out of the page it is as it was, bit for bit"
}

"$build/make_incident" "$out" >"$out/made" || fail "no incidents: $(cat "$out/made")"
record
grow
page "$out/hostile" hostile 0
page "$out/everything" everything 0
page "$out/bare" bare 1
page "$real" real 0
page "$memory" memory 0

back "$out/hostile" hostile
back "$out/everything" everything
back "$out/bare" bare
back "$real" real

"$build/spikewatch" diff "$out/hostile/" --html -o "$out/diff-one.html" >"$out/said" 2>&1 || fail "diff of one: $(cat "$out/said")"
"$build/spikewatch" diff "$out/hostile/" "$real/" --html -o "$out/diff-two.html" >"$out/said" 2>&1 || fail "diff of two: $(cat "$out/said")"

TZ=UTC "$build/spikewatch" history -d "$out/minutes" --since 2026-11-23T12:00 --until 2026-11-23T13:30 --html "$out/history.html" >"$out/said" 2>&1 ||
	fail "history: $(cat "$out/said")"

# In a network of its own, where that is allowed: nothing could be fetched, whatever the page tried.
alone=
unshare -n true 2>/dev/null && alone='unshare -n'
$alone node tests/report.mjs "$out" || fail 'see above'
