/*
 * condition.c
 *
 *             bad                           good, and none bad for calm_ns
 *     (off) ───────▶ ON, worst = level ────────────────────────────────────▶ (off)
 *                     │       ▲
 *                     └───────┘ a level above the worst
 */
#include "condition.h"

#include <stddef.h>

enum condition_turn condition_step(struct condition *condition, unsigned level, mono_t now, uint64_t calm_ns)
{
	if (level == 0) {
		if (!condition->on || mono_diff(now, condition->last) < (int64_t)calm_ns)
			return CONDITION_SAME;
		condition->on = false;
		return CONDITION_ENDS;
	}

	if (!condition->on)
		*condition = (struct condition){ .began = now };

	bool began = !condition->on, worse = level > condition->worst;

	condition->on = true;
	condition->last = now;
	condition->times++;
	if (worse)
		condition->worst = level;

	return began ? CONDITION_BEGINS : worse ? CONDITION_WORSENS : CONDITION_SAME;
}

uint64_t condition_lasted_ns(const struct condition *condition)
{
	int64_t lasted = mono_diff(condition->last, condition->began);

	return lasted > 0 ? (uint64_t)lasted : 0;
}

const char *condition_state(enum condition_turn turn)
{
	static const char *const states[] = {
		[CONDITION_SAME] = NULL,
		[CONDITION_BEGINS] = "begin",
		[CONDITION_WORSENS] = "change",
		[CONDITION_ENDS] = "end",
	};

	return states[turn];
}

unsigned condition_level(uint64_t amount, uint64_t step)
{
	unsigned level = 0;

	for (; amount > 0; amount /= step)
		level++;

	return level;
}
