/* steadyclock.c: the first look begins the time, as a step does. */
#include "steadyclock.h"

static bool is_step(int64_t before_ns, int64_t after_ns)
{
	int64_t step = after_ns - before_ns;

	return step > (int64_t)STEADYCLOCK_STEP_NS || step < -(int64_t)STEADYCLOCK_STEP_NS;
}

wall_t steadyclock_look(struct steadyclock *clock, mono_t mono, wall_t wall)
{
	int64_t ahead = (int64_t)(wall.ns - mono.ns);

	if (!clock->looked || is_step(clock->ahead_ns, ahead))
		clock->since = mono;
	clock->looked = true;
	clock->ahead_ns = ahead;

	return mono_diff(mono, clock->since) >= (int64_t)STEADYCLOCK_NS ? wall : (wall_t){ 0 };
}
