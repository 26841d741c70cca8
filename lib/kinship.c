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
#include "kinship.h"

#include <errno.h>
#include <stdlib.h>

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

static struct node *find(struct kinship *kinship, int32_t pid)
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
	struct node *node = find(kinship, pid);

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

	struct node *node = find(kinship, pid), *parent;

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
	struct node *node = find(kinship, process->pid), *parent;

	if (node && node->start_ticks != 0 && node->start_ticks != process->start_ticks)
		forget(kinship, node);
	node = find_or_add(kinship, process->pid);
	if (!node) {
		parent = find(kinship, process->ppid);
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
	struct node *node = find(kinship, pid);
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
