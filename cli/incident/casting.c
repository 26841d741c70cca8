/*
 * casting.c: the entries, compiled as the daemon compiles them. A recording does not hold the path of an executable, nor what a pid file
 * said: entries by these select nothing here. Nor does a group: it is known by its entry only.
 */
#include "casting.h"

#include "match.h"
#include "scope.h"

#include <errno.h>
#include <string.h>

struct casting {
	const struct config *config;
	const char *as;
	struct match **matches; /* one per entry */
};

static void release(struct casting **casting)
{
	casting_free(*casting);
}

int casting_new(const struct config *config, const char *as, struct casting **ret)
{
	AUTO(release) struct casting *casting = calloc(1, sizeof(*casting));

	if (!casting)
		return -ENOMEM;

	casting->config = config;
	casting->as = as;
	casting->matches = calloc(config->target_count + 1, sizeof(*casting->matches));
	if (!casting->matches)
		return -ENOMEM;
	for (size_t i = 0; i < config->target_count; i++) {
		int r = match_new(&config->targets[i], &casting->matches[i]);

		if (r < 0)
			return r;
	}

	*ret = TAKE(casting);
	return 0;
}

void casting_free(struct casting *casting)
{
	if (!casting)
		return;

	for (size_t i = 0; casting->matches && i < casting->config->target_count; i++)
		match_free(casting->matches[i]);
	free(casting->matches);
	free(casting);
}

static bool is_entry(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->target_count; i++)
		if (strcmp(config->targets[i].name, name) == 0)
			return true;
	return false;
}

static const char *known(const char *text)
{
	return *text ? text : NULL;
}

static bool selects(const struct match *match, const struct target *target)
{
	struct container container;
	bool contained = container_unpack(target->container, &container);
	const struct match_facts facts = {
		.pid = target->pid,
		.comm = known(target->comm),
		.cmdline = known(target->cmdline),
		.cgroup = known(target->cgroup),
		.container = contained ? &container : NULL,
	};

	if (target->kind == TARGET_CGROUP)
		return match_cgroup(match, target->cgroup, facts.container);
	return target->kind == TARGET_PROCESS && match_process(match, &facts, 0);
}

const char *casting_entry(const struct casting *casting, const struct target *target)
{
	if (is_entry(casting->config, target->entry))
		return target->entry;
	for (size_t i = 0; i < casting->config->target_count; i++)
		if (selects(casting->matches[i], target))
			return casting->config->targets[i].name;
	return casting->as ? casting->as : target->entry;
}
