#!/bin/sh
# The Debian package from its build to its purge: made by make deb, judged by lintian, and tried by deb_inside.sh in a fresh minimal
# system of the release of this machine, which has no running systemd and no network. Takes a minute or two, and leaves nothing.
# $B: where it is built; $VERSION; $MIRROR: of Debian or Ubuntu, by default where this machine has its own packages from.
set -eu

release=$(. /etc/os-release && echo "$VERSION_CODENAME")
arch=$(dpkg --print-architecture)
deb=$B/spikewatch_$VERSION-1_$arch.deb
dbgsym=$B/spikewatch-dbgsym_$VERSION-1_$arch.deb
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() {
	echo "deb: $*" >&2
	exit 1
}

# What deps.sh looks for is what the package says it is built with.
declared() {
	sed -n 's/^\tlibrary \([^ ]*\) .*/\1/p' tests/deps.sh | sort >"$dir/looked_for"
	test -s "$dir/looked_for" || fail "tests/deps.sh names no library"
	sed -n '/^Build-Depends:/,/^$/p' conf/debian/control | sed 's/^Build-Depends://; s/^ *\([a-z0-9+-]*\).*/\1/' |
		grep -vE '^$|^debhelper-compat$|^pkg-config$|^dbus-daemon$' | sort |
		diff "$dir/looked_for" - || fail "tests/deps.sh and Build-Depends name different libraries"
}

built() {
	make -s B="$B" deb >"$dir/build.log" 2>&1 || {
		tail -n 30 "$dir/build.log" >&2
		fail "make deb fails"
	}
	test -f "$deb" && test -f "$dbgsym" || fail "make deb leaves no $deb and $dbgsym"
}

judged() {
	lintian --allow-root --fail-on error,warning,info --display-info "$deb" || fail "lintian objects"
}

# Nothing in it says where it was built; what debuggers read is compressed.
anonymous() {
	for package in "$deb" "$dbgsym"; do
		dpkg-deb -R "$package" "$dir/content"
		find "$dir/content" -name '*.debug' -exec objcopy --decompress-debug-sections {} \;
		! grep -rlF -e "$PWD" -e "$(pwd -P)" "$dir/content" || fail "these in $package name the directory it was built in"
		rm -rf "$dir/content"
	done
}

# The same package with an older version, and an older configuration in it.
aged() {
	dpkg-deb -R "$deb" "$dir/old"
	sed -i 's/^Version: .*/Version: 0.0.1-1/' "$dir/old/DEBIAN/control"
	echo '// as it was in an older version' >>"$dir/old/etc/spikewatch/spikewatch.json"
	dpkg-deb --root-owner-group -b "$dir/old" "$dir/old.deb" >/dev/null
}

# Its dependencies as names for mmdebstrap, of alternatives the first.
needed() {
	dpkg-deb -f "$deb" Pre-Depends Depends | sed 's/^[A-Za-z-]*: //; s/ *([^)]*)//g; s/ *|[^,]*//g; s/ //g' | paste -s -d,
}

sources() {
	for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list.d/ubuntu.sources; do
		test -s "$file" && grep -q '^[^#]' "$file" && echo "$file"
	done
	true
}

tried() {
	timeout 600 mmdebstrap --quiet --variant=minbase --format=null --include="$(needed)" \
		--customize-hook="mkdir \"\$1/try\"" \
		--customize-hook="copy-in $deb $dir/old.deb tests/deb_inside.sh /try" \
		--customize-hook="chroot \"\$1\" sh /try/deb_inside.sh $VERSION-1 /try/old.deb /try/${deb##*/}" \
		"$release" /dev/null ${MIRROR:-$(sources)} || fail "see above"
}

declared
built
judged
anonymous
aged
tried
echo "deb: $deb holds"
