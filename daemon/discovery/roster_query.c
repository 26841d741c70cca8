/* roster_query.c: by looking at all of them: it is asked once per incident. */
#include "roster_query.h"

#include "roster_limits.h"

struct pid_query {
	uint32_t id;
	int32_t *pids;
	size_t count, cap;
};

static int collect_pid(void *ctx, struct roster_target *target)
{
	struct pid_query *query = ctx;
	uint32_t id = target->group ? target->group->what.id : target->what.id;

	if (id == query->id && target->what.pid && query->count < query->cap)
		query->pids[query->count++] = target->what.pid;

	return query->count == query->cap;
}

size_t roster_query_pids(struct roster *roster, uint32_t id, int32_t *pids, size_t cap)
{
	struct pid_query query = { .id = id, .pids = pids, .cap = cap };

	roster_visit(roster, collect_pid, &query);

	return query.count;
}

struct limits_query {
	const struct roster *roster;
	uint32_t id;
	struct cglimits *ret;
};

static int find_limits(void *ctx, struct roster_target *target)
{
	struct limits_query *query = ctx;

	if (target->what.id != query->id)
		return 0;
	roster_limits_of(query->roster, target, query->ret);

	return 1;
}

bool roster_query_limits(struct roster *roster, uint32_t id, struct cglimits *ret)
{
	struct limits_query query = { .roster = roster, .id = id, .ret = ret };

	return roster_visit(roster, find_limits, &query) == 1;
}
