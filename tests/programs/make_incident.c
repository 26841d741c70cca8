/*
 * make_incident.c: incidents for reports in a browser (tests/report.sh), in the
 * directory that is the only argument:
 *
 * 	hostile     of one process, with stacks of CPU and memory; names are markup, quotes, marks that
 *              turn text around, and no UTF-8
 * 	everything  of all targets, without stacks
 * 	bare        with nothing but incident.json
 * 	minutes     a history of two targets, 90 minutes from NOON on: ten of them are missing
 *
 * The makers of incidents assert, so this is a test that always writes to the same place.
 */
#include "incidentmade.h"
#include "lib/incident/manifest.h"
#include "lib/base/base.h"
#include "lib/minutes/minute_file.h"
#include "lib/profile/profile.h"
#include "lib/base/io.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
#define FIRED (UINT64_C(100000) * MS)

/* As an attacker would write it, who wants it to become something else than text. */
#define HOSTILE_COMM "<b>\"'\xe2\x80\xae\xff"
#define HOSTILE_FUNCTION "<script>document.title='owned'</script>"
#define HOSTILE_TURNED "exe\xe2\x80\xaegpj.\"onload=x"
#define HOSTILE_BYTES "bad\xff\xfe;utf8"

static int directory = -1;

static uint32_t function(struct stack_profile *profile, uint32_t in, uint64_t address, const char *name)
{
	struct stack_profile_line line = { name, "/src/<i>.c", 7 };
	struct stack_profile_frame frame = { .mapping = in, .address = address, .lines = &line, .line_count = 1 };
	uint32_t number;

	ck_assert_int_eq(stack_profile_frame(profile, &frame, &number), 0);
	return number;
}

static void add(struct stack_profile *profile, uint64_t time_ns, const uint32_t *frames, size_t count, uint64_t samples)
{
	struct stack_profile_sample sample = {
		.time_ns = time_ns,
		.pid = 812,
		.tid = 815,
		.process = HOSTILE_COMM,
		.thread = HOSTILE_COMM,
		.frames = frames,
		.frame_count = count,
		.count = samples,
		.weight = samples * 10 * MS,
	};

	ck_assert_int_eq(stack_profile_add(profile, &sample), 0);
}

/* Before: mostly parse. During: mostly the hostile ones, and something that only then is there. */
static void fill(struct stack_profile *profile)
{
	struct stack_profile_mapping mapping = { .start = 0x400000,
						 .end = 0x500000,
						 .path = "/opt/<img src=x>/server" };
	uint32_t in, root, parse, hostile, turned, bytes;

	ck_assert_int_eq(stack_profile_mapping(profile, &mapping, &in), 0);
	root = function(profile, in, 0x401000, "main");
	parse = function(profile, in, 0x402000, "parse_query");
	hostile = function(profile, in, 0x403000, HOSTILE_FUNCTION);
	turned = function(profile, in, 0x404000, HOSTILE_TURNED);
	bytes = function(profile, in, 0x405000, HOSTILE_BYTES);
	add(profile, FIRED - 900 * MS, (uint32_t[]){ parse, root }, 2, 80);
	add(profile, FIRED - 800 * MS, (uint32_t[]){ hostile, parse, root }, 3, 20);
	add(profile, FIRED - 50 * MS, (uint32_t[]){ parse, root }, 2, 10);
	add(profile, FIRED - 40 * MS, (uint32_t[]){ hostile, parse, root }, 3, 30);
	add(profile, FIRED - 30 * MS, (uint32_t[]){ turned, hostile, root }, 3, 40);
	add(profile, FIRED - 20 * MS, (uint32_t[]){ bytes, hostile, root }, 3, 20);
}

static void write_file(int dirfd, const char *name, const struct stack_profile *profile,
		       int (*write_to)(const struct stack_profile *profile, const struct sink *sink))
{
	AUTO_CLOSE int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	struct sink sink = sink_fd(&fd);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write_to(profile, &sink), 0);
}

/* Files: the profile, folded, functions. */
static void make_stacks(int dirfd, enum stack_profile_quantity quantity, const char *const names[static 3])
{
	const struct stack_profile_options options = {
		.quantity = quantity,
		.fired_ns = FIRED,
		.wall_ns = INCIDENTMADE_WALL.ns,
		.from_ns = FIRED - 10000 * MS,
		.to_ns = FIRED + 5000 * MS,
		.spike_from_ns = FIRED - 100 * MS,
		.period_ns = 10 * MS,
	};
	struct stack_profile *profile;

	ck_assert_int_eq(stack_profile_new(&options, &profile), 0);
	fill(profile);
	write_file(dirfd, names[0], profile, stack_profile_write_pprof);
	write_file(dirfd, names[1], profile, stack_profile_write_folded);
	write_file(dirfd, names[2], profile, stack_profile_write_functions);
	stack_profile_free(profile);
}

static int make(const char *name, const struct incidentmade_options *options)
{
	int fd;

	incidentmade_write(directory, options);
	ck_assert_int_eq(renameat(directory, INCIDENTMADE_ID, directory, name), 0);
	fd = openat(directory, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	return fd;
}

START_TEST(incidents)
{
	static const char *const cpu[] = { "cpu.pb.gz", "cpu.folded", "functions.tsv" };
	static const char *const memory[] = { "memory.pb.gz", "memory.folded", "memory-functions.tsv" };
	const struct incidentmade_options hostile = { .comm = HOSTILE_COMM, .gap = true };
	const struct incidentmade_options everything = { .comm = HOSTILE_COMM, .everything = true, .manual = true };
	const struct incidentmade_options usual = { .gone = true };
	AUTO_CLOSE int first = make("hostile", &hostile);
	AUTO_CLOSE int second = make("everything", &everything);
	AUTO_CLOSE int third = make("bare", &usual);

	make_stacks(first, STACK_PROFILE_CPU, cpu);
	make_stacks(first, STACK_PROFILE_MEMORY, memory);
	ck_assert_int_eq(unlinkat(first, MANIFEST_NAME, 0), 0);
	ck_assert_int_eq(manifest_write(first), 0);
	ck_assert_int_ge(second, 0);
	for (size_t i = 0; i < 4; i++)
		ck_assert_int_eq(
			unlinkat(third, (const char *[]){ "samples.tsv", "threads.tsv", "smaps.tsv", MANIFEST_NAME }[i],
				 0),
			0);
}
END_TEST

#define NOON_S UINT64_C(1795435200) /* 2026-11-23T12:00:00Z */
#define MINUTES 90u

static struct minute_row minute_row(const char *name, uint64_t cpu_ms, uint32_t peak_milli)
{
	return (struct minute_row){ .kind = TARGET_CGROUP,
				    .name = name,
				    .entry = "all",
				    .comm = "",
				    .has_cpu = true,
				    .has_memory = true,
				    .cpu_ns = cpu_ms * MS,
				    .cpu_peak_milli = peak_milli,
				    .memory_bytes = UINT64_C(100) << 20,
				    .seen_ns = 60000 * MS,
				    .targets = 1 };
}

/* The first target: in minute i a mean of 10 + i % of a core; an incident in the thirtieth. The daemon was away from the 40th to the 49th. */
START_TEST(minutes)
{
	struct minute_incident incident = { "20261123T123012.000Z-a-cpu-1", 0 };
	AUTO(buffer_release) struct buffer text = { 0 };
	int fd;

	for (unsigned i = 0; i < MINUTES; i++) {
		struct minute_row rows[2] = { minute_row("a.service", 6000 + 600 * i, 1200),
					      minute_row(HOSTILE_FUNCTION, 60, 10) };
		struct minute minute = { .begin = { (NOON_S + 60 * i) * 1000 * MS },
					 .period_ns = 60000 * MS,
					 .peak_ns = 1000 * MS,
					 .span_ns = 60000 * MS,
					 .number = i < 40 ? i : i - 50,
					 .rows = rows,
					 .row_count = 2,
					 .incidents = &incident,
					 .incident_count = i == 30 };

		if (i < 40 || i >= 50)
			ck_assert_int_eq(minute_block_write(&minute, 1, false, &text), 0);
	}
	ck_assert_int_eq(mkdirat(directory, "minutes", 0700), 0);
	fd = openat(directory, "minutes/0000000001.minutes", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(sink_write_all(fd, text.data, text.len), 0);
	close(fd);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("make_incident");
	TCase *tcase = tcase_create("make");
	SRunner *runner = srunner_create(suite);
	int failed;

	if (argc != 2 || (directory = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
		fprintf(stderr, "Usage: make_incident DIRECTORY\n");
		return 2;
	}
	tcase_add_test(tcase, incidents);
	tcase_add_test(tcase, minutes);
	suite_add_tcase(suite, tcase);
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	close(directory);
	return failed > 0;
}
