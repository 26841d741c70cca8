/*
 * discovery_news.c: what is heard between scans (proclistener.h), and the processes that are looked at for it.
 *
 *	executes   looked at at once: it is what it will be (perf says so before the command line is in place: a moment later)
 *	forks      looked at a moment later: most execute something until then
 *	ends       its last counters go to the group that it was a member of, or would have been
 *
 * What is heard is only where to look: what a process is, is read from /proc, under the same roster, by the same matcher. News that were lost are
 * followed by a scan.
 *
 * Looking costs as much as a scan's look, and is bounded by the same share of a core (allowance.h): beyond it nobody is looked at and news are only
 * taken in, twenty milliseconds' at a time, until there is something left again: those who come are late by that. If that goes on for a second those
 * that wait are left to a scan.
 */
#include "discovery_inside.h"
#include "realclock.h"
#include "roster_events.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/*
 * How long nothing is heard after the second time within as long, so that a storm wakes us a thousand times a second and not for each process; one that comes
 * alone is heard at once, and so is what he does next.
 */
#define GAP_NS NS_PER_MS

/* The same while news have taken their share of a core; and for how long somebody waits for it, at most. */
#define HELD_OFF_GAP_NS (20 * NS_PER_MS)
#define BEHIND_MAX_NS NS_PER_S

/* How long a process that was forked is left alone: to execute something, or to end. */
#define DELAY_NS (2 * NS_PER_MS)

/* A process that was forked so lately counts in its group with all that it used: of an older one that would be a peak that was none. */
#define WHOLE_NS (20 * NS_PER_MS)

/* So long at most if nobody has looked at it before, because all have to wait on this machine. */
#define WHOLE_UNMET_NS NS_PER_S

/*
 * How soon after an end it is asked whether the sampler gave members back: at first at every tick of the fastest sampler, then more and more seldom, after a
 * quarter of the time that has passed. And how long: an idle one the sampler looks at seldom.
 */
#define SETTLE_NS (2 * NS_PER_MS)
#define SETTLE_PART 4
#define SETTLE_SELDOM_NS (250 * NS_PER_MS)
#define SETTLE_MAX_NS (30 * NS_PER_S)

/* Batches at a time, so that a scan gets on. */
#define READS_MAX 64

/* ---- tuning in and out ---- */

static void free_news(struct discovery_news *news)
{
	proclistener_close(news->listener);
	newcomers_free(news->newcomers);
	free(news);
}

static void tune_out_of_processes(struct discovery *discovery)
{
	if (!discovery->news)
		return;

	discovery_news_state(discovery, &discovery->state);
	free_news(discovery->news);
	discovery->news = NULL;
	discovery->state.source = PROCLISTENER_NONE;
	discovery->state.exit_totals = discovery->state.held_off = false;
}

void discovery_tune_out(struct discovery *discovery)
{
	tune_out_of_processes(discovery);
	cgroupwatch_free(discovery->cgroups);
	discovery->cgroups = NULL;
}

static int make_news(const struct discovery *discovery, struct discovery_news **ret, char *reason)
{
	struct discovery_news *news = calloc(1, sizeof(*news));
	int r;

	if (!news)
		return -ENOMEM;

	news->scanned.procfd = discovery->options.roster.procfd;
	news->scanned.mounts = discovery->options.roster.mounts;
	news->scanned.containers = discovery->options.roster.containers;
	news->scanned.outside = discovery_outside(discovery);
	news->missed = discovery->state.missed;
	news->dropped = discovery->state.dropped;
	r = newcomers_new(&news->newcomers);
	if (r == 0)
		r = proclistener_open(&discovery->options.listen, &news->listener, reason);
	if (r < 0) {
		free_news(news);
		return r;
	}
	*ret = news;

	return 0;
}

/* Cgroups are heard of while an entry selects them by path. What cannot be had is found by scans. */
static void tune_in_to_cgroups(struct discovery *discovery, bool wanted)
{
	wanted = wanted && discovery->matcher->by_path;
	if (wanted == discovery->cgroups_tried)
		return;

	discovery->cgroups_tried = wanted;
	cgroupwatch_free(discovery->cgroups);
	discovery->cgroups = NULL;
	if (wanted && cgroupwatch_new(discovery->options.roster.mounts, &discovery->cgroups) < 0)
		discovery->cgroups = NULL;
}

void discovery_tune_in(struct discovery *discovery)
{
	bool wanted = discovery->config->sampling.discovery == CONFIG_DISCOVERY_AUTO;
	struct discovery_state *state = &discovery->state;
	int r;

	tune_in_to_cgroups(discovery, wanted);
	if (discovery->tuned && wanted == discovery->tuned_in)
		return;

	discovery->tuned = true;
	discovery->tuned_in = wanted;
	state->listened = true;
	state->source_why[0] = '\0';
	if (!wanted) {
		tune_out_of_processes(discovery);
		snprintf(state->source_why, sizeof(state->source_why), "sampling.discovery is \"rescan\"");
		return;
	}
	if (!discovery->options.roster.own_proc) {
		snprintf(state->source_why, sizeof(state->source_why), "proc_root is not this machine's own /proc");
		return;
	}
	r = make_news(discovery, &discovery->news, state->source_why);
	if (r == -ENOMEM && state->source_why[0] == '\0')
		snprintf(state->source_why, sizeof(state->source_why), "%s", strerror(ENOMEM));
	if (r < 0)
		return;

	state->source = proclistener_source(discovery->news->listener);
	state->exit_totals = proclistener_has_totals(discovery->news->listener);
	discovery->news->allowance = allowance_of(DISCOVERY_SHARE, discovery_show_life(discovery));
}

/* ---- what it may cost ---- */

/* What was taken since the last time is taken into account. */
static void charge(struct discovery_news *news, mono_t now)
{
	uint64_t cpu_ns = realclock_thread_cpu();

	allowance_take(&news->allowance, cpu_ns - news->charged_ns, now);
	news->charged_ns = cpu_ns;
}

/* Whether nobody may be looked at, in the middle of news. */
static bool is_spent(struct discovery *discovery, mono_t now)
{
	charge(discovery->news, now);

	return allowance_is_spent(&discovery->news->allowance, now);
}

/* Whether somebody waits for what there is not, and for how long. */
static void look_back(struct discovery *discovery, mono_t now)
{
	struct discovery_news *news = discovery->news;
	bool spent = is_spent(discovery, now);
	mono_t next;

	if (!discovery->state.held_off) {
		discovery->state.held_off = spent;
		news->behind_since = now;
		return;
	}
	if (mono_diff(now, news->behind_since) < (int64_t)BEHIND_MAX_NS) {
		discovery->state.held_off =
			spent || (newcomers_next(news->newcomers, DELAY_NS, &next) && mono_diff(now, next) >= 0);
		return;
	}

	discovery->state.storms++;
	discovery->state.late += newcomers_give_up(news->newcomers);
	discovery->again = true;
	discovery->state.held_off = spent;
	news->behind_since = now;
}

/* ---- one process ---- */

static void look_at(struct discovery *discovery, struct newcomer *newcomer, mono_t now)
{
	struct scanned *scanned = &discovery->news->scanned;
	struct discovery_meeting meeting = {
		.changed = true,
		.whole = newcomer->forked &&
			 mono_diff(now, newcomer->born) < (int64_t)(newcomer->met ? WHOLE_NS : WHOLE_UNMET_NS),
	};
	int r;

	scanned->now = now;
	r = scanned_meet(scanned, newcomer->pid);

	if (r == 0)
		r = scanned_ask(scanned, discovery->matcher->needs);
	if (r == 0)
		r = discovery_match(discovery, scanned, &meeting);
	if (r == -ECANCELED) {
		discovery->again = true; /* nobody has looked at it: a scan will */
		return;
	}
	if (r == -ESRCH || r == -ENOENT || meeting.ended) {
		newcomers_ended(discovery->news->newcomers, newcomer->pid, now);
		return;
	}

	newcomer->state = NEWCOMER_MET;
	newcomer->renamed &= r < 0;
	discovery->state.looks++;
	discovery->state.late += discovery->state.held_off;
	discovery->again |= r < 0 && scanned_starved(r);
}

/* ---- news ---- */

static void begin(struct discovery *discovery, int32_t pid, enum newcomer_news what, mono_t now)
{
	struct discovery_news *news = discovery->news;
	struct newcomer *newcomer = newcomers_began(news->newcomers, pid, what, now);

	if (newcomer && what == NEWCOMER_EXECUTED && discovery->state.source == PROCLISTENER_CONNECTOR &&
	    !is_spent(discovery, now))
		look_at(discovery, newcomer, now);
}

static void take_event(struct discovery *discovery, const struct procevent *event, mono_t now)
{
	discovery->state.events++;
	switch (event->kind) {
	case PROCEVENT_FORK:
		matcher_forked(discovery->matcher, event->ppid, event->pid);
		begin(discovery, event->pid, NEWCOMER_FORKED, now);
		return;
	case PROCEVENT_EXEC:
		begin(discovery, event->pid, NEWCOMER_EXECUTED, now);
		return;
	case PROCEVENT_COMM:
		begin(discovery, event->pid, NEWCOMER_RENAMED, now);
		return;
	case PROCEVENT_EXIT:
	case PROCEVENT_TOTALS:
		discovery_take_end(discovery, event, now);
		return;
	}
}

/* Between two looks others have their turn; what there is may be gone afterwards. */
static bool others_first(struct discovery *discovery)
{
	discovery_show_life(discovery);
	turnstile_yield(&discovery->turn);

	return !discovery->stop;
}

static void take_events(struct discovery *discovery, mono_t now)
{
	struct discovery_news *news = discovery->news;
	bool lost = false;

	news->more = false;
	for (int reads = 0; reads < READS_MAX; reads++) {
		size_t count = proclistener_read(news->listener, news->events,
						 sizeof(news->events) / sizeof(news->events[0]), &lost);

		discovery->state.overruns += lost;
		discovery->again |= lost;
		for (size_t i = 0; i < count; i++)
			take_event(discovery, &news->events[i], now);
		news->more |= count > 0;
		if (proclistener_drained(news->listener) || !others_first(discovery))
			return;
	}
}

static void look_at_due(struct discovery *discovery, mono_t now)
{
	struct newcomer *newcomer;

	while (!is_spent(discovery, now) && (newcomer = newcomers_due(discovery->news->newcomers, DELAY_NS, now))) {
		look_at(discovery, newcomer, now);
		if (!others_first(discovery))
			return;
	}
}

/* ---- all of them ---- */

/* When processes may be heard again. */
static mono_t rest_until(const struct discovery *discovery, mono_t now)
{
	const struct discovery_news *news = discovery->news;

	return allowance_is_spent(&news->allowance, now) ? mono_add(news->heard, HELD_OFF_GAP_NS) : news->rest.until;
}

/* Unless they are resting, or this is in the middle of them. */
static void hear_processes(struct discovery *discovery, mono_t now)
{
	struct discovery_news *news = discovery->news;

	if (!news || news->hearing || mono_diff(now, rest_until(discovery, now)) < 0)
		return;

	news->hearing = true;
	news->heard = now;
	news->charged_ns = realclock_thread_cpu();
	roster_fetch(discovery->roster);
	take_events(discovery, now);
	roster_settle(discovery->roster);
	look_at_due(discovery, now);
	discovery->again |= matcher_is_behind(discovery->matcher);
	if (news->more)
		rest_found(&news->rest, GAP_NS, now);
	look_back(discovery, now);
	news->hearing = false;
}

/* A cgroup takes most of a millisecond: processes come between them, and others have their turn. */
static void visit_new_cgroup(void *ctx, const char *path)
{
	struct discovery *discovery = ctx;

	discovery->state.cgroups_heard++;
	discovery->again |= discovery_sight_cgroup(discovery, path) < 0;
	if (others_first(discovery))
		hear_processes(discovery, discovery_pulse(discovery));
}

/* Its processes were met before it had its name: where they count and not the cgroup, a scan finds them. */
static void visit_named_container(void *ctx, const char *path)
{
	struct discovery *discovery = ctx;

	discovery->again |= (discovery->matcher->needs & MATCH_CONTAINER) != 0;
	discovery->again |= discovery_sight_cgroup(discovery, path) < 0;
}

/* It is called something else, or has labels now. Targets that are not selected any more go with the next scan. */
static void visit_other_container(void *ctx, const char *path)
{
	struct discovery *discovery = ctx;

	visit_named_container(ctx, path);
	discovery->again |= discovery->matcher->by_container;
	discovery->again |= roster_rename_container(discovery->roster, path) < 0;
}

static void hear_cgroups(struct discovery *discovery, mono_t now)
{
	struct cgroupwatch *cgroups = discovery->cgroups;

	if (!cgroups || !rest_is_over(&discovery->cgroups_rest, now))
		return;

	uint64_t before = cgroupwatch_heard(cgroups);
	bool whole = cgroupwatch_hear(cgroups, now, visit_new_cgroup, discovery);

	if (cgroupwatch_heard(cgroups) != before)
		rest_found(&discovery->cgroups_rest, GAP_NS, now);
	discovery->state.overruns += !whole;
	discovery->again |= !whole;
}

void discovery_overhear(struct discovery *discovery, mono_t now)
{
	if (mono_diff(now, discovery->heard) >= (int64_t)GAP_NS)
		discovery_hear(discovery, now);
}

void discovery_hear(struct discovery *discovery, mono_t now)
{
	discovery->heard = now;
	hear_processes(discovery, now);
	hear_cgroups(discovery, now);
	containers_retry(discovery->options.roster.containers, now, visit_named_container, discovery);
	containers_review(discovery->options.roster.containers, now, visit_other_container, discovery);
	discovery_hear_units(discovery, now);
}

static void sooner(mono_t *until, mono_t at)
{
	if (mono_diff(*until, at) > 0)
		*until = at;
}

static mono_t later(mono_t one, mono_t other)
{
	return mono_diff(one, other) > 0 ? one : other;
}

static uint64_t settle_pause(int64_t passed_ns)
{
	uint64_t part = (uint64_t)passed_ns / SETTLE_PART;

	part = part > SETTLE_NS ? part : SETTLE_NS;

	return part < SETTLE_SELDOM_NS ? part : SETTLE_SELDOM_NS;
}

/*
 * Of processes. True: the listener's descriptor is to be polled. Before it may be heard again it is not: it would be readable, and nobody would
 * read.
 */
static bool await_processes(const struct discovery *discovery, mono_t now, mono_t *until)
{
	const struct discovery_news *news = discovery->news;
	mono_t next, may = rest_until(discovery, now);
	bool spent = allowance_is_spent(&news->allowance, now);

	if (!spent && newcomers_next(news->newcomers, DELAY_NS, &next))
		sooner(until, later(next, may));
	if (roster_ended(discovery->roster) > 0 && mono_diff(now, news->rest.found) < (int64_t)SETTLE_MAX_NS)
		sooner(until, mono_add(now, settle_pause(mono_diff(now, news->rest.found))));
	if (discovery->state.held_off)
		sooner(until, may);
	if (mono_diff(may, now) <= 0)
		return true;
	sooner(until, may);

	return false;
}

/* The same of cgroups. */
static bool await_cgroups(const struct discovery *discovery, mono_t now, mono_t *until)
{
	mono_t next, may = discovery->cgroups_rest.until;

	if (cgroupwatch_next(discovery->cgroups, &next))
		sooner(until, later(next, may));
	if (rest_is_over(&discovery->cgroups_rest, now))
		return true;
	sooner(until, may);

	return false;
}

size_t discovery_await(const struct discovery *discovery, mono_t now, struct pollfd *fds, mono_t *until)
{
	size_t count = 0;
	mono_t next;

	fds[count++] = (struct pollfd){ .fd = discovery->wake_fd, .events = POLLIN };
	if (discovery->cgroups && await_cgroups(discovery, now, until))
		fds[count++] = (struct pollfd){ .fd = cgroupwatch_fd(discovery->cgroups), .events = POLLIN };
	if (containers_next(discovery->options.roster.containers, &next))
		sooner(until, next);
	count += discovery_await_units(discovery, now, &fds[count], until);
	if (discovery->news && await_processes(discovery, now, until))
		fds[count++] = (struct pollfd){ .fd = proclistener_fd(discovery->news->listener), .events = POLLIN };

	return count;
}

void discovery_news_state(const struct discovery *discovery, struct discovery_state *ret)
{
	const struct discovery_news *news = discovery->news;

	if (!news)
		return;
	ret->missed = news->missed + newcomers_missed(news->newcomers);
	ret->dropped = news->dropped + newcomers_dropped(news->newcomers);
}
