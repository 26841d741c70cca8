/*
 * matcher.c: the compiled entries, made as a whole, so that a reload exchanges them in one step;
 * and the process tree.
 *
 * The tree is a forest of nodes in one array, of which only the pages that were used exist.
 * Invariant: a node has all bits of its parent. So the trees of a process are read from its own
 * node, and when a node is removed its children move to its parent with no change of bits. Parents
 * are needed for one thing: a process may become a root when it has descendants already (it
 * executed something, the configuration changed), also through descendants that have ended.
 *
 * The kernel reparents an orphan to one of its ancestors, so the parent that /proc shows is always
 * an ancestor, and the one that a fork event named is a nearer one. A node that was never met
 * exists all the same, without start time: the parent of a child that an event named, or that was
 * met, first.
 *
 * Nodes of processes that ended stay for a while: perf's records of several CPUs are not in order,
 * and the fork of a child may be read after the exit of its parent.
 */
#include "daemon/engine/targets/matcher.h"

#include "daemon/engine/base/foreign.h"
#include "daemon/engine/base/proc_read.h"
#include "lib/base/map.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the process tree ---- */

/* Trees are bits. */
#define PROCESS_TREE_TREES 64u

/* Processes, with those that ended lately: 4.5 MiB with the map, of which only used pages exist. */
#define PROCESS_TREE_MAX 65536u

/* Remembered of those that ended, for events of their children that come later. */
#define PROCESS_TREE_ENDED_MAX 1024u

/* A process as it was met. */
struct process_tree_process {
	int32_t pid;
	int32_t ppid; /* now; 0: it has none */
	uint64_t start_ticks;
};

#define NO_NODE 0u /* nodes[0] is no process */

struct node {
	struct map_node by_pid; /* its hash is the pid */
	uint64_t start_ticks;   /* 0: not met yet */
	uint64_t bits;
	uint32_t parent, first, next,
		previous; /* its parent, its first child, its siblings; next: of those free, too */
	uint32_t seen;    /* the last scan that met it, or in which an event named it */
	uint32_t place;   /* if ended: its index in the array of those */
	int32_t pid;      /* 0: free */
	bool forked;      /* by a fork event */
	bool ended;
};

struct process_tree {
	struct node nodes[PROCESS_TREE_MAX + 1];
	struct map pids;
	uint32_t ended[PROCESS_TREE_ENDED_MAX]; /* a ring, NO_NODE where one was removed */
	uint32_t ended_next;
	uint32_t used; /* nodes beyond were never used */
	uint32_t free;
	uint32_t scan;
	uint64_t dropped;
	bool belated;
};

static void process_tree_free(struct process_tree *tree)
{
	if (tree == NULL)
		return;
	map_release(&tree->pids);
	free(tree);
}

/* All that it will ever take. */
static int process_tree_new(struct process_tree **ret)
{
	struct process_tree *tree = calloc(1, sizeof(*tree));

	if (!tree || map_reserve(&tree->pids, PROCESS_TREE_MAX) < 0) {
		free(tree);
		return -ENOMEM;
	}

	*ret = tree;

	return 0;
}

/* ---- nodes ---- */

static struct node *node_at(struct process_tree *tree, uint32_t index)
{
	return &tree->nodes[index];
}

static uint32_t index_of(const struct process_tree *tree, const struct node *node)
{
	return (uint32_t)(node - tree->nodes);
}

static struct node *node_find(const struct process_tree *tree, int32_t pid)
{
	struct map_node *node = map_first(&tree->pids, (uint32_t)pid);

	return node != NULL ? MAP_ENTRY(node, struct node, by_pid) : NULL;
}

static struct node *node_add(struct process_tree *tree, int32_t pid)
{
	uint32_t index = tree->free;

	if (index != NO_NODE)
		tree->free = node_at(tree, index)->next;
	else if (tree->used < PROCESS_TREE_MAX)
		index = ++tree->used;
	if (index == NO_NODE) {
		tree->dropped++;
		return NULL;
	}
	*node_at(tree, index) = (struct node){ .pid = pid, .seen = tree->scan };
	map_insert(&tree->pids, &node_at(tree, index)->by_pid, (uint32_t)pid);

	return node_at(tree, index);
}

static struct node *node_find_or_add(struct process_tree *tree, int32_t pid)
{
	struct node *node = node_find(tree, pid);

	return node ? node : node_add(tree, pid);
}

/* ---- the forest ---- */

static void unlink_from_parent(struct process_tree *tree, struct node *node)
{
	if (node->next != NO_NODE)
		node_at(tree, node->next)->previous = node->previous;
	if (node->previous != NO_NODE)
		node_at(tree, node->previous)->next = node->next;
	else if (node->parent != NO_NODE)
		node_at(tree, node->parent)->first = node->next;
	node->parent = node->next = node->previous = NO_NODE;
}

static void link_to_parent(struct process_tree *tree, struct node *node, struct node *parent)
{
	node->parent = index_of(tree, parent);
	node->previous = NO_NODE;
	node->next = parent->first;
	if (node->next != NO_NODE)
		node_at(tree, node->next)->previous = index_of(tree, node);
	parent->first = index_of(tree, node);
}

/* The next node below top, parents first; below: its children too. NULL: the end. */
static struct node *next_below(struct process_tree *tree, const struct node *top, struct node *node, bool below)
{
	if (below && node->first != NO_NODE)
		return node_at(tree, node->first);
	while (node != top && node->next == NO_NODE)
		node = node_at(tree, node->parent);

	return node != top ? node_at(tree, node->next) : NULL;
}

/* To it and all below. A node that has these trees ends the walk down (invariant). */
static void add_trees(struct process_tree *tree, struct node *top, uint64_t bits)
{
	if ((top->bits & bits) == bits)
		return;

	top->bits |= bits;
	for (struct node *node = next_below(tree, top, top, true); node;) {
		bool lacks = (node->bits & bits) != bits;

		tree->belated |= lacks && node->start_ticks != 0;
		node->bits |= bits;
		node = next_below(tree, top, node, lacks);
	}
}

static bool is_below(struct process_tree *tree, const struct node *node, const struct node *top)
{
	while (node != top && node->parent != NO_NODE)
		node = node_at(tree, node->parent);

	return node == top;
}

/* Events that contradict each other must not make a cycle. */
static void set_parent(struct process_tree *tree, struct node *node, struct node *parent)
{
	if (node->parent == index_of(tree, parent) || (node->first != NO_NODE && is_below(tree, parent, node)))
		return;

	unlink_from_parent(tree, node);
	link_to_parent(tree, node, parent);
	tree->belated |= node->start_ticks != 0 && (parent->bits & ~node->bits) != 0;
	add_trees(tree, node, parent->bits);
}

static void mark_alive(struct process_tree *tree, struct node *node)
{
	if (node->ended)
		tree->ended[node->place] = NO_NODE;
	node->ended = false;
}

static void node_remove(struct process_tree *tree, struct node *node)
{
	while (node->first != NO_NODE) {
		struct node *child = node_at(tree, node->first);

		unlink_from_parent(tree, child);
		if (node->parent != NO_NODE)
			link_to_parent(tree, child, node_at(tree, node->parent));
	}
	unlink_from_parent(tree, node);
	mark_alive(tree, node);
	map_remove(&tree->pids, &node->by_pid);
	*node = (struct node){ .next = tree->free };
	tree->free = index_of(tree, node);
}

/* ---- events and observations ---- */

/* Whether a fork is of another process than the known one; one met in this scan may be the same. */
static bool is_successor(const struct process_tree *tree, const struct node *known)
{
	return known->ended || known->forked || (known->start_ticks != 0 && known->seen != tree->scan);
}

/* A fork event; may come after pid was met, and after the end of ppid. */
static void process_tree_forked(struct process_tree *tree, int32_t ppid, int32_t pid)
{
	if (ppid <= 0 || pid <= 0 || ppid == pid)
		return;

	struct node *node = node_find(tree, pid), *parent;

	if (node && is_successor(tree, node))
		node_remove(tree, node);
	parent = node_find_or_add(tree, ppid);
	node = node_find_or_add(tree, pid);
	if (!node)
		return;

	node->forked = true;
	node->seen = tree->scan;
	if (parent)
		set_parent(tree, node, parent);
}

/* A process was looked at, and is the root of these trees. Returns all that it belongs to. */
static uint64_t process_tree_met(struct process_tree *tree, const struct process_tree_process *process, uint64_t roots)
{
	struct node *node = node_find(tree, process->pid), *parent;

	if (node && node->start_ticks != 0 && node->start_ticks != process->start_ticks)
		node_remove(tree, node);
	node = node_find_or_add(tree, process->pid);
	if (!node) {
		parent = node_find(tree, process->ppid);
		return roots | (parent ? parent->bits : 0);
	}

	mark_alive(tree, node);
	node->seen = tree->scan;
	if (node->parent == NO_NODE && process->ppid > 0 && process->ppid != process->pid) {
		parent = node_find_or_add(tree, process->ppid);
		if (parent)
			set_parent(tree, node, parent);
	}
	node->start_ticks = process->start_ticks;
	add_trees(tree, node, roots);

	return node->bits;
}

/* Its children stay in its trees. Met again (only its main thread had ended) it is alive. */
static void process_tree_ended(struct process_tree *tree, int32_t pid)
{
	struct node *node = node_find(tree, pid);
	uint32_t *place = &tree->ended[tree->ended_next];

	if (!node || node->ended)
		return;

	if (*place != NO_NODE)
		node_remove(tree, node_at(tree, *place));
	*place = index_of(tree, node);
	node->place = tree->ended_next;
	node->ended = true;
	node->seen = tree->scan;
	tree->ended_next = (tree->ended_next + 1) % PROCESS_TREE_ENDED_MAX;
}

/* The trees of a process, which may have ended lately. False: not known. */
static bool process_tree_find(const struct process_tree *tree, int32_t pid, uint64_t *ret)
{
	const struct node *node = node_find(tree, pid);

	if (node != NULL)
		*ret = node->bits;

	return node != NULL;
}

/* ---- all nodes ---- */

static void process_tree_begin(struct process_tree *tree)
{
	tree->scan++;
}

/* It is over: processes that it has not met are forgotten. */
static void process_tree_sweep(struct process_tree *tree)
{
	for (uint32_t i = 1; i <= tree->used; i++)
		if (tree->nodes[i].pid != 0 && tree->nodes[i].seen != tree->scan)
			node_remove(tree, node_at(tree, i));
}

/* Whether, since the last call, processes came into a tree after they were met. */
static bool process_tree_take_belated(struct process_tree *tree)
{
	bool belated = tree->belated;

	tree->belated = false;

	return belated;
}

/* Renumbers the trees: bit i becomes bit place[i], or is dropped if that is no number of a tree. */
static void process_tree_renumber(struct process_tree *tree, const unsigned place[static PROCESS_TREE_TREES])
{
	for (uint32_t i = 1; i <= tree->used; i++) {
		uint64_t before = tree->nodes[i].bits, bits = 0;

		for (; before != 0; before &= before - 1) {
			unsigned to = place[__builtin_ctzll(before)];

			bits |= to < PROCESS_TREE_TREES ? 1ull << to : 0;
		}
		tree->nodes[i].bits = bits;
	}
}

/* ---- facts of a process: each is tried once; lack of descriptors or memory is an error ---- */

static int read_stat(struct process_facts *process_facts, int32_t pid)
{
	ssize_t len;

	unlocked_section_leave(&process_facts->unlocked_section, pid);
	len = proc_read_file(process_facts->procfd, pid, "stat", process_facts->text, sizeof process_facts->text);
	if (unlocked_section_enter(&process_facts->unlocked_section) < 0)
		return -ECANCELED;
	if (len < 0)
		return (int)len;
	if (procfs_stat_parse(process_facts->text, (size_t)len, &process_facts->stat) < 0)
		return -ESRCH;

	size_t comm_len = process_facts->stat.comm_len;

	if (comm_len >= sizeof process_facts->comm)
		comm_len = sizeof process_facts->comm - 1;
	memcpy(process_facts->comm, process_facts->stat.comm, comm_len);
	process_facts->comm[comm_len] = '\0';
	process_facts->arguments_at = procfs_stat_arguments(process_facts->text, (size_t)len);
	process_facts->facts = (struct match_facts){ .pid = pid, .comm = process_facts->comm };
	process_facts->asked = MATCH_COMM;
	process_facts->unanswered = process_facts->executing = false;

	return 0;
}

static void ask_container(struct process_facts *process_facts)
{
	const struct container *container;
	bool own;

	if (!process_facts->facts.cgroup || containers_find(process_facts->containers, process_facts->facts.cgroup,
							    process_facts->now, &container, &own) == CONTAINERS_NONE)
		return;
	process_facts->container = *container;
	process_facts->facts.container = &process_facts->container;
}

/*
 * Of a process without arguments: whether it will have some. While it executes it has none for a moment, up to
 * milliseconds if they are many; to kernel threads and to what is ending none come.
 */
static bool is_executing(const struct process_facts *process_facts)
{
	char text[sizeof(process_facts->text)];
	struct procfs_stat stat;
	ssize_t len = proc_read_file(process_facts->procfd, process_facts->facts.pid, "stat", text, sizeof(text));

	return len > 0 && procfs_stat_parse(text, (size_t)len, &stat) == 0 && !stat.exiting && !stat.kernel;
}

/* 0; -errno: its command line could not be had, which says nothing about it, but for some errors. */
static ssize_t read_cmdline(struct process_facts *process_facts)
{
	ssize_t r = foreign_cmdline(FOREIGN_DISCOVERY, process_facts->procfd, process_facts->facts.pid,
				    process_facts->cmdline, sizeof process_facts->cmdline);

	process_facts->executing = r == -ENODATA && is_executing(process_facts);
	if (r == -ENODATA && !process_facts->executing)
		r = 0;
	process_facts->facts.cmdline = r >= 0 ? process_facts->cmdline : NULL;
	/* Whatever keeps it from being read but its end and what is not allowed: another look may tell. */
	process_facts->unanswered = r < 0 && r != -ESRCH && r != -EACCES && r != -EPERM;
	return r < 0 ? r : 0;
}

/* 0, or an error of process_facts_starved. */
static ssize_t read_files(struct process_facts *process_facts, unsigned missing)
{
	int32_t pid = process_facts->facts.pid;
	ssize_t r = 0;

	if (missing & MATCH_EXE) {
		r = proc_read_link(process_facts->procfd, pid, "exe", process_facts->exe, sizeof process_facts->exe);
		process_facts->facts.exe = r > 0 ? process_facts->exe : NULL;
	}
	if (!process_facts_starved(r) && (missing & MATCH_CMDLINE))
		r = read_cmdline(process_facts);
	if (!process_facts_starved(r) && (missing & MATCH_CGROUP)) {
		r = cgroup_path_of(process_facts->mounts, process_facts->procfd, pid, process_facts->cgroup,
				   sizeof process_facts->cgroup);
		process_facts->facts.cgroup = r == 0         ? process_facts->cgroup
					      : r == -ENOENT ? "/"
							     : NULL; /* no hierarchies */
	}

	return process_facts_starved(r) ? r : 0;
}

int process_facts_ask(struct process_facts *process_facts, unsigned needs)
{
	if (needs & MATCH_CONTAINER)
		needs |= MATCH_CGROUP;

	unsigned missing = needs & ~process_facts->asked;
	ssize_t r = 0;

	process_facts->asked |= needs;
	if (missing & (MATCH_EXE | MATCH_CMDLINE | MATCH_CGROUP)) {
		unlocked_section_leave(&process_facts->unlocked_section, process_facts->facts.pid);
		r = read_files(process_facts, missing);
		if (unlocked_section_enter(&process_facts->unlocked_section) < 0)
			return -ECANCELED;
	}
	if (r == 0 && (missing & MATCH_CONTAINER))
		ask_container(process_facts);

	return (int)r;
}

/* ---- entries ---- */

/* An entry with a tree gets the next bit; the configuration has no more of them than bits. */
static int entry_set_tree(struct matcher *matcher, size_t i)
{
	unsigned number = 0;

	if (!matcher->entries[i].tree)
		return 0;
	for (size_t before = 0; before < i; before++)
		number += matcher->entries[before].tree;
	matcher->trees[i] = 1ull << number;

	return matcher->process_tree ? 0 : process_tree_new(&matcher->process_tree);
}

static int entry_compile(struct matcher *matcher, size_t i)
{
	int r = match_new(&matcher->entries[i], &matcher->matches[i]);

	if (r == 0)
		r = entry_set_tree(matcher, i);
	if (r < 0)
		return r;

	matcher->needs |= match_needs(matcher->matches[i]);
	matcher->by_path |= match_is_by_path(matcher->matches[i]);
	matcher->by_container |= matcher->entries[i].selector == CONFIG_CONTAINERS;
	matcher->by_label |= matcher->entries[i].label_count > 0;
	matcher->outside |= matcher->entries[i].outside;
	if (matcher->entries[i].per == CONFIG_PER_CGROUP && !match_is_by_path(matcher->matches[i]))
		matcher->needs |= MATCH_CGROUP;
	/*
	 * There is no event for a changed command line or pid file, or a move to another cgroup;
	 * names of containers are known late.
	 */
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
		r = entry_compile(matcher, i);
	if (matcher->outside) {
		matcher->needs |= MATCH_CGROUP | (matcher->by_container ? MATCH_CONTAINER : 0);
		matcher->unannounced = true;
	}
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
	process_tree_free(matcher->process_tree);
	free(matcher->verdicts);
	free(matcher);
}

/* By a name of the unit that its cgroup does not have. below: anywhere in the unit. */
static bool is_of_unit(const struct matcher *matcher, size_t i, const char *path, bool below)
{
	return matcher->units && path && matcher->entries[i].selector == CONFIG_UNIT &&
	       unit_table_matches(matcher->units, matcher->entries[i].pattern, path, below);
}

/* Of an entry with "outside": whether the cgroup is selected by an entry before it. */
static bool is_taken(const struct matcher *matcher, size_t entry, const struct match_facts *facts)
{
	for (size_t i = 0; matcher->entries[entry].outside && i < entry; i++)
		if (match_contains(matcher->matches[i], facts) ||
		    (match_is_by_path(matcher->matches[i]) && is_of_unit(matcher, i, facts->cgroup, true)))
			return true;

	return false;
}

static bool matches(const struct matcher *matcher, size_t i, const struct match_facts *facts)
{
	if (is_taken(matcher, i, facts))
		return false;

	return match_process(matcher->matches[i], facts, matcher->pidfile_pids[i]) ||
	       (!match_is_by_path(matcher->matches[i]) && is_of_unit(matcher, i, facts->cgroup, true));
}

bool matcher_process(const struct matcher *matcher, size_t i, const struct match_facts *facts)
{
	return (facts->trees & matcher->trees[i]) != 0 || matches(matcher, i, facts);
}

bool matcher_cgroup(const struct matcher *matcher, size_t i, const char *path, const struct container *container)
{
	const struct match_facts facts = { .cgroup = path, .container = container };

	return match_is_by_path(matcher->matches[i]) &&
	       (match_cgroup(matcher->matches[i], path, container) || is_of_unit(matcher, i, path, false)) &&
	       !is_taken(matcher, i, &facts);
}

/* ---- trees ---- */

/* The index of the entry that is the same; count: there is none. */
static size_t find_same(const struct matcher *matcher, const struct config_target *entry)
{
	size_t i = 0;

	while (i < matcher->count && !config_target_same(&matcher->entries[i], entry))
		i++;

	return i;
}

void matcher_succeed(struct matcher *matcher, struct matcher *before)
{
	unsigned place[PROCESS_TREE_TREES];

	matcher->units = before->units;
	if (!matcher->process_tree || !before->process_tree)
		return;

	for (unsigned i = 0; i < PROCESS_TREE_TREES; i++)
		place[i] = PROCESS_TREE_TREES;
	for (size_t i = 0; i < before->count; i++) {
		size_t same = before->trees[i] ? find_same(matcher, &before->entries[i]) : matcher->count;

		if (same < matcher->count)
			place[__builtin_ctzll(before->trees[i])] = (unsigned)__builtin_ctzll(matcher->trees[same]);
	}
	process_tree_free(matcher->process_tree);
	matcher->process_tree = before->process_tree;
	before->process_tree = NULL;
	process_tree_renumber(matcher->process_tree, place);
}

static enum matcher_verdict verdict_of(const struct matcher *matcher, size_t i,
				       const struct process_facts *process_facts)
{
	if (matches(matcher, i, &process_facts->facts))
		return MATCHER_ITSELF;

	return process_facts->unanswered && (match_needs(matcher->matches[i]) & MATCH_CMDLINE) ? MATCHER_UNKNOWN
											       : MATCHER_NOT;
}

int matcher_look(struct matcher *matcher, struct process_facts *process_facts, int32_t pid)
{
	struct match_facts *facts = &process_facts->facts;
	uint64_t roots = 0;
	int r = read_stat(process_facts, pid);

	if (r == 0)
		r = process_facts_ask(process_facts, matcher->needs);
	if (r < 0)
		return r; /* -ECANCELED: the matcher may be gone */

	for (size_t i = 0; i < matcher->count; i++) {
		matcher->verdicts[i] = verdict_of(matcher, i, process_facts);
		roots |= matcher->verdicts[i] == MATCHER_ITSELF ? matcher->trees[i] : 0;
	}
	if (!matcher->process_tree)
		return 0;

	struct process_tree_process process = { facts->pid, process_facts->stat.parent_pid,
						process_facts->stat.start_ticks };

	facts->trees = process_tree_met(matcher->process_tree, &process, roots);
	for (size_t i = 0; i < matcher->count; i++)
		if (matcher->verdicts[i] != MATCHER_ITSELF && (facts->trees & matcher->trees[i]))
			matcher->verdicts[i] = MATCHER_DESCENDS;

	return 0;
}

void matcher_event(struct matcher *matcher, const struct procevent *event)
{
	if (!matcher->process_tree)
		return;

	if (event->kind == PROCEVENT_FORK)
		process_tree_forked(matcher->process_tree, event->ppid, event->pid);
	else if (event->kind == PROCEVENT_EXIT)
		process_tree_ended(matcher->process_tree, event->pid);
}

bool matcher_was_in_tree(const struct matcher *matcher, size_t i, int32_t pid, int32_t ppid)
{
	uint64_t trees = 0;

	if (!matcher->trees[i])
		return false;
	if (!process_tree_find(matcher->process_tree, pid, &trees))
		process_tree_find(matcher->process_tree, ppid, &trees);

	return (trees & matcher->trees[i]) != 0;
}

/*
 * A pid file may be where nothing answers: it then says what it said. 1: it has changed; 0;
 * -ECANCELED.
 */
static int read_pidfile(struct matcher *matcher, size_t i, const struct unlocked_section *section)
{
	char path[PATH_MAX];
	int32_t pid;

	snprintf(path, sizeof path, "%s", matcher->entries[i].pattern);
	unlocked_section_leave(section, 0);
	pid = foreign_pidfile(FOREIGN_DISCOVERY, path);
	if (unlocked_section_enter(section) < 0)
		return -ECANCELED;
	if (pid < 0 || pid == matcher->pidfile_pids[i])
		return 0;
	matcher->pidfile_pids[i] = pid;

	return 1;
}

int matcher_scan_begin(struct matcher *matcher, const struct unlocked_section *section)
{
	int changed = 0;

	for (size_t i = 0; i < matcher->count; i++) {
		int r = matcher->entries[i].selector == CONFIG_PIDFILE ? read_pidfile(matcher, i, section) : 0;

		if (r < 0)
			return r;
		changed |= r;
	}
	if (matcher->process_tree) {
		process_tree_take_belated(matcher->process_tree);
		process_tree_begin(matcher->process_tree);
	}

	return changed;
}

bool matcher_take_belated(struct matcher *matcher, bool scanned)
{
	if (!matcher->process_tree)
		return false;

	if (scanned)
		process_tree_sweep(matcher->process_tree);

	return process_tree_take_belated(matcher->process_tree);
}
