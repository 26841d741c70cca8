/* roster_events.c: found by pid alone, which is all that events say; of two with the same pid the one that ended is not back yet. */
#include "roster_events.h"

#include "roster_inside.h"

#include <errno.h>
#include <string.h>

bool roster_fetch(struct roster *roster)
{
	while (roster->back_count < ROSTER_BACK_MAX) {
		struct roster_back *back = &roster->back[roster->back_count];

		if (!samplers_returned(roster->options.samplers, &back->sampled, &back->why))
			break;
		roster->back_count++;
	}

	return roster->back_count > 0;
}

void roster_settle(struct roster *roster)
{
	for (size_t i = 0; i < roster->back_count; i++)
		roster_take_back(roster, roster->back[i].sampled->user, roster->back[i].why);
	roster->back_count = 0;
}

size_t roster_ended(const struct roster *roster)
{
	return roster->ended;
}

static void end(struct roster *roster, struct roster_target *target, const struct sample *counters)
{
	roster->ended += !target->ended;
	target->ended = true;
	sum_keep(&target->end, counters);
}

bool roster_unmatch(struct roster *roster, size_t entry, const struct roster_sighting *seen, const struct sample *now)
{
	struct roster_target *target =
		roster_table_process(&roster->table, roster->list.entries[entry], seen->pid, seen->start_ticks);

	if (!target || !roster_ask_back(roster, target))
		return false;

	target->moved = !target->ended; /* or it is over, and who has its pid is another one */
	if (target->moved && now->mask)
		end(roster, target, now);

	return true;
}

/* The next target of a process that is not about to leave, or NULL. */
static struct roster_target *next_of(const struct roster *roster, int32_t pid, uint64_t start_ticks,
				     const struct roster_target *after)
{
	struct roster_target *target = roster_table_pid(&roster->table, pid, after);

	while (target && (target->leaving || target->what.start_ticks != start_ticks))
		target = roster_table_pid(&roster->table, pid, target);

	return target;
}

size_t roster_watches(const struct roster *roster, int32_t pid, uint64_t start_ticks)
{
	const struct roster_target *target = NULL;
	size_t count = 0;

	while ((target = next_of(roster, pid, start_ticks, target)))
		count++;

	return count;
}

void roster_still(struct roster *roster, int32_t pid, uint64_t start_ticks, uint64_t scan)
{
	struct roster_target *target = NULL;

	while ((target = next_of(roster, pid, start_ticks, target)))
		target->seen = scan;
}

bool roster_was_other(const struct roster *roster, size_t entry, int32_t pid, uint64_t start_ticks, const char *comm)
{
	const struct roster_target *target =
		roster_table_process(&roster->table, roster->list.entries[entry], pid, start_ticks);

	return target && !target->group && strcmp(target->what.comm, comm) != 0;
}

bool roster_is_outdated(const struct roster *roster, size_t entry, const struct roster_sighting *seen)
{
	const struct roster_target *target =
		roster_table_process(&roster->table, roster->list.entries[entry], seen->pid, seen->start_ticks);

	if (!target)
		return false;
	if (strcmp(target->what.comm, seen->comm) != 0)
		return true; /* by its name an end is told from another's (is_meant) */

	return (!target->group || target->names_group) && target->arguments_at != seen->arguments_at;
}

int roster_describe_anew(const struct roster *roster, struct roster_target *target, const struct roster_sighting *seen)
{
	const struct target *what = &target->what;

	if (strcmp(what->comm, seen->comm) == 0 && strcmp(what->cmdline, seen->cmdline) == 0 &&
	    strcmp(what->cgroup, seen->cgroup) == 0)
		return 0;
	if (!roster_target_rename(&target->what, seen, roster_container_of(roster, seen->cgroup)))
		return -ENOMEM;

	return target->group ? 0 : sampler_target_describe_anew(&target->sampled, what);
}

int roster_describe(struct roster *roster, size_t entry, const struct roster_sighting *seen)
{
	struct roster_target *target =
		roster_table_process(&roster->table, roster->list.entries[entry], seen->pid, seen->start_ticks);

	if (!target)
		return 0;

	target->arguments_at = seen->arguments_at;
	target->membership.news = true;

	int r = roster_describe_anew(roster, target, seen);

	return r == 0 && target->names_group ? roster_describe_anew(roster, target->group, seen) : r;
}

struct renaming {
	const struct roster *roster;
	const char *cgroup;
	size_t len;
	const struct container *container;
	char title[CONTAINER_TITLE_MAX];
	int error;
};

/* Members of groups are told of to nobody; what another container within this one is, that one says. */
static int rename_contained(void *ctx, struct roster_target *target)
{
	struct renaming *renaming = ctx;
	struct target *what = &target->what;
	char before[CONTAINER_TITLE_MAX];
	struct container container;

	if (target->leaving || target->group || strncmp(what->cgroup, renaming->cgroup, renaming->len) != 0 ||
	    (what->cgroup[renaming->len] != '\0' && what->cgroup[renaming->len] != '/') ||
	    !container_unpack(what->container, &container) || strcmp(container.id, renaming->container->id) != 0)
		return 0;

	container_title(&container, before, sizeof before);

	/* A target that has the container's name for its own: others are called by the path, or the process. */
	bool called = what->kind == TARGET_CGROUP && strcmp(what->name, before) == 0;

	if (!roster_target_recontain(what, called ? renaming->title : what->name, renaming->container) ||
	    sampler_target_describe_anew(&target->sampled, what) < 0)
		renaming->error = -ENOMEM;

	return 0;
}

int roster_rename_container(struct roster *roster, const char *cgroup)
{
	struct renaming renaming = { .roster = roster,
				     .cgroup = cgroup,
				     .len = strlen(cgroup),
				     .container = roster_container_of(roster, cgroup) };

	if (!renaming.container)
		return 0;
	container_title(renaming.container, renaming.title, sizeof renaming.title);
	roster_table_visit(&roster->table, rename_contained, &renaming);

	return renaming.error;
}

bool roster_knows(const struct roster *roster, int32_t pid)
{
	return roster_table_pid(&roster->table, pid, NULL) != NULL;
}

bool roster_is_member(const struct roster *roster, size_t entry, int32_t pid)
{
	const struct roster_target *target = NULL;

	while ((target = roster_table_pid(&roster->table, pid, target)))
		if (target->group && target->entry == roster->list.entries[entry])
			return true;

	return false;
}

/* One that ended before, and not by moving, is another with the same pid. */
static bool is_meant(const struct roster_target *target, const struct roster_ending *ending)
{
	uint64_t ticks = target->what.start_ticks;

	if (ending->comm && strcmp(target->what.comm, ending->comm) != 0)
		return false;

	return (ending->start_ticks == 0 || ticks == ending->start_ticks) && ticks != ending->alive_ticks &&
	       (target->moved || !target->ended);
}

bool roster_end(struct roster *roster, const struct roster_ending *ending)
{
	struct roster_target *target = NULL;
	bool found = false;

	while ((target = roster_table_pid(&roster->table, ending->pid, target))) {
		if (!is_meant(target, ending))
			continue;
		if (!target->moved)
			end(roster, target, &ending->counters);
		found = true;
	}

	return found;
}

bool roster_credit(struct roster *roster, size_t entry, const struct sample *counters)
{
	struct roster_target *group = roster->list.entries[entry]->group;

	if (!group)
		return false;
	source_entry_credit(group->sampled.entry, NULL, counters);

	return true;
}
