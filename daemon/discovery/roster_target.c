/* roster_target.c: a hash table from identity to target: the number of the entry, and the pid or the path. */
#include "roster_target.h"

#include "procread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one ---- */

bool roster_target_is_called(int procfd, const struct roster_sighting *seen)
{
	char comm[64];
	ssize_t len = procread_file(procfd, seen->pid, "comm", comm, sizeof comm);

	if (len <= 0)
		return true;
	len -= comm[len - 1] == '\n';

	return strlen(seen->comm) == (size_t)len && memcmp(seen->comm, comm, (size_t)len) == 0;
}

void roster_target_free(struct roster_target *target)
{
	sampler_target_release(&target->sampled);
	roster_entry_drop(target->entry);
	free((char *)(uintptr_t)target->what.name);
	free((char *)(uintptr_t)target->what.key);
	free((char *)(uintptr_t)target->what.comm);
	free((char *)(uintptr_t)target->what.cmdline);
	free((char *)(uintptr_t)target->what.cgroup);
	free((char *)(uintptr_t)target->what.container);
	free(target);
}

struct roster_target *roster_target_new(struct roster_entry *entry, const struct target *what)
{
	struct roster_target *target = calloc(1, sizeof *target);

	if (!target)
		return NULL;

	target->entry = roster_entry_hold(entry);
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

	roster_target_free(target);

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

struct roster_target *roster_target_process(struct roster_entry *entry, const struct config_target *config,
					    const struct roster_sighting *seen, const struct container *container)
{
	char name[96], key[128], packed[CONTAINER_PACKED_MAX];

	if (is_one_process(config) && !seen->descends) {
		/* Whichever process it is at the moment: its cooldowns go on when it is restarted. */
		snprintf(name, sizeof name, "%s", entry->name);
		snprintf(key, sizeof key, "%s", entry->name);
	} else {
		snprintf(name, sizeof name, "%s/%d", entry->name, seen->pid);
		snprintf(key, sizeof key, "%s:%d@%llu", entry->name, seen->pid, (unsigned long long)seen->start_ticks);
	}

	pack(container, packed);

	struct roster_target *target = roster_target_new(entry, &(struct target){ .kind = TARGET_PROCESS,
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

bool roster_target_rename(struct target *what, const struct roster_sighting *seen, const struct container *container)
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

bool roster_target_recontain(struct target *what, const char *name, const struct container *container)
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

/* A path as a name that only this path has: a long one as its beginning, its end, and a number made of all of it. */
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

struct roster_target *roster_target_cgroup(struct roster_entry *entry, const struct config_target *config,
					   const char *path, const struct container *container)
{
	char shown[PATH_SHORT_MAX], key[PATH_SHORT_MAX + 80], packed[CONTAINER_PACKED_MAX], title[CONTAINER_TITLE_MAX];
	bool called = container && config->selector == CONFIG_CONTAINERS;

	/* By the path, whatever it is called: that may be found out at another time. */
	shorten_path(path, shown);
	snprintf(key, sizeof key, "%s:%s", entry->name, shown);
	pack(container, packed);
	if (called)
		container_title(container, title, sizeof title);

	return roster_target_new(entry, &(struct target){ .kind = TARGET_CGROUP,
							  .name = called ? title : shown,
							  .key = key,
							  .comm = "",
							  .cmdline = "",
							  .cgroup = path,
							  .container = packed });
}

/* ---- the table ---- */

static uint32_t hash_identity(const struct roster_entry *entry, int32_t pid, const char *path)
{
	uint32_t hash = 2166136261u ^ entry->number;

	hash = (hash ^ (uint32_t)pid) * 16777619u;
	for (; path && *path; path++)
		hash = (hash ^ (unsigned char)*path) * 16777619u;

	return (hash ^ (hash >> 15)) & (ROSTER_BUCKETS - 1);
}

static uint32_t bucket_of(const struct roster_target *target)
{
	return hash_identity(target->entry, target->what.pid,
			     target->what.kind == TARGET_CGROUP ? target->what.cgroup : NULL);
}

struct roster_target *roster_table_process(const struct roster_table *table, const struct roster_entry *entry,
					   int32_t pid, uint64_t start_ticks)
{
	struct roster_target *target = table->buckets[hash_identity(entry, pid, NULL)];

	for (; target; target = target->next)
		if (target->what.kind == TARGET_PROCESS && target->entry == entry && target->what.pid == pid &&
		    target->what.start_ticks == start_ticks && !target->leaving)
			return target;

	return NULL;
}

struct roster_target *roster_table_cgroup(const struct roster_table *table, const struct roster_entry *entry,
					  const char *path)
{
	struct roster_target *target = table->buckets[hash_identity(entry, 0, path)];

	for (; target; target = target->next)
		if (target->what.kind == TARGET_CGROUP && target->entry == entry &&
		    strcmp(target->what.cgroup, path) == 0)
			return target;

	return NULL;
}

static uint32_t bucket_of_pid(int32_t pid)
{
	return (uint32_t)pid & (ROSTER_BUCKETS - 1);
}

struct roster_target *roster_table_pid(const struct roster_table *table, int32_t pid, const struct roster_target *after)
{
	struct roster_target *target = after ? after->next_pid : table->pids[bucket_of_pid(pid)];

	while (target && target->what.pid != pid)
		target = target->next_pid;

	return target;
}

void roster_table_enter(struct roster_table *table, struct roster_target *target)
{
	struct roster_target **bucket = &table->buckets[bucket_of(target)];

	target->next = *bucket;
	*bucket = target;
	if (target->what.kind != TARGET_PROCESS)
		return;

	bucket = &table->pids[bucket_of_pid(target->what.pid)];
	target->next_pid = *bucket;
	*bucket = target;
}

void roster_table_remove(struct roster_table *table, struct roster_target *target)
{
	struct roster_target **at = &table->buckets[bucket_of(target)];

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

void roster_table_clear(struct roster_table *table)
{
	for (unsigned i = 0; i < ROSTER_BUCKETS; i++) {
		while (table->buckets[i]) {
			struct roster_target *target = table->buckets[i];

			table->buckets[i] = target->next;
			roster_target_free(target);
		}
	}
}

int roster_table_visit(const struct roster_table *table, int (*visit)(void *ctx, struct roster_target *target),
		       void *ctx)
{
	for (unsigned i = 0; i < ROSTER_BUCKETS; i++) {
		for (struct roster_target *target = table->buckets[i]; target; target = target->next) {
			int r = visit(ctx, target);

			if (r)
				return r;
		}
	}

	return 0;
}
