/* matcher.c: made as a whole, so that a reload can exchange it in one go. */
#include "matcher.h"

#include "procread.h"

#include <errno.h>
#include <stdlib.h>

static int compile(struct matcher *matcher, size_t i)
{
	int r = match_new(&matcher->entries[i], &matcher->matches[i]);

	if (r < 0)
		return r;

	matcher->needs |= match_needs(matcher->matches[i]);
	matcher->by_path |= match_is_by_path(matcher->matches[i]);
	if (matcher->entries[i].per == CONFIG_PER_CGROUP)
		matcher->needs |= MATCH_CGROUP;

	return 0;
}

int matcher_new(const struct config *config, struct matcher **ret)
{
	struct matcher *matcher = calloc(1, sizeof *matcher);
	int r = 0;

	if (!matcher)
		return -ENOMEM;

	matcher->entries = config->targets;
	matcher->count = config->target_count;
	matcher->matches = calloc(matcher->count, sizeof(struct match *));
	matcher->pidfile_pids = calloc(matcher->count, sizeof *matcher->pidfile_pids);
	if (!matcher->matches || !matcher->pidfile_pids)
		r = -ENOMEM;
	for (size_t i = 0; r == 0 && i < matcher->count; i++)
		r = compile(matcher, i);
	if (r < 0) {
		matcher_free(matcher);
		return r;
	}
	*ret = matcher;

	return 0;
}

void matcher_free(struct matcher *matcher)
{
	if (!matcher)
		return;

	for (size_t i = 0; matcher->matches && i < matcher->count; i++)
		match_free(matcher->matches[i]);
	free(matcher->matches);
	free(matcher->pidfile_pids);
	free(matcher);
}

void matcher_read_pidfiles(struct matcher *matcher)
{
	for (size_t i = 0; i < matcher->count; i++)
		if (matcher->entries[i].selector == CONFIG_PIDFILE)
			matcher->pidfile_pids[i] = procread_pidfile(matcher->entries[i].pattern);
}

bool matcher_process(const struct matcher *matcher, size_t i, const struct match_facts *facts)
{
	return match_process(matcher->matches[i], facts, matcher->pidfile_pids[i]);
}

bool matcher_cgroup(const struct matcher *matcher, size_t i, const char *path)
{
	return match_is_by_path(matcher->matches[i]) && match_cgroup(matcher->matches[i], path);
}

bool matcher_any_cgroup(const struct matcher *matcher, const char *path)
{
	for (size_t i = 0; i < matcher->count; i++)
		if (matcher_cgroup(matcher, i, path))
			return true;

	return false;
}
