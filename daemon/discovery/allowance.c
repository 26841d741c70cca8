/*
 * allowance.c: a bucket that fills by itself.
 *
 * Rejected: so much in each second, and nothing for the rest of it. Whoever comes in that rest waits for up to a second, although a fraction of it would
 * pay for him.
 */
#include "allowance.h"

/* What fits into it, and what may be owed. */
static int64_t room_of(const struct allowance *allowance)
{
	return (int64_t)(NS_PER_S / allowance->share);
}

struct allowance allowance_of(unsigned share, mono_t now)
{
	struct allowance allowance = { .share = share, .filled = now };

	allowance.left_ns = room_of(&allowance);

	return allowance;
}

/* What there is as of now. */
static int64_t left_at(const struct allowance *allowance, mono_t now)
{
	int64_t room = room_of(allowance), passed = mono_diff(now, allowance->filled), left;

	if (passed <= 0)
		return allowance->left_ns;
	if (passed >= (int64_t)(2 * NS_PER_S)) /* from the deepest debt to the brim */
		return room;
	left = allowance->left_ns + passed / allowance->share;

	return left < room ? left : room;
}

void allowance_take(struct allowance *allowance, uint64_t cpu_ns, mono_t now)
{
	int64_t room = room_of(allowance), left = left_at(allowance, now);
	int64_t taken = cpu_ns < (uint64_t)(2 * room) ? (int64_t)cpu_ns : 2 * room;

	allowance->left_ns = left - taken > -room ? left - taken : -room;
	allowance->filled = now;
}

bool allowance_is_spent(const struct allowance *allowance, mono_t now)
{
	return left_at(allowance, now) < 0;
}
