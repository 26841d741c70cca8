#!/bin/sh
# Usage: build.sh OUT: makes OUT/page.h, the page of `spikewatch report` as arrays of C, out of the sources beside this file.
#
# Packages are those of package-lock.json, put into OUT/node_modules; nothing of them is run but esbuild. Without npm, or if it cannot get
# them, the arrays are empty, and OUT/missing says so in one line: the command then says that it was built without npm, and everything else works. A page that
# was built before (built/page.h, as in a source package) is taken as it is.
set -u

here=$(dirname "$0")
out=$1

without() {
	echo "Missing in this build: HTML reports (spikewatch report), because $1. To get them: make report" >"$out/missing"
	for part in 0 1 2 3; do
		echo "static const unsigned char report_page_$part[] = { 0 };"
	done >"$out/page.h.tmp" && mv "$out/page.h.tmp" "$out/page.h"
	exit
}

mkdir -p "$out" || exit 1
rm -f "$out/missing"
if test -e "$here/built/page.h"; then
	cp "$here/built/page.h" "$out/page.h"
	exit
fi
command -v node >/dev/null && command -v npm >/dev/null || without 'there is no npm'
cp "$here/package.json" "$here/package-lock.json" "$out/" || exit 1
(cd "$out" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error --prefer-offline --fetch-retries=1) >"$out/npm.log" 2>&1 ||
	without "npm cannot get its packages (see $out/npm.log)"
node "$here/build.mjs" "$out" >"$out/esbuild.log" 2>&1 || without "the page cannot be built (see $out/esbuild.log)"
