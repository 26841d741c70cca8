#!/bin/sh
# Usage: deps.sh [--list] [make] [build] [page] [kernel] [lint] [fuzz] [notify] [units] [package] [deb] [vm] [prometheus] [pprof] [report] [peers]
# Looks whether what these need is there, by compiling, linking and calling it, and installs Debian packages only if it
# is not: those that are missing, by name. Says nothing when nothing is missing. --list: installs nothing, and names what would be installed where
# nothing is there, one a line.
set -u

list=
test "${1:-}" != --list || { list=yes && shift; }

missing=
recommended=--no-install-recommends
cc=${CC:-gcc}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

# has COMMAND...: are all of them there?
has() {
	test -z "$list" || return 1
	for command in "$@"; do
		command -v "$command" >/dev/null || return 1
	done
}

# compiles STATEMENT HEADER...: does a program with these headers compile? It is left as $dir/probe.o.
compiles() {
	test -z "$list" || return 1
	statement=$1
	shift
	{
		test $# -eq 0 || printf '#include <%s>\n' "$@"
		printf 'int main(void)\n{\n\t%s;\n\treturn 0;\n}\n' "$statement"
	} >"$dir/probe.c"
	$cc -D_GNU_SOURCE -c "$dir/probe.c" -o "$dir/probe.o" 2>/dev/null
}

# links STATEMENT LIBRARY HEADER...: and does it link, with what pkg-config says of the library, or with -lLIBRARY?
links() {
	statement=$1 library=$2
	shift 2
	compiles "$statement" "$@" || return
	case $library in
	-l*) flags=$library ;;
	*) flags=$(pkg-config --libs "$library" 2>/dev/null) || return ;;
	esac
	$cc "$dir/probe.o" $flags -o "$dir/probe" 2>/dev/null
}

need() {
	missing="$missing $*"
}

# installed PACKAGE: does dpkg say so?
installed() {
	test -z "$list" && has dpkg-query && dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed'
}

# Without a compiler nothing can be tried: then dpkg knows what is there.
library() {
	package=$1
	shift
	test -z "$list" || { need "$package" && return; }
	links "$@" && return
	if has ${cc%% *} pkg-config && compiles ';' stdio.h || ! installed "$package"; then
		need "$package"
	fi
}

maker() {
	has make || need make
}

build() {
	maker
	has ${cc%% *} || need gcc
	compiles ';' stdio.h linux/perf_event.h || need libc6-dev
	has pkg-config || need pkg-config
	library libcgroup-dev 'cgroup_init()' libcgroup libcgroup.h
	library libsystemd-dev 'sd_booted()' libsystemd systemd/sd-bus.h systemd/sd-daemon.h systemd/sd-event.h \
		systemd/sd-journal.h
	library libyajl-dev 'yajl_gen_alloc(0)' yajl yajl/yajl_gen.h yajl/yajl_parse.h
	library libdeflate-dev 'libdeflate_adler32(1, "", 0)' libdeflate libdeflate.h
	library libncurses-dev 'use_env(FALSE)' ncursesw curses.h term.h
	library libmicrohttpd-dev 'MHD_stop_daemon(0)' libmicrohttpd microhttpd.h
	library libdw-dev 'dwfl_begin(0)' libdw elfutils/libdw.h elfutils/libdwelf.h elfutils/libdwfl.h
	library libelf-dev 'elf_version(0)' libelf gelf.h libelf.h
	library libiberty-dev 'rust_demangle_callback("", 0, 0, 0)' -liberty stddef.h libiberty/demangle.h
	# Tests compile programs of C++.
	has g++ || need g++
	library check 'suite_create("probe")' check check.h
	# One test has a bus of its own.
	has dbus-daemon || need dbus-daemon
}

# The program in the kernel that adds up CPU time: its compiler, what makes a header of it, and what loads it.
kernel() {
	has clang || need clang
	has bpftool || test -x /usr/sbin/bpftool -a -z "$list" || need bpftool
	library libbpf-dev 'libbpf_set_print(0)' libbpf stddef.h bpf/libbpf.h
}

lint() {
	has clang-format || need clang-format
	has ctags || need universal-ctags
	has mandoc || need mandoc
}

# The sanitizers' run-time library has the version in its name, but clang recommends it.
fuzz() {
	printf 'int LLVMFuzzerTestOneInput(const char *d, long n) { return d[n > 0 ? 0 : -1] & 0; }\n' >"$dir/fuzz.c"
	has clang && clang "$dir/fuzz.c" -fsanitize=fuzzer,address,undefined -o "$dir/fuzz" 2>/dev/null && return
	need clang llvm
	recommended=--install-recommends
}

# What incidents are told by, which tests let talk to servers of their own; they are skipped without.
notify() {
	has curl || need curl
	has msmtp || need msmtp
	has notify-send || need libnotify-bin
}

units() {
	has systemd-analyze || need systemd
}

# To build a Debian package, for which build-essential must be there by that name; and to try it in a fresh system.
package() {
	installed build-essential || need build-essential
	has dh || need debhelper
	has dpkg-buildpackage || need dpkg-dev
	has fakeroot || need fakeroot
}

deb() {
	package
	has mmdebstrap || need mmdebstrap
	has lintian || need lintian
}

# To boot an emulated machine from a fresh system.
vm() {
	has mmdebstrap || need mmdebstrap
	test -e /usr/share/keyrings/debian-archive-keyring.gpg || need debian-archive-keyring
	has mke2fs || need e2fsprogs
	has qemu-system-x86_64 || need qemu-system-x86
}

# A server that scrapes, and its tool that judges what is scraped: one package.
prometheus() {
	has prometheus promtool || need prometheus
	has curl || need curl
}

# A reader of profiles: it is a part of Go.
pprof() {
	has go || need golang-go
}

# The page of a report: its parts are npm packages. And a browser to try it.
page() {
	has node || need nodejs
	has npm || need npm
}

report() {
	page
	has chromium || need chromium
}

# Programs that look at processes as well, for `make bench` to compare with. Unpacked into $B/peers and not installed: their packages start services,
# and one of them adds a user. Where that cannot be, the comparison says so, and nothing else is missing.
peers() {
	test -z "$list" || return 0
	into=${B:-build}/peers
	test ! -e "$into/usr/bin/pidstat" && has apt-get dpkg-deb || return 0
	mkdir -p "$into" "$dir/peers" || return 0
	(cd "$dir/peers" && apt-get -qq download sysstat atop prometheus-process-exporter netdata-core) >/dev/null 2>&1
	for package in "$dir"/peers/*.deb; do
		test -e "$package" && dpkg-deb -x "$package" "$into"
	done
	chmod -f u+rx "$into/usr/lib/netdata/plugins.d/apps.plugin"
	return 0
}

for what in "${@:-build}"; do
	case $what in
	make) maker ;;
	build | page | kernel | lint | fuzz | notify | units | package | deb | vm | prometheus | pprof | report | peers) $what ;;
	*) echo "deps.sh: unknown: $what" >&2 && exit 2 ;;
	esac
done

missing=${missing# }
test -n "$missing" || exit 0
test -z "$list" || { printf '%s\n' $missing | sort -u && exit; }

if ! has apt-get; then
	echo "Missing here (names as in Debian): $missing" >&2
	echo "Please install them by the means of your distribution, then try again." >&2
	exit 1
fi

as_root=
if [ "$(id -u)" -ne 0 ]; then
	if ! has sudo; then
		echo "Missing here: $missing" >&2
		echo "There is no sudo to install them with. Please run, as root: apt-get install $missing" >&2
		exit 1
	fi
	as_root=sudo
fi

# A machine that has just started may be installing something itself.
apt() {
	$as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@"
}

echo "Installing${as_root:+ through sudo}: $missing"
if ! apt update || ! apt install -y $recommended $missing; then
	echo "Could not be installed, see above. Missing here: $missing" >&2
	exit 1
fi
