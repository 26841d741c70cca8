#!/bin/sh
# Installs into a directory and looks that all that the tree has is there, with the right modes and paths, and nothing else; then
# uninstalls, and looks that only the configuration is left. $B: where the programs are built.
set -u

dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP
umask 077 # as a careful administrator has it: what is installed is for everybody all the same
rc=0

fail() {
	echo "install: $*" >&2
	rc=1
}

# made GOAL PREFIX
made() {
	make -s B="$B" "$1" DESTDIR="$dir/root" prefix="$2" >"$dir/log" 2>&1 || {
		cat "$dir/log" >&2
		fail "make $1 fails"
		exit 1
	}
}

found() {
	(cd "$dir/root" && find . -type f -o -type l) | sort
}

# expected PREFIX: what the tree has to offer, found by what the files are, not by what the Makefile says.
expected() {
	for page in docs/*.[1-8]; do
		echo ".$1/share/man/man${page##*.}/${page##*/}"
	done
	for file in README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE docs/*.md docs/*.png; do
		echo ".$1/share/doc/spikewatch/${file##*/}"
	done
	for kind in hooks kubernetes notify prometheus; do
		for file in "conf/$kind"/*; do
			echo ".$1/share/doc/spikewatch/$kind/${file##*/}"
		done
	done
	for unit in systemd/*; do
		case $unit in
		*.sysusers.conf) echo ".$1/lib/sysusers.d/spikewatch.conf" ;;
		*.tmpfiles.conf) echo ".$1/lib/tmpfiles.d/spikewatch.conf" ;;
		*.catalog) echo ".$1/lib/systemd/catalog/${unit##*/}" ;;
		*) echo ".$1/lib/systemd/system/${unit##*/}" ;;
		esac
	done
	for name in spikewatch spikewatchd; do
		echo ".$1/bin/$name"
		echo ".$1/share/bash-completion/completions/$name"
	done
	echo ".$1/libexec/spikewatch/spikewatch-symbolize"
	echo ./etc/spikewatch/spikewatch.json
}

same() {
	diff "$dir/expected" "$dir/found" >"$dir/diff" || fail "$1 (<: missing, >: too much):
$(cat "$dir/diff")"
}

readable() {
	wrong=$(find "$dir/root" -type f ! -perm 644 ! -path '*/bin/*' ! -path '*/libexec/*' \
		-o -type f \( -path '*/bin/*' -o -path '*/libexec/*' \) ! -perm 755 \
		-o -mindepth 1 -type d ! -perm 755)
	test -z "$wrong" || fail "wrong modes: $wrong"
}

# paths PREFIX: nothing that is installed speaks of another place than the one it is in.
paths() {
	units=$dir/root$1/lib/systemd/system
	for line in "ExecStart=$1/bin/spikewatchd" "ExecReload=$1/bin/spikewatch reload"; do
		grep -qx "$line" "$units/spikewatchd.service" || fail "the service has no line $line"
	done
	test "$1" = /usr || ! grep -rlE '/usr/(bin|share/doc)/spikewatch' "$units" "$dir/root$1/share/man" ||
		fail "these speak of /usr"
}

# tried PREFIX
tried() {
	rm -rf "$dir/root"
	made install "$1"
	expected "$1" | sort >"$dir/expected"
	found >"$dir/found"
	same "installed below $1"
	readable
	paths "$1"

	# What was edited is kept, and what was shipped is put beside it, and goes again.
	echo '{}' >"$dir/root/etc/spikewatch/spikewatch.json"
	made install "$1"
	test -f "$dir/root/etc/spikewatch/spikewatch.json.dist" || fail "no spikewatch.json.dist beside an edited configuration"
	made uninstall "$1"
	echo ./etc/spikewatch/spikewatch.json >"$dir/expected"
	found >"$dir/found"
	same "left after make uninstall"
	test "$(cat "$dir/root/etc/spikewatch/spikewatch.json")" = '{}' || fail "an edited configuration was changed"
}

tried /usr
tried /usr/local
exit $rc
