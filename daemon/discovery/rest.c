/*
 * rest.c: only what was found counts. Rejected: a rest after every look, also one that found nothing: then it is always too early to poll, and whoever waits
 * for the end of the rest looks again, finds nothing, and rests, a thousand times a second.
 */
#include "rest.h"

void rest_found(struct rest *rest, uint64_t gap_ns, mono_t now)
{
	bool often = mono_diff(now, rest->found) < (int64_t)gap_ns;

	rest->found = now;
	rest->until = often ? mono_add(now, gap_ns) : now;
}

bool rest_is_over(const struct rest *rest, mono_t now)
{
	return mono_diff(now, rest->until) >= 0;
}
