/*
 * stackrecorder.c: opening and closing, and the thread that empties the side rings.
 *
 * The thread wakes once a second, or when a side ring is half full. A process forks on one CPU and its child runs on another: records are put in the
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

#define DEFAULT_FREQUENCY 99
#define DEFAULT_RING_BYTES (1ULL << 20)
#define DEFAULT_MEMORY_BYTES (64ULL << 20)
#define RING_BYTES_MIN (64ULL << 10) /* a second of deep stacks */
#define RING_BYTES_MAX (1ULL << 30)
#define SIDE_BYTES (64ULL << 10) /* eighty short programs, and it is emptied when half full */
#define WAKE_MS 1000
#define MOMENT_NS (100 * NS_PER_US) /* from a record's time to its being in the ring, at most and by far */
#define CPUS_MAX 8192

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
		if (perfring_drain(&recorder->side[i].ring, recorder->scratch, take_side, recorder) < 0)
			recorder->side_lost++;
	feed(recorder, now_ns - MOMENT_NS);
	addressbook_expire(recorder->book, now_ns);
	pthread_mutex_unlock(&recorder->lock);
}

static void *run(void *argument)
{
	struct stackrecorder *recorder = argument;
	unsigned cpus = recorder->status.cpus;
	AUTO_FREE struct pollfd *fds = calloc(cpus + 1, sizeof(*fds));
	nfds_t count = fds != NULL ? cpus + 1 : 1;
	struct pollfd only = { .fd = recorder->stop_fd, .events = POLLIN };
	struct pollfd *watched = fds != NULL ? fds : &only;

	watched[0] = only;
	for (unsigned i = 1; i < count; i++)
		watched[i] = (struct pollfd){ .fd = recorder->side[i - 1].fd, .events = POLLIN };
	for (;;) {
		int r = poll(watched, count, WAKE_MS);

		if (r > 0 && watched[0].revents != 0)
			return NULL;
		/* A CPU that went offline would wake us for ever. */
		for (unsigned i = 1; r > 0 && i < count; i++)
			if (watched[i].revents & (POLLHUP | POLLERR | POLLNVAL))
				watched[i].fd = -1;
		stackrecorder_drain(recorder);
		pthread_mutex_lock(&recorder->lock);
		recorder->side_wakeups++;
		pthread_mutex_unlock(&recorder->lock);
	}
}

/* ---- opening ---- */

static uint64_t round_up(uint64_t bytes)
{
	uint64_t power = RING_BYTES_MIN;

	while (power < bytes && power < RING_BYTES_MAX)
		power *= 2;
	return power;
}

/* The size of a CPU's ring. -ENOSPC: not even the smallest fit. */
static int plan(const struct stackrecorder_options *options, unsigned cpus, uint64_t *ret_ring, char *reason)
{
	uint64_t most = (options->max_memory_bytes != 0 ? options->max_memory_bytes : DEFAULT_MEMORY_BYTES) / 4 * 3;
	uint64_t ring = round_up(options->ring_bytes != 0 ? options->ring_bytes : DEFAULT_RING_BYTES);

	while (cpus * (ring + SIDE_BYTES) > most && ring > RING_BYTES_MIN)
		ring /= 2;
	if (cpus * (ring + SIDE_BYTES) > most) {
		snprintf(reason, STACKRECORDER_REASON_MAX,
			 "the smallest rings of %u CPUs take %llu KiB, and %llu KiB are allowed them", cpus,
			 (unsigned long long)(cpus * (ring + SIDE_BYTES) >> 10), (unsigned long long)(most >> 10));
		return -ENOSPC;
	}
	*ret_ring = ring;
	return 0;
}

static int open_cpu(struct stackrecorder *recorder, uint32_t cpu, char *reason)
{
	struct stackrecorder_status *status = &recorder->status;
	struct perfevents *samples = &recorder->samples[status->cpus], *side = &recorder->side[status->cpus];
	int r = perfevents_open_samples(cpu, status->frequency, status->ring_bytes, samples, reason);

	if (r == 0)
		r = perfevents_open_side(cpu, SIDE_BYTES, &status->build_ids, side, reason);
	if (r == -ENODEV) {
		perfevents_close(samples);
		status->cpus_missing++;
		return 0;
	}
	if (r < 0) {
		perfevents_close(samples);
		return r;
	}
	status->cpus++;
	status->memory_bytes += samples->map_bytes + side->map_bytes;
	return 0;
}

static int open_events(struct stackrecorder *recorder, const struct stackrecorder_options *options, char *reason)
{
	struct stackrecorder_status *status = &recorder->status;
	long configured = sysconf(_SC_NPROCESSORS_CONF), online = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned cpus = configured > 0 && configured <= CPUS_MAX ? (unsigned)configured : CPUS_MAX;
	struct clock clock = realclock();
	int r;

	recorder->samples = calloc(cpus, sizeof(*recorder->samples));
	recorder->side = calloc(cpus, sizeof(*recorder->side));
	if (recorder->samples == NULL || recorder->side == NULL)
		return -ENOMEM;
	for (unsigned i = 0; i < cpus; i++)
		recorder->samples[i] = recorder->side[i] = PERFEVENTS_NONE;
	r = plan(options, online > 0 ? (unsigned)online : cpus, &status->ring_bytes, reason);
	status->frequency = perfevents_frequency(options->frequency != 0 ? options->frequency : DEFAULT_FREQUENCY);
	status->period_ns = NS_PER_S / status->frequency;
	status->sample_type = PERFRECORD_FRAME_POINTERS;
	status->build_ids = true;
	recorder->opened_ns = clock_mono(&clock).ns;
	for (unsigned cpu = 0; r == 0 && cpu < cpus; cpu++)
		r = open_cpu(recorder, cpu, reason);
	if (r == 0 && status->cpus == 0) {
		snprintf(reason, STACKRECORDER_REASON_MAX, "no CPU could be sampled");
		return -ENODEV;
	}
	return r;
}

static int open_rest(struct stackrecorder *recorder, const struct stackrecorder_options *options)
{
	uint64_t memory = options->max_memory_bytes != 0 ? options->max_memory_bytes : DEFAULT_MEMORY_BYTES;
	struct addressbook_limits limits = { .max_bytes = memory / 4 };

	recorder->proc_fd = options->proc_fd;
	if (recorder->proc_fd == 0) {
		recorder->proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (recorder->proc_fd < 0)
			return -errno;
		recorder->proc_owned = true;
	}
	recorder->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (recorder->stop_fd < 0)
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
		recorder->proc_fd = recorder->stop_fd = -1;
		pthread_mutex_init(&recorder->lock, NULL);
		r = open_rest(recorder, options);
	}
	if (r == 0)
		r = open_events(recorder, options, reason);
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
	while (write(recorder->stop_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	pthread_join(recorder->thread, NULL);
}

void stackrecorder_close(struct stackrecorder *recorder)
{
	if (recorder == NULL)
		return;
	stop(recorder);
	for (unsigned i = 0; i < recorder->status.cpus; i++) {
		perfevents_close(&recorder->samples[i]);
		perfevents_close(&recorder->side[i]);
	}
	if (recorder->proc_owned)
		close(recorder->proc_fd);
	if (recorder->stop_fd >= 0)
		close(recorder->stop_fd);
	perfmerge_release(&recorder->pending);
	perfmerge_release(&recorder->kept);
	addressbook_free(recorder->book);
	pthread_mutex_destroy(&recorder->lock);
	free(recorder->scratch);
	free(recorder->samples);
	free(recorder->side);
	free(recorder);
}

void stackrecorder_status(struct stackrecorder *recorder, struct stackrecorder_status *ret)
{
	pthread_mutex_lock(&recorder->lock);
	*ret = recorder->status;
	ret->side_lost = recorder->side_lost;
	ret->side_wakeups = recorder->side_wakeups;
	addressbook_stats(recorder->book, &ret->book);
	pthread_mutex_unlock(&recorder->lock);
}
