#!/bin/sh
# What systemd says of the units as they are installed: every line understood, every program and page there, the sandbox as
# tight as it was, the user and its directories made. Run by `make check-units`, where it must not skip anything, and by `make
# check`, where it says what it skips. $B: where the programs are built.
set -u

EXPOSURE_MAX=15 # tenths: what is denied stays denied; systemd-analyze calls OK what is below 5.0
strict=${STRICT:-}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP
rc=0

fail() {
	echo "units: $*" >&2
	rc=1
}

# skip WHY: ends, as a failure if nothing may be left out.
skip() {
	echo "units: SKIPPED: $*" >&2
	test -z "$strict" || rc=1
	exit $rc
}

documented() {
	for page in $(sed -n 's/^Documentation=//p' systemd/*.service systemd/*.socket); do
		name=$(echo "$page" | sed -n 's/^man:\(.*\)(\([1-8]\))$/\1.\2/p')
		test -f "docs/$name" || fail "$page is named as documentation, but docs/$name does not exist"
	done
}

understood() {
	said=$(systemd-analyze verify --man=no "$dir"/units/* 2>&1) || fail "systemd-analyze verify fails"
	test -z "$said" || fail "systemd-analyze verify says:
$said"
	sed 's/^WatchdogSec=/WatchdogSecs=/' "$dir/units/spikewatchd.service" >"$dir/spikewatchd.service"
	systemd-analyze verify --man=no "$dir/spikewatchd.service" 2>&1 | grep -q WatchdogSecs ||
		fail "systemd-analyze verify does not see a misspelt option: it proves nothing here"
}

# exposure THRESHOLD: is that of the service at most this?
exposed_at_most() {
	systemd-analyze security --no-pager --offline=yes --threshold="$1" "$dir/units/spikewatchd.service" \
		>"$dir/security" 2>&1
}

sandboxed() {
	systemd-analyze --help | grep -q -- --offline || skip "this systemd-analyze cannot judge a unit that is not loaded"
	exposed_at_most $EXPOSURE_MAX || fail "the service is exposed too much:
$(grep -v '^✓' "$dir/security")"
	! exposed_at_most 1 || fail "systemd-analyze security accepts any unit: it proves nothing here"
	echo "units: $(tail -n 1 "$dir/security")"
}

# In a root directory of its own.
owned() {
	test "$(id -u)" -eq 0 || skip "only root can make the user and its directories"
	mkdir -p "$dir/root/etc"
	systemd-sysusers --root="$dir/root" "$PWD/systemd/spikewatch.sysusers.conf" >/dev/null 2>&1 ||
		fail "systemd-sysusers fails"
	user=$(sed -n 's/^spikewatch:[^:]*:\([0-9]*\):\([0-9]*\):.*/\1:\2/p' "$dir/root/etc/passwd")
	test -n "$user" || fail "systemd-sysusers made no user"
	systemd-tmpfiles --root="$dir/root" --create "$PWD/systemd/spikewatch.tmpfiles.conf" || fail "systemd-tmpfiles fails"
	for path in /run/spikewatch /var/lib/spikewatch; do
		is=$(stat -c %a:%u:%g "$dir/root$path")
		test "$is" = "750:$user" || fail "$path is $is, not 750:$user"
	done
}

documented
command -v systemd-analyze >/dev/null || skip "there is no systemd-analyze here; make check-units installs it"
make -s B="$B" install DESTDIR= prefix="$dir/usr" sysconfdir="$dir/etc" unitdir="$dir/units" >"$dir/log" 2>&1 || {
	cat "$dir/log" >&2
	exit 1
}
understood
sandboxed
owned
exit $rc
