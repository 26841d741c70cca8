#!/bin/sh
# Usage: changelog.sh VERSION CHANGELOG.md
# Prints debian/changelog: one entry of this version with the newest section of CHANGELOG.md, dated as that file is, or
# as $SOURCE_DATE_EPOCH says.
set -eu

version=$1 changes=$2
date=$(LC_ALL=C date -u -R -d "@${SOURCE_DATE_EPOCH:-$(stat -c %Y "$changes")}")
maintainer=$(sed -n 's/^Maintainer: //p' "$(dirname "$0")/control")

printf 'spikewatch (%s-1) unstable; urgency=medium\n\n' "$version"
# "* ..." and the lines that continue it; what else the section says is not for here.
awk '/^## / && seen++ { exit } !seen { next }
	/^\* / { entry = 1; print "  " $0; next }
	/^  +[^ ]/ && entry { sub(/^ +/, ""); print "    " $0; next }
	{ entry = 0 }' "$changes" | fold -s -w 79 | sed 's/^\([^ ]\)/    \1/; s/ *$//'
printf '\n -- %s  %s\n' "$maintainer" "$date"
