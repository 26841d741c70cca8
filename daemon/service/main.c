/*
 * main.c: spikewatchd: parses the command line, loads the configuration, opens everything, runs the
 * event loop, closes everything.
 *
 * The main thread has the loop. It wakes up for a poll of the ring (when a tick of the samplers has
 * ended a window of some rule, later while nothing runs, and every 50 ms while there are incidents),
 * for the checks of each second (watchdog_check), for requests (control.h) and for signals. What may
 * take long is done by other threads: sampling, discovery, the incident worker.
 */
#include "daemon/engine/base/children.h"
#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/foreign.h"
#include "daemon/engine/base/log.h"
#include "daemon/engine/base/paths.h"
#include "daemon/engine/base/proc_read.h"
#include "daemon/engine/dispatch/dispatcher.h"
#include "daemon/engine/incident/incidents.h"
#include "daemon/engine/incident/recover.h"
#include "daemon/engine/incident/spool.h"
#include "daemon/engine/sampling/sampler.h"
#include "daemon/engine/session/session.h"
#include "daemon/engine/targets/discovery.h"
#include "daemon/service/control.h"
#include "daemon/service/health/health.h"
#include "daemon/service/health/overview.h"
#include "daemon/service/minutes/minute_log.h"
#include "lib/base/base.h"
#include "lib/base/units.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/config/config.h"
#include "lib/config/config_keys.h"
#include "lib/evaluator/evaluator.h"
#include "lib/incident/incident.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"
#include "lib/rules/trigger.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sysexits.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>
#include <unistd.h>

/*
 * Between two polls of the ring. A window that ends in the first of these is judged at the end of it, else
 * with the tick that ends it; open incidents are fed, and closed, at least every second of these.
 */
#define POLL_MIN_NS (5 * NS_PER_MS)
#define POLL_MAX_NS (50 * NS_PER_MS)

/*
 * While no incident is open, or being written, and little comes, the second is longer: a wake-up costs more than
 * what is done in it. It counts from the last poll, so where windows end more often it does not come to its end.
 */
#define POLL_CALM_NS (300 * NS_PER_MS)
#define POLL_SLACK_NS (100 * NS_PER_MS)

/*
 * While nothing runs that is watched, windows may be judged so long after their end, and no later than this part of
 * the shortest one.
 */
#define JUDGE_QUIET_NS (200 * NS_PER_MS)
#define JUDGE_QUIET_SHARE 4

/* "Little", of the ring, between two polls. */
#define POLL_CALM_SHARE 16

/*
 * How long the end waits for a disk that does not answer, from its beginning: first for the history, while
 * incidents are written already; then for these (incident_worker_stop: 15 s), and for the state file,
 * which is written meanwhile. Then for what is told of incidents, and for a reader of the log that does
 * not read, two seconds each. TimeoutStopSec= of the unit is longer than all of that.
 */
#define HISTORY_STOP_NS (8 * NS_PER_S)
#define STATE_STOP_NS (28 * NS_PER_S)
#define LOG_STOP_NS (2 * NS_PER_S)

/* The time of day is slewed slowly; more than this within a second is a step. */
#define CLOCK_STEP_NS (2 * (int64_t)NS_PER_S)

struct daemon {
	const struct config_file *file;
	struct config *config;
	struct config *outdated; /* NULL, or that which discovery still uses: discovery_reload */
	struct paths paths;
	int lock_fd;
	struct spool *spool;
	struct session *session;
	struct state_file *state_file;
	struct minute_log *minute_log;
	int64_t wall_ahead_ns; /* of CLOCK_BOOTTIME, at the last look; 0: not looked yet */
	struct privileges privileges;
	struct dispatcher *dispatcher;
	struct evaluator *evaluator; /* the dispatcher's */
	struct incidents *incidents; /* the dispatcher's */
	struct health health;
	struct clock clock;
	mono_t started;
	sd_event *event;
	sd_event_source *poll_timer;
	uint64_t polled_seq; /* of the ring, at the last poll */
	struct rule_counts *rule_counts;
	struct control *control;
	struct watchdog *watchdog;
	bool save_now; /* a firing started a cooldown or was counted: to be on disk before a crash */
	bool had_terminal;
	bool unready; /* the service manager has not been told yet that the start is over */
};

/* ---- the watchdog: whether the daemon is in order ----
 *
 * When it is ready, what is checked once a second, and the keep-alive messages to systemd
 * (WatchdogSec=). The times at which each thread showed a sign of life last are compared.
 *
 * Readiness: discovery's thread makes the first scan, and the loop waits for its event or for a
 * timer, whichever is first. A scan in the main thread would be simpler, but a read of /proc that
 * blocks would block the start, with all signals held.
 *
 * Keep-alive: the message is held back once the sampler threads have been silent for SILENCE_NS;
 * systemd restarts the service when WatchdogSec= has passed too. Discovery does not count: what it
 * hangs in, mostly a file system, hangs after a restart as well.
 */

/*
 * How long the first scan is waited for: one of a thousand processes takes some milliseconds, and
 * systemd waits for a minute and a half by default.
 */
#define FIRST_SCAN_NS (5 * NS_PER_S)

/* Under a quota of less than a core, of which the scan takes what there is. */
#define FIRST_SCAN_QUOTA_NS NS_PER_S

/* Each thread shows a sign at least once a second; a machine under load may delay it. */
#define SILENCE_NS (10 * NS_PER_S)
#define SILENCE_MIN_NS (2 * NS_PER_S)

/* Captures of 32 processes of many gigabytes take seconds, a slow disk some more. */
#define COLLECTING_MAX_NS (120 * NS_PER_S)

_Static_assert(SAMPLERS_MAX + 2 <= HEALTH_THREADS_MAX, "each sampler thread, discovery and the collector have a place");

/* All pointers are borrowed. */
struct watchdog_options {
	sd_event *event;
	struct session *session; /* session_seek has been called */
	struct incidents *incidents;
	struct dispatcher *dispatcher;
	struct health *health;
	uint64_t stuck_ns; /* config_file.stuck_ns */
	/*
	 * Called once, from the loop: when the first scan for targets has ended, or takes too long
	 * to be waited for, which is logged. result: 0, or why the scan has failed. Negative ends
	 * the loop.
	 */
	int (*ready)(void *ctx, int result);
	void *ctx;
};

struct watchdog {
	struct watchdog_options options;
	sd_event_source *first_scan, *first_scan_timer; /* until the daemon is ready */
	uint64_t first_scan_ns, silence_ns;
	bool has_quota;     /* the first scan may be long for that reason alone */
	uint64_t period_ns; /* between two keep-alive messages; 0: systemd expects none */
	mono_t sent;
};

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

	return be_ready(watchdog, discovery_progress(session_parts(watchdog->options.session).discovery).first);
}

static int on_first_scan_late(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct watchdog *watchdog = userdata;
	struct log_about about = { .message = MESSAGE_THREAD_STUCK, .thread = "discovery" };
	struct discovery_progress progress = discovery_progress(session_parts(watchdog->options.session).discovery);
	double seconds = (double)watchdog->first_scan_ns / NS_PER_S;

	(void)usec;
	if (progress.first != DISCOVERY_SCANNING)
		return on_first_scan(source, -1, 0, userdata);

	if (watchdog->has_quota)
		log_line(LOG_INFO,
			 "the first scan for targets has not ended after %g s, for want of CPU time under the quota. "
			 "Starting without it: targets are watched as they are found.",
			 seconds);
	else if (progress.reading)
		log_about(LOG_WARNING, &about,
			  "the first scan for targets has not ended after %g s: it is reading the files of process "
			  "%" PRId32 ", and may be blocked there. Starting without it: targets are watched as they "
			  "are found.",
			  seconds, progress.reading);
	else
		log_about(LOG_WARNING, &about,
			  "the first scan for targets has not ended after %g s. Starting without it: targets are "
			  "watched as they are found.",
			  seconds);

	return be_ready(watchdog, 0);
}

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
	struct samplers_state state = samplers_state(session_parts(watchdog->options.session).samplers);

	for (unsigned i = 0; i < state.threads; i++)
		health_stuck(watchdog->options.health, state.threads > 1 ? names[i] : "sampler",
			     silence(state.pulses[i], watchdog->silence_ns, now), now);
}

static void check_threads(const struct watchdog *watchdog, mono_t now)
{
	const struct watchdog_options *options = &watchdog->options;
	mono_t pulse = discovery_progress(session_parts(options->session).discovery).pulse;
	mono_t busy = incidents_busy_since(options->incidents);

	check_sampler_threads(watchdog, now);
	health_stuck(options->health, "discovery", silence(pulse, watchdog->silence_ns, now), now);
	health_stuck(options->health, "collector", silence(busy.ns ? busy : now, COLLECTING_MAX_NS, now), now);
}

static void check_samplers(const struct watchdog *watchdog, mono_t now)
{
	const struct samplers *samplers = session_parts(watchdog->options.session).samplers;
	struct stats threads[SAMPLERS_MAX] = { 0 };
	struct samplers_state state = samplers_state(samplers);
	struct ring_info ring;

	for (unsigned i = 0; i < state.threads; i++)
		samplers_thread_stats(samplers, i, &threads[i]); /* none yet: zeros, which are not judged */
	health_judge(watchdog->options.health, threads, state.threads, now);
	health_scheduling(watchdog->options.health, state.class, state.reason);
	ring_info(session_parts(watchdog->options.session).ring, &ring);
	health_budget(watchdog->options.health, state.back_off_since.ns ? ring.idle_ns : 0, state.slowdown,
		      state.cpu_share);
}

/*
 * Once a second: reports to health.h how sampling, discovery, the rules, the clocks and each thread
 * are; releases the ring from readers that died while they blocked it.
 */
static void watchdog_check(struct watchdog *watchdog)
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

/*
 * As sd_notify(3), which waits for as long as the receiver of $NOTIFY_SOCKET does not read. True: it
 * was sent, or there is no one to send it to.
 */
static bool notify_manager(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	size_t len = path ? strlen(path) : 0;

	if (len == 0 || len >= sizeof(address.sun_path) || (*path != '/' && *path != '@'))
		return true;

	AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	memcpy(address.sun_path, path, len);
	if (*path == '@')
		address.sun_path[0] = '\0';
	/* An abstract name ends with the address, any other with a NUL. */
	len += offsetof(struct sockaddr_un, sun_path) + (*path == '/');

	return fd >= 0 &&
	       sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&address, (socklen_t)len) >= 0;
}

/* True: the message was sent. One that was not is due at once again. */
static bool send_keep_alive(struct watchdog *watchdog, mono_t last_sign, mono_t now)
{
	if (!watchdog->period_ns || mono_diff(now, watchdog->sent) < (int64_t)watchdog->period_ns ||
	    silence(last_sign, watchdog->silence_ns, now) || !notify_manager("WATCHDOG=1"))
		return false;

	watchdog->sent = now;

	return true;
}

/*
 * After each look at the ring: sends the keep-alive message to systemd if it is due and sampling is
 * alive. The main thread need not be asked: it is the caller. The threads that write incidents and
 * look for targets do not count: no restart would mend a disk, or a read of /proc, that blocks.
 */
static void watchdog_keep_alive(struct watchdog *watchdog, mono_t now)
{
	send_keep_alive(watchdog, samplers_state(session_parts(watchdog->options.session).samplers).pulse, now);
}

static void set_limits(struct watchdog *watchdog, uint64_t stuck_ns)
{
	uint64_t usec = 0; /* what systemd allows ($WATCHDOG_USEC) */

	watchdog->first_scan_ns = stuck_ns ? stuck_ns : watchdog->has_quota ? FIRST_SCAN_QUOTA_NS : FIRST_SCAN_NS;
	watchdog->silence_ns = !stuck_ns ? SILENCE_NS : stuck_ns < SILENCE_MIN_NS ? SILENCE_MIN_NS : stuck_ns;
	/* A quarter of it: a message that is late does no harm. */
	watchdog->period_ns = sd_watchdog_enabled(0, &usec) > 0 ? usec * NS_PER_US / 4 : 0;
}

/* NULL is fine. */
static void watchdog_free(struct watchdog *watchdog)
{
	if (!watchdog)
		return;

	stop_waiting(watchdog);
	free(watchdog);
}

/*
 * Waits for the first scan from now on, while the loop answers requests and signals. 0, -ENOMEM or
 * -errno.
 */
static int watchdog_new(const struct watchdog_options *options, struct watchdog **ret)
{
	struct watchdog *watchdog = calloc(1, sizeof *watchdog);
	uint64_t quota_ns = samplers_state(session_parts(options->session).samplers).quota_ns;
	int r;

	if (!watchdog)
		return -ENOMEM;

	watchdog->options = *options;
	watchdog->has_quota = quota_ns > 0 && quota_ns < NS_PER_S && !options->stuck_ns;
	set_limits(watchdog, options->stuck_ns);
	r = sd_event_add_io(options->event, &watchdog->first_scan,
			    discovery_progress(session_parts(options->session).discovery).first_fd, EPOLLIN,
			    on_first_scan, watchdog);
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

/* ---- signals ---- */

/* Whether this process has a controlling terminal that is not closed. */
static bool has_terminal(void)
{
	AUTO_CLOSE int fd = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);

	return fd >= 0;
}

/* As nohup(1) leaves SIGHUP: once blocked, the loop would get it nevertheless. */
static bool is_ignored(int number)
{
	struct sigaction action;

	return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

/* Before any other thread is started: the loop reads these signals from a descriptor. */
static void block_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGUSR1);
	if (!is_ignored(SIGHUP))
		sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a limit of size is a write error */
}

/*
 * Evidence is large and short-lived. In maps of its own each piece goes back to the kernel when it is
 * freed; among small blocks of the heap, where malloc(3) puts such pieces once it has seen some freed,
 * one small block behind it keeps all of it. The same holds for copies of pages of the ring, and for
 * buffers that grew at the start.
 */
#define OWN_MAP_BYTES (32 << 10)
#define TRIM_BYTES (128 << 10)

static void keep_evidence_apart(void)
{
	mallopt(M_MMAP_THRESHOLD, OWN_MAP_BYTES);
	mallopt(M_TRIM_THRESHOLD, TRIM_BYTES);
}

static int failed(const char *what, const char *which, int error)
{
	log_line(LOG_ERR, "%s %s: %s", what, which, strerror(-error));

	return error;
}

/* ---- the log of a start and a stop ---- */

static void log_started(const struct overview *overview, struct dispatcher *dispatcher)
{
	struct discovery_state found;

	discovery_state(session_parts(overview->session).discovery, &found);
	log_about(LOG_INFO, &(struct log_about){ .message = MESSAGE_STARTED },
		  "watching %zu targets of %zu entries with %zu rules every %.6g ms; cgroups: %s; incidents in %s",
		  found.target_table.targets, overview->config->target_count, overview->config->rule_count,
		  (double)overview->config->sampling.interval_ns / 1e6,
		  cgroup_mode_name(cgroup_mounts_mode(session_parts(overview->session).mounts)),
		  overview->paths->incidents);
	dispatcher_log_start(dispatcher, found.target_table.targets, overview->now);
	if (found.target_table.targets == 0)
		log_line(LOG_NOTICE, "no target matches yet; new processes and cgroups are picked up as they start");
}

/* The sampler must be stopped. */
static void log_stopped(const struct overview *overview)
{
	struct incidents_counts counts;
	struct dispatcher_counts dispatched;
	struct stats stats;

	incidents_counts(overview->incidents, &counts);
	dispatcher_counts(overview->dispatcher, &dispatched);
	if (ring_stats(session_parts(overview->session).ring, &stats) == 0)
		health_summary(overview->health, &stats);
	if (dispatched.lost_pages)
		log_about(LOG_WARNING,
			  &(struct log_about){ .message = MESSAGE_RULES_BEHIND, .count = dispatched.lost_pages },
			  "the sampler overtook the rules: %ju pages were not judged. Enlarge ring.size.",
			  (uintmax_t)dispatched.lost_pages);
	log_about(LOG_INFO, &(struct log_about){ .message = MESSAGE_STOPPED },
		  "stopped: %ju incidents sealed, %ju firings merged into them, %ju failed, %ju not written yet, %ju "
		  "firings and requests refused",
		  (uintmax_t)counts.sealed, (uintmax_t)counts.merged, (uintmax_t)counts.failed,
		  (uintmax_t)counts.pending, (uintmax_t)counts.refused);
}

/* ---- rules ---- */

static bool on_fired(void *ctx, const struct evaluator_firing *firing)
{
	struct daemon *daemon = ctx;

	/* What does not hold back later firings is saved by the next second's check. */
	if (firing->effective->cooldown_ns > 0 || firing->effective->count > 0)
		daemon->save_now = true;

	return true;
}

static void on_opened(void *ctx, const struct evaluator_firing *firing)
{
	struct daemon *daemon = ctx;
	char stem[INCIDENT_NAME_MAX + 1];

	incident_stem(firing->wall, firing->target->name, firing->rule->name, stem, sizeof stem);
	if (daemon->minute_log)
		minute_log_incident(daemon->minute_log, firing->target->id, stem);
	rule_counts_opened(daemon->rule_counts, firing->rule);
}

static void on_event(void *ctx, const struct ring_event *event)
{
	struct daemon *daemon = ctx;

	if (daemon->minute_log)
		minute_log_event(daemon->minute_log, event);
}

static void on_judged(void *ctx, const struct config_rule *rule, const struct trigger_decision *decision,
		      uint32_t windows)
{
	struct daemon *daemon = ctx;

	rule_counts_judged(daemon->rule_counts, rule, decision, windows);
}

static void save_state(struct daemon *daemon)
{
	daemon->save_now = false;
	state_file_save(daemon->state_file);
}

/* ---- reload ---- */

static int refuse_reload(const char *message, int error)
{
	log_about(LOG_ERR, &(struct log_about){ .message = MESSAGE_RELOAD_REFUSED, .error = error },
		  "reload refused, the old configuration stays in force: %s", message);

	return error;
}

__attribute__((format(printf, 2, 3))) static void append_change(char *message, const char *format, ...)
{
	size_t len = strlen(message);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message + len, CONTROL_MESSAGE_MAX - len, format, arguments);
	va_end(arguments);
}

/* "targets: 2 added, 1 removed"; "" if there is no change. */
static void append_section(char *message, const char *section, size_t added, size_t removed, size_t changed)
{
	if (added + removed + changed == 0)
		return;

	append_change(message, "%s%s:", *message ? "; " : "", section);
	if (added)
		append_change(message, " %zu added%s", added, removed + changed ? "," : "");
	if (removed)
		append_change(message, " %zu removed%s", removed, changed ? "," : "");
	if (changed)
		append_change(message, " %zu changed", changed);
}

static void describe_changes(const struct config *old, const struct config *next, char *message)
{
	struct config_change_counts counts;

	message[0] = '\0';
	config_change_count(old, next, &counts);
	append_section(message, "targets", counts.targets_added, counts.targets_removed, counts.targets_changed);
	append_section(message, "rules", counts.rules_added, counts.rules_removed, counts.rules_changed);
	if (config_change_sections(old, next))
		append_change(message, "%sother options changed", *message ? "; " : "");
	if (!*message)
		append_change(message, "nothing has changed");
}

/* What may fail comes first. 0; DISCOVERY_FOLLOWS; -errno: nothing has changed. */
static int replace_config(struct daemon *daemon, const struct config *config)
{
	struct evaluator_reload *rules = NULL;
	AUTO(rule_counts_freep) struct rule_counts *rule_counts = NULL;
	int r = evaluator_reload_prepare(daemon->evaluator, config, &rules);

	if (r == 0)
		r = rule_counts_new(config, daemon->rule_counts, &rule_counts);
	if (r == 0)
		r = session_reload(daemon->session, config);
	if (r < 0) {
		evaluator_reload_drop(rules);
		return r;
	}

	evaluator_reload_commit(rules);
	incidents_reload(daemon->incidents, config);
	minute_log_reload(daemon->minute_log, config);
	control_reload(daemon->control, &config->metrics);
	rule_counts_free(daemon->rule_counts);
	daemon->rule_counts = TAKE(rule_counts);

	return r;
}

/* Of those that were in force before config, discovery uses one at most, and takes up none again. */
static void free_outdated(struct daemon *daemon, struct config *before)
{
	const struct config *used = discovery_progress(session_parts(daemon->session).discovery).config;

	if (daemon->outdated && daemon->outdated != used) {
		config_free(daemon->outdated);
		daemon->outdated = NULL;
		log_line(LOG_INFO, "discovery goes by the configuration that was reloaded");
	}
	if (before && before == used)
		daemon->outdated = before;
	else
		config_free(before);
}

/*
 * All of the file is put in force, or none of it; what only a restart can change is refused
 * (config_keys.h). 0 or -errno, also logged; message says what changed or why nothing did.
 */
/* Entries that are valid and cannot match. Returns how many. */
static size_t log_doubts(const struct config *config)
{
	char why[256];
	size_t count = 0;

	for (size_t i = 0; i < config->target_count; i++)
		if (config_target_doubt(&config->targets[i], why, sizeof(why))) {
			log_line(LOG_WARNING, "target entry %s cannot match: %s", config->targets[i].name, why);
			count++;
		}
	return count;
}

static int on_reload(void *ctx, char *message)
{
	struct daemon *daemon = ctx;
	AUTO(config_freep) struct config *config = NULL;
	struct config_error error;
	int r;

	/* Earlier samples are judged by the old rules. */
	dispatcher_poll(daemon->dispatcher, clock_mono(&daemon->clock));
	r = config_file_load(daemon->file, &config, message);
	if (r < 0)
		return refuse_reload(message, r);

	r = config_change_reloadable(daemon->config, config, &error);
	if (r < 0) {
		config_error_format(&error, message, CONTROL_MESSAGE_MAX);
		return refuse_reload(message, r);
	}

	r = replace_config(daemon, config);
	if (r < 0) {
		snprintf(message, CONTROL_MESSAGE_MAX, "%s", strerror(-r));
		return refuse_reload(message, r);
	}

	describe_changes(daemon->config, config, message);
	if (r == DISCOVERY_FOLLOWS)
		append_change(message, "; new targets when discovery has read what it waits for");
	free_outdated(daemon, daemon->config);
	daemon->config = TAKE(config);
	log_about(LOG_NOTICE, &(struct log_about){ .message = MESSAGE_RELOADED }, "reloaded: %s", message);
	log_doubts(daemon->config);
	privileges_look(daemon->config, &daemon->privileges);

	return 0;
}

/* ---- the loop ---- */

/* How long windows may wait to be judged while nothing runs. */
static uint64_t quiet_wait_ns(const struct config *config)
{
	uint64_t wait_ns = JUDGE_QUIET_NS;

	for (size_t i = 0; i < config->rule_count; i++)
		if (config->rules[i].window_ns / JUDGE_QUIET_SHARE < wait_ns)
			wait_ns = config->rules[i].window_ns / JUDGE_QUIET_SHARE;
	return wait_ns;
}

/*
 * The samplers are to wake this thread with the tick that ends the next window, of a rule or of an incident. calm:
 * there is no incident.
 */
static void set_alarm(struct daemon *daemon, mono_t now, bool calm)
{
	mono_t next = evaluator_next_end(daemon->evaluator), soonest = mono_add(now, POLL_MIN_NS);
	mono_t quiet = mono_add(now, calm ? quiet_wait_ns(daemon->config) : 0);
	struct incidents_counts counts;

	incidents_counts(daemon->incidents, &counts);
	if (counts.ends.ns && counts.ends.ns < next.ns)
		next = counts.ends;
	next = next.ns > soonest.ns ? next : soonest;
	samplers_set_alarm(session_parts(daemon->session).samplers, next, next.ns > quiet.ns ? next : quiet);
}

static bool is_calm(struct daemon *daemon)
{
	struct incidents_counts counts;
	struct ring_info info;

	incidents_counts(daemon->incidents, &counts);
	ring_info(session_parts(daemon->session).ring, &info);

	uint64_t bytes = (info.next_seq - daemon->polled_seq) * info.page_bytes;

	daemon->polled_seq = info.next_seq;
	return counts.pending == 0 && counts.storm_firings == 0 && bytes < info.size_bytes / POLL_CALM_SHARE;
}

static void set_poll_timer(struct daemon *daemon, bool calm)
{
	sd_event_source_set_time_accuracy(daemon->poll_timer, (calm ? POLL_SLACK_NS : NS_PER_MS) / NS_PER_US);
	sd_event_source_set_time_relative(daemon->poll_timer, (calm ? POLL_CALM_NS : POLL_MAX_NS) / NS_PER_US);
}

static int on_trigger(void *ctx, const struct target *target, struct incidents_ticket *ret)
{
	struct daemon *daemon = ctx;
	int r = incidents_trigger(daemon->incidents, target, ret);

	if (r == 0 && ret->answer == INCIDENTS_OPENED)
		minute_log_incident(daemon->minute_log, target ? target->id : 0, ret->stem);
	if (daemon->poll_timer) {
		samplers_rouse(session_parts(daemon->session).samplers);
		set_alarm(daemon, clock_mono(&daemon->clock), false);
		set_poll_timer(daemon, false);
	}
	return r;
}

static void poll_ring(struct daemon *daemon)
{
	int r = dispatcher_poll(daemon->dispatcher, clock_mono(&daemon->clock));

	if (r < 0)
		log_line(LOG_ERR, "cannot read the ring: %s", strerror(-r));
	if (daemon->save_now)
		save_state(daemon);
	watchdog_keep_alive(daemon->watchdog, clock_mono(&daemon->clock));

	bool calm = is_calm(daemon);

	set_alarm(daemon, clock_mono(&daemon->clock), calm);
	set_poll_timer(daemon, calm);
}

static int on_poll(sd_event_source *source, uint64_t usec, void *userdata)
{
	(void)source;
	(void)usec;
	poll_ring(userdata);

	return 0;
}

static int on_alarm(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
	eventfd_t times;

	(void)source;
	(void)events;
	eventfd_read(fd, &times);
	poll_ring(userdata);

	return 0;
}

/* The time of day names incidents and orders them; nothing else depends on it. */
static void notice_clock_step(struct daemon *daemon)
{
	char text[UNITS_TEXT_MAX];
	uint64_t boot_ns;
	int64_t ahead_ns, step_ns;
	mono_t mono;
	wall_t wall;

	real_clock_together(&mono, &wall, &boot_ns);
	ahead_ns = (int64_t)(wall.ns - boot_ns);
	step_ns = ahead_ns - daemon->wall_ahead_ns;
	if (daemon->wall_ahead_ns != 0 && (step_ns > CLOCK_STEP_NS || step_ns < -CLOCK_STEP_NS))
		log_line(LOG_NOTICE,
			 "the time of day was set %s by %s: incidents are named by it, but none is removed for that",
			 step_ns > 0 ? "forward" : "back",
			 units_format_duration(text, sizeof(text), (uint64_t)(step_ns > 0 ? step_ns : -step_ns)));
	daemon->wall_ahead_ns = ahead_ns;
}

static int on_second(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct daemon *daemon = userdata;

	(void)usec;
	watchdog_check(daemon->watchdog);
	free_outdated(daemon, NULL);
	notice_clock_step(daemon);
	save_state(daemon);
	if (daemon->unready)
		daemon->unready = !notify_manager("READY=1");
	sd_event_source_set_time_relative(source, 1000000);

	return 0;
}

static int on_stop_signal(sd_event_source *source, const struct signalfd_siginfo *info, void *userdata)
{
	(void)userdata;
	log_line(LOG_INFO, "stopping (%s)", strsignal((int)info->ssi_signo));

	return sd_event_exit(sd_event_source_get_event(source), 0);
}

/* Stops in order if the controlling terminal was closed; otherwise SIGHUP means reload. */
static int on_hangup(sd_event_source *source, const struct signalfd_siginfo *info, void *userdata)
{
	struct daemon *daemon = userdata;
	char message[CONTROL_MESSAGE_MAX];

	if (daemon->had_terminal && !has_terminal())
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

/* ret: NULL, or the timer, which is the loop's. */
static int add_timer(struct daemon *daemon, uint64_t accuracy_us, sd_event_time_handler_t handler,
		     sd_event_source **ret)
{
	sd_event_source *source;
	int r = sd_event_add_time_relative(daemon->event, &source, CLOCK_MONOTONIC, 0, accuracy_us, handler, daemon);

	if (r < 0)
		return r;

	sd_event_source_set_enabled(source, SD_EVENT_ON);
	sd_event_source_set_floating(source, 1);
	if (ret)
		*ret = source;
	sd_event_source_unref(source);

	return 0;
}

static int add_alarm(struct daemon *daemon)
{
	int fd = samplers_open_alarm(session_parts(daemon->session).samplers);

	return fd < 0 ? fd : sd_event_add_io(daemon->event, NULL, fd, EPOLLIN, on_alarm, daemon);
}

static int build_loop(struct daemon *daemon)
{
	int r = sd_event_default(&daemon->event);

	if (r >= 0)
		r = sd_event_add_signal(daemon->event, NULL, SIGTERM, on_stop_signal, daemon);
	if (r >= 0)
		r = sd_event_add_signal(daemon->event, NULL, SIGINT, on_stop_signal, daemon);
	if (r >= 0 && !is_ignored(SIGHUP))
		r = sd_event_add_signal(daemon->event, NULL, SIGHUP, on_hangup, daemon);
	if (r >= 0)
		r = sd_event_add_signal(daemon->event, NULL, SIGUSR1, on_trigger_signal, daemon);

	return r < 0 ? failed("cannot build", "the event loop", r) : 0;
}

/* ---- requests ---- */

static void fill_overview(void *ctx, struct overview *ret)
{
	const struct daemon *daemon = ctx;

	*ret = (struct overview){
		.config = daemon->config,
		.paths = &daemon->paths,
		.session = daemon->session,
		.evaluator = daemon->evaluator,
		.incidents = daemon->incidents,
		.state_file = daemon->state_file,
		.minute_log = daemon->minute_log,
		.dispatcher = daemon->dispatcher,
		.health = &daemon->health,
		.rule_counts = daemon->rule_counts,
		.privileges = &daemon->privileges,
		.started = daemon->started,
		.now = clock_mono(&daemon->clock),
	};
}

/* A request is answered with all that was sampled by then: the ring may have been read 0.4 s ago. */
static void fill_overview_of_now(void *ctx, struct overview *ret)
{
	struct daemon *daemon = ctx;

	dispatcher_poll(daemon->dispatcher, clock_mono(&daemon->clock));
	fill_overview(ctx, ret);
}

static void start_control(struct daemon *daemon)
{
	struct control_options options = {
		.event = daemon->event,
		.path = daemon->paths.control,
		.metrics = &daemon->config->metrics,
		.overview = fill_overview_of_now,
		.trigger = on_trigger,
		.reload = on_reload,
		.ctx = daemon,
	};

	control_start(daemon->control, &options);
}

/* ---- build ---- */

static int open_spool(struct daemon *daemon)
{
	struct retention_limits limits = retention_limits_of(daemon->config);
	int r = spool_open(daemon->paths.incidents, &limits, &daemon->spool, NULL);
	if (r < 0)
		return failed("cannot use the incident directory", daemon->paths.incidents, r);

	return 0;
}

static int build_rules(struct daemon *daemon)
{
	struct dispatcher_options options = {
		.config = daemon->config,
		.session = daemon->session,
		.spool = daemon->spool,
		.rule_state = state_file_rules(daemon->state_file),
		.log_targets = true,
		.check_disk = true,
		.fired = on_fired,
		.opened = on_opened,
		.judged = on_judged,
		.observe = on_event,
		.ctx = daemon,
	};
	int r = rule_counts_new(daemon->config, NULL, &daemon->rule_counts);

	if (r == 0)
		r = dispatcher_open(&options, &daemon->dispatcher);
	if (r < 0)
		return failed("cannot build", "the rules", r);

	daemon->evaluator = dispatcher_evaluator(daemon->dispatcher);
	daemon->incidents = dispatcher_incidents(daemon->dispatcher);

	return 0;
}

/* Not of the ring itself, which is replaced by rename(2): that lock would stay with the file that was replaced. */
static int lock_ring(struct daemon *daemon)
{
	char path[PATHS_MAX + 8];
	int r;

	snprintf(path, sizeof path, "%s.lock", daemon->paths.ring);
	r = lock_file_take(AT_FDCWD, path, &daemon->lock_fd);
	if (r == -EBUSY) {
		log_line(LOG_ERR, "another spikewatchd uses %s", daemon->paths.ring);
		return -EALREADY;
	}
	return r < 0 ? failed("cannot lock", path, r) : 0;
}

static int build(struct daemon *daemon)
{
	int r = paths_choose(daemon->config, &daemon->paths);

	if (r < 0)
		return failed("cannot choose", "the directories of the daemon's files", r);

	r = lock_ring(daemon);
	if (r == 0)
		foreign_begin(daemon->paths.ring);
	if (r == 0)
		r = open_spool(daemon);
	if (r == 0)
		recover_begin(daemon->paths.ring, daemon->paths.incidents, daemon->config);
	if (r == 0)
		r = session_open(daemon->config, daemon->paths.ring, &daemon->session);
	if (r == 0)
		r = session_seek(daemon->session);
	if (r == 0)
		r = state_file_open(&daemon->paths, session_parts(daemon->session).procfd, &daemon->state_file);
	if (r == 0)
		r = minute_log_open(daemon->paths.history, daemon->config, &daemon->minute_log);
	if (r == 0)
		r = build_rules(daemon);
	if (r == 0)
		r = build_loop(daemon);
	if (r < 0)
		return r;

	start_control(daemon);
	privileges_look(daemon->config, &daemon->privileges);

	return 0;
}

/* ---- run, take down ---- */

/* For watchdog_options: the first scan is over. Starts sampling and judging. */
static int on_ready(void *ctx, int result)
{
	struct daemon *daemon = ctx;
	struct overview overview;
	int r;

	if (result < 0)
		return failed("cannot scan for targets in", daemon->config->proc_root, result);

	r = add_timer(daemon, 1000, on_poll, &daemon->poll_timer);
	if (r >= 0)
		r = add_timer(daemon, 100000, on_second, NULL);
	if (r >= 0)
		r = add_alarm(daemon);
	if (r < 0)
		return failed("cannot build", "the event loop", r);

	r = session_start(daemon->session);
	if (r < 0)
		return r;

	fill_overview(daemon, &overview);
	log_started(&overview, daemon->dispatcher);
	daemon->unready = !notify_manager("READY=1");

	return 0;
}

static int run(struct daemon *daemon)
{
	struct watchdog_options options = {
		.event = daemon->event,
		.session = daemon->session,
		.incidents = daemon->incidents,
		.dispatcher = daemon->dispatcher,
		.health = &daemon->health,
		.stuck_ns = daemon->file->stuck_ns,
		.ready = on_ready,
		.ctx = daemon,
	};
	int r = watchdog_new(&options, &daemon->watchdog);

	if (r < 0)
		return failed("cannot build", "the event loop", r);

	r = sd_event_loop(daemon->event);
	notify_manager("STOPPING=1");

	return r;
}

/* In this order: no new requests and samples, open incidents are sealed, the state is saved. */
static void take_down(struct daemon *daemon)
{
	mono_t began = clock_mono(&daemon->clock);
	struct overview overview;
	bool ended;

	control_free(daemon->control);
	watchdog_free(daemon->watchdog);
	if (daemon->session)
		session_stop(daemon->session);
	if (daemon->dispatcher) {
		dispatcher_poll(daemon->dispatcher, clock_mono(&daemon->clock));
		state_file_save(daemon->state_file);
	}
	minute_log_close(TAKE(daemon->minute_log), mono_add(began, HISTORY_STOP_NS));
	if (daemon->dispatcher) {
		dispatcher_finish(daemon->dispatcher, clock_mono(&daemon->clock));
		fill_overview(daemon, &overview);
		log_stopped(&overview);
	}

	ended = dispatcher_close(daemon->dispatcher);
	rule_counts_free(daemon->rule_counts);
	state_file_close(daemon->state_file, mono_add(began, STATE_STOP_NS));
	/*
	 * A thread that is blocked keeps what it refers to. If it is the incident worker, the ring
	 * is not marked as ended: the next start recovers what it holds.
	 */
	if (ended) {
		if (session_free(daemon->session)) {
			config_free(daemon->config);
			config_free(daemon->outdated);
		}
		spool_free(daemon->spool);
	}
	sd_event_unref(daemon->event);
	if (daemon->lock_fd >= 0)
		close(daemon->lock_fd);
}

/*
 * Runs until SIGTERM or SIGINT. config is what file held; it is freed. 0: a clean stop; -errno: it
 * could not start (logged), -EALREADY: another daemon has this ring.
 */
static int daemon_run(const struct config_file *file, struct config *config)
{
	struct daemon daemon = {
		.file = file,
		.config = config,
		.lock_fd = -1,
		.had_terminal = has_terminal(),
		.clock = real_clock(),
	};
	int r;

	daemon.started = clock_mono(&daemon.clock);
	keep_evidence_apart();
	block_signals();
	log_start();
	r = control_new(&daemon.control);
	if (r == 0)
		r = build(&daemon);
	if (r == 0)
		r = run(&daemon);
	take_down(&daemon);
	log_stop(LOG_STOP_NS);

	return r;
}

/* ---- the command line ---- */

struct request {
	struct config_file file;
	bool check, verbose;
};

static void print_help(void)
{
	printf("usage: spikewatchd [-c FILE] [--check [FILE]] [-v]\n"
	       "Samples processes and cgroups, and records what happened around a spike.\n\n"
	       "  -c, --config FILE    configuration (%s,\n"
	       "                       then *.json of %s;\n"
	       "                       without it, what is built in: conf/spikewatch.json)\n"
	       "      --check [FILE]   only check the configuration\n"
	       "      --proc-root DIR  where the host's /proc is, for a daemon in a container\n"
	       "      --cgroup-root DIR  where the host's cgroup tree is\n"
	       "  -v, --verbose        say more\n"
	       "      --version\n\n"
	       "example: spikewatchd --check conf/spikewatch.json\n"
	       "exit: 0 stopped cleanly, 64 wrong usage, 78 bad configuration, 1 anything else\n",
	       PATHS_CONFIG, PATHS_DROPINS);
}

enum { OPTION_CHECK = 256, OPTION_PROC_ROOT, OPTION_CGROUP_ROOT, OPTION_VERSION, OPTION_STUCK_AFTER, OPTION_MINUTE };

static const struct option options[] = {
	{ "config", required_argument, NULL, 'c' },
	{ "check", optional_argument, NULL, OPTION_CHECK },
	{ "proc-root", required_argument, NULL, OPTION_PROC_ROOT },
	{ "cgroup-root", required_argument, NULL, OPTION_CGROUP_ROOT },
	{ "verbose", no_argument, NULL, 'v' },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, OPTION_VERSION },
	{ "stuck-after", required_argument, NULL, OPTION_STUCK_AFTER }, /* for tests: config_file.stuck_ns */
	{ "minute", required_argument, NULL, OPTION_MINUTE },           /* the same: config_file.minute_ns */
	{ NULL, 0, NULL, 0 },
};

/* Only the default file has drop-ins. */
static void name_file(struct request *request, const char *file)
{
	request->file.path = file;
	request->file.dropins = NULL;
	request->file.or_builtin = false;
}

/* -1: go on; else the exit code. */
static int parse(int argc, char **argv, struct request *request)
{
	int option;

	while ((option = getopt_long(argc, argv, "c:vh", options, NULL)) != -1) {
		switch (option) {
		case 'c':
			name_file(request, optarg);
			break;
		case OPTION_CHECK:
			request->check = true;
			if (optarg)
				name_file(request, optarg);
			break;
		case OPTION_PROC_ROOT:
			request->file.proc_root = optarg;
			break;
		case OPTION_CGROUP_ROOT:
			request->file.cgroup_root = optarg;
			break;
		case 'v':
			request->verbose = true;
			break;
		case 'h':
			print_help();
			return 0;
		case OPTION_STUCK_AFTER:
			if (units_duration(optarg, strlen(optarg), &request->file.stuck_ns) < 0)
				return EX_USAGE;
			break;
		case OPTION_MINUTE:
			if (units_duration(optarg, strlen(optarg), &request->file.minute_ns) < 0)
				return EX_USAGE;
			break;
		case OPTION_VERSION:
			printf("spikewatchd %s\n", SPIKEWATCH_VERSION);
			return 0;
		default:
			fprintf(stderr, "spikewatchd: see spikewatchd --help\n");
			return EX_USAGE;
		}
	}

	if (request->check && optind == argc - 1)
		name_file(request, argv[optind++]);
	if (optind < argc) {
		fprintf(stderr, "spikewatchd: unexpected argument %s; see spikewatchd --help\n", argv[optind]);
		return EX_USAGE;
	}

	return -1;
}

/* It may go on without, as it did before there was a filter; the unit has one, too. */
static void forbid_the_rest(void)
{
	int r = sandbox_recorder(0);

	if (r < 0)
		log_line(LOG_WARNING, "system calls that are not needed cannot be forbidden: %s", strerror(-r));
}

/*
 * Files with command lines and stacks are for this user alone, unless the umask says that the group
 * may read and others may not, as the unit has it (UMask=0027): a shell's usual 022 asks for nothing.
 */
static void restrict_files(void)
{
	mode_t mask = umask(077);

	if ((mask & S_IRWXO) == S_IRWXO)
		umask(mask);
}

int main(int argc, char **argv)
{
	struct request request = { .file = { .path = PATHS_CONFIG, .dropins = PATHS_DROPINS, .or_builtin = true } };
	char message[CONFIG_FILE_MESSAGE_MAX];
	struct config *config;
	int code = parse(argc, argv, &request), r, begun = 0;

	if (code >= 0)
		return code;

	restrict_files();
	if (!request.check)
		begun = children_begin(); /* as early as can be: it keeps the memory that there is by now */
	log_open("spikewatchd", &(struct log_options){ .verbose = request.verbose });
	if (!request.check)
		forbid_the_rest();
	if (begun < 0)
		log_line(LOG_WARNING, "commands and the symboliser cannot be started: %s", strerror(-begun));
	r = config_file_load(&request.file, &config, message);
	if (r < 0) {
		log_line(LOG_ERR, "%s", message);
		return r == -EINVAL ? EX_CONFIG : EXIT_FAILURE;
	}
	bool builtin = config_file_is_builtin(&request.file);

	if (!request.check && builtin)
		log_line(LOG_NOTICE, "there is no %s: running with the built-in configuration", request.file.path);
	size_t doubts = log_doubts(config);

	if (!request.check)
		return daemon_run(&request.file, config) < 0 ? EXIT_FAILURE : 0;
	/* Of a process in a container the path is that of the container. */
	for (size_t i = 0; i < config->target_count; i++) {
		const struct config_target *target = &config->targets[i];

		if (target->selector == CONFIG_EXE && strpbrk(target->pattern, "*?[\\") == NULL &&
		    access(target->pattern, F_OK) < 0 && errno == ENOENT)
			log_line(LOG_WARNING, "target entry %s: there is no %s, unless in a container", target->name,
				 target->pattern);
	}

	printf("%s: good: %zu target entries, %zu rules", builtin ? "the built-in configuration" : request.file.path,
	       config->target_count, config->rule_count);
	if (doubts > 0)
		printf("; %zu of the entries cannot match anything", doubts);
	putchar('\n');
	config_free(config);

	return 0;
}
