#!/bin/sh
# Usage: deb_fresh.sh PACKAGE.deb
# As root in a fresh minimal system with a network: apt installs the package, with what it depends on; the programs work; apt removes it.
set -u

deb=$1
daemon=
rc=0

fail() {
	echo "deb: $*" >&2
	rc=1
}

apt() {
	DEBIAN_FRONTEND=noninteractive apt-get -qq -y "$@" </dev/null >/try/log 2>&1 || {
		cat /try/log >&2
		fail "apt-get $* fails"
		exit 1
	}
}

# Manual pages may have been left out by this system's dpkg: then the package still has them.
contents() {
	listed=$(dpkg-deb -c "$deb")
	for file in usr/share/man/man1/spikewatch.1.gz usr/share/man/man8/spikewatchd.8.gz usr/share/man/man5/spikewatch.json.5.gz \
		usr/share/bash-completion/completions/spikewatch usr/share/bash-completion/completions/spikewatchd; do
		echo "$listed" | grep -q " \./$file" || fail "the package has no /$file"
	done
}

# Processes of the package in this system; /proc has those of the machine around it too.
running() {
	for process in /proc/[0-9]*; do
		test "$(stat -Lc %d:%i "$process/root" 2>/dev/null)" = "$(stat -Lc %d:%i /)" || continue
		case $(readlink "$process/exe") in */spikewatch*) echo "$process" ;; esac
	done
}

# As itself, for a while, and stopped as systemd would.
daemon_works() {
	spikewatchd 2>/try/daemon.log &
	daemon=$!
	for _ in $(seq 300); do
		spikewatch status >/dev/null 2>&1 && break
		sleep 0.1
	done
	spikewatch status >/try/status || fail "spikewatchd does not answer: $(cat /try/daemon.log)"
	kill "$daemon"
	wait "$daemon" || fail "spikewatchd ends with exit code $?: $(cat /try/daemon.log)"
}

# The page is one file with its scripts inside; without them it is refused.
report_works() {
	spikewatch trap --cpu 2% --for 100ms --after 0s -o /try/incidents -- \
		sh -c 'i=0; while [ $i -lt 400000 ]; do i=$((i + 1)); done' 2>/try/trap.log || fail "trap fails: $(cat /try/trap.log)"
	spikewatch report -d /try/incidents -o /try/report.html last >/try/report.log 2>&1 || fail "report fails: $(cat /try/report.log)"
	grep -q '<script' /try/report.html || fail "the report has no script"
}

apt update
apt install "$deb"
contents
daemon_works
report_works
apt remove spikewatch
test ! -e /usr/bin/spikewatchd || fail "spikewatchd is still there"
test -z "$(running)" || fail "these processes of it are left: $(running)"
apt purge spikewatch
for path in /etc/spikewatch /var/lib/spikewatch /run/spikewatch; do
	test ! -e $path || fail "$path is left after purge"
done
exit $rc
