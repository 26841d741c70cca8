#!/bin/sh
# What the compiler does not see of the house style. Each check prints what is wrong and where; the exit code says whether
# anything is. Run by `make lint` in the root of the tree.
set -u
LC_ALL=C
export LC_ALL

rc=0
CC=${CC:-cc}
FUNCTION_LINES_MAX=80
LINE_COLUMNS_MAX=120

fail() {
	echo "lint: $*"
	rc=1
}

# Prints the lines of files that match an extended regular expression, comments taken out, as FILE:LINE:TEXT.
code_matching() {
	pattern=$1
	shift
	test $# -gt 0 || return 0
	awk -v pattern="$pattern" '
		FNR == 1 { comment = 0 }
		{
			line = $0
			text = ""
			while (length(line) > 0) {
				if (comment) {
					end = index(line, "*/")
					if (end == 0) break
					line = substr(line, end + 2)
					comment = 0
				} else {
					start = index(line, "/*")
					if (start == 0) { text = text line; break }
					text = text substr(line, 1, start - 1)
					line = substr(line, start + 2)
					comment = 1
				}
			}
			sub(/\/\/.*/, "", text)
			if (match(" " text, pattern)) print FILENAME ":" FNR ": " $0
		}' "$@"
}

# ban WHY PATTERN FILE...: none of the files may match.
ban() {
	why=$1 pattern=$2
	shift 2
	found=$(code_matching "$pattern" "$@")
	test -z "$found" || fail "$why
$found"
}

# calls NAME...: a pattern for calls of these functions.
calls() {
	printf '[^a-zA-Z0-9_](%s)[ \t]*[(]' "$(echo "$*" | tr ' ' '|')"
}

# files PATTERN...: those that exist.
files() {
	ls -d "$@" 2>/dev/null
}

# without NAMES LIST...: the list less the names.
without() {
	but=" $1 "
	shift
	for f in "$@"; do
		case $but in *" $f "*) ;; *) echo "$f" ;; esac
	done
}

ours=$(find lib daemon cli -name '*.[ch]' | sort)
headers=$(find lib daemon cli -name '*.h' | sort)
tests=$(find tests -name '*.[ch]' | sort)
test_headers=$(find tests -name '*.h' | sort)
lib=$(find lib -name '*.[ch]' | sort)

headers_alone() {
	for h in $headers $test_headers; do
		echo "#include \"$h\"" | $CC -std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Werror -fsyntax-only \
			-I. -iquote tests/support -iquote tests/bench -x c - || fail "$h does not compile alone"
	done
}

# tests/rooms names the folders, lowest first: a file includes only headers of its own folder and of those above it in that
# list, and a program (daemon/symbolize, daemon/service, cli) none of another program.
rooms() {
	found=$(awk '
		NR == FNR { if ($0 !~ /^#/ && NF) rank[$1] = NR; next }
		function part(room, at) { split(room, at, "/"); return at[1] == "daemon" ? at[2] : at[1] }
		FNR == 1 {
			room = FILENAME
			sub(/\/[^\/]*$/, "", room)
			if (!(room in rank)) print FILENAME ": its folder is not in tests/rooms"
		}
		/^#include "/ {
			split($2, quoted, "\"")
			other = quoted[2]
			if (!sub(/\/[^\/]*$/, "", other)) other = room
			if (!(other in rank) || rank[other] > rank[room] ||
			    (part(other) != part(room) && part(other) !~ /^(lib|engine)$/))
				print FILENAME ":" FNR ": " $2 " is not in a folder that it may use (tests/rooms)"
		}' tests/rooms $ours)
	test -z "$found" || fail "$found"
	for room in $(grep -v '^#' tests/rooms); do
		test -d "$room" || fail "tests/rooms lists $room, which does not exist"
	done
}

lengths() {
	# Bytes that continue a character of UTF-8 take no column.
	wide=$(for f in $ours; do expand -t 8 "$f" | tr -d '\200-\277' | awk -v f="$f" -v max=$LINE_COLUMNS_MAX \
		'length($0) > max { print f ":" NR ": " length($0) " columns, more than " max }'; done)
	test -z "$wide" || fail "$wide"
	long=$(ctags -f - --languages=C --langmap=C:.c.h --kinds-C=f --fields=+ne --output-format=u-ctags $ours |
		awk -F '\t' -v max=$FUNCTION_LINES_MAX '
			/^!/ { next }
			{
				from = to = 0
				for (i = 4; i <= NF; i++) {
					if ($i ~ /^line:/) from = substr($i, 6)
					if ($i ~ /^end:/) to = substr($i, 5)
				}
				if (to - from + 1 > max) print $2 ":" from ": " $1 " has " to - from + 1 " lines, more than " max
			}')
	test -z "$long" || fail "$long"
}

# lib/ is mute and pure of process: time and output are arguments (lib/base/base.h, lib/base/io.h).
banned_calls() {
	ban "banned everywhere" "$(calls strcpy strcat sprintf vsprintf atoi atol strtok gets)" $ours $tests
	ban "lib/ prints nothing" "$(calls printf vprintf fprintf vfprintf puts fputs putchar perror)" $lib
	ban "lib/ ends, asks and starts nothing" \
		"$(calls exit _exit abort getenv setenv fork system pthread_create signal sigaction syslog)" $lib
	# lib/source/process.c: the CPU clocks of other processes are read by clock_gettime(2).
	ban "lib/ reads no clock" "$(calls clock_gettime gettimeofday time)" $(without lib/source/process.c $lib)
	ban "no typedef of a struct, other than the two times" 'typedef[ \t]+(struct|union|enum)[ \t]+[a-z]' $ours
}

# confine LIBRARY PATTERN FILE...: no other file includes its headers.
confine() {
	library=$1 pattern=$2
	shift 2
	ban "$library is confined to $*" "$pattern" $(without "$*" $ours)
}

# A third-party library is confined to one file, or to one file of each part that needs it.
confined() {
	include='#include[ \t]*[<"]'
	confine libcgroup "${include}libcgroup" lib/cgroup/cgroup_mounts.c
	confine yajl "${include}yajl" lib/base/json.c
	confine libdeflate "${include}libdeflate" lib/base/compress.c
	confine libmicrohttpd "${include}microhttpd" daemon/service/metrics/metrics_server.c
	confine libbpf "${include}bpf/" daemon/engine/kernel/kernel_accounts.c daemon/engine/kernel/switches.bpf.c
	confine libiberty "${include}libiberty" daemon/symbolize/symbols.c
	confine ncurses "${include}(n?curses|term)[.]h" cli/top/top.c
	confine elfutils "${include}(elfutils/|gelf|libelf|dwarf)" daemon/symbolize/symbols.c
	confine libsystemd "${include}systemd/" daemon/service/control.c daemon/service/main.c \
		daemon/service/metrics/metrics_server.c daemon/engine/targets/unit_bus.c
}

# What another process can make wait is touched by children alone (docs/ARCHITECTURE.md, "What may wait"). `opens` lists
# the files that may open others by path, or look at them, `waits` those that may name the files of a process that wait.
foreign() {
	engine=$(find lib/source lib/cgroup daemon/engine daemon/service -name '*.[ch]' | sort)
	opens="daemon/engine/base/children.c daemon/engine/base/foreign.c daemon/engine/base/paths.c
		daemon/engine/base/perf_events.c daemon/engine/base/proc_read.c daemon/engine/base/sandbox.c
		daemon/engine/incident/capture.c daemon/engine/incident/hooks.c daemon/engine/incident/incident_worker.c
		daemon/engine/incident/incidents.c daemon/engine/incident/recover.c
		daemon/engine/incident/spool.c daemon/engine/kernel/kernel_accounts.c daemon/engine/sampling/sampler.c
		daemon/engine/session/session.c
		daemon/engine/stacks/stack_capture.c daemon/engine/stacks/stack_recorder.c
		daemon/engine/targets/baseline.c daemon/engine/targets/containers.c daemon/service/control.c
		daemon/service/health/file_writer.c daemon/service/health/overview.c daemon/service/main.c
		daemon/service/minutes/minute_log.c
		lib/cgroup/cgroup.c lib/cgroup/cgroup_mounts.c lib/cgroup/cgroup_mounts.h"
	waits="daemon/engine/base/foreign.c daemon/engine/incident/capture.c daemon/engine/stacks/stack_capture.c
		daemon/engine/stacks/stack_recorder.c daemon/engine/targets/baseline.c lib/source/process.c"
	ban "a file is opened by its path only in the files that tests/lint.sh lists; what can wait: foreign.h" \
		"$(calls open openat creat fopen freopen opendir scandir stat lstat fstatat statx statfs statvfs access \
			faccessat readlink readlinkat realpath whole_file_read name_to_handle_at process_vm_readv)" \
		$(without "$(echo $opens)" $engine)
	# A cgroup, or /proc/PID, may belong to a user, who may mount there: no file of them is opened through that.
	ban "what may be mounted inside is not entered, but below the administrator's own places: open_beneath(..., true)" \
		'open_beneath[(][^;]*, false[)]' $(without "daemon/engine/targets/containers.c lib/base/io.h" $engine)
	ban "a directory is watched by its descriptor, in discovery.c" "$(calls inotify_add_watch)" \
		$(without daemon/engine/targets/discovery.c $engine)
	# lxcfs may be mounted over /sys/devices/system/cpu, which these read. lib/cgroup: by foreign.h, if the daemon asks.
	ban "CPUs are counted by proc_read_cpus()" \
		'_SC_NPROCESSORS|get_nprocs|libbpf_num_possible_cpus|"[^"]*/sys/devices/system/cpu' \
		$(without lib/cgroup/cgroup.c $engine)
	ban "CPUs are counted by proc_read_cpus()" '_SC_NPROCESSORS|get_nprocs' lib/cgroup/cgroup.c
	ban "a file of a process that can wait is read by foreign.h" \
		'"([^"]*(cmdline|environ|smaps|smaps_rollup|pagemap|clear_refs|map_files|/root%s|/maps)|maps)"' \
		$(without "$(echo $waits)" $engine)
	# Of those that may name them, only the child's side reads itself: baseline.c, in a foreign_function.
	ban "a file of a process that can wait is read by foreign.h" \
		'(proc_read_file|proc_read_line|pid_directory_read|pid_directory_file|whole_file_read|openat)[(][^;]*"[^"]*(cmdline|environ|smaps|pagemap|map_files|/root|/maps)' \
		$(without daemon/engine/targets/baseline.c $engine)
}

# `make fuzz` builds all with clang, which refuses things that gcc takes. Without those that include what is made by a build.
clang_reads_it() {
	for tool in clang-14 clang; do
		command -v $tool >/dev/null && break
	done
	command -v $tool >/dev/null || { echo "lint: there is no clang to read it" && return; }
	made=$(grep -lE '#include "(switches.skel|shipped|history_page|cli/report/page)[.]h"' $ours)
	without "$(echo $made daemon/engine/kernel/switches.bpf.c)" $(find lib daemon cli -name '*.c' | sort) |
		xargs -P 2 -n 16 $tool -std=gnu17 -D_GNU_SOURCE -DSPIKEWATCH_VERSION='""' -Wall -Wextra -Wshadow -Wconversion \
			-Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2 -Wno-gnu-variable-sized-type-not-at-end -Werror \
			-iquote . -fsyntax-only || fail "clang does not take it"
}

# A prototype in a header stands directly below a comment, or below others that do, or has one on its own line.
contracts() {
	for h in $headers $test_headers; do
		found=$(awk '
			/\*\/[ \t]*$/ && !/^[a-z]/ { documented = 1; next }
			/^[ \t]*$/ { documented = 0; next }
			/^(typedef|static|struct [a-z_]+ \{|enum|#)/ { next }
			/^[a-z][^=]*[a-z0-9_]\(/ && !documented && !/\/\*.*\*\// { print FILENAME ":" FNR ": " $0 }
		' "$h")
		test -z "$found" || fail "without contract
$found"
	done
}

marks() {
	found=$(grep -nwE 'TODO|FIXME|XXX' $ours $tests Makefile 2>/dev/null)
	test -z "$found" || fail "unfinished
$found"
}

# Other versions of clang-format break lines elsewhere.
format() {
	for tool in clang-format-14 clang-format; do
		command -v $tool >/dev/null && break
	done
	case $($tool --version) in
	*"version 14."*) ;;
	*) echo "lint: format not checked: it is that of clang-format 14" && return ;;
	esac
	for f in $ours $tests; do
		$tool --dry-run --Werror "$f" 2>/dev/null || fail "$f: run $tool -i on it"
	done
}

manual() {
	pages=$(files docs/*.1 docs/*.5 docs/*.8)
	test -z "$pages" || mandoc -T lint -W warning $pages || fail "manual pages"
}

checks="headers_alone rooms lengths banned_calls confined foreign clang_reads_it contracts marks format manual"
for check in ${*:-$checks}; do
	$check
done
test $rc -ne 0 || echo "lint: nothing to complain about"
exit $rc
