/* incidentmade.c: see incidentmade.h. */
#include "incidentmade.h"

#include "lib/stream/sample_stream.h"
#include "lib/incident/incident.h"
#include "lib/incident/manifest.h"
#include "lib/base/base.h"
#include "lib/incident/sample_window.h"
#include "lib/stream/stream.h"
#include "lib/base/io.h"
#include "lib/cgroup/cgroup.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/rules/metric.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FIRED_NS (1000 * NS_PER_S)
#define BEFORE_NS (10 * NS_PER_S)
#define AFTER_NS (5 * NS_PER_S)
#define INTERVAL_NS (10 * NS_PER_MS)
#define MIB (1024.0 * 1024.0)

static const char threads[] =
	"# CPU time of each thread within the last since_ms milliseconds; 100 percent is one core\n"
	"pid\ttid\tname\tstate\tcpu_ms\tcpu_percent\tuser_ms\tsystem_ms\tsince_ms\tremark\n"
	"812\t815\thot-loop\tR\t291.000\t97.0\t280\t10\t300\t\n"
	"812\t812\tpostgres\tS\t3.000\t1.0\t0\t0\t300\t\n"
	"812\t816\t\\x1b[31mred\tS\t0.000\t0.0\t0\t0\t300\tnew\n";

static const char smaps[] =
	"# memory by what is mapped; what grew most first\n"
	"pid\tmapping\tpermissions\tmappings\trss_bytes\tpss_bytes\tprivate_dirty_bytes\tswap_bytes"
	"\trss_growth_bytes\tpss_growth_bytes\tprivate_dirty_growth_bytes\tswap_growth_bytes\n"
	"# process 812: growth within the last 30.0 s\n"
	"812\t[anon]\trw-p\t4\t178257920\t178257920\t178257920\t0\t+157286400\t+157286400\t+157286400\t+0\n"
	"812\t[heap]\trw-p\t1\t135168\t135168\t135168\t0\t+4096\t+4096\t+4096\t+0\n"
	"812\t/usr/lib/x86_64-linux-gnu/libc.so.6\tr-xp\t1\t2097152\t40960\t0\t0\t-8192\t-1024\t+0\t+0\n";

static void make_target(const struct incidentmade_options *options, struct target *ret)
{
	*ret = (struct target){
		.id = 1,
		.kind = TARGET_PROCESS,
		.pid = 812,
		.start_ticks = 4711,
		.entry = "postgres",
		.name = "postgres/812",
		.key = "postgres:812@4711",
		.comm = options->comm ? options->comm : "postgres",
		.cmdline = "/usr/lib/postgresql/15/bin/postgres -D /var/lib/postgresql/15/main",
		.cgroup = "/system.slice/postgresql.service",
	};
}

/* CPU used until `at`: 2 ms a second, and all of a core in the 300 ms up to the trigger. */
static uint64_t cpu_at(int64_t at_ns)
{
	uint64_t since = (uint64_t)(at_ns + (int64_t)BEFORE_NS), used = since / 500;
	int64_t burst = at_ns + 300 * (int64_t)NS_PER_MS;

	if (burst > 0)
		used += burst < 300 * (int64_t)NS_PER_MS ? (uint64_t)burst : 300 * NS_PER_MS;
	return used;
}

static void sample_at(int64_t at_ns, struct sample *ret)
{
	bool ballooned = at_ns > 1000 * (int64_t)NS_PER_MS;

	*ret = (struct sample){ 0 };
	sample_set(ret, SAMPLE_CPU, cpu_at(at_ns));
	sample_set(ret, SAMPLE_MEMORY, 40u << 20);
	/* Came and went between two samples: only the high-water mark has seen it. */
	sample_set(ret, SAMPLE_MEMORY_PEAK, ballooned ? 190u << 20 : 41u << 20);
	sample_set(ret, SAMPLE_THREADS, 3);
	sample_set(ret, SAMPLE_CPU_LIMIT, NS_PER_S / 2);
	sample_set(ret, SAMPLE_MEMORY_LIMIT, 256u << 20);
}

/* Idle seconds are written once a second, as the heartbeat does. */
static bool written(int64_t at_ns)
{
	bool busy = at_ns > -300 * (int64_t)NS_PER_MS && at_ns <= 20 * (int64_t)NS_PER_MS;

	return busy || at_ns % (int64_t)NS_PER_S == 0;
}

static struct sample_window *make_slice(const struct incidentmade_options *options)
{
	struct sample_window_options sample_window_options = { .fired = { FIRED_NS },
							       .before_ns = BEFORE_NS,
							       .after_ns = AFTER_NS };
	int64_t end = options->cut ? 2 * (int64_t)NS_PER_S : options->gone ? 3 * (int64_t)NS_PER_S : (int64_t)AFTER_NS;
	struct sample_window *sample_window;

	ck_assert_int_eq(sample_window_new(&sample_window_options, &sample_window), 0);
	for (int64_t at = -(int64_t)BEFORE_NS; at <= end; at += (int64_t)INTERVAL_NS) {
		mono_t mono = { FIRED_NS + (uint64_t)at };
		struct sample sample;

		if (options->gap && at > -6 * (int64_t)NS_PER_S && at < -4 * (int64_t)NS_PER_S)
			continue;
		if (options->gap && at == -4 * (int64_t)NS_PER_S)
			sample_window_gap(sample_window, mono, 3);
		if (options->hole && at > -6 * (int64_t)NS_PER_S && at < -45 * (int64_t)NS_PER_S / 10)
			continue;
		if (options->hole && at == -45 * (int64_t)NS_PER_S / 10)
			sample_window_hole(sample_window,
					   &(struct sampling_hole){ { FIRED_NS - 6 * NS_PER_S }, mono, 149, 0 });
		sample_window_tick(sample_window, mono, 0);
		sample_at(at, &sample);
		if (written(at))
			sample_window_add(sample_window, mono, &sample);
	}
	if (options->cut)
		ck_assert(sample_window_end(sample_window, (mono_t){ FIRED_NS + AFTER_NS + 1 }, INTERVAL_NS));
	if (options->gone)
		sample_window_gone(sample_window, (mono_t){ FIRED_NS + (uint64_t)end });
	return sample_window;
}

static void make_manual(struct incident *incident)
{
	struct incident_firing again = { .kind = INCIDENT_MANUAL,
					 .wall = INCIDENTMADE_WALL,
					 .rule = INCIDENT_MANUAL_RULE };

	incident->kind = INCIDENT_MANUAL;
	incident->rule = (struct incident_rule){ .name = INCIDENT_MANUAL_RULE, .severity = INCIDENT_MANUAL_SEVERITY };
	incident_merge(incident, &again);
}

void incidentmade_fill(const struct incidentmade_options *options, struct incident *ret)
{
	AUTO(sample_window_freep) struct sample_window *sample_window = make_slice(options);
	struct target target;

	make_target(options, &target);
	incident_init(ret, "0.1.0");
	incident_text(ret->id, sizeof(ret->id), options->name ? options->name : INCIDENTMADE_ID);
	incident_text(ret->hostname, sizeof(ret->hostname), "db1");
	ret->kind = INCIDENT_RULE;
	ret->wall = INCIDENTMADE_WALL;
	ret->mono = (mono_t){ FIRED_NS };
	ret->window_from = (mono_t){ FIRED_NS - 100 * NS_PER_MS };
	ret->window_to = ret->mono;
	ret->rule = (struct incident_rule){
		.name = "cpu-high",
		.metric = "cpu",
		.unit = "percent",
		.of = "limit",
		.reason = "above-percent",
		.window_ns = 100 * NS_PER_MS,
		.thresholds = { .has_percent = true, .percent = 80, .warmup = 1, .history = 10 },
		.has_value = true,
		.value = 182.4,
		.has_average = true,
		.average = 0.4,
		.fired = 1,
		.count = 1,
	};
	ret->rule.severity = incident_severity(&ret->rule);
	incident_set_target(ret, &target);
	if (options->metric)
		incident_text(ret->rule.metric, sizeof(ret->rule.metric), options->metric);
	if (options->manual)
		make_manual(ret);
	if (options->everything) {
		ret->target = (struct incident_target){ .name = INCIDENT_EVERYTHING };
		return;
	}
	ret->limits = (struct cgroup_limits){ .cpu = NS_PER_S / 2, .memory_bytes = 256u << 20 };
	incident_text(ret->limits.cpu_from, sizeof(ret->limits.cpu_from), target.cgroup);
	incident_text(ret->limits.memory_from, sizeof(ret->limits.memory_from), target.cgroup);
	sample_window_coverage(sample_window, INTERVAL_NS, &ret->coverage);
	sample_window_peaks(sample_window, 100 * NS_PER_MS, &ret->peaks);
	ret->cost = (struct incident_cost){ "files", INTERVAL_NS, 0, 0.42, 51000, 84000, 0 };
}

static void write_file(int dirfd, const char *name, const char *text, struct incident *incident, const char *capture)
{
	struct incident_capture record = { .bytes = strlen(text) };
	int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	incident_text(record.name, sizeof(record.name), capture);
	incident_text(record.file, sizeof(record.file), name);
	incident_add_capture(incident, &record);
}

/* Rows of the same times as the first target's. */
static void write_other(struct stream_writer *writer)
{
	static const char json[] = "{\"kind\":\"process\",\"name\":\"greedy/9\"}";
	struct sample sample;

	ck_assert_int_eq(stream_target(writer, 2, json, strlen(json)), 0);
	for (int64_t at = -(int64_t)BEFORE_NS; at <= (int64_t)AFTER_NS; at += (int64_t)INTERVAL_NS) {
		if (!written(at))
			continue;
		sample_at(at, &sample);
		sample.value[SAMPLE_CPU] *= 2;
		sample.value[SAMPLE_MEMORY] *= 4;
		ck_assert_int_eq(stream_row(writer, (uint64_t)(at + (int64_t)BEFORE_NS), 2, sample.value, sample.mask),
				 0);
	}
}

static void write_samples(int dirfd, const struct incidentmade_options *options)
{
	AUTO(sample_window_freep) struct sample_window *sample_window = make_slice(options);
	AUTO_CLOSE int fd = openat(dirfd, INCIDENT_SAMPLES_FILE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	AUTO(buffer_release) struct buffer json = { 0 };
	struct stream_column columns[SAMPLE_FIELDS];
	struct stream_options stream_options = {
		.columns = columns,
		.column_count = SAMPLE_FIELDS,
		.start = { INCIDENTMADE_WALL.ns - BEFORE_NS },
	};
	struct stream_writer *writer;
	struct target target;

	columns_of_samples(columns);
	make_target(options, &target);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(columns_target_json(&target, 0, &json), 0);
	ck_assert_int_eq(stream_writer_new(sink_fd(&fd), &stream_options, &writer), 0);
	ck_assert_int_eq(stream_target(writer, 1, json.data, json.len), 0);
	ck_assert_int_eq(sample_window_write(sample_window, writer, 1), 0);
	if (options->everything)
		write_other(writer);
	ck_assert_int_eq(stream_close(writer), 0);
}

void incidentmade_write(int dirfd, const struct incidentmade_options *options)
{
	const char *name = options->name ? options->name : INCIDENTMADE_ID;
	AUTO_FREE struct incident *incident = malloc(sizeof(*incident));
	AUTO(buffer_release) struct buffer json = { 0 };
	AUTO_CLOSE int fd = -1;

	ck_assert_int_eq(mkdirat(dirfd, name, 0700), 0);
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	incidentmade_fill(options, incident);
	write_samples(fd, options);
	write_file(fd, "threads.tsv", threads, incident, "threads");
	write_file(fd, "smaps.tsv", smaps, incident, "smaps");
	if (options->functions)
		write_file(fd, "functions.tsv", options->functions, incident, "functions");
	if (options->memory_functions)
		write_file(fd, "memory-functions.tsv", options->memory_functions, incident, "memory-functions");
	ck_assert_int_eq(incident_json_write(incident, sink_buffer(&json)), 0);
	ck_assert_int_eq(buffer_append(&json, "", 1), 0);
	write_file(fd, INCIDENT_FILE, json.data, incident, "incident");
	ck_assert_int_eq(manifest_write(fd), 0);
}

int incidentmade_directory(char *path, size_t cap)
{
	const char *tmp = getenv("TMPDIR");
	int fd;

	snprintf(path, cap, "%s/spikewatch-incidents-XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(path));
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static void remove_tree(const char *path, int depth)
{
	DIR *dir = opendir(path);
	const struct dirent *entry;
	char child[600];

	while (dir && (entry = readdir(dir)) != NULL) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		snprintf(child, sizeof(child), "%s/%s", path, entry->d_name);
		if (unlink(child) != 0 && depth > 0)
			remove_tree(child, depth - 1);
	}
	if (dir)
		closedir(dir);
	rmdir(path);
}

void incidentmade_remove(const char *path)
{
	remove_tree(path, 2);
}

START_TEST(made_incident_agrees_with_its_manifest)
{
	struct incidentmade_options options = { 0 };
	char path[300];
	AUTO_CLOSE int dirfd = incidentmade_directory(path, sizeof(path)), fd = -1;

	incidentmade_write(dirfd, &options);
	fd = openat(dirfd, INCIDENTMADE_ID, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(manifest_verify(fd, NULL, NULL), 0);
	incidentmade_remove(path);
	ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

Suite *incidentmade_suite(void);

Suite *incidentmade_suite(void)
{
	Suite *suite = suite_create("incidentmade");
	TCase *tcase = tcase_create("incidentmade");

	tcase_add_test(tcase, made_incident_agrees_with_its_manifest);
	suite_add_tcase(suite, tcase);
	return suite;
}
