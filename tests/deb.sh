#!/bin/sh
# The Debian package from its build to its purge, in fresh minimal systems of the release of this machine, made by mmdebstrap: built in one by make deb, which
# installs all that it needs there (deb_build.sh); judged by lintian; installed by apt in another and tried there (deb_fresh.sh); and installed by dpkg, upgraded,
# removed and purged in a third without a network (deb_inside.sh). None has a running systemd: that is tests/vm. Takes some minutes, and leaves nothing.
# Arguments: only these steps. $B: where the package goes; $VERSION; $PACKAGED: what the tree consists of; $MIRROR: of Debian or Ubuntu, by default where this machine has its own packages from.
set -eu

include=
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
arch=$(dpkg --print-architecture)
deb=$B/spikewatch_$VERSION-1_$arch.deb
dbgsym=$B/spikewatch-dbgsym_$VERSION-1_$arch.deb
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

fail() {
	echo "deb: $*" >&2
	exit 1
}

# fresh HOOK...: a fresh minimal system, with the packages $include too, with /try in it, what is done in there, and its end.
fresh() {
	for hook; do
		shift
		set -- "$@" --customize-hook="$hook"
	done
	timeout 1800 mmdebstrap --quiet --variant=minbase --format=null ${include:+--include="$include"} --customize-hook='mkdir "$1/try"' "$@" \
		"$release" /dev/null ${MIRROR:-$(sources)} >"$dir/log" 2>&1 || {
		tail -n 40 "$dir/log" >&2
		fail "see above"
	}
}

# from_source SCRIPT HOOK...: a fresh minimal system with the tree in /try/tree, in which this script of tests/ is run. The npm registry is reached as from this
# machine: with its certificates, and at its address.
from_source() {
	script=$1
	shift
	tar -cf "$dir/tree.tar" $PACKAGED
	: >"$dir/certificates.pem"
	test ! -r "${NODE_EXTRA_CA_CERTS:-}" || cp "$NODE_EXTRA_CA_CERTS" "$dir/certificates.pem"
	registry=$(npm config get registry 2>/dev/null || true)
	settings="LC_ALL=C.UTF-8 NODE_EXTRA_CA_CERTS=/try/certificates.pem ${registry:+npm_config_registry=$registry}"
	fresh 'mkdir "$1/try/tree"' "tar-in $dir/tree.tar /try/tree" "copy-in $dir/certificates.pem /try" \
		"chroot \"\$1\" env -i PATH=\"\$PATH\" HOME=/root $settings sh /try/tree/tests/$script" "$@"
}

built() {
	mkdir "$dir/out"
	from_source deb_build.sh "copy-out /try/out $dir"
	mv "$dir"/out/*.deb "$B/"
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
		! grep -rlF -e "$PWD" -e "$(pwd -P)" -e /try/tree "$dir/content" || fail "these in $package name the directory it was built in"
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

# Not of the package, but the same kind of system: README's line for the demo, typed by a user who has sudo.
demonstrated() {
	from_source readme_fresh.sh
}

installed() {
	fresh "copy-in $deb tests/deb_fresh.sh /try" "chroot \"\$1\" sh /try/deb_fresh.sh /try/${deb##*/}"
}

tried() {
	include=$(needed)
	fresh "copy-in $deb $dir/old.deb tests/deb_inside.sh /try" \
		"chroot \"\$1\" sh /try/deb_inside.sh $VERSION-1 /try/old.deb /try/${deb##*/}"
}

sh tests/packages.sh
for step in ${*:-built judged anonymous installed aged tried demonstrated}; do
	$step
done
echo "deb: $deb holds"
