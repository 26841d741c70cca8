/*
 * target_table.c: a hash table from identity to target, and the two queues to the sampler.
 *
 * An entry is known by a number of its own, not by its place in the configuration: a target of an
 * entry that changed and its successor, which may be the same process, never meet in the table.
 *
 * The queue is in order, and so are the answers. A member whose removal was asked for before its
 * group's is back before it; and a place that was asked for is free before a newcomer that was
 * queued later is added.
 */
#include "daemon/engine/targets/target_table.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/proc_read.h"
#include "daemon/engine/sampling/sampler.h"
#include "daemon/engine/targets/containers.h"
#include "daemon/engine/targets/target_limits.h"
#include "lib/base/base.h"
#include "lib/cgroup/cgroup_limits.h"
#include "lib/config/config.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"
#include "lib/rules/metric.h"
#include "lib/source/source.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * So many change tier after a scan, each way: what comes after waits for the next. Opening one
 * takes 15 us.
 */
#define TARGET_TABLE_TIERS_CHANGES 256u

/*
 * Since it was met, while a refresh asks it every time; between two questions to one that sleeps.
 */
#define TARGET_TABLE_LIMITS_YOUNG_NS (10 * NS_PER_S)
#define TARGET_TABLE_LIMITS_LONG_NS (30 * NS_PER_S)

static struct target_table_entry *target_table_entry_hold(struct target_table_entry *entry);
static void target_table_list_release(struct target_table_list *list);
static bool target_table_ask_back(struct target_table *target_table, struct target_table_target *target);
static const struct container *target_table_container_of(const struct target_table *target_table, const char *cgroup);
static void target_table_take_back(struct target_table *target_table, struct target_table_target *target,
				   enum sampler_return why);
static void target_table_limits_settle(const struct target_table_options *options, struct target_table_target *group);

/*
 * target_table_target.c: a hash table from identity to target: the number of the entry, and the pid
 * or the path.
 */

/* ---- one ---- */

/*
 * Whether who has the pid is called as was seen: a start time is a hundredth of a second, in which
 * another process may have got it. Asked when its files are open; one of the same name is of the
 * same entries. True also if it has ended, or that cannot be told. A file is read.
 */
static bool target_has_comm(int procfd, const struct process_observation *seen)
{
	char comm[64];
	ssize_t len = proc_read_file(procfd, seen->pid, "comm", comm, sizeof comm);

	if (len <= 0)
		return true;
	len -= comm[len - 1] == '\n';

	return strlen(seen->comm) == (size_t)len && memcmp(seen->comm, comm, (size_t)len) == 0;
}

void target_table_target_free(struct target_table_target *target)
{
	sampler_target_release(&target->sampled);
	target_table_entry_drop(target->entry);
	free((char *)(uintptr_t)target->what.name);
	free((char *)(uintptr_t)target->what.key);
	free((char *)(uintptr_t)target->what.comm);
	free((char *)(uintptr_t)target->what.cmdline);
	free((char *)(uintptr_t)target->what.cgroup);
	free((char *)(uintptr_t)target->what.container);
	free(target);
}

/*
 * Copies what and its strings, and holds entry, whose name it takes; nothing is open yet. NULL: no
 * memory.
 */
static struct target_table_target *target_table_target_new(struct target_table_entry *entry, const struct target *what)
{
	struct target_table_target *target = calloc(1, sizeof *target);

	if (!target)
		return NULL;

	target->entry = target_table_entry_hold(entry);
	target->sampled.user = target;
	target->what = *what;
	target->what.entry = entry->name;
	target->what.name = strdup(what->name);
	target->what.key = strdup(what->key);
	target->what.comm = strdup(what->comm);
	target->what.cmdline = strdup(what->cmdline);
	target->what.cgroup = strdup(what->cgroup);
	target->what.container = strdup(what->container ? what->container : "");
	if (target->what.name && target->what.key && target->what.comm && target->what.cmdline && target->what.cgroup &&
	    target->what.container)
		return target;

	target_table_target_free(target);

	return NULL;
}

/* An entry that can only mean one process at a time gives it its own name. */
static bool is_one_process(const struct config_target *config)
{
	return (config->selector == CONFIG_PID || config->selector == CONFIG_PIDFILE) &&
	       config->per == CONFIG_PER_PROCESS;
}

static void pack(const struct container *container, char packed[CONTAINER_PACKED_MAX])
{
	packed[0] = '\0';
	if (container)
		container_pack(container, packed, CONTAINER_PACKED_MAX);
}

/*
 * A process that was met for an entry, which is config in the configuration; a cgroup. container:
 * that it is in, or NULL. The id is still to come. NULL: no memory.
 */
static struct target_table_target *target_table_target_process(struct target_table_entry *entry,
							       const struct config_target *config,
							       const struct process_observation *seen,
							       const struct container *container)
{
	char name[96], key[128], packed[CONTAINER_PACKED_MAX];

	if (is_one_process(config) && !seen->descends) {
		/*
		 * Whichever process it is at the moment: its cooldowns go on when it is restarted.
		 */
		snprintf(name, sizeof name, "%s", entry->name);
		snprintf(key, sizeof key, "%s", entry->name);
	} else {
		snprintf(name, sizeof name, "%s/%d", entry->name, seen->pid);
		snprintf(key, sizeof key, "%s:%d@%llu", entry->name, seen->pid, (unsigned long long)seen->start_ticks);
	}

	pack(container, packed);

	struct target_table_target *target =
		target_table_target_new(entry, &(struct target){ .kind = TARGET_PROCESS,
								 .pid = seen->pid,
								 .start_ticks = seen->start_ticks,
								 .name = name,
								 .key = key,
								 .comm = seen->comm,
								 .cmdline = seen->cmdline,
								 .cgroup = seen->cgroup,
								 .container = packed });

	if (target) {
		target->arguments_at = seen->arguments_at;
		target->names_group =
			config->per == CONFIG_PER_GROUP && config->selector <= CONFIG_PIDFILE && !seen->descends;
	}

	return target;
}

static void put_in_place(const char **at, char *text)
{
	free((char *)(uintptr_t)*at);
	*at = text;
}

/*
 * Puts other texts in the place of comm, cmdline, cgroup and container (NULL: none) of a
 * description. False: no memory, nothing changed.
 */
static bool target_table_target_rename(struct target *what, const struct process_observation *seen,
				       const struct container *container)
{
	char packed[CONTAINER_PACKED_MAX];

	pack(container, packed);

	char *comm = strdup(seen->comm), *cmdline = strdup(seen->cmdline), *cgroup = strdup(seen->cgroup);
	char *contained = strdup(packed);

	if (comm && cmdline && cgroup && contained) {
		put_in_place(&what->comm, comm);
		put_in_place(&what->cmdline, cmdline);
		put_in_place(&what->cgroup, cgroup);
		put_in_place(&what->container, contained);
		return true;
	}
	free(comm);
	free(cmdline);
	free(cgroup);
	free(contained);

	return false;
}

/*
 * Another container, and name of a target, in the place of what they were. False: no memory,
 * nothing changed.
 */
static bool target_table_target_recontain(struct target *what, const char *name, const struct container *container)
{
	char packed[CONTAINER_PACKED_MAX];

	pack(container, packed);

	char *called = strdup(name), *contained = strdup(packed);

	if (called && contained) {
		put_in_place(&what->name, called);
		put_in_place(&what->container, contained);
		return true;
	}
	free(called);
	free(contained);

	return false;
}

/* A description has room for a kilobyte (target.h), in which a path is three times. */
#define PATH_WHOLE_MAX 200u
#define PATH_HEAD 40u
#define PATH_TAIL 120u
#define PATH_SHORT_MAX (PATH_WHOLE_MAX + 1)

static bool continues_character(char byte)
{
	return ((unsigned char)byte & 0xc0) == 0x80;
}

/* FNV-1a: the same after a restart. */
static uint64_t hash_path(const char *path)
{
	uint64_t hash = 14695981039346656037u;

	for (; *path; path++)
		hash = (hash ^ (unsigned char)*path) * 1099511628211u;

	return hash;
}

/*
 * A path as a name that only this path has: a long one as its beginning, its end, and a number made
 * of all of it.
 */
static void shorten_path(const char *path, char ret[PATH_SHORT_MAX])
{
	size_t len = strlen(path), head = PATH_HEAD, tail = len > PATH_TAIL ? len - PATH_TAIL : 0;

	if (len <= PATH_WHOLE_MAX) {
		memcpy(ret, path, len + 1);
		return;
	}

	for (int i = 0; i < 3 && continues_character(path[head]); i++)
		head--;
	for (int i = 0; i < 3 && continues_character(path[tail]); i++)
		tail++;
	snprintf(ret, PATH_SHORT_MAX, "%.*s...%s~%016llx", (int)head, path, path + tail,
		 (unsigned long long)hash_path(path));
}

struct target_table_target *target_table_target_cgroup(struct target_table_entry *entry,
						       const struct config_target *config, const char *path,
						       const struct container *container)
{
	char shown[PATH_SHORT_MAX], key[PATH_SHORT_MAX + 80], packed[CONTAINER_PACKED_MAX], title[CONTAINER_TITLE_MAX];
	bool called = container && config->selector == CONFIG_CONTAINERS;

	/* By the path, whatever it is called: that may be found out at another time. */
	shorten_path(path, shown);
	snprintf(key, sizeof key, "%s:%s", entry->name, shown);
	pack(container, packed);
	if (called)
		container_title(container, title, sizeof title);

	return target_table_target_new(entry, &(struct target){ .kind = TARGET_CGROUP,
								.name = called ? title : shown,
								.key = key,
								.comm = "",
								.cmdline = "",
								.cgroup = path,
								.container = packed });
}

/* ---- the table ---- */

static uint32_t hash_identity(const struct target_table_entry *entry, int32_t pid, const char *path)
{
	uint32_t hash = 2166136261u ^ entry->number;

	hash = (hash ^ (uint32_t)pid) * 16777619u;
	for (; path && *path; path++)
		hash = (hash ^ (unsigned char)*path) * 16777619u;

	return (hash ^ (hash >> 15)) & (TARGET_TABLE_BUCKETS - 1);
}

static uint32_t bucket_of(const struct target_table_target *target)
{
	return hash_identity(target->entry, target->what.pid,
			     target->what.kind == TARGET_CGROUP ? target->what.cgroup : NULL);
}

/*
 * Those of an entry; NULL: not there. A process is (pid, start_ticks); one that is leaving is not
 * there any more.
 */
static struct target_table_target *target_table_table_process(const struct target_table_table *table,
							      const struct target_table_entry *entry, int32_t pid,
							      uint64_t start_ticks)
{
	struct target_table_target *target = table->buckets[hash_identity(entry, pid, NULL)];

	for (; target; target = target->next)
		if (target->what.kind == TARGET_PROCESS && target->entry == entry && target->what.pid == pid &&
		    target->what.start_ticks == start_ticks && !target->leaving)
			return target;

	return NULL;
}

static struct target_table_target *target_table_table_cgroup(const struct target_table_table *table,
							     const struct target_table_entry *entry, const char *path)
{
	struct target_table_target *target = table->buckets[hash_identity(entry, 0, path)];

	for (; target; target = target->next)
		if (target->what.kind == TARGET_CGROUP && target->entry == entry &&
		    strcmp(target->what.cgroup, path) == 0)
			return target;

	return NULL;
}

static uint32_t bucket_of_pid(int32_t pid)
{
	return (uint32_t)pid & (TARGET_TABLE_BUCKETS - 1);
}

/*
 * Processes with that pid, of all entries, also leaving ones: the first, or the one after `after`.
 * NULL: no more.
 */
static struct target_table_target *target_table_table_pid(const struct target_table_table *table, int32_t pid,
							  const struct target_table_target *after)
{
	struct target_table_target *target = after ? after->next_pid : table->pids[bucket_of_pid(pid)];

	while (target && target->what.pid != pid)
		target = target->next_pid;

	return target;
}

/* It stays its owner's until target_table_table_clear. Must not be there yet. */
static void target_table_table_enter(struct target_table_table *table, struct target_table_target *target)
{
	struct target_table_target **bucket = &table->buckets[bucket_of(target)];

	target->next = *bucket;
	*bucket = target;
	if (target->what.kind != TARGET_PROCESS)
		return;

	bucket = &table->pids[bucket_of_pid(target->what.pid)];
	target->next_pid = *bucket;
	*bucket = target;
}

/* It must be there. */
static void target_table_table_remove(struct target_table_table *table, struct target_table_target *target)
{
	struct target_table_target **at = &table->buckets[bucket_of(target)];

	while (*at != target)
		at = &(*at)->next;
	*at = target->next;
	if (target->what.kind != TARGET_PROCESS)
		return;

	at = &table->pids[bucket_of_pid(target->what.pid)];
	while (*at != target)
		at = &(*at)->next_pid;
	*at = target->next_pid;
}

/* Frees all that is inside. */
static void target_table_table_clear(struct target_table_table *table)
{
	for (unsigned i = 0; i < TARGET_TABLE_BUCKETS; i++) {
		while (table->buckets[i]) {
			struct target_table_target *target = table->buckets[i];

			table->buckets[i] = target->next;
			target_table_target_free(target);
		}
	}
}

/* As target_table_visit. */
static int target_table_table_visit(const struct target_table_table *table,
				    int (*visit)(void *ctx, struct target_table_target *target), void *ctx)
{
	for (unsigned i = 0; i < TARGET_TABLE_BUCKETS; i++) {
		for (struct target_table_target *target = table->buckets[i]; target; target = target->next) {
			int r = visit(ctx, target);

			if (r)
				return r;
		}
	}

	return 0;
}

/*
 * target_table_entry.c: holders are the list of entries in force and every target. All under the
 * target table's owner: no atomics.
 */

struct target_table_entry *target_table_entry_new(const char *name, uint32_t number)
{
	struct target_table_entry *entry = calloc(1, sizeof *entry);

	if (!entry)
		return NULL;

	entry->number = number;
	entry->holders = 1;
	entry->name = strdup(name);
	if (entry->name)
		return entry;

	free(entry);

	return NULL;
}

/* One holder more; returns it. */
static struct target_table_entry *target_table_entry_hold(struct target_table_entry *entry)
{
	entry->holders++;

	return entry;
}

void target_table_entry_drop(struct target_table_entry *entry)
{
	if (!entry || --entry->holders > 0)
		return;

	free(entry->name);
	free(entry);
}

/*
 * target_table_list.c: nothing of the list in force is touched, but for the holders of what both
 * have.
 */

static int make_group(const struct target_table_options *options, struct target_table_entry *entry, uint32_t id)
{
	struct target_table_target *group = target_table_target_new(entry, &(struct target){ .id = id,
											     .kind = TARGET_GROUP,
											     .name = entry->name,
											     .key = entry->name,
											     .comm = "",
											     .cmdline = "",
											     .cgroup = "" });
	int r;

	if (!group)
		return -ENOMEM;

	r = source_entry_group(&group->sampled, &group->sampled.entry);
	if (r == 0)
		r = sampler_target_describe(&group->sampled, &group->what);
	if (r < 0) {
		target_table_target_free(group);
		return r;
	}
	target_table_limits_settle(options, group);
	group->unlent = true;
	entry->group = group;

	return 0;
}

/* The entry of the configuration in force that is the same; NULL: there is none. */
static struct target_table_entry *find_same(const struct target_table_options *options,
					    const struct target_table_list *before, const struct config_target *wanted)
{
	for (size_t i = 0; i < before->count; i++)
		if (config_target_same(&options->config->targets[i], wanted))
			return before->entries[i];

	return NULL;
}

static int make_entry(const struct target_table_options *options, const struct config_target *wanted,
		      struct target_table_numbers *numbers, struct target_table_entry **ret)
{
	*ret = target_table_entry_new(wanted->name, ++numbers->entry);
	if (!*ret)
		return -ENOMEM;

	(*ret)->planned = true;

	return wanted->per == CONFIG_PER_GROUP ? make_group(options, *ret, ++numbers->target) : 0;
}

/*
 * The entries of config: those that are equal to one of before (the list of options->config) are
 * the same objects, others are new, with their groups, and planned. 0; -ENOMEM: only numbers has
 * changed.
 */
static int target_table_list_make(const struct target_table_options *options, const struct target_table_list *before,
				  const struct config *config, struct target_table_numbers *numbers,
				  struct target_table_list *ret)
{
	struct target_table_list list = {
		.entries = calloc(config->target_count, sizeof(struct target_table_entry *)),
		.count = config->target_count,
	};
	int r = list.entries ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < list.count; i++) {
		struct target_table_entry *same = find_same(options, before, &config->targets[i]);

		if (same)
			list.entries[i] = target_table_entry_hold(same);
		else
			r = make_entry(options, &config->targets[i], numbers, &list.entries[i]);
	}
	if (r < 0) {
		target_table_list_release(&list);
		return r;
	}
	*ret = list;

	return 0;
}

/* Lets go of the entries; groups of planned ones are freed. {0} is fine. */
static void target_table_list_release(struct target_table_list *list)
{
	for (size_t i = 0; list->entries && i < list->count; i++) {
		struct target_table_entry *entry = list->entries[i];

		if (entry && entry->planned && entry->group)
			target_table_target_free(entry->group);
		target_table_entry_drop(entry);
	}
	free(list->entries);
}

/*
 * target_table_tiers.c: heat is how often a process was read after it had run, as of the last scan,
 * and half of what it was before.
 *
 * To change places the cold one must be twice as hot, and hotter by more than chance: those that
 * run alike would change places at every scan otherwise. The warm one gives up its descriptors at
 * its next look, so the cold one has them after the next scan, unless a newcomer came first, which
 * most likely runs too.
 *
 * Rejected: closing and opening in one go (the sampler's thread cannot wait, and nobody else may
 * close what it reads); a process that runs just now becoming warm at once, between scans (whoever
 * wakes once in a minute would be opened and closed for it).
 */

/* Fewer runs between two scans are no reason to become warm. */
#define HEAT_MIN 3u

/*
 * What happens by chance n times on average happens n +- sqrt(n) times. A difference within twice
 * that is no difference: among thousands that run alike somebody always happens to have run twice
 * as often as somebody else.
 */
#define CHANCE 4u

/* What a process ran before it was first looked at says little. */
#define RUNS_MAX 4096u

/* A cgroup takes up to ten, a process gives up at least three. */
#define PROCESSES_PER_CGROUP 4u

/*
 * Nobody gets any while fewer are free than a cgroup takes: so many more processes than are waited
 * for give up theirs.
 */
#define SPARE 3u

/* ---- recent pids ---- */

/* Whether a process that is met now is cold to begin with. */
static bool target_table_tiers_newcomer(struct target_table *target_table)
{
	if (target_table->tiers.making_way == 0 && !descriptors_short(target_table->options.procfd))
		return false;

	target_table->tiers.uneven = true;

	return true;
}

/* A cgroup could not be opened for want of descriptors. */
static void target_table_tiers_refused(struct target_table *target_table)
{
	target_table->tiers.unopened++;
}

static bool looks_at(const struct config_rule *rule, const char *entry)
{
	for (size_t i = 0; i < rule->target_count; i++)
		if (strcmp(rule->targets[i], entry) == 0)
			return true;

	return rule->target_count == 0;
}

/*
 * Says which entries' processes have their high-water marks and descriptors read even when they are
 * cold: those that a rule looks at; and how long they may go without a look while they are idle.
 */
static void target_table_tiers_need(struct target_table *target_table, struct target_table_target *target)
{
	const struct config *config = target_table->options.config;
	bool peak = false, fds = false;

	if (target->what.kind != TARGET_PROCESS)
		return;

	for (size_t i = 0; i < config->rule_count; i++) {
		const struct config_rule *rule = &config->rules[i];

		if ((rule->metric == METRIC_MEMORY_PEAK || rule->metric == METRIC_FDS) &&
		    looks_at(rule, target->entry->name)) {
			peak |= rule->metric == METRIC_MEMORY_PEAK;
			fds |= rule->metric == METRIC_FDS;
		}
	}
	source_entry_need(target->sampled.entry, peak, fds);
	source_entry_set_idle(target->sampled.entry, config_idle_of(config, target->entry->name));
}

/* ---- after a scan ---- */

/* Pointers to all processes: cold ones from the front, warm ones from the back. */
struct tiers {
	struct target_table_target **slots;
	size_t count, cold, warm;
};

static void warm_up(struct target_table_target *target)
{
	uint32_t runs = source_entry_runs(target->sampled.entry), since = runs - target->runs;

	target->runs = runs;
	target->heat = target->heat / 2 + (since < RUNS_MAX ? since : RUNS_MAX);
	target->idle_scans = since ? 0 : target->idle_scans + (target->idle_scans < UINT32_MAX);
}

static int sort_in(void *ctx, struct target_table_target *target)
{
	struct tiers *tiers = ctx;

	if (target->what.kind != TARGET_PROCESS || target->leaving || tiers->cold + tiers->warm == tiers->count)
		return 0;

	warm_up(target);
	if (source_entry_is_cold(target->sampled.entry))
		tiers->slots[tiers->cold++] = target;
	else
		tiers->slots[tiers->count - ++tiers->warm] = target;

	return 0;
}

/* The hottest first. */
static int compare_heat(const void *a, const void *b)
{
	const struct target_table_target *const *x = a, *const *y = b;

	if ((*x)->heat != (*y)->heat)
		return (*x)->heat < (*y)->heat ? 1 : -1;
	if ((*x)->idle_scans != (*y)->idle_scans)
		return (*x)->idle_scans > (*y)->idle_scans ? 1 : -1;

	return 0;
}

/* False: there are no descriptors for more. One that has ended meanwhile is nothing to speak of. */
static bool open_files(struct target_table *target_table, struct target_table_target *target)
{
	const struct config_sampling *sampling = &target_table->options.config->sampling;
	struct source_options wanted = {
		.peak_interval_ns = sampling->peak_interval_ns,
		.fds_interval_ns = sampling->fds_interval_ns,
		.reset_peaks = sampling->reset_peaks,
	};

	if (descriptors_short(target_table->options.procfd))
		return false;

	int r = source_entry_warm(target->sampled.entry, &wanted);

	if (r == 0)
		target->reading = target_table->reading;

	return r != -EMFILE && r != -ENFILE && r != -ENOMEM;
}

/* Descriptors that are free go to the hottest. How many of the cold ones were dealt with. */
static size_t hand_out(struct target_table *target_table, struct target_table_target **cold, size_t count)
{
	size_t done = 0;

	while (target_table->tiers.making_way == 0 && done < count && done < TARGET_TABLE_TIERS_CHANGES &&
	       open_files(target_table, cold[done]))
		done++;

	return done;
}

static bool deserves(const struct target_table_target *cold, const struct target_table_target *warm)
{
	uint64_t more = cold->heat - warm->heat;

	return cold->heat >= HEAT_MIN && cold->heat / 2 > warm->heat &&
	       more * more > CHANCE * ((uint64_t)cold->heat + warm->heat);
}

/*
 * Those that ran least and longest ago give theirs up: for cgroups, and for the cold ones that are
 * still waiting.
 */
static void take_away(const struct tiers *tiers, struct target_table_target **cold, size_t waiting, size_t making_way)
{
	struct target_table_target **last = tiers->slots + tiers->count - 1;
	size_t given = 0, wanted = 0;

	for (; given < tiers->warm && given < making_way * PROCESSES_PER_CGROUP; given++)
		source_entry_chill((*last--)->sampled.entry);
	waiting = waiting < TARGET_TABLE_TIERS_CHANGES ? waiting : TARGET_TABLE_TIERS_CHANGES;
	while (wanted < waiting && given + wanted < tiers->warm && deserves(cold[wanted], *(last - wanted)))
		wanted++;
	if (wanted > 0)
		wanted += SPARE;
	for (; wanted > 0 && given < tiers->warm && deserves(cold[0], *last); wanted--, given++)
		source_entry_chill((*last--)->sampled.entry);
}

static void balance(struct target_table *target_table, struct tiers *tiers)
{
	target_table_table_visit(&target_table->table, sort_in, tiers);

	struct target_table_target **cold = tiers->slots, **warm = tiers->slots + tiers->count - tiers->warm;

	qsort(cold, tiers->cold, sizeof cold[0], compare_heat);
	qsort(warm, tiers->warm, sizeof warm[0], compare_heat);

	size_t done = hand_out(target_table, cold, tiers->cold);

	take_away(tiers, cold + done, tiers->cold - done, target_table->tiers.making_way);
	target_table->tiers.uneven = tiers->cold > 0 || target_table->tiers.making_way > 0;
	target_table->counts.cold = tiers->cold;
}

/*
 * After a whole scan: asks some to give up their descriptors, and opens those of others. Without
 * the memory for that everything stays as it is.
 */
static void target_table_tiers_balance(struct target_table *target_table)
{
	struct tiers tiers = { .count = target_table->counts.processes };

	target_table->tiers.making_way = target_table->tiers.unopened;
	target_table->tiers.unopened = 0;
	if (!target_table->tiers.uneven && target_table->tiers.making_way == 0)
		return;

	tiers.slots = calloc(tiers.count + 1, sizeof(struct target_table_target *));
	if (!tiers.slots)
		return;

	balance(target_table, &tiers);
	free(tiers.slots);
}

/*
 * target table_limits.c: a process holds the line of the cgroups that it is in (target_limits.h). A
 * group has the limits of its members if they share one, else the machine's.
 *
 * A refresh goes over the cgroups first, then over the targets, a bucket of the table at a time:
 * between two of them targets may come and go. What members share is collected in the entry, and
 * the group has it when all were passed: until then it has what it had.
 *
 * Rejected: asking the cgroups who is in them. One reading of cgroup.procs tells it of all, but on
 * v1 three are needed; of a cgroup of ten thousand processes one of which is watched it tells ten
 * thousand; of threaded cgroups, and over pid namespaces, it tells nothing.
 */

/*
 * What a slice may take, and what things cost, in microseconds, rounded up: a dozen system calls,
 * three, a look at what is in memory.
 */
#define SAMPLE_WINDOW_US 500u
#define DIRECTORY_US 20u
#define ASKING_US 15u
#define LOOK_US 1u

/*
 * To have run in so many looks is noticeable however long that took; or in one of so many that fit
 * into that time.
 */
#define RUNS_NOTICEABLE 16u
#define RUNS_SHARE 4u

/* ---- of one ---- */

/*
 * Reads those of a process or a cgroup. What cannot be read stays what it was; of a new one it is
 * unavailable. 0; -ENOMEM.
 */
static int target_table_limits_read(struct target_table *target_table, struct target_table_target *target)
{
	struct target_limits_line **line = &target->membership.line;
	int r = target->what.kind == TARGET_CGROUP
			? target_limits_ask_cgroup(target_table->limits, target->what.cgroup, line)
			: target_limits_ask(target_table->limits, target->what.pid, line);

	return r == -ENOMEM ? r : 0;
}

/* Hands them to the sampler. */
static void target_table_limits_apply(struct target_table_target *target)
{
	struct target_table_membership *membership = &target->membership;
	const struct target_limits_line *line = membership->line;

	if (target->what.kind == TARGET_GROUP) {
		const struct cgroup_limits *limits = &target->entry->limits;

		source_entry_set_limits(target->sampled.entry, limits->cpu, limits->memory_bytes);
		return;
	}

	source_entry_set_limits(target->sampled.entry, line ? line->cpu : UINT64_MAX,
				line ? line->memory_bytes : UINT64_MAX);
	membership->version = line ? line->version : 0;
}

void target_table_limits_of(const struct target_table *target_table, const struct target_table_target *target,
			    struct cgroup_limits *ret)
{
	if (target->what.kind == TARGET_GROUP)
		*ret = target->entry->limits;
	else if (target->membership.line)
		target_limits_limits(target_table->limits, target->membership.line, ret);
	else
		*ret = (struct cgroup_limits){ .cpu = UINT64_MAX, .memory_bytes = UINT64_MAX };
}

/* Before a target is freed. */
static void target_table_limits_release(struct target_table *target_table, struct target_table_target *target)
{
	target_limits_drop(target_table->limits, target->membership.line);
	target->membership.line = NULL;
}

/* ---- groups ---- */

static void merge(const struct target_table *target_table, struct target_table_entry *entry,
		  const struct target_limits_line *line)
{
	struct cgroup_limits member, *merged = &entry->merged;

	if (!line || line->number == entry->merged_line)
		return;

	entry->merged_line = line->number;
	target_limits_limits(target_table->limits, line, &member);
	if (merged->cpu == 0) { /* none merged yet */
		*merged = member;
		return;
	}
	if (strcmp(merged->cpu_from, member.cpu_from) != 0)
		merged->cpu = UINT64_MAX;
	if (strcmp(merged->memory_from, member.memory_from) != 0)
		merged->memory_bytes = UINT64_MAX;
}

/*
 * A group has what its members share as far as they were asked (target_table_refresh_some_limits):
 * applied too.
 */
static void target_table_limits_settle(const struct target_table_options *options, struct target_table_target *group)
{
	const struct metric_machine *machine = &options->machine;
	struct cgroup_limits *limits = &group->entry->limits;

	*limits = group->entry->merged;
	if (limits->cpu == 0 || limits->cpu == UINT64_MAX) {
		limits->cpu = (uint64_t)(machine->cores * 1e9);
		limits->cpu_is_machine = true;
		limits->cpu_from[0] = '\0';
	}
	if (limits->memory_bytes == 0 || limits->memory_bytes == UINT64_MAX) {
		limits->memory_bytes = machine->memory_bytes;
		limits->memory_is_machine = true;
		limits->memory_from[0] = '\0';
	}
	target_table_limits_apply(group);
}

/* ---- where a process is ---- */

static uint64_t since(mono_t then, mono_t now)
{
	int64_t age = mono_diff(now, then);

	return age > 0 ? (uint64_t)age : 0;
}

static bool ran_noticeably(const struct target_table *target_table, const struct target_table_membership *membership,
			   uint32_t runs, uint64_t age_ns)
{
	uint32_t more = runs - membership->runs;

	return more >= RUNS_NOTICEABLE ||
	       (more > 0 && more * target_table->options.config->sampling.interval_ns * RUNS_SHARE >= age_ns);
}

/*
 * Whether the moment at which it is asked in its sleep was passed: ids are spread over the time
 * between two.
 */
static bool is_its_turn(const struct target_table_target *target, mono_t now)
{
	uint64_t spread = target->what.id * UINT32_C(2654435769) >> 16;
	uint64_t offset = spread * (TARGET_TABLE_LIMITS_LONG_NS >> 16);

	return (target->membership.asked.ns + offset) / TARGET_TABLE_LIMITS_LONG_NS !=
	       (now.ns + offset) / TARGET_TABLE_LIMITS_LONG_NS;
}

static bool is_to_be_asked(const struct target_table *target_table, const struct target_table_target *target,
			   uint32_t runs, mono_t now)
{
	const struct target_table_membership *membership = &target->membership;

	return !membership->line || membership->news || since(membership->met, now) < TARGET_TABLE_LIMITS_YOUNG_NS ||
	       ran_noticeably(target_table, membership, runs, since(membership->asked, now)) ||
	       is_its_turn(target, now);
}

/* True: it was asked. */
static bool follow(struct target_table *target_table, struct target_table_target *target, mono_t now)
{
	struct target_table_membership *membership = &target->membership;
	uint32_t runs = source_entry_runs(target->sampled.entry);

	if (target->what.kind != TARGET_PROCESS)
		return false;
	if (membership->met.ns == 0)
		membership->met = now;
	if (!is_to_be_asked(target_table, target, runs, now))
		return false;

	membership->asked = now;
	membership->runs = runs;
	membership->news = false;
	target_table_limits_read(target_table, target);

	return true;
}

/* ---- all of them anew ---- */

static void begin(struct target_table *target_table)
{
	for (size_t i = 0; i < target_table->list.count; i++) {
		target_table->list.entries[i]->merged = (struct cgroup_limits){ 0 };
		target_table->list.entries[i]->merged_line = 0;
	}
}

/* Returns what it cost. */
static unsigned refresh_one(struct target_table *target_table, struct target_table_target *target, mono_t now)
{
	const struct target_limits_line *before = target->membership.line;

	if (target->what.kind == TARGET_GROUP || target->entry->dismissed)
		return LOOK_US;

	bool asked = follow(target_table, target, now);
	const struct target_limits_line *line = target->membership.line;

	if (line != before || (line && line->version != target->membership.version))
		target_table_limits_apply(target);
	if (target->group)
		merge(target_table, target->entry, line);

	return asked ? ASKING_US : LOOK_US;
}

static void finish(struct target_table *target_table)
{
	for (size_t i = 0; i < target_table->list.count; i++)
		if (target_table->list.entries[i]->group)
			target_table_limits_settle(&target_table->options, target_table->list.entries[i]->group);
}

/* Returns what it cost. */
static unsigned refresh_part(struct target_table *target_table, unsigned part, mono_t now)
{
	unsigned cost_us = 0;

	if (part < TARGET_LIMITS_PARTS)
		return (unsigned)target_limits_refresh(target_table->limits, part) * DIRECTORY_US;

	for (struct target_table_target *target = target_table->table.buckets[part - TARGET_LIMITS_PARTS]; target;
	     target = target->next)
		cost_us += refresh_one(target_table, target, now);

	return cost_us;
}

bool target_table_refresh_some_limits(struct target_table *target_table, mono_t now, unsigned *part)
{
	unsigned cost_us = 0;

	if (*part == 0)
		begin(target_table);
	if (target_table->options.alive)
		target_table->options.alive(target_table->options.alive_ctx);
	while (*part < TARGET_LIMITS_PARTS + TARGET_TABLE_BUCKETS && cost_us < SAMPLE_WINDOW_US)
		cost_us += refresh_part(target_table, (*part)++, now);
	if (*part < TARGET_LIMITS_PARTS + TARGET_TABLE_BUCKETS)
		return true;

	finish(target_table);
	*part = 0;

	return false;
}

void target_table_refresh_limits(struct target_table *target_table, mono_t now)
{
	unsigned part = 0;

	while (target_table_refresh_some_limits(target_table, now, &part))
		continue;
}

/* target table_query.c: by looking at all of them: it is asked once per incident. */

struct pid_query {
	uint32_t id;
	int32_t *pids;
	size_t count, cap;
};

static int collect_pid(void *ctx, struct target_table_target *target)
{
	struct pid_query *query = ctx;
	uint32_t id = target->group ? target->group->what.id : target->what.id;

	if (id == query->id && target->what.pid && query->count < query->cap)
		query->pids[query->count++] = target->what.pid;

	return query->count == query->cap;
}

size_t target_table_query_pids(struct target_table *target_table, uint32_t id, int32_t *pids, size_t cap)
{
	struct pid_query query = { .id = id, .pids = pids, .cap = cap };

	target_table_visit(target_table, collect_pid, &query);

	return query.count;
}

struct limits_query {
	const struct target_table *target_table;
	uint32_t id;
	struct cgroup_limits *ret;
};

static int find_limits(void *ctx, struct target_table_target *target)
{
	struct limits_query *query = ctx;

	if (target->what.id != query->id)
		return 0;
	target_table_limits_of(query->target_table, target, query->ret);

	return 1;
}

bool target_table_query_limits(struct target_table *target_table, uint32_t id, struct cgroup_limits *ret)
{
	struct limits_query query = { .target_table = target_table, .id = id, .ret = ret };

	return target_table_visit(target_table, find_limits, &query) == 1;
}

/*
 * target table_events.c: found by pid alone, which is all that events say; of two with the same pid
 * the one that ended is not back yet.
 */

bool target_table_fetch(struct target_table *target_table)
{
	while (target_table->back_count < TARGET_TABLE_BACK_MAX) {
		struct target_table_back *back = &target_table->back[target_table->back_count];

		if (!samplers_returned(target_table->options.samplers, &back->sampled, &back->why))
			break;
		target_table->back_count++;
	}

	return target_table->back_count > 0;
}

void target_table_settle(struct target_table *target_table)
{
	for (size_t i = 0; i < target_table->back_count; i++)
		target_table_take_back(target_table, target_table->back[i].sampled->user, target_table->back[i].why);
	target_table->back_count = 0;
}

size_t target_table_ended(const struct target_table *target_table)
{
	return target_table->ended;
}

static void end(struct target_table *target_table, struct target_table_target *target, const struct sample *counters)
{
	target_table->ended += !target->ended;
	target->ended = true;
	sum_keep(&target->end, counters);
}

bool target_table_unmatch(struct target_table *target_table, size_t entry, const struct process_observation *seen,
			  const struct sample *now)
{
	struct target_table_target *target = target_table_table_process(
		&target_table->table, target_table->list.entries[entry], seen->pid, seen->start_ticks);

	if (!target || !target_table_ask_back(target_table, target))
		return false;

	target->moved = !target->ended; /* or it is over, and who has its pid is another one */
	if (target->moved && now->mask)
		end(target_table, target, now);

	return true;
}

/* The next target of a process that is not about to leave, or NULL. */
static struct target_table_target *next_of(const struct target_table *target_table, int32_t pid, uint64_t start_ticks,
					   const struct target_table_target *after)
{
	struct target_table_target *target = target_table_table_pid(&target_table->table, pid, after);

	while (target && (target->leaving || target->what.start_ticks != start_ticks))
		target = target_table_table_pid(&target_table->table, pid, target);

	return target;
}

size_t target_table_watches(const struct target_table *target_table, int32_t pid, uint64_t start_ticks)
{
	const struct target_table_target *target = NULL;
	size_t count = 0;

	while ((target = next_of(target_table, pid, start_ticks, target)))
		count++;

	return count;
}

void target_table_still(struct target_table *target_table, int32_t pid, uint64_t start_ticks, uint64_t scan)
{
	struct target_table_target *target = NULL;

	while ((target = next_of(target_table, pid, start_ticks, target)))
		target->seen = scan;
}

bool target_table_was_other(const struct target_table *target_table, size_t entry, int32_t pid, uint64_t start_ticks,
			    const char *comm)
{
	const struct target_table_target *target =
		target_table_table_process(&target_table->table, target_table->list.entries[entry], pid, start_ticks);

	return target && !target->group && strcmp(target->what.comm, comm) != 0;
}

bool target_table_is_outdated(const struct target_table *target_table, size_t entry,
			      const struct process_observation *seen)
{
	const struct target_table_target *target = target_table_table_process(
		&target_table->table, target_table->list.entries[entry], seen->pid, seen->start_ticks);

	if (!target)
		return false;
	if (strcmp(target->what.comm, seen->comm) != 0)
		return true; /* by its name an end is told from another's (is_meant) */

	return (!target->group || target->names_group) && target->arguments_at != seen->arguments_at;
}

/* It is called something else now: see target_table_describe. 0; -ENOMEM: it keeps its names. */
static int target_table_describe_anew(const struct target_table *target_table, struct target_table_target *target,
				      const struct process_observation *seen)
{
	const struct target *what = &target->what;

	if (strcmp(what->comm, seen->comm) == 0 && strcmp(what->cmdline, seen->cmdline) == 0 &&
	    strcmp(what->cgroup, seen->cgroup) == 0)
		return 0;
	if (!target_table_target_rename(&target->what, seen, target_table_container_of(target_table, seen->cgroup)))
		return -ENOMEM;

	return target->group ? 0 : sampler_target_describe_anew(&target->sampled, what);
}

int target_table_describe(struct target_table *target_table, size_t entry, const struct process_observation *seen)
{
	struct target_table_target *target = target_table_table_process(
		&target_table->table, target_table->list.entries[entry], seen->pid, seen->start_ticks);

	if (!target)
		return 0;

	target->arguments_at = seen->arguments_at;
	target->membership.news = true;

	int r = target_table_describe_anew(target_table, target, seen);

	return r == 0 && target->names_group ? target_table_describe_anew(target_table, target->group, seen) : r;
}

struct renaming {
	const struct target_table *target_table;
	const char *cgroup;
	size_t len;
	const struct container *container;
	char title[CONTAINER_TITLE_MAX];
	int error;
};

/*
 * Members of groups are told of to nobody; what another container within this one is, that one
 * says.
 */
static int rename_contained(void *ctx, struct target_table_target *target)
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

	/*
	 * A target that has the container's name for its own: others are called by the path, or the
	 * process.
	 */
	bool called = what->kind == TARGET_CGROUP && strcmp(what->name, before) == 0;

	if (!target_table_target_recontain(what, called ? renaming->title : what->name, renaming->container) ||
	    sampler_target_describe_anew(&target->sampled, what) < 0)
		renaming->error = -ENOMEM;

	return 0;
}

int target_table_rename_container(struct target_table *target_table, const char *cgroup)
{
	struct renaming renaming = { .target_table = target_table,
				     .cgroup = cgroup,
				     .len = strlen(cgroup),
				     .container = target_table_container_of(target_table, cgroup) };

	if (!renaming.container)
		return 0;
	container_title(renaming.container, renaming.title, sizeof renaming.title);
	target_table_table_visit(&target_table->table, rename_contained, &renaming);

	return renaming.error;
}

bool target_table_knows(const struct target_table *target_table, int32_t pid)
{
	return target_table_table_pid(&target_table->table, pid, NULL) != NULL;
}

bool target_table_is_member(const struct target_table *target_table, size_t entry, int32_t pid)
{
	const struct target_table_target *target = NULL;

	while ((target = target_table_table_pid(&target_table->table, pid, target)))
		if (target->group && target->entry == target_table->list.entries[entry])
			return true;

	return false;
}

/* One that ended before, and not by moving, is another with the same pid. */
static bool is_meant(const struct target_table_target *target, const struct target_table_ending *ending)
{
	uint64_t ticks = target->what.start_ticks;

	if (ending->comm && strcmp(target->what.comm, ending->comm) != 0)
		return false;

	return (ending->start_ticks == 0 || ticks == ending->start_ticks) && ticks != ending->alive_ticks &&
	       (target->moved || !target->ended);
}

bool target_table_end(struct target_table *target_table, const struct target_table_ending *ending)
{
	struct target_table_target *target = NULL;
	bool found = false;

	while ((target = target_table_table_pid(&target_table->table, ending->pid, target))) {
		if (!is_meant(target, ending))
			continue;
		if (!target->moved)
			end(target_table, target, &ending->counters);
		found = true;
	}

	return found;
}

bool target_table_credit(struct target_table *target_table, size_t entry, const struct sample *counters)
{
	struct target_table_target *group = target_table->list.entries[entry]->group;

	if (!group)
		return false;
	source_entry_credit(group->sampled.entry, NULL, counters);

	return true;
}

/* ---- life and death ---- */

static size_t *count_of(struct target_table *target_table, const struct target_table_target *target)
{
	return target->group ? &target_table->counts.members : &target_table->counts.targets;
}

static void enter(struct target_table *target_table, struct target_table_target *target)
{
	target_table_table_enter(&target_table->table, target);
	target_table->counts.found++;
	target_table->counts.processes += target->what.kind == TARGET_PROCESS;
	*count_of(target_table, target) += 1;
}

static void forget(struct target_table *target_table, struct target_table_target *target)
{
	target_table_table_remove(&target_table->table, target);
	target_table_limits_release(target_table, target);
	target_table->counts.left++;
	target_table->counts.processes -= target->what.kind == TARGET_PROCESS;
	target_table->counts.leaving -= target->leaving;
	*count_of(target_table, target) -= 1;
	target_table_target_free(target);
}

/* A new one, met by this scan. */
static void number(struct target_table *target_table, struct target_table_target *target, uint64_t scan)
{
	target->what.id = ++target_table->numbers.target;
	target->reading = target_table->reading;
	target->seen = scan;
}

/*
 * Lends an opened target to the sampler and enters it into the table; if the queue is full the next
 * scan meets it again. 0; -ENOMEM.
 */
static int judged_target(struct target_table *target_table, struct target_table_target *target)
{
	int r = target->group ? 0 : sampler_target_describe(&target->sampled, &target->what);

	target_table_limits_apply(target);
	target_table_tiers_need(target_table, target);
	if (r < 0 || !samplers_add(target_table->options.samplers, &target->sampled)) {
		target_table_limits_release(target_table, target);
		target_table_target_free(target);
		target_table->crowded |= r == 0;
		return r;
	}
	enter(target_table, target);

	return 0;
}

/* Asks the sampler for a target back. False: the queue is full. */
static bool target_table_ask_back(struct target_table *target_table, struct target_table_target *target)
{
	target->leaving = samplers_remove(target_table->options.samplers, &target->sampled);
	target_table->counts.leaving += target->leaving;
	target_table->crowded |= !target->leaving;

	return target->leaving;
}

/* Those that were asked back have made room before a newcomer is at the head of the queue. */
static bool room_left(struct target_table *target_table)
{
	const struct target_table_counts *counts = &target_table->counts;

	if (counts->targets + counts->members - counts->leaving < target_table->options.config->sampling.max_targets)
		return true;

	target_table->refused++;

	return false;
}

/* Opening a target failed: a process that ended meanwhile is nothing to speak of. */
static int opening_failed(struct target_table *target_table, int error)
{
	if (error == -ESRCH || error == -ENOENT)
		return TARGET_TABLE_ENDED;

	target_table->starved |= error == -EMFILE || error == -ENFILE;
	target_table->failed++;
	target_table->counts.last_error = error;

	return error == -ENOMEM ? error : 0;
}

/* Watches a target, unless opening it failed (r). */
static int judged_target_opened(struct target_table *target_table, struct target_table_target *target, int r)
{
	if (r < 0) {
		target_table_target_free(target);
		return opening_failed(target_table, r);
	}

	r = target_table_limits_read(target_table, target);
	if (r < 0) {
		target_table_target_free(target);
		return r;
	}

	return judged_target(target_table, target);
}

/*
 * Whether a new one, of a group or not, may be opened now. Nothing comes before what is owed, so
 * that the successor of one that has to leave is behind it in the queue. After the first in a scan
 * that found no descriptors, not even for a moment, nobody else is tried.
 */
static bool may_open(struct target_table *target_table, const struct target_table_target *group)
{
	if (target_table->owing || (group && group->unlent)) {
		target_table->crowded = true;
		return false;
	}
	if (!room_left(target_table))
		return false;
	if (target_table->starved)
		opening_failed(target_table, -EMFILE);

	return !target_table->starved;
}

/* ---- what is owed ---- */

struct dismissal {
	struct target_table *target_table;
	bool groups; /* only them, or all others */
};

static int dismiss(void *ctx, struct target_table_target *target)
{
	const struct dismissal *dismissal = ctx;

	if (!target->entry->dismissed || target->leaving || (target->what.kind == TARGET_GROUP) != dismissal->groups)
		return 0;

	return target_table_ask_back(dismissal->target_table, target) ? 0 : -EAGAIN;
}

static void lend_groups(struct target_table *target_table)
{
	for (size_t i = 0; i < target_table->list.count; i++) {
		struct target_table_target *group = target_table->list.entries[i]->group;

		if (!group || !group->unlent)
			continue;
		group->unlent = !samplers_add(target_table->options.samplers, &group->sampled);
		target_table->owing |= group->unlent;
		target_table->crowded |= group->unlent;
	}
}

/*
 * Those whose entry is no more are asked back, groups only when all their members are; then groups
 * are lent that are not yet.
 */
static void settle_debts(struct target_table *target_table)
{
	if (!target_table->owing)
		return;

	struct dismissal members = { target_table, false }, groups = { target_table, true };

	target_table->owing = target_table_table_visit(&target_table->table, dismiss, &members) < 0 ||
			      target_table_table_visit(&target_table->table, dismiss, &groups) < 0;
	if (!target_table->owing)
		lend_groups(target_table);
}

/* What it had used by its end counts in its group. */
static void credit(const struct target_table_target *target)
{
	struct sample end = { 0 };

	sum_kept(&target->end, &end);
	source_entry_credit(target->group->sampled.entry, target->sampled.entry, &end);
}

/* The sampler gave it back. */
static void target_table_take_back(struct target_table *target_table, struct target_table_target *target,
				   enum sampler_return why)
{
	if (why == SAMPLER_REFUSED)
		target_table->refused++;
	if (why != SAMPLER_REMOVED && target->leaving)
		return; /* the answer to our own request is still to come */
	if (why == SAMPLER_REFUSED && target->what.kind == TARGET_GROUP) {
		target->unlent = target_table->owing = true; /* there will be room when others have left */
		return;
	}

	if (target->ended) {
		target_table->ended--;
		if (target->group && why != SAMPLER_REFUSED)
			credit(target);
	}
	forget(target_table, target);
}

void target_table_collect(struct target_table *target_table)
{
	target_table->refused = target_table->failed = 0;
	target_table->starved = target_table->crowded = false;
	target_table_settle(target_table);
	while (target_table_fetch(target_table))
		target_table_settle(target_table);
	settle_debts(target_table);
}

bool target_table_owes(const struct target_table *target_table)
{
	return target_table->owing || target_table->crowded;
}

/* ---- sightings ---- */

bool target_table_process_known(struct target_table *target_table, size_t entry, int32_t pid, uint64_t start_ticks,
				uint64_t scan)
{
	struct target_table_target *target =
		target_table_table_process(&target_table->table, target_table->list.entries[entry], pid, start_ticks);

	if (target)
		target->seen = scan;

	return target != NULL;
}

/* The container that a cgroup is, or is in. NULL: in none. Valid until the next is asked for. */
static const struct container *target_table_container_of(const struct target_table *target_table, const char *cgroup)
{
	struct clock clock = real_clock();
	const struct container *container;
	bool own;

	return containers_find(target_table->options.containers, cgroup, clock_mono(&clock), &container, &own) ==
			       CONTAINERS_NONE
		       ? NULL
		       : container;
}

int target_table_process(struct target_table *target_table, size_t entry, const struct process_observation *seen,
			 uint64_t scan)
{
	struct target_table_target *group = target_table->list.entries[entry]->group, *target;

	if (target_table_process_known(target_table, entry, seen->pid, seen->start_ticks, scan) ||
	    !may_open(target_table, group))
		return 0;

	target = target_table_target_process(target_table->list.entries[entry],
					     &target_table->options.config->targets[entry], seen,
					     target_table_container_of(target_table, seen->cgroup));
	if (!target)
		return -ENOMEM;

	number(target_table, target, scan);
	target->group = group;
	target->sampled.group = group ? &group->sampled : NULL;

	bool cold = target_table_tiers_newcomer(target_table);
	int r = (cold ? source_entry_process_cold
		      : source_entry_process)(target_table->options.procfd, seen->pid, seen->start_ticks,
					      target_table->options.own_proc, &target->sampled, &target->sampled.entry);

	if (r == 0 && !target_has_comm(target_table->options.procfd, seen)) {
		target_table_target_free(target);
		return 0; /* there will be news of him, or another scan */
	}
	target_table->counts.cold += cold && r == 0;
	if (r == 0 && seen->since)
		source_entry_set_since(target->sampled.entry, seen->since);
	else if (r == 0 && seen->whole)
		source_entry_set_whole(target->sampled.entry);
	if (r == 0 && target->names_group)
		r = target_table_describe_anew(target_table, group, seen);

	return judged_target_opened(target_table, target, r);
}

int target_table_cgroup(struct target_table *target_table, size_t entry, const char *path, uint64_t scan)
{
	struct target_table_target *target =
		target_table_table_cgroup(&target_table->table, target_table->list.entries[entry], path);

	if (target) {
		target->seen = scan;
		return 0;
	}
	if (!may_open(target_table, NULL))
		return 0;
	if (descriptors_short(target_table->options.procfd)) {
		target_table_tiers_refused(target_table);
		target_table->failed++;
		target_table->counts.last_error = -EMFILE;
		return 0;
	}

	target = target_table_target_cgroup(target_table->list.entries[entry],
					    &target_table->options.config->targets[entry], path,
					    target_table_container_of(target_table, path));
	if (!target)
		return -ENOMEM;

	number(target_table, target, scan);

	int r = source_entry_cgroup(target_table->options.mounts, path, &target->sampled, &target->sampled.entry);

	r = judged_target_opened(target_table, target, r);

	return r < 0 ? r : 0;
}

struct sweep {
	struct target_table *target_table;
	uint64_t scan;
};

static int sweep_one(void *ctx, struct target_table_target *target)
{
	const struct sweep *sweep = ctx;

	if (target->what.kind != TARGET_GROUP && !target->leaving && target->seen != sweep->scan)
		target_table_ask_back(sweep->target_table, target);

	return 0;
}

void target_table_sweep(struct target_table *target_table, uint64_t scan)
{
	struct sweep sweep = { .target_table = target_table, .scan = scan };

	target_table->counts.refused = target_table->refused;
	target_table->counts.failed = target_table->failed;
	target_table->refused = target_table->failed = 0;
	target_table_table_visit(&target_table->table, sweep_one, &sweep);
	target_table_tiers_balance(target_table);
}

static void say_alive(const struct target_table *target_table)
{
	if (target_table->options.alive)
		target_table->options.alive(target_table->options.alive_ctx);
}

static int reopen_one(void *ctx, struct target_table_target *target)
{
	struct target_table *target_table = ctx;
	const struct config_sampling *sampling = &target_table->options.config->sampling;
	struct source_options wanted = {
		.peak_interval_ns = sampling->peak_interval_ns,
		.fds_interval_ns = sampling->fds_interval_ns,
		.reset_peaks = sampling->reset_peaks,
	};
	int r;

	if (target->what.kind != TARGET_PROCESS || target->reading == target_table->reading || target->leaving)
		return 0;

	say_alive(target_table);
	if (descriptors_short(target_table->options.procfd))
		r = -EMFILE;
	else
		r = source_entry_reopen(target->sampled.entry, target_table->options.procfd, target->what.pid,
					target->what.start_ticks, &wanted);
	if (r == -EMFILE || r == -ENFILE || r == -ENOMEM) {
		opening_failed(target_table, r);
		return r;
	}
	target->reading = target_table->reading; /* what else there is to be said of it the sampler finds out */

	return 0;
}

void target_table_reopen(struct target_table *target_table)
{
	if (target_table->unopened)
		target_table->unopened = target_table_table_visit(&target_table->table, reopen_one, target_table) < 0;
}

/* ---- a configuration comes into force ---- */

/* The list in force is put in place of the one before. Cannot fail. */
static void enforce(struct target_table *target_table, const struct target_table_list *list,
		    const struct config *config)
{
	for (size_t i = 0; i < target_table->list.count; i++)
		target_table->list.entries[i]->dismissed = true;
	for (size_t i = 0; i < list->count; i++) {
		struct target_table_entry *entry = list->entries[i];

		entry->dismissed = false;
		if (entry->planned && entry->group)
			enter(target_table, entry->group);
		entry->planned = false;
	}
	target_table_list_release(&target_table->list);
	target_table->list = *list;
	target_table->options.config = config;
}

/* Whether a process is read for something now that it was not read for before. */
static bool reads_more(const struct config_sampling *before, const struct config_sampling *now)
{
	return (now->fds_interval_ns > 0 && before->fds_interval_ns == 0) ||
	       (now->reset_peaks && !before->reset_peaks) ||
	       (now->peak_interval_ns != UINT64_MAX && before->peak_interval_ns == UINT64_MAX);
}

static int need_one(void *ctx, struct target_table_target *target)
{
	target_table_tiers_need(ctx, target);

	return 0;
}

int target_table_reload(struct target_table *target_table, const struct config *config)
{
	struct target_table_list list;
	int r = target_table_list_make(&target_table->options, &target_table->list, config, &target_table->numbers,
				       &list);

	if (r < 0)
		return r;

	if (reads_more(&target_table->options.config->sampling, &config->sampling)) {
		target_table->reading++;
		target_table->unopened = true;
	}
	enforce(target_table, &list, config);
	target_table->owing = true;
	target_table_table_visit(&target_table->table, need_one, target_table);
	settle_debts(target_table);

	return 0;
}

/* ---- the target table itself ---- */

int target_table_new(const struct target_table_options *options, struct target_table **ret)
{
	struct target_table *target_table = calloc(1, sizeof *target_table);
	int r;

	if (!target_table)
		return -ENOMEM;

	target_table->options = *options;
	r = target_limits_new(options->procfd, options->mounts, &options->machine, &target_table->limits);
	if (r == 0)
		r = target_table_reload(target_table, options->config);
	if (r < 0) {
		target_table_free(target_table);
		return r;
	}
	*ret = target_table;

	return 0;
}

void target_table_free(struct target_table *target_table)
{
	if (!target_table)
		return;

	target_table_table_clear(&target_table->table);
	target_table_list_release(&target_table->list);
	target_limits_free(target_table->limits);
	free(target_table);
}

void target_table_counts(const struct target_table *target_table, struct target_table_counts *ret)
{
	*ret = target_table->counts;
}

int target_table_visit(struct target_table *target_table, int (*visit)(void *ctx, struct target_table_target *target),
		       void *ctx)
{
	return target_table_table_visit(&target_table->table, visit, ctx);
}
