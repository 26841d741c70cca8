/* matcher.c: made as a whole, so that a reload can exchange it in one go. */
#include "matcher.h"

#include "procread.h"

#include <errno.h>
#include <stdlib.h>

/* An entry with a tree gets the next bit; there are no more of them than bits (config.h). */
static int plant(struct matcher *matcher, size_t i)
{
	unsigned number = 0;

	if (!matcher->entries[i].tree)
		return 0;
	for (size_t before = 0; before < i; before++)
		number += matcher->entries[before].tree;
	matcher->trees[i] = 1ull << number;

	return matcher->kinship ? 0 : kinship_new(&matcher->kinship);
}

static int compile(struct matcher *matcher, size_t i)
{
	int r = match_new(&matcher->entries[i], &matcher->matches[i]);

	if (r == 0)
		r = plant(matcher, i);
	if (r < 0)
		return r;

	matcher->needs |= match_needs(matcher->matches[i]);
	matcher->by_path |= match_is_by_path(matcher->matches[i]);
	matcher->by_container |= matcher->entries[i].selector == CONFIG_CONTAINERS;
	matcher->by_label |= matcher->entries[i].label_count > 0;
	if (matcher->entries[i].per == CONFIG_PER_CGROUP && !match_is_by_path(matcher->matches[i]))
		matcher->needs |= MATCH_CGROUP;
	/* Nobody tells that a command line or a pid file was written, or a process moved to another cgroup; containers get their names late. */
	matcher->unannounced |= matcher->entries[i].selector == CONFIG_PIDFILE || matcher->by_container ||
				(matcher->needs & (MATCH_CMDLINE | MATCH_CGROUP)) != 0;

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
	matcher->trees = calloc(matcher->count, sizeof(*matcher->trees));
	matcher->verdicts = calloc(matcher->count, sizeof(*matcher->verdicts));
	if (!matcher->matches || !matcher->pidfile_pids || !matcher->trees || !matcher->verdicts)
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
	free(matcher->trees);
	kinship_free(matcher->kinship);
	free(matcher->verdicts);
	free(matcher);
}

bool matcher_read_pidfiles(struct matcher *matcher)
{
	bool changed = false;

	for (size_t i = 0; i < matcher->count; i++) {
		if (matcher->entries[i].selector != CONFIG_PIDFILE)
			continue;

		int32_t before = matcher->pidfile_pids[i];

		matcher->pidfile_pids[i] = procread_pidfile(matcher->entries[i].pattern);
		changed |= matcher->pidfile_pids[i] != before;
	}

	return changed;
}

/* By a name that its cgroup does not show. below: anywhere in the unit. */
static bool is_of_unit(const struct matcher *matcher, size_t i, const char *path, bool below)
{
	return matcher->units && path && matcher->entries[i].selector == CONFIG_UNIT &&
	       unittable_matches(matcher->units, matcher->entries[i].pattern, path, below);
}

static bool matches(const struct matcher *matcher, size_t i, const struct match_facts *facts)
{
	return match_process(matcher->matches[i], facts, matcher->pidfile_pids[i]) ||
	       (!match_is_by_path(matcher->matches[i]) && is_of_unit(matcher, i, facts->cgroup, true));
}

bool matcher_process(const struct matcher *matcher, size_t i, const struct match_facts *facts)
{
	return (facts->trees & matcher->trees[i]) != 0 || matches(matcher, i, facts);
}

bool matcher_descends(const struct matcher *matcher, size_t i, const struct match_facts *facts)
{
	return (facts->trees & matcher->trees[i]) != 0 && !matches(matcher, i, facts);
}

void matcher_judge(struct matcher *matcher, const struct match_facts *facts)
{
	for (size_t i = 0; i < matcher->count; i++)
		matcher->verdicts[i] = matcher_process(matcher, i, facts);
}

bool matcher_cgroup(const struct matcher *matcher, size_t i, const char *path, const struct container *container)
{
	return match_is_by_path(matcher->matches[i]) &&
	       (match_cgroup(matcher->matches[i], path, container) || is_of_unit(matcher, i, path, false));
}

bool matcher_any_cgroup(const struct matcher *matcher, const char *path, const struct container *container)
{
	for (size_t i = 0; i < matcher->count; i++)
		if (matcher_cgroup(matcher, i, path, container))
			return true;

	return false;
}

/* ---- trees ---- */

/* Where in the other's list the same entry is; count: nowhere. */
static size_t find_same(const struct matcher *matcher, const struct config_target *entry)
{
	size_t i = 0;

	while (i < matcher->count && !config_target_same(&matcher->entries[i], entry))
		i++;

	return i;
}

void matcher_succeed(struct matcher *matcher, struct matcher *before)
{
	unsigned place[KINSHIP_TREES];

	matcher->units = before->units;
	if (!matcher->kinship || !before->kinship)
		return;

	for (unsigned i = 0; i < KINSHIP_TREES; i++)
		place[i] = KINSHIP_TREES;
	for (size_t i = 0; i < before->count; i++) {
		size_t same = before->trees[i] ? find_same(matcher, &before->entries[i]) : matcher->count;

		if (same < matcher->count)
			place[__builtin_ctzll(before->trees[i])] = (unsigned)__builtin_ctzll(matcher->trees[same]);
	}
	kinship_free(matcher->kinship);
	matcher->kinship = before->kinship;
	before->kinship = NULL;
	kinship_renumber(matcher->kinship, place);
}

void matcher_meet(struct matcher *matcher, struct scanned *scanned)
{
	struct match_facts *facts = &scanned->facts;
	uint64_t roots = 0;

	if (!matcher->kinship)
		return;

	for (size_t i = 0; i < matcher->count; i++)
		if (matcher->trees[i] && matches(matcher, i, facts))
			roots |= matcher->trees[i];
	facts->trees = kinship_met(matcher->kinship,
				   &(struct kinship_process){ .pid = facts->pid,
							      .ppid = scanned->stat.parent_pid,
							      .start_ticks = scanned->stat.start_ticks },
				   roots);
}

void matcher_forked(struct matcher *matcher, int32_t ppid, int32_t pid)
{
	if (matcher->kinship)
		kinship_forked(matcher->kinship, ppid, pid);
}

void matcher_ended(struct matcher *matcher, int32_t pid)
{
	if (matcher->kinship)
		kinship_ended(matcher->kinship, pid);
}

bool matcher_was_in_tree(const struct matcher *matcher, size_t i, int32_t pid, int32_t ppid)
{
	uint64_t trees = 0;

	if (!matcher->trees[i])
		return false;
	if (!kinship_find(matcher->kinship, pid, &trees))
		kinship_find(matcher->kinship, ppid, &trees);

	return (trees & matcher->trees[i]) != 0;
}

void matcher_scan_begin(struct matcher *matcher)
{
	if (!matcher->kinship)
		return;

	kinship_belated(matcher->kinship);
	kinship_begin(matcher->kinship);
}

bool matcher_scan_end(struct matcher *matcher)
{
	if (!matcher->kinship)
		return false;

	kinship_sweep(matcher->kinship);

	return kinship_belated(matcher->kinship);
}

bool matcher_is_behind(struct matcher *matcher)
{
	return matcher->kinship && kinship_belated(matcher->kinship);
}
