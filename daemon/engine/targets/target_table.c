/*
 * target_table.c: the targets in a map by identity (number of the entry, and pid or path),
 * processes also in one by pid, all in a list; and the two queues to the sampler.
 *
 * An entry is known by a number of its own, not by its index in the configuration: a target of an
 * entry that changed and its successor, which may be the same process, never meet in the map.
 *
 * The queue to the sampler is in order, and so are its answers. A member whose removal was asked
 * for before its group's is back before it, and a place that was asked for is free before a target
 * that was queued later is added.
 *
 * Effective limits are cached as lines: one for all processes in the same cgroups, found by the
 * text of /proc/PID/cgroup, so that a thousand processes of ten services are ten lines. What
 * directories say is in a limit_tree; a line is what follows from it. A refresh reads directories,
 * in turn if there are many, then settles the lines, then goes over the targets and reads the
 * directories of those that ran since the last one, in slices: between two slices targets may come
 * and go. Which cgroup it is in is asked of a process
 *     - that the refresh meets for the first time, and for ten seconds after that, in which managers
 *       move what they start, unless the kernel tells of moves;
 *     - that an event named;
 *     - that ran noticeably since it was last asked: a rule on a share of a limit evaluates it;
 *     - every half minute, or every ten where the kernel tells of moves, each at a moment of its own.
 * So a process that is moved while it sleeps has its old limits for half a minute and one refresh
 * at most. Rejected: reading cgroup.procs. One file tells it of all processes, but v1 takes three
 * files; of a cgroup of ten thousand processes it tells ten thousand, if one is watched; and with
 * threaded cgroups, or from another pid namespace, it tells nothing.
 *
 * Where there are not enough descriptors for all processes, the hottest keep theirs open ("warm")
 * and others have them closed ("cold"): see source.h for what is read of those. No process is cold
 * while there are enough. Else new processes start cold, and after each scan a cold one that ran at
 * least three times since the last scan, and clearly more often than the warm one that ran least
 * and longest ago, takes over from that one by the next scan. Cgroups are never cold: processes
 * make room for those that could not be opened, and none becomes warm meanwhile.
 */
#include "daemon/engine/targets/target_table.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/proc_read.h"
#include "lib/cgroup/cgroup.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * A process is asked for its cgroup at every refresh for so long; then so often; and so often where the
 * kernel says which processes are moved, and none of that was lost since it was asked.
 */
#define LIMITS_YOUNG_NS (10 * NS_PER_S)
#define LIMITS_LONG_NS (30 * NS_PER_S)
#define LIMITS_TOLD_NS (600 * NS_PER_S)

/*
 * Directories that a refresh reads whether anything ran in their cgroups or not: so many for each
 * second of limits_interval, but not fewer than the second number.
 */
#define TURN_PER_S 128u
#define TURN_MIN 256u

/* Work of a slice of a refresh, and what its parts cost, in microseconds, rounded up. */
#define SLICE_US 500u
#define DIRECTORY_US 20u
#define ASKING_US 15u
#define LOOK_US 1u

/*
 * To have run in so many looks is noticeable however long that took; or in one of so many that fit
 * into that time.
 */
#define RUNS_NOTICEABLE 16u
#define RUNS_SHARE 4u

/* In so many processes a cgroup's usage counter costs less than they do. */
#define GATE_HOLDERS 4u

/* Of /proc/PID/cgroup: a dozen v1 hierarchies with a pod's path each. */
#define CGROUP_TEXT_MAX 16384u

/*
 * What the sampler gave back and is not freed yet: see target_table_fetch. A millisecond's work,
 * and more than a tick brings except in a storm.
 */
#define BACK_MAX 64u

/*
 * Members that have left are remembered for the stacks of incidents, as long as one may ask for them: at two thousand
 * a second for half a minute. Memory is taken as they leave, 1 MiB at most, and given back.
 */
#define PAST_MEMBERS_MAX 65536u
#define PAST_MEMBERS_LEAST 1024u
#define PAST_SLACK_NS (30 * NS_PER_S) /* an incident may be written while others wait */
#define PAST_UNIT_NS (10 * NS_PER_MS)

/* Times are counted in units: it did not begin before `from`, nor end after what follows `to`. */
struct past_member {
	uint32_t target; /* the group */
	int32_t pid;
	uint32_t from, to;
};

/* The oldest first, round and round. {0}: none. */
struct past_members {
	struct past_member *members;
	uint32_t room, oldest, count;
	uint64_t since_ns; /* what times count from */
};

/* Limits of all processes in the same cgroups, or of one cgroup; there while a target holds it. */
struct target_limits_line {
	struct map_node node;
	TAILQ_ENTRY(target_limits_line) all;
	uint64_t round;             /* the last refresh that settled it */
	uint64_t cpu, memory_bytes; /* as in struct cgroup_limits */
	uint32_t version;           /* changes when they do */
	uint64_t number;            /* its own; never used again */
	struct limit_tree_place place;
	struct source_gate
		*gate; /* of the processes in it; NULL: none yet, or the usage of their cgroup is not known */
	bool gate_tried;
	uint32_t holders, len;
	char text[]; /* a path begins with '/', the text of /proc/PID/cgroup with a digit */
};

/*
 * A target entry of the configuration: lives until the last of its targets has left, and over a
 * reload stays the same object if the new configuration has the same entry. Held by the list in
 * force and by every target.
 */
struct target_table_entry {
	char *name;
	uint32_t number;                   /* its own for life: targets are found by it */
	struct target_table_target *group; /* its target, if that is the sum; else NULL */
	struct cgroup_limits limits;       /* of a group */
	struct cgroup_limits merged;       /* of a group: what its members share, as far as the refresh has come */
	uint64_t merged_line;              /* the number of the last that was merged */
	bool dismissed;                    /* the configuration no longer has it: its targets leave */
	bool planned;                      /* of a configuration that is not in force yet */
	size_t holders;
	size_t matched;         /* processes and cgroups that are watched for it */
	mono_t unmatched_since; /* if there are none */
};

/* The entries of a configuration, by index in config->targets. */
struct entry_list {
	struct target_table_entry **entries;
	size_t count;
};

/* The last numbers given to targets and entries; they are never used again. */
struct numbers {
	uint32_t target, entry;
};

struct returned_target {
	struct sampler_target *sampled;
	enum sampler_return why;
};

struct target_table {
	struct target_table_options options;
	struct map identities, pids;
	TAILQ_HEAD(, target_table_target) all; /* in the order of refreshes */
	struct entry_list list;                /* of the configuration in force */
	struct target_table_counts counts;
	struct numbers numbers;

	uint64_t refused, failed; /* in the running scan */
	bool starved;             /* out of descriptors, in the running scan */
	bool owing;               /* the queue was full for a removal or a group */
	bool crowded;             /* the queue was full for anything, in the running scan */
	bool unopened;            /* targets were opened when less was read of a process than now */
	uint32_t reading;         /* what they are opened for: counts the reloads that read more */

	struct {
		bool uneven;       /* some process is cold, or may be */
		size_t unopened;   /* cgroups without descriptors in the running scan */
		size_t making_way; /* and in the last one */
	} tiers;

	/* What this process may use, for the samplers. */
	struct {
		struct target_limits_line *line; /* NULL: its cgroups are not known */
		char from[256];                  /* the cgroup whose quota it is */
		struct cgroup_files files;       /* of that */
		uint64_t throttled_first_ns;     /* of that, when it was opened */
		uint64_t stolen_first_ns;
	} self;

	/* Of which the kernel tells, or does not. */
	struct {
		bool told;
		uint64_t lost; /* events, as it counts them */
		mono_t since;  /* none of them was lost */
	} moves;

	struct limit_tree *tree;
	struct map lines;
	TAILQ_HEAD(, target_limits_line) all_lines;
	uint64_t line_numbers; /* the last that was given */
	uint64_t round;        /* of refreshes */
	unsigned turn;         /* the part of the tree that is read next */
	uint64_t turn_left;    /* directories that this refresh has yet to read in turn */

	struct {
		struct source_gate *gate;
		char *path;
	} siblings; /* the parent of the cgroup that was opened last */

	struct {
		bool on, wanting; /* some process has no account, and may get one */
		uint64_t losses;
	} kept; /* accounts, when they were last kept */

	struct past_members past;

	struct returned_target back[BACK_MAX];
	size_t back_count;
};

/* ---- lines of limits ---- */

static void line_settle(const struct target_table *table, struct target_limits_line *line)
{
	struct cgroup_limits limits;

	limit_tree_limits(table->tree, &line->place, &limits);
	line->round = table->round;
	if (limits.cpu == line->cpu && limits.memory_bytes == line->memory_bytes)
		return;

	line->cpu = limits.cpu;
	line->memory_bytes = limits.memory_bytes;
	line->version++;
}

static struct target_limits_line *line_new(struct target_table *table, const char *text, size_t len)
{
	struct target_limits_line *line = calloc(1, sizeof *line + len);
	int r = line ? map_reserve(&table->lines, table->lines.count + 1) : -ENOMEM;

	if (r == 0 && text[0] == '/')
		r = limit_tree_hold_cgroup(table->tree, text, &line->place);
	else if (r == 0)
		r = limit_tree_hold_process(table->tree, text, len, &line->place);
	if (r < 0) {
		free(line);
		return NULL;
	}

	line->number = ++table->line_numbers;
	line->len = (uint32_t)len;
	memcpy(line->text, text, len);
	map_insert(&table->lines, &line->node, map_hash(text, len));
	TAILQ_INSERT_TAIL(&table->all_lines, line, all);
	line_settle(table, line);

	return line;
}

static struct target_limits_line *line_find(const struct target_table *table, const char *text, size_t len)
{
	for (struct map_node *node = map_first(&table->lines, map_hash(text, len)); node; node = map_next(node)) {
		struct target_limits_line *line = MAP_ENTRY(node, struct target_limits_line, node);

		if (line->len == len && memcmp(line->text, text, len) == 0)
			return line;
	}

	return NULL;
}

/* One holder less; the last one frees it. NULL is fine. */
static void line_drop(struct target_table *table, struct target_limits_line *line)
{
	if (!line || --line->holders > 0)
		return;

	map_remove(&table->lines, &line->node);
	TAILQ_REMOVE(&table->all_lines, line, all);
	limit_tree_drop(table->tree, &line->place);
	source_gate_drop(line->gate);
	free(line);
}

/* Holds the line of this text in the place of *held, which may be NULL. 0; -ENOMEM. */
static int line_hold(struct target_table *table, const char *text, size_t len, struct target_limits_line **held)
{
	struct target_limits_line *line = *held;

	if (line && line->len == len && memcmp(line->text, text, len) == 0)
		return 0;

	line = line_find(table, text, len);
	if (!line)
		line = line_new(table, text, len);
	if (!line)
		return -ENOMEM;

	line->holders++;
	line_drop(table, *held);
	*held = line;

	return 0;
}

/* ---- what this process may use ---- */

/* The quota may be that of another cgroup than before. */
static void follow_quota(struct target_table *table, const char *from)
{
	if (strcmp(from, table->self.from) == 0)
		return;

	cgroup_files_release(&table->self.files);
	snprintf(table->self.from, sizeof table->self.from, "%s", from);
	table->self.throttled_first_ns = UINT64_MAX;
	cgroup_files_init(&table->self.files, table->options.mounts, from); /* "": none */
}

/* The eighth number of /proc/stat, in clock ticks of all CPUs. 0: none, or not known. */
static uint64_t stolen_ns(int procfd)
{
	unsigned long long ticks;
	char line[256];

	if (proc_read_line(procfd, 0, "stat", line, sizeof line) < 0 ||
	    sscanf(line, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &ticks) != 1)
		return 0;

	return ticks * (NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK));
}

static uint64_t since_first(uint64_t *first, uint64_t now)
{
	*first = now < *first ? now : *first;

	return now - *first;
}

/* For the CPU budget, and for the causes of missed slots. */
static void tell_samplers(struct target_table *table)
{
	struct samplers_supply supply = {
		.quota_ns = UINT64_MAX,
		.stolen_ns = since_first(&table->self.stolen_first_ns, stolen_ns(table->options.procfd)),
	};
	struct cgroup_limits limits = { .cpu_is_machine = true };
	struct sample sample = { 0 };

	if (table->self.line)
		limit_tree_limits(table->tree, &table->self.line->place, &limits);
	follow_quota(table, limits.cpu_from);
	if (!limits.cpu_is_machine)
		supply.quota_ns = limits.cpu;
	if (cgroup_files_read(&table->self.files, &sample) == 0 && sample_has(&sample, SAMPLE_THROTTLED))
		supply.throttled_ns = since_first(&table->self.throttled_first_ns, sample.value[SAMPLE_THROTTLED]);
	samplers_supply(table->options.samplers, &supply);
}

static void self_init(struct target_table *table)
{
	char text[CGROUP_TEXT_MAX];
	ssize_t len = proc_read_file(table->options.procfd, 0, "self/cgroup", text, sizeof text);

	cgroup_files_init(&table->self.files, table->options.mounts, "");
	table->self.stolen_first_ns = UINT64_MAX;
	if (len > 0)
		line_hold(table, text, (size_t)len, &table->self.line);
	tell_samplers(table);
}

static void self_release(struct target_table *table)
{
	line_drop(table, table->self.line);
	cgroup_files_release(&table->self.files);
}

/* ---- entries ---- */

static mono_t present(void)
{
	struct clock clock = real_clock();

	return clock_mono(&clock);
}

static struct target_table_entry *entry_new(const char *name, uint32_t number)
{
	struct target_table_entry *entry = calloc(1, sizeof *entry);

	if (!entry)
		return NULL;

	entry->number = number;
	entry->holders = 1;
	entry->unmatched_since = present();
	entry->name = strdup(name);
	if (entry->name)
		return entry;

	free(entry);

	return NULL;
}

static struct target_table_entry *entry_hold(struct target_table_entry *entry)
{
	entry->holders++;

	return entry;
}

/* The last holder frees it; not its group, which holds it. NULL is fine. */
static void entry_drop(struct target_table_entry *entry)
{
	if (!entry || --entry->holders > 0)
		return;

	free(entry->name);
	free(entry);
}

/* ---- targets ---- */

/*
 * Whether the process still has the name that was observed. A start time is in hundredths of a
 * second, in which another process may get the pid: asked when its files are open. True also if it
 * has ended, or that cannot be told.
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

/* The strings of a target, which the table owns; what.entry is the entry's. */
static const size_t strings[] = { offsetof(struct target, name),   offsetof(struct target, key),
				  offsetof(struct target, comm),   offsetof(struct target, cmdline),
				  offsetof(struct target, cgroup), offsetof(struct target, container) };

static const char **string_of(const struct target *what, size_t i)
{
	return (const char **)((uintptr_t)what + strings[i]);
}

/* Replaces all by copies of wanted's, which may be the same. False: no memory, nothing changed. */
static bool set_strings(struct target *what, const struct target *wanted)
{
	char *copies[ARRAY_LEN(strings)];
	bool whole = true;

	for (size_t i = 0; i < ARRAY_LEN(strings); i++) {
		const char *text = *string_of(wanted, i);

		copies[i] = strdup(text ? text : "");
		whole &= copies[i] != NULL;
	}
	for (size_t i = 0; i < ARRAY_LEN(strings); i++) {
		free(whole ? (char *)(uintptr_t)*string_of(what, i) : copies[i]);
		if (whole)
			*string_of(what, i) = copies[i];
	}

	return whole;
}

/* Must be in no map, and not lent to the sampler. */
static void target_free(struct target_table_target *target)
{
	sampler_target_release(&target->sampled);
	entry_drop(target->entry);
	for (size_t i = 0; i < ARRAY_LEN(strings); i++)
		free((char *)(uintptr_t)*string_of(&target->what, i));
	free(target);
}

/* Copies what with its strings, and holds entry. Nothing is opened yet. NULL: no memory. */
static struct target_table_target *target_new(struct target_table_entry *entry, const struct target *what)
{
	struct target_table_target *target = calloc(1, sizeof *target);

	if (!target)
		return NULL;

	target->what = *what;
	for (size_t i = 0; i < ARRAY_LEN(strings); i++)
		*string_of(&target->what, i) = NULL;
	if (!set_strings(&target->what, what)) {
		free(target);
		return NULL;
	}
	target->what.entry = entry->name;
	target->entry = entry_hold(entry);
	target->sampled.user = target;
	target->account = CPU_ACCOUNT_NONE;

	return target;
}

/* An entry that can mean only one process at a time gives it its own name. */
static bool is_one_process(const struct config_target *config)
{
	return (config->selector == CONFIG_PID || config->selector == CONFIG_PIDFILE) &&
	       config->per == CONFIG_PER_PROCESS;
}

static void pack_container(const struct container *container, char packed[CONTAINER_PACKED_MAX])
{
	packed[0] = '\0';
	if (container)
		container_pack(container, packed, CONTAINER_PACKED_MAX);
}

/* A process, of an entry with this configuration. The id is still to come. NULL: no memory. */
static struct target_table_target *process_target_new(struct target_table_entry *entry,
						      const struct config_target *config,
						      const struct process_observation *seen,
						      const struct container *container)
{
	char name[96], key[128], packed[CONTAINER_PACKED_MAX];

	if (is_one_process(config) && !seen->descends) {
		/* The same name for its successor: cooldowns go on when it is restarted. */
		snprintf(name, sizeof name, "%s", entry->name);
		snprintf(key, sizeof key, "%s", entry->name);
	} else {
		snprintf(name, sizeof name, "%s/%d", entry->name, seen->pid);
		snprintf(key, sizeof key, "%s:%d@%llu", entry->name, seen->pid, (unsigned long long)seen->start_ticks);
	}

	pack_container(container, packed);

	struct target_table_target *target = target_new(entry, &(struct target){ .kind = TARGET_PROCESS,
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

/* Replaces comm, cmdline, cgroup and container (NULL: none). False: no memory, nothing changed. */
static bool target_set_description(struct target *what, const struct process_observation *seen,
				   const struct container *container)
{
	struct target wanted = *what;
	char packed[CONTAINER_PACKED_MAX];

	pack_container(container, packed);
	wanted.comm = seen->comm;
	wanted.cmdline = seen->cmdline;
	wanted.cgroup = seen->cgroup;
	wanted.container = packed;

	return set_strings(what, &wanted);
}

/* Replaces name and container. False: no memory, nothing changed. */
static bool target_set_container(struct target *what, const char *name, const struct container *container)
{
	struct target wanted = *what;
	char packed[CONTAINER_PACKED_MAX];

	pack_container(container, packed);
	wanted.name = name;
	wanted.container = packed;

	return set_strings(what, &wanted);
}

/* A description has room for a kilobyte (lib/model/target.h), in which a path is three times. */
#define PATH_WHOLE_MAX 200u
#define PATH_HEAD 40u
#define PATH_TAIL 120u
#define PATH_SHORT_MAX (PATH_WHOLE_MAX + 1)

static bool continues_character(char byte)
{
	return ((unsigned char)byte & 0xc0) == 0x80;
}

/* FNV-1a, not map_hash: it is part of a key that is stored, and must never change. */
static uint64_t hash_path(const char *path)
{
	uint64_t hash = 14695981039346656037u;

	for (; *path; path++)
		hash = (hash ^ (unsigned char)*path) * 1099511628211u;

	return hash;
}

/* A name that only this path has: of a long one its beginning, its end, and a hash of all of it. */
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

/* A cgroup; container: that it is, or NULL. The id is still to come. NULL: no memory. */
static struct target_table_target *cgroup_target_new(struct target_table_entry *entry,
						     const struct config_target *config, const char *path,
						     const struct container *container)
{
	char shown[PATH_SHORT_MAX], key[PATH_SHORT_MAX + 80], packed[CONTAINER_PACKED_MAX], title[CONTAINER_TITLE_MAX];
	bool called = container && config->selector == CONFIG_CONTAINERS;

	/* The key is made of the path: the name of a container may be known only later. */
	shorten_path(path, shown);
	snprintf(key, sizeof key, "%s:%s", entry->name, shown);
	pack_container(container, packed);
	if (called)
		container_title(container, title, sizeof title);

	return target_new(entry, &(struct target){ .kind = TARGET_CGROUP,
						   .name = called ? title : shown,
						   .key = key,
						   .comm = "",
						   .cmdline = "",
						   .cgroup = path,
						   .container = packed });
}

/* ---- the maps ---- */

static uint64_t hash_identity(const struct target_table_entry *entry, int32_t pid, const char *path)
{
	uint32_t key[] = { entry->number, (uint32_t)pid };

	return path ? map_hash(path, strlen(path)) + entry->number : map_hash(key, sizeof key);
}

static uint64_t hash_pid(int32_t pid)
{
	return map_hash(&pid, sizeof pid);
}

/* A process of an entry that is not about to leave. NULL: not there. */
static struct target_table_target *find_process(const struct target_table *table,
						const struct target_table_entry *entry, int32_t pid,
						uint64_t start_ticks)
{
	struct map_node *node = map_first(&table->identities, hash_identity(entry, pid, NULL));

	for (; node; node = map_next(node)) {
		struct target_table_target *target = MAP_ENTRY(node, struct target_table_target, node);

		if (target->what.kind == TARGET_PROCESS && target->entry == entry && target->what.pid == pid &&
		    target->what.start_ticks == start_ticks && !target->leaving)
			return target;
	}

	return NULL;
}

static struct target_table_target *find_cgroup(const struct target_table *table, const struct target_table_entry *entry,
					       const char *path)
{
	struct map_node *node = map_first(&table->identities, hash_identity(entry, 0, path));

	for (; node; node = map_next(node)) {
		struct target_table_target *target = MAP_ENTRY(node, struct target_table_target, node);

		if (target->what.kind == TARGET_CGROUP && target->entry == entry &&
		    strcmp(target->what.cgroup, path) == 0)
			return target;
	}

	return NULL;
}

/* Processes with that pid, of all entries, leaving ones too: the first, or that after `after`. */
static struct target_table_target *next_with_pid(const struct target_table *table, int32_t pid,
						 const struct target_table_target *after)
{
	struct map_node *node = after ? map_next(&after->pid_node) : map_first(&table->pids, hash_pid(pid));

	for (; node; node = map_next(node)) {
		struct target_table_target *target = MAP_ENTRY(node, struct target_table_target, pid_node);

		if (target->what.pid == pid)
			return target;
	}

	return NULL;
}

/* So many more can be linked. 0 or -ENOMEM. */
static int reserve_targets(struct target_table *table, size_t more)
{
	int r = map_reserve(&table->identities, table->identities.count + more);

	return r < 0 ? r : map_reserve(&table->pids, table->pids.count + more);
}

static void link_target(struct target_table *table, struct target_table_target *target)
{
	const struct target *what = &target->what;

	target->round = table->round;
	TAILQ_INSERT_TAIL(&table->all, target, all);
	map_insert(&table->identities, &target->node,
		   hash_identity(target->entry, what->pid, what->kind == TARGET_CGROUP ? what->cgroup : NULL));
	if (what->kind == TARGET_PROCESS)
		map_insert(&table->pids, &target->pid_node, hash_pid(what->pid));
}

static void unlink_target(struct target_table *table, struct target_table_target *target)
{
	TAILQ_REMOVE(&table->all, target, all);
	map_remove(&table->identities, &target->node);
	if (target->what.kind == TARGET_PROCESS)
		map_remove(&table->pids, &target->pid_node);
}

/* ---- limits of targets ---- */

/*
 * A process holds the line of the cgroups that it is in. A group has the limits of its members if
 * they share one, else the machine's; what members share is collected in the entry, and the group
 * has it when the refresh is over: until then it has what it had.
 */

/* What cannot be read stays as it was, at first unavailable. 0; -ENOMEM. */
static int read_line(struct target_table *table, struct target_table_target *target)
{
	struct target_limits_line **line = &target->membership.line;
	char text[CGROUP_TEXT_MAX];
	ssize_t len;

	if (target->what.kind == TARGET_CGROUP) /* with its NUL, which the tree reads too */
		return line_hold(table, target->what.cgroup, strlen(target->what.cgroup) + 1, line);

	len = proc_read_file(table->options.procfd, target->what.pid, "cgroup", text, sizeof text);

	return len < 0 ? 0 : line_hold(table, text, (size_t)len, line);
}

static void apply_limits(struct target_table_target *target)
{
	struct target_membership *membership = &target->membership;
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

static void copy_limits(const struct target_table *table, const struct target_table_target *target,
			struct cgroup_limits *ret)
{
	if (target->what.kind == TARGET_GROUP)
		*ret = target->entry->limits;
	else if (target->membership.line)
		limit_tree_limits(table->tree, &target->membership.line->place, ret);
	else
		*ret = (struct cgroup_limits){ .cpu = UINT64_MAX, .memory_bytes = UINT64_MAX };
}

static void merge_member_limits(const struct target_table *table, struct target_table_entry *entry,
				const struct target_limits_line *line)
{
	struct cgroup_limits member, *merged = &entry->merged;

	if (!line || line->number == entry->merged_line)
		return;

	entry->merged_line = line->number;
	limit_tree_limits(table->tree, &line->place, &member);
	if (merged->cpu == 0) { /* none merged yet */
		*merged = member;
		return;
	}
	if (strcmp(merged->cpu_from, member.cpu_from) != 0)
		merged->cpu = UINT64_MAX;
	if (strcmp(merged->memory_from, member.memory_from) != 0)
		merged->memory_bytes = UINT64_MAX;
}

static void settle_group_limits(const struct target_table_options *options, struct target_table_target *group)
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
	apply_limits(group);
}

static uint64_t time_since(mono_t then, mono_t now)
{
	int64_t age = mono_diff(now, then);

	return age > 0 ? (uint64_t)age : 0;
}

static bool ran_noticeably(const struct target_table *table, const struct target_membership *membership, uint32_t runs,
			   uint64_t age_ns)
{
	uint32_t more = runs - membership->runs;

	return more >= RUNS_NOTICEABLE ||
	       (more > 0 && more * table->options.config->sampling.interval_ns * RUNS_SHARE >= age_ns);
}

static bool accounts_are_on(const struct target_table *table)
{
	return table->options.accounts &&
	       atomic_load_explicit(&kernel_accounts_shared(table->options.accounts)->on, memory_order_acquire);
}

/* Whether target_table_describe is called of what is moved. */
static bool moves_are_told(const struct target_table *table)
{
	return accounts_are_on(table) && table->options.config->sampling.discovery == CONFIG_DISCOVERY_AUTO;
}

/* Whether its moment was passed: all are asked once in so long, spread evenly by id. */
static bool is_its_turn(const struct target_table_target *target, mono_t now, uint64_t long_ns)
{
	uint64_t spread = target->what.id * UINT32_C(2654435769) >> 16;
	uint64_t offset = spread * (long_ns >> 16);

	return (target->membership.asked.ns + offset) / long_ns != (now.ns + offset) / long_ns;
}

static bool is_to_be_asked(const struct target_table *table, const struct target_table_target *target, uint32_t runs,
			   mono_t now)
{
	const struct target_membership *membership = &target->membership;
	bool told = moves_are_told(table), missed = mono_diff(membership->asked, table->moves.since) < 0;

	if (!membership->line || membership->event)
		return true;
	if (time_since(membership->met, now) < LIMITS_YOUNG_NS && (!told || missed))
		return true;
	if (told)
		return is_its_turn(target, now, missed ? LIMITS_LONG_NS : LIMITS_TOLD_NS);
	return ran_noticeably(table, membership, runs, time_since(membership->asked, now)) ||
	       is_its_turn(target, now, LIMITS_LONG_NS);
}

static bool follow_process(struct target_table *table, struct target_table_target *target, mono_t now)
{
	struct target_membership *membership = &target->membership;
	uint32_t runs = source_entry_runs(target->sampled.entry);

	if (target->what.kind != TARGET_PROCESS)
		return false;
	if (membership->met.ns == 0)
		membership->met = now;
	if (!is_to_be_asked(table, target, runs, now))
		return false;

	membership->asked = now;
	membership->runs = runs;
	membership->event = false;
	read_line(table, target);

	return true;
}

static void note_moves(struct target_table *table, mono_t now)
{
	struct kernel_accounts_state state;
	bool told = moves_are_told(table);

	if (told) {
		kernel_accounts_state(table->options.accounts, &state);
		if (!table->moves.told || state.lost != table->moves.lost)
			table->moves.since = now;
		table->moves.lost = state.lost;
	}
	table->moves.told = told;
}

static void refresh_begin(struct target_table *table, mono_t now)
{
	note_moves(table, now);
	table->round++;
	table->turn_left = table->options.config->sampling.limits_interval_ns / NS_PER_S * TURN_PER_S;
	if (table->turn_left < TURN_MIN)
		table->turn_left = TURN_MIN;
	for (size_t i = 0; i < table->list.count; i++) {
		table->list.entries[i]->merged = (struct cgroup_limits){ 0 };
		table->list.entries[i]->merged_line = 0;
	}
}

/* In the root something always runs. */
static struct source_gate *gate_of_line(struct target_table *table, struct target_limits_line *line)
{
	const struct cgroup_mounts *mounts = table->options.mounts;
	char path[PATH_MAX];

	if (line->gate_tried || line->holders < GATE_HOLDERS)
		return line->gate;

	line->gate_tried = true;
	if (cgroup_path_from(mounts, line->text, line->len, CGROUP_CPUACCT, path, sizeof path) < 0 &&
	    cgroup_path_from(mounts, line->text, line->len, CGROUP_CPU, path, sizeof path) < 0)
		return NULL;
	if (strcmp(path, "/") != 0 && source_gate_new(mounts, path, &line->gate) < 0)
		line->gate = NULL;
	return line->gate;
}

/* Processes that have been in their cgroup for a while are only asked when it has run. */
static void follow_gate(struct target_table *table, struct target_table_target *target,
			const struct target_limits_line *before, mono_t now)
{
	struct target_membership *membership = &target->membership;

	if (target->what.kind != TARGET_PROCESS)
		return;
	if (membership->line != before && before)
		source_entry_set_gate(target->sampled.entry, NULL);
	if (membership->gated || !membership->line || time_since(membership->met, now) < LIMITS_YOUNG_NS)
		return;

	struct source_gate *gate = gate_of_line(table, membership->line);

	if (gate)
		source_entry_set_gate(target->sampled.entry, gate);
	membership->gated = gate != NULL;
}

/*
 * Limits matter to what runs: they are read in every refresh, once for all that are in the cgroup. Others
 * that share the line have them one refresh later. Returns how many directories were read.
 */
static unsigned read_limits_of_running(struct target_table *table, struct target_table_target *target)
{
	struct target_limits_line *line = target->membership.line;
	uint32_t runs = source_entry_runs(target->sampled.entry);
	size_t count = 0;

	if (target->what.kind == TARGET_PROCESS && runs != target->membership.refreshed_runs && table->options.ran)
		table->options.ran(table->options.alive_ctx, &target->what);
	if (line && runs != target->membership.refreshed_runs)
		count = limit_tree_read(table->tree, &line->place, (uint32_t)table->round);
	if (count > 0)
		line_settle(table, line);
	target->membership.refreshed_runs = runs;

	return (unsigned)count;
}

/* The next directories in turn. Returns the cost in microseconds. */
static unsigned refresh_part(struct target_table *table)
{
	if (table->turn_left == 0)
		return 0;

	size_t count = limit_tree_refresh(table->tree, table->turn, (uint32_t)table->round);

	table->turn = (table->turn + 1) % LIMIT_TREE_PARTS;
	table->turn_left -= count < table->turn_left ? count : table->turn_left;

	return (unsigned)count * DIRECTORY_US;
}

/* Returns the cost in microseconds. */
static unsigned refresh_one(struct target_table *table, struct target_table_target *target, mono_t now)
{
	const struct target_limits_line *before = target->membership.line;

	if (target->what.kind == TARGET_GROUP || target->entry->dismissed)
		return LOOK_US;

	bool asked = follow_process(table, target, now);
	unsigned read = read_limits_of_running(table, target);
	const struct target_limits_line *line = target->membership.line;

	follow_gate(table, target, before, now);
	if (line != before || (line && line->version != target->membership.version))
		apply_limits(target);
	if (target->group)
		merge_member_limits(table, target->entry, line);

	return (asked ? ASKING_US : LOOK_US) + read * DIRECTORY_US;
}

static void refresh_end(struct target_table *table)
{
	for (size_t i = 0; i < table->list.count; i++)
		if (table->list.entries[i]->group)
			settle_group_limits(&table->options, table->list.entries[i]->group);
	if (table->self.line)
		limit_tree_read(table->tree, &table->self.line->place, (uint32_t)table->round);
	tell_samplers(table);
}

/* Settled lines move to the tail: the head is the next, until it is of this round. */
static bool refresh_next_line(struct target_table *table)
{
	struct target_limits_line *line = TAILQ_FIRST(&table->all_lines);

	if (!line || line->round == table->round)
		return false;

	line_settle(table, line);
	TAILQ_REMOVE(&table->all_lines, line, all);
	TAILQ_INSERT_TAIL(&table->all_lines, line, all);

	return true;
}

static bool refresh_next_target(struct target_table *table, mono_t now, unsigned *cost_us)
{
	struct target_table_target *target = TAILQ_FIRST(&table->all);

	if (!target || target->round == table->round)
		return false;

	target->round = table->round;
	TAILQ_REMOVE(&table->all, target, all);
	TAILQ_INSERT_TAIL(&table->all, target, all);
	*cost_us += refresh_one(table, target, now);

	return true;
}

static void report_alive(const struct target_table *table)
{
	if (table->options.alive)
		table->options.alive(table->options.alive_ctx);
}

bool target_table_refresh_some_limits(struct target_table *table, mono_t now, unsigned *part)
{
	unsigned cost_us = 0;

	if (*part == 0)
		refresh_begin(table, now);
	report_alive(table);
	for (; *part < LIMIT_TREE_PARTS && cost_us < SLICE_US; (*part)++)
		cost_us += refresh_part(table);
	while (cost_us < SLICE_US && refresh_next_line(table))
		cost_us += LOOK_US;
	while (cost_us < SLICE_US && refresh_next_target(table, now, &cost_us))
		continue;
	if (cost_us >= SLICE_US)
		return true;

	refresh_end(table);
	*part = 0;

	return false;
}

/* ---- groups and lists of entries ---- */

static int group_new(const struct target_table_options *options, struct target_table_entry *entry, uint32_t id)
{
	struct target_table_target *group = target_new(entry, &(struct target){ .id = id,
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
		target_free(group);
		return r;
	}
	settle_group_limits(options, group);
	group->unlent = true;
	entry->group = group;

	return 0;
}

/* The entry in force that is the same; NULL: there is none. */
static struct target_table_entry *find_same_entry(const struct target_table_options *options,
						  const struct entry_list *before, const struct config_target *wanted)
{
	for (size_t i = 0; i < before->count; i++)
		if (config_target_same(&options->config->targets[i], wanted))
			return before->entries[i];

	return NULL;
}

static int planned_entry_new(const struct target_table_options *options, const struct config_target *wanted,
			     struct numbers *numbers, struct target_table_entry **ret)
{
	*ret = entry_new(wanted->name, ++numbers->entry);
	if (!*ret)
		return -ENOMEM;

	(*ret)->planned = true;

	return wanted->per == CONFIG_PER_GROUP ? group_new(options, *ret, ++numbers->target) : 0;
}

/* Drops the entries; groups of planned ones are freed. {0} is fine. */
static void list_release(struct entry_list *list)
{
	for (size_t i = 0; list->entries && i < list->count; i++) {
		struct target_table_entry *entry = list->entries[i];

		if (entry && entry->planned && entry->group)
			target_free(entry->group);
		entry_drop(entry);
	}
	free(list->entries);
}

/*
 * The entries of config: those that are equal to one in force are the same objects, others are new
 * and planned, with their groups. 0; -ENOMEM: only numbers have changed.
 */
static int list_make(const struct target_table_options *options, const struct entry_list *before,
		     const struct config *config, struct numbers *numbers, struct entry_list *ret)
{
	struct entry_list list = {
		.entries = calloc(config->target_count, sizeof(struct target_table_entry *)),
		.count = config->target_count,
	};
	int r = list.entries ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < list.count; i++) {
		struct target_table_entry *same = find_same_entry(options, before, &config->targets[i]);

		if (same)
			list.entries[i] = entry_hold(same);
		else
			r = planned_entry_new(options, &config->targets[i], numbers, &list.entries[i]);
	}
	if (r < 0) {
		list_release(&list);
		return r;
	}
	*ret = list;

	return 0;
}

/* ---- open and closed descriptors ---- */

/*
 * Heat is how often a process was read after it had run, as of the last scan, and half of what it
 * was before.
 *
 * To change places the closed one must be twice as hot, and hotter by more than chance: those that
 * run alike would change places at every scan otherwise. The open one gives up its descriptors at
 * its next look, so the other has them after the next scan, unless a new process came first, which
 * most likely runs too.
 *
 * Rejected: closing and opening in one step (the sampler's thread cannot wait, and no other thread
 * may close what it reads); opening a process as soon as it runs, between scans (one that wakes
 * once in a minute would be opened and closed for it).
 */

/* Fewer runs between two scans are no reason to open its descriptors. */
#define HEAT_MIN 3u

/*
 * What happens by chance n times on average happens n +- sqrt(n) times. A difference within twice
 * that is no difference: among thousands of equal processes there is always one that has run twice
 * as often as another.
 */
#define CHANCE 4u

/* What a process ran before it was first looked at says little. */
#define RUNS_MAX 4096u

/* A cgroup takes up to ten, a process gives up at least three. */
#define PROCESSES_PER_CGROUP 4u

/*
 * None is opened while fewer are free than a cgroup takes: so many processes more than are waited
 * for give up theirs.
 */
#define SPARE 3u

/*
 * So many are opened and closed after a scan, each; the rest waits for the next. Opening takes 15
 * us.
 */
#define TIER_CHANGES_MAX 256u

static bool starts_closed(struct target_table *table)
{
	if (table->tiers.making_way == 0 && !descriptors_short(table->options.procfd))
		return false;

	table->tiers.uneven = true;

	return true;
}

static bool rule_is_about(const struct config_rule *rule, const char *entry)
{
	for (size_t i = 0; i < rule->target_count; i++)
		if (strcmp(rule->targets[i], entry) == 0)
			return true;

	return rule->target_count == 0;
}

/* What is read of a process with closed descriptors, for rules; and how seldom while it is idle. */
static void set_needs(struct target_table *table, struct target_table_target *target)
{
	const struct config *config = table->options.config;
	bool peak = false, fds = false;

	if (target->what.kind != TARGET_PROCESS)
		return;

	for (size_t i = 0; i < config->rule_count; i++) {
		const struct config_rule *rule = &config->rules[i];

		if ((rule->metric == METRIC_MEMORY_PEAK || rule->metric == METRIC_FDS) &&
		    rule_is_about(rule, target->entry->name)) {
			peak |= rule->metric == METRIC_MEMORY_PEAK;
			fds |= rule->metric == METRIC_FDS;
		}
	}
	source_entry_need(target->sampled.entry, peak, fds);
	source_entry_set_idle(target->sampled.entry, config_idle_of(config, target->entry->name));
}

/* Pointers to all processes: closed ones from the front, open ones from the back. */
struct tiers {
	struct target_table_target **slots;
	size_t count, cold, warm;
};

static void update_heat(struct target_table_target *target)
{
	uint32_t runs = source_entry_runs(target->sampled.entry), time_since = runs - target->runs;

	target->runs = runs;
	target->heat = target->heat / 2 + (time_since < RUNS_MAX ? time_since : RUNS_MAX);
	target->idle_scans = time_since ? 0 : target->idle_scans + (target->idle_scans < UINT32_MAX);
}

static int tiers_add(void *ctx, struct target_table_target *target)
{
	struct tiers *tiers = ctx;

	if (target->what.kind != TARGET_PROCESS || target->leaving || tiers->cold + tiers->warm == tiers->count)
		return 0;

	update_heat(target);
	if (source_entry_is_closed(target->sampled.entry))
		tiers->slots[tiers->cold++] = target;
	else
		tiers->slots[tiers->count - ++tiers->warm] = target;

	return 0;
}

static int compare_heat(const void *a, const void *b)
{
	const struct target_table_target *const *x = a, *const *y = b;

	if ((*x)->heat != (*y)->heat)
		return (*x)->heat < (*y)->heat ? 1 : -1;
	if ((*x)->idle_scans != (*y)->idle_scans)
		return (*x)->idle_scans > (*y)->idle_scans ? 1 : -1;

	return 0;
}

/* What is read of a process. */
static struct source_options source_options_of(const struct target_table *table)
{
	const struct config_sampling *sampling = &table->options.config->sampling;

	return (struct source_options){
		.peak_interval_ns = sampling->peak_interval_ns,
		.fds_interval_ns = sampling->fds_interval_ns,
		.reset_peaks = sampling->reset_peaks,
	};
}

/* False: there are no descriptors for more. */
static bool open_files(struct target_table *table, struct target_table_target *target)
{
	struct source_options wanted = source_options_of(table);

	if (descriptors_short(table->options.procfd))
		return false;

	int r = source_entry_open_files(target->sampled.entry, &wanted);

	if (r == 0)
		target->reading = table->reading;

	return r != -EMFILE && r != -ENFILE && r != -ENOMEM;
}

/* Free descriptors go to the hottest. How many of the closed ones were dealt with. */
static size_t open_hottest(struct target_table *table, struct target_table_target **cold, size_t count)
{
	size_t done = 0;

	while (table->tiers.making_way == 0 && done < count && done < TIER_CHANGES_MAX && open_files(table, cold[done]))
		done++;

	return done;
}

static bool is_hotter(const struct target_table_target *cold, const struct target_table_target *warm)
{
	uint64_t more = cold->heat - warm->heat;

	return cold->heat >= HEAT_MIN && cold->heat / 2 > warm->heat &&
	       more * more > CHANCE * ((uint64_t)cold->heat + warm->heat);
}

/* Those that ran least and longest ago give way to cgroups, and to closed ones that are hotter. */
static void close_coldest(const struct tiers *tiers, struct target_table_target **cold, size_t waiting,
			  size_t making_way)
{
	struct target_table_target **last = tiers->slots + tiers->count - 1;
	size_t given = 0, wanted = 0;

	for (; given < tiers->warm && given < making_way * PROCESSES_PER_CGROUP; given++)
		source_entry_close_files((*last--)->sampled.entry);
	waiting = waiting < TIER_CHANGES_MAX ? waiting : TIER_CHANGES_MAX;
	while (wanted < waiting && given + wanted < tiers->warm && is_hotter(cold[wanted], *(last - wanted)))
		wanted++;
	if (wanted > 0)
		wanted += SPARE;
	for (; wanted > 0 && given < tiers->warm && is_hotter(cold[0], *last); wanted--, given++)
		source_entry_close_files((*last--)->sampled.entry);
}

static void balance_tiers(struct target_table *table, struct tiers *tiers)
{
	target_table_visit(table, tiers_add, tiers);

	struct target_table_target **cold = tiers->slots, **warm = tiers->slots + tiers->count - tiers->warm;

	qsort(cold, tiers->cold, sizeof cold[0], compare_heat);
	qsort(warm, tiers->warm, sizeof warm[0], compare_heat);

	size_t done = open_hottest(table, cold, tiers->cold);

	close_coldest(tiers, cold + done, tiers->cold - done, table->tiers.making_way);
	table->tiers.uneven = tiers->cold > 0 || table->tiers.making_way > 0;
	table->counts.cold = tiers->cold;
}

/* After a whole scan. Without memory nothing changes. */
static void tiers_balance(struct target_table *table)
{
	struct tiers tiers = { .count = table->counts.processes };

	table->tiers.making_way = table->tiers.unopened;
	table->tiers.unopened = 0;
	if (!table->tiers.uneven && table->tiers.making_way == 0)
		return;

	tiers.slots = calloc(tiers.count + 1, sizeof(struct target_table_target *));
	if (!tiers.slots)
		return;

	balance_tiers(table, &tiers);
	free(tiers.slots);
}

/* ---- entering and leaving ---- */

static size_t *count_of(struct target_table *table, const struct target_table_target *target)
{
	return target->group ? &table->counts.members : &table->counts.targets;
}

static void enter_target(struct target_table *table, struct target_table_target *target)
{
	link_target(table, target);
	table->counts.found++;
	table->counts.processes += target->what.kind == TARGET_PROCESS;
	*count_of(table, target) += 1;
	target->entry->matched += target->what.kind != TARGET_GROUP;
}

/* A start time lies up to a tick after the number that stat shows. */
static struct target_member member_of(const struct target *what, uint64_t to_ns)
{
	uint64_t boot_ns = what->start_ticks * (NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK)), now_boot_ns;
	uint64_t asleep_ns;
	mono_t now;
	wall_t wall;

	real_clock_together(&now, &wall, &now_boot_ns);
	asleep_ns = now_boot_ns > now.ns ? now_boot_ns - now.ns : 0;

	return (struct target_member){ .pid = what->pid,
				       .from_ns = boot_ns > asleep_ns ? boot_ns - asleep_ns : 0,
				       .to_ns = to_ns };
}

static const struct past_member *past_member(const struct past_members *past, uint32_t i)
{
	return &past->members[(past->oldest + i) % past->room];
}

static struct target_member past_member_told(const struct past_members *past, uint32_t i)
{
	const struct past_member *member = past_member(past, i);

	return (struct target_member){
		.pid = member->pid,
		.from_ns = member->from == 0 ? 0 : past->since_ns + member->from * PAST_UNIT_NS,
		.to_ns = past->since_ns + (member->to + UINT64_C(1)) * PAST_UNIT_NS,
	};
}

/* False: no memory, and nothing has changed. */
static bool past_members_resize(struct past_members *past, uint32_t room)
{
	struct past_member *members = malloc(room * sizeof *members);

	if (!members)
		return false;
	for (uint32_t i = 0; i < past->count; i++)
		members[i] = *past_member(past, i);
	free(past->members);
	past->members = members;
	past->room = room;
	past->oldest = 0;
	return true;
}

static void past_members_expire(struct past_members *past, uint64_t before_ns)
{
	while (past->count > 0 && past_member_told(past, 0).to_ns < before_ns) {
		past->oldest = (past->oldest + 1) % past->room;
		past->count--;
	}
	if (past->room > PAST_MEMBERS_LEAST && past->count < past->room / 4)
		past_members_resize(past, past->room / 2);
}

static uint32_t past_units(const struct past_members *past, uint64_t at_ns)
{
	return at_ns > past->since_ns ? (uint32_t)((at_ns - past->since_ns) / PAST_UNIT_NS) : 0;
}

/* Without memory, and where there are too many, the oldest is forgotten. */
static void past_members_add(struct past_members *past, uint32_t target, const struct target_member *member)
{
	if (past->count == 0 || (member->to_ns - past->since_ns) / PAST_UNIT_NS >= UINT32_MAX) {
		past->since_ns = member->to_ns > PAST_SLACK_NS ? member->to_ns - PAST_SLACK_NS : 0;
		past->count = 0;
	}
	if (past->count == past->room &&
	    (past->room >= PAST_MEMBERS_MAX ||
	     !past_members_resize(past, past->room ? 2 * past->room : PAST_MEMBERS_LEAST))) {
		if (past->room == 0)
			return;
		past->oldest = (past->oldest + 1) % past->room;
		past->count--;
	}
	past->members[(past->oldest + past->count++) % past->room] = (struct past_member){
		.target = target,
		.pid = member->pid,
		.from = past_units(past, member->from_ns),
		.to = past_units(past, member->to_ns),
	};
}

static void remember_member(struct target_table *table, const struct target_table_target *group,
			    const struct target_member *member)
{
	const struct config_incidents *incidents = &table->options.config->incidents;
	uint64_t keep_ns;

	if (!__builtin_add_overflow(incidents->before_ns, incidents->after_ns, &keep_ns) &&
	    !__builtin_add_overflow(keep_ns, PAST_SLACK_NS, &keep_ns) && keep_ns < member->to_ns)
		past_members_expire(&table->past, member->to_ns - keep_ns);
	past_members_add(&table->past, group->what.id, member);
}

static void remember_target(struct target_table *table, const struct target_table_target *target)
{
	struct clock clock = real_clock();
	struct target_member member;

	if (!target->group)
		return;

	member = member_of(&target->what, clock_mono(&clock).ns);
	remember_member(table, target->group, &member);
}

/* ---- accounts in the kernel ---- */

/* Giving an account takes 20 us, with the lock held. */
#define ACCOUNTS_AT_ONCE 256

/* What has lost runs so often, none of them this long after the one before, has its clock asked for good. */
#define LOSSES_MAX 3
#define LOSSES_APART_NS (60 * NS_PER_S)

/* In a tick of stat, a hundredth of a second, a process may begin, end, and leave its id to another one. */
#define YOUNG_TICKS 3

static bool is_young(const struct target *what)
{
	struct clock clock = real_clock();
	uint64_t now_ticks = clock.boot_ns(clock.ctx) / (NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK));

	return now_ticks - what->start_ticks < YOUNG_TICKS;
}

/* 0; -EAGAIN: later; -errno. */
static int watch_target(struct target_table *table, struct target_table_target *target)
{
	struct kernel_accounts_watched watched = { .pid = target->what.pid, .start_ticks = target->what.start_ticks };

	if (target->what.kind == TARGET_CGROUP)
		watched = (struct kernel_accounts_watched){ .cgroup = target->what.cgroup };
	else if (is_young(&target->what))
		return -EAGAIN;
	return kernel_accounts_watch(table->options.accounts, &watched, &target->account);
}

/* Where there is none for it, its clock is asked, or its file read. */
static void open_account(struct target_table *table, struct target_table_target *target)
{
	if (target->what.kind == TARGET_GROUP || target->account != CPU_ACCOUNT_NONE || !accounts_are_on(table) ||
	    target->losses >= LOSSES_MAX)
		return;

	int r = watch_target(table, target);

	if (r == 0)
		source_entry_follow(target->sampled.entry, target->account);
	else if (target->what.kind == TARGET_PROCESS || r == -EAGAIN)
		table->kept.wanting = true;
}

/* It is in no source, or the accounts are off. */
static void close_account(struct target_table *table, struct target_table_target *target)
{
	if (target->account == CPU_ACCOUNT_NONE)
		return;

	kernel_accounts_unwatch(table->options.accounts, target->account);
	target->account = CPU_ACCOUNT_NONE;
}

struct keeping {
	struct target_table *table;
	bool on;
	unsigned done;
};

static bool has_lost(const struct target_table *table, const struct target_table_target *target)
{
	return target->what.kind == TARGET_PROCESS && target->account != CPU_ACCOUNT_NONE &&
	       kernel_accounts_shared(table->options.accounts)->accounts[target->account].lost;
}

static void count_loss(struct target_table_target *target)
{
	struct clock clock = real_clock();
	mono_t now = clock_mono(&clock);

	if (mono_diff(now, target->lost_at) > (int64_t)LOSSES_APART_NS)
		target->losses = 0;
	target->losses++;
	target->lost_at = now;
}

static int keep_account(void *ctx, struct target_table_target *target)
{
	struct keeping *keeping = ctx;
	bool has = target->account != CPU_ACCOUNT_NONE, lost = has_lost(keeping->table, target);

	if (target->what.kind == TARGET_GROUP || target->leaving || (keeping->on == has && !lost))
		return 0;
	if (has) {
		source_entry_follow(target->sampled.entry, CPU_ACCOUNT_NONE);
		close_account(keeping->table, target);
		if (lost)
			count_loss(target);
	}
	if (keeping->on)
		open_account(keeping->table, target);
	return ++keeping->done == ACCOUNTS_AT_ONCE;
}

/*
 * With thousands of targets a look at all of them each second would be most of what this thread does: there
 * is one if some may lack an account, or have lost a run (not if others have: switches may be hidden all the time).
 * That is counted after it was noted.
 */
static bool is_keeping_due(struct target_table *table, bool on)
{
	struct kernel_accounts_state state;

	kernel_accounts_state(table->options.accounts, &state);

	uint64_t losses = state.losses + state.corrected;
	bool due = on != table->kept.on || table->kept.wanting || losses != table->kept.losses;

	table->kept.on = on;
	table->kept.losses = losses;
	return due;
}

bool target_table_keep_accounts(struct target_table *table)
{
	struct keeping keeping = { .table = table, .on = accounts_are_on(table) };

	if (!table->options.accounts || !is_keeping_due(table, keeping.on))
		return false;

	table->kept.wanting = false;

	bool more = target_table_visit(table, keep_account, &keeping) > 0;

	table->kept.wanting |= more;
	return more;
}

static void forget_target(struct target_table *table, struct target_table_target *target)
{
	remember_target(table, target);
	close_account(table, target);
	unlink_target(table, target);
	line_drop(table, target->membership.line);
	target->membership.line = NULL;
	table->counts.left++;
	table->counts.processes -= target->what.kind == TARGET_PROCESS;
	table->counts.leaving -= target->leaving;
	*count_of(table, target) -= 1;
	if (target->what.kind != TARGET_GROUP && --target->entry->matched == 0)
		target->entry->unmatched_since = present();
	target_free(target);
}

/* A new one, met by this scan. */
static void number_target(struct target_table *table, struct target_table_target *target, uint64_t scan)
{
	target->what.id = ++table->numbers.target;
	target->reading = table->reading;
	target->seen = scan;
}

/* Queue full: freed, the next scan meets it again. 0; -ENOMEM. */
static int lend_target(struct target_table *table, struct target_table_target *target)
{
	int r = reserve_targets(table, 1);

	if (r == 0 && !target->group)
		r = sampler_target_describe(&target->sampled, &target->what);
	apply_limits(target);
	set_needs(table, target);
	open_account(table, target);
	if (r < 0 || !samplers_add(table->options.samplers, &target->sampled)) {
		close_account(table, target);
		line_drop(table, target->membership.line);
		target->membership.line = NULL;
		target_free(target);
		table->crowded |= r == 0;
		return r;
	}
	enter_target(table, target);

	return 0;
}

static bool ask_back(struct target_table *table, struct target_table_target *target)
{
	target->leaving = samplers_remove(table->options.samplers, &target->sampled);
	table->counts.leaving += target->leaving;
	table->crowded |= !target->leaving;

	return target->leaving;
}

/* Those that were asked back have left before a new one is at the head of the queue. */
static bool room_left(struct target_table *table)
{
	const struct target_table_counts *counts = &table->counts;

	if (counts->targets + counts->members - counts->leaving < table->options.config->sampling.max_targets)
		return true;

	table->refused++;

	return false;
}

/* A process that has ended meanwhile is not an error. */
static int opening_failed(struct target_table *table, int error)
{
	if (error == -ESRCH || error == -ENOENT)
		return TARGET_TABLE_ENDED;

	table->starved |= error == -EMFILE || error == -ENFILE;
	table->failed++;
	table->counts.last_error = error;

	return error == -ENOMEM ? error : 0;
}

/* Watches a target, unless opening it failed (r). */
static int lend_opened(struct target_table *table, struct target_table_target *target, int r)
{
	if (r < 0) {
		target_free(target);
		return opening_failed(table, r);
	}

	r = read_line(table, target);
	if (r < 0) {
		target_free(target);
		return r;
	}

	return lend_target(table, target);
}

/*
 * Whether a new one, of a group or not, may be opened now. Nothing is queued before what is owed,
 * so that the successor of one that has to leave is behind it in the queue. After the first in a
 * scan that found no descriptors no other is tried.
 */
static bool may_open(struct target_table *table, const struct target_table_target *group)
{
	if (table->owing || (group && group->unlent)) {
		table->crowded = true;
		return false;
	}
	if (!room_left(table))
		return false;
	if (table->starved)
		opening_failed(table, -EMFILE);

	return !table->starved;
}

struct dismissal {
	struct target_table *table;
	bool groups; /* only them, or all others */
};

static int dismiss(void *ctx, struct target_table_target *target)
{
	const struct dismissal *dismissal = ctx;

	if (!target->entry->dismissed || target->leaving || (target->what.kind == TARGET_GROUP) != dismissal->groups)
		return 0;

	return ask_back(dismissal->table, target) ? 0 : -EAGAIN;
}

static void lend_groups(struct target_table *table)
{
	for (size_t i = 0; i < table->list.count; i++) {
		struct target_table_target *group = table->list.entries[i]->group;

		if (!group || !group->unlent)
			continue;
		group->unlent = !samplers_add(table->options.samplers, &group->sampled);
		table->owing |= group->unlent;
		table->crowded |= group->unlent;
	}
}

/* Members of dismissed entries are asked back before their groups; then groups are lent. */
static void settle_debts(struct target_table *table)
{
	if (!table->owing)
		return;

	struct dismissal members = { table, false }, groups = { table, true };

	table->owing =
		target_table_visit(table, dismiss, &members) < 0 || target_table_visit(table, dismiss, &groups) < 0;
	if (!table->owing)
		lend_groups(table);
}

/* What it had used by its end counts in its group. */
static void credit_group(const struct target_table_target *target)
{
	struct sample end = { 0 };

	sum_kept(&target->end, &end);
	source_entry_add_exit_usage(target->group->sampled.entry, target->sampled.entry, &end, target->end_known);
}

/* No event said what it had used: of one without an account that is what the last look saw. */
static void note_unknown_end(const struct target_table *table, const struct target_table_target *target)
{
	static const struct sample nothing;

	if (target->account == CPU_ACCOUNT_NONE || !accounts_are_on(table))
		source_entry_add_exit_usage(target->group->sampled.entry, target->sampled.entry, &nothing,
					    SOURCE_END_ESTIMATED);
}

static void take_back(struct target_table *table, struct target_table_target *target, enum sampler_return why)
{
	if (why == SAMPLER_REFUSED)
		table->refused++;
	if (why != SAMPLER_REMOVED && target->leaving)
		return; /* the answer to our own request is still to come */
	if (why == SAMPLER_REFUSED && target->what.kind == TARGET_GROUP) {
		target->unlent = table->owing = true; /* there will be room when others have left */
		return;
	}

	if (target->ended) {
		table->counts.ended--;
		if (target->group && why != SAMPLER_REFUSED)
			credit_group(target);
	} else if (target->group && why == SAMPLER_GONE) {
		note_unknown_end(table, target);
	}
	forget_target(table, target);
}

bool target_table_fetch(struct target_table *table)
{
	while (table->back_count < BACK_MAX) {
		struct returned_target *back = &table->back[table->back_count];

		if (!samplers_returned(table->options.samplers, &back->sampled, &back->why))
			break;
		table->back_count++;
	}

	return table->back_count > 0;
}

static void forget_siblings(struct target_table *table)
{
	source_gate_drop(table->siblings.gate);
	free(table->siblings.path);
	table->siblings.gate = NULL;
	table->siblings.path = NULL;
}

void target_table_settle(struct target_table *table)
{
	for (size_t i = 0; i < table->back_count; i++)
		take_back(table, table->back[i].sampled->user, table->back[i].why);
	table->back_count = 0;
	if (TAILQ_EMPTY(&table->all))
		forget_siblings(table);
}

static int reopen_one(void *ctx, struct target_table_target *target)
{
	struct target_table *table = ctx;
	struct source_options wanted = source_options_of(table);
	int r;

	if (target->what.kind != TARGET_PROCESS || target->reading == table->reading || target->leaving)
		return 0;

	report_alive(table);
	if (descriptors_short(table->options.procfd))
		r = -EMFILE;
	else
		r = source_entry_reopen(target->sampled.entry, table->options.procfd, target->what.pid,
					target->what.start_ticks, &wanted);
	if (r == -EMFILE || r == -ENFILE || r == -ENOMEM) {
		opening_failed(table, r);
		return r;
	}
	target->reading = table->reading; /* what else there is to be said of it the sampler finds out */

	return 0;
}

/* Opens, for targets opened when less of a process was read, what is read now. */
static void reopen_targets(struct target_table *table)
{
	if (table->unopened)
		table->unopened = target_table_visit(table, reopen_one, table) < 0;
}

void target_table_collect(struct target_table *table)
{
	table->refused = table->failed = 0;
	table->starved = table->crowded = false;
	target_table_settle(table);
	while (target_table_fetch(table))
		target_table_settle(table);
	settle_debts(table);
	reopen_targets(table);
}

/* ---- observations of a scan ---- */

bool target_table_process_known(struct target_table *table, size_t entry, int32_t pid, uint64_t start_ticks,
				uint64_t scan)
{
	struct target_table_target *target = find_process(table, table->list.entries[entry], pid, start_ticks);

	if (target)
		target->seen = scan;

	return target != NULL;
}

/* The container that a cgroup is, or is in. NULL: none. Valid until the next call. */
static const struct container *container_of_cgroup(const struct target_table *table, const char *cgroup)
{
	struct clock clock = real_clock();
	const struct container *container;
	bool own;

	return containers_find(table->options.containers, cgroup, clock_mono(&clock), &container, &own) ==
			       CONTAINERS_NONE
		       ? NULL
		       : container;
}

/* See target_table_describe. 0; -ENOMEM: nothing changed. */
static int describe_target(const struct target_table *table, struct target_table_target *target,
			   const struct process_observation *seen)
{
	const struct target *what = &target->what;

	if (strcmp(what->comm, seen->comm) == 0 && strcmp(what->cmdline, seen->cmdline) == 0 &&
	    strcmp(what->cgroup, seen->cgroup) == 0)
		return 0;
	if (!target_set_description(&target->what, seen, container_of_cgroup(table, seen->cgroup)))
		return -ENOMEM;

	return target->group ? 0 : sampler_target_describe_anew(&target->sampled, what);
}

int target_table_process(struct target_table *table, size_t entry, const struct process_observation *seen,
			 uint64_t scan)
{
	struct target_table_target *group = table->list.entries[entry]->group, *target;

	if (target_table_process_known(table, entry, seen->pid, seen->start_ticks, scan) || !may_open(table, group))
		return 0;

	target = process_target_new(table->list.entries[entry], &table->options.config->targets[entry], seen,
				    container_of_cgroup(table, seen->cgroup));
	if (!target)
		return -ENOMEM;

	number_target(table, target, scan);
	target->group = group;
	target->sampled.group = group ? &group->sampled : NULL;

	bool cold = starts_closed(table);
	int r = (cold ? source_entry_process_closed : source_entry_process)(table->options.procfd, seen->pid,
									    seen->start_ticks, table->options.own_proc,
									    &target->sampled, &target->sampled.entry);

	if (r == 0 && !target_has_comm(table->options.procfd, seen)) {
		target_free(target);
		return 0; /* it is another process: its event, or the next scan, finds it */
	}
	table->counts.cold += cold && r == 0;
	if (r == 0 && (seen->since || seen->whole))
		source_entry_count_whole(target->sampled.entry, seen->since);
	if (r == 0 && target->names_group)
		r = describe_target(table, group, seen);

	return lend_opened(table, target, r);
}

/* Of the cgroup that this one is in, unless that is the root. NULL: none. They come one beside the other. */
static struct source_gate *gate_of_siblings(struct target_table *table, const char *path)
{
	size_t len = (size_t)(strrchr(path, '/') - path);
	AUTO_FREE char *parent = len > 0 ? strndup(path, len) : NULL;
	struct source_gate *gate = NULL;

	if (!parent)
		return NULL;
	if (table->siblings.path && strcmp(table->siblings.path, parent) == 0)
		return table->siblings.gate;
	if (source_gate_new(table->options.mounts, parent, &gate) < 0)
		gate = NULL;
	source_gate_drop(table->siblings.gate);
	free(table->siblings.path);
	table->siblings.gate = gate;
	table->siblings.path = TAKE(parent);
	return gate;
}

int target_table_cgroup(struct target_table *table, size_t entry, const char *path, uint64_t scan)
{
	struct target_table_target *target = find_cgroup(table, table->list.entries[entry], path);

	if (target) {
		target->seen = scan;
		return 0;
	}
	if (!may_open(table, NULL))
		return 0;
	if (descriptors_short(table->options.procfd)) {
		table->tiers.unopened++;
		table->failed++;
		table->counts.last_error = -EMFILE;
		return 0;
	}

	target = cgroup_target_new(table->list.entries[entry], &table->options.config->targets[entry], path,
				   container_of_cgroup(table, path));
	if (!target)
		return -ENOMEM;

	number_target(table, target, scan);

	int r = source_entry_cgroup(table->options.mounts, path, &target->sampled, &target->sampled.entry);

	if (r == 0)
		source_entry_set_gate(target->sampled.entry, gate_of_siblings(table, path));
	r = lend_opened(table, target, r);

	return r < 0 ? r : 0;
}

struct sweep {
	struct target_table *table;
	uint64_t scan;
};

static int sweep_one(void *ctx, struct target_table_target *target)
{
	const struct sweep *sweep = ctx;

	if (target->what.kind != TARGET_GROUP && !target->leaving && target->seen != sweep->scan)
		ask_back(sweep->table, target);

	return 0;
}

void target_table_sweep(struct target_table *table, uint64_t scan)
{
	struct sweep sweep = { .table = table, .scan = scan };

	table->counts.refused = table->refused;
	table->counts.failed = table->failed;
	table->refused = table->failed = 0;
	target_table_visit(table, sweep_one, &sweep);
	tiers_balance(table);
}

/* ---- events of processes ---- */

/*
 * An event names a pid, so targets are found by pid alone: of two with the same pid the one that
 * ended is not back from the sampler yet.
 */

static void end_target(struct target_table *table, struct target_table_target *target, const struct sample *counters,
		       enum source_end known)
{
	table->counts.ended += !target->ended;
	target->ended = true;
	target->end_known = known;
	sum_keep(&target->end, counters);
}

bool target_table_unmatch(struct target_table *table, size_t entry, const struct process_observation *seen,
			  const struct sample *now)
{
	struct target_table_target *target =
		find_process(table, table->list.entries[entry], seen->pid, seen->start_ticks);

	if (!target || !ask_back(table, target))
		return false;

	target->moved = !target->ended; /* or it is over, and who has its pid is another one */
	if (target->moved && now->mask)
		end_target(table, target, now, SOURCE_END_EXACT);

	return true;
}

/* The next target of a process that is not about to leave, or NULL. */
static struct target_table_target *next_of_process(const struct target_table *table, int32_t pid, uint64_t start_ticks,
						   const struct target_table_target *after)
{
	struct target_table_target *target = next_with_pid(table, pid, after);

	while (target && (target->leaving || target->what.start_ticks != start_ticks))
		target = next_with_pid(table, pid, target);

	return target;
}

size_t target_table_watches(const struct target_table *table, int32_t pid, uint64_t start_ticks)
{
	const struct target_table_target *target = NULL;
	size_t count = 0;

	while ((target = next_of_process(table, pid, start_ticks, target)))
		count++;

	return count;
}

void target_table_still(struct target_table *table, int32_t pid, uint64_t start_ticks, uint64_t scan)
{
	struct target_table_target *target = NULL;

	while ((target = next_of_process(table, pid, start_ticks, target)))
		target->seen = scan;
}

bool target_table_was_other(const struct target_table *table, size_t entry, int32_t pid, uint64_t start_ticks,
			    const char *comm)
{
	const struct target_table_target *target = find_process(table, table->list.entries[entry], pid, start_ticks);

	return target && !target->group && strcmp(target->what.comm, comm) != 0;
}

bool target_table_is_outdated(const struct target_table *table, size_t entry, const struct process_observation *seen)
{
	const struct target_table_target *target =
		find_process(table, table->list.entries[entry], seen->pid, seen->start_ticks);

	if (!target)
		return false;
	if (strcmp(target->what.comm, seen->comm) != 0)
		return true; /* by its name an end is told from another's (is_meant) */

	return (!target->group || target->names_group) && target->arguments_at != seen->arguments_at;
}

int target_table_describe(struct target_table *table, size_t entry, const struct process_observation *seen)
{
	struct target_table_target *target =
		find_process(table, table->list.entries[entry], seen->pid, seen->start_ticks);

	if (!target)
		return 0;

	target->arguments_at = seen->arguments_at;
	target->membership.event = true;

	int r = describe_target(table, target, seen);

	return r == 0 && target->names_group ? describe_target(table, target->group, seen) : r;
}

struct renaming {
	const struct target_table *table;
	const char *cgroup;
	size_t len;
	const struct container *container;
	char title[CONTAINER_TITLE_MAX];
	int error;
};

/* Members of groups are not in the ring. A container inside of this one has its own cgroups. */
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

	if (!target_set_container(what, called ? renaming->title : what->name, renaming->container) ||
	    sampler_target_describe_anew(&target->sampled, what) < 0)
		renaming->error = -ENOMEM;

	return 0;
}

int target_table_rename_container(struct target_table *table, const char *cgroup)
{
	struct renaming renaming = {
		.table = table, .cgroup = cgroup, .len = strlen(cgroup), .container = container_of_cgroup(table, cgroup)
	};

	if (!renaming.container)
		return 0;
	container_title(renaming.container, renaming.title, sizeof renaming.title);
	target_table_visit(table, rename_contained, &renaming);

	return renaming.error;
}

bool target_table_knows(const struct target_table *table, int32_t pid)
{
	return next_with_pid(table, pid, NULL) != NULL;
}

bool target_table_is_member(const struct target_table *table, size_t entry, int32_t pid)
{
	const struct target_table_target *target = NULL;

	while ((target = next_with_pid(table, pid, target)))
		if (target->group && target->entry == table->list.entries[entry])
			return true;

	return false;
}

/* A target that ended before, and did not move, was another process with the same pid. */
static bool is_ended_process(const struct target_table_target *target, const struct target_table_ending *ending)
{
	uint64_t ticks = target->what.start_ticks;

	if (ending->comm && strcmp(target->what.comm, ending->comm) != 0)
		return false;

	return (ending->start_ticks == 0 || ticks == ending->start_ticks) && ticks != ending->alive_ticks &&
	       (target->moved || !target->ended);
}

bool target_table_end(struct target_table *table, const struct target_table_ending *ending)
{
	struct target_table_target *target = NULL;
	bool found = false;

	while ((target = next_with_pid(table, ending->pid, target))) {
		if (!is_ended_process(target, ending))
			continue;
		if (!target->moved)
			end_target(table, target, &ending->counters, ending->known);
		found = true;
	}

	return found;
}

bool target_table_credit(struct target_table *table, size_t entry, const struct target_member *when,
			 const struct sample *counters, enum source_end known)
{
	struct target_table_target *group = table->list.entries[entry]->group;

	if (!group)
		return false;
	if (when)
		remember_member(table, group, when);
	source_entry_add_exit_usage(group->sampled.entry, NULL, counters, known);

	return true;
}

/* ---- reload ---- */

static void enforce(struct target_table *table, const struct entry_list *list, const struct config *config)
{
	for (size_t i = 0; i < table->list.count; i++)
		table->list.entries[i]->dismissed = true;
	for (size_t i = 0; i < list->count; i++) {
		struct target_table_entry *entry = list->entries[i];

		entry->dismissed = false;
		if (entry->planned && entry->group)
			enter_target(table, entry->group);
		entry->planned = false;
	}
	list_release(&table->list);
	table->list = *list;
	table->options.config = config;
}

static bool reads_more(const struct config_sampling *before, const struct config_sampling *now)
{
	return (now->fds_interval_ns > 0 && before->fds_interval_ns == 0) ||
	       (now->reset_peaks && !before->reset_peaks) ||
	       (now->peak_interval_ns != UINT64_MAX && before->peak_interval_ns == UINT64_MAX);
}

static int set_needs_of(void *ctx, struct target_table_target *target)
{
	set_needs(ctx, target);

	return 0;
}

int target_table_reload(struct target_table *table, const struct config *config)
{
	struct entry_list list;
	int r = list_make(&table->options, &table->list, config, &table->numbers, &list);

	if (r < 0)
		return r;
	r = reserve_targets(table, list.count);
	if (r < 0) {
		list_release(&list);
		return r;
	}

	if (reads_more(&table->options.config->sampling, &config->sampling)) {
		table->reading++;
		table->unopened = true;
	}
	enforce(table, &list, config);
	table->owing = true;
	target_table_visit(table, set_needs_of, table);
	settle_debts(table);

	return 0;
}

/* ---- new, free, queries ---- */

int target_table_new(const struct target_table_options *options, struct target_table **ret)
{
	struct target_table *table = calloc(1, sizeof *table);
	int r;

	if (!table)
		return -ENOMEM;

	table->options = *options;
	TAILQ_INIT(&table->all);
	TAILQ_INIT(&table->all_lines);
	r = limit_tree_new(options->mounts, &options->machine, &table->tree);
	if (r == 0)
		self_init(table);
	if (r == 0)
		r = target_table_reload(table, options->config);
	if (r < 0) {
		target_table_free(table);
		return r;
	}
	*ret = table;

	return 0;
}

void target_table_free(struct target_table *table)
{
	if (!table)
		return;

	for (struct target_table_target *target; (target = TAILQ_FIRST(&table->all));) {
		close_account(table, target);
		unlink_target(table, target);
		line_drop(table, target->membership.line);
		target_free(target);
	}
	list_release(&table->list);
	self_release(table);
	forget_siblings(table);
	limit_tree_free(table->tree);
	map_release(&table->lines);
	map_release(&table->identities);
	map_release(&table->pids);
	free(table->past.members);
	free(table);
}

/* "containers": "*" and the like say what is wanted if there is any. */
static bool is_for_all(const struct config_target *target)
{
	/* One by "pid" has no pattern. */
	return target->selector >= CONFIG_CGROUP &&
	       (target->pattern[0] == '*' || target->pattern[0] == '!' || strcmp(target->pattern, "/**") == 0);
}

void target_table_counts(const struct target_table *table, struct target_table_counts *ret)
{
	*ret = table->counts;
	ret->owing = table->owing || table->crowded;
	ret->unmatched_entries = 0;
	for (size_t i = 0; i < table->list.count; i++) {
		const struct target_table_entry *entry = table->list.entries[i];
		struct target_table_unmatched *unmatched = &ret->unmatched[ret->unmatched_entries];

		if (entry->matched > 0 || is_for_all(&table->options.config->targets[i]))
			continue;
		if (ret->unmatched_entries++ >= TARGET_TABLE_UNMATCHED_MAX)
			continue;
		snprintf(unmatched->entry, sizeof unmatched->entry, "%s", entry->name);
		unmatched->since = entry->unmatched_since;
	}
}

int target_table_visit(struct target_table *table, int (*visit)(void *ctx, struct target_table_target *target),
		       void *ctx)
{
	MAP_FOR_EACH(node, &table->identities) {
		int r = visit(ctx, MAP_ENTRY(node, struct target_table_target, node));

		if (r)
			return r;
	}

	return 0;
}

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

size_t target_table_query_pids(struct target_table *table, uint32_t id, int32_t *pids, size_t cap)
{
	struct pid_query query = { .id = id, .pids = pids, .cap = cap };

	target_table_visit(table, collect_pid, &query);

	return query.count;
}

struct member_query {
	uint32_t id;
	struct target_member *members;
	size_t count;
};

static int collect_member(void *ctx, struct target_table_target *target)
{
	struct member_query *query = ctx;

	if (target->group && target->group->what.id == query->id)
		query->members[query->count++] = member_of(&target->what, UINT64_MAX);

	return 0;
}

static void collect_past_members(const struct past_members *past, uint64_t since_ns, struct member_query *query)
{
	for (uint32_t i = 0; i < past->count; i++) {
		struct target_member member = past_member_told(past, i);

		if (past_member(past, i)->target == query->id && member.to_ns >= since_ns)
			query->members[query->count++] = member;
	}
}

int target_table_query_members(struct target_table *table, uint32_t id, uint64_t since_ns, struct target_member **ret,
			       size_t *ret_count)
{
	struct member_query query = {
		.id = id, .members = calloc(table->identities.count + table->past.count + 1, sizeof(*query.members))
	};

	if (!query.members)
		return -ENOMEM;

	target_table_visit(table, collect_member, &query);
	collect_past_members(&table->past, since_ns, &query);
	*ret = query.members;
	*ret_count = query.count;

	return 0;
}

struct limits_query {
	const struct target_table *table;
	uint32_t id;
	struct cgroup_limits *ret;
};

static int find_limits(void *ctx, struct target_table_target *target)
{
	struct limits_query *query = ctx;

	if (target->what.id != query->id)
		return 0;
	copy_limits(query->table, target, query->ret);

	return 1;
}

bool target_table_query_limits(struct target_table *table, uint32_t id, struct cgroup_limits *ret)
{
	struct limits_query query = { .table = table, .id = id, .ret = ret };

	return target_table_visit(table, find_limits, &query) == 1;
}
