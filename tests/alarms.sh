#!/bin/sh
# False alarms of the shipped rules, and what they must catch: make check-alarms
#
# A web server, a database, a build and jobs as cron starts them are recorded side by side, each as the
# sum that its service would be, for MINUTES. Each recording is repeated until it is a day long, and
# the shipped rules are replayed over it: all four together may open BUDGET incidents. What a service
# does at other hours is not in minutes of it: a day made of them says that what comes again is
# usual to the rules, not that nothing else will fire.
#
# Then each anomaly follows an hour of a quiet service, and must fire.
#
# RECORDINGS=DIR keeps what was recorded, or replays it if it is there (.tsv, .tsv.gz): make check does
# so with those of tests/data/alarms, over ALARM_DAY seconds, of which ALARM_BUDGET is known.
set -u
B=${B:-build}
SECONDS_EACH=${ALARM_SECONDS:-150}
BUDGET=${ALARM_BUDGET:-5}
DAY=${ALARM_DAY:-86400}
AFTER=10 # "incidents.after": what fires on a target so soon after another is part of that incident
missed=0
dir=$(mktemp -d) || exit 1
kept=${RECORDINGS:-$dir/recordings}
started=
trap 'kill $started 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM HUP
mkdir -p "$kept" || exit 1
there=$(ls "$kept")
for packed in "$kept"/*.tsv.gz; do
	[ -e "$packed" ] || continue
	mkdir -p "$dir/unpacked"
	gzip -dc "$packed" >"$dir/unpacked/$(basename "$packed" .gz)" || exit 1
done
[ ! -d "$dir/unpacked" ] || kept=$dir/unpacked

here=$(cd "$B" && pwd)
record() { # NAME COMMAND...: all that it starts, as a sum
	name=$1
	shift
	# timeout(1) ends all of it.
	"$here/spikewatch" record -q -f gvisor -i 100ms -d "$SECONDS_EACH"s -o "$kept/$name.tsv" -- \
		timeout -k 5 "$SECONDS_EACH" "$@" \
		>"$dir/$name.out" 2>&1 &
	started="$started $!"
}

have() { command -v "$1" >/dev/null 2>&1; }

# ---- loads ----

web() {
	have python3 || return 1
	mkdir "$dir/www"
	head -c 200000 /dev/urandom >"$dir/www/page"
	record web python3 -c 'if True:
		import http.server, os
		os.chdir("'"$dir"'/www")
		class Quiet(http.server.SimpleHTTPRequestHandler):
			def log_message(self, *what): pass
		server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
		open("../port", "w").write(str(server.server_port))
		server.serve_forever()'
	# Visitors come in waves: a few a second, for some seconds as many as are answered.
	python3 - "$dir/port" "$SECONDS_EACH" >/dev/null 2>&1 <<'P' &
import random, sys, threading, time, urllib.request
end = time.time() + float(sys.argv[2]) - 2
random.seed(1)
time.sleep(2)
url = "http://127.0.0.1:%s/page" % open(sys.argv[1]).read()
def visit(pause, until):
	while time.time() < until:
		urllib.request.urlopen(url).read()
		time.sleep(pause)
while time.time() < end:
	until = min(time.time() + random.uniform(2, 15), end)
	visitors = [threading.Thread(target=visit, args=(random.choice([0.2, 0.01, 0]), until)) for _ in range(random.choice([1, 2, 6]))]
	for visitor in visitors: visitor.start()
	for visitor in visitors: visitor.join()
P
	started="$started $!"
}

db() {
	pg=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1)
	[ -n "$pg" ] && have pgbench || return 1
	run=
	chmod 755 "$dir"
	mkdir "$dir/db"
	if [ "$(id -u)" = 0 ]; then
		id postgres >/dev/null 2>&1 || return 1
		chown postgres "$dir/db"
		run="setpriv --reuid postgres --regid postgres --clear-groups"
	fi
	$run "$pg/initdb" -D "$dir/db" -A trust >"$dir/initdb.out" 2>&1 || return 1
	record db $run "$pg/postgres" -D "$dir/db" -c listen_addresses= -c unix_socket_directories="$dir/db" -c fsync=off
	(
		user=$(stat -c %U "$dir/db")
		sleep 2
		pgbench -h "$dir/db" -U "$user" -i -s 10 postgres
		# Some clients all the time; a report now and then.
		pgbench -h "$dir/db" -U "$user" -c 4 -R 400 -T "$SECONDS_EACH" postgres &
		while sleep 17; do
			psql -h "$dir/db" -U "$user" postgres -c "select count(*) from (select * from pgbench_accounts order by filler, aid desc) x"
		done
	) >/dev/null 2>&1 &
	started="$started $!"
}

build() {
	have cc || return 1
	mkdir "$dir/src"
	i=0
	while [ $i -lt 12 ]; do
		{
			echo "#include <stdio.h>"
			j=0
			while [ $j -lt 1000 ]; do
				echo "int f${i}_$j(int a) { for (int i = 0; i < a; i++) a += (a * $j) ^ (i % 7); return printf(\"%d\", a); }"
				j=$((j + 1))
			done
		} >"$dir/src/f$i.c"
		i=$((i + 1))
	done
	# A commit every half minute or so, built by two compilers.
	record build env CCACHE_DISABLE=1 sh -c "cd '$dir/src' && while :; do ls f*.c | xargs -P 2 -n 1 cc -O2 -c; rm -f *.o; sleep 20; done"
}

cron() {
	head -c 30000000 /dev/urandom >"$dir/data"
	record cron sh -c "while :; do
		gzip -c '$dir/data' >/dev/null; sleep 14
		for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sha256sum '$dir/data'; gzip -1 -c '$dir/data'; done >/dev/null; sleep 11
		find /usr -name '*.h' | sort | wc -l >/dev/null; sleep 9
	done"
}

# ---- a day of them ----

# The firings of a replay, as incidents: one rule a line, of several that fall together the first.
incidents() { # NAME
	awk -v after=$AFTER -v name="$1" '
		$1 ~ /^[0-9]+-[0-9]+-[0-9]+$/ {
			split($2, t, /[:+]/)
			at = t[1] * 3600 + t[2] * 60 + t[3]
			if ($1 != day) base += (day == "" ? 0 : 86400)
			day = $1
			at += base
			if (seen && at <= last + after) next
			seen = 1
			last = at
			print name, $3, substr($0, index($0, $3))
		}' "$dir/$1.fired"
}

replay() { # NAME
	"$here/spikewatch" replay -c conf/spikewatch.json --as services "$dir/$1.long" >"$dir/$1.fired" 2>"$dir/$1.err"
}

# Used on average.
cores() { # NAME
	awk -F'\t' '$1 == "GVISOR_METRICS" && $2 ~ /^[0-9]+$/ { if (!n++) { t = $2; c = $3 }; T = $2; C = $3 }
		END { if (T > t) printf "%.2f", (C - c) / (T - t) }' "$kept/$1.tsv"
}

line() { # WHAT VALUE BUDGET VERDICT
	printf '%-52s %12s %14s  %s\n' "$1" "$2" "$3" "$4"
	[ "$4" = ok ] || missed=$((missed + 1))
}

quiet='
import sys, time
def busy(seconds):
	end = time.time() + seconds
	while time.time() < end: pass
end = time.time() + float(sys.argv[1])
keep = []
while time.time() < end:
	busy(0.005)
	time.sleep(0.1)
'
anomalies() {
	SECONDS_EACH=12
	record calm python3 -c "$quiet" 12
	record loop python3 -c "$quiet
busy(10)" 0
	record grown python3 -c "$quiet
keep.append(bytearray(b'x') * (500 << 20))
time.sleep(10)" 2
	sleep 14
}

if [ -z "$there" ]; then
	for load in web db build cron; do
		$load || echo "skipped: $load: what it needs is not here"
	done
	sleep "$((SECONDS_EACH + 2))"
	have python3 && anomalies
fi
total=0
for load in web db build cron; do
	[ -s "$kept/$load.tsv" ] || continue
	# How each begins is not what it does all day.
	"$here/stretch_stream" "$kept/$load.tsv" 20 $DAY >"$dir/$load.long" || exit 1
	replay "$load"
	incidents "$load" >"$dir/$load.incidents"
	count=$(wc -l <"$dir/$load.incidents")
	echo "$load: $(cores "$load") cores on average; incidents in $((DAY / 3600)) h of it: $count"
	sed 's/^/    /' "$dir/$load.incidents"
	total=$((total + count))
	rm -f "$dir/$load.long"
done
line "incidents in $((DAY / 3600)) h, all loads together" "$total" "<= $BUDGET" "$([ $total -le $BUDGET ] && echo ok || echo MISSED)"

# ---- what must be caught ----

if [ -s "$kept/calm.tsv" ]; then
	for what in loop grown; do
		"$here/stretch_stream" "$kept/calm.tsv" 1 3600 "$kept/$what.tsv" 0 1 >"$dir/$what.long" || exit 1
		replay "$what"
		incidents "$what" >"$dir/$what.incidents"
		sed 's/^/    /' "$dir/$what.incidents"
		rule=$([ $what = loop ] && echo cpu-unusual || echo memory-step)
		# What has no CPU to itself does not use one. Of what is kept it is known that it fires.
		if [ $what = loop ] && [ "$kept" != "$dir/unpacked" ] && awk -v c="$(cores loop)" 'BEGIN { exit c >= 0.85 }'; then
			echo "not judged: the loop got $(cores loop) of a core: the machine is too busy"
			continue
		fi
		line "$([ $what = loop ] && echo 'a busy loop of 10 s in a quiet service' || echo 'a quiet service takes 500 MiB more')" \
			"$(grep -c " $rule " "$dir/$what.fired")" ">= 1 $rule" \
			"$(grep -q " $rule " "$dir/$what.fired" && echo ok || echo MISSED)"
	done
fi
exit $((missed > 0))
