/*
 * target_limits.c: a hash table from the text of /proc/<pid>/cgroup, or a path, to a line; what the
 * directories say is in the tree of cgroups, and a line is what follows from it.
 */
#include "daemon/engine/targets/target_limits.h"

#include "daemon/engine/base/proc_read.h"
#include "lib/cgroup/cgroup_limits.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/rules/metric.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Of /proc/<pid>/cgroup: a dozen v1 hierarchies with a pod's path each. */
#define TEXT_MAX 16384u

struct line {
	struct target_limits_line shown;
	struct line *next; /* in its bucket */
	struct limit_tree_place place;
	uint32_t holders, len;
	char text[]; /* a path begins with '/', the other with a digit */
};

struct target_limits {
	int procfd;
	struct limit_tree *tree;
	uint64_t numbers; /* the last that was given away */
	size_t count;
	struct line *buckets[TARGET_LIMITS_LINE_PARTS];
};

int target_limits_new(int procfd, const struct cgroup_mounts *mounts, const struct metric_machine *machine,
		      struct target_limits **ret)
{
	struct target_limits *cache = calloc(1, sizeof *cache);

	if (!cache)
		return -ENOMEM;

	cache->procfd = procfd;
	if (limit_tree_new(mounts, machine, &cache->tree) < 0) {
		free(cache);
		return -ENOMEM;
	}
	*ret = cache;

	return 0;
}

void target_limits_free(struct target_limits *cache)
{
	for (unsigned i = 0; cache && i < TARGET_LIMITS_LINE_PARTS; i++) {
		while (cache->buckets[i]) {
			struct line *line = cache->buckets[i];

			cache->buckets[i] = line->next;
			free(line);
		}
	}
	if (cache)
		limit_tree_free(cache->tree);
	free(cache);
}

static struct line **bucket_of(struct target_limits *cache, const char *text, size_t len)
{
	uint64_t hash = 14695981039346656037u;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;

	return &cache->buckets[(hash ^ hash >> 32) % TARGET_LIMITS_LINE_PARTS];
}

/* What follows from the tree as it is. */
static void settle(const struct target_limits *cache, struct line *line)
{
	struct cgroup_limits limits;

	limit_tree_limits(cache->tree, &line->place, &limits);
	if (limits.cpu == line->shown.cpu && limits.memory_bytes == line->shown.memory_bytes)
		return;

	line->shown.cpu = limits.cpu;
	line->shown.memory_bytes = limits.memory_bytes;
	line->shown.version++;
}

static struct line *make(struct target_limits *cache, const char *text, size_t len)
{
	struct line **bucket = bucket_of(cache, text, len), *line = calloc(1, sizeof *line + len);
	int r = line ? 0 : -ENOMEM;

	if (r == 0 && text[0] == '/')
		r = limit_tree_hold_cgroup(cache->tree, text, &line->place);
	else if (r == 0)
		r = limit_tree_hold_process(cache->tree, text, len, &line->place);
	if (r < 0) {
		free(line);
		return NULL;
	}

	line->shown.number = ++cache->numbers;
	line->len = (uint32_t)len;
	memcpy(line->text, text, len);
	line->next = *bucket;
	*bucket = line;
	cache->count++;
	settle(cache, line);

	return line;
}

void target_limits_drop(struct target_limits *cache, struct target_limits_line *shown)
{
	struct line *line = (struct line *)shown, **at;

	if (!line || --line->holders > 0)
		return;

	at = bucket_of(cache, line->text, line->len);
	while (*at != line)
		at = &(*at)->next;
	*at = line->next;
	cache->count--;
	limit_tree_drop(cache->tree, &line->place);
	free(line);
}

static int ask(struct target_limits *cache, const char *text, size_t len, struct target_limits_line **held)
{
	struct line *line = (struct line *)*held;

	if (line && line->len == len && memcmp(line->text, text, len) == 0)
		return 0;

	line = *bucket_of(cache, text, len);
	while (line && (line->len != len || memcmp(line->text, text, len) != 0))
		line = line->next;
	if (!line)
		line = make(cache, text, len);
	if (!line)
		return -ENOMEM;

	line->holders++;
	target_limits_drop(cache, *held);
	*held = &line->shown;

	return 0;
}

int target_limits_ask(struct target_limits *cache, int32_t pid, struct target_limits_line **line)
{
	char text[TEXT_MAX];
	ssize_t len = proc_read_file(cache->procfd, pid, "cgroup", text, sizeof text);

	return len < 0 ? (int)len : ask(cache, text, (size_t)len, line);
}

int target_limits_ask_cgroup(struct target_limits *cache, const char *path, struct target_limits_line **line)
{
	return ask(cache, path, strlen(path) + 1, line); /* its end too: the text is the tree's to read */
}

void target_limits_limits(const struct target_limits *cache, const struct target_limits_line *shown,
			  struct cgroup_limits *ret)
{
	const struct line *line = (const struct line *)shown;

	limit_tree_limits(cache->tree, &line->place, ret);
}

size_t target_limits_refresh(struct target_limits *cache, unsigned part)
{
	if (part < LIMIT_TREE_PARTS)
		return limit_tree_refresh(cache->tree, part);

	for (struct line *line = cache->buckets[part - LIMIT_TREE_PARTS]; line; line = line->next)
		settle(cache, line);

	return 0;
}

size_t target_limits_lines(const struct target_limits *cache)
{
	return cache->count;
}

size_t target_limits_directories(const struct target_limits *cache)
{
	return limit_tree_count(cache->tree);
}
