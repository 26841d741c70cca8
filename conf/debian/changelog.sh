#!/bin/sh
# Usage: changelog.sh VERSION CHANGELOG.md
# Prints debian/changelog: one entry of this version with the newest section of CHANGELOG.md, dated as that file is, or
# as $SOURCE_DATE_EPOCH says.
set -eu

version=$1 changes=$2
date=$(LC_ALL=C date -u -R -d "@${SOURCE_DATE_EPOCH:-$(stat -c %Y "$changes")}")
maintainer=$(sed -n 's/^Maintainer: //p' "$(dirname "$0")/control")

printf 'spikewatch (%s-1) unstable; urgency=medium\n\n' "$version"
# "* ..." with the lines that continue it, wrapped anew; what else the section says is not for here.
awk 'function flush(   words, count, i, line) {
		count = split(entry, words, " ")
		line = "  " words[1]
		for (i = 2; i <= count; i++) {
			if (length(line) + 1 + length(words[i]) > 79) {
				print line
				line = "   "
			}
			line = line " " words[i]
		}
		if (count) print line
		entry = ""
	}
	/^## / && seen++ { exit } !seen { next }
	/^\* / { flush(); entry = $0; next }
	/^  +[^ ]/ && entry { entry = entry " " $0; next }
	{ flush() }
	END { flush() }' "$changes"
printf '\n -- %s  %s\n' "$maintainer" "$date"
