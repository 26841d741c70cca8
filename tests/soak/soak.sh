#!/usr/bin/env bash
# Long runs of the real daemon, with everything switched on: stacks, page faults, hooks, second snapshots, histories.
#
#   soak.sh run LENGTH_S [FORKS_PER_S]   make soak SECONDS=7200: beside a storm of forks, clients that talk nonsense and
#                                        neighbours that are hard to read (tests/programs/workload_soak.c); a reload each
#                                        20 s, and an incident each minute of a process that tells what it did
#   soak.sh kill ROUNDS                  make soak KILLS=1000: the daemon is killed (SIGKILL) at any time within its first
#                                        two seconds, while incidents open and are sealed, and started again; each
#                                        next one must have what its ring held up to the last tick that was published
#
# Every incident is looked at once, soon after it was sealed: `spikewatch verify`, and its rows against what a process can
# have done (CPU time never steps back, never grows faster than its threads could use it, but for 0.2 s of a group whose
# members are known by their ends only, or for as long as the row says they were late (cpu_late); memory of the one that
# tells within what it took). At the end a table: each line is what was measured, its bound, and ok or MISSED. Exit code: 0
# when no line was missed. Needs no root; without it there are fewer kernel-side parts and the neighbours are of the same user.
# While a file system does not answer, ps(1) and all else that reads command lines waits on the whole machine: that is so for
# a minute of each ten, with root. KEEP=DIR keeps everything. CPU time: some 10 % of a core for the daemon and 20 % for the
# rest, at 2,000 forks a second.
set -u
LC_ALL=C
export LC_ALL

build=${B:-build}
out=$(mktemp -d "${TMPDIR:-/tmp}/spikewatch-soak.XXXXXX") || exit 1
chmod 755 "$out"
export SOAK_TAG=sk$(($$ % 10000))
daemon_pid=
workloads=()
cgroup= # of ours, where cgroups come and go
missed=0

cleanup() {
	[ -n "$daemon_pid" ] && kill "$daemon_pid" 2>/dev/null
	[ -n "${hang_pid:-}" ] && kill "$hang_pid" 2>/dev/null
	[ ${#workloads[@]} -gt 0 ] && kill "${workloads[@]}" 2>/dev/null
	wait
	if [ -n "${KEEP:-}" ]; then cp -r "$out" "$KEEP"; fi
	[ -n "$cgroup" ] && rmdir "$cgroup"/c* "$cgroup" 2>/dev/null
	rm -rf "$out"
	rm -f "${perf_map:-}"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

# What is built may change meanwhile.
mkdir "$out/bin" "$out/own" "$out/incidents" "$out/theirs" || exit 1
cp "$build/spikewatchd" "$build/spikewatch" "$build/spikewatch-symbolize" "$build/workload_soak" "$out/bin/" || exit 1
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	as_neighbour=(setpriv --reuid 65534 --regid 65534 --clear-groups)
	chown 65534:65534 "$out/theirs"
else
	as_neighbour=()
fi

KEPT=60

# configure COOLDOWN AFTER HOSTILE_RULES
configure() {
	cat >"$out/own/next.json" <<-END
	{
	 "ring": { "path": "$out/own/ring", "size": "8MiB" },
	 "sampling": { "cpu_budget": "30%", "source": "${SOURCE:-kernel}" },
	 "incidents": { "directory": "$out/incidents", "min_free": "0B", "before": "1s", "after": "$2", "max_per_hour": 0,
	                "max_count": $KEPT },
	 "state_file": "$out/own/state.json",
	 "stacks": { "mode": "dwarf" },
	 "targets": [
	  { "name": "spikes", "comm": "$SOAK_TAG-spikes", "again": "200ms",
	    "run": [ { "name": "hook", "command": [ "$out/bin/workload_soak", "ends" ] } ] },
	  { "name": "forks", "comm": "$SOAK_TAG-forks", "per": "group" },
	  { "name": "hostile", "comm": "$SOAK_TAG-hostile" } ],
	 "rules": [
	  { "name": "taken", "targets": [ "spikes" ], "metric": "memory_bytes", "above": "16MiB", "window": "100ms", "warmup": 0,
	    "cooldown": "$1", "rearm": "below" },
	  { "name": "grown", "targets": [ "spikes" ], "metric": "cpu", "of": "core", "delta": "400%", "minimum": "50%",
	    "window": "200ms", "history": 10, "cooldown": "2m" }$3
	 ]
	}
	END
	mv "$out/own/next.json" "$out/own/config.json"
}

# start_daemon: in a session of its own, as a service, since the scheduler shares CPUs among sessions first; returns when it
# samples
start_daemon() {
	: >"$out/own/log.now"
	setsid "$out/bin/spikewatchd" -c "$out/own/config.json" 2>>"$out/own/log.now" &
	daemon_pid=$!
	for _ in $(seq 300); do
		grep -q 'watching ' "$out/own/log.now" && return
		kill -0 "$daemon_pid" 2>/dev/null || break
		sleep 0.05
	done
	echo "soak: FAILED: the daemon did not start:"
	tail -n 5 "$out/own/log.now"
	exit 1
}

# told MEMBER: a number of the status, or nothing when there was no answer
told() {
	sed -n "s/^ *\"$1\": \\([0-9.]*\\),*\$/\\1/p" "$out/status" | head -n 1
}

# check_rows ID: prints what is wrong with the rows of an incident
check_rows() {
	local named
	if [ ! -e "$out/incidents/$1/samples.tsv" ]; then
		if [ ! -d "$out/incidents/$1" ]; then return; fi # the limit of incidents has removed it meanwhile
		named=$(sed -n 's/.*"why": "the daemon was killed before they were written; they are in incident \([^ "]*\)".*/\1/p' \
			"$out/incidents/$1/incident.json")
		[ -n "$named" ] || echo "no samples, and no word of where they are"
		[ -z "$named" ] || [ -e "$out/incidents/$named/samples.tsv" ] ||
			echo "its samples are to be in $named, which is not there"
		return
	fi
	"$out/bin/spikewatch" export -f csv "$out/incidents/$1" 2>/dev/null | awk -F, -v cpus="$(nproc)" '
		NR == 1 { for (i = 1; i <= NF; i++) { sub(/\[.*/, "", $i); at[$i] = i }; next }
		{ target = $at["target"]; cpu = $at["cpu"]; when = $at["since_firing"]
		  cores = target ~ /spikes/ ? 1 : cpus; most = target ~ /spikes/ ? 64 : 256 }
		{ late = "cpu_late" in at ? $at["cpu_late"] : 0 }
		$at["memory"] > most * 1048576 { print target ": memory of " $at["memory"] " at " when }
		cpu == "" { next }
		target in last && cpu < last[target] { print target ": CPU time steps back at " when }
		target in last && cpu - last[target] > (when - since[target] + late) * cores * 1.01 + (target ~ /forks/ ? 200000000 : 10000000) \
			{ print target ": CPU time of " cpu - last[target] " ns in " when - since[target] " ns at " when }
		{ last[target] = cpu; since[target] = when }
		END { if (NR < 2) print "no rows" }'
	[ -z "$(find "$out/incidents/$1" -type f -size 0)" ] || echo "empty files"
}

: >"$out/seen"
: >"$out/wrong"
# Looks at every incident that was not looked at before.
check_incidents() {
	local path id
	for path in "$out"/incidents/2*; do
		id=${path##*/}
		case $id in *.tmp | '2*') continue ;; esac
		grep -qxF "$id" "$out/seen" && continue
		echo "$id" >>"$out/seen"
		if ! "$out/bin/spikewatch" verify -q "$path" 2>/dev/null && [ -d "$path" ]; then
			echo "$id: $("$out/bin/spikewatch" verify "$path" 2>&1 | tail -n +2 | tr '\n' ' ')" >>"$out/wrong"
		fi
		check_rows "$id" | head -n 3 | sed "s/^/$id: /" >>"$out/wrong"
	done
}

# line WHAT MEASURED BOUND VERDICT
line() {
	printf '%-62s %14s %16s  %s\n' "$1" "$2" "$3" "$4"
	if [ "$4" != ok ]; then missed=1; fi
}

# bounded WHAT MEASURED BOUND
bounded() {
	line "$1" "$2" "<= $3" "$(awk -v a="$2" -v b="$3" 'BEGIN { print (a != "" && a <= b) ? "ok" : "MISSED" }')"
}

# column N FROM TO: the median of a column of the measurements that were taken in [FROM, TO) seconds
column() {
	awk -v n="$1" -v from="$2" -v to="$3" '$1 >= from && $1 < to { print $n }' "$out/measured" | sort -n |
		awk '{ all[NR] = $1 } END { if (NR) print all[int((NR + 1) / 2)] }'
}

# flat WHAT COLUMN GRAIN: the last quarter of what came after settling against the first, a twentieth and GRAIN above it at most
flat() {
	local rest=$((length - settle)) first last
	first=$(column "$2" $settle $((settle + rest / 4 + 1)))
	last=$(column "$2" $((length - rest / 4 - 1)) $((length + 60)))
	line "$1" "$first -> $last" "+5 % and $3" \
		"$(awk -v a="$first" -v b="$last" -v g="$3" 'BEGIN { print (a && b && b <= a * 1.05 + g) ? "ok" : "MISSED" }')"
}

# Spikes that were over by the time $1, and have no incident that was sealed and fired while they lasted.
count_lost_spikes() {
	awk -v before="$1" 'function stamp(ns, more) { return strftime("%Y%m%dT%H%M%S", int(ns / 1e9) + more, 1) }
		FILENAME ~ /log.now$/ {
			if (/sealed incident .*-spikes_/ && match($0, /[0-9]+T[0-9.]+/)) fired[++n] = substr($0, RSTART, RLENGTH)
			next
		}
		$3 / 1e9 > before { next }
		{ hit = 0
		  for (i = 1; i <= n; i++) hit = hit || (fired[i] >= stamp($2, -1) && fired[i] <= stamp($3, 2))
		  lost += !hit }
		END { print lost + 0 }' "$out/own/log.now" "$out/truth"
}

# In KiB.
resident_without_ring() {
	awk -v ring="$out/own/ring" '/^[0-9a-f]+-/ { other = $6 != ring } other && /^Rss:/ { sum += $2 } END { print sum + 0 }' \
		"/proc/$daemon_pid/smaps"
}

# After a minute of incidents and at the end: of the median of each minute.
report_memory_of_incidents() {
	local begin first last
	begin=$(awk '$6 > 0 { print $1; exit }' "$out/measured")
	first=$(column 11 "${begin:-0}" $((${begin:-0} + 60)))
	last=$(column 11 $((length - 60)) "$length")
	bounded "resident memory without the ring, KiB, $first in the first minute" "$last" "$(awk -v a="$first" 'BEGIN { print int(a * 1.3) }')"
	bounded "resident memory, the most, with the ring, KiB" "$(awk '$12 > max { max = $12 } END { print max + 0 }' "$out/measured")" 98304
}

# Of each HANG_EACH_S seconds files do not answer for HANG_S.
HANG_S=60 HANG_EACH_S=600
hang_pid=
hangs=0
hang_turns() {
	local now=$1
	if [ -n "$hang_pid" ] && ! kill -0 "$hang_pid" 2>/dev/null; then end_hang; fi
	if [ -z "$hang_pid" ] && [ "$(id -u)" = 0 ] && [ "$now" -ge $next_hang ]; then
		"$out/bin/workload_soak" unanswered $HANG_S "$hangs" &
		hang_pid=$!
		next_hang=$((now + HANG_EACH_S))
	elif [ -n "$hang_pid" ] && [ "$now" -ge $((next_hang - HANG_EACH_S + HANG_S + 20)) ]; then
		end_hang
	fi
}

# What waits for its files fails then.
end_hang() {
	[ -n "$hang_pid" ] || return
	kill "$hang_pid" 2>/dev/null
	wait "$hang_pid" && hangs=$((hangs + 1))
	hang_pid=
}

measure() {
	local at=$1 fds
	"$out/bin/spikewatch" status --json --brief --socket "$out/own/control" >"$out/status" 2>/dev/null || refused=$((refused + 1))
	fds=$(find "/proc/$daemon_pid/fd" -mindepth 1 2>/dev/null | wc -l)
	awk -v at="$at" -v fds="$fds" -v own="$(resident_without_ring)" -v files="$(find "$out/own" -type f | wc -l)" \
		-v kept="$(find "$out/incidents" -maxdepth 1 -name '2*' ! -name '*.tmp' | wc -l)" \
		-v capture="$(told capture_percent)" -v cpu="$(told cpu_percent)" -v slots="$(told snapshots)" \
		-v missed="$(told missed_slots)" -v source="$(sed -n 's/^ *"source": "\([a-z]*\)".*/\1/p' "$out/status" | head -n 1)" '
		/^VmRSS/ { rss = $2 } /^VmHWM/ { most = $2 } /^Threads/ { threads = $2 }
		END { print at, rss, fds, threads, files, kept, capture, cpu, slots, missed, own, most, source }' \
		"/proc/$daemon_pid/status" >>"$out/measured" 2>/dev/null
}

run() {
	length=$1
	local forks=${2:-2000} begin=$EPOCHSECONDS now reload=0 reloads=0 reloads_failed=0 next_trigger=60 next_hang=30
	# What is taken once (tables that grow to their size, caches, the spool) is taken by then.
	settle=$((length >= 1800 ? 600 : length / 3))
	refused=0

	local hostile=',
	  { "name": "near", "targets": [ "hostile" ], "metric": "memory_bytes", "above": "40MiB", "window": "100ms", "warmup": 0,
	    "cooldown": "30s", "rearm": "cooldown" },
	  { "name": "busy", "targets": [ "hostile" ], "metric": "threads", "above": 500, "window": "1s", "cooldown": "1m" },
	  { "name": "storm", "targets": [ "forks" ], "metric": "cpu", "of": "core", "percent": "1%", "window": "1s",
	    "cooldown": "1m" }'
	configure 5s 500ms "$hostile"
	# The service manager's socket is full most of the time; its watchdog wants a sign each 20 s.
	"$out/bin/workload_soak" manager "$out/own/notify" >"$out/told" &
	workloads+=($!)
	until [ -e "$out/own/notify" ]; do sleep 0.05; done
	NOTIFY_SOCKET=$out/own/notify WATCHDOG_USEC=20000000 start_daemon
	"$out/bin/workload_soak" spikes $((length >= 240 ? 60000 : 10000)) 1500 32 >"$out/truth" &
	workloads+=($!)
	"$out/bin/workload_soak" forks "$forks" &
	workloads+=($!)
	"$out/bin/workload_soak" flood "$out/own/control" &
	workloads+=($!)
	"${as_neighbour[@]}" "$out/bin/workload_soak" hostile "$out/theirs" &
	workloads+=($!)
	if [ "$(id -u)" = 0 ]; then
		cgroup=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
		cgroup=${cgroup:+$cgroup/$SOAK_TAG}
	fi
	if [ -n "$cgroup" ] && mkdir "$cgroup"; then
		"$out/bin/workload_soak" cgroups "$cgroup" &
		workloads+=($!)
	fi

	while now=$((EPOCHSECONDS - begin)) && [ $now -lt "$length" ]; do
		if ! kill -0 "$daemon_pid" 2>/dev/null; then
			echo "soak: FAILED: the daemon ended after $now s:"
			tail -n 5 "$out/own/log.now"
			exit 1
		fi
		hang_turns $now
		measure $now
		check_incidents
		if [ $((now / 20)) -gt $reload ]; then
			reload=$((now / 20))
			configure $((5 + reload % 2))s $((500 + reload % 2 * 100))ms "$([ $((reload % 3)) = 0 ] || echo "$hostile")"
			reloads=$((reloads + 1))
			"$out/bin/spikewatch" reload --socket "$out/own/control" >/dev/null 2>"$out/reload" ||
				{ reloads_failed=$((reloads_failed + 1)) && cat "$out/reload"; }
		fi
		if [ $now -ge $next_trigger ]; then
			next_trigger=$((next_trigger + 60))
			"$out/bin/spikewatch" trigger --socket "$out/own/control" >/dev/null 2>&1
		fi
		sleep 5
	done

	end_hang
	kill "${workloads[@]}" 2>/dev/null
	workloads=()
	sleep 5
	check_incidents
	measure $((EPOCHSECONDS - begin))
	local asked=$EPOCHSECONDS stopped
	kill "$daemon_pid"
	wait "$daemon_pid"
	stopped=$?
	daemon_pid=

	echo "soak: $length s with $forks forks a second; bounds of growth hold from $settle s on"
	printf '%-62s %14s %16s  %s\n' what measured bound verdict
	flat "resident memory, KiB" 2 $((length >= 1800 ? 1024 : 16384)) # a short run has hardly settled
	report_memory_of_incidents
	flat "descriptors" 3 8
	flat "threads" 4 0
	flat "files beside the incidents" 5 0
	if [ $hangs -gt 0 ]; then
		line "times that files did not answer, $HANG_S s of each $HANG_EACH_S" $hangs "> 0" ok
	else
		echo "skipped: files that do not answer: that needs root, and FUSE"
	fi
	bounded "incidents kept" "$(awk '$6 > max { max = $6 } END { print max + 0 }' "$out/measured")" $((KEPT + 1)) # one that was just sealed
	bounded "drafts that were left" "$(find "$out/incidents" -name '*.tmp' | wc -l)" 0
	line "incidents that were looked at" "$(wc -l <"$out/seen")" "> 0" "$([ -s "$out/seen" ] && echo ok || echo MISSED)"
	bounded "of these damaged, or with rows that cannot be" "$(wc -l <"$out/wrong")" 0
	bounded "spikes without an incident, of $(wc -l <"$out/truth")" "$(count_lost_spikes $((EPOCHSECONDS - 10)))" 0
	bounded "slots missed after settling, %" "$(awk -v from=$settle '$1 >= from && !s { s = $9; m = $10 } $9 { t = $9; l = $10 }
		END { if (t > s) printf "%.3f", 100 * (l - m) / (t - s + l - m) }' "$out/measured")" 1
	bounded "reloads that were refused, of $reloads" $reloads_failed 0
	bounded "questions without an answer, of $(wc -l <"$out/measured")" $refused 0
	[ "${SOURCE:-kernel}" = files ] || line "looks at which CPU time came from the kernel, of $(wc -l <"$out/measured")" \
		"$(grep -c ' kernel$' "$out/measured")" "> 0" "$(grep -q ' kernel$' "$out/measured" && echo ok || echo MISSED)"
	line "signs of life at a socket that another fills" "$(grep -c 'WATCHDOG=1' "$out/told")" "> 0" \
		"$(grep -q 'WATCHDOG=1' "$out/told" && echo ok || echo MISSED)"
	bounded "seconds between two of them" "$(awk '/WATCHDOG=1/ { if (at && $1 - at > most) most = $1 - at; at = $1 }
		END { print most + 0 }' "$out/told")" 20
	bounded "CPU of the daemon, % of a core, median" "$(column 8 $settle $((length + 60)))" 30
	bounded "seconds to stop" $((EPOCHSECONDS - asked)) 60
	bounded "exit code" $stopped 0
	head -n 20 "$out/wrong"
}

# Processes of ours that outlive the daemon: its keeper, the symboliser, commands.
count_orphans() {
	local count=0 path
	for path in /proc/[0-9]*; do
		case $(readlink "$path/exe" 2>/dev/null) in
		"$out/bin/spikewatch"*) count=$((count + 1)) ;;
		esac
	done
	echo $count
}

# published_by RING: how many ticks it has, and the time of the last one; docs/ring.md has the offset
published_by() {
	[ ! -e "$1" ] || od -An -t u8 -j 192 -N 16 "$1"
}

# check_recovered TICKS LAST: the daemon that was just started has saved all ticks up to this one
check_recovered() {
	local id json last
	[ "${1:-0}" -gt 0 ] || return
	grep -q 'its ring held no sample' "$out/own/log.now" && return
	id=$(sed -n 's/.*what its ring held is incident \([^ ]*\).*/\1/p' "$out/own/log.now" | head -n 1)
	json=$out/incidents/$id/incident.json
	if [ -z "$id" ] || [ ! -e "$json" ]; then
		echo "no incident of a ring of $1 ticks"
		return
	fi
	last=$(sed -n 's/^ *"monotonic_ns": \([0-9]*\),*$/\1/p' "$json" | head -n 1)
	[ "$last" = "$2" ] || echo "$id: ends at $last, the ring at $2"
	grep -q '"lost_pages": 0' "$json" || echo "$id: pages are lost"
}

kill_rounds() {
	local rounds=$1 round orphans=0 published='' looks=0 begin=$EPOCHSECONDS
	KEPT=1000
	configure 300ms 300ms ''
	: >"$out/lost"
	"$out/bin/workload_soak" spikes 500 100 32 >"$out/truth" &
	workloads+=($!)
	for round in $(seq "$rounds"); do
		start_daemon
		# shellcheck disable=SC2086 # two numbers
		check_recovered $published >>"$out/lost"
		sleep "$((RANDOM % 2)).$(printf %03d $((RANDOM % 1000)))"
		if [ $((round % 10)) = 0 ]; then
			"$out/bin/spikewatch" status --json --brief --socket "$out/own/control" >"$out/status" 2>/dev/null
			grep -q '"source": "kernel"' "$out/status" && looks=$((looks + 1))
		fi
		kill -9 "$daemon_pid"
		wait "$daemon_pid" 2>/dev/null
		published=$(published_by "$out/own/ring")
		grep -hE 'adopted|killed|left behind|recovered|damaged|another' "$out/own/log.now" >>"$out/said"
		if [ $((round % 10)) = 0 ]; then
			sleep 1
			orphans=$((orphans + $(count_orphans)))
			check_incidents
			find "$out/incidents" -mindepth 1 -maxdepth 1 -name '2*' ! -name '*.tmp' -exec rm -rf {} +
		fi
	done
	start_daemon
	# shellcheck disable=SC2086
	check_recovered $published >>"$out/lost"
	sleep 2
	kill "${workloads[@]}"
	workloads=()
	sleep 2
	kill "$daemon_pid"
	wait "$daemon_pid"
	local stopped=$?
	daemon_pid=
	check_incidents

	echo "soak: $rounds times killed and started again, in $((EPOCHSECONDS - begin)) s"
	printf '%-62s %14s %16s  %s\n' what measured bound verdict
	line "incidents that were looked at" "$(wc -l <"$out/seen")" "> 0" "$([ -s "$out/seen" ] && echo ok || echo MISSED)"
	bounded "of these damaged, or with rows that cannot be" "$(wc -l <"$out/wrong")" 0
	bounded "drafts that were left" "$(find "$out/incidents" -name '*.tmp' | wc -l)" 0
	bounded "rings whose ticks are not all in an incident" "$(wc -l <"$out/lost")" 0
	bounded "processes of ours a second after a kill, in $((rounds / 10)) looks" $orphans 0
	bounded "starts that found the kernel's accounts in use" "$(grep -c 'another spikewatch' "$out/said")" 0
	[ "${SOURCE:-kernel}" = files ] || line "looks at which CPU time came from the kernel, of $((rounds / 10))" "$looks" "> 0" \
		"$([ $looks -gt 0 ] && echo ok || echo MISSED)"
	bounded "exit code of the last one" $stopped 0
	sort "$out/wrong" "$out/lost" | head -n 20
}

case ${1:-} in
run) run "$2" "${3:-2000}" ;;
kill) kill_rounds "$2" ;;
*)
	echo "usage: soak.sh run LENGTH_S [FORKS_PER_S] | kill ROUNDS" >&2
	exit 2
	;;
esac
exit $missed
