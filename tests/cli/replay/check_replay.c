/*
 * check_replay.c: spikewatch replay as it is run: over what a real daemon recorded, in the ring and
 * in incidents; over recordings that are whole, damaged or none; and what it says of wrong usage.
 */
#include "lib/incident/incident.h"
#include "lib/base/json.h"
#include "program.h"
#include "ring_fixture.h"
#include "skip.h"
#include "lib/ring/ring.h"
#include "lib/base/base.h"
#include "lib/model/target.h"
#include "lib/rules/metric.h"

#include <dirent.h>
#include <sys/mman.h>

Suite *replay_suite(void);

static char directory[64], spikewatch[512], spikewatchd[512], config_path[128], ring_path[128], incidents[128],
	out_path[128];
static bool built;

#define NOT_BUILT "spikewatch and spikewatchd are not below $SPIKEWATCH_BUILD"

static void setup(void)
{
	scene_directory(directory);
	snprintf(config_path, sizeof(config_path), "%s/config.json", directory);
	snprintf(ring_path, sizeof(ring_path), "%s/ring", directory);
	snprintf(incidents, sizeof(incidents), "%s/incidents", directory);
	snprintf(out_path, sizeof(out_path), "%s/out", directory);
	built = program_find("spikewatch", spikewatch) && program_find("spikewatchd", spikewatchd);
}

static void teardown(void)
{
	scene_remove(directory);
}

#define REPLAY(...) \
	replay((const char *const[]){ spikewatch, "replay", "-c", config_path, __VA_ARGS__ __VA_OPT__(, ) NULL })

/* Runs it to its end: its exit code. What it prints is in out_path. */
static char err_path[160]; /* what the last one wrote to stderr */

static int replay(const char *const *arguments)
{
	int out = open(out_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct program program = program_start(arguments, directory, out, 0);

	close(out);
	snprintf(err_path, sizeof(err_path), "%s", program.err);

	return program_wait(&program);
}

/* Where a note is broken into lines depends on what else it says. */
static void printed(const char *part)
{
	AUTO_FREE char *text = scene_read(out_path);

	for (char *at = text; at && (at = strchr(at, '\n'));)
		*at = ' ';
	ck_assert_msg(text && strstr(text, part), "expected \"%s\" in: %.3000s", part, text ? text : "nothing");
}

/* extra: more of "sampling". Without stacks, which nothing is decided by. */
static void configure(pid_t pid, const char *extra)
{
	scene_write(
		config_path,
		"{\"sampling\": {\"interval\": \"5ms\", \"rescan_interval\": \"100ms\", \"cpu_budget\": \"100%%\"%s},\n"
		"\"ring\": {\"path\": \"%s\", \"size\": \"32MiB\", \"lock\": false},\n"
		"\"incidents\": {\"directory\": \"%s\", \"before\": \"2s\", \"after\": \"300ms\", \"min_free\": "
		"\"0B\"},\n"
		"\"state_file\": \"%s/state.json\", \"stacks\": \"off\",\n"
		"\"targets\": [{\"name\": \"burner\", \"pid\": %d}, {\"name\": \"us\", \"pid\": %d}],\n"
		"\"rules\": [\n"
		"{\"name\": \"hot\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": \"100ms\", \"percent\": 5, "
		"\"warmup\": 1, "
		"\"cooldown\": \"500ms\"},\n"
		"{\"name\": \"held\", \"metric\": \"cpu\", \"window\": \"50ms\", \"percent\": 2, \"warmup\": 0, "
		"\"for\": "
		"\"100ms\", \"cooldown\": \"0s\", \"count\": 4},\n"
		"{\"name\": \"jump\", \"metric\": \"memory_bytes\", \"window\": \"50ms\", \"delta\": 60, \"warmup\": "
		"2, "
		"\"minimum\": \"4MiB\", \"cooldown\": \"100ms\"},\n"
		"{\"name\": \"many\", \"metric\": \"threads\", \"window\": \"50ms\", \"above\": 1, \"maximum\": 3, "
		"\"warmup\": 0, "
		"\"rearm\": \"below\", \"cooldown\": \"200ms\"} ] }\n",
		extra, ring_path, incidents, directory, pid, getpid());
}

/* "hot burner/12 93.8%": what a daemon says of a firing, and a replay too, in their own words. */
struct firings {
	char line[512][200];
	size_t count;
};

static int compare_lines(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* The daemon: "rule NAME fired on TARGET: METRIC is VALUE ...". */
static void read_log(const char *path, struct firings *ret)
{
	AUTO_FREE char *text = scene_read(path);

	ret->count = 0;
	ck_assert_ptr_nonnull(text);
	for (char *at = text; (at = strstr(at, "rule ")) != NULL; at++) {
		char rule[64], target[64], metric[64];
		int len = 0;

		if (sscanf(at, "rule %63s fired on %63[^:]: %63s is %n", rule, target, metric, &len) < 3 || len == 0)
			continue;
		const char *value = at + len;

		ck_assert_uint_lt(ret->count, ARRAY_LEN(ret->line));
		snprintf(ret->line[ret->count++], sizeof(ret->line[0]), "%s %s %.*s", rule, target,
			 (int)strcspn(value, ",>\n") - (value[strcspn(value, ",>\n")] == '>'), value);
	}
}

/* The replay: "WHEN  RULE  TARGET  VALUE > ...". */
static void read_replay(struct firings *ret)
{
	AUTO_FREE char *text = scene_read(out_path);

	ret->count = 0;
	ck_assert_ptr_nonnull(text);
	for (char *line = text, *next; line; line = next) {
		char rule[64], target[64];
		int len = 0;

		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		if (strncmp(line, "20", 2) != 0 || sscanf(line, "%*s %*s %63s %63s %n", rule, target, &len) < 2 ||
		    len == 0)
			continue;
		const char *end = strstr(line + len, " >");

		ck_assert_ptr_nonnull(end);
		ck_assert_uint_lt(ret->count, ARRAY_LEN(ret->line));
		snprintf(ret->line[ret->count++], sizeof(ret->line[0]), "%s %s %.*s", rule, target,
			 (int)(end - line) - len, line + len);
	}
}

static unsigned long long number(const struct json_node *object, const char *key)
{
	const struct json_node *node = json_member(object, key);

	ck_assert_msg(node && node->type == JSON_NUMBER, "%s", key);

	return strtoull(node->text, NULL, 10);
}

/*
 * Whether a replay as JSON has exactly this firing: to the nanosecond, and the value as far as it
 * is written.
 */
static bool has_firing(const struct json_node *firings, const struct incident *incident)
{
	for (const struct json_node *at = firings->first; at; at = at->next) {
		if (number(at, "wall") != incident->wall.ns || number(at, "mono") != incident->mono.ns ||
		    strcmp(json_member(at, "rule")->text, incident->rule.name) != 0 ||
		    strcmp(json_member(at, "target")->text, incident->target.name) != 0)
			continue;
		ck_assert_double_eq_tol(json_member(at, "value")->number, incident->rule.value, 1e-6);
		ck_assert_uint_eq(number(at, "window_ns"),
				  (uint64_t)mono_diff(incident->window_to, incident->window_from));
		ck_assert_str_eq(json_member(at, "reason")->text, incident->rule.reason);

		return true;
	}

	return false;
}

/* Every incident that the daemon wrote is a firing of the replay. How many. */
static unsigned expect_incidents(void)
{
	AUTO_FREE char *text = scene_read(out_path);
	struct json_document *document;
	DIR *dir = opendir(incidents);
	unsigned count = 0;

	ck_assert_ptr_nonnull(dir);
	ck_assert_int_eq(json_parse(text, strlen(text), NULL, &document, NULL), 0);
	const struct json_node *firings = json_member(json_member(json_root(document), "sources")->first, "firings");

	for (struct dirent *item; (item = readdir(dir));) {
		static struct incident incident;

		if (item->d_name[0] == '.')
			continue;
		AUTO_CLOSE int fd = openat(dirfd(dir), item->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		ck_assert_int_eq(incident_json_read(fd, &incident), 0);
		ck_assert_msg(has_firing(firings, &incident), "%s was not replayed", item->d_name);
		count++;
	}
	closedir(dir);
	json_document_free(document);

	return count;
}

#define STOPPED_NS (2 * NS_PER_S)

/* What becomes of the daemon for a while, when everything has fired. */
enum pause { PAUSE_NONE, PAUSE_STOPPED, PAUSE_SUSPENDED };

#define SUSPENDED_NS (2 * 3600 * NS_PER_S)

/* The word that clock_ahead.so looks at, which the next program is to be started with. */
static volatile uint64_t *clock_ahead(void)
{
	char path[160], library[512];
	uint64_t *ahead_ns;

	snprintf(path, sizeof(path), "%s/ahead", directory);
	AUTO_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	ck_assert_int_eq(ftruncate(fd, sizeof(*ahead_ns)), 0);
	ahead_ns = mmap(NULL, sizeof(*ahead_ns), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(ahead_ns, MAP_FAILED);
	ck_assert(program_find("clock_ahead.so", library));
	setenv("LD_PRELOAD", library, 1);
	setenv("CLOCK_AHEAD", path, 1);
	return ahead_ns;
}

/* How often any rule has fired, as its log says. */
static unsigned count_fired(const struct program *program)
{
	AUTO_FREE char *text = scene_read(program->err);
	unsigned count = 0;

	for (const char *at = text; at && (at = strstr(at, " fired on ")); at++)
		count++;
	return count;
}

#define FIRED 6u

/* Runs a daemon over a process that burns, grows and threads; its log is left in log_path. */
static void run_daemon(const char *extra, enum pause pause, char log_path[160])
{
	volatile uint64_t *ahead_ns = pause == PAUSE_SUSPENDED ? clock_ahead() : NULL;
	struct actor actor = actor_start("scene-replay");
	unsigned fired;

	configure(actor.pid, extra);
	struct program program =
		program_start((const char *const[]){ spikewatchd, "-c", config_path, NULL }, directory, -1, 0);

	unsetenv("LD_PRELOAD");
	scene_wait_for(scene_says(program.err, "watching 2 targets") || waitpid(program.pid, NULL, WNOHANG) != 0);
	for (int naps = 0; naps < 150; naps++)
		scene_nap();
	actor_do(&actor, 'm', "");
	actor_do(&actor, 'b', "hot-thread");
	scene_wait_for(scene_says(program.err, "rule hot fired") && scene_says(program.err, "rule jump fired") &&
		       scene_says(program.err, "rule held fired") && scene_says(program.err, "rule many fired"));
	if (ahead_ns)
		*ahead_ns = SUSPENDED_NS;
	if (pause == PAUSE_STOPPED) {
		kill(program.pid, SIGSTOP);
		nanosleep(&(struct timespec){ .tv_sec = STOPPED_NS / NS_PER_S }, NULL);
		kill(program.pid, SIGCONT);
	}
	fired = count_fired(&program);
	for (int naps = 0; naps < 500; naps++)
		scene_nap();
	/* Something fires after the pause, too, if it has not by now. */
	scene_wait_for(count_fired(&program) > fired && count_fired(&program) >= FIRED);
	kill(program.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&program), 0);
	actor_end(&actor);
	snprintf(log_path, 160, "%s/daemon.log", directory);
	ck_assert_int_eq(rename(program.err, log_path), 0);
}

/* As the daemon has it that is told so in "sampling". */
static void expect_same_decisions(const char *extra, enum pause pause)
{
	static struct firings real, replayed;
	char log_path[160];

	run_daemon(extra, pause, log_path);
	ck_assert_int_eq(REPLAY(ring_path), 0);
	read_log(log_path, &real);
	read_replay(&replayed);
	qsort(real.line, real.count, sizeof(real.line[0]), compare_lines);
	qsort(replayed.line, replayed.count, sizeof(replayed.line[0]), compare_lines);
	ck_assert_uint_ge(real.count, FIRED);
	for (size_t i = 0; i < real.count && i < replayed.count; i++)
		ck_assert_str_eq(replayed.line[i], real.line[i]);
	ck_assert_uint_eq(replayed.count, real.count);

	ck_assert_int_eq(REPLAY("--json"), 0); /* the ring of the configuration */
	ck_assert_uint_ge(expect_incidents(), 2);
	ck_assert_int_eq(REPLAY("last", "-s"), 0);
	printed(": incident, ");
}

START_TEST(a_replay_decides_as_the_daemon_did)
{
	if (!built)
		SKIP_TEST(NOT_BUILT);
	expect_same_decisions("", PAUSE_NONE);
}
END_TEST

/* ---- a daemon that is stopped for a while ---- */

#define RUN(...) replay((const char *const[]){ spikewatch, __VA_ARGS__, NULL })

/* The path of an incident whose samples have the hole, or the suspend. */
static void find_incident_with_hole(char ret[400], struct incident *ret_incident)
{
	DIR *dir = opendir(incidents);
	bool found = false;

	ck_assert_ptr_nonnull(dir);
	for (struct dirent *item; !found && (item = readdir(dir));) {
		AUTO_CLOSE int fd = openat(dirfd(dir), item->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		found = item->d_name[0] != '.' && incident_json_read(fd, ret_incident) == 0 &&
			(ret_incident->coverage.longest_hole_ns >= STOPPED_NS / 2 ||
			 ret_incident->coverage.suspends > 0);
		snprintf(ret, 400, "%s/%s", incidents, item->d_name);
	}
	closedir(dir);
	ck_assert_msg(found, "no incident tells of the hole");
}

/* The replay is of the firing whose window lies in the hole. */
static void expect_unsampled_window(void)
{
	AUTO_FREE char *text = scene_read(out_path);
	struct json_document *document;
	unsigned count = 0;

	ck_assert_int_eq(json_parse(text, strlen(text), NULL, &document, NULL), 0);
	const struct json_node *firings = json_member(json_member(json_root(document), "sources")->first, "firings");

	for (const struct json_node *at = firings->first; at; at = at->next) {
		unsigned long long all = number(at, "window_ns"), unsampled = number(at, "window_unsampled_ns");

		ck_assert_uint_le(unsampled, all);
		count += unsampled > STOPPED_NS / 2;
	}
	json_document_free(document);
	ck_assert_uint_ge(count, 1);
}

/* The highest of a row of numbers; what is null is passed over, and counted. */
static double highest(const struct json_node *array, unsigned *ret_nulls)
{
	double most = 0;

	*ret_nulls = 0;
	for (const struct json_node *at = array->first; at; at = at->next) {
		*ret_nulls += at->type == JSON_NULL;
		if (at->type == JSON_NUMBER && at->number > most)
			most = at->number;
	}
	return most;
}

/* All that ran is no more than the machine has; columns in the hole have no value. */
static void expect_no_spike(void)
{
	AUTO_FREE char *text = scene_read(out_path);
	const double most = 110.0 * (double)sysconf(_SC_NPROCESSORS_ONLN);
	struct json_document *document;
	unsigned unknown;

	ck_assert_int_eq(json_parse(text, strlen(text), NULL, &document, NULL), 0);
	const struct json_node *series = json_member(json_root(document), "series");
	const struct json_node *cpu = json_member(series, "cpu_percent"), *holes = json_member(series, "holes");
	double longest = 0;

	ck_assert_ptr_nonnull(strstr(json_member(json_root(document), "summary")->text, " The sampling has "));
	if (!cpu)
		cpu = json_member(series, "cpu_cores");
	ck_assert_double_le(highest(json_member(cpu, "peak"), &unknown), most);
	ck_assert_uint_ge(unknown, 5);
	ck_assert_double_le(highest(json_member(cpu, "mean"), &unknown), most);
	for (const struct json_node *at = holes->first; at; at = at->next) {
		double length = json_member(at, "to_ns")->number - json_member(at, "from_ns")->number;

		longest = length > longest ? length : longest;
	}
	ck_assert_double_ge(longest, STOPPED_NS / 2);
	json_document_free(document);
}

/* A row of the export as csv says that the time before it was not sampled; or, if none followed, the command does. */
static void expect_unsampled_row(void)
{
	AUTO_FREE char *text = scene_read(out_path), *said = scene_read(err_path);
	long long most = 0;

	ck_assert_ptr_nonnull(strstr(text, ",unsampled_before[ns]\r\n"));
	for (const char *at = text; (at = strstr(at, "\r\n")) != NULL; at += 2) {
		const char *last = at;

		while (last > text && last[-1] != ',')
			last--;
		most = strtoll(last, NULL, 10) > most ? strtoll(last, NULL, 10) : most;
	}
	ck_assert_msg(most >= (long long)STOPPED_NS / 2 || strstr(said, "which no row tells of"), "%lld: %s", most,
		      said);
}

START_TEST(a_daemon_that_was_stopped_leaves_a_hole_and_no_spike)
{
	static struct incident incident;
	char path[400];

	if (!built)
		SKIP_TEST(NOT_BUILT);
	expect_same_decisions("", PAUSE_STOPPED);
	ck_assert_int_eq(REPLAY("--json", ring_path), 0);
	expect_unsampled_window();

	find_incident_with_hole(path, &incident);
	ck_assert_uint_ge(incident.coverage.holes, 1);
	ck_assert_uint_ge(incident.coverage.gaps, incident.coverage.holes);
	ck_assert_uint_ge(incident.coverage.missed_slots, STOPPED_NS / 2 / (5 * NS_PER_MS));
	ck_assert_uint_ge(incident.coverage.unsampled_ns, STOPPED_NS / 4);
	ck_assert_int_eq(RUN("show", "--full", path), 0);
	printed("no samples");
	ck_assert_int_eq(RUN("show", "--json", path), 0);
	expect_no_spike();
	ck_assert_int_eq(RUN("verify", path), 0);
	printed(": whole, ");
	printed("; but the sampling has ");
	ck_assert_int_eq(RUN("verify", "--json", path), 0);
	printed("\"missed_slots\": ");
	ck_assert_int_eq(RUN("export", "--format", "json", path), 0);
	printed("\"holes\":[{\"from_ns\":");
	ck_assert_int_eq(RUN("export", "--format", "csv", path), 0);
	expect_unsampled_row();
	ck_assert_int_eq(RUN("export", "--format", "perfetto", path), 0);
	printed("no samples: CPU is the average");
	ck_assert_int_eq(RUN("export", "--format", "firefox", path), 0);
	printed("no samples: CPU is the average");
	ck_assert_int_eq(RUN("diff", path, path), 0);
	printed("Note: B: the sampling has ");
	ck_assert_int_eq(RUN("replay", "-c", config_path, "-s", path), 0);
	printed(" of the sampling (");
}
END_TEST

/* What wall[ns] of the first and of the last row are apart, and since_firing[ns]. */
static void read_csv_span(int64_t *ret_wall_ns, int64_t *ret_ns)
{
	AUTO_FREE char *text = scene_read(out_path);
	long long first[2], last[2];
	char *row = strstr(text, "\r\n");

	ck_assert_ptr_nonnull(row);
	ck_assert_int_eq(sscanf(row + 2, "%lld,%lld,", &first[0], &first[1]), 2);
	text[strlen(text) - 2] = '\0';
	ck_assert_int_eq(sscanf(strrchr(text, '\n') + 1, "%lld,%lld,", &last[0], &last[1]), 2);
	*ret_ns = last[0] - first[0];
	*ret_wall_ns = last[1] - first[1];
}

START_TEST(a_suspend_of_the_machine_is_told_everywhere)
{
	static struct incident incident;
	char path[400], preload[512];
	int64_t wall_ns, ns;

	if (!built || !program_find("clock_ahead.so", preload))
		SKIP_TEST("clock_ahead.so is not below $SPIKEWATCH_BUILD");
	expect_same_decisions("", PAUSE_SUSPENDED);
	ck_assert_int_eq(REPLAY("-s", ring_path), 0);
	printed(", the machine suspended for 2 h");

	find_incident_with_hole(path, &incident);
	ck_assert_uint_eq(incident.coverage.suspends, 1);
	/* Less what passed between the readings of the two clocks, in which the program may not have run. */
	ck_assert_uint_le(incident.coverage.suspended_ns, SUSPENDED_NS + NS_PER_MS);
	ck_assert_uint_ge(incident.coverage.suspended_ns, SUSPENDED_NS - NS_PER_S);
	ck_assert_uint_lt(incident.coverage.unsampled_ns, 60 * NS_PER_S); /* a busy machine has holes of its own */
	ck_assert_int_eq(RUN("show", "--full", path), 0);
	printed("the machine was suspended for 2 h"); /* of the picture */
	ck_assert_int_eq(RUN("show", "--json", path), 0);
	printed("\"suspends\": 1");
	printed("The machine was suspended for 2 h, ");
	ck_assert_int_eq(RUN("verify", path), 0);
	printed(": whole, ");
	printed("the machine was suspended for 2 h");
	ck_assert_int_eq(RUN("diff", path, path), 0);
	printed("the machine was suspended for 2 h");
	ck_assert_int_eq(RUN("export", "--format", "json", path), 0);
	printed("\"suspended_ns\":7"); /* 7,200 s, or a little less */
	ck_assert_int_eq(RUN("export", "--format", "csv", path), 0);
	read_csv_span(&wall_ns, &ns);
	ck_assert_int_eq(wall_ns - ns, (int64_t)incident.coverage.suspended_ns);
	ck_assert_int_eq(RUN("export", "--format", "perfetto", path), 0);
	printed("the machine was suspended for 2 h");
	ck_assert_int_eq(RUN("export", "--format", "firefox", path), 0);
	printed("the machine was suspended for 2 h");
	ck_assert_int_eq(REPLAY("-s", path), 0);
	printed(", the machine suspended for 2 h");
}
END_TEST

static uint64_t writers_of_ring(void)
{
	struct ring_info info;
	struct ring *ring;

	ck_assert_int_eq(ring_open(AT_FDCWD, ring_path, false, &ring), 0);
	ring_info(ring, &info);
	ring_free(ring);

	return info.writers;
}

START_TEST(a_replay_decides_as_a_daemon_with_several_threads_did)
{
	if (!built)
		SKIP_TEST(NOT_BUILT);

	expect_same_decisions(", \"threads\": 3", PAUSE_NONE);
	ck_assert_uint_eq(writers_of_ring(), 3);
}
END_TEST

/* ---- recordings ---- */

static char recording[128];

/* Of a second, the process busy all the time: 10 windows. */
static void record(bool damaged)
{
	struct actor actor = actor_start("scene-replay");
	char pid[16];

	snprintf(recording, sizeof(recording), "%s/recording", directory);
	snprintf(pid, sizeof(pid), "%d", actor.pid);
	actor_do(&actor, 'b', "hot-thread");
	ck_assert_int_eq(
		program_run((const char *const[]){ spikewatch, "record", "-p", pid, "-d", "1s", "-o", recording, NULL },
			    directory),
		0);
	actor_end(&actor);
	if (!damaged)
		return;

	int fd = open(recording, O_WRONLY | O_CLOEXEC);

	ck_assert_int_eq(pwrite(fd, "?", 1, lseek(fd, 0, SEEK_END) / 2), 1);
	close(fd);
}

#define RULES \
	"{\"targets\": [{\"name\": \"job\", \"comm\": \"scene-replay\"}, {\"name\": \"other\", \"comm\": " \
	"\"none\"}],\n" \
	"\"rules\": [{\"name\": \"hot\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": \"100ms\", \"percent\": " \
	"1, \"warmup\": 0, " \
	"\"targets\": [\"job\"]},\n" \
	"{\"name\": \"other\", \"metric\": \"cpu\", \"percent\": 1, \"targets\": [\"other\"]} ] }\n"

START_TEST(a_recording_is_judged_and_tried_with_other_values)
{
	if (!built)
		SKIP_TEST(NOT_BUILT);

	record(false);
	scene_write(config_path, "%s", RULES);
	ck_assert_int_eq(
		REPLAY(recording, "--what-if", "hot.percent=0.5,5000;hot.cooldown=0s", "--suggest", "1,100000"), 0);
	printed("  hot  ");
	printed("other           not judged: no target of this rule was recorded");
	printed("What if: rule hot");
	printed("  percent 0.5                   1");
	printed("  percent 5000                  0          0  -");
	printed("Thresholds that fire so often");
	ck_assert_int_eq(REPLAY(recording, "--as", "other", "-s"),
			 0); /* no help: the name of the process selects it before */
	printed("other           not judged: no target of this rule was recorded");
}
END_TEST

START_TEST(a_damaged_recording_is_judged_with_a_warning)
{
	if (!built)
		SKIP_TEST(NOT_BUILT);

	record(true);
	scene_write(config_path, "%s", RULES);
	ck_assert_int_eq(REPLAY(recording), 1);
	printed("  hot  ");
	program_said(directory, "warning");
	program_said(directory, recording);
}
END_TEST

/* Two hundred ticks of one target; then a page in the middle is overwritten. */
static void write_ring(bool damaged)
{
	const struct ring_options options = { .size_bytes = 65 * 4096, .page_bytes = 4096, .interval_ns = NS_PER_MS };
	const char noise[64] = "noise";
	struct fixture_target target;
	struct ring_writer *writer;
	struct ring *ring;
	int fd;

	fixture_target_init(&target, 1);
	unlink(ring_path);
	ck_assert_int_eq(ring_create(AT_FDCWD, ring_path, &options, &ring), 0);
	ck_assert_int_eq(ring_writer_new(ring, &writer), 0);
	for (unsigned tick = 0; tick < 200; tick++)
		ck_assert_int_eq(fixture_tick(writer, &target, 1, tick), 0);
	ring_finish(ring);
	ring_writer_free(writer);
	ring_free(ring);
	if (!damaged)
		return;
	fd = open(ring_path, O_WRONLY | O_CLOEXEC);
	ck_assert_int_eq(pwrite(fd, noise, sizeof(noise), 2 * 4096 + 200), sizeof(noise));
	close(fd);
}

START_TEST(a_damaged_ring_is_judged_with_a_warning)
{
	if (!built)
		SKIP_TEST(NOT_BUILT);

	scene_write(config_path, "%s", RULES);
	write_ring(false);
	ck_assert_int_eq(REPLAY(ring_path), 0);
	write_ring(true);
	ck_assert_int_eq(REPLAY(ring_path), 1);
	program_said(directory, "a page of the ring is damaged");
	printed("hot ");
}
END_TEST

START_TEST(an_incident_is_judged_by_the_rule_that_it_recorded)
{
	char trapped[400], burn[200];

	if (!built)
		SKIP_TEST(NOT_BUILT);
	snprintf(trapped, sizeof(trapped), "%s/trapped", directory);
	snprintf(burn, sizeof(burn), "i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done");
	ck_assert_int_eq(program_run((const char *const[]){ spikewatch, "trap", "--stacks", "off", "--cpu", "3%",
							    "--for", "100ms", "--after", "0s", "-o", trapped, "--",
							    "sh", "-c", burn, NULL },
				     directory),
			 0);
	ck_assert_int_eq(replay((const char *const[]){ spikewatch, "replay", "-d", trapped, "last", NULL }), 0);
	printed("> 3%");
	program_said(directory, "the rule is \"cpu\" as the incident recorded it");
	/* That of a configuration, if one is given. */
	scene_write(config_path, "%s", RULES);
	ck_assert_int_eq(REPLAY("-d", trapped, "last"), 0);
	printed("hot ");
}
END_TEST

START_TEST(wrong_usage_is_reported)
{
	if (!built)
		SKIP_TEST(NOT_BUILT);

	scene_write(config_path, "%s", RULES);
	ck_assert_int_eq(REPLAY("--what-if", "hots.percent=5"), 2);
	program_said(directory, "did you mean \"hot\"?");
	ck_assert_int_eq(REPLAY("--suggest", "often"), 2);
	program_said(directory, "--suggest: expected");
	ck_assert_int_eq(REPLAY("--as", "nobody"), 2);
	program_said(directory, "no target of this name");
	ck_assert_int_eq(REPLAY("-d", directory, "nothing"), 2);
	program_said(directory, "no such file, and no incident of this name");
	ck_assert_int_eq(REPLAY("/nowhere/file"), 2);
	program_said(directory, "/nowhere/file: No such file");
	ck_assert_int_eq(REPLAY(config_path), 2);
	program_said(directory, "not a recording: there is no line of a sample stream in it");
	ck_assert_int_eq(REPLAY(directory), 2);
	program_said(directory, "there is no samples.tsv");
	if (access("/etc/spikewatch/spikewatch.json", F_OK) < 0) {
		ck_assert_int_eq(replay((const char *const[]){ spikewatch, "replay", ring_path, NULL }), 2);
		program_said(directory, "-c FILE names another configuration");
	}
	scene_write(config_path, "{ \"targts\": 1 }");
	ck_assert_int_eq(REPLAY(ring_path), 2);
	program_said(directory, "config.json:1:3: targts");
}
END_TEST

Suite *replay_suite(void)
{
	Suite *suite = suite_create("replay");
	TCase *tcase = tcase_create("program");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_replay_decides_as_the_daemon_did);
	tcase_add_test(tcase, a_daemon_that_was_stopped_leaves_a_hole_and_no_spike);
	tcase_add_test(tcase, a_suspend_of_the_machine_is_told_everywhere);
	tcase_add_test(tcase, a_replay_decides_as_a_daemon_with_several_threads_did);
	tcase_add_test(tcase, a_recording_is_judged_and_tried_with_other_values);
	tcase_add_test(tcase, a_damaged_recording_is_judged_with_a_warning);
	tcase_add_test(tcase, a_damaged_ring_is_judged_with_a_warning);
	tcase_add_test(tcase, an_incident_is_judged_by_the_rule_that_it_recorded);
	tcase_add_test(tcase, wrong_usage_is_reported);
	suite_add_tcase(suite, tcase);

	return suite;
}
