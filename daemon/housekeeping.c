/* housekeeping.c: asks everybody, and hands what they say to those who speak about it. */
#include "housekeeping.h"

#include "log.h"
#include "procread.h"
#include "realclock.h"
#include "scope.h"

/* Collecting evidence of 32 processes of many gigabytes takes seconds, a slow disk some more. */
#define COLLECTING_MAX_NS (120 * NS_PER_S)

/* The loop itself is not among them: it is what asks. */
static void read_signs(const struct housekeeping *house, struct watchdog_sign ret[2])
{
	ret[0] = (struct watchdog_sign){ "sampler", .at = samplers_pulse(session_samplers(house->session)) };
	ret[1] = (struct watchdog_sign){ "discovery", .at = discovery_pulse(session_discovery(house->session)) };
}

static void judge_signs(const struct housekeeping *house, mono_t now)
{
	struct watchdog_sign signs[2];
	mono_t busy = incidents_busy_since(house->incidents);
	struct watchdog_sign collecting = { "collector", busy.ns ? busy : now, .patience_ns = COLLECTING_MAX_NS };

	read_signs(house, signs);
	for (size_t i = 0; i < ARRAY_LEN(signs); i++)
		health_stuck(house->health, signs[i].part, watchdog_silence(&signs[i], now), now);
	health_stuck(house->health, "collector", watchdog_silence(&collecting, now), now);
}

void housekeeping_judged(const struct housekeeping *house, mono_t now)
{
	struct watchdog_sign signs[2];

	read_signs(house, signs);
	watchdog_feed(house->watchdog, signs, ARRAY_LEN(signs), now);
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
