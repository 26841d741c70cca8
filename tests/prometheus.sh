#!/usr/bin/env bash
# make check-prometheus: the daemon in the foreground with directories of its own, a real Prometheus that scrapes it, and a process that burns
# CPU. Asked is what the server has stored. Loopback only, needs no root, takes half a minute; everything it started it ends.
set -u

build=${B:-build}
out=$(mktemp -d "${TMPDIR:-/tmp}/spikewatch-prometheus.XXXXXX") || exit 1
daemon_pid= server_pid= burner_pid=
failed=

cleanup() {
	for pid in $burner_pid $server_pid $daemon_pid; do
		kill "$pid" 2>/dev/null
	done
	wait
	[ -n "${KEEP:-}" ] && cp -r "$out" "$KEEP"
	rm -rf "$out"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

say() { printf '\n== %s\n' "$*"; }
good() { printf '   ok: %s\n' "$*"; }
bad() { printf '   FAILED: %s\n' "$*"; failed=1; }

# check WHAT COMMAND...: says whether the command succeeds.
check() {
	local what=$1
	shift
	if "$@"; then good "$what"; else bad "$what"; fi
}

# within SECONDS COMMAND...: until it succeeds.
within() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		((SECONDS < end)) || return 1
		sleep 0.2
	done
}

# A port that is free at this moment.
free_port() {
	local port
	for _ in $(seq 100); do
		port=$((20000 + RANDOM % 10000))
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port" && return; }
	done
	return 1
}

get() { curl -s --max-time 10 "$@"; }
api() { get "http://127.0.0.1:$server_port/api/v1/$1" "${@:2}"; }

# The value of the only series that an expression has; empty: there is none, or several.
value() {
	api query --data-urlencode "query=$1" |
		sed -n 's/.*"result":\[{"metric":{[^}]*},"value":\[[^,]*,"\([^"]*\)"\]}\]}.*/\1/p'
}

# holds EXPRESSION CONDITION: the value, as v, meets an awk condition. Sets seen.
holds() {
	seen=$(value "$1")
	[ -n "$seen" ] && awk -v v="$seen" "BEGIN { exit !($2) }"
}

# expect SECONDS EXPRESSION CONDITION: comes true in time.
expect() {
	if within "$1" holds "$2" "$3"; then good "$2 is $seen ($3)"; else bad "$2 is ${seen:-nothing}, expected $3"; fi
}

start_daemon() {
	cat >"$out/spikewatch.json" <<-END
		{
			"sampling": { "interval": "10ms", "rescan_interval": "200ms" },
			"ring": { "path": "$out/ring", "size": "4MiB", "lock": false },
			"incidents": { "directory": "$out/incidents", "before": "1s", "after": "1s", "min_free": "0B" },
			"state_file": "$out/state.json",
			"notify": [ { "name": "none", "command": [ "/bin/true" ] } ],
			"metrics": { "listen": "127.0.0.1:$daemon_port", "max_targets": 4,
				"textfile": "$out/spikewatch.prom", "textfile_interval": "1s" },
			"targets": [
				{ "name": "burner", "comm": "burner\"\\\\" },
				{ "name": "prometheus", "comm": "prometheus" },
				{ "name": "shells", "comm": "bash", "per": "group" },
				{ "name": "many", "comm": "many" }
			],
			"rules": [
				{ "name": "burns", "metric": "cpu_cores", "above": 0.02, "window": "200ms", "warmup": 1,
				  "cooldown": "1h", "targets": ["burner"] },
				{ "name": "never", "metric": "memory_bytes", "above": "100TiB" }
			]
		}
	END
	"$build/spikewatchd" -c "$out/spikewatch.json" 2>"$out/daemon.log" &
	daemon_pid=$!
	within 20 get -o "$out/plain" -f "http://127.0.0.1:$daemon_port/metrics" && return
	cat "$out/daemon.log"
	bad "the daemon did not start"
	exit 1
}

start_server() {
	cat >"$out/prometheus.yml" <<-END
		global: { scrape_interval: 1s, scrape_timeout: 1s }
		scrape_configs:
		  - job_name: spikewatch
		    static_configs: [ { targets: [ "127.0.0.1:$daemon_port" ] } ]
	END
	promtool check config "$out/prometheus.yml" >/dev/null || bad "promtool does not like the scrape configuration"
	prometheus --config.file="$out/prometheus.yml" --storage.tsdb.path="$out/data" --web.listen-address="127.0.0.1:$server_port" \
		--log.level=warn 2>"$out/server.log" &
	server_pid=$!
	within 30 get -f -o /dev/null "http://127.0.0.1:$server_port/-/ready" && return
	cat "$out/server.log"
	bad "the server did not start"
	exit 1
}

# A process of this name that burns CPU: what it gets of a core is the machine's to say.
start_burner() {
	cp "$(command -v bash)" "$out/burner\"\\"
	"$out/burner\"\\" -c 'while :; do :; done' &
	burner_pid=$!
}

# CPU seconds of a process so far.
cpu_of() { awk -v hz="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); print ($12 + $13) / hz }' "/proc/$1/stat"; }

check_pages() {
	local page="http://127.0.0.1:$daemon_port/metrics"
	say "the pages"
	get -D "$out/head-plain" -o "$out/plain" "$page"
	get -D "$out/head-open" -o "$out/open" -H 'Accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1' "$page"
	check "0.0.4 without an Accept header" grep -qi '^content-type: text/plain; version=0.0.4' "$out/head-plain"
	check "OpenMetrics to a client that asks for it" grep -qi '^content-type: application/openmetrics-text; version=1.0.0' \
		"$out/head-open"
	check "OpenMetrics ends with its mark" test "$(tail -n 1 "$out/open")" = '# EOF'
	check "promtool check metrics has nothing to say" test -z "$(promtool check metrics <"$out/plain" 2>&1 || echo failed)"
	printf '   %s families, %s samples, %s bytes\n' "$(grep -c '^# TYPE' "$out/plain")" "$(grep -vc '^#' "$out/plain")" \
		"$(wc -c <"$out/plain")"
}

# Each fires in a run of its own, and none is on a name that the daemon does not have.
check_alerts() {
	local rules=conf/prometheus/spikewatch.rules.yml name
	say "the example of alerts"
	check "promtool check rules" promtool check rules "$rules" >"$out/rules"
	check "promtool test rules" promtool test rules tests/data/prometheus/spikewatch.test.yml >"$out/rules"
	for name in $(grep -o 'spikewatch_[a-z_]*' "$rules" | sort -u); do
		check "$name is on the page" grep -q "^$name[{ ]" "$out/plain"
	done
}

# Families come as what they tell of does: the file may be older than the page by one interval.
same_families() {
	get -o "$out/plain" "http://127.0.0.1:$daemon_port/metrics"
	test "$(grep '^# TYPE' "$out/spikewatch.prom" | sort)" = "$(grep '^# TYPE' "$out/plain" | sort)"
}

# The same as a file, for node_exporter.
check_textfile() {
	say "the file"
	check "it is written" within 10 test -s "$out/spikewatch.prom"
	check "promtool check metrics has nothing to say" \
		test -z "$(promtool check metrics <"$out/spikewatch.prom" 2>&1 || echo failed)"
	check "it has what the page has" within 10 same_families
	check "everybody may read it" test "$(stat -c %a "$out/spikewatch.prom")" = 644
}

# It says what it asked for, and understood all of the answer: a page that is not read to its end is no scrape.
check_scrapes() {
	say "what the server says of its scrapes"
	expect 20 'up{job="spikewatch"}' 'v == 1'
	api targets >"$out/targets"
	check "no error at the target" grep -q '"lastError":"","lastScrape"' "$out/targets"
	check "it is healthy" grep -q '"health":"up"' "$out/targets"
	expect 10 'scrape_samples_scraped{job="spikewatch"}' 'v > 80'
	expect 10 'spikewatch_build_info' 'v == 1'
	api metadata --get --data-urlencode metric=spikewatch_target_cpu_seconds >"$out/metadata"
	check "it knows the unit, which only OpenMetrics says" grep -q '"unit":"seconds"' "$out/metadata"
}

check_burner() {
	local series='{entry="burner"}' began had
	say "a process with a hostile name burns CPU"
	start_burner
	began=$EPOCHREALTIME had=$(cpu_of $burner_pid)
	expect 20 "spikewatch_target_cpu_seconds_total$series" 'v > 0.5'
	expect 20 'spikewatch_rule_firings_total{rule="burns"}' 'v == 1'
	expect 20 'spikewatch_rule_incidents_total{rule="burns"}' 'v == 1'
	expect 20 'spikewatch_rule_firings_total{rule="never"}' 'v == 0'
	expect 20 'sum(spikewatch_rule_suppressed_total{rule="burns",reason="cooldown"})' 'v > 0'
	expect 20 'spikewatch_incidents_sealed_total' 'v == 1'
	expect 20 "count_over_time(spikewatch_target_cpu_seconds_total$series[10s])" 'v >= 8'
	local share
	share=$(awk -v now="$EPOCHREALTIME" -v began="$began" -v cpu="$(cpu_of $burner_pid)" -v had="$had" \
		'BEGIN { print (cpu - had) / (now - began) }')
	printf '   the kernel gave it %s cores all the while\n' "$share"
	expect 10 "rate(spikewatch_target_cpu_seconds_total$series[8s])" "v > 0.6 * $share && v < 1.05"
	check "its name is whole" test "$(api series --get --data-urlencode "match[]=spikewatch_target_cpu_seconds_total$series" |
		grep -c '"target":"burner/'"$burner_pid"'"')" = 1
	kill "$burner_pid"
	wait "$burner_pid" 2>/dev/null
	burner_pid=
	within 10 gone "spikewatch_target_cpu_seconds_total$series" && good "its series end with it" ||
		bad "its series are still there"
}

gone() { [ -z "$(value "$1")" ]; }

# Ten more targets than have series of their own.
check_crowd() {
	local pids= i
	say "more targets than have series of their own"
	cp "$(command -v sleep)" "$out/many"
	for i in $(seq 10); do
		"$out/many" 60 &
		pids="$pids $!"
	done
	expect 20 'sum(spikewatch_summed_targets)' 'v >= 8 && v <= 10'
	expect 20 'count(spikewatch_target_memory_bytes{kind!="other"})' 'v == 4'
	expect 20 'spikewatch_target_memory_bytes{entry="many",target="other"}' 'v > 0'
	kill $pids
	wait $pids 2>/dev/null
	expect 20 'sum(spikewatch_summed_targets)' 'v == 0'
}

for command in curl promtool prometheus; do
	command -v $command >/dev/null || { echo "check-prometheus: no $command" && exit 1; }
done
daemon_port=$(free_port) || exit 1
server_port=$(free_port) || exit 1
start_daemon
check_pages
check_alerts
check_textfile
start_server
check_scrapes
check_burner
check_crowd
say "the end"
expect 10 'avg_over_time(up{job="spikewatch"}[2m])' 'v > 0.5' # a scrape may be late on a busy machine
kill -TERM "$daemon_pid"
wait "$daemon_pid" || bad "the daemon ended with exit code $?"
daemon_pid=
check "the file went with the daemon" test ! -e "$out/spikewatch.prom"
grep -E 'error|warning' "$out/daemon.log" "$out/server.log" | sed 's/^/   /'
[ -z "$failed" ] && printf '\ncheck-prometheus: all held, in %s s\n' "$SECONDS" || printf '\ncheck-prometheus: FAILED\n'
[ -z "$failed" ]
