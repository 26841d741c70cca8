#!/bin/sh
# What the compiler does not see of the house style. Each check prints what is wrong and where; the exit code says whether
# anything is. Run by `make lint` in the root of the tree.
set -u
LC_ALL=C
export LC_ALL

rc=0
CC=${CC:-cc}
FUNCTION_LINES_MAX=80
FILE_LINES_MAX=500

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

ours=$(files lib/*.[ch] daemon/*.[ch] daemon/*/*.[ch] cli/*.[ch] cli/*/*.[ch])
tests=$(files tests/*.[ch])
lib=$(files lib/*.[ch])

headers_alone() {
	rooms=$(dirname $(files lib/*.h daemon/*.h daemon/*/*.h cli/*.h cli/*/*.h) | sort -u | sed "s/^/-iquote /" | tr "\n" " ")
	for h in $(files lib/*.h daemon/*.h daemon/*/*.h cli/*.h cli/*/*.h tests/*.h); do
		echo "#include \"$h\"" | $CC -std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Werror -fsyntax-only \
			-I. $rooms -iquote tests -x c - || fail "$h does not compile alone"
	done
}

# lib/LAYERS names every module, lowest first; a module includes only modules above it in that file.
layers() {
	seen=' '
	while read -r m; do
		case $m in '' | '#'*) continue ;; esac
		seen="$seen$m "
		for i in $(sed -n 's/^#include "\([a-z0-9_]*\)\.h".*/\1/p' "lib/$m".[ch] 2>/dev/null | sort -u); do
			case $seen in *" $i "*) ;; *) fail "lib/$m includes $i, which is not below it in lib/LAYERS" ;; esac
		done
		test -n "$(files "lib/$m".[ch])" || fail "lib/LAYERS lists $m, which does not exist"
	done <lib/LAYERS
	for f in $lib; do
		m=$(basename "${f%.[ch]}")
		case $seen in *" $m "*) ;; *) fail "$f is not in lib/LAYERS" ;; esac
	done
}

lengths() {
	for f in $ours; do
		n=$(wc -l <"$f")
		test "$n" -le $FILE_LINES_MAX || fail "$f: $n lines, more than $FILE_LINES_MAX"
	done
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

# lib/ is mute and pure of process: see the head of lib/clock.h for time, lib/sink.h for output.
banned_calls() {
	ban "banned everywhere" "$(calls strcpy strcat sprintf vsprintf atoi atol strtok gets)" $ours $tests
	ban "lib/ prints nothing" "$(calls printf vprintf fprintf vfprintf puts fputs putchar perror)" $lib
	ban "lib/ ends, asks and starts nothing" \
		"$(calls exit _exit abort getenv setenv fork system pthread_create signal sigaction syslog)" $lib
	# process.c: the CPU clocks of other processes are read by clock_gettime(2).
	ban "lib/ reads no clock" "$(calls clock_gettime gettimeofday time)" $(without lib/process.c $lib)
	ban "no typedef of a struct, other than the two times" 'typedef[ \t]+(struct|union|enum)[ \t]+[a-z]' $ours
}

# A third-party library is confined to one file.
confined() {
	include='#include[ \t]*[<"]'
	ban "libcgroup is confined to lib/cgmount.c" "${include}libcgroup" $(without lib/cgmount.c $ours)
	ban "yajl is confined to lib/json.c" "${include}yajl" $(without lib/json.c $ours)
	ban "libdeflate is confined to lib/deflate.c" "${include}libdeflate" $(without lib/deflate.c $ours)
	ban "libmicrohttpd is confined to daemon/reporting/metrics.c" "${include}microhttpd" $(without daemon/reporting/metrics.c $ours)
	elfutils="daemon/symbolize/elfnames.c daemon/symbolize/elflines.c daemon/symbolize/elfframes.c"
	ban "libiberty is confined to daemon/symbolize/demangle.c" "${include}libiberty" $(without daemon/symbolize/demangle.c $ours)
	ban "elfutils is confined to $elfutils" "${include}(elfutils/|gelf|libelf|dwarf)" $(without "$elfutils" $ours)
	systemd="daemon/control.c daemon/daemon.c daemon/handedfds.c daemon/readiness.h daemon/reporting/metrics.c daemon/reporting/reporter.c daemon/watchdog.c"
	systemd="$systemd daemon/discovery/unitbus_inside.h"
	ban "libsystemd is confined to $systemd" "${include}systemd/" $(without "$systemd" $ours)
}

# A prototype in a header stands directly below a comment, or below others that do, or has one on its own line.
contracts() {
	for h in $(files lib/*.h daemon/*.h daemon/*/*.h cli/*.h cli/*/*.h tests/*.h); do
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

checks="headers_alone layers lengths banned_calls confined contracts marks format manual"
for check in ${*:-$checks}; do
	$check
done
test $rc -ne 0 || echo "lint: nothing to complain about"
exit $rc
