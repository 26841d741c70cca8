/*
 * perfthreads_inside.h: what perfthreads' files share: processes and their threads.
 */
#ifndef SPIKEWATCH_PERFTHREADS_INSIDE_H
#define SPIKEWATCH_PERFTHREADS_INSIDE_H

#include "perfthreads.h"

#define PERFTHREADS_BUCKETS 1024

struct perfthreads_thread {
	uint32_t tid;
	uint64_t opened_ns; /* what it starts from then on inherits */
	int *fds;           /* outputs x CPUs, -1 where there is none; NULL: it has inherited all of them */
};

struct perfthreads_root {
	uint32_t pid;
	struct perfthreads_thread *threads;
	size_t thread_count, thread_cap;
	unsigned kin; /* that run */
	unsigned events;
	bool leader_exited;
};

/* A process that runs and has events: a root, or one that inherited them. */
struct perfthreads_known {
	struct perfthreads_known *next;
	uint32_t pid;
	struct perfthreads_root *root;
};

struct perfthreads_wish {
	uint32_t pid;
	int error; /* of the last try */
};

struct perfthreads {
	struct perfthreads_options options;
	struct perfthreads_known *buckets[PERFTHREADS_BUCKETS];
	struct perfthreads_root **roots;
	size_t root_count;
	struct perfthreads_wish *wishes;
	size_t wish_count, wishes_left_out;
	struct perfthreads_root *opening; /* the one whose threads are being enumerated */
	unsigned events, kin;
	bool off[PERFEVENTS_KINDS]; /* by perfthreads_switch */
};

/* Waits until whatever happened before the call has its note, and takes them. */
void perfthreads_catch_up(struct perfthreads *threads);

/* The thread of root, or NULL. */
struct perfthreads_thread *perfthreads_thread_of(const struct perfthreads_root *root, uint32_t tid);

/* Adds a copy. 0 or -ENOMEM. */
int perfthreads_add(struct perfthreads_root *root, const struct perfthreads_thread *thread);

/* Opens events on all threads of root->pid. 0; -ESRCH: gone; -ENOSPC: no room; -errno. Some may be open then. */
int perfthreads_open_threads(struct perfthreads *threads, struct perfthreads_root *root);

/* Closes its events and frees it. */
void perfthreads_free_root(struct perfthreads *threads, struct perfthreads_root *root);

#endif
