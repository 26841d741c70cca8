/*
 * discovery.c: the thread, which scans (discovery_scan.c) and hears (discovery_news.c).
 *
 * One lock covers the roster, for the few questions that other threads ask. It is never held while the thread sleeps, and
 * the sampler never takes it. A scan holds it, but steps aside between two processes (turnstile.h): a question waits for one
 * process and not for a million. The files of a process are read without it (outside.h). What comes in between may be another configuration: then the
 * scan is given up, as one that ran out of descriptors is, and the next begins at once.
 *
 * A read that hangs is not waited for at the end for ever, and who hangs may wake at any time. He finds everything that he had: nothing of it is freed
 * before he has ended, so there is no place where he would have to look whether it still is. He sees that he is to stop, and ends.
 * Rejected: that he asks after each read whether he may go on. It is one question for each place, and one that is forgotten is a use of freed memory.
 */
#include "discovery.h"

#include "discovery_inside.h"
#include "log.h"
#include "realclock.h"
#include "roster_query.h"
#include "scanned.h"
#include "scope.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* How long it is waited for the thread to stop: far longer than any read that ends. */
#define STOP_NS (5 * NS_PER_S)

/* How long the thread shows no sign of life while it waits. */
#define PULSE_NS NS_PER_S

/*
 * Where all is heard of, scans take no more than one part in so many of a core, but are not longer apart than so many rescan intervals: captures compare
 * with what a scan has seen.
 */
#define CALM_SHARE 500u
#define CALM_STRETCH 10u

/* The pause before the next scan when the queue to the sampler was full: a few of its ticks. */
#define RETRY_NS (100 * NS_PER_MS)

/* ---- while it runs ---- */

mono_t discovery_show_life(struct discovery *discovery)
{
	struct clock clock = realclock();
	mono_t now = clock_mono(&clock);

	atomic_store_explicit(&discovery->pulse_ns, now.ns, memory_order_relaxed);

	return now;
}

mono_t discovery_pulse(const struct discovery *discovery)
{
	return (mono_t){ atomic_load_explicit(&discovery->pulse_ns, memory_order_relaxed) };
}

static void on_alive(void *ctx)
{
	discovery_show_life(ctx);
}

int discovery_step_aside(struct discovery *discovery)
{
	discovery_overhear(discovery, discovery_show_life(discovery));
	turnstile_yield(&discovery->turn);

	return discovery->rescan || discovery->stop ? -ECANCELED : 0;
}

static void leave(void *ctx, int32_t pid)
{
	struct discovery *discovery = ctx;

	atomic_store_explicit(&discovery->reading, pid, memory_order_relaxed);
	turnstile_leave(&discovery->turn);
}

static int enter(void *ctx)
{
	struct discovery *discovery = ctx;

	turnstile_enter(&discovery->turn);
	atomic_store_explicit(&discovery->reading, 0, memory_order_relaxed);

	return discovery->rescan || discovery->stop ? -ECANCELED : 0;
}

struct outside discovery_outside(const struct discovery *discovery)
{
	return (struct outside){ .leave = leave, .enter = enter, .ctx = (void *)(uintptr_t)discovery };
}

/* Makes an eventfd readable. */
static void ring(int fd)
{
	uint64_t once = 1;

	(void)!write(fd, &once, sizeof(once)); /* what is full already wakes too */
}

static void wake(struct discovery *discovery)
{
	ring(discovery->wake_fd);
}

/* ---- build ---- */

int discovery_new(const struct discovery_options *options, struct discovery **ret)
{
	struct discovery *discovery = calloc(1, sizeof *discovery);
	int r;

	if (!discovery)
		return -ENOMEM;

	discovery->options = *options;
	discovery->options.roster.alive = on_alive;
	discovery->options.roster.alive_ctx = discovery;
	discovery->config = options->roster.config;
	discovery->limits_due = discovery->units_due = true;
	discovery_show_life(discovery);
	turnstile_init(&discovery->turn);
	baseline_set_outside(options->baseline, discovery_outside(discovery));
	discovery->first = DISCOVERY_SCANNING;
	discovery->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	discovery->first_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = discovery->wake_fd < 0 || discovery->first_fd < 0 ? -errno : 0;
	if (r == 0)
		r = census_new(&discovery->census);
	if (r == 0)
		r = matcher_new(discovery->config, &discovery->matcher);
	if (r == 0)
		r = roster_new(&discovery->options.roster, &discovery->roster);
	if (r == 0 && options->follow)
		r = following_new(options->follow, options->follow_ctx, &discovery->following);
	if (r < 0) {
		discovery_free(discovery);
		return r;
	}

	*ret = discovery;

	return 0;
}

void discovery_free(struct discovery *discovery)
{
	if (!discovery)
		return;

	if (!discovery_stop(discovery))
		return;
	discovery_tune_out(discovery);
	unitbus_free(discovery->units);
	roster_free(discovery->roster);
	matcher_free(discovery->matcher);
	following_free(discovery->following);
	census_free(discovery->census);
	if (discovery->wake_fd >= 0)
		close(discovery->wake_fd);
	if (discovery->first_fd >= 0)
		close(discovery->first_fd);
	turnstile_release(&discovery->turn);
	free(discovery);
}

static void release_matcher(struct matcher **matcher)
{
	matcher_free(*matcher);
}

int discovery_reload(struct discovery *discovery, const struct config *config)
{
	AUTO(release_matcher) struct matcher *matcher = NULL;
	int r = matcher_new(config, &matcher);

	if (r < 0)
		return r;

	turnstile_enter(&discovery->turn);
	r = roster_reload(discovery->roster, config);
	if (r == 0) {
		struct matcher *before = discovery->matcher;

		matcher_succeed(matcher, before);
		discovery->matcher = matcher;
		matcher = before; /* which is freed while its configuration is still there */
		discovery->config = config;
		discovery->options.roster.config = config;
		baseline_set_maps(discovery->options.baseline, config->incidents.captures & CONFIG_CAPTURE_SMAPS);
		following_forget(discovery->following);
		census_clear(discovery->census);
		discovery->limits_due = discovery->units_due = true;
		discovery->rescan = true;
		wake(discovery);
	}
	turnstile_leave(&discovery->turn);

	return r;
}

int discovery_scan(struct discovery *discovery)
{
	int r;

	turnstile_enter(&discovery->turn);
	do {
		r = discovery_scan_locked(discovery);
	} while (r == -ECANCELED);
	turnstile_leave(&discovery->turn);

	return r;
}

/* ---- the thread ---- */

/*
 * Whether the next scan is only the safety net: all that it could find is heard of, nobody is waiting for room, and nobody has come who has yet to be
 * compared with what he was before.
 */
static bool is_safety_net(const struct discovery *discovery)
{
	const struct matcher *matcher = discovery->matcher;
	struct roster_counts counts;

	roster_counts(discovery->roster, &counts);

	return discovery->news && !discovery->state.held_off && !matcher->unannounced && !discovery->state.error &&
	       (!matcher->by_path || (discovery->cgroups && cgroupwatch_hears_all(discovery->cgroups))) &&
	       counts.refused == 0 && counts.failed == 0 && counts.found == discovery->found_before;
}

static uint64_t pause_before_scan(const struct discovery *discovery)
{
	uint64_t pause = discovery->config->sampling.rescan_interval_ns, most = CALM_STRETCH * pause;
	uint64_t least = discovery->scan_cpu_ns * DISCOVERY_SHARE, calm = discovery->scan_cpu_ns * CALM_SHARE;

	calm = calm < most ? calm : most;
	if (calm > pause && is_safety_net(discovery))
		pause = calm;
	if (discovery->again)
		pause = 0;
	if (roster_owes(discovery->roster) && pause > RETRY_NS)
		pause = RETRY_NS;

	return pause > least ? pause : least;
}

/* Sleeps, with the lock released, until there is something to hear, or until then. */
static void sleep_unlocked(struct discovery *discovery, mono_t now, mono_t until)
{
	struct pollfd fds[DISCOVERY_FDS];
	size_t count = discovery_await(discovery, now, fds, &until);
	uint64_t wait_ns = mono_diff(until, now) > 0 ? (uint64_t)mono_diff(until, now) : 0, calls;
	struct timespec wait = { .tv_sec = (time_t)(wait_ns / NS_PER_S), .tv_nsec = (long)(wait_ns % NS_PER_S) };

	turnstile_leave(&discovery->turn);
	if (ppoll(fds, count, &wait, NULL) > 0 && fds[0].revents)
		(void)!read(discovery->wake_fd, &calls, sizeof(calls));
	turnstile_enter(&discovery->turn);
}

/* Until the next scan is due or the thread is to stop; in slices, which show that it lives. */
static void wait_locked(struct discovery *discovery)
{
	mono_t began = discovery_show_life(discovery);

	for (mono_t now = began;; now = discovery_show_life(discovery)) {
		mono_t due = mono_add(began, pause_before_scan(discovery)), slice = mono_add(now, PULSE_NS);

		if (discovery->stop || discovery->rescan || mono_diff(due, now) <= 0)
			return;
		discovery_hear(discovery, now);
		discovery_refresh_limits(discovery, now);
		sleep_unlocked(discovery, now, mono_diff(due, slice) < 0 ? due : slice);
	}
}

/* A scan of the thread came to its end, or was given up. */
static void note_first(struct discovery *discovery, int result)
{
	if (discovery->first != DISCOVERY_SCANNING || result == -ECANCELED)
		return;

	discovery->first = result;
	ring(discovery->first_fd);
}

/* A scan that nobody interrupts with news; who comes meanwhile is found by the next, which is heard. */
static void seek(struct discovery *discovery)
{
	int r = discovery_scan_locked(discovery);

	if (!discovery->stop)
		discovery_tune_in(discovery);
	note_first(discovery, r);
}

static void *run(void *argument)
{
	struct discovery *discovery = argument;

	prctl(PR_SET_NAME, "discovery");
	turnstile_enter(&discovery->turn);
	if (!discovery->tuned)
		seek(discovery);
	while (!discovery->stop) {
		discovery_tune_in(discovery);
		note_first(discovery, discovery_scan_locked(discovery));
		/* One that failed is tried again: nothing was swept by it. */
		discovery_ask_for_units(discovery);
		wait_locked(discovery);
	}
	turnstile_leave(&discovery->turn);

	return NULL;
}

int discovery_seek(struct discovery *discovery)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	discovery->stop = false;
	r = pthread_create(&discovery->thread, NULL, run, discovery);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	discovery->running = r == 0;

	return -r;
}

int discovery_start(struct discovery *discovery)
{
	if (discovery->running)
		return 0;

	/* Whoever starts something now is heard of: see discovery.h. */
	turnstile_enter(&discovery->turn);
	discovery_tune_in(discovery);
	turnstile_leave(&discovery->turn);

	return discovery_seek(discovery);
}

/* Waits for the thread to end; for one that did not in time, no longer. True: it has ended. */
static bool join(struct discovery *discovery)
{
	struct clock clock = realclock();
	wall_t until = { clock_wall(&clock).ns + STOP_NS };
	struct timespec deadline = { .tv_sec = (time_t)(until.ns / NS_PER_S), .tv_nsec = (long)(until.ns % NS_PER_S) };

	if (discovery->abandoned)
		return pthread_tryjoin_np(discovery->thread, NULL) == 0;
	if (pthread_timedjoin_np(discovery->thread, NULL, &deadline) == 0)
		return true;

	log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_THREAD_STUCK, .thread = "discovery" },
		  "looking for targets hangs in a read of /proc: it is not waited for");

	return false;
}

bool discovery_stop(struct discovery *discovery)
{
	if (!discovery->running)
		return true;

	discovery->stop = true;
	wake(discovery);
	discovery->abandoned = !join(discovery);
	discovery->running = discovery->stop = discovery->abandoned;

	return !discovery->abandoned;
}

/* ---- questions of other threads ---- */

int discovery_first_fd(const struct discovery *discovery)
{
	return discovery->first_fd;
}

int discovery_first(const struct discovery *discovery)
{
	return discovery->first;
}

int32_t discovery_reading(const struct discovery *discovery)
{
	return atomic_load_explicit(&discovery->reading, memory_order_relaxed);
}

size_t discovery_pids(struct discovery *discovery, uint32_t target_id, int32_t *pids, size_t cap)
{
	turnstile_enter(&discovery->turn);
	size_t count = roster_query_pids(discovery->roster, target_id, pids, cap);
	turnstile_leave(&discovery->turn);

	return count;
}

bool discovery_limits(struct discovery *discovery, uint32_t target_id, struct cglimits *ret)
{
	turnstile_enter(&discovery->turn);
	bool found = roster_query_limits(discovery->roster, target_id, ret);
	turnstile_leave(&discovery->turn);

	return found;
}

void discovery_baselines(struct discovery *discovery, int32_t pid, struct thread_baseline *ret_threads,
			 struct maps_snapshot **ret_maps)
{
	turnstile_enter(&discovery->turn);
	baseline_copy(discovery->options.baseline, pid, ret_threads, ret_maps);
	turnstile_leave(&discovery->turn);
}

int discovery_busy(struct discovery *discovery, struct busy_snapshot *ret)
{
	turnstile_enter(&discovery->turn);
	int r = baseline_copy_busy(discovery->options.baseline, ret);
	turnstile_leave(&discovery->turn);

	return r;
}

static void count_unlabelled(const struct discovery *discovery, struct discovery_state *ret)
{
	int error = 0;

	ret->unlabelled = discovery->matcher->by_label && discovery->options.roster.containers
				  ? containers_unlabelled(discovery->options.roster.containers, &error)
				  : 0;
	ret->unlabelled_why =
		error == 0 || error == -ENOENT ? "no file that would have them is there" : strerror(-error);
}

void discovery_state(struct discovery *discovery, struct discovery_state *ret)
{
	turnstile_enter(&discovery->turn);
	*ret = discovery->state;
	ret->reading = discovery_reading(discovery);
	ret->scan_interval_ns = pause_before_scan(discovery);
	roster_counts(discovery->roster, &ret->roster);
	discovery_news_state(discovery, ret);
	discovery_units_state(discovery, ret);
	count_unlabelled(discovery, ret);
	turnstile_leave(&discovery->turn);
}
