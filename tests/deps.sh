#!/bin/sh
# Usage: deps.sh [build] [lint] [fuzz]
# Looks whether what these need is there, by compiling, linking and calling it, and installs Debian packages only if it
# is not. Says nothing when nothing is missing.
set -u

packages=
recommended=--no-install-recommends

# Compiles and links a program that needs every header and every library.
builds() {
	command -v make >/dev/null && command -v pkg-config >/dev/null && command -v "${CC:-gcc}" >/dev/null || return 1
	dir=$(mktemp -d) || return 1
	cat >"$dir/probe.c" <<-'END'
		#include <check.h>
		#include <libcgroup.h>
		#include <libdeflate.h>
		#include <linux/perf_event.h>
		#include <systemd/sd-bus.h>
		#include <systemd/sd-daemon.h>
		#include <systemd/sd-event.h>
		#include <systemd/sd-journal.h>
		#include <yajl/yajl_gen.h>
		#include <yajl/yajl_parse.h>

		int main(void)
		{
			Suite *suite = suite_create("probe");
			return cgroup_init() + sd_booted() + (int)libdeflate_adler32(1, "", 0) + (yajl_gen_alloc(0) == 0) + (suite == 0);
		}
	END
	"${CC:-gcc}" -D_GNU_SOURCE "$dir/probe.c" -o "$dir/probe" $(pkg-config --cflags --libs \
		libcgroup libsystemd yajl libdeflate check 2>/dev/null) >/dev/null 2>&1
	rc=$?
	rm -rf "$dir"
	return $rc
}

has_all() {
	for command in "$@"; do
		command -v "$command" >/dev/null || return 1
	done
}

fuzzes() {
	command -v clang >/dev/null &&
		printf 'int LLVMFuzzerTestOneInput(const char *d, long n) { return d[n > 0 ? 0 : -1] & 0; }\n' |
		clang -x c - -fsanitize=fuzzer,address,undefined -o /dev/null 2>/dev/null
}

for what in "${@:-build}"; do
	case $what in
	build)
		builds || packages="$packages gcc libc6-dev make pkg-config libcgroup-dev libsystemd-dev libyajl-dev
			libdeflate-dev check"
		;;
	lint)
		has_all clang-format ctags mandoc || packages="$packages clang-format universal-ctags mandoc"
		;;
	fuzz)
		# The sanitizers' run-time library has the version in its name, but clang recommends it.
		fuzzes || packages="$packages clang llvm" recommended=--install-recommends
		;;
	*)
		echo "deps.sh: unknown: $what" >&2
		exit 2
		;;
	esac
done

test -n "$packages" || exit 0
packages=$(echo $packages)

if ! command -v apt-get >/dev/null; then
	echo "Missing here, among the following (names as in Debian): $packages" >&2
	echo "Please install them by your distribution's means." >&2
	exit 1
fi

as_root=
if [ "$(id -u)" -ne 0 ]; then
	if ! command -v sudo >/dev/null; then
		echo "Please install, as root: apt-get install $packages" >&2
		exit 1
	fi
	as_root=sudo
fi

echo "Installing${as_root:+ through sudo}: $packages"
$as_root apt-get update -qq &&
	$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $recommended $packages
