/*
 * topwatch.c: the daemon is not asked anything. Where its ring is and which configuration it has is found as far as anybody can see it: by
 * default places, and by the command line of the process whose pid is in the ring.
 *
 * A new ring is a new world: numbers of targets begin anew, so the table does. A new configuration is judged from the past on again, and
 * the peaks stay: reading the same samples twice does not raise them.
 */
#include "topwatch.h"

#include "cglimits.h"
#include "options.h"
#include "output.h"
#include "procread.h"
#include "scope.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define DEFAULT_CONFIG "/etc/spikewatch/spikewatch.json"
#define DEFAULT_DROPINS "/etc/spikewatch/spikewatch.d"
#define SYSTEM_RING "/run/spikewatch/ring"

#define LOOK_INTERVAL_NS NS_PER_S

/* Cgroups are looked at this often unless the configuration says another time. */
#define CGROUP_INTERVAL_NS (100 * NS_PER_MS)

static const struct config nothing = { .ring.path = "", .incidents.directory = "", .state_file = "" };

/* ---- places ---- */

static void add_place(struct topwatch *watch, const char *path)
{
	for (size_t i = 0; i < watch->places; i++)
		if (strcmp(watch->place[i], path) == 0)
			return;
	if (watch->places < TOPWATCH_PLACES)
		snprintf(watch->place[watch->places++], PATHS_MAX, "%s", path);
}

static void set_file(struct topwatch *watch, const char *path, const char *dropins)
{
	snprintf(watch->config_path, PATHS_MAX, "%s", path);
	watch->file = (struct configfile){ .path = watch->config_path, .dropins = dropins };
}

/* A configuration that was named must be good. */
static int add_place_of_config(struct topwatch *watch, char *message)
{
	struct config *config;
	struct paths paths;
	int r = configfile_load(&watch->file, &config, message);

	if (r < 0)
		return r;
	if ((watch->config_given || *config->ring.path) && paths_choose(config, &paths) == 0)
		add_place(watch, paths.ring);
	config_free(config);
	return 0;
}

static int find_places(struct topwatch *watch, const char *ring, char *message)
{
	struct paths paths;
	int r = ring ? 0 : add_place_of_config(watch, message);

	if (ring)
		add_place(watch, ring);
	if (r < 0 && watch->config_given)
		return r;
	if (ring || watch->config_given)
		return 0;
	if (paths_choose(&nothing, &paths) == 0)
		add_place(watch, paths.ring);
	add_place(watch, SYSTEM_RING);
	return 0;
}

int topwatch_init(struct topwatch *watch, const char *ring, const char *config, char *message)
{
	AUTO_CLOSE int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r;

	*watch = (struct topwatch){ .config_given = config, .table.cgroup_read_ns = CGROUP_INTERVAL_NS };
	if (config && strlen(config) >= PATHS_MAX) {
		snprintf(message, CONFIGFILE_MESSAGE_MAX, "%s", strerror(ENAMETOOLONG));
		return -ENAMETOOLONG;
	}
	set_file(watch, config ? config : DEFAULT_CONFIG, config ? NULL : DEFAULT_DROPINS);
	r = procfd < 0 ? -errno : cglimits_machine(procfd, "", &watch->machine);
	if (r < 0) {
		snprintf(message, CONFIGFILE_MESSAGE_MAX, "/proc: %s", strerror(-r));
		return r;
	}
	return find_places(watch, ring, message);
}

void topwatch_release(struct topwatch *watch)
{
	topfeed_release(&watch->feed);
	toptable_release(&watch->table);
	toprules_free(watch->rules);
	watch->rules = NULL;
}

/* ---- the configuration that the daemon has ---- */

/* The value of -c in a command line whose words end with NUL. NULL: there is none. */
static const char *config_in(const char *words, size_t len)
{
	const char *end = words + len, *found = NULL;

	for (const char *word = words; word < end; word += strlen(word) + 1) {
		const char *next = word + strlen(word) + 1;

		if ((strcmp(word, "-c") == 0 || strcmp(word, "--config") == 0) && next < end)
			found = next;
		else if (strncmp(word, "--config=", 9) == 0)
			found = word + 9;
		else if (strncmp(word, "-c", 2) == 0 && word[2])
			found = word + 2;
	}
	return found;
}

/* A relative name is one in the directory that the daemon works in. */
static void set_file_of_daemon(struct topwatch *watch, int procfd, int32_t pid, const char *path)
{
	char directory[PATHS_MAX], whole[PATHS_MAX];
	ssize_t len = *path == '/' ? 0 : procread_link(procfd, pid, "cwd", directory, sizeof(directory));

	if (len < 0)
		return;
	if (snprintf(whole, sizeof(whole), "%s%s%s", len ? directory : "", len ? "/" : "", path) < (int)sizeof(whole))
		set_file(watch, whole, NULL);
}

static void find_config(struct topwatch *watch)
{
	AUTO_CLOSE int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char words[8192];
	const char *path;
	struct ring_info info;
	ssize_t len;

	if (watch->config_given)
		return;
	set_file(watch, DEFAULT_CONFIG, DEFAULT_DROPINS);
	topfeed_info(&watch->feed, &info);
	if (procfd < 0 || info.pid <= 0 || !procread_is_alive(info.pid, info.start_ticks))
		return;
	len = procread_file(procfd, info.pid, "cmdline", words, sizeof(words));
	path = len > 0 ? config_in(words, (size_t)len) : NULL;
	if (path)
		set_file_of_daemon(watch, procfd, info.pid, path);
}

/* Without rules there still are figures. One that is bad now is what the daemon would refuse too: the rules stay. */
static int load_rules(struct topwatch *watch)
{
	struct toprules *rules = NULL;
	int r;

	watch->signature = toprules_signature(&watch->file);
	r = toprules_new(&watch->file, &watch->machine, &rules, watch->bad_config);
	if (r == -ENOMEM)
		return r;
	if (rules) {
		*watch->bad_config = '\0';
		toptable_judge_begin(&watch->table);
		toprules_free(watch->rules);
		watch->rules = rules;
		watch->table.cgroup_read_ns = toprules_config(rules)->sampling.cgroup_interval_ns;
	}
	return watch->rules ? toprules_begin(watch->rules) : 0;
}

/* ---- rings ---- */

static uint64_t span(const struct topwatch *watch)
{
	uint64_t least = (TOPTABLE_SECONDS + 1) * NS_PER_S, rules = watch->rules ? toprules_span_ns(watch->rules) : 0;

	return rules > least ? rules : least;
}

/* From the past on, with the rules that there are now. */
static int begin(struct topwatch *watch)
{
	struct topfeed *feed = &watch->feed;
	ino_t before = feed->ino;
	int r = load_rules(watch);

	if (r < 0)
		return r;
	r = topfeed_attach(feed, span(watch));
	if (r < 0)
		return r;
	/* A daemon that started at this very moment has begun to number targets anew. */
	if (feed->ino != before)
		toptable_release(&watch->table);
	toptable_rewind(&watch->table);
	return 0;
}

/* The first place where there is a ring. What goes wrong with a ring is in place_error. 0 or -ENOMEM. */
static int attach(struct topwatch *watch)
{
	for (size_t i = 0; i < watch->places; i++) {
		int r;

		watch->feed.path = watch->place[i];
		watch->place_error[i] = topfeed_attach(&watch->feed, 0);
		if (watch->place_error[i] == -ENOMEM)
			return -ENOMEM;
		if (watch->place_error[i] < 0)
			continue;
		find_config(watch);
		toptable_release(&watch->table);
		toprules_free(TAKE(watch->rules));
		watch->table.cgroup_read_ns = CGROUP_INTERVAL_NS;
		watch->since = (wall_t){ 0 };
		r = begin(watch);
		return r == -ENOMEM ? r : 0;
	}
	return 0;
}

/* A ring that has just been made may not be attached yet; then the next look does it. */
static int look(struct topwatch *watch)
{
	struct topfeed *feed = &watch->feed;
	int r = 0;

	if (!feed->ring)
		return attach(watch);
	if (topfeed_replaced(feed)) {
		topfeed_release(feed);
		return attach(watch);
	}
	if (toprules_signature(&watch->file) != watch->signature)
		r = begin(watch);
	return r == -ENOMEM ? r : 0;
}

/* ---- reading ---- */

static int take(void *ctx, const struct ring_event *event)
{
	struct topwatch *watch = ctx;
	struct toptable *table = &watch->table;
	int r = watch->rules ? toprules_event(watch->rules, event) : 0;

	if (r < 0)
		return r;
	if (event->type != RING_EVENT_LAPPED && event->type != RING_EVENT_DAMAGED)
		toptable_writer(table, event->writer);
	switch (event->type) {
	case RING_EVENT_TICK:
		if (watch->since.ns == 0)
			watch->since = event->wall;
		table->idle_ns = event->idle_ns;
		break;
	case RING_EVENT_SAMPLE:
		toptable_sample(table, event->id, event->time, event->sample);
		break;
	case RING_EVENT_TARGET:
		return toptable_target(table, &event->target);
	case RING_EVENT_GONE:
		toptable_gone(table, event->id, event->time);
		break;
	case RING_EVENT_TICK_END:
		toptable_tick(table, watch->feed.tick);
		break;
	case RING_EVENT_LAPPED:
	case RING_EVENT_DAMAGED:
		toptable_gap(table);
		break;
	}
	return 0;
}

int topwatch_update(struct topwatch *watch, mono_t now)
{
	int r = 0;

	if (!watch->has_looked || mono_diff(now, watch->looked) >= (int64_t)LOOK_INTERVAL_NS) {
		watch->looked = now;
		watch->has_looked = true;
		r = look(watch);
	}
	if (r == 0)
		r = topfeed_poll(&watch->feed, take, watch);
	if (r == 0 && watch->rules && watch->feed.wall.ns > 0)
		toprules_judge(watch->rules, watch->feed.wall, &watch->table);
	return r;
}

/* ---- words ---- */

static const char *advice(int error)
{
	switch (error) {
	case -ENOENT:
		return "No daemon has made a ring there. Start one: systemctl start spikewatchd, or for yourself\n"
		       "spikewatchd -c FILE. One whose ring is elsewhere: --ring FILE, or -c with its configuration.";
	case -EACCES:
	case -EPERM:
		return "Ask as root, as the user of the daemon, or as a member of the group spikewatch.";
	case -EBADMSG:
		return "The file is damaged, or of another version of spikewatch. A daemon that starts makes a new "
		       "one.";
	default:
		return NULL;
	}
}

int topwatch_explain(const struct topwatch *watch, const char *prefix, FILE *file)
{
	const char *what = NULL;
	bool bad = false;

	for (size_t i = 0; i < watch->places; i++) {
		int error = watch->place_error[i];

		fputs(prefix, file);
		output_escaped(file, watch->place[i]);
		fprintf(file, ": %s\n", error == -EBADMSG ? "not a ring that can be read" : strerror(-error));
		bad |= error == -EBADMSG;
		/* What can be done about a ring that is there says more. */
		if (!what || error != -ENOENT)
			what = advice(error);
	}
	if (what)
		fprintf(file, "%s\n", what);
	return bad ? EXIT_USAGE : EXIT_TROUBLE;
}

static bool state_note(const struct topwatch *watch, mono_t now, char *buf)
{
	struct ring_info info;

	switch (topfeed_state(&watch->feed, now, procread_is_alive)) {
	case TOPFEED_LIVE:
		return false;
	case TOPFEED_ABSENT:
		snprintf(buf, TOPWATCH_NOTE_MAX, "%s; waiting for a daemon to make one",
			 watch->feed.error == -EBADMSG ? "the ring is damaged, or of another version"
						       : "there is no ring any more");
		return true;
	case TOPFEED_SILENT:
		topfeed_info(&watch->feed, &info);
		snprintf(buf, TOPWATCH_NOTE_MAX, "the daemon has written nothing for %.0f s",
			 (double)mono_diff(now, info.last_tick) / 1e9);
		return true;
	case TOPFEED_STOPPED:
		snprintf(buf, TOPWATCH_NOTE_MAX, "the daemon has stopped; waiting for the next one");
		return true;
	case TOPFEED_KILLED:
		snprintf(buf, TOPWATCH_NOTE_MAX, "the daemon is gone, without a goodbye; waiting for the next one");
		return true;
	}
	return false;
}

bool topwatch_note(const struct topwatch *watch, mono_t now, size_t index, char *buf)
{
	const struct topfeed *feed = &watch->feed;

	if (state_note(watch, now, buf) && index-- == 0)
		return true;
	if (feed->damaged_pages > 0 && index-- == 0) {
		snprintf(buf, TOPWATCH_NOTE_MAX, "%ju pages of the ring are damaged; what they held is missing",
			 (uintmax_t)feed->damaged_pages);
		return true;
	}
	if (feed->lost_pages > 0 && index-- == 0) {
		snprintf(buf, TOPWATCH_NOTE_MAX, "%ju pages of the ring were overwritten before they were read here",
			 (uintmax_t)feed->lost_pages);
		return true;
	}
	if (watch->table.left_out > 0 && index-- == 0) {
		snprintf(buf, TOPWATCH_NOTE_MAX, "more than %u targets; %ju are left out", TOPTABLE_TARGETS_MAX,
			 (uintmax_t)watch->table.left_out);
		return true;
	}
	if (*watch->bad_config && index-- == 0) {
		snprintf(buf, TOPWATCH_NOTE_MAX, "%s: %s", watch->rules ? "rules as before a change" : "no rules",
			 watch->bad_config);
		return true;
	}
	return false;
}
