#!/bin/sh
# Runs the benchmarks that are named and prints their rows (bench.h) as one table. A budget that is missed is said so, and is no
# failure: the exit code says whether everything could be measured.
set -u
LC_ALL=C
export LC_ALL

table=$(mktemp) || exit 1
trap 'rm -f "$table"' EXIT
trap 'exit 1' HUP INT TERM

echo "Linux $(uname -r), $(nproc) CPUs ($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)), load" \
	"$(cut -d ' ' -f 1 /proc/loadavg)"
echo
printf '%-66s %12s %12s %6s %-12s %s\n' what measured against ratio '   budget' verdict
for bench; do
	{ "$bench" || echo "$bench FAILED"; } | tee -a "$table"
done
echo
echo "$(grep -c ' ok$' "$table") budgets are met, $(grep -c ' MISSED$' "$table") are missed"
! grep -q ' FAILED$' "$table"
