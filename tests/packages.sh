#!/bin/sh
# What the Debian package is built with, and what `make deps` installs, are the same lists: every package of Build-Depends, and build-essential, which
# dpkg-buildpackage asks for, is in what tests/deps.sh would install where nothing is there; and every library that tests/deps.sh looks for is in
# Build-Depends. Takes no time and installs nothing.
set -u

dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP
rc=0

fail() {
	echo "packages: $*" >&2
	rc=1
}

# Names alone: "check <!nocheck>," is check; debhelper-compat (= 13) is how debhelper is asked for.
sed -n '/^Build-Depends:/,/^$/p' conf/debian/control | tr ',' '\n' |
	sed 's/^Build-Depends://; s/^ *\([a-z0-9+.-]*\).*/\1/; /^$/d; s/-compat$//' |
	sort >"$dir/declared"
test "$(wc -l <"$dir/declared")" -gt 5 || fail "conf/debian/control has no Build-Depends that can be read"
{ cat "$dir/declared" && echo build-essential; } | sort -u >"$dir/needed"

# As the Makefile calls it.
goals=$(sed -n '/^deps:/,/^$/s/.*deps\.sh //p' Makefile)
sh tests/deps.sh --list $goals >"$dir/installed" || fail "deps.sh --list fails"
left=$(comm -23 "$dir/needed" "$dir/installed" | xargs)
test -z "$left" || fail "make deps does not install what the package is built with: $left"

sed -n 's/^\tlibrary \([^ ]*\) .*/\1/p' tests/deps.sh | sort -u >"$dir/libraries"
test -s "$dir/libraries" || fail "tests/deps.sh names no library"
left=$(comm -23 "$dir/libraries" "$dir/declared" | xargs)
test -z "$left" || fail "Build-Depends lacks what tests/deps.sh looks for: $left"
exit $rc
