/*
 * heritage.h: what of one configuration lives on in the next: which rules judge as before, which window lengths are still
 * there; and how a watched target hands over what it knows. Pure. The evaluator's own.
 */
#ifndef SPIKEWATCH_HERITAGE_H
#define SPIKEWATCH_HERITAGE_H

#include "config.h"
#include "watch.h"

#include <stdbool.h>
#include <stddef.h>

#define HERITAGE_NONE ((size_t)-1)

/* One rule of the next configuration. */
struct heritage_rule {
	size_t old; /* the one of its name in the old configuration, or HERITAGE_NONE */
	bool same;  /* and they judge alike */
};

struct heritage {
	const struct config *old, *next;
	struct heritage_rule *rules; /* for each rule of next */
	size_t *lengths;             /* for each length of next's plan its place in the old plan, or HERITAGE_NONE */
	struct watch_pair **pairs;   /* of the target that is being looked at, for each rule of old; else NULL */
};

/* 0 or -ENOMEM. Configurations must outlive it, plans need not. Costs rules x rules comparisons of names. */
int heritage_init(struct heritage *heritage, const struct config *old, const struct watch_plan *old_plan,
		  const struct config *next, const struct watch_plan *next_plan);

/* Frees what init took; also of one that is {0}. */
void heritage_release(struct heritage *heritage);

/*
 * Makes watch, which was made with the old plan, into what it is under the next one. fresh: the same target, just made with the next
 * plan; what watch has no more use for is in it afterwards, to be freed. Rules that judge as before keep their whole state;
 * one that does not begins anew with the cooldown, the count and the mark it had. Windows that are open stay so if rules of their length look
 * at the target before and after. Never fails.
 */
void heritage_pass(struct heritage *heritage, struct watch *watch, struct watch *fresh);

#endif
