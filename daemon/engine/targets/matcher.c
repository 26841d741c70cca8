/* matcher.c: made as a whole, so that a reload can exchange it in one go. */
#include "daemon/engine/targets/matcher.h"

#include "daemon/engine/base/proc_read.h"
#include "daemon/engine/targets/containers.h"
#include "daemon/engine/targets/fair_mutex.h"
#include "daemon/engine/targets/unit_bus.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/config/config.h"
#include "lib/config/selection.h"
#include "lib/model/target.h"
#include "lib/proc/procfs.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/*
 * kinship.c: a forest of nodes in one array, with chains from pid to node.
 *
 * Invariant: a node has all bits of its parent. So what a process belongs to is read from its own node, and a node that goes hands its children to
 * its own parent without a word about bits. Parents are needed for one thing: a process may become a root when it has descendants already
 * (it executed something, the configuration changed), also such as have lost those in between.
 *
 * The kernel hands an orphan to one of its ancestors, so the parent that /proc shows is always an ancestor, and the one that a fork told is a nearer one.
 * A node that nobody met is there all the same, without start time: the parent of a child that was heard or met first.
 *
 * Nodes of processes that ended stay for a while: perf's records of several CPUs are not in order, and the fork of a child may be heard after the
 * end of its parent.
 */

#define BUCKETS 16384u
#define NOBODY 0u /* nodes[0] is no process */

_Static_assert((BUCKETS & (BUCKETS - 1)) == 0, "pids are cut to a bucket");

struct node {
	uint64_t start_ticks; /* 0: not met yet */
	uint64_t bits;
	uint32_t parent, first, next, previous; /* its parent, its first child, its siblings */
	uint32_t chain;                         /* next in its bucket, or of those that are free */
	uint32_t seen;                          /* number of the scan in which it was met or heard of last */
	uint32_t place;                         /* if ended: in the row of those */
	int32_t pid;                            /* 0: free */
	bool forked;                            /* its fork was heard */
	bool ended;
};

struct kinship {
	struct node nodes[KINSHIP_MAX + 1];
	uint32_t buckets[BUCKETS];
	uint32_t ended[KINSHIP_ENDED_MAX]; /* round and round, NOBODY where one has gone */
	uint32_t ended_next;
	uint32_t used; /* nodes behind were never used */
	uint32_t free;
	uint32_t scan;
	size_t count;
	uint64_t dropped;
	bool belated;
};

int kinship_new(struct kinship **ret)
{
	struct kinship *kinship = calloc(1, sizeof(*kinship));

	if (!kinship)
		return -ENOMEM;

	*ret = kinship;

	return 0;
}

void kinship_free(struct kinship *kinship)
{
	free(kinship);
}

/* ---- nodes ---- */

static struct node *at(struct kinship *kinship, uint32_t index)
{
	return &kinship->nodes[index];
}

static uint32_t index_of(const struct kinship *kinship, const struct node *node)
{
	return (uint32_t)(node - kinship->nodes);
}

static uint32_t bucket_of(int32_t pid)
{
	return (uint32_t)pid & (BUCKETS - 1);
}

static struct node *find_node(struct kinship *kinship, int32_t pid)
{
	uint32_t index = kinship->buckets[bucket_of(pid)];

	while (index != NOBODY && kinship->nodes[index].pid != pid)
		index = kinship->nodes[index].chain;

	return index != NOBODY ? at(kinship, index) : NULL;
}

/* NULL: no room. */
static struct node *add(struct kinship *kinship, int32_t pid)
{
	uint32_t index = kinship->free;

	if (index != NOBODY)
		kinship->free = at(kinship, index)->chain;
	else if (kinship->used < KINSHIP_MAX)
		index = ++kinship->used;
	if (index == NOBODY) {
		kinship->dropped++;
		return NULL;
	}

	uint32_t *bucket = &kinship->buckets[bucket_of(pid)];

	*at(kinship, index) = (struct node){ .pid = pid, .seen = kinship->scan, .chain = *bucket };
	*bucket = index;
	kinship->count++;

	return at(kinship, index);
}

static struct node *find_or_add(struct kinship *kinship, int32_t pid)
{
	struct node *node = find_node(kinship, pid);

	return node ? node : add(kinship, pid);
}

/* ---- the forest ---- */

static void unlink_from_parent(struct kinship *kinship, struct node *node)
{
	if (node->next != NOBODY)
		at(kinship, node->next)->previous = node->previous;
	if (node->previous != NOBODY)
		at(kinship, node->previous)->next = node->next;
	else if (node->parent != NOBODY)
		at(kinship, node->parent)->first = node->next;
	node->parent = node->next = node->previous = NOBODY;
}

static void link_to_parent(struct kinship *kinship, struct node *node, struct node *parent)
{
	node->parent = index_of(kinship, parent);
	node->previous = NOBODY;
	node->next = parent->first;
	if (node->next != NOBODY)
		at(kinship, node->next)->previous = index_of(kinship, node);
	parent->first = index_of(kinship, node);
}

/* The node behind this one in a walk over what is below top, parents first; below: the children of this one too. NULL: the end. */
static struct node *walk(struct kinship *kinship, const struct node *top, struct node *node, bool below)
{
	if (below && node->first != NOBODY)
		return at(kinship, node->first);
	while (node != top && node->next == NOBODY)
		node = at(kinship, node->parent);

	return node != top ? at(kinship, node->next) : NULL;
}

/* It and what is below it comes into these trees. Where they are known already, they are known further below as well. */
static void give(struct kinship *kinship, struct node *top, uint64_t bits)
{
	if ((top->bits & bits) == bits)
		return;

	top->bits |= bits;
	for (struct node *node = walk(kinship, top, top, true); node;) {
		bool lacks = (node->bits & bits) != bits;

		kinship->belated |= lacks && node->start_ticks != 0;
		node->bits |= bits;
		node = walk(kinship, top, node, lacks);
	}
}

static bool is_below(struct kinship *kinship, const struct node *node, const struct node *top)
{
	while (node != top && node->parent != NOBODY)
		node = at(kinship, node->parent);

	return node == top;
}

/* News that contradict each other must not close a circle. */
static void attach(struct kinship *kinship, struct node *node, struct node *parent)
{
	if (node->parent == index_of(kinship, parent) || (node->first != NOBODY && is_below(kinship, parent, node)))
		return;

	unlink_from_parent(kinship, node);
	link_to_parent(kinship, node, parent);
	kinship->belated |= node->start_ticks != 0 && (parent->bits & ~node->bits) != 0;
	give(kinship, node, parent->bits);
}

static void revive(struct kinship *kinship, struct node *node)
{
	if (node->ended)
		kinship->ended[node->place] = NOBODY;
	node->ended = false;
}

static void forget(struct kinship *kinship, struct node *node)
{
	uint32_t index = index_of(kinship, node), *bucket = &kinship->buckets[bucket_of(node->pid)];

	while (node->first != NOBODY) {
		struct node *child = at(kinship, node->first);

		unlink_from_parent(kinship, child);
		if (node->parent != NOBODY)
			link_to_parent(kinship, child, at(kinship, node->parent));
	}
	unlink_from_parent(kinship, node);
	revive(kinship, node);
	while (*bucket != index)
		bucket = &at(kinship, *bucket)->chain;
	*bucket = node->chain;
	*node = (struct node){ .chain = kinship->free };
	kinship->free = index;
	kinship->count--;
}

/* ---- what is heard and met ---- */

/* Whether the fork that is heard is that of another process than the one we know: of one that was met in this scan it may come late. */
static bool is_successor(const struct kinship *kinship, const struct node *known)
{
	return known->ended || known->forked || (known->start_ticks != 0 && known->seen != kinship->scan);
}

void kinship_forked(struct kinship *kinship, int32_t ppid, int32_t pid)
{
	if (ppid <= 0 || pid <= 0 || ppid == pid)
		return;

	struct node *node = find_node(kinship, pid), *parent;

	if (node && is_successor(kinship, node))
		forget(kinship, node);
	parent = find_or_add(kinship, ppid);
	node = find_or_add(kinship, pid);
	if (!node)
		return;

	node->forked = true;
	node->seen = kinship->scan;
	if (parent)
		attach(kinship, node, parent);
}

uint64_t kinship_met(struct kinship *kinship, const struct kinship_process *process, uint64_t roots)
{
	struct node *node = find_node(kinship, process->pid), *parent;

	if (node && node->start_ticks != 0 && node->start_ticks != process->start_ticks)
		forget(kinship, node);
	node = find_or_add(kinship, process->pid);
	if (!node) {
		parent = find_node(kinship, process->ppid);
		return roots | (parent ? parent->bits : 0);
	}

	revive(kinship, node);
	node->seen = kinship->scan;
	if (node->parent == NOBODY && process->ppid > 0 && process->ppid != process->pid) {
		parent = find_or_add(kinship, process->ppid);
		if (parent)
			attach(kinship, node, parent);
	}
	node->start_ticks = process->start_ticks;
	give(kinship, node, roots);

	return node->bits;
}

void kinship_ended(struct kinship *kinship, int32_t pid)
{
	struct node *node = find_node(kinship, pid);
	uint32_t *place = &kinship->ended[kinship->ended_next];

	if (!node || node->ended)
		return;

	if (*place != NOBODY)
		forget(kinship, at(kinship, *place));
	*place = index_of(kinship, node);
	node->place = kinship->ended_next;
	node->ended = true;
	node->seen = kinship->scan;
	kinship->ended_next = (kinship->ended_next + 1) % KINSHIP_ENDED_MAX;
}

bool kinship_find(const struct kinship *kinship, int32_t pid, uint64_t *ret)
{
	uint32_t index = kinship->buckets[bucket_of(pid)];

	while (index != NOBODY && kinship->nodes[index].pid != pid)
		index = kinship->nodes[index].chain;
	if (index == NOBODY)
		return false;

	*ret = kinship->nodes[index].bits;

	return true;
}

/* ---- the whole ---- */

void kinship_begin(struct kinship *kinship)
{
	kinship->scan++;
}

void kinship_sweep(struct kinship *kinship)
{
	for (uint32_t i = 1; i <= kinship->used; i++)
		if (kinship->nodes[i].pid != 0 && kinship->nodes[i].seen != kinship->scan)
			forget(kinship, at(kinship, i));
}

bool kinship_belated(struct kinship *kinship)
{
	bool belated = kinship->belated;

	kinship->belated = false;

	return belated;
}

void kinship_renumber(struct kinship *kinship, const unsigned place[static KINSHIP_TREES])
{
	for (uint32_t i = 1; i <= kinship->used; i++) {
		uint64_t before = kinship->nodes[i].bits, bits = 0;

		for (; before != 0; before &= before - 1) {
			unsigned to = place[__builtin_ctzll(before)];

			bits |= to < KINSHIP_TREES ? 1ull << to : 0;
		}
		kinship->nodes[i].bits = bits;
	}
}

size_t kinship_count(const struct kinship *kinship)
{
	return kinship->count;
}

uint64_t kinship_dropped(const struct kinship *kinship)
{
	return kinship->dropped;
}

/*
 * census.c: a hash table with open addressing, at most half full. Nothing is taken out of it: when a fifth of it were not met any more it is built anew from
 * the others.
 */

#define ROOM_MIN 256u

struct census {
	struct census_record *slots;
	size_t room; /* a power of two */
	size_t count;
	uint32_t scan;
};

int census_new(struct census **ret)
{
	struct census *census = calloc(1, sizeof(*census));

	if (census == NULL)
		return -ENOMEM;
	census->slots = calloc(ROOM_MIN, sizeof(*census->slots));
	census->room = ROOM_MIN;
	if (census->slots == NULL) {
		free(census);
		return -ENOMEM;
	}
	*ret = census;
	return 0;
}

void census_free(struct census *census)
{
	if (census == NULL)
		return;
	free(census->slots);
	free(census);
}

/* Where pid is, or would be. */
static struct census_record *find(struct census_record *slots, size_t room, int32_t pid)
{
	size_t at = (uint32_t)pid * 2654435769u & (room - 1);

	while (slots[at].pid != 0 && slots[at].pid != pid)
		at = (at + 1) & (room - 1);
	return &slots[at];
}

void census_begin(struct census *census)
{
	census->scan++;
}

/* Half as much again as would be half full, for those that come. */
static size_t room_for(size_t count)
{
	size_t room = ROOM_MIN;

	while (room < 3 * count)
		room *= 2;
	return room;
}

static size_t count_met(const struct census *census)
{
	size_t met = 0;

	for (size_t i = 0; i < census->room; i++)
		met += census->slots[i].pid != 0 && census->slots[i].scan == census->scan;
	return met;
}

void census_end(struct census *census)
{
	size_t met = count_met(census), room = room_for(met);
	struct census_record *slots;

	if (census->count - met <= met / 4)
		return;
	slots = calloc(room, sizeof(*slots));
	if (slots == NULL) {
		census_clear(census);
		return;
	}
	census->count = 0;
	for (size_t i = 0; i < census->room; i++) {
		const struct census_record *record = &census->slots[i];

		if (record->pid == 0 || record->scan != census->scan)
			continue;
		*find(slots, room, record->pid) = *record;
		census->count++;
	}
	free(census->slots);
	census->slots = slots;
	census->room = room;
}

void census_clear(struct census *census)
{
	for (size_t i = 0; i < census->room; i++)
		census->slots[i] = (struct census_record){ 0 };
	census->count = 0;
}

const struct census_record *census_meet(struct census *census, int32_t pid, uint64_t cpu_ns)
{
	struct census_record *record = find(census->slots, census->room, pid);
	bool turn = (uint32_t)pid % CENSUS_TURNS == census->scan % CENSUS_TURNS;

	if (record->pid == 0 || cpu_ns == 0 || turn || record->cpu_ns != cpu_ns)
		return NULL;
	record->scan = census->scan;
	return record;
}

/* Twice as much room, as far as it may grow. False: there is none. */
static bool grow(struct census *census)
{
	size_t room = 2 * census->room;
	struct census_record *slots = room <= 2 * CENSUS_MAX ? calloc(room, sizeof(*slots)) : NULL;

	if (slots == NULL)
		return false;
	for (size_t i = 0; i < census->room; i++)
		if (census->slots[i].pid != 0)
			*find(slots, room, census->slots[i].pid) = census->slots[i];
	free(census->slots);
	census->slots = slots;
	census->room = room;
	return true;
}

void census_enter(struct census *census, const struct census_record *record)
{
	struct census_record *slot = find(census->slots, census->room, record->pid);

	if (slot->pid == 0) {
		if (2 * (census->count + 1) > census->room && !grow(census))
			return;
		slot = find(census->slots, census->room, record->pid);
		census->count++;
	}
	*slot = *record;
	slot->scan = census->scan;
}

size_t census_count(const struct census *census)
{
	return census->count;
}

/* scanned.c: each fact is tried once per process; only running out of descriptors or memory is an error. */

bool scanned_starved(ssize_t error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM || error == -ECANCELED;
}

int scanned_meet(struct scanned *scanned, int32_t pid)
{
	ssize_t len;

	outside_leave(&scanned->outside, pid);
	len = procread_file(scanned->procfd, pid, "stat", scanned->text, sizeof scanned->text);
	if (outside_enter(&scanned->outside) < 0)
		return -ECANCELED;
	if (len < 0)
		return (int)len;
	if (procfs_stat_parse(scanned->text, (size_t)len, &scanned->stat) < 0)
		return -ESRCH;

	size_t comm_len = scanned->stat.comm_len;

	if (comm_len >= sizeof scanned->comm)
		comm_len = sizeof scanned->comm - 1;
	memcpy(scanned->comm, scanned->stat.comm, comm_len);
	scanned->comm[comm_len] = '\0';
	scanned->arguments_at = procfs_stat_arguments(scanned->text, (size_t)len);
	scanned->facts = (struct match_facts){ .pid = pid, .comm = scanned->comm };
	scanned->asked = MATCH_COMM;

	return 0;
}

static void ask_container(struct scanned *scanned)
{
	const struct container *container;
	bool own;

	if (!scanned->facts.cgroup || containers_find(scanned->containers, scanned->facts.cgroup, scanned->now,
						      &container, &own) == CONTAINERS_NONE)
		return;
	scanned->container = *container;
	scanned->facts.container = &scanned->container;
}

/* 0, or an error of scanned_starved. */
static ssize_t read_files(struct scanned *scanned, unsigned missing)
{
	int32_t pid = scanned->facts.pid;
	ssize_t r = 0;

	if (missing & MATCH_EXE) {
		r = procread_link(scanned->procfd, pid, "exe", scanned->exe, sizeof scanned->exe);
		scanned->facts.exe = r > 0 ? scanned->exe : NULL;
	}
	if (!scanned_starved(r) && (missing & MATCH_CMDLINE)) {
		r = procread_cmdline(scanned->procfd, pid, scanned->cmdline, sizeof scanned->cmdline);
		scanned->facts.cmdline = r >= 0 ? scanned->cmdline : NULL;
	}
	if (!scanned_starved(r) && (missing & MATCH_CGROUP)) {
		r = cgroup_path_of(scanned->mounts, scanned->procfd, pid, scanned->cgroup, sizeof scanned->cgroup);
		scanned->facts.cgroup = r == 0 ? scanned->cgroup : NULL;
	}

	return scanned_starved(r) ? r : 0;
}

int scanned_ask(struct scanned *scanned, unsigned needs)
{
	if (needs & MATCH_CONTAINER)
		needs |= MATCH_CGROUP;

	unsigned missing = needs & ~scanned->asked;
	ssize_t r = 0;

	scanned->asked |= needs;
	if (missing & (MATCH_EXE | MATCH_CMDLINE | MATCH_CGROUP)) {
		outside_leave(&scanned->outside, scanned->facts.pid);
		r = read_files(scanned, missing);
		if (outside_enter(&scanned->outside) < 0)
			return -ECANCELED;
	}
	if (r == 0 && (missing & MATCH_CONTAINER))
		ask_container(scanned);

	return (int)r;
}

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
