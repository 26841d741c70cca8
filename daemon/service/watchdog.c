/* watchdog.c: compares times; the sending is systemd's protocol. */
#include "daemon/service/watchdog.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/log.h"
#include "daemon/engine/base/proc_read.h"
#include "daemon/engine/dispatch/dispatcher.h"
#include "daemon/engine/incident/incidents.h"
#include "daemon/engine/sampling/sampler.h"
#include "daemon/engine/session/session.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/engine/targets/discovery.h"
#include "daemon/service/health/health.h"
#include "lib/base/base.h"
#include "lib/model/sample.h"
#include "lib/ring/ring.h"
#include "lib/source/source.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>

/*
 * A scan of a thousand processes takes some milliseconds; systemd waits for a minute and a half by
 * default.
 */
#define READINESS_PATIENCE_NS (5 * NS_PER_S)

/*
 * Each part shows a sign at least once a second; a machine in distress may hold it up for a while.
 */
#define WATCHDOG_PATIENCE_NS (10 * NS_PER_S)

/*
 * readiness.c: two sources of the loop, of which the first that speaks ends both.
 *
 * Rejected: the first scan in the main thread. It is simpler, and whatever hangs in it hangs the
 * start, for ever, with all signals blocked.
 */

void readiness_release(struct readiness *readiness)
{
	readiness->process_facts = sd_event_source_disable_unref(readiness->process_facts);
	readiness->patience = sd_event_source_disable_unref(readiness->patience);
}

static int be_ready(struct readiness *readiness, sd_event_source *source, int result)
{
	sd_event *event = sd_event_source_get_event(source);
	int r;

	readiness_release(readiness);
	r = readiness->ready(readiness->ctx, result);

	return r < 0 ? sd_event_exit(event, r) : 0;
}

static int on_scanned(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
	struct readiness *readiness = userdata;

	(void)fd;
	(void)events;

	return be_ready(readiness, source, discovery_first(readiness->discovery));
}

static int on_patience(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct readiness *readiness = userdata;
	struct log_about about = { .message = MESSAGE_THREAD_STUCK, .thread = "discovery" };
	int32_t reading = discovery_reading(readiness->discovery);
	unsigned seconds = READINESS_PATIENCE_NS / NS_PER_S;

	(void)usec;
	if (discovery_first(readiness->discovery) != DISCOVERY_SCANNING)
		return on_scanned(source, -1, 0, userdata);

	if (reading)
		log_about(LOG_WARNING, &about,
			  "the first look for targets is not through after %u s: it is at the files of process %" PRId32
			  ", and may hang there. It is not waited for: targets are watched as they are found.",
			  seconds, reading);
	else
		log_about(LOG_WARNING, &about,
			  "the first look for targets is not through after %u s. It is not waited for: targets are "
			  "watched as they are found.",
			  seconds);

	return be_ready(readiness, source, 0);
}

int readiness_await(struct readiness *readiness, sd_event *event)
{
	int r = sd_event_add_io(event, &readiness->process_facts, discovery_first_fd(readiness->discovery), EPOLLIN,
				on_scanned, readiness);

	if (r >= 0)
		r = sd_event_add_time_relative(event, &readiness->patience, CLOCK_MONOTONIC,
					       READINESS_PATIENCE_NS / NS_PER_US, 0, on_patience, readiness);
	if (r < 0)
		readiness_release(readiness);

	return r < 0 ? r : 0;
}

/* periodic_checks.c: asks everybody, and hands what they say to those who speak about it. */

/* Collecting evidence of 32 processes of many gigabytes takes seconds, a slow disk some more. */
#define COLLECTING_MAX_NS (120 * NS_PER_S)

_Static_assert(SAMPLERS_MAX + 2 <= HEALTH_THREADS_MAX, "each sampler thread, discovery and the collector have a place");

/* Each sampler thread for itself, under the name that it has in /proc. */
static void judge_sampler_signs(const struct periodic_checks *house, mono_t now)
{
	static const char *const names[SAMPLERS_MAX] = {
		"sampler/0",  "sampler/1",  "sampler/2",  "sampler/3",  "sampler/4",  "sampler/5",
		"sampler/6",  "sampler/7",  "sampler/8",  "sampler/9",  "sampler/10", "sampler/11",
		"sampler/12", "sampler/13", "sampler/14", "sampler/15",
	};
	const struct samplers *samplers = session_samplers(house->session);
	unsigned count = samplers_count(samplers);

	for (unsigned i = 0; i < count; i++) {
		struct watchdog_sign sign = { count > 1 ? names[i] : "sampler",
					      .at = samplers_thread_pulse(samplers, i) };

		health_stuck(house->health, sign.part, watchdog_silence(&sign, now), now);
	}
}

static void judge_signs(const struct periodic_checks *house, mono_t now)
{
	struct watchdog_sign finding = { "discovery", .at = discovery_pulse(session_discovery(house->session)) };
	mono_t busy = incidents_busy_since(house->incidents);
	struct watchdog_sign collecting = { "collector", busy.ns ? busy : now, .patience_ns = COLLECTING_MAX_NS };

	judge_sampler_signs(house, now);
	health_stuck(house->health, finding.part, watchdog_silence(&finding, now), now);
	health_stuck(house->health, "collector", watchdog_silence(&collecting, now), now);
}

void periodic_checks_judged(const struct periodic_checks *house, mono_t now)
{
	struct watchdog_sign sampling = { "sampler", .at = samplers_pulse(session_samplers(house->session)) };

	watchdog_feed(house->watchdog, &sampling, 1, now);
}

static void judge_samplers(const struct periodic_checks *house, mono_t now)
{
	const struct samplers *samplers = session_samplers(house->session);
	struct stats threads[SAMPLERS_MAX] = { 0 };
	size_t count = samplers_count(samplers);

	for (unsigned i = 0; i < count; i++)
		samplers_thread_stats(samplers, i, &threads[i]); /* nothing yet: nothing to be judged */
	health_judge(house->health, threads, count, now);
}

void periodic_checks_second(const struct periodic_checks *house)
{
	struct samplers *samplers = session_samplers(house->session);
	struct ring *ring = session_ring(house->session);
	struct clock clock = real_clock();
	mono_t now = clock_mono(&clock);
	struct dispatcher_counts watched;
	struct discovery_state found;
	uint64_t boot_ns;
	wall_t wall;
	mono_t mono;

	judge_samplers(house, now);
	health_slowdown(house->health, samplers_slowdown(samplers), samplers_cpu_share(samplers));
	discovery_state(session_discovery(house->session), &found);
	health_discovery(house->health, &found);
	dispatcher_counts(house->dispatcher, &watched);
	health_rules_behind(house->health, watched.lost_pages, now);
	real_clock_together(&mono, &wall, &boot_ns);
	health_clock(house->health, mono, wall, boot_ns);
	judge_signs(house, now);
	if (incidents_disk_is_short(house->incidents))
		incidents_disk_ok(house->incidents, now); /* that it is over is to be known before a rule would fire */
	target_log_poll(house->target_log, now);
	if (ring_evict_reader(ring, proc_read_is_alive))
		log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_BACKOFF, .state = "end" },
			  "a reader that had stopped the ring is dead: it was let go of, and sampling goes on");
}

void watchdog_init(struct watchdog *watchdog)
{
	uint64_t usec = 0;

	*watchdog = (struct watchdog){ 0 };
	/* A quarter of what systemd allows: one word that is late is made up for by the next. */
	if (sd_watchdog_enabled(0, &usec) > 0)
		watchdog->period_ns = usec * NS_PER_US / 4;
}

uint64_t watchdog_silence(const struct watchdog_sign *sign, mono_t now)
{
	int64_t age = mono_diff(now, sign->at); /* negative: the thread was quicker than who asks */
	uint64_t patience_ns = sign->patience_ns ? sign->patience_ns : WATCHDOG_PATIENCE_NS;

	return age > (int64_t)patience_ns ? (uint64_t)age : 0;
}

bool watchdog_feed(struct watchdog *watchdog, const struct watchdog_sign *signs, size_t count, mono_t now)
{
	if (!watchdog->period_ns || mono_diff(now, watchdog->fed) < (int64_t)watchdog->period_ns)
		return false;

	for (size_t i = 0; i < count; i++)
		if (watchdog_silence(&signs[i], now))
			return false;

	watchdog->fed = now;

	return sd_notify(0, "WATCHDOG=1") > 0;
}
