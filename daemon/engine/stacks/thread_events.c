/*
 * thread_events.c: the followed processes (roots) with the descriptors of their threads' events,
 * and a map of all processes that have events, by pid: roots, and their descendants, which
 * inherited them.
 *
 *                     open: every thread, every CPU, every output
 * (in the set) ──────────────────────────────────────▶ (root) ──── left the set, or exited and
 *       │ descends from a root                            │          no descendant runs ──▶ closed
 *       └───────────────▶ (descendant) ◀──── fork note ───┘
 *                           │ its root was closed, it is in the set: opened as a root
 *
 * A thread that appears while a process is opened was either started by one that had its events
 * already, and has inherited them; or by one that had not, and has none. The notes tell which: so
 * the list of threads is read first, then the notes, and then the events are opened.
 *
 * Rejected: an event for each process with its children, which perf_event_open(2) does not offer;
 * PERF_SAMPLE_ID in each sample to sort out later what was counted twice, which costs eight bytes
 * of each and does not tell how much of which to leave out.
 */
#include "daemon/engine/stacks/thread_events.h"

#include "daemon/engine/base/proc_read.h"
#include "lib/base/io.h"
#include "lib/base/map.h"
#include "lib/proc/perf.h"
#include "lib/proc/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct followed_thread {
	uint32_t tid;
	uint64_t opened_ns; /* children inherit the events from then on */
	int *fds;           /* outputs x CPUs, -1 where there is none; NULL: it has inherited all of them */
};

struct root {
	uint32_t pid;
	struct followed_thread *threads;
	size_t thread_count, thread_cap;
	unsigned descendants; /* that run */
	unsigned events;
	bool leader_exited;
};

/* A process that runs and has events: a root, or one that inherited them. */
struct known {
	struct map_node node;
	uint32_t pid;
	struct root *root;
};

struct wish {
	uint32_t pid;
	int error; /* of the last try */
};

struct thread_events {
	struct thread_events_options options;
	struct map known; /* struct known, by pid */
	struct root **roots;
	size_t root_count;
	struct wish *wishes;
	size_t wish_count, wishes_left_out;
	struct root *opening; /* the one whose threads are being enumerated */
	unsigned events, descendants;
	bool off[PERF_EVENTS_KINDS]; /* by thread_events_switch */
};

#define NOTE_DELAY_NS (500 * NS_PER_US) /* from a fork to its note */
#define ROUNDS_MAX 16                   /* for a process that starts threads all the time: soon all inherit */

static uint64_t now_ns(const struct thread_events *threads)
{
	return clock_mono(&threads->options.clock).ns;
}

static size_t events_of_thread(const struct thread_events *threads)
{
	return threads->options.output_count * threads->options.cpus;
}

/* The thread of root, or NULL. */
static struct followed_thread *thread_of(const struct root *root, uint32_t tid)
{
	for (size_t i = 0; i < root->thread_count; i++)
		if (root->threads[i].tid == tid)
			return &root->threads[i];
	return NULL;
}

/* Adds a copy. 0 or -ENOMEM. */
static int add_thread(struct root *root, const struct followed_thread *thread)
{
	if (vector_reserve(&root->threads, &root->thread_cap, root->thread_count + 1, sizeof(*root->threads)) < 0)
		return -ENOMEM;
	root->threads[root->thread_count++] = *thread;
	return 0;
}

static void close_thread(struct thread_events *threads, struct root *root, struct followed_thread *thread)
{
	for (size_t i = 0; thread->fds != NULL && i < events_of_thread(threads); i++)
		if (thread->fds[i] >= 0) {
			close(thread->fds[i]);
			threads->events--;
			root->events--;
		}
	free(thread->fds);
}

/* Closes its events and frees it. */
static void free_root(struct thread_events *threads, struct root *root)
{
	for (size_t i = 0; i < root->thread_count; i++)
		close_thread(threads, root, &root->threads[i]);
	free(root->threads);
	free(root);
}

/* Targets may have taken all descriptors but the reserve, which is not for events either. */
static bool has_room(const struct thread_events *threads)
{
	return threads->events < threads->options.max_events && !descriptors_short(threads->options.proc_fd);
}

/* -ESRCH: it has ended; -ENOSPC: there is no room for more events. */
static int open_events(struct thread_events *threads, struct root *root, struct followed_thread *thread)
{
	const struct thread_events_options *options = &threads->options;

	for (size_t i = 0; i < events_of_thread(threads); i++) {
		const struct thread_events_output *output = &options->outputs[i / options->cpus];
		int fd = -ENOSPC;

		if (has_room(threads))
			fd = perf_events_follow(output->wanted, (pid_t)thread->tid, &output->rings[i % options->cpus]);
		if (fd == -ENODEV) /* a CPU that went offline */
			continue;
		if (fd < 0)
			return fd;
		if (threads->off[output->wanted->kind])
			perf_events_switch(fd, false);
		thread->fds[i] = fd;
		threads->events++;
		root->events++;
	}
	return 0;
}

static int open_thread(struct thread_events *threads, struct root *root, uint32_t tid)
{
	struct followed_thread thread = { .tid = tid, .fds = calloc(events_of_thread(threads), sizeof(int)) };
	int r = thread.fds != NULL ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < events_of_thread(threads); i++)
		thread.fds[i] = -1;
	if (r == 0)
		r = open_events(threads, root, &thread);
	thread.opened_ns = now_ns(threads);
	if (r == 0)
		r = add_thread(root, &thread);
	if (r < 0)
		close_thread(threads, root, &thread);
	return r == -ESRCH ? 0 : r;
}

/* ---- all of them ---- */

struct listing {
	uint32_t *tids;
	size_t count, cap;
};

static int list_tid(void *ctx, const char *name)
{
	struct listing *listing = ctx;
	int32_t tid = proc_read_pid_of(name);

	if (tid == 0)
		return 0;
	if (vector_reserve(&listing->tids, &listing->cap, listing->count + 1, sizeof(*listing->tids)) < 0)
		return -ENOMEM;
	listing->tids[listing->count++] = (uint32_t)tid;
	return 0;
}

/* -ESRCH: the process is gone. */
static int list_threads(const struct thread_events *threads, uint32_t pid, struct listing *listing)
{
	char name[32];
	int r;

	listing->count = 0;
	snprintf(name, sizeof(name), "%u/task", pid);
	AUTO_CLOSE int fd = open_beneath(threads->options.proc_fd, name, O_RDONLY | O_DIRECTORY, true);

	if (fd < 0)
		return fd == -ENOENT ? -ESRCH : fd;
	r = directory_list_each(fd, list_tid, listing);
	if (r == -ENOENT || (r == 0 && listing->count == 0))
		return -ESRCH;
	return r;
}

static size_t count_new(const struct root *root, const struct listing *listing)
{
	size_t count = 0;

	for (size_t i = 0; i < listing->count; i++)
		count += thread_of(root, listing->tids[i]) == NULL;
	return count;
}

/* Waits until all that happened before the call has its note, and takes the notes. */
static void catch_up(struct thread_events *threads)
{
	const struct timespec delay = { .tv_nsec = NOTE_DELAY_NS };

	nanosleep(&delay, NULL);
	threads->options.catch_up(threads->options.ctx);
}

/* Opens the threads that there are now. Positive: there were new ones. */
static int open_round(struct thread_events *threads, struct root *root, struct listing *listing, bool first)
{
	int r = list_threads(threads, root->pid, listing);
	size_t new = r == 0 ? count_new(root, listing) : 0;

	if (r < 0 || new == 0)
		return r;
	/* Before any is opened: opening hundreds only to find no room for the rest is expensive. */
	if (threads->events + new *events_of_thread(threads) > threads->options.max_events)
		return -ENOSPC;
	if (!first)
		catch_up(threads);
	for (size_t i = 0; r == 0 && i < listing->count; i++)
		if (thread_of(root, listing->tids[i]) == NULL)
			r = open_thread(threads, root, listing->tids[i]);
	return r == 0 ? 1 : r;
}

/*
 * Opens events on all threads of root->pid. 0; -ESRCH: gone; -ENOSPC: no room; -errno. Some may be
 * open then.
 */
static int open_threads(struct thread_events *threads, struct root *root)
{
	struct listing listing = { 0 };
	int r = 1;

	threads->opening = root;
	for (int round = 0; r > 0 && round < ROUNDS_MAX; round++)
		r = open_round(threads, root, &listing, round == 0);
	threads->opening = NULL;
	if (r >= 0 && root->events == 0)
		r = -ESRCH;
	if (r >= 0 && threads->options.opened != NULL && list_threads(threads, root->pid, &listing) == 0)
		threads->options.opened(threads->options.ctx, root->pid, listing.tids, listing.count);
	free(listing.tids);
	return r < 0 ? r : 0;
}

/* ---- processes with events ---- */

#define DESCENDANTS_MAX 16384 /* beyond it, further descendants are not tracked and may be counted twice */

static uint64_t pid_hash(uint32_t pid)
{
	return map_hash(&pid, sizeof(pid));
}

static struct known *find_known(const struct thread_events *threads, uint32_t pid)
{
	for (struct map_node *node = map_first(&threads->known, pid_hash(pid)); node != NULL; node = map_next(node))
		if (MAP_ENTRY(node, struct known, node)->pid == pid)
			return MAP_ENTRY(node, struct known, node);
	return NULL;
}

static int add_known(struct thread_events *threads, uint32_t pid, struct root *root)
{
	struct known *known = malloc(sizeof(*known));

	if (known == NULL || map_reserve(&threads->known, threads->known.count + 1) < 0) {
		free(known);
		return -ENOMEM;
	}
	*known = (struct known){ .pid = pid, .root = root };
	map_insert(&threads->known, &known->node, pid_hash(pid));
	if (pid != root->pid) {
		root->descendants++;
		threads->descendants++;
	}
	return 0;
}

static void remove_known(struct thread_events *threads, struct known *known)
{
	if (known->pid != known->root->pid) {
		known->root->descendants--;
		threads->descendants--;
	}
	map_remove(&threads->known, &known->node);
	free(known);
}

/* By /proc alone: its first thread is gone, or is the last and a zombie. */
static bool has_ended(const struct thread_events *threads, uint32_t pid)
{
	char text[1024];
	struct procfs_stat stat;
	ssize_t len = proc_read_file(threads->options.proc_fd, (int32_t)pid, "stat", text, sizeof(text));

	if (len < 0)
		return len == -ESRCH;
	if (procfs_stat_parse(text, (size_t)len, &stat) < 0)
		return false;
	return stat.state == 'X' || (stat.state == 'Z' && stat.threads <= 1);
}

/* All of root; ended: only its descendants that have ended. */
static void remove_known_of(struct thread_events *threads, const struct root *root, bool ended)
{
	MAP_FOR_EACH(node, &threads->known) {
		struct known *known = MAP_ENTRY(node, struct known, node);

		if (known->root == root && (!ended || (known->pid != root->pid && has_ended(threads, known->pid))))
			remove_known(threads, known);
	}
}

/* -ESRCH: gone. */
static int open_root(struct thread_events *threads, uint32_t pid)
{
	struct root *root;
	int r;

	if (threads->root_count == threads->options.max_processes)
		return -ENOSPC;
	root = calloc(1, sizeof(*root));
	if (root == NULL)
		return -ENOMEM;
	root->pid = pid;
	r = add_known(threads, pid, root);
	if (r == 0)
		r = open_threads(threads, root);
	if (r < 0) {
		remove_known_of(threads, root, false);
		free_root(threads, root);
		return r;
	}
	threads->roots[threads->root_count++] = root;
	return 0;
}

static void close_root(struct thread_events *threads, size_t index)
{
	struct root *root = threads->roots[index];

	threads->roots[index] = threads->roots[--threads->root_count];
	remove_known_of(threads, root, false);
	free_root(threads, root);
}

/* ---- notes ---- */

/*
 * A root has inherited another's events after all, or is an old one whose pid was reused: it and
 * its descendants become descendants of the other.
 */
static void adopt_root(struct thread_events *threads, struct root *child, struct root *root)
{
	size_t index = 0;

	MAP_FOR_EACH(node, &threads->known) {
		struct known *known = MAP_ENTRY(node, struct known, node);

		if (known->root == child) {
			known->root = root;
			root->descendants++;
		}
	}
	threads->descendants++;
	while (threads->roots[index] != child)
		index++;
	threads->roots[index] = threads->roots[--threads->root_count];
	free_root(threads, child);
}

/* A process began that has inherited the events of root. */
static void note_descendant(struct thread_events *threads, uint32_t pid, struct root *root)
{
	struct known *known = find_known(threads, pid);

	if (known == NULL && threads->descendants < DESCENDANTS_MAX)
		add_known(threads, pid, root);
	else if (known != NULL && known->root->pid == pid && known->root != root && known->root != threads->opening)
		adopt_root(threads, known->root, root);
}

/* Whether what thread ptid of root, or of a descendant, started at time_ns has its events. */
static bool inherits_events(const struct root *root, uint32_t ppid, uint32_t ptid, uint64_t time_ns)
{
	const struct followed_thread *parent = ppid == root->pid ? thread_of(root, ptid) : NULL;

	if (parent != NULL)
		return parent->fds == NULL || time_ns >= parent->opened_ns;
	/* One that is not in the table has inherited, unless the table is not complete yet. */
	return root->thread_count > 0;
}

static void note_ended(struct thread_events *threads, uint32_t pid)
{
	struct known *known = find_known(threads, pid);

	if (known == NULL)
		return;
	if (known->root->pid == pid)
		known->root->leader_exited = true;
	else
		remove_known(threads, known);
}

void thread_events_note(struct thread_events *threads, const struct thread_events_note *note)
{
	struct known *parent;

	if (note->ended) {
		note_ended(threads, note->pid);
		return;
	}
	parent = find_known(threads, note->ppid);
	if (parent == NULL || !inherits_events(parent->root, note->ppid, note->ptid, note->time_ns))
		return;
	if (note->pid == note->ppid) {
		struct followed_thread thread = { .tid = note->tid };

		/* Only while the threads are enumerated does it matter. */
		if (parent->root == threads->opening && note->pid == parent->root->pid &&
		    thread_of(parent->root, note->tid) == NULL)
			add_thread(parent->root, &thread);
		return;
	}
	note_descendant(threads, note->pid, parent->root);
}

/* ---- the set ---- */

static void try_wish(struct thread_events *threads, struct wish *wish)
{
	if (find_known(threads, wish->pid) == NULL && wish->error == 0)
		wish->error = open_root(threads, wish->pid);
}

static bool has_wish(const struct thread_events *threads, uint32_t pid)
{
	for (size_t i = 0; i < threads->wish_count; i++)
		if (threads->wishes[i].pid == pid)
			return true;
	return false;
}

void thread_events_follow(struct thread_events *threads, const uint32_t *pids, size_t count)
{
	threads->wish_count = 0;
	threads->wishes_left_out = 0;
	for (size_t i = 0; i < count; i++) {
		if (threads->wish_count == threads->options.max_processes)
			threads->wishes_left_out++;
		else if (!has_wish(threads, pids[i]))
			threads->wishes[threads->wish_count++] = (struct wish){ .pid = pids[i] };
	}
	catch_up(threads);
	for (size_t i = threads->root_count; i-- > 0;)
		if (!has_wish(threads, threads->roots[i]->pid))
			close_root(threads, i);
	for (size_t i = 0; i < threads->wish_count; i++)
		try_wish(threads, &threads->wishes[i]);
}

bool thread_events_sweep(struct thread_events *threads, bool look)
{
	bool closed = false;

	for (size_t i = threads->root_count; i-- > 0;) {
		struct root *root = threads->roots[i];

		if ((!look && !root->leader_exited) || !has_ended(threads, root->pid))
			continue;
		if (look)
			remove_known_of(threads, root, true);
		if (root->descendants > 0)
			continue;
		close_root(threads, i);
		closed = true;
	}
	for (size_t i = 0; closed && i < threads->wish_count; i++)
		try_wish(threads, &threads->wishes[i]);
	return closed;
}

static void switch_thread(const struct thread_events *threads, const struct followed_thread *thread, size_t output,
			  bool on)
{
	unsigned cpus = threads->options.cpus;

	for (unsigned cpu = 0; thread->fds != NULL && cpu < cpus; cpu++)
		if (thread->fds[output * cpus + cpu] >= 0)
			perf_events_switch(thread->fds[output * cpus + cpu], on);
}

void thread_events_switch(struct thread_events *threads, enum perf_events_kind kind, bool on)
{
	threads->off[kind] = !on;
	for (size_t output = 0; output < threads->options.output_count; output++)
		for (size_t i = 0; threads->options.outputs[output].wanted->kind == kind && i < threads->root_count;
		     i++)
			for (size_t j = 0; j < threads->roots[i]->thread_count; j++)
				switch_thread(threads, &threads->roots[i]->threads[j], output, on);
}

/* ---- asking ---- */

void thread_events_count(const struct thread_events *threads, size_t output, uint64_t *cycles, uint64_t *running_ns)
{
	unsigned cpus = threads->options.cpus;

	for (size_t i = 0; i < threads->root_count; i++) {
		const struct root *root = threads->roots[i];

		for (size_t j = 0; j < root->thread_count; j++)
			for (unsigned cpu = 0; root->threads[j].fds != NULL && cpu < cpus; cpu++)
				if (root->threads[j].fds[output * cpus + cpu] >= 0)
					perf_events_count(root->threads[j].fds[output * cpus + cpu], cycles,
							  running_ns);
	}
}

void thread_events_status(const struct thread_events *threads, struct thread_events_status *ret)
{
	struct thread_events_status status = { .events = threads->events,
					       .not_followed = (unsigned)threads->wishes_left_out };

	for (size_t i = 0; i < threads->root_count; i++)
		for (size_t j = 0; j < threads->roots[i]->thread_count; j++)
			status.threads += threads->roots[i]->threads[j].fds != NULL;
	for (size_t i = 0; i < threads->wish_count; i++) {
		const struct wish *wish = &threads->wishes[i];

		status.processes += find_known(threads, wish->pid) != NULL;
		if (wish->error < 0 && wish->error != -ESRCH) {
			status.not_followed++;
			status.error = wish->error;
		}
	}
	*ret = status;
}

int thread_events_new(const struct thread_events_options *options, struct thread_events **ret)
{
	struct thread_events *threads = calloc(1, sizeof(*threads));

	if (threads == NULL)
		return -ENOMEM;
	threads->options = *options;
	threads->roots = calloc(options->max_processes, sizeof(struct root *));
	threads->wishes = calloc(options->max_processes, sizeof(struct wish));
	if (threads->roots == NULL || threads->wishes == NULL) {
		thread_events_free(threads);
		return -ENOMEM;
	}
	*ret = threads;
	return 0;
}

void thread_events_free(struct thread_events *threads)
{
	if (threads == NULL)
		return;
	while (threads->root_count > 0)
		close_root(threads, threads->root_count - 1);
	map_release(&threads->known);
	free(threads->roots);
	free(threads->wishes);
	free(threads);
}

/* ---- which processes are followed ----
 *
 * Two lists of watched processes, as of the last whole scan and as of the
 * running one. The difference of their CPU times says which are busy.
 *
 * Where there are more than THREAD_SELECTION_MAX, a selected process is replaced only by one that
 * is clearly busier: opening events for all threads of a process is expensive, and what its rings
 * hold of the past would be lost.
 */

struct candidate {
	uint64_t start_ticks, cpu_ticks;
	uint64_t used_ticks; /* since the scan before */
	uint32_t pid;
	bool followed;
};

struct candidate_list {
	struct candidate *rows;
	size_t count, cap;
};

struct thread_selection {
	struct candidate_list last, now; /* last is ascending by pid */
	uint32_t set[THREAD_SELECTION_MAX];
	uint64_t starts[THREAD_SELECTION_MAX]; /* of the processes in the set: another one may get its number */
	size_t count;
};

int thread_selection_new(struct thread_selection **ret)
{
	struct thread_selection *selection = calloc(1, sizeof(*selection));

	if (selection == NULL)
		return -ENOMEM;
	*ret = selection;
	return 0;
}

void thread_selection_free(struct thread_selection *selection)
{
	if (selection == NULL)
		return;
	free(selection->last.rows);
	free(selection->now.rows);
	free(selection);
}

void thread_selection_begin(struct thread_selection *selection)
{
	if (selection == NULL)
		return;
	selection->now.count = 0;
}

static int by_pid(const void *left, const void *right)
{
	const struct candidate *a = left, *b = right;

	return a->pid < b->pid ? -1 : a->pid > b->pid;
}

/* As of the last scan; NULL: it was not there, or another process had its number. */
static const struct candidate *find_in_last_scan(const struct candidate_list *list, const struct procfs_stat *stat)
{
	struct candidate key = { .pid = (uint32_t)stat->pid };
	const struct candidate *found =
		list->count > 0 ? bsearch(&key, list->rows, list->count, sizeof(key), by_pid) : NULL;

	return found != NULL && found->start_ticks == stat->start_ticks ? found : NULL;
}

/* False: there is no room. */
static bool has_candidate_room(struct candidate_list *list)
{
	return list->count < THREAD_SELECTION_CANDIDATES_MAX &&
	       vector_reserve(&list->rows, &list->cap, list->count + 1, sizeof(*list->rows)) == 0;
}

void thread_selection_met(struct thread_selection *selection, const struct procfs_stat *stat, bool watched)
{
	const struct candidate *before = selection != NULL ? find_in_last_scan(&selection->last, stat) : NULL;
	uint64_t cpu_ticks = stat->user_ticks + stat->system_ticks;

	if (selection == NULL || (!watched && before == NULL) || !has_candidate_room(&selection->now))
		return;
	selection->now.rows[selection->now.count++] = (struct candidate){
		.pid = (uint32_t)stat->pid,
		.start_ticks = stat->start_ticks,
		.cpu_ticks = cpu_ticks,
		.used_ticks = before != NULL && cpu_ticks > before->cpu_ticks ? cpu_ticks - before->cpu_ticks : 0,
		.followed = before != NULL && before->followed,
	};
}

/* Twice as busy, and a tick more, is clearly busier. */
static uint64_t candidate_weight(const struct candidate *candidate)
{
	return candidate->followed ? 2 * candidate->used_ticks + 1 : candidate->used_ticks;
}

static int by_weight(const void *left, const void *right)
{
	const struct candidate *a = left, *b = right;
	uint64_t of_a = candidate_weight(a), of_b = candidate_weight(b);

	return of_a > of_b ? -1 : of_a < of_b ? 1 : by_pid(a, b);
}

/* Marks those that are to be followed; the list is ascending by pid then. */
static void choose_followed(struct candidate_list *list)
{
	if (list->count > THREAD_SELECTION_MAX)
		qsort(list->rows, list->count, sizeof(*list->rows), by_weight);
	for (size_t i = 0; i < list->count; i++)
		list->rows[i].followed = i < THREAD_SELECTION_MAX;
	if (list->count > 0)
		qsort(list->rows, list->count, sizeof(*list->rows), by_pid);
}

/* True: it is another one than before. */
static bool make_set(struct thread_selection *selection, const struct candidate_list *list)
{
	size_t count = 0;
	bool changed = false;

	for (size_t i = 0; i < list->count; i++) {
		const struct candidate *row = &list->rows[i];

		if (!row->followed)
			continue;
		changed |= count >= selection->count || selection->set[count] != row->pid ||
			   selection->starts[count] != row->start_ticks;
		selection->set[count] = row->pid;
		selection->starts[count++] = row->start_ticks;
	}
	changed |= count != selection->count;
	selection->count = count;
	return changed;
}

bool thread_selection_end(struct thread_selection *selection, const uint32_t **ret_pids, size_t *ret_count)
{
	struct candidate_list last;

	if (selection == NULL)
		return false;
	last = selection->last;
	choose_followed(&selection->now);
	selection->last = selection->now;
	selection->now = last;
	if (!make_set(selection, &selection->last))
		return false;
	*ret_pids = selection->set;
	*ret_count = selection->count;
	return true;
}

void thread_selection_forget(struct thread_selection *selection)
{
	if (selection == NULL)
		return;
	selection->last.count = 0;
}
