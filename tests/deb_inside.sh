#!/bin/sh
# Usage: deb_inside.sh VERSION OLD.deb NEW.deb
# As root in a system made for it: installs the old package, upgrades it to the new one, removes and purges that, and looks each time.
set -u

version=$1 old=$2 new=$3
conf=/etc/spikewatch/spikewatch.json
incident=/var/lib/spikewatch/incidents/an-incident
wanted=/etc/systemd/system/multi-user.target.wants/spikewatchd.service
rc=0

fail() {
	echo "deb: $*" >&2
	rc=1
}

# expect WHAT IS EXPECTED
expect() {
	test "$2" = "$3" || fail "$1 is '$2', not '$3'"
}

packaged() {
	dpkg --force-unsafe-io "$@" </dev/null >/try/log 2>&1 || {
		cat /try/log >&2
		fail "dpkg $* fails"
		exit 1
	}
}

listed() {
	find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /try -o -path /tmp \) -prune -o -print | sort
}

installed() {
	packaged -i "$old"
	expect "the user's group" "$(id -gn spikewatch)" spikewatch
	for path in /run/spikewatch /var/lib/spikewatch; do
		expect "$path" "$(stat -c %a:%U:%G $path)" 750:spikewatch:spikewatch
	done
	expect "what dpkg treats as configuration" "$(dpkg-query -W -f '${Conffiles}' spikewatch | awk '{ print $1 }' | xargs)" $conf
	expect "the configuration" "$(stat -c %a:%U:%G $conf)" 644:root:root
	test -L $wanted || fail "the service is not enabled"
	expect "what the sockets are" "$(systemctl is-enabled spikewatchd.socket spikewatchd-metrics.socket | xargs)" "disabled disabled"
	spikewatchd --check || fail "the shipped configuration is refused"
	runuser -u spikewatch -- spikewatchd --check || fail "the service's user cannot read the configuration"
	dpkg --verify spikewatch || fail "files are not as packaged"
}

# The journal explains each message of the catalog.
explained() {
	catalog=/usr/lib/systemd/catalog/spikewatch.catalog
	test -f $catalog || return 0
	for id in $(sed -n 's/^-- \([0-9a-f]\{32\}\)$/\1/p' $catalog); do
		journalctl --list-catalog "$id" 2>/dev/null | grep -q "$id" || fail "the journal does not know message $id"
	done
}

# What an administrator has changed stays so: configuration, drop-ins, what is enabled.
upgraded() {
	echo '// ours' >>$conf
	edited=$(cat $conf)
	echo '{}' >/etc/spikewatch/spikewatch.d/own.json
	mkdir -p $incident
	chown -R spikewatch: /var/lib/spikewatch/incidents
	systemctl disable spikewatchd.service 2>/dev/null
	systemctl enable spikewatchd.socket 2>/dev/null

	packaged --force-confdef -i "$new"
	expect "the version" "$(dpkg-query -W -f '${Version}' spikewatch)" "$version"
	expect "the edited configuration" "$(cat $conf)" "$edited"
	test -f $conf.dpkg-dist || fail "no $conf.dpkg-dist"
	test -f /etc/spikewatch/spikewatch.d/own.json || fail "the drop-in is gone"
	expect "an incident" "$(stat -c %F:%U $incident)" directory:spikewatch
	expect "what the units are" "$(systemctl is-enabled spikewatchd.service spikewatchd.socket | xargs)" "disabled enabled"
	spikewatchd --check || fail "the edited configuration is refused"
	systemctl enable spikewatchd.service 2>/dev/null
}

removed() {
	packaged -r spikewatch
	test ! -e /usr/bin/spikewatchd || fail "spikewatchd is still there"
	expect "the edited configuration" "$(cat $conf)" "$edited"
	test -d $incident || fail "removing the package removed an incident"
	test -f /etc/spikewatch/spikewatch.d/own.json || fail "removing the package removed a drop-in"
}

# Nothing is left of it but the user; the files beside passwd and group are those of any change to them.
purged() {
	packaged -P spikewatch
	id spikewatch >/dev/null || fail "the user is gone"
	listed | grep -vxE '/etc/(passwd|group|shadow|gshadow)-|/etc/\.pwd\.lock|/var/log/.*' >/try/after
	left=$(comm -13 /try/before /try/after)
	test -z "$left" || fail "left after purge:
$left"
	gone=$(listed | comm -23 /try/before -)
	test -z "$gone" || fail "not there any more after purge:
$gone"
}

listed >/try/before
installed
explained
upgraded
removed
purged
exit $rc
