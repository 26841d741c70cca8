/*
 * perfthreads_open.c: the events of one process: each thread, each output, each CPU.
 *
 * A thread that appears meanwhile was either started by one that had its events already, and has inherited them; or by one that had not, and has
 * none. The notes tell which: that is why the list of threads is read first, then the notes, and then the events are opened.
 */
#include "perfthreads.h"

#include "descriptors.h"
#include "dirlist.h"
#include "perfthreads_inside.h"
#include "procread.h"
#include "scope.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define NOTE_DELAY_NS (500 * NS_PER_US) /* from a fork to its note */
#define ROUNDS_MAX 16                   /* a process that starts threads all the time: they are inherited soon */

static uint64_t now_ns(const struct perfthreads *threads)
{
	return clock_mono(&threads->options.clock).ns;
}

static size_t events_of_thread(const struct perfthreads *threads)
{
	return threads->options.output_count * threads->options.cpus;
}

struct perfthreads_thread *perfthreads_thread_of(const struct perfthreads_root *root, uint32_t tid)
{
	for (size_t i = 0; i < root->thread_count; i++)
		if (root->threads[i].tid == tid)
			return &root->threads[i];
	return NULL;
}

int perfthreads_add(struct perfthreads_root *root, const struct perfthreads_thread *thread)
{
	if (root->thread_count == root->thread_cap) {
		size_t cap = root->thread_cap == 0 ? 8 : 2 * root->thread_cap;
		struct perfthreads_thread *grown = reallocarray(root->threads, cap, sizeof(*grown));

		if (grown == NULL)
			return -ENOMEM;
		root->threads = grown;
		root->thread_cap = cap;
	}
	root->threads[root->thread_count++] = *thread;
	return 0;
}

static void close_thread(struct perfthreads *threads, struct perfthreads_root *root, struct perfthreads_thread *thread)
{
	for (size_t i = 0; thread->fds != NULL && i < events_of_thread(threads); i++)
		if (thread->fds[i] >= 0) {
			close(thread->fds[i]);
			threads->events--;
			root->events--;
		}
	free(thread->fds);
}

void perfthreads_free_root(struct perfthreads *threads, struct perfthreads_root *root)
{
	for (size_t i = 0; i < root->thread_count; i++)
		close_thread(threads, root, &root->threads[i]);
	free(root->threads);
	free(root);
}

/* Targets may have taken all descriptors but the reserve: that is not for events either. */
static bool has_room(const struct perfthreads *threads)
{
	return threads->events < threads->options.max_events && !descriptors_short(threads->options.proc_fd);
}

/* -ESRCH: it has ended; -ENOSPC: there is no room for more events. */
static int open_events(struct perfthreads *threads, struct perfthreads_root *root, struct perfthreads_thread *thread)
{
	const struct perfthreads_options *options = &threads->options;

	for (size_t i = 0; i < events_of_thread(threads); i++) {
		const struct perfthreads_output *output = &options->outputs[i / options->cpus];
		int fd = -ENOSPC;

		if (has_room(threads))
			fd = perfevents_follow(output->wanted, (pid_t)thread->tid, &output->rings[i % options->cpus]);
		if (fd == -ENODEV) /* a CPU that went offline */
			continue;
		if (fd < 0)
			return fd;
		if (threads->off[output->wanted->kind])
			perfevents_switch(fd, false);
		thread->fds[i] = fd;
		threads->events++;
		root->events++;
	}
	return 0;
}

static int open_thread(struct perfthreads *threads, struct perfthreads_root *root, uint32_t tid)
{
	struct perfthreads_thread thread = { .tid = tid, .fds = calloc(events_of_thread(threads), sizeof(int)) };
	int r = thread.fds != NULL ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < events_of_thread(threads); i++)
		thread.fds[i] = -1;
	if (r == 0)
		r = open_events(threads, root, &thread);
	thread.opened_ns = now_ns(threads);
	if (r == 0)
		r = perfthreads_add(root, &thread);
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
	int32_t tid = procread_pid_of(name);

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
static int list_threads(const struct perfthreads *threads, uint32_t pid, struct listing *listing)
{
	char name[32];
	int r;

	listing->count = 0;
	snprintf(name, sizeof(name), "%u/task", pid);
	AUTO_CLOSE int fd = openat(threads->options.proc_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	r = dirlist_each(fd, list_tid, listing);
	if (r == -ENOENT || (r == 0 && listing->count == 0))
		return -ESRCH;
	return r;
}

static size_t count_new(const struct perfthreads_root *root, const struct listing *listing)
{
	size_t count = 0;

	for (size_t i = 0; i < listing->count; i++)
		count += perfthreads_thread_of(root, listing->tids[i]) == NULL;
	return count;
}

void perfthreads_catch_up(struct perfthreads *threads)
{
	const struct timespec delay = { .tv_nsec = NOTE_DELAY_NS };

	nanosleep(&delay, NULL);
	threads->options.catch_up(threads->options.ctx);
}

/* One look at the threads. Positive: there were new ones. */
static int open_round(struct perfthreads *threads, struct perfthreads_root *root, struct listing *listing, bool first)
{
	int r = list_threads(threads, root->pid, listing);
	size_t new = r == 0 ? count_new(root, listing) : 0;

	if (r < 0 || new == 0)
		return r;
	/* Asked beforehand: a process of hundreds of threads that has no room should not cost hundreds of events. */
	if (threads->events + new *events_of_thread(threads) > threads->options.max_events)
		return -ENOSPC;
	if (!first)
		perfthreads_catch_up(threads);
	for (size_t i = 0; r == 0 && i < listing->count; i++)
		if (perfthreads_thread_of(root, listing->tids[i]) == NULL)
			r = open_thread(threads, root, listing->tids[i]);
	return r == 0 ? 1 : r;
}

int perfthreads_open_threads(struct perfthreads *threads, struct perfthreads_root *root)
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
