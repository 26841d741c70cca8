/*
 * watchdog.c: compares the times at which each thread showed a sign of life last.
 *
 * Readiness: discovery's thread makes the first scan, and the loop waits for its event or for a
 * timer, whichever is first. A scan in the main thread would be simpler, but a read of /proc that
 * blocks would block the start, with all signals held.
 *
 * Keep-alive: the message is held back once the sampler threads have been silent for SILENCE_NS;
 * systemd restarts the service when WatchdogSec= has passed too. Discovery counts indirectly: if it
 * blocks with its lock held, the loop blocks too, because watchdog_check asks it every second.
 */
#include "daemon/service/watchdog.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/log.h"
#include "daemon/engine/base/proc_read.h"
#include "daemon/engine/dispatch/dispatcher.h"
#include "daemon/engine/incident/incidents.h"
#include "daemon/engine/sampling/sampler.h"
#include "daemon/engine/session/session.h"
#include "daemon/engine/targets/discovery.h"
#include "lib/model/sample.h"
#include "lib/ring/ring.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>

/*
 * How long the first scan is waited for: one of a thousand processes takes some milliseconds, and
 * systemd waits for a minute and a half by default.
 */
#define FIRST_SCAN_NS (5 * NS_PER_S)

/* Each thread shows a sign at least once a second; a machine under load may delay it. */
#define SILENCE_NS (10 * NS_PER_S)
#define SILENCE_MIN_NS (2 * NS_PER_S)

/* Captures of 32 processes of many gigabytes take seconds, a slow disk some more. */
#define COLLECTING_MAX_NS (120 * NS_PER_S)

_Static_assert(SAMPLERS_MAX + 2 <= HEALTH_THREADS_MAX, "each sampler thread, discovery and the collector have a place");

struct watchdog {
	struct watchdog_options options;
	sd_event_source *first_scan, *first_scan_timer; /* until the daemon is ready */
	uint64_t first_scan_ns, silence_ns;
	uint64_t period_ns; /* between two keep-alive messages; 0: systemd expects none */
	mono_t sent;
};

/* ---- readiness ---- */

static void stop_waiting(struct watchdog *watchdog)
{
	watchdog->first_scan = sd_event_source_disable_unref(watchdog->first_scan);
	watchdog->first_scan_timer = sd_event_source_disable_unref(watchdog->first_scan_timer);
}

static int be_ready(struct watchdog *watchdog, int result)
{
	int r;

	stop_waiting(watchdog);
	r = watchdog->options.ready(watchdog->options.ctx, result);

	return r < 0 ? sd_event_exit(watchdog->options.event, r) : 0;
}

static int on_first_scan(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
	struct watchdog *watchdog = userdata;

	(void)source;
	(void)fd;
	(void)events;

	return be_ready(watchdog, discovery_first(session_parts(watchdog->options.session).discovery));
}

static int on_first_scan_late(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct watchdog *watchdog = userdata;
	struct log_about about = { .message = MESSAGE_THREAD_STUCK, .thread = "discovery" };
	const struct discovery *discovery = session_parts(watchdog->options.session).discovery;
	int32_t reading = discovery_reading(discovery);
	double seconds = (double)watchdog->first_scan_ns / NS_PER_S;

	(void)usec;
	if (discovery_first(discovery) != DISCOVERY_SCANNING)
		return on_first_scan(source, -1, 0, userdata);

	if (reading)
		log_about(LOG_WARNING, &about,
			  "the first scan for targets has not ended after %g s: it is reading the files of process "
			  "%" PRId32 ", and may be blocked there. Starting without it: targets are watched as they "
			  "are found.",
			  seconds, reading);
	else
		log_about(LOG_WARNING, &about,
			  "the first scan for targets has not ended after %g s. Starting without it: targets are "
			  "watched as they are found.",
			  seconds);

	return be_ready(watchdog, 0);
}

/* ---- the threads ---- */

/* How long a thread has been silent, if that is longer than max_ns; 0: it is alive. */
static uint64_t silence(mono_t last_sign, uint64_t max_ns, mono_t now)
{
	int64_t age = mono_diff(now, last_sign); /* negative: the thread was quicker than the caller */

	return age > (int64_t)max_ns ? (uint64_t)age : 0;
}

/* Each sampler thread under the name that it has in /proc. */
static void check_sampler_threads(const struct watchdog *watchdog, mono_t now)
{
	static const char *const names[SAMPLERS_MAX] = {
		"sampler/0",  "sampler/1",  "sampler/2",  "sampler/3",  "sampler/4",  "sampler/5",
		"sampler/6",  "sampler/7",  "sampler/8",  "sampler/9",  "sampler/10", "sampler/11",
		"sampler/12", "sampler/13", "sampler/14", "sampler/15",
	};
	const struct samplers *samplers = session_parts(watchdog->options.session).samplers;
	unsigned count = samplers_count(samplers);

	for (unsigned i = 0; i < count; i++)
		health_stuck(watchdog->options.health, count > 1 ? names[i] : "sampler",
			     silence(samplers_thread_pulse(samplers, i), watchdog->silence_ns, now), now);
}

static void check_threads(const struct watchdog *watchdog, mono_t now)
{
	const struct watchdog_options *options = &watchdog->options;
	mono_t pulse = discovery_pulse(session_parts(options->session).discovery);
	mono_t busy = incidents_busy_since(options->incidents);

	check_sampler_threads(watchdog, now);
	health_stuck(options->health, "discovery", silence(pulse, watchdog->silence_ns, now), now);
	health_stuck(options->health, "collector", silence(busy.ns ? busy : now, COLLECTING_MAX_NS, now), now);
}

static void check_samplers(const struct watchdog *watchdog, mono_t now)
{
	const struct samplers *samplers = session_parts(watchdog->options.session).samplers;
	struct stats threads[SAMPLERS_MAX] = { 0 };
	size_t count = samplers_count(samplers);
	enum scheduling_reason reason;
	enum scheduling_class class;
	struct ring_info ring;

	for (unsigned i = 0; i < count; i++)
		samplers_thread_stats(samplers, i, &threads[i]); /* none yet: zeros, which are not judged */
	health_judge(watchdog->options.health, threads, count, now);
	class = samplers_scheduling(samplers, &reason);
	health_scheduling(watchdog->options.health, class, reason);
	ring_info(session_parts(watchdog->options.session).ring, &ring);
	health_budget(watchdog->options.health, samplers_back_off_since(samplers).ns ? ring.idle_ns : 0,
		      samplers_slowdown(samplers), samplers_cpu_share(samplers));
}

void watchdog_check(struct watchdog *watchdog)
{
	const struct watchdog_options *options = &watchdog->options;
	struct clock clock = real_clock();
	mono_t now = clock_mono(&clock);
	struct dispatcher_counts dispatched;
	struct discovery_state found;
	uint64_t boot_ns;
	wall_t wall;
	mono_t mono;

	check_samplers(watchdog, now);
	discovery_state(session_parts(options->session).discovery, &found);
	health_discovery(options->health, &found);
	dispatcher_counts(options->dispatcher, &dispatched);
	health_rules_behind(options->health, dispatched.lost_pages, now);
	real_clock_together(&mono, &wall, &boot_ns);
	health_clock(options->health, mono, wall, boot_ns);
	check_threads(watchdog, now);
	dispatcher_log_poll(options->dispatcher, now);
	if (ring_evict_reader(session_parts(options->session).ring, proc_read_is_alive))
		log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_BACKOFF, .state = "end" },
			  "a reader that had stopped the ring has died: it was removed, and sampling continues");
}

/* ---- keep-alive ---- */

/* True: the message was sent. */
static bool send_keep_alive(struct watchdog *watchdog, mono_t last_sign, mono_t now)
{
	if (!watchdog->period_ns || mono_diff(now, watchdog->sent) < (int64_t)watchdog->period_ns ||
	    silence(last_sign, watchdog->silence_ns, now))
		return false;

	watchdog->sent = now;

	return sd_notify(0, "WATCHDOG=1") > 0;
}

void watchdog_keep_alive(struct watchdog *watchdog, mono_t now)
{
	send_keep_alive(watchdog, samplers_pulse(session_parts(watchdog->options.session).samplers), now);
}

static void set_limits(struct watchdog *watchdog, uint64_t stuck_ns)
{
	uint64_t usec = 0; /* what systemd allows ($WATCHDOG_USEC) */

	watchdog->first_scan_ns = stuck_ns ? stuck_ns : FIRST_SCAN_NS;
	watchdog->silence_ns = !stuck_ns ? SILENCE_NS : stuck_ns < SILENCE_MIN_NS ? SILENCE_MIN_NS : stuck_ns;
	/* A quarter of it: a message that is late does no harm. */
	watchdog->period_ns = sd_watchdog_enabled(0, &usec) > 0 ? usec * NS_PER_US / 4 : 0;
}

int watchdog_new(const struct watchdog_options *options, struct watchdog **ret)
{
	struct watchdog *watchdog = calloc(1, sizeof *watchdog);
	int r;

	if (!watchdog)
		return -ENOMEM;

	watchdog->options = *options;
	set_limits(watchdog, options->stuck_ns);
	r = sd_event_add_io(options->event, &watchdog->first_scan,
			    discovery_first_fd(session_parts(options->session).discovery), EPOLLIN, on_first_scan,
			    watchdog);
	if (r >= 0)
		r = sd_event_add_time_relative(options->event, &watchdog->first_scan_timer, CLOCK_MONOTONIC,
					       watchdog->first_scan_ns / NS_PER_US, 0, on_first_scan_late, watchdog);
	if (r < 0) {
		watchdog_free(watchdog);
		return r;
	}
	*ret = watchdog;

	return 0;
}

void watchdog_free(struct watchdog *watchdog)
{
	if (!watchdog)
		return;

	stop_waiting(watchdog);
	free(watchdog);
}
