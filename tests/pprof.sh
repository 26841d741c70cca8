#!/bin/sh
# make check-pprof: what Google's pprof, as it comes with Go, reads from known profiles (tests/programs/make_profile.c): names, values, labels, mappings
# and times must be as they were put in; and from the profiles of a real incident, whose functions must have the shares that they are known to have had. Works without a network; everything it writes goes into a directory of its own, which it removes.
set -u

build=${B:-build}
out=$(mktemp -d "${TMPDIR:-/tmp}/spikewatch-pprof.XXXXXX") || exit 1
trap 'rm -rf "$out"' EXIT
trap 'exit 130' INT TERM HUP
failed=

good() { printf '   ok: %s\n' "$*"; }
bad() { printf '   FAILED: %s\n' "$*"; failed=1; }

# pprof WORD...: of $profile; it may use nothing but what is on this machine.
profile=cpu.pb.gz
pprof() {
	env HOME="$out" PPROF_TMPDIR="$out" GOFLAGS=-mod=mod GOTOOLCHAIN=local GOPROXY=off TZ=UTC \
		go tool pprof -symbolize=none "$@" "$out/$profile" 2>"$out/stderr"
}

# says WHAT FILE LINE...: these lines stand one after the other in the file; blanks at the ends and their number do not count.
says() {
	what=$1 file=$out/$2
	shift 2
	for line in "$@"; do
		printf '%s\n' "$line"
	done >"$out/wanted"
	if awk '
		function plain(text) { gsub(/[ \t]+/, " ", text); sub(/^ /, "", text); sub(/ $/, "", text); return text }
		FILENAME == ARGV[1] { wanted[++count] = plain($0); next }
		{ have[++lines] = plain($0) }
		END {
			for (from = 1; from + count - 1 <= lines; from++) {
				for (i = 1; i <= count && have[from + i - 1] == wanted[i]; i++);
				if (i > count) exit 0
			}
			exit 1
		}' "$out/wanted" "$file"
	then
		good "$what"
	else
		bad "$what: not found in what it says:"
		sed 's/^/      /' "$out/wanted"
		echo '   which is:'
		sed 's/^/      /' "$file"
	fi
}

command -v go >/dev/null || { echo "check-pprof: no go" && exit 1; }
"$build/make_profile" "$out" || exit 1
for form in top traces raw tags; do
	pprof -$form >"$out/$form" || { bad "pprof -$form"; cat "$out/stderr"; }
done
pprof -top -sample_index=samples -tagfocus=phase=during >"$out/during" || bad "pprof with a filter"
test -s "$out/stderr" && { bad "it complains"; cat "$out/stderr"; }

server='1: 0x400000/0x500000/0x1000 /usr/lib/postgresql/15/bin/postgres 101112131415161718191a1b1c1d1e1f20212223'
says "the unit, when it began, how long it took" raw 'PeriodType: cpu nanoseconds' 'Period: 10000000' \
	'Time: 2026-11-20 03:14:52.123 +0000 UTC' 'Duration: 15s' 'Samples:' 'samples/count cpu/nanoseconds[dflt]'
says "values, and labels of a sample" raw '30 300000000: 1 2' \
	'cgroup:[/db.slice] phase:[before] process:[postgres] target:[yes] thread:[postgres]' 'process_id:[812] thread_id:[812] time:[9090 milliseconds]'
says "the same stack during the spike is another sample" raw '3 30000000: 1 2' \
	'cgroup:[/db.slice] phase:[during] process:[postgres] target:[yes] thread:[postgres]'
says "without a cgroup there is no label of it" raw '1 10000000: 5 6' \
	'phase:[before] process:[ba;sh\x0a\x1b[2J] target:[yes] thread:[ba;sh\x0a\x1b[2J]' 'process_id:[9] thread_id:[9] time:[9195 milliseconds]'
says "what was beyond the limit" raw '2 20000000: 8' 'phase:[during] process:[(other)]' 'Locations'
says "functions with their places, inlined ones innermost first" raw \
	'1: 0x402000 M=1 ExecSeqScan<int, std::less<int> > /src/scan.c:99 s=0' \
	'2: 0x401234 M=1 main /src/main.c:12 s=0' '3: 0x403000 M=1 hash_bytes /src/hash.h:21 s=0' \
	'hash_lookup /src/hash.h:55 s=0' 'spin /src/spin.c:7 s=0' '4: 0x7f0000000abc M=2' \
	'5: 0xffffffff81000010 M=3 do_nanosleep :0 s=0'
says "mappings with build ids and what is known of them" raw 'Mappings' "$server [FN][FL][LN][IN]" \
	'2: 0x7f0000000000/0x7f0000100000/0x1000 /usr/lib/libc.so.6 a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3' \
	'3: 0xffffffff81000000/0xffffffff81100000/0x1000 [kernel] [FN]'
says "the table of functions" top '500ms 51.55% 51.55% 570ms 58.76% hash_bytes (inline)' \
	'330ms 34.02% 85.57% 330ms 34.02% ExecSeqScan<int, std::less<int> >' \
	'70ms 7.22% 92.78% 70ms 7.22% [libc.so.6]' '40ms 4.12% 96.91% 40ms 4.12% [no stack]' \
	'20ms 2.06% 98.97% 20ms 2.06% (other)' '10ms 1.03% 100% 10ms 1.03% do_nanosleep' \
	'0 0% 100% 10ms 1.03% [unknown]' '0 0% 100% 570ms 58.76% hash_lookup (inline)' '0 0% 100% 900ms 92.78% main'
says "who called whom" traces '70ms [libc.so.6]' 'hash_bytes (inline)' 'hash_lookup (inline)' 'spin' 'main'
says "CPU time by thread" tags 'thread_id: Total 950.0ms' '570.0ms (60.00%): 815' '330.0ms (34.74%): 812' '50.0ms ( 5.26%): 9'
says "CPU time by process, a hostile name harmless" tags 'process: Total 970.0ms' '900.0ms (92.78%): postgres' \
	'50.0ms ( 5.15%): ba;sh\x0a\x1b[2J' '20.0ms ( 2.06%): (other)'
says "only the spike, in samples" during '50 51.55% 51.55% 57 58.76% hash_bytes (inline)' \
	'7 7.22% 58.76% 7 7.22% [libc.so.6]' '4 4.12% 62.89% 4 4.12% [no stack]' \
	'3 3.09% 65.98% 3 3.09% ExecSeqScan<int, std::less<int> >'

# folded WHAT FILE SUM LINES: as flamegraph.pl takes them apart.
folded() {
	have=$(sed -n 's/^\(.*\) \([0-9][0-9]*\)$/\2/p' "$out/$2" | awk '{ sum += $1 } END { printf "%d %d", sum, NR }')
	if [ "$have" = "$3 $4" ]; then good "$1"; else bad "$1: $have"; fi
}
folded "folded stacks have all samples" cpu.folded 97 6

# 384 + 25600 + 5120 pages: 1.5, 100 and 20 MiB.
profile=memory.pb.gz
for form in top raw tags; do
	pprof -$form >"$out/memory-$form" || { bad "pprof -$form of memory"; cat "$out/stderr"; }
done
pprof -top -unit=B -tagfocus=phase=before >"$out/memory-before" || bad "pprof with a filter, of memory"
pprof -top -sample_index=faults >"$out/memory-faults" || bad "pprof by faults"
test -s "$out/stderr" && { bad "it complains"; cat "$out/stderr"; }
says "of memory: the unit, and a page for each sample" memory-raw 'PeriodType: memory bytes' 'Period: 4096' \
	'Time: 2026-11-20 03:14:52.123 +0000 UTC' 'Duration: 15s' 'Samples:' 'faults/count memory/bytes[dflt]'
says "of memory: faults and bytes of a sample" memory-raw '25600 104857600: 3 4 2' \
	'cgroup:[/db.slice] phase:[during] process:[postgres] target:[yes] thread:[hash-join]' 'process_id:[812] thread_id:[815] time:[9960 milliseconds]'
says "of memory: sizes, if faults are not asked for" memory-top \
	'Duration: 15s, Total samples = 121.50MB'
says "of memory: the table of functions" memory-top '100MB 82.30% 82.30% 100MB 82.30% [libc.so.6]' \
	'20MB 16.46% 98.77% 120MB 98.77% build_hash' '1.50MB 1.23% 100% 1.50MB 1.23% tuplesort' \
	'0 0% 100% 121.50MB 100% main'
says "of memory: only what was before, in bytes" memory-before '1048576B 0.82% 0.82% 1048576B 0.82% tuplesort'
says "of memory: in faults" memory-faults '25600 82.30% 82.30% 25600 82.30% [libc.so.6]' \
	'5120 16.46% 98.77% 30720 98.77% build_hash'
says "of memory: by thread" memory-tags 'thread: Total 121.5MB' '120.0MB (98.77%): hash-join' '1.5MB ( 1.23%): postgres'
folded "folded stacks of memory are in bytes" memory.folded 127401984 3

# ---- the profiles of real incidents ----

# within WHAT TABLE FIRST SECOND SHARE TOLERANCE: of what a table has for two functions, has the first this share, in percent?
within() {
	# The column of shares with what they call: "1.98s 65% 65% 2.1s 69.00% burn_seventy".
	share=$(awk -v first="$3" -v second="$4" '
		$6 == first { a = $5 + 0 }
		$6 == second { b = $5 + 0 }
		END { if (a + b > 0) printf "%.1f", 100 * a / (a + b) }' "$out/$2")
	if awk -v share="${share:-0}" -v wanted="$5" -v off="$6" 'BEGIN { exit !(share > wanted - off && share < wanted + off) }'; then
		good "$1: $share %"
	else
		bad "$1: ${share:-nothing} %, $5 expected"
		sed 's/^/      /' "$out/$2"
	fi
}

# Stops itself; goes on when the daemon watches it.
workload() {
	"$build/workload_stacks" "$@" >>"$out/done" &
	pids="$pids $!"
}

# waits_for COMMAND...: a minute at most.
waits_for() {
	for _ in $(seq 600); do
		"$@" && return
		sleep 0.1
	done
	bad "waited in vain for: $*"
	return 1
}

pids=
trap 'kill -KILL $pids $daemon 2>/dev/null; rm -rf "$out"' EXIT
daemon=
mkdir "$out/run"
cat >"$out/config.json" <<END
{ "ring": { "path": "$out/run/ring", "lock": false },
  "stacks": { "mode": "dwarf", "frequency": 400, "max_memory": "256MiB" },
  "incidents": { "directory": "$out/incidents", "before": "60s", "after": "0s", "min_free": "0B", "captures": ["samples"] },
  "targets": [ { "name": "work", "comm": "workload_stacks", "per": "group" } ] }
END
both_done() { [ "$(grep -c done "$out/done")" = 2 ]; }
followed() { "$build/spikewatch" status --socket "$out/run/control" --json 2>/dev/null | grep -q '"followed_processes": *2'; }
: >"$out/done"
workload shares 3000
workload memory 600
"$build/spikewatchd" -c "$out/config.json" 2>"$out/daemon" &
daemon=$!
watched() { grep -q watching "$out/daemon"; }
sealed() { ls -d "$out"/incidents/*-work-manual-1 >/dev/null 2>&1; }
waits_for watched
if grep -q 'no stacks' "$out/daemon"; then
	echo "   skipped, of an incident: $(grep 'no stacks' "$out/daemon")"
elif ! waits_for followed; then
	bad "the workloads have no events of their own: $(cat "$out/daemon")"
else
	kill -CONT $pids
	waits_for both_done
	# Longer than the command has patience, on a machine that is busy.
	incident=$("$build/spikewatch" trigger --wait --socket "$out/run/control" work) || {
		waits_for sealed
		incident=$(echo "$out"/incidents/*-work-manual-1)
	}
	cp "$incident/cpu.pb.gz" "$out/real-cpu.pb.gz"
	cp "$incident/memory.pb.gz" "$out/real-memory.pb.gz"
	# Others have samples, too, and of a table the rows that are not the largest are left out.
	ours="-top -nodefraction=0 -nodecount=1000 -relative_percentages -tagfocus=process=workload_stacks"
	profile=real-cpu.pb.gz
	pprof $ours >"$out/real-cpu" || { bad "pprof of an incident"; cat "$out/stderr"; }
	# Five standard deviations and more: of 1,200 samples by 400 Hz in three seconds, and of 600 by each 253rd of 153,600 page faults.
	within "of an incident: the functions that burned, 70:30" real-cpu burn_seventy burn_thirty 70 8
	profile=real-memory.pb.gz
	pprof $ours >"$out/real-memory" || { bad "pprof of an incident's memory"; cat "$out/stderr"; }
	within "of an incident: what grew, 3:1" real-memory grow_three grow_one 75 10
fi

[ -z "$failed" ] && printf '\ncheck-pprof: all held\n' || printf '\ncheck-pprof: FAILED\n'
[ -z "$failed" ]
