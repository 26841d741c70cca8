/*
 * thread_events.c: processes that are followed (roots), their threads' descriptors, and a table of
 * who comes from which root.
 *
 * 	                    open: every thread, every CPU, every output
 * 	(in the set) ───────────────────────────────────────────────────▶ (root) ──── left the set, or
 *  exited and nothing it started runs ──▶ closed
 * 	      │ descends from a root                                         │
 * 	      └───────────────▶ (kin) ◀──── fork, as notes tell ─────────────┘
 * 	                          │ its root was closed, it is in the set: opened as a root
 *
 * Rejected: an event for each process with what it starts, which perf_event_open(2) does not know;
 * PERF_SAMPLE_ID in each sample to sort out later who was counted twice, which costs eight bytes of
 * each and does not tell how much of which to leave out.
 */
#include "daemon/engine/stacks/thread_events.h"

#include "daemon/engine/base/perf_events.h"
#include "daemon/engine/base/proc_read.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/proc/perf.h"
#include "lib/proc/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define THREAD_EVENTS_BUCKETS 1024

struct thread_events_thread {
	uint32_t tid;
	uint64_t opened_ns; /* what it starts from then on inherits */
	int *fds;           /* outputs x CPUs, -1 where there is none; NULL: it has inherited all of them */
};

struct thread_events_root {
	uint32_t pid;
	struct thread_events_thread *threads;
	size_t thread_count, thread_cap;
	unsigned kin; /* that run */
	unsigned events;
	bool leader_exited;
};

/* A process that runs and has events: a root, or one that inherited them. */
struct thread_events_known {
	struct thread_events_known *next;
	uint32_t pid;
	struct thread_events_root *root;
};

struct thread_events_wish {
	uint32_t pid;
	int error; /* of the last try */
};

struct thread_events {
	struct thread_events_options options;
	struct thread_events_known *buckets[THREAD_EVENTS_BUCKETS];
	struct thread_events_root **roots;
	size_t root_count;
	struct thread_events_wish *wishes;
	size_t wish_count, wishes_left_out;
	struct thread_events_root *opening; /* the one whose threads are being enumerated */
	unsigned events, kin;
	bool off[PERF_EVENTS_KINDS]; /* by thread_events_switch */
};

/*
 * thread events_open.c: the events of one process: each thread, each output, each CPU.
 *
 * A thread that appears meanwhile was either started by one that had its events already, and has
 * inherited them; or by one that had not, and has none. The notes tell which: that is why the list
 * of threads is read first, then the notes, and then the events are opened.
 */

#define NOTE_DELAY_NS (500 * NS_PER_US) /* from a fork to its note */
#define ROUNDS_MAX 16                   /* a process that starts threads all the time: they are inherited soon */

static uint64_t now_ns(const struct thread_events *threads)
{
	return clock_mono(&threads->options.clock).ns;
}

static size_t events_of_thread(const struct thread_events *threads)
{
	return threads->options.output_count * threads->options.cpus;
}

/* The thread of root, or NULL. */
static struct thread_events_thread *thread_events_thread_of(const struct thread_events_root *root, uint32_t tid)
{
	for (size_t i = 0; i < root->thread_count; i++)
		if (root->threads[i].tid == tid)
			return &root->threads[i];
	return NULL;
}

/* Adds a copy. 0 or -ENOMEM. */
static int thread_events_add(struct thread_events_root *root, const struct thread_events_thread *thread)
{
	if (root->thread_count == root->thread_cap) {
		size_t cap = root->thread_cap == 0 ? 8 : 2 * root->thread_cap;
		struct thread_events_thread *grown = reallocarray(root->threads, cap, sizeof(*grown));

		if (grown == NULL)
			return -ENOMEM;
		root->threads = grown;
		root->thread_cap = cap;
	}
	root->threads[root->thread_count++] = *thread;
	return 0;
}

static void close_thread(struct thread_events *threads, struct thread_events_root *root,
			 struct thread_events_thread *thread)
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
static void thread_events_free_root(struct thread_events *threads, struct thread_events_root *root)
{
	for (size_t i = 0; i < root->thread_count; i++)
		close_thread(threads, root, &root->threads[i]);
	free(root->threads);
	free(root);
}

/* Targets may have taken all descriptors but the reserve: that is not for events either. */
static bool has_room(const struct thread_events *threads)
{
	return threads->events < threads->options.max_events && !descriptors_short(threads->options.proc_fd);
}

/* -ESRCH: it has ended; -ENOSPC: there is no room for more events. */
static int open_events(struct thread_events *threads, struct thread_events_root *root,
		       struct thread_events_thread *thread)
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

static int open_thread(struct thread_events *threads, struct thread_events_root *root, uint32_t tid)
{
	struct thread_events_thread thread = { .tid = tid, .fds = calloc(events_of_thread(threads), sizeof(int)) };
	int r = thread.fds != NULL ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < events_of_thread(threads); i++)
		thread.fds[i] = -1;
	if (r == 0)
		r = open_events(threads, root, &thread);
	thread.opened_ns = now_ns(threads);
	if (r == 0)
		r = thread_events_add(root, &thread);
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
	if (listing->count == listing->cap) {
		size_t cap = listing->cap == 0 ? 64 : 2 * listing->cap;
		uint32_t *tids = reallocarray(listing->tids, cap, sizeof(*tids));

		if (tids == NULL)
			return -ENOMEM;
		listing->tids = tids;
		listing->cap = cap;
	}
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
	AUTO_CLOSE int fd = openat(threads->options.proc_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	r = directory_list_each(fd, list_tid, listing);
	if (r == -ENOENT || (r == 0 && listing->count == 0))
		return -ESRCH;
	return r;
}

static size_t count_new(const struct thread_events_root *root, const struct listing *listing)
{
	size_t count = 0;

	for (size_t i = 0; i < listing->count; i++)
		count += thread_events_thread_of(root, listing->tids[i]) == NULL;
	return count;
}

/* Waits until whatever happened before the call has its note, and takes them. */
static void thread_events_catch_up(struct thread_events *threads)
{
	const struct timespec delay = { .tv_nsec = NOTE_DELAY_NS };

	nanosleep(&delay, NULL);
	threads->options.catch_up(threads->options.ctx);
}

/* One look at the threads. Positive: there were new ones. */
static int open_round(struct thread_events *threads, struct thread_events_root *root, struct listing *listing,
		      bool first)
{
	int r = list_threads(threads, root->pid, listing);
	size_t new = r == 0 ? count_new(root, listing) : 0;

	if (r < 0 || new == 0)
		return r;
	/*
	 * Asked beforehand: a process of hundreds of threads that has no room should not cost
	 * hundreds of events.
	 */
	if (threads->events + new *events_of_thread(threads) > threads->options.max_events)
		return -ENOSPC;
	if (!first)
		thread_events_catch_up(threads);
	for (size_t i = 0; r == 0 && i < listing->count; i++)
		if (thread_events_thread_of(root, listing->tids[i]) == NULL)
			r = open_thread(threads, root, listing->tids[i]);
	return r == 0 ? 1 : r;
}

/*
 * Opens events on all threads of root->pid. 0; -ESRCH: gone; -ENOSPC: no room; -errno. Some may be
 * open then.
 */
static int thread_events_open_threads(struct thread_events *threads, struct thread_events_root *root)
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

#define EVENTS_MAX 4096
#define KIN_MAX 16384 /* beyond it, who descends from a root is forgotten and may be counted twice */

unsigned thread_events_max_events(uint64_t nofile)
{
	return nofile / 4 < EVENTS_MAX ? (unsigned)(nofile / 4) : EVENTS_MAX;
}

/* ---- who has events ---- */

static struct thread_events_known **bucket_of(struct thread_events *threads, uint32_t pid)
{
	return &threads->buckets[pid % THREAD_EVENTS_BUCKETS];
}

static struct thread_events_known *find(struct thread_events *threads, uint32_t pid)
{
	struct thread_events_known *known = *bucket_of(threads, pid);

	while (known != NULL && known->pid != pid)
		known = known->next;
	return known;
}

static int learn(struct thread_events *threads, uint32_t pid, struct thread_events_root *root)
{
	struct thread_events_known *known = malloc(sizeof(*known));
	struct thread_events_known **bucket = bucket_of(threads, pid);

	if (known == NULL)
		return -ENOMEM;
	*known = (struct thread_events_known){ *bucket, pid, root };
	*bucket = known;
	if (pid != root->pid) {
		root->kin++;
		threads->kin++;
	}
	return 0;
}

static void forget(struct thread_events *threads, struct thread_events_known **at)
{
	struct thread_events_known *known = *at;

	if (known->pid != known->root->pid) {
		known->root->kin--;
		threads->kin--;
	}
	*at = known->next;
	free(known);
}

static void forget_pid(struct thread_events *threads, uint32_t pid)
{
	struct thread_events_known **at = bucket_of(threads, pid);

	while (*at != NULL && (*at)->pid != pid)
		at = &(*at)->next;
	if (*at != NULL)
		forget(threads, at);
}

static void forget_all_of(struct thread_events *threads, const struct thread_events_root *root)
{
	for (size_t i = 0; i < THREAD_EVENTS_BUCKETS; i++)
		for (struct thread_events_known **at = &threads->buckets[i]; *at != NULL;) {
			if ((*at)->root == root)
				forget(threads, at);
			else
				at = &(*at)->next;
		}
}

/* -ESRCH: gone. */
static int open_root(struct thread_events *threads, uint32_t pid)
{
	struct thread_events_root *root;
	int r;

	if (threads->root_count == threads->options.max_processes)
		return -ENOSPC;
	root = calloc(1, sizeof(*root));
	if (root == NULL)
		return -ENOMEM;
	root->pid = pid;
	r = learn(threads, pid, root);
	if (r == 0)
		r = thread_events_open_threads(threads, root);
	if (r < 0) {
		forget_all_of(threads, root);
		thread_events_free_root(threads, root);
		return r;
	}
	threads->roots[threads->root_count++] = root;
	return 0;
}

static void close_root(struct thread_events *threads, size_t index)
{
	struct thread_events_root *root = threads->roots[index];

	threads->roots[index] = threads->roots[--threads->root_count];
	forget_all_of(threads, root);
	thread_events_free_root(threads, root);
}

/* ---- notes ---- */

/*
 * A root turns out to have inherited another's events, or to be an old one whose pid was given
 * away: it, and what it started, is kin of the other.
 */
static void adopt(struct thread_events *threads, struct thread_events_root *child, struct thread_events_root *root)
{
	size_t index = 0;

	for (size_t i = 0; i < THREAD_EVENTS_BUCKETS; i++)
		for (struct thread_events_known *known = threads->buckets[i]; known != NULL; known = known->next)
			if (known->root == child) {
				known->root = root;
				root->kin++;
			}
	threads->kin++;
	while (threads->roots[index] != child)
		index++;
	threads->roots[index] = threads->roots[--threads->root_count];
	thread_events_free_root(threads, child);
}

/* A process began that has the events of root. */
static void note_kin(struct thread_events *threads, uint32_t pid, struct thread_events_root *root)
{
	struct thread_events_known *known = find(threads, pid);

	if (known == NULL && threads->kin < KIN_MAX)
		learn(threads, pid, root);
	else if (known != NULL && known->root->pid == pid && known->root != root && known->root != threads->opening)
		adopt(threads, known->root, root);
}

/* Whether what thread ptid of root, or of its kin, began at time_ns has its events. */
static bool inherits(const struct thread_events_root *root, uint32_t ppid, uint32_t ptid, uint64_t time_ns)
{
	const struct thread_events_thread *parent = ppid == root->pid ? thread_events_thread_of(root, ptid) : NULL;

	if (parent != NULL)
		return parent->fds == NULL || time_ns >= parent->opened_ns;
	/* One that is not in the table has inherited, unless the table is not complete yet. */
	return root->thread_count > 0;
}

static void note_ended(struct thread_events *threads, uint32_t pid)
{
	struct thread_events_known *known = find(threads, pid);

	if (known == NULL)
		return;
	if (known->root->pid == pid)
		known->root->leader_exited = true;
	else
		forget_pid(threads, pid);
}

void thread_events_note(struct thread_events *threads, const struct thread_events_note *note)
{
	struct thread_events_known *parent;

	if (note->ended) {
		note_ended(threads, note->pid);
		return;
	}
	parent = find(threads, note->ppid);
	if (parent == NULL || !inherits(parent->root, note->ppid, note->ptid, note->time_ns))
		return;
	if (note->pid == note->ppid) {
		struct thread_events_thread thread = { .tid = note->tid };

		/* Only while the threads are enumerated does it matter. */
		if (parent->root == threads->opening && note->pid == parent->root->pid &&
		    thread_events_thread_of(parent->root, note->tid) == NULL)
			thread_events_add(parent->root, &thread);
		return;
	}
	note_kin(threads, note->pid, parent->root);
}

/* ---- the set ---- */

static void try_wish(struct thread_events *threads, struct thread_events_wish *wish)
{
	if (find(threads, wish->pid) == NULL && wish->error == 0)
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
			threads->wishes[threads->wish_count++] = (struct thread_events_wish){ .pid = pids[i] };
	}
	thread_events_catch_up(threads);
	for (size_t i = threads->root_count; i-- > 0;)
		if (!has_wish(threads, threads->roots[i]->pid))
			close_root(threads, i);
	for (size_t i = 0; i < threads->wish_count; i++)
		try_wish(threads, &threads->wishes[i]);
}

/*
 * Whether a process of which nothing is known but its pid has ended: its first thread is no more,
 * or is the last and a zombie.
 */
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

/* Kin whose end was not told. */
static void look_at_kin(struct thread_events *threads, const struct thread_events_root *root)
{
	for (size_t i = 0; i < THREAD_EVENTS_BUCKETS; i++)
		for (struct thread_events_known **at = &threads->buckets[i]; *at != NULL;) {
			if ((*at)->root == root && (*at)->pid != root->pid && has_ended(threads, (*at)->pid))
				forget(threads, at);
			else
				at = &(*at)->next;
		}
}

bool thread_events_sweep(struct thread_events *threads, bool look)
{
	bool closed = false;

	for (size_t i = threads->root_count; i-- > 0;) {
		struct thread_events_root *root = threads->roots[i];

		if ((!look && !root->leader_exited) || !has_ended(threads, root->pid))
			continue;
		if (look)
			look_at_kin(threads, root);
		if (root->kin > 0)
			continue;
		close_root(threads, i);
		closed = true;
	}
	for (size_t i = 0; closed && i < threads->wish_count; i++)
		try_wish(threads, &threads->wishes[i]);
	return closed;
}

static void switch_thread(const struct thread_events *threads, const struct thread_events_thread *thread, size_t output,
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
		const struct thread_events_root *root = threads->roots[i];

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
		const struct thread_events_wish *wish = &threads->wishes[i];

		status.processes += find((struct thread_events *)threads, wish->pid) != NULL;
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
	threads->roots = calloc(options->max_processes, sizeof(struct thread_events_root *));
	threads->wishes = calloc(options->max_processes, sizeof(struct thread_events_wish));
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
	free(threads->roots);
	free(threads->wishes);
	free(threads);
}
