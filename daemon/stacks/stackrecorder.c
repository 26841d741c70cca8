/*
 * stackrecorder.c: opening and closing, and the thread that empties the side rings.
 *
 * The thread wakes once a second, or when a side ring is half full; and for a moment where page faults come fast (stackrecorder_faults.h). A process forks on one CPU and its child runs on another: records are put in the
 * order of their times over all rings before the book sees them, and those of the last moment wait, since an older one may not have been written yet.
 *
 * Rejected: reading /proc of everybody at start, which costs a second on a large machine, for processes that no sample may ever hit. Who is hit is
 * looked up when somebody asks (stackrecorder_snapshot.c).
 */
#include "stackrecorder.h"

#include "realclock.h"
#include "scope.h"
#include "stackrecorder_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define WAKE_MS 1000
#define MOMENT_NS (100 * NS_PER_US) /* from a record's time to its being in the ring, at most and by far */
#define LOOK_WAKES 10               /* of these, one looks at all that is followed: an end may not have been told */

/* ---- from the side rings into the book ---- */

static int take_side(void *ctx, const struct perf_event_header *record, size_t len)
{
	struct stackrecorder *recorder = ctx;
	struct perfrecord_format format = STACKRECORDER_FORMAT;
	struct perfrecord decoded;

	if (perfrecord_decode(&format, record, len, &decoded) < 0)
		return 0;
	if (decoded.type == PERF_RECORD_LOST)
		recorder->side_lost += decoded.lost.count;
	else if (perfmerge_add(&recorder->pending, record, len, decoded.time_ns) < 0)
		recorder->side_lost++;
	return 0;
}

static void feed(struct stackrecorder *recorder, uint64_t until_ns)
{
	struct perfrecord_format format = STACKRECORDER_FORMAT;
	struct perfmerge swap;
	struct perfrecord decoded;

	perfmerge_sort(&recorder->pending);
	for (size_t i = 0; i < recorder->pending.count; i++) {
		uint64_t time_ns = recorder->pending.entries[i].time_ns;
		size_t size;
		const void *record = perfmerge_record(&recorder->pending, i, &size);

		if (time_ns > until_ns) {
			if (perfmerge_add(&recorder->kept, record, size, time_ns) < 0)
				recorder->side_lost++;
		} else if (perfrecord_decode(&format, record, size, &decoded) == 0) {
			addressbook_feed(recorder->book, &decoded);
			stackrecorder_note(recorder, &decoded);
		}
	}
	perfmerge_clear(&recorder->pending);
	swap = recorder->pending;
	recorder->pending = recorder->kept;
	recorder->kept = swap;
}

void stackrecorder_drain(struct stackrecorder *recorder)
{
	struct clock clock = realclock();
	uint64_t now_ns;

	pthread_mutex_lock(&recorder->lock);
	now_ns = clock_mono(&clock).ns;
	for (unsigned i = 0; i < recorder->status.cpus; i++)
		if (perfring_drain(&recorder->kinds[STACKFILE_BOOK].rings[i].ring, recorder->scratch, take_side,
				   recorder) < 0)
			recorder->side_lost++;
	feed(recorder, now_ns - MOMENT_NS);
	addressbook_expire(recorder->book, now_ns);
	pthread_mutex_unlock(&recorder->lock);
}

/* What woke the thread: that it shall end, or another set to follow. True: the former. */
static bool woken(struct stackrecorder *recorder)
{
	uint64_t count;
	bool stopping;

	while (read(recorder->wake_fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
	pthread_mutex_lock(&recorder->lock);
	stopping = recorder->stopping;
	pthread_mutex_unlock(&recorder->lock);
	return stopping;
}

/* All that the thread waits for: in `watched`, which has room for it, what wakes it, the side rings, and those of page faults. Their number. */
static nfds_t watch(const struct stackrecorder *recorder, struct pollfd *watched)
{
	nfds_t count = 0;

	watched[count++] = (struct pollfd){ .fd = recorder->wake_fd, .events = POLLIN };
	for (int kind = 0; kind < STACKFILE_STREAM_KINDS; kind++) {
		const struct stackrecorder_kind *entry = &recorder->kinds[kind];
		bool faults = kind == STACKFILE_FAULTS || kind == STACKFILE_FAULTS_FOLLOWED;

		for (unsigned i = 0; (kind == STACKFILE_BOOK || faults) && entry->on && i < recorder->status.cpus; i++)
			watched[count++] = (struct pollfd){ .fd = entry->rings[i].fd, .events = POLLIN };
	}
	return count;
}

/* Whether a side ring is among what woke the thread. A CPU that went offline would wake it for ever. */
static bool side_woke(struct pollfd *watched, nfds_t count, unsigned cpus)
{
	bool side = false;

	for (nfds_t i = 1; i < count; i++) {
		side |= i <= cpus && watched[i].revents != 0;
		if (watched[i].revents & (POLLHUP | POLLERR | POLLNVAL))
			watched[i].fd = -1;
	}
	return side;
}

/* True: the thread shall end. */
static bool wait_for_work(struct stackrecorder *recorder, struct pollfd *watched, nfds_t count)
{
	struct clock clock = realclock();
	uint64_t until_ns = clock_mono(&clock).ns + WAKE_MS * NS_PER_MS, now_ns = 0;
	bool work = false;

	while (!work && (now_ns = clock_mono(&clock).ns) < until_ns) {
		int wait_ms = (int)((until_ns - now_ns) / NS_PER_MS) + 1, r;

		if (recorder->faults != NULL)
			wait_ms = stackrecorder_faults_wait_ms(recorder->faults, wait_ms);
		r = poll(watched, count, wait_ms);
		if (r > 0 && watched[0].revents != 0 && woken(recorder))
			return true;
		work = r > 0 && (watched[0].revents != 0 || side_woke(watched, count, recorder->status.cpus));
		if (recorder->faults != NULL)
			stackrecorder_faults_look(recorder->faults, recorder->threads);
	}
	return false;
}

static void *run(void *argument)
{
	struct stackrecorder *recorder = argument;
	AUTO_FREE struct pollfd *fds = calloc(1 + 2 * (size_t)recorder->status.cpus, sizeof(*fds));
	struct pollfd only = { .fd = recorder->wake_fd, .events = POLLIN };
	struct pollfd *watched = fds != NULL ? fds : &only;
	nfds_t count = fds != NULL ? watch(recorder, watched) : 1;

	for (unsigned wakes = 1; !wait_for_work(recorder, watched, count); wakes++) {
		stackrecorder_drain(recorder);
		stackrecorder_reconcile(recorder, wakes % LOOK_WAKES == 0);
		pthread_mutex_lock(&recorder->lock);
		recorder->side_wakeups++;
		pthread_mutex_unlock(&recorder->lock);
	}
	return NULL;
}

/* ---- opening ---- */

static int open_rest(struct stackrecorder *recorder, const struct stackrecorder_options *options)
{
	struct addressbook_limits limits = { .max_bytes = stackrecorder_plan_memory(options) / 4 };

	recorder->proc_fd = options->proc_fd;
	if (recorder->proc_fd == 0) {
		recorder->proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (recorder->proc_fd < 0)
			return -errno;
		recorder->proc_owned = true;
	}
	recorder->wake_fd = eventfd(0, EFD_CLOEXEC);
	if (recorder->wake_fd < 0)
		return -errno;
	recorder->scratch = malloc(PERFRECORD_SIZE_MAX);
	if (recorder->scratch == NULL)
		return -ENOMEM;
	return addressbook_new(&limits, &recorder->book);
}

static int start(struct stackrecorder *recorder)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&recorder->thread, NULL, run, recorder);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r != 0)
		return -r;
	recorder->running = true;
	pthread_setname_np(recorder->thread, "stacks");
	return 0;
}

static void release(struct stackrecorder **recorder)
{
	stackrecorder_close(*recorder);
}

int stackrecorder_open(const struct stackrecorder_options *options, struct stackrecorder **ret, char *reason)
{
	AUTO(release) struct stackrecorder *recorder = calloc(1, sizeof(*recorder));
	int r;

	reason[0] = '\0';
	r = recorder != NULL ? 0 : -ENOMEM;
	if (r == 0) {
		recorder->proc_fd = recorder->wake_fd = -1;
		pthread_mutex_init(&recorder->lock, NULL);
		r = open_rest(recorder, options);
	}
	if (r == 0)
		r = stackrecorder_open_events(recorder, options, reason);
	if (r == 0)
		r = stackrecorder_open_follow(recorder);
	if (r == 0)
		r = start(recorder);
	if (r < 0) {
		if (reason[0] == '\0')
			snprintf(reason, STACKRECORDER_REASON_MAX, "%s", strerror(-r));
		return r;
	}
	*ret = TAKE(recorder);
	return 0;
}

static void stop(struct stackrecorder *recorder)
{
	uint64_t one = 1;

	if (!recorder->running)
		return;
	pthread_mutex_lock(&recorder->lock);
	recorder->stopping = true;
	pthread_mutex_unlock(&recorder->lock);
	while (write(recorder->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	pthread_join(recorder->thread, NULL);
}

void stackrecorder_close(struct stackrecorder *recorder)
{
	if (recorder == NULL)
		return;
	stop(recorder);
	stackrecorder_close_follow(recorder);
	stackrecorder_close_events(recorder);
	if (recorder->proc_owned)
		close(recorder->proc_fd);
	if (recorder->wake_fd >= 0)
		close(recorder->wake_fd);
	perfmerge_release(&recorder->pending);
	perfmerge_release(&recorder->kept);
	addressbook_free(recorder->book);
	pthread_mutex_destroy(&recorder->lock);
	free(recorder->scratch);
	free(recorder);
}

void stackrecorder_status(struct stackrecorder *recorder, struct stackrecorder_status *ret)
{
	pthread_mutex_lock(&recorder->lock);
	*ret = recorder->status;
	ret->opened_ns = recorder->opened_ns;
	ret->side_lost = recorder->side_lost;
	ret->side_wakeups = recorder->side_wakeups;
	ret->followed_processes = recorder->followed.processes;
	ret->followed_threads = recorder->followed.threads;
	ret->not_followed = recorder->followed.not_followed;
	ret->faults_error = recorder->faults != NULL ? stackrecorder_faults_error(recorder->faults) : 0;
	addressbook_stats(recorder->book, &ret->book);
	pthread_mutex_unlock(&recorder->lock);
}
