/* limitscache.c: a list that is searched from its start: there are few different cgroups, and the last place takes the rest in turn. */
#include "limitscache.h"

#include "procread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LINES 64u /* different cgroups that are remembered */

/* Of /proc/<pid>/cgroup: a dozen v1 hierarchies with a pod's path each. */
#define TEXT_MAX 4096u

struct line {
	char text[TEXT_MAX];
	size_t len;
	struct cglimits limits;
};

struct limitscache {
	int procfd;
	const struct cgroup_mounts *mounts;
	struct metric_machine machine;
	unsigned used;
	struct line lines[LINES];
};

int limitscache_new(int procfd, const struct cgroup_mounts *mounts, const struct metric_machine *machine,
		    struct limitscache **ret)
{
	struct limitscache *cache = calloc(1, sizeof *cache);

	if (!cache)
		return -ENOMEM;

	cache->procfd = procfd;
	cache->mounts = mounts;
	cache->machine = *machine;
	*ret = cache;

	return 0;
}

void limitscache_free(struct limitscache *cache)
{
	free(cache);
}

void limitscache_clear(struct limitscache *cache)
{
	cache->used = 0;
}

static const struct line *find(const struct limitscache *cache, const char *text, size_t len)
{
	for (unsigned i = 0; i < cache->used; i++)
		if (cache->lines[i].len == len && memcmp(cache->lines[i].text, text, len) == 0)
			return &cache->lines[i];

	return NULL;
}

const struct cglimits *limitscache_of(struct limitscache *cache, int32_t pid)
{
	char text[TEXT_MAX];
	ssize_t len = procread_file(cache->procfd, pid, "cgroup", text, sizeof text);
	const struct line *known = len < 0 ? NULL : find(cache, text, (size_t)len);
	struct line *line = &cache->lines[cache->used < LINES ? cache->used : LINES - 1];

	if (len < 0)
		return NULL;
	if (known)
		return &known->limits;

	/* What is overwritten is not found any more until it is whole again. */
	line->len = SIZE_MAX;
	if (cglimits_of_process(cache->mounts, &cache->machine, cache->procfd, pid, &line->limits) < 0)
		return NULL;

	memcpy(line->text, text, (size_t)len);
	line->len = (size_t)len;
	cache->used += cache->used < LINES;

	return &line->limits;
}
