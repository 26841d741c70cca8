/*
 * daemon.c: build, run, take down.
 *
 * The loop wakes for three reasons: a poll of the ring (ten times per shortest window, within bounds), a second's housekeeping, a
 * signal. Everything slow happens in other threads.
 */
#include "daemon.h"

#include "bulletin.h"
#include "health.h"
#include "housekeeping.h"
#include "incidents.h"
#include "log.h"
#include "memofile.h"
#include "paths.h"
#include "privileges.h"
#include "readiness.h"
#include "realclock.h"
#include "recover.h"
#include "reload.h"
#include "reporter.h"
#include "requests.h"
#include "ringlock.h"
#include "ruletally.h"
#include "scope.h"
#include "session.h"
#include "signals.h"
#include "spool.h"
#include "watchdog.h"
#include "watcher.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>
#include <unistd.h>

/* Bounds of the pause between two looks at the ring: a firing is seen within that time after its window ended. */
#define POLL_MIN_NS (10 * NS_PER_MS)
#define POLL_MAX_NS (50 * NS_PER_MS)

struct daemon {
	const struct configfile *file;
	struct config *config;
	struct paths paths;
	int lock_fd;
	struct spool *spool;
	struct session *session;
	struct memofile *memofile;
	struct privileges privileges;
	struct evaluator *evaluator;
	struct incidents *incidents;
	struct watcher *watcher;
	struct health health;
	struct arrivals arrivals;
	struct housekeeping house;
	struct clock clock;
	mono_t started;
	uint64_t poll_ns;
	sd_event *event;
	struct ruletally *tally;
	struct reporter *reporter;
	struct watchdog watchdog;
	struct readiness readiness;
	bool must_remember; /* a firing that holds others back is not saved yet */
	bool had_terminal;
};

static int failed(const char *what, const char *which, int error)
{
	log_line(LOG_ERR, "%s %s: %s", what, which, strerror(-error));

	return error;
}

/* ---- rules ---- */

static int on_fire(void *ctx, const struct evaluator_firing *firing)
{
	struct daemon *daemon = ctx;

	/* Anything else may wait for the next second. */
	if (firing->effective->cooldown_ns > 0 || firing->effective->count > 0)
		daemon->must_remember = true;

	struct incidents_counts before, after;

	incidents_counts(daemon->incidents, &before);
	int r = incidents_fire(daemon->incidents, firing);

	incidents_counts(daemon->incidents, &after);
	if (after.opened > before.opened)
		ruletally_opened(daemon->tally, firing->rule);

	return r;
}

static void on_judged(void *ctx, const struct config_rule *rule, const struct trigger_decision *decision)
{
	struct daemon *daemon = ctx;

	ruletally_judged(daemon->tally, rule, decision);
}

static bool on_disk_ok(void *ctx)
{
	struct daemon *daemon = ctx;

	return incidents_disk_ok(daemon->incidents, clock_mono(&daemon->clock));
}

static void remember(struct daemon *daemon)
{
	daemon->must_remember = false;
	memofile_save(daemon->memofile);
}

/* ---- another configuration ---- */

static uint64_t choose_poll(const struct config *config)
{
	uint64_t shortest = UINT64_MAX;

	for (size_t i = 0; i < config->rule_count; i++)
		if (config->rules[i].window_ns < shortest)
			shortest = config->rules[i].window_ns;

	uint64_t pause = shortest / 10;

	return pause < POLL_MIN_NS ? POLL_MIN_NS : pause > POLL_MAX_NS ? POLL_MAX_NS : pause;
}

static int on_reload(void *ctx, char *message)
{
	struct daemon *daemon = ctx;
	struct reload parts = {
		.file = daemon->file,
		.config = &daemon->config,
		.session = daemon->session,
		.evaluator = daemon->evaluator,
		.incidents = daemon->incidents,
		.tally = &daemon->tally,
		.reporter = daemon->reporter,
	};
	int r;

	watcher_poll(daemon->watcher); /* what came before is judged by the old rules */
	r = reload_run(&parts, message);
	if (r == 0) {
		daemon->poll_ns = choose_poll(daemon->config);
		privileges_look(daemon->config, &daemon->privileges);
	}

	return r;
}

/* ---- the loop ---- */

static int on_trigger(void *ctx, const struct target *target, struct incidents_ticket *ret)
{
	struct daemon *daemon = ctx;

	return incidents_trigger(daemon->incidents, target, ret);
}

static int on_poll(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct daemon *daemon = userdata;
	int r = watcher_poll(daemon->watcher);

	(void)usec;
	if (r < 0)
		log_line(LOG_ERR, "reading the ring: %s", strerror(-r));
	incidents_poll(daemon->incidents, clock_mono(&daemon->clock));
	if (daemon->must_remember)
		remember(daemon); /* at once: who is killed now must not fire again before its cooldown is over */
	housekeeping_judged(&daemon->house, clock_mono(&daemon->clock));
	sd_event_source_set_time_relative(source, daemon->poll_ns / NS_PER_US);

	return 0;
}

static int on_second(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct daemon *daemon = userdata;

	(void)usec;
	housekeeping_second(&daemon->house);
	remember(daemon);
	sd_event_source_set_time_relative(source, 1000000);

	return 0;
}

static int on_stop_signal(sd_event_source *source, const struct signalfd_siginfo *info, void *userdata)
{
	(void)userdata;
	log_line(LOG_INFO, "stopping (%s)", strsignal((int)info->ssi_signo));

	return sd_event_exit(sd_event_source_get_event(source), 0);
}

/* The terminal it was started in is closed: nothing that is open may be lost with it. Anybody else wants a reload. */
static int on_hangup(sd_event_source *source, const struct signalfd_siginfo *info, void *userdata)
{
	struct daemon *daemon = userdata;
	char message[REQUESTS_MESSAGE_MAX];

	if (daemon->had_terminal && !signals_has_terminal())
		return on_stop_signal(source, info, userdata);

	on_reload(daemon, message);

	return 0;
}

static int on_trigger_signal(sd_event_source *source, const struct signalfd_siginfo *info, void *userdata)
{
	struct incidents_ticket ticket;

	(void)source;
	(void)info;

	return on_trigger(userdata, NULL, &ticket);
}

static int add_timer(struct daemon *daemon, uint64_t accuracy_us, sd_event_time_handler_t handler)
{
	sd_event_source *source;
	int r = sd_event_add_time_relative(daemon->event, &source, CLOCK_MONOTONIC, 0, accuracy_us, handler, daemon);

	if (r < 0)
		return r;

	sd_event_source_set_enabled(source, SD_EVENT_ON);
	sd_event_source_set_floating(source, 1);
	sd_event_source_unref(source);

	return 0;
}

static int build_loop(struct daemon *daemon)
{
	int r = sd_event_default(&daemon->event);

	if (r >= 0)
		r = sd_event_add_signal(daemon->event, NULL, SIGTERM, on_stop_signal, daemon);
	if (r >= 0)
		r = sd_event_add_signal(daemon->event, NULL, SIGINT, on_stop_signal, daemon);
	if (r >= 0 && !signals_is_ignored(SIGHUP))
		r = sd_event_add_signal(daemon->event, NULL, SIGHUP, on_hangup, daemon);
	if (r >= 0)
		r = sd_event_add_signal(daemon->event, NULL, SIGUSR1, on_trigger_signal, daemon);

	return r < 0 ? failed("cannot build", "the event loop", r) : 0;
}

/* ---- whoever asks ---- */

static void fill_overview(void *ctx, struct overview *ret)
{
	const struct daemon *daemon = ctx;

	*ret = (struct overview){
		.config = daemon->config,
		.paths = &daemon->paths,
		.session = daemon->session,
		.evaluator = daemon->evaluator,
		.incidents = daemon->incidents,
		.memofile = daemon->memofile,
		.watcher = daemon->watcher,
		.health = &daemon->health,
		.tally = daemon->tally,
		.privileges = &daemon->privileges,
		.started = daemon->started,
		.now = clock_mono(&daemon->clock),
	};
}

static void start_reporter(struct daemon *daemon)
{
	struct reporter_options options = {
		.event = daemon->event,
		.control = daemon->paths.control,
		.metrics = &daemon->config->metrics,
		.requests = {
			.overview = fill_overview,
			.trigger = on_trigger,
			.reload = on_reload,
			.ctx = daemon,
		},
	};

	reporter_start(daemon->reporter, &options);
}

/* ---- build ---- */

static int open_spool(struct daemon *daemon)
{
	const struct config_incidents *incidents = &daemon->config->incidents;
	struct retention_limits limits = {
		.max_bytes = incidents->max_bytes,
		.max_count = incidents->max_count,
		.max_age_ns = incidents->max_age_ns,
		.min_free_bytes = incidents->min_free_bytes,
	};
	size_t swept = 0;
	int r = spool_open(daemon->paths.incidents, &limits, &daemon->spool, &swept);
	if (r < 0)
		return failed("cannot use the incident directory", daemon->paths.incidents, r);
	if (spool_adopted(daemon->spool))
		log_line(LOG_NOTICE, "incidents of a daemon that was killed were sealed as far as they had come: %zu",
			 spool_adopted(daemon->spool));
	if (swept)
		log_line(LOG_NOTICE, "incidents of a daemon that was killed had hardly begun and were removed: %zu",
			 swept);

	return 0;
}

static int build_rules(struct daemon *daemon)
{
	struct incidents_options incidents = {
		.config = daemon->config,
		.session = daemon->session,
		.memo = memofile_memo(daemon->memofile),
		.spool = daemon->spool,
	};
	struct evaluator_options evaluator = {
		.config = daemon->config,
		.machine = *session_machine(daemon->session),
		.memo = memofile_memo(daemon->memofile),
		.fire = on_fire,
		.disk_ok = on_disk_ok,
		.judged = on_judged,
		.ctx = daemon,
	};
	int r = incidents_new(&incidents, &daemon->incidents);

	if (r == 0)
		r = ruletally_new(daemon->config, NULL, &daemon->tally);
	if (r == 0)
		r = evaluator_new(&evaluator, &daemon->evaluator);
	if (r == 0)
		r = watcher_new(session_ring(daemon->session), daemon->evaluator, daemon->incidents, &daemon->arrivals,
				&daemon->watcher);
	if (r < 0)
		return failed("cannot build", "the rules", r);

	daemon->house = (struct housekeeping){
		.session = daemon->session,
		.incidents = daemon->incidents,
		.watcher = daemon->watcher,
		.health = &daemon->health,
		.arrivals = &daemon->arrivals,
		.watchdog = &daemon->watchdog,
	};

	return 0;
}

static int build(struct daemon *daemon)
{
	int r = paths_choose(daemon->config, &daemon->paths);

	if (r < 0)
		return failed("cannot tell where", "the daemon's files belong", r);

	r = ringlock_take(daemon->paths.ring, &daemon->lock_fd);
	if (r == 0)
		r = open_spool(daemon);
	if (r == 0)
		recover_ring(daemon->paths.ring, daemon->config, daemon->spool);
	if (r == 0)
		r = session_open(daemon->config, daemon->paths.ring, &daemon->session);
	if (r == 0)
		r = session_seek(daemon->session);
	if (r == 0)
		r = memofile_open(&daemon->paths, session_procfd(daemon->session), &daemon->memofile);
	if (r == 0)
		r = build_rules(daemon);
	if (r == 0)
		r = build_loop(daemon);
	if (r < 0)
		return r;

	start_reporter(daemon);
	privileges_look(daemon->config, &daemon->privileges);

	return 0;
}

/* ---- run, take down ---- */

/* The targets that there are were found: from now on it is sampled and judged. */
static int on_ready(void *ctx, int result)
{
	struct daemon *daemon = ctx;
	struct overview overview;
	int r;

	if (result < 0)
		return failed("cannot look for targets below", daemon->config->proc_root, result);

	r = session_start(daemon->session);
	if (r < 0)
		return r;

	r = add_timer(daemon, 1000, on_poll);
	if (r >= 0)
		r = add_timer(daemon, 100000, on_second);
	if (r < 0)
		return failed("cannot build", "the event loop", r);

	fill_overview(daemon, &overview);
	bulletin_started(&overview, &daemon->arrivals);
	sd_notify(0, "READY=1");

	return 0;
}

static int run(struct daemon *daemon)
{
	int r;

	daemon->readiness = (struct readiness){
		.discovery = session_discovery(daemon->session),
		.ready = on_ready,
		.ctx = daemon,
	};
	r = readiness_await(&daemon->readiness, daemon->event);
	if (r < 0)
		return failed("cannot build", "the event loop", r);

	r = sd_event_loop(daemon->event);
	readiness_release(&daemon->readiness);
	sd_notify(0, "STOPPING=1");

	return r;
}

/* The other way round: first nothing new comes in, then what is open is sealed, then what is remembered is saved. */
static void take_down(struct daemon *daemon)
{
	struct overview overview;

	reporter_free(daemon->reporter);
	if (daemon->session)
		session_stop(daemon->session);
	if (daemon->watcher)
		watcher_poll(daemon->watcher);
	if (daemon->incidents)
		incidents_finish(daemon->incidents);
	if (daemon->watcher) {
		fill_overview(daemon, &overview);
		bulletin_stopped(&overview, &daemon->arrivals);
	}

	watcher_free(daemon->watcher);
	arrivals_release(&daemon->arrivals);
	evaluator_free(daemon->evaluator);
	ruletally_free(daemon->tally);
	memofile_close(daemon->memofile);
	/* Who hangs keeps what he has. If the collector does, the ring is not ended in good order: the next start recovers what it holds. */
	if (incidents_free(daemon->incidents)) {
		if (session_free(daemon->session))
			config_free(daemon->config);
		spool_free(daemon->spool);
	}
	sd_event_unref(daemon->event);
	if (daemon->lock_fd >= 0)
		close(daemon->lock_fd);
}

int daemon_run(const struct configfile *file, struct config *config)
{
	struct daemon daemon = {
		.file = file,
		.config = config,
		.lock_fd = -1,
		.had_terminal = signals_has_terminal(),
		.clock = realclock(),
		.poll_ns = choose_poll(config),
	};
	int r;

	daemon.started = clock_mono(&daemon.clock);
	watchdog_init(&daemon.watchdog);
	signals_block();
	r = reporter_new(&daemon.reporter);
	if (r == 0)
		r = build(&daemon);
	if (r == 0)
		r = run(&daemon);
	take_down(&daemon);

	return r;
}
