/* housekeeping.c: asks everybody, and hands what they say to those who speak about it. */
#include "housekeeping.h"

#include "log.h"
#include "procread.h"
#include "realclock.h"
#include "scope.h"

/* Collecting evidence of 32 processes of many gigabytes takes seconds, a slow disk some more. */
#define COLLECTING_MAX_NS (120 * NS_PER_S)

_Static_assert(SAMPLERS_MAX + 2 <= HEALTH_THREADS_MAX, "each sampler thread, discovery and the collector have a place");

/* Each sampler thread for itself, under the name that it has in /proc. */
static void judge_sampler_signs(const struct housekeeping *house, mono_t now)
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

static void judge_signs(const struct housekeeping *house, mono_t now)
{
	struct watchdog_sign finding = { "discovery", .at = discovery_pulse(session_discovery(house->session)) };
	mono_t busy = incidents_busy_since(house->incidents);
	struct watchdog_sign collecting = { "collector", busy.ns ? busy : now, .patience_ns = COLLECTING_MAX_NS };

	judge_sampler_signs(house, now);
	health_stuck(house->health, finding.part, watchdog_silence(&finding, now), now);
	health_stuck(house->health, "collector", watchdog_silence(&collecting, now), now);
}

void housekeeping_judged(const struct housekeeping *house, mono_t now)
{
	struct watchdog_sign sampling = { "sampler", .at = samplers_pulse(session_samplers(house->session)) };

	watchdog_feed(house->watchdog, &sampling, 1, now);
}

static void judge_samplers(const struct housekeeping *house, mono_t now)
{
	const struct samplers *samplers = session_samplers(house->session);
	struct stats threads[SAMPLERS_MAX] = { 0 };
	size_t count = samplers_count(samplers);

	for (unsigned i = 0; i < count; i++)
		samplers_thread_stats(samplers, i, &threads[i]); /* nothing yet: nothing to be judged */
	health_judge(house->health, threads, count, now);
}

void housekeeping_second(const struct housekeeping *house)
{
	struct samplers *samplers = session_samplers(house->session);
	struct ring *ring = session_ring(house->session);
	struct clock clock = realclock();
	mono_t now = clock_mono(&clock);
	struct watcher_counts watched;
	struct discovery_state found;
	uint64_t boot_ns;
	wall_t wall;
	mono_t mono;

	judge_samplers(house, now);
	health_slowdown(house->health, samplers_slowdown(samplers), samplers_cpu_share(samplers));
	discovery_state(session_discovery(house->session), &found);
	health_discovery(house->health, &found);
	watcher_counts(house->watcher, &watched);
	health_rules_behind(house->health, watched.lost_pages, now);
	realclock_together(&mono, &wall, &boot_ns);
	health_clock(house->health, mono, wall, boot_ns);
	judge_signs(house, now);
	if (incidents_disk_is_short(house->incidents))
		incidents_disk_ok(house->incidents, now); /* that it is over is to be known before a rule would fire */
	arrivals_poll(house->arrivals, now);
	if (ring_evict_reader(ring, procread_is_alive))
		log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_BACKOFF, .state = "end" },
			  "a reader that had stopped the ring is dead: it was let go of, and sampling goes on");
}
