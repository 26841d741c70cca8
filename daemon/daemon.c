/*
 * daemon.c: build, run, take down.
 *
 * The loop wakes for three reasons: a poll of the ring (ten times per shortest window, within bounds), a second's housekeeping, a
 * signal. Everything slow happens in other threads.
 */
#include "daemon.h"

#include "control.h"
#include "exposition.h"
#include "handedfds.h"
#include "health.h"
#include "incidents.h"
#include "log.h"
#include "memo.h"
#include "metrics.h"
#include "paths.h"
#include "procread.h"
#include "realclock.h"
#include "recover.h"
#include "scope.h"
#include "session.h"
#include "spool.h"
#include "statusjson.h"
#include "watcher.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>
#include <unistd.h>

/* Bounds of the pause between two looks at the ring: a firing is seen within that time after its window ended. */
#define POLL_MIN_NS (10 * NS_PER_MS)
#define POLL_MAX_NS (50 * NS_PER_MS)

struct daemon {
	const struct config *config;
	struct paths paths;
	int lock_fd;
	int state_dirfd;
	struct spool *spool;
	struct session *session;
	struct memo *memo;
	struct evaluator *evaluator;
	struct incidents *incidents;
	struct watcher *watcher;
	struct health health;
	struct clock clock;
	mono_t started;
	uint64_t poll_ns;
	sd_event *event;
	struct handedfds handed; /* by systemd; what is still in it is nobody's yet */
	struct control *control;
	struct ruletally *tally;
	struct exposition *exposition;
	struct metrics *metrics;
	bool must_remember; /* a firing that holds others back is not saved yet */
	bool memo_failing;
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

static void save_memo(struct daemon *daemon)
{
	daemon->must_remember = false;
	if (!memo_changed(daemon->memo))
		return;

	int r = memo_save(daemon->memo, daemon->state_dirfd, daemon->paths.state_name);

	if (r < 0 && !daemon->memo_failing)
		log_line(LOG_WARNING, "cannot save cooldowns and counts to %s/%s: %s. They will not survive a restart.",
			 daemon->paths.state, daemon->paths.state_name, strerror(-r));
	daemon->memo_failing = r < 0;
}

/* ---- the loop ---- */

static int on_poll(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct daemon *daemon = userdata;
	int r = watcher_poll(daemon->watcher);

	(void)usec;
	if (r < 0)
		log_line(LOG_ERR, "reading the ring: %s", strerror(-r));
	incidents_poll(daemon->incidents, clock_mono(&daemon->clock));
	if (daemon->must_remember)
		save_memo(daemon); /* at once: who is killed now must not fire again before its cooldown is over */
	sd_event_source_set_time_relative(source, daemon->poll_ns / NS_PER_US);

	return 0;
}

static int on_second(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct daemon *daemon = userdata;
	struct sampler *sampler = session_sampler(daemon->session);
	struct discovery_state found;
	struct stats stats;

	(void)usec;
	if (ring_stats(session_ring(daemon->session), &stats) == 0)
		health_judge(&daemon->health, &stats, clock_mono(&daemon->clock));
	health_slowdown(&daemon->health, sampler_slowdown(sampler), sampler_cpu_share(sampler));
	discovery_state(session_discovery(daemon->session), &found);
	health_discovery(&daemon->health, &found);
	if (ring_evict_reader(session_ring(daemon->session), procread_is_alive))
		log_line(LOG_WARNING,
			 "a reader that had stopped the ring is dead: it was let go of, and sampling goes on");
	save_memo(daemon);
	sd_event_source_set_time_relative(source, 1000000);

	return 0;
}

static int on_stop_signal(sd_event_source *source, const struct signalfd_siginfo *info, void *userdata)
{
	(void)userdata;
	log_line(LOG_INFO, "stopping (%s)", strsignal((int)info->ssi_signo));

	return sd_event_exit(sd_event_source_get_event(source), 0);
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

static uint64_t choose_poll(const struct config *config)
{
	uint64_t shortest = UINT64_MAX;

	for (size_t i = 0; i < config->rule_count; i++)
		if (config->rules[i].window_ns < shortest)
			shortest = config->rules[i].window_ns;

	uint64_t pause = shortest / 10;

	return pause < POLL_MIN_NS ? POLL_MIN_NS : pause > POLL_MAX_NS ? POLL_MAX_NS : pause;
}

/* As nohup(1) leaves it: a signal that is blocked would be delivered to the loop nevertheless. */
static bool is_ignored(int number)
{
	struct sigaction action;

	return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

static int build_loop(struct daemon *daemon)
{
	int r = sd_event_default(&daemon->event);

	if (r >= 0)
		r = sd_event_add_signal(daemon->event, NULL, SIGTERM, on_stop_signal, daemon);
	if (r >= 0)
		r = sd_event_add_signal(daemon->event, NULL, SIGINT, on_stop_signal, daemon);
	if (r >= 0 && !is_ignored(SIGHUP)) /* the terminal is closed: nothing that is open may be lost with it */
		r = sd_event_add_signal(daemon->event, NULL, SIGHUP, on_stop_signal, daemon);
	if (r >= 0)
		r = add_timer(daemon, 1000, on_poll);
	if (r >= 0)
		r = add_timer(daemon, 100000, on_second);
	if (r >= 0)
		r = sd_event_set_watchdog(daemon->event, 1);

	return r < 0 ? failed("cannot build", "the event loop", r) : 0;
}

/* ---- whoever asks ---- */

static struct overview look_over(const struct daemon *daemon)
{
	return (struct overview){
		.config = daemon->config,
		.paths = &daemon->paths,
		.session = daemon->session,
		.evaluator = daemon->evaluator,
		.incidents = daemon->incidents,
		.watcher = daemon->watcher,
		.health = &daemon->health,
		.tally = daemon->tally,
		.started = daemon->started,
		.now = clock_mono(&daemon->clock),
	};
}

static int on_request(void *ctx, const char *request, struct buffer *ret)
{
	struct overview overview = look_over(ctx);

	return strcmp(request, "status") == 0 ? statusjson_write(&overview, ret) : statusjson_refuse(request, ret);
}

/* Everything else works without it. */
static void build_control(struct daemon *daemon)
{
	struct control_options options = {
		.event = daemon->event,
		.path = daemon->paths.control,
		.handed = daemon->handed.control,
		.answer = on_request,
		.ctx = daemon,
	};
	int r = control_new(&options, &daemon->control);

	daemon->handed.control = 0;

	if (r < 0)
		log_line(LOG_WARNING, "no control socket at %s: %s. spikewatch status will not reach this daemon.",
			 daemon->paths.control, strerror(-r));
}

static int on_scrape(void *ctx, enum openmetrics_form form, struct buffer *ret)
{
	const struct daemon *daemon = ctx;
	struct overview overview = look_over(daemon);

	return exposition_write(daemon->exposition, &overview, form, ret);
}

/* Nor does anything wait for this. */
static void build_metrics(struct daemon *daemon)
{
	const char *listen = daemon->config->metrics.listen;
	struct metrics_options options = {
		.event = daemon->event,
		.listen = listen,
		.handed = daemon->handed.metrics,
		.render = on_scrape,
		.ctx = daemon,
	};
	int r;

	if (!*listen && daemon->handed.metrics == 0)
		return;

	daemon->handed.metrics = 0;
	r = metrics_new(&options, &daemon->metrics);
	if (r < 0)
		log_line(LOG_WARNING, "no metrics at %s: %s", listen, strerror(-r));
}

/* ---- build ---- */

/* The lock outlives every way to die, and names the ring's owner. */
static int take_ring(struct daemon *daemon)
{
	char path[PATHS_MAX + 8];
	int r = paths_make_parent(daemon->paths.ring);

	if (r < 0)
		return failed("cannot make the directory of", daemon->paths.ring, r);

	snprintf(path, sizeof path, "%s.lock", daemon->paths.ring);
	daemon->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
	if (daemon->lock_fd < 0)
		return failed("cannot open", path, -errno);
	if (flock(daemon->lock_fd, LOCK_EX | LOCK_NB) < 0) {
		log_line(LOG_ERR, "another spikewatchd uses %s", daemon->paths.ring);
		return -EALREADY;
	}

	return 0;
}

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

static int load_memo(struct daemon *daemon)
{
	char boot_id[64] = "", error[256], aside[300];
	int procfd = session_procfd(daemon->session);
	ssize_t len = procread_file(procfd, 0, "sys/kernel/random/boot_id", boot_id, sizeof boot_id);
	int r;

	if (len > 0)
		boot_id[strcspn(boot_id, "\n")] = '\0';
	r = memo_new(boot_id, &daemon->memo);
	if (r < 0)
		return failed("cannot keep", "cooldowns", r);

	daemon->state_dirfd = open(daemon->paths.state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (daemon->state_dirfd < 0)
		return failed("cannot open the state directory", daemon->paths.state, -errno);

	r = memo_load(daemon->memo, daemon->state_dirfd, daemon->paths.state_name, error, sizeof error);
	if (r == -EBADMSG) {
		snprintf(aside, sizeof aside, "%s.damaged", daemon->paths.state_name);
		renameat(daemon->state_dirfd, daemon->paths.state_name, daemon->state_dirfd, aside);
		log_line(LOG_WARNING, "the state file is damaged (%s): it is now %s/%s, and cooldowns begin anew",
			 error, daemon->paths.state, aside);
	} else if (r < 0) {
		log_line(LOG_WARNING, "cannot read the state file %s/%s: %s. Cooldowns begin anew.",
			 daemon->paths.state, daemon->paths.state_name, strerror(-r));
	}

	return r == -ENOMEM ? r : 0;
}

static int build_rules(struct daemon *daemon)
{
	struct incidents_options incidents = {
		.config = daemon->config,
		.session = daemon->session,
		.memo = daemon->memo,
		.spool = daemon->spool,
	};
	struct evaluator_options evaluator = {
		.config = daemon->config,
		.machine = *session_machine(daemon->session),
		.memo = daemon->memo,
		.fire = on_fire,
		.disk_ok = on_disk_ok,
		.judged = on_judged,
		.ctx = daemon,
	};
	int r = incidents_new(&incidents, &daemon->incidents);

	if (r == 0)
		r = ruletally_new(daemon->config, &daemon->tally);
	if (r == 0)
		r = exposition_new(clock_wall(&daemon->clock), &daemon->exposition);
	if (r == 0)
		r = evaluator_new(&evaluator, &daemon->evaluator);
	if (r == 0)
		r = watcher_new(session_ring(daemon->session), daemon->evaluator, daemon->incidents, &daemon->watcher);

	return r < 0 ? failed("cannot build", "the rules", r) : 0;
}

static int build(struct daemon *daemon)
{
	int r = paths_choose(daemon->config, &daemon->paths);

	if (r < 0)
		return failed("cannot tell where", "the daemon's files belong", r);

	r = take_ring(daemon);
	if (r == 0)
		r = open_spool(daemon);
	if (r == 0)
		recover_ring(daemon->paths.ring, daemon->config, daemon->spool);
	if (r == 0)
		r = session_new(daemon->config, daemon->paths.ring, &daemon->session);
	if (r == 0)
		r = load_memo(daemon);
	if (r == 0)
		r = build_rules(daemon);
	if (r == 0)
		r = build_loop(daemon);
	if (r == 0)
		build_control(daemon);
	if (r == 0)
		build_metrics(daemon);

	return r;
}

/* ---- run, take down ---- */

static void say_started(struct daemon *daemon)
{
	struct discovery_state found;

	discovery_state(session_discovery(daemon->session), &found);
	log_line(LOG_INFO,
		 "watching %zu targets of %zu entries with %zu rules every %.6g ms; cgroups: %s; incidents in %s",
		 found.roster.targets, daemon->config->target_count, daemon->config->rule_count,
		 (double)daemon->config->sampling.interval_ns / 1e6,
		 cgroup_mode_name(cgroup_mounts_mode(session_mounts(daemon->session))), daemon->paths.incidents);
	if (found.roster.targets == 0)
		log_line(LOG_NOTICE, "nothing matches yet; new processes and cgroups are picked up as they come");
}

static int run(struct daemon *daemon)
{
	int r = session_start(daemon->session);

	if (r < 0)
		return r;

	say_started(daemon);
	sd_notify(0, "READY=1");
	r = sd_event_loop(daemon->event);
	sd_notify(0, "STOPPING=1");

	return r;
}

static void last_words(struct daemon *daemon)
{
	struct incidents_counts counts;
	struct watcher_counts watched;
	struct stats stats;

	incidents_counts(daemon->incidents, &counts);
	watcher_counts(daemon->watcher, &watched);
	if (ring_stats(session_ring(daemon->session), &stats) == 0)
		health_summary(&daemon->health, &stats);
	if (watched.lost_pages)
		log_line(LOG_WARNING,
			 "the rules were overtaken by the sampler: %llu pages were never judged. Enlarge ring.size.",
			 (unsigned long long)watched.lost_pages);
	log_line(LOG_INFO,
		 "stopped: %llu incidents sealed, %llu firings merged into them, %llu failed, %llu refused because too "
		 "many were open",
		 (unsigned long long)counts.sealed, (unsigned long long)counts.merged,
		 (unsigned long long)counts.failed, (unsigned long long)counts.refused);
}

/* The other way round: first nothing new comes in, then what is open is sealed, then what is remembered is saved. */
static void take_down(struct daemon *daemon)
{
	control_free(daemon->control);
	metrics_free(daemon->metrics);
	if (daemon->session)
		session_stop(daemon->session);
	if (daemon->watcher)
		watcher_poll(daemon->watcher);
	if (daemon->incidents)
		incidents_finish(daemon->incidents);
	if (daemon->memo && daemon->state_dirfd >= 0)
		save_memo(daemon);
	if (daemon->watcher)
		last_words(daemon);

	watcher_free(daemon->watcher);
	evaluator_free(daemon->evaluator);
	incidents_free(daemon->incidents);
	exposition_free(daemon->exposition);
	ruletally_free(daemon->tally);
	memo_free(daemon->memo);
	session_free(daemon->session);
	spool_free(daemon->spool);
	sd_event_unref(daemon->event);
	if (daemon->state_dirfd >= 0)
		close(daemon->state_dirfd);
	if (daemon->lock_fd >= 0)
		close(daemon->lock_fd);
}

static void block_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	if (!is_ignored(SIGHUP))
		sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
}

int daemon_run(const struct config *config)
{
	struct daemon daemon = {
		.config = config,
		.lock_fd = -1,
		.state_dirfd = -1,
		.clock = realclock(),
		.poll_ns = choose_poll(config),
	};
	int r;

	daemon.started = clock_mono(&daemon.clock);
	handedfds_take(&daemon.handed);
	block_signals();
	r = build(&daemon);
	if (r == 0)
		r = run(&daemon);
	take_down(&daemon);
	handedfds_release(&daemon.handed);

	return r;
}
