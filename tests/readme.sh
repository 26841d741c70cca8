#!/bin/sh
# The first catch and the first rule of README.md, word by word: its first block of code is typed as it stands, and says what the page says but for the figures;
# its first configuration is given to spikewatchd, which catches what the page says it does; its other configurations are accepted. $B: where the programs are built.
set -u

build=$(cd "${B:-build}" && pwd) || exit 1
daemon=
dir=$(mktemp -d) || exit 1
trap 'test -z "$daemon" || kill "$daemon"; wait; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP
export PATH="$build:$PATH" RUNTIME_DIRECTORY="$dir/run" STATE_DIRECTORY="$dir/state"
here=$PWD
rc=0

fail() {
	echo "readme: $*" >&2
	rc=1
}

# block N OPENING: the Nth block of code that begins with this line.
block() {
	awk -v n="$1" -v opening="$2" '
		!inside && /^```/ { inside = 1; wanted = $0 == opening && ++count == n; next }
		inside && /^```$/ { inside = 0; next }
		inside && wanted' "$here/README.md"
}

# Figures, and what is drawn, differ each time.
without_figures() {
	sed 's/[0-9][0-9.]*[TZ]*/N/g; s/N\(NN*\)*/N/g'
}

first_catch() {
	block 1 '```' >"$dir/page"
	sed -n 's/^\$ //p' "$dir/page" >"$dir/commands"
	test -s "$dir/commands" || fail "the first block of code has no command"
	(cd "$dir" && sh ./commands) >"$dir/said" 2>&1 || fail "the commands of the first block fail: $(cat "$dir/said")"
	without_figures <"$dir/said" >"$dir/said.plain"
	grep '^spikewatch trap: ' "$dir/page" | without_figures >"$dir/expected"
	test "$(wc -l <"$dir/expected")" -ge 4 || fail "the first block of code does not say what trap says"
	while read -r line; do
		grep -qxF -- "$line" "$dir/said.plain" || fail "trap does not say: $line; it said: $(cat "$dir/said")"
	done <"$dir/expected"
	for words in "$(grep -m 1 '^Where ' "$dir/page" | sed 's/ (.*//')" 'Memory'; do
		grep -q "^$words" "$dir/said" || fail "show does not say: $words"
	done
}

# The command of the page that its first configuration is for.
first_rule() {
	block 1 '```jsonc' >"$dir/my.json"
	command=$(sed -n 's/.*`my\.json`, for `\(.*\)`:$/\1/p; s/^rule is judged).*for `\(.*\)`:$/\1/p' "$here/README.md" | head -n 1)
	test -n "$command" || fail "the page does not say what its first configuration is for"
	(cd "$dir" && exec spikewatchd -c my.json) 2>"$dir/log" &
	daemon=$!
	for _ in $(seq 300); do
		spikewatch status >/dev/null 2>&1 && break
		sleep 0.1
	done
	rule=$(sed -n 's/.*"rules": \[ { "name": "\([^"]*\)".*/\1/p' "$dir/my.json")
	target=$(sed -n 's/.*"targets": \[ { "name": "\([^"]*\)".*/\1/p' "$dir/my.json")
	sh -c "$command" || fail "$command fails"
	found=
	for _ in $(seq 60); do
		found=$(ls -d "$dir"/state/incidents/*-"$target"_*-"$rule"-1 2>/dev/null) && break
		sleep 1
	done
	test -n "$found" || fail "$command was not caught: $(cat "$dir/log")"
	kill "$daemon"
	wait "$daemon" || fail "spikewatchd ended with exit code $?"
	daemon=
}

other_configurations() {
	number=2
	while block $number '```jsonc' >"$dir/other.json" && test -s "$dir/other.json"; do
		spikewatchd --check -c "$dir/other.json" >"$dir/said" 2>&1 || fail "a configuration of the page is refused: $(cat "$dir/said")"
		number=$((number + 1))
	done
	test $number -gt 2 || fail "the page has no second configuration"
}

first_catch
first_rule
other_configurations
exit $rc
