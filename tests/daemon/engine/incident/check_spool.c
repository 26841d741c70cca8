/* check_spool.c: whole under a final name or not there at all; the worst is kept. */
#include "lib/base/io.h"
#include "lib/incident/incident.h"
#include "lib/incident/manifest.h"
#include "lib/stream/stream.h"
#include "daemon/engine/base/paths.h"
#include "daemon/engine/incident/spool.h"
#include "scene.h"
#include "skip.h"
#include "torture.h"
#include "lib/base/base.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DAY (86400 * NS_PER_S)

static char directory[64], path[128];
static struct incident incident;

static void setup(void)
{
	snprintf(directory, sizeof(directory), "/tmp/check_spool.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/a/spool", directory);
	incident_init(&incident, "0.1.0");
}

static void teardown(void)
{
	ck_assert_int_eq(directory_tree_remove(AT_FDCWD, directory), 0);
}

static struct spool *open_spool(uint64_t max_bytes, uint32_t max_count)
{
	struct retention_limits limits = { .max_bytes = max_bytes, .max_count = max_count };
	struct spool *spool;

	ck_assert_int_eq(spool_open(path, &limits, &spool, &(size_t){ 0 }), 0);
	return spool;
}

static void put(int dirfd, const char *name, size_t bytes)
{
	int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	close(fd);
}

/* An incident on that day of the year 2000 with a file of so many bytes. */
static void add(struct spool *spool, unsigned day, double severity, size_t bytes)
{
	struct spool_draft *draft;
	char stem[INCIDENT_NAME_MAX + 1];

	incident_stem((wall_t){ 946684800 * NS_PER_S + day * DAY }, "t", "r", stem, sizeof(stem));
	ck_assert_int_eq(spool_begin(spool, stem, &draft), 0);
	put(spool_draft_parts(draft).dirfd, "data.txt", bytes);
	incident.rule.severity = severity;
	ck_assert_int_eq(spool_seal(draft, &incident), 0);
}

/* Names in the spool that match, temporary ones included. */
static size_t count_names(const char *part)
{
	DIR *dir = opendir(path);
	size_t count = 0;

	ck_assert_ptr_nonnull(dir);
	for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
		count += entry->d_name[0] != '.' && strstr(entry->d_name, part) != NULL;
	closedir(dir);
	return count;
}

static int list_sealed(struct retention_entry **ret, size_t *ret_count)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return spool_list_at(fd, ret, ret_count, &(int){ 0 });
}

/* The severities that are there, oldest first, as text. */
static void severities(char ret[256])
{
	struct retention_entry *entries;
	size_t count;

	ret[0] = '\0';
	ck_assert_int_eq(list_sealed(&entries, &count), 0);
	for (size_t i = 0; i < count; i++)
		snprintf(ret + strlen(ret), 256 - strlen(ret), "%g ", entries[i].severity);
	free(entries);
}

START_TEST(what_was_sealed_is_whole)
{
	struct spool *spool = open_spool(0, 0);
	struct retention_entry *entries;
	int spoolfd = open(path, O_RDONLY | O_DIRECTORY), dirfd;
	struct stat st;
	size_t count;

	add(spool, 1, 2.5, 5000);
	ck_assert_str_eq(incident.id, "20000102T000000.000Z-t-r-1");
	ck_assert_int_eq(list_sealed(&entries, &count), 0);
	ck_assert_uint_eq(count, 1);
	ck_assert_str_eq(entries[0].name, incident.id);
	ck_assert_uint_eq(entries[0].wall.ns, 946684800 * NS_PER_S + DAY);
	ck_assert_double_eq(entries[0].severity, 2.5);
	ck_assert_uint_eq(entries[0].bytes, 8192 + 2 * 4096);
	dirfd = openat(spoolfd, entries[0].name, O_RDONLY | O_DIRECTORY);
	ck_assert_int_eq(manifest_verify(dirfd, NULL, NULL), 0);
	ck_assert_int_eq(fstat(dirfd, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07027, 0);
	ck_assert_uint_eq(count_names(".tmp"), 0);
	free(entries);
	close(dirfd);
	close(spoolfd);
	spool_free(spool);
}
END_TEST

START_TEST(a_draft_is_not_listed_and_an_abort_leaves_nothing)
{
	struct spool *spool = open_spool(0, 0);
	struct retention_entry *entries;
	struct spool_draft *draft;
	size_t count;

	ck_assert_int_eq(spool_begin(spool, "20000102T000000.000Z-t-r", &draft), 0);
	ck_assert_str_eq(spool_draft_parts(draft).name, "20000102T000000.000Z-t-r-1");
	put(spool_draft_parts(draft).dirfd, "data.txt", 1);
	ck_assert_uint_eq(count_names("-1.tmp"), 1);
	ck_assert_int_eq(list_sealed(&entries, &count), 0);
	ck_assert_uint_eq(count, 0);
	ck_assert_ptr_null(entries);
	spool_abort(draft);
	ck_assert_uint_eq(count_names(""), 0);
	spool_abort(NULL);
	spool_free(spool);
	spool_free(NULL);
}
END_TEST

START_TEST(numbers_make_names_unique)
{
	struct spool *spool = open_spool(0, 0), *other = open_spool(0, 0);
	struct spool_draft *draft, *second;

	add(spool, 1, 1, 1);
	ck_assert_int_eq(spool_begin(spool, "20000102T000000.000Z-t-r", &draft), 0);
	ck_assert_int_eq(spool_begin(other, "20000102T000000.000Z-t-r", &second), 0);
	ck_assert_str_eq(spool_draft_parts(draft).name, "20000102T000000.000Z-t-r-2");
	ck_assert_str_eq(spool_draft_parts(second).name, "20000102T000000.000Z-t-r-3");
	spool_abort(second);
	ck_assert_int_eq(spool_seal(draft, &incident), 0);
	ck_assert_int_eq(spool_begin(spool, "../evil", &draft), -EINVAL);
	ck_assert_int_eq(spool_begin(spool, "", &draft), -EINVAL);
	spool_free(spool);
	spool_free(other);
}
END_TEST

START_TEST(what_a_dead_writer_left_is_swept_and_a_living_one_is_not)
{
	struct spool *spool = open_spool(0, 0), *other;
	struct retention_limits limits = { 0 };
	struct spool_draft *draft;
	size_t swept;
	pid_t child;

	child = fork();
	if (child == 0) {
		struct spool *own;

		if (spool_open(path, &limits, &own, NULL) < 0 ||
		    spool_begin(own, "20000102T000000.000Z-dead-r", &draft) < 0)
			_exit(1);
		put(spool_draft_parts(draft).dirfd, "data.txt", 1);
		kill(getpid(), SIGKILL);
	}
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ck_assert_uint_eq(count_names("dead"), 1);
	ck_assert_int_eq(spool_begin(spool, "20000102T000000.000Z-alive-r", &draft), 0);
	put(spool_draft_parts(draft).dirfd, "data.txt", 1);
	ck_assert_int_eq(spool_open(path, &limits, &other, &swept), 0);
	ck_assert_uint_eq(swept, 1);
	ck_assert_uint_eq(count_names("dead"), 0);
	ck_assert_int_eq(spool_seal(draft, &incident), 0);
	ck_assert_uint_eq(count_names("alive"), 1);
	spool_free(other);
	spool_free(spool);
}
END_TEST

START_TEST(a_noted_draft_of_a_writer_that_died_is_sealed_as_it_is)
{
	struct retention_limits limits = { 0 };
	struct spool *own, *other;
	struct spool_draft *draft;
	struct incident noted, back;
	const struct spool_swept *what;
	size_t swept = 9;
	pid_t child;
	int fd;

	child = fork();
	if (child == 0) {
		incident_init(&noted, "1");
		incident_text(noted.rule.name, sizeof(noted.rule.name), "hot");
		if (spool_open(path, &limits, &own, NULL) < 0 ||
		    spool_begin(own, "20000102T000000.000Z-dead-r", &draft) < 0)
			_exit(1);
		put(spool_draft_parts(draft).dirfd, "threads.tsv", 10);
		if (spool_note(draft, &noted) < 0 || spool_note(draft, &noted) < 0)
			_exit(1);
		kill(getpid(), SIGKILL);
	}
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ck_assert_int_eq(spool_open(path, &limits, &other, &swept), 0);
	ck_assert_uint_eq(swept, 0);
	ck_assert_uint_eq(spool_swept(other, &what), 1);
	ck_assert(what[0].adopted);
	ck_assert_str_eq(what[0].name, "20000102T000000.000Z-dead-r-1");
	fd = openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
	int incidentfd = openat(fd, "20000102T000000.000Z-dead-r-1", O_RDONLY | O_DIRECTORY);
	ck_assert_int_ge(incidentfd, 0);
	ck_assert_int_eq(manifest_verify(incidentfd, NULL, NULL), 0);
	ck_assert_int_eq(incident_json_read(incidentfd, &back), 0);
	ck_assert_str_eq(back.rule.name, "hot");
	ck_assert_str_eq(back.id, "20000102T000000.000Z-dead-r-1");
	close(incidentfd);
	close(fd);
	spool_free(other);
}
END_TEST

/* ---- killed at each step ---- */

#define OLD_SEVERITY 1.5
#define NEW_SEVERITY 7.5

/* A part of the samples in each write. */
static int write_rows(int dirfd)
{
	AUTO_CLOSE int fd = openat(dirfd, INCIDENT_SAMPLES_FILE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
	static const struct stream_column column = { "cpu", "ns", "counter", "CPU time" };
	struct stream_options options = { .columns = &column, .column_count = 1, .flush_bytes = 200 };
	struct stream_writer *writer;
	int r = stream_writer_new(sink_fd(&fd), &options, &writer);

	for (uint64_t i = 0; r == 0 && i < 20; i++)
		r = stream_row(writer, i, 1, &i, 1);
	return r < 0 ? r : stream_close(writer);
}

/* As the incident worker seals one: what is known at the firing, then samples and the rest. */
static int seal_one(struct spool *spool)
{
	struct incident_capture none = { .name = "samples", .status = INCIDENT_CAPTURE_FAILED, .why = "killed" };
	struct incident_capture threads = { .name = "threads", .file = "threads.tsv", .bytes = 10 };
	struct incident_capture samples = { .name = "samples", .file = INCIDENT_SAMPLES_FILE };
	struct incident made, noted;
	struct spool_draft *draft;
	int r = spool_begin(spool, "20000102T000000.000Z-new-r", &draft), dirfd;

	if (r < 0)
		return r;
	dirfd = spool_draft_parts(draft).dirfd;
	incident_init(&made, "1");
	made.rule.severity = NEW_SEVERITY;
	whole_file_replace(dirfd, "threads.tsv", "0123456789", 10, WHOLE_FILE_DURABLE);
	incident_add_capture(&made, &threads);
	noted = made;
	incident_add_capture(&noted, &none);
	r = spool_note(draft, &noted);
	/* The symboliser's. */
	if (r == 0)
		r = whole_file_replace(dirfd, ".cpu.folded.part", "torn", 4, WHOLE_FILE_PUBLIC);
	if (r == 0 && renameat(dirfd, ".cpu.folded.part", dirfd, "cpu.folded") < 0)
		r = -errno;
	if (r == 0)
		r = leftover_files_settle(dirfd, 1 << 20, &made);
	if (r == 0)
		r = write_rows(dirfd);
	incident_add_capture(&made, &samples);
	return r < 0 ? r : spool_seal(draft, &made);
}

/* Never returns: it is killed at that step, or exits with 0 when there is none any more. */
static void seal_until(long step)
{
	struct retention_limits limits = { .max_count = 1 };
	struct spool *spool;

	if (spool_open(path, &limits, &spool, &(size_t){ 0 }) < 0)
		_exit(1);
	torture_kill_at(step, NULL);
	if (seal_one(spool) < 0 || spool_enforce(spool, (struct spool_now){ .mono_ns = 1 }, NULL, NULL) < 0)
		_exit(2);
	torture_kill_at(0, NULL);
	_exit(0);
}

/* Of a sealed one: nothing in it is empty, and its samples are said as they are. */
static void check_whole(const char *name, double severity)
{
	char at[200], file[300];
	struct incident back;

	snprintf(at, sizeof(at), "%s/%s", path, name);
	AUTO_CLOSE int fd = open(at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(manifest_verify(fd, NULL, NULL), 0);
	ck_assert_int_eq(incident_json_read(fd, &back), 0);
	ck_assert(back.rule.severity == severity);
	ck_assert_str_eq(back.id, name);

	bool listed = false;
	struct stat st;

	for (size_t i = 0; i < back.capture_count; i++) {
		const struct incident_capture *capture = &back.captures[i];

		listed |= strcmp(capture->file, INCIDENT_SAMPLES_FILE) == 0;
		if (!*capture->file)
			continue;
		ck_assert_msg(fstatat(fd, capture->file, &st, 0) == 0, "%s of %s", capture->file, name);
		ck_assert_int_gt(st.st_size, 0);
	}
	snprintf(file, sizeof(file), "%s/" INCIDENT_SAMPLES_FILE, at);
	ck_assert_msg((access(file, F_OK) == 0) == listed, "%s: samples that are not said", name);
	if (listed) {
		AUTO_CLOSE int samples = openat(fd, INCIDENT_SAMPLES_FILE, O_RDONLY | O_CLOEXEC);
		static const struct stream_reader_events nothing;
		struct stream_reader_report report;
		struct stream_reader *reader;

		ck_assert_int_eq(stream_reader_new(&nothing, &reader), 0);
		ck_assert_int_eq(stream_read_fd(reader, samples, UINT64_MAX), 0);
		ck_assert_int_eq(stream_reader_finish(reader, &report), 0);
		ck_assert_uint_gt(report.rows, 0);
		ck_assert(stream_reader_whole(&report));
		stream_reader_free(reader);
	}
}

/* What the next start finds: names, before and after. */
static void check_what_was_left(void)
{
	bool draft = count_names("-new-r-1.tmp") > 0, draft_of_old = count_names("-old-r-1.tmp") > 0;
	const struct spool_swept *swept;
	struct retention_limits limits = { 0 };
	struct spool *spool;
	size_t sealed = 0;

	ck_assert_int_eq(spool_open(path, &limits, &spool, &(size_t){ 0 }), 0);
	ck_assert_uint_eq(count_names(".tmp"), 0);
	ck_assert_uint_eq(spool_swept(spool, &swept), (size_t)draft + draft_of_old); /* all is said */
	if (count_names("-new-r-1") > 0) {
		check_whole("20000102T000000.000Z-new-r-1", NEW_SEVERITY);
		sealed++;
	}
	if (draft) {
		ck_assert_str_eq(swept[0].name, "20000102T000000.000Z-new-r-1");
		ck_assert(swept[0].adopted == (sealed > 0));
		ck_assert(!swept[0].adopted || swept[0].severity == NEW_SEVERITY);
	}
	if (count_names("-old-r-1") > 0) {
		check_whole("20000101T000000.000Z-old-r-1", OLD_SEVERITY);
		sealed++;
	}
	ck_assert_uint_ge(sealed, 1);
	spool_free(spool);
}

START_TEST(a_writer_that_is_killed_at_any_step_leaves_a_whole_incident_or_none_and_that_is_said)
{
	int status = -1;
	long step = 0;

	while (status != 0) {
		struct retention_limits limits = { 0 };
		struct spool_draft *draft;
		struct spool *spool;

		ck_assert_int_eq(spool_open(path, &limits, &spool, &(size_t){ 0 }), 0);
		ck_assert_int_eq(spool_begin(spool, "20000101T000000.000Z-old-r", &draft), 0);
		put(spool_draft_parts(draft).dirfd, "data.txt", 100);
		incident.rule.severity = OLD_SEVERITY;
		ck_assert_int_eq(spool_seal(draft, &incident), 0);
		spool_free(spool);

		step++;

		pid_t child = fork();

		if (child == 0)
			seal_until(step);
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert_msg(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL), "step %ld: %x", step,
			      status);
		check_what_was_left();
		ck_assert_int_eq(directory_tree_remove(AT_FDCWD, directory), 0);
		ck_assert_int_eq(mkdir(directory, 0700), 0);
	}
	ck_assert_int_gt(step, 30);
}
END_TEST

START_TEST(a_draft_that_children_of_a_killed_writer_hold_is_waited_for)
{
	struct retention_limits limits = { 0 };
	const struct spool_swept *swept;
	struct spool *spool;
	int ends[2];

	ck_assert_int_eq(pipe(ends), 0);

	pid_t writer = fork();

	if (writer == 0) {
		struct spool_draft *draft;

		incident.rule.severity = NEW_SEVERITY;
		if (spool_open(path, &limits, &spool, &(size_t){ 0 }) < 0 ||
		    spool_begin(spool, "20000102T000000.000Z-new-r", &draft) < 0 || spool_note(draft, &incident) < 0)
			_exit(1);
		if (fork() == 0) { /* has the lock of the draft, too, and writes for a while */
			for (int i = 0; i < 30; i++) {
				usleep(10000);
				put(spool_draft_parts(draft).dirfd,
				    (char[]){ 'a' + (char)(i % 26), '0' + (char)(i / 26), 0 }, 1);
			}
			_exit(0);
		}
		(void)!write(ends[1], "", 1);
		pause();
	}
	ck_assert_int_eq(read(ends[0], (char[1]){ 0 }, 1), 1);
	kill(writer, SIGKILL);
	ck_assert_int_eq(waitpid(writer, NULL, 0), writer);
	ck_assert_int_eq(spool_open(path, &limits, &spool, &(size_t){ 0 }), 0);
	ck_assert_uint_eq(spool_swept(spool, &swept), 0); /* it is written to */
	ck_assert_uint_eq(count_names("-new-r-1.tmp"), 1);
	spool_wait(spool, 60 * NS_PER_S, NULL, NULL);
	ck_assert_uint_eq(spool_swept(spool, &swept), 1);
	ck_assert(swept[0].adopted);
	check_whole("20000102T000000.000Z-new-r-1", NEW_SEVERITY);
	spool_free(spool);
	close(ends[0]);
	close(ends[1]);
}
END_TEST

START_TEST(what_is_not_ours_is_never_touched)
{
	struct spool *spool = open_spool(1, 1);
	int spoolfd = open(path, O_RDONLY | O_DIRECTORY);
	char outside[128];

	snprintf(outside, sizeof(outside), "%s/outside", directory);
	ck_assert_int_eq(mkdir(outside, 0700), 0);
	ck_assert_int_eq(mkdirat(spoolfd, "photos", 0700), 0);
	ck_assert_int_eq(mkdirat(spoolfd, "photos.tmp", 0700), 0);
	ck_assert_int_eq(mkdirat(spoolfd, "20000102T000000.000Z-no-manifest-1", 0700), 0);
	ck_assert_int_eq(symlinkat(outside, spoolfd, "20000102T000000.000Z-link-r-1"), 0);
	ck_assert_int_eq(symlinkat(outside, spoolfd, "20000102T000000.000Z-link-r-2.tmp"), 0);
	put(spoolfd, "20000102T000000.000Z-file-r-1.tmp", 1);
	spool_free(spool);
	spool = open_spool(1, 1);
	ck_assert_int_eq(spool_enforce(spool, (struct spool_now){ .wall = { UINT64_MAX } }, NULL, NULL), 0);
	ck_assert_uint_eq(count_names(""), 6);
	ck_assert_int_eq(access(outside, F_OK), 0);
	close(spoolfd);
	spool_free(spool);
}
END_TEST

START_TEST(links_inside_an_incident_are_removed_and_not_followed)
{
	struct spool *spool = open_spool(0, 1);
	int spoolfd = open(path, O_RDONLY | O_DIRECTORY), dirfd;
	char outside[128];

	snprintf(outside, sizeof(outside), "%s/outside", directory);
	close(open(outside, O_CREAT | O_WRONLY, 0600));
	add(spool, 1, 1, 1);
	add(spool, 2, 2, 1);
	dirfd = openat(spoolfd, "20000102T000000.000Z-t-r-1", O_RDONLY | O_DIRECTORY);
	ck_assert_int_eq(symlinkat(outside, dirfd, "link"), 0);
	ck_assert_int_eq(symlinkat(directory, dirfd, "dirlink"), 0);
	ck_assert_int_eq(mkdirat(dirfd, "sub", 0700), 0);
	ck_assert_int_eq(mkdirat(dirfd, "sub/sub", 0700), 0);
	ck_assert_int_eq(spool_enforce(spool, (struct spool_now){ 0 }, NULL, NULL), 0);
	ck_assert_uint_eq(count_names(""), 1);
	ck_assert_int_eq(access(outside, F_OK), 0);
	close(dirfd);
	close(spoolfd);
	spool_free(spool);
}
END_TEST

struct removals {
	char text[512];
};

static void note(void *ctx, const struct retention_entry *entry, enum retention_reason why)
{
	struct removals *removals = ctx;
	size_t len = strlen(removals->text);

	snprintf(removals->text + len, sizeof(removals->text) - len, "%g:%s ", entry->severity,
		 retention_reason_name(why));
}

START_TEST(the_worst_are_kept_not_the_newest)
{
	struct spool *spool = open_spool(0, 3);
	struct removals removals = { "" };
	char left[256];

	add(spool, 1, 9, 1);
	add(spool, 2, 1.5, 1);
	add(spool, 3, 7, 1);
	add(spool, 4, 1.5, 1);
	add(spool, 5, 1.2, 1);
	ck_assert_int_eq(spool_enforce(spool, (struct spool_now){ 0 }, note, &removals), 0);
	ck_assert_str_eq(removals.text, "1.2:count 1.5:count ");
	severities(left);
	ck_assert_str_eq(left, "9 7 1.5 "); /* of equals the older one went */
	ck_assert_uint_eq(count_names(".tmp"), 0);
	spool_free(spool);
}
END_TEST

START_TEST(bytes_are_bounded)
{
	struct spool *spool = open_spool(40000, 0);
	char left[256];

	add(spool, 1, 3, 8192); /* 16,384 each, with incident.json and MANIFEST */
	add(spool, 2, 2, 8192);
	add(spool, 3, 1, 8192);
	ck_assert_int_eq(spool_enforce(spool, (struct spool_now){ 0 }, NULL, NULL), 0);
	severities(left);
	ck_assert_str_eq(left, "3 2 ");
	spool_free(spool);
}
END_TEST

START_TEST(age_goes_first_and_makes_room_for_the_rest)
{
	struct retention_limits limits = { .max_count = 2, .max_age_ns = 10 * DAY };
	struct spool *spool = open_spool(0, 0);
	struct removals removals = { "" };
	wall_t now = { 946684800 * NS_PER_S + 12 * DAY };

	add(spool, 1, 9, 1);
	add(spool, 2, 1, 1); /* exactly as old as is allowed */
	add(spool, 3, 2, 1);
	spool_free(spool);
	ck_assert_int_eq(spool_open(path, &limits, &spool, &(size_t){ 0 }), 0);
	ck_assert_int_eq(spool_enforce(spool, (struct spool_now){ .wall = now }, note, &removals), 0);
	ck_assert_str_eq(removals.text, "9:age ");
	spool_free(spool);
}
END_TEST

/* A boot clock that begins again is another boot: time in between is not known. */
START_TEST(age_is_time_in_the_spool_and_not_the_time_of_day)
{
	static const uint64_t hour = 3600 * NS_PER_S;
	struct retention_limits limits = { .max_age_ns = 10 * DAY };
	struct removals removals = { "" };
	struct spool *spool = open_spool(0, 0);

	add(spool, 1, 9, 1);
	spool_free(spool);
	ck_assert_int_eq(spool_open(path, &limits, &spool, &(size_t){ 0 }), 0);
	ck_assert_int_eq(spool_enforce(spool, (struct spool_now){ .mono_ns = hour }, note, &removals), 0);
	ck_assert_int_eq(spool_enforce(spool, (struct spool_now){ .mono_ns = hour + 6 * DAY }, note, &removals), 0);
	add(spool, 2, 1, 1);
	ck_assert_int_eq(spool_enforce(spool, (struct spool_now){ .mono_ns = hour + 6 * DAY }, note, &removals), 0);
	spool_free(spool);
	ck_assert_int_eq(spool_open(path, &limits, &spool, &(size_t){ 0 }), 0);
	ck_assert_int_eq(spool_enforce(spool, (struct spool_now){ .mono_ns = 1 }, note, &removals), 0);
	ck_assert_int_eq(spool_enforce(spool, (struct spool_now){ .mono_ns = 4 * DAY }, note, &removals), 0);
	ck_assert_str_eq(removals.text, "");
	ck_assert_int_eq(spool_enforce(spool, (struct spool_now){ .mono_ns = 4 * DAY + hour }, note, &removals), 0);
	ck_assert_str_eq(removals.text, "9:age ");
	spool_free(spool);
}
END_TEST

/* The clock goes a year forward, back to before all that is there, and is slewed. */
START_TEST(order_is_that_of_arrival_whatever_the_clock_says)
{
	static const unsigned days[] = { 100, 465, 1, 2, 3 };
	struct spool *spool = open_spool(0, 3);
	struct spool_now now = { .mono_ns = NS_PER_S };
	char left[256];

	for (size_t i = 0; i < ARRAY_LEN(days); i++) {
		add(spool, days[i], 1, 100);
		now.wall.ns = days[i] * DAY;
		now.mono_ns += NS_PER_S;
		ck_assert_int_eq(spool_enforce(spool, now, NULL, NULL), 0);
	}
	severities(left);
	ck_assert_str_eq(left, "1 1 1 ");
	/* The last three to come, which have the earliest names. */
	ck_assert_uint_eq(count_names("20000102T") + count_names("20000103T") + count_names("20000104T"), 3);
	spool_free(spool);
}
END_TEST

START_TEST(ages_start_again_when_their_file_is_damaged)
{
	static const char *const texts[] = { "", "spikewatch ages 2\t7\n", "spikewatch ages 1\tx\n",
					     "spikewatch ages 1\t99999999999999999\nno number\n",
					     "spikewatch ages 1\t99999999999999999\n\t5\n" };
	struct retention_limits limits = { .max_age_ns = DAY };

	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct removals removals = { "" };
		struct spool *spool = open_spool(0, 0);
		char file[160];

		add(spool, 1 + (unsigned)i, 9, 1);
		spool_free(spool);
		snprintf(file, sizeof(file), "%s/.ages", path);
		scene_write(file, "%s", texts[i]);
		ck_assert_int_eq(spool_open(path, &limits, &spool, &(size_t){ 0 }), 0);
		ck_assert_int_eq(spool_enforce(spool, (struct spool_now){ .mono_ns = 1 }, note, &removals), 0);
		ck_assert_int_eq(spool_enforce(spool, (struct spool_now){ .mono_ns = 2 }, note, &removals), 0);
		ck_assert_str_eq(removals.text, "");
		spool_free(spool);
	}
}
END_TEST

START_TEST(a_clock_set_back_makes_nothing_old)
{
	struct retention_limits limits = { .max_age_ns = DAY };
	struct retention_entry entry = { .wall = { 100 * DAY } };
	enum retention_reason reason = RETENTION_AGE;

	retention_age_by_names(&entry, 1, (wall_t){ DAY });
	retention_choose(&limits, UINT64_MAX, &entry, &reason, 1);
	ck_assert_int_eq(reason, RETENTION_KEEP);
}
END_TEST

START_TEST(a_file_system_filled_by_others_costs_nothing)
{
	struct retention_limits limits = { .min_free_bytes = UINT64_MAX };
	struct spool *spool = open_spool(0, 0);
	char left[256];

	add(spool, 1, 1, 1);
	add(spool, 2, 5, 1);
	add(spool, 3, 2, 1);
	ck_assert(spool_predict_ok(spool, 1));
	ck_assert(!spool_predict_ok(spool, UINT64_MAX));
	spool_free(spool);
	ck_assert_int_eq(spool_open(path, &limits, &spool, &(size_t){ 0 }), 0);
	ck_assert(!spool_predict_ok(spool, 0));
	ck_assert(!spool_predict_ok(spool, 1));
	ck_assert_int_eq(spool_enforce(spool, (struct spool_now){ 0 }, NULL, NULL), 0);
	severities(left);
	ck_assert_str_eq(left, "1 5 2 "); /* in vain */
	spool_free(spool);
}
END_TEST

/* A user who makes a thousand severe incidents loses own ones; of each owner the worst stay. */
START_TEST(no_owner_displaces_the_incidents_of_another)
{
	static struct retention_entry entries[1010];
	static enum retention_reason reasons[1010];
	struct retention_limits limits = { .max_count = 40 };
	size_t kept[3] = { 0 };
	double worst = 0;

	for (size_t i = 0; i < ARRAY_LEN(entries); i++) {
		struct retention_entry *entry = &entries[i];

		entry->bytes = 4096;
		entry->severity = i < 1000 ? 10 + (double)i : 1 + (double)(i - 1000) / 100;
		snprintf(entry->name, sizeof(entry->name), "%zu", i);
		snprintf(entry->owner, sizeof(entry->owner), "%s",
			 i < 1000   ? "uid 1001"
			 : i < 1004 ? "cgroup nginx.service"
				    : "uid 1002");
	}
	retention_choose(&limits, UINT64_MAX, entries, reasons, ARRAY_LEN(entries));
	for (size_t i = 0; i < ARRAY_LEN(entries); i++) {
		if (reasons[i] != RETENTION_KEEP)
			continue;
		kept[strcmp(entries[i].owner, "uid 1001") == 0   ? 0
		     : strcmp(entries[i].owner, "uid 1002") == 0 ? 1
								 : 2]++;
		if (entries[i].severity > worst)
			worst = entries[i].severity;
	}
	ck_assert_uint_eq(kept[1], 6);
	ck_assert_uint_eq(kept[2], 4);
	ck_assert_uint_eq(kept[0], 30);
	ck_assert_double_eq(worst, 1009);
}
END_TEST

START_TEST(owners_beyond_all_bounds_are_sorted_in_reasonable_time)
{
	static struct retention_entry entries[10000];
	static enum retention_reason reasons[10000];
	struct retention_limits limits = { .max_bytes = 4096 };
	size_t kept = 0;

	for (size_t i = 0; i < ARRAY_LEN(entries); i++) {
		entries[i].bytes = 4096;
		snprintf(entries[i].owner, sizeof(entries[i].owner), "uid %zu", i);
	}
	retention_choose(&limits, UINT64_MAX, entries, reasons, ARRAY_LEN(entries));
	for (size_t i = 0; i < ARRAY_LEN(entries); i++)
		kept += reasons[i] == RETENTION_KEEP;
	ck_assert_uint_eq(kept, 1);
}
END_TEST

START_TEST(free_space_never_costs_the_worst)
{
	struct retention_limits limits = { .min_free_bytes = 1000 };
	struct retention_entry entries[] = { { .severity = 3, .bytes = 100 },
					     { .severity = 1, .bytes = 100 },
					     { .severity = 2, .bytes = 100 } };
	enum retention_reason reasons[3];

	retention_choose(&limits, 800, entries, reasons, 3);
	ck_assert_int_eq(reasons[0], RETENTION_FREE);
	ck_assert_int_eq(reasons[1], RETENTION_FREE);
	ck_assert_int_eq(reasons[2], RETENTION_KEEP);

	retention_choose(&limits, 799, entries, reasons, 3);
	for (size_t i = 0; i < 3; i++)
		ck_assert_int_eq(reasons[i], RETENTION_KEEP);
}
END_TEST

START_TEST(only_what_is_needed_goes_for_free_space)
{
	struct retention_limits limits = { .min_free_bytes = 1000 };
	struct retention_entry entries[] = { { .severity = 3, .bytes = 100 },
					     { .severity = 1, .bytes = 100 },
					     { .severity = 2, .bytes = 100 } };
	enum retention_reason reasons[3];

	retention_choose(&limits, 900, entries, reasons, 3);
	ck_assert_double_eq(entries[0].severity, 1);
	ck_assert_int_eq(reasons[0], RETENTION_FREE);
	ck_assert_int_eq(reasons[1], RETENTION_KEEP);
	ck_assert_int_eq(reasons[2], RETENTION_KEEP);
}
END_TEST

START_TEST(an_unreadable_incident_counts_as_mild)
{
	struct spool *spool = open_spool(0, 1);
	int spoolfd = open(path, O_RDONLY | O_DIRECTORY);
	char left[256];

	add(spool, 1, 1, 1);
	add(spool, 2, 5, 1);
	ck_assert_int_eq(unlinkat(spoolfd, "20000103T000000.000Z-t-r-1/incident.json", 0), 0);
	ck_assert_int_eq(spool_enforce(spool, (struct spool_now){ 0 }, NULL, NULL), 0);
	severities(left);
	ck_assert_str_eq(left, "1 ");
	close(spoolfd);
	spool_free(spool);
}
END_TEST

/* ---- anomalies ---- */

START_TEST(a_seal_that_cannot_write_leaves_nothing)
{
	struct rlimit before, limit;
	struct spool *spool = open_spool(0, 0);
	struct spool_draft *draft;
	rlim_t bytes = 0;
	int r = -1;

	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
	for (; r != 0; bytes += 40) {
		ck_assert_int_eq(spool_begin(spool, "20000102T000000.000Z-t-r", &draft), 0);
		limit = (struct rlimit){ bytes, before.rlim_max };
		ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
		r = spool_seal(draft, &incident);
		ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
		ck_assert_uint_eq(count_names(""), r == 0 ? 1 : 0);
		ck_assert(r == 0 || r == -EFBIG);
		ck_assert_uint_lt(bytes, 100000);
	}
	ck_assert_uint_gt(bytes, 1000);
	spool_free(spool);
}
END_TEST

START_TEST(every_failing_allocation_leaves_nothing_or_a_whole_incident)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct retention_limits limits = { .max_count = 5 };
		struct spool *spool = NULL;
		struct spool_draft *draft = NULL;
		int r;

		torture_arm(n);
		r = spool_open(path, &limits, &spool, &(size_t){ 0 });
		if (r == 0)
			r = spool_begin(spool, "20000102T000000.000Z-t-r", &draft);
		if (r == 0)
			r = spool_seal(draft, &incident);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		ck_assert_uint_eq(access(path, F_OK) == 0 ? count_names("") : 0, injected ? 0 : 1);
		spool_free(spool);
	}
}
END_TEST

START_TEST(retention_without_memory_removes_nothing)
{
	struct spool *spool = open_spool(0, 1);
	bool injected = true;
	char left[256];

	add(spool, 1, 1, 1);
	add(spool, 2, 2, 1);
	for (long n = 1; injected; n++) {
		int r;

		torture_arm(n);
		r = spool_enforce(spool, (struct spool_now){ 0 }, NULL, NULL);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		severities(left);
		ck_assert_str_eq(left, injected ? "1 2 " : "2 ");
	}
	spool_free(spool);
}
END_TEST

START_TEST(new_limits_hold_from_the_next_time_on)
{
	struct spool *spool = open_spool(0, 0);
	struct retention_limits limits = { .max_count = 1, .min_free_bytes = 0 };
	char left[256];

	add(spool, 1, 1, 1);
	add(spool, 2, 2, 1);
	ck_assert_int_eq(spool_enforce(spool, (struct spool_now){ 0 }, NULL, NULL), 0);
	severities(left);
	ck_assert_str_eq(left, "1 2 ");
	spool_set_limits(spool, &limits);
	ck_assert_int_eq(spool_enforce(spool, (struct spool_now){ 0 }, NULL, NULL), 0);
	severities(left);
	ck_assert_str_eq(left, "2 ");
	ck_assert(spool_predict_ok(spool, 1));
	limits.min_free_bytes = UINT64_MAX / 2;
	spool_set_limits(spool, &limits);
	ck_assert(!spool_predict_ok(spool, 1));
	spool_free(spool);
}
END_TEST

START_TEST(a_directory_that_is_gone_has_the_room_of_the_one_above)
{
	struct spool *spool = open_spool(0, 0);

	ck_assert_int_eq(directory_tree_remove(AT_FDCWD, directory), 0);
	ck_assert(spool_predict_ok(spool, 1));
	ck_assert(!spool_predict_ok(spool, UINT64_MAX / 2));
	add(spool, 1, 1, 1);
	ck_assert_uint_eq(count_names("-1"), 1);
	spool_free(spool);
}
END_TEST

START_TEST(a_draft_whose_directory_was_removed_knows_it)
{
	struct spool *spool = open_spool(0, 0);
	struct spool_draft *draft;

	ck_assert_int_eq(spool_begin(spool, "20000102T000000.000Z-t-r", &draft), 0);
	ck_assert(!spool_lost(draft));
	ck_assert_int_eq(directory_tree_remove(AT_FDCWD, path), 0);
	ck_assert(spool_lost(draft));
	ck_assert_int_lt(spool_seal(draft, &incident), 0);
	spool_free(spool);
}
END_TEST

START_TEST(what_was_written_may_be_written_again)
{
	struct spool *spool = open_spool(0, 0);
	struct spool_draft *draft;
	int dirfd;

	ck_assert_int_eq(spool_begin(spool, "20000102T000000.000Z-t-r", &draft), 0);
	put(spool_draft_parts(draft).dirfd, "data.txt", 10);
	ck_assert_int_eq(spool_write(draft, &incident, NULL, NULL), 0);
	ck_assert_int_eq(unlinkat(spool_draft_parts(draft).dirfd, "data.txt", 0), 0);
	ck_assert_int_eq(spool_write(draft, &incident, NULL, NULL), 0);
	ck_assert_int_eq(spool_publish(draft), 0);
	dirfd = open(path, O_RDONLY | O_DIRECTORY);
	int sealed = openat(dirfd, "20000102T000000.000Z-t-r-1", O_RDONLY | O_DIRECTORY);

	ck_assert_int_eq(manifest_verify(sealed, NULL, NULL), 0);
	close(sealed);
	close(dirfd);
	spool_free(spool);
}
END_TEST

/* Root may do everything: it has to become another user. */
START_TEST(a_permission_that_was_lost_is_an_error_until_it_is_back)
{
	struct spool *spool = open_spool(0, 0);
	struct spool_draft *draft;
	int r;

	if (geteuid() != 0)
		ck_assert_int_eq(chmod(path, 0500), 0);
	else
		ck_assert_int_eq(seteuid(65534), 0);
	r = spool_begin(spool, "20000102T000000.000Z-t-r", &draft);
	bool room = spool_predict_ok(spool, 1);

	if (getuid() == 0)
		ck_assert_int_eq(seteuid(0), 0);
	else
		ck_assert_int_eq(chmod(path, 0700), 0);
	ck_assert_int_eq(r, -EACCES);
	ck_assert(room); /* that is not the trouble */
	add(spool, 1, 1, 1);
	ck_assert_uint_eq(count_names(""), 1);
	spool_free(spool);
}
END_TEST

START_TEST(a_path_that_is_no_directory_is_an_error)
{
	struct retention_limits limits = { 0 };
	struct spool *spool;
	char file[128];

	snprintf(file, sizeof(file), "%s/file", directory);
	close(open(file, O_CREAT | O_WRONLY, 0600));
	ck_assert_int_lt(spool_open(file, &limits, &spool, NULL), 0);
	snprintf(file, sizeof(file), "%s/file/below", directory);
	ck_assert_int_eq(spool_open(file, &limits, &spool, NULL), -ENOTDIR);
	ck_assert_int_lt(spool_open("", &limits, &spool, NULL), 0);
}
END_TEST

START_TEST(a_link_to_a_directory_is_not_entered)
{
	int dirfd = open(directory, O_RDONLY | O_DIRECTORY);

	ck_assert_int_eq(mkdirat(dirfd, "real", 0700), 0);
	put(dirfd, "real/file", 1);
	ck_assert_int_eq(symlinkat("real", dirfd, "link"), 0);
	ck_assert_int_eq(directory_tree_remove(dirfd, "link"), -ENOTDIR);
	ck_assert_int_eq(faccessat(dirfd, "real/file", F_OK, 0), 0);
	ck_assert_int_eq(faccessat(dirfd, "link", F_OK, 0), 0);
	close(dirfd);
}
END_TEST

START_TEST(a_tree_of_any_depth_is_removed)
{
	int dirfd = open(directory, O_RDONLY | O_DIRECTORY), at = dup(dirfd);

	for (int i = 0; i < 5 * DIRECTORY_TREE_DEPTH_MAX; i++) {
		ck_assert_int_eq(mkdirat(at, "d", 0700), 0);
		put(at, "file", 1);

		int below = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		close(at);
		at = below;
	}
	close(at);
	ck_assert_int_eq(directory_tree_remove(dirfd, "d"), 0);
	ck_assert_int_lt(faccessat(dirfd, "d", F_OK, 0), 0);
	ck_assert_int_eq(directory_tree_remove(dirfd, "d"), 0); /* gone already is fine */
	close(dirfd);
}
END_TEST

/* ---- others, at the same time ---- */

/* Locks all that it can open, and tells. Until it is killed, or a minute is over. */
static void lock_everything(const char *at)
{
	int fd = open(at, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	DIR *dir = fd < 0 ? NULL : opendir(at);

	if (fd >= 0)
		flock(fd, LOCK_EX | LOCK_NB); /* as long as it lives */
	for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
		char below[600];

		snprintf(below, sizeof(below), "%s/%s", at, entry->d_name);
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			lock_everything(below);
	}
	if (dir)
		closedir(dir);
}

static pid_t start_member(void)
{
	int ready[2];
	char byte;

	ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
	pid_t pid = fork();

	if (pid == 0) {
		if (setgroups(0, NULL) < 0 || setresgid(getgid(), getgid(), getgid()) < 0 ||
		    setresuid(65534, 65534, 65534) < 0)
			_exit(1);
		lock_everything(path);
		(void)!write(ready[1], "", 1);
		sleep(60);
		_exit(0);
	}
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

/* A noted draft of a writer that has died. */
static void leave_draft(const char *stem)
{
	pid_t child = fork();

	if (child == 0) {
		struct retention_limits limits = { 0 };
		struct spool_draft *draft;
		struct spool *own;

		_exit(spool_open(path, &limits, &own, NULL) < 0 || spool_begin(own, stem, &draft) < 0 ||
		      spool_note(draft, &incident) < 0);
	}

	int status;

	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}

START_TEST(a_member_of_the_group_holds_nothing_up)
{
	struct retention_limits limits = { .max_count = 1 };
	const struct spool_swept *swept;
	struct spool *spool;

	if (geteuid() != 0)
		SKIP_TEST("only root can become another user");
	ck_assert_int_eq(chmod(directory, 0755), 0);
	umask(027);
	spool = open_spool(0, 0);
	add(spool, 1, 1, 1);
	add(spool, 2, 1, 1);
	spool_free(spool);
	leave_draft("20000105T000000.000Z-dead-r");

	pid_t member = start_member();

	ck_assert_int_eq(spool_open(path, &limits, &spool, &(size_t){ 0 }), 0);
	ck_assert_uint_eq(spool_swept(spool, &swept), 1);
	ck_assert(swept[0].adopted);
	add(spool, 3, 9, 1);
	ck_assert_int_eq(spool_enforce(spool, (struct spool_now){ 0 }, NULL, NULL), 0);
	ck_assert_uint_eq(count_names(""), 1);
	ck_assert_int_eq(waitpid(member, NULL, WNOHANG), 0); /* it was not waited for */
	kill(member, SIGKILL);
	waitpid(member, NULL, 0);
	spool_free(spool);
}
END_TEST

START_TEST(a_lock_that_is_not_let_go_of_is_an_error)
{
	struct spool *spool = open_spool(0, 0);
	AUTO_CLOSE int spoolfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct spool_draft *draft;
	int lock;

	ck_assert_int_eq(lock_file_take(spoolfd, PATHS_LOCK, &lock), 0);
	ck_assert_int_eq(spool_begin(spool, "20000102T000000.000Z-t-r", &draft), -EBUSY);
	close(lock);
	add(spool, 1, 1, 1);
	ck_assert_uint_eq(count_names(""), 1);
	spool_free(spool);
}
END_TEST

START_TEST(what_is_being_removed_is_not_swept)
{
	int status = 0;

	for (long step = 1; !WIFEXITED(status) || step == 1; step++) {
		struct retention_limits limits = { .max_count = 1 };
		const struct spool_swept *swept;
		struct spool *spool, *other;

		ck_assert_int_eq(spool_open(path, &limits, &spool, &(size_t){ 0 }), 0);
		add(spool, 1, 1, 100);
		add(spool, 2, 9, 100);

		pid_t child = fork();

		if (child == 0) {
			torture_stop_at(step);
			_exit(spool_enforce(spool, (struct spool_now){ 0 }, NULL, NULL) < 0);
		}
		ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
		ck_assert(WIFSTOPPED(status) || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
		if (WIFSTOPPED(status)) {
			bool between = count_names(".tmp") > 0;

			ck_assert_int_eq(spool_open(path, &limits, &other, &(size_t){ 0 }), 0);
			ck_assert_msg(spool_swept(other, &swept) == 0, "step %ld", step);
			ck_assert(!between || count_names(".tmp") == 1);
			spool_free(other);
			kill(child, SIGCONT);
			ck_assert_int_eq(waitpid(child, NULL, 0), child);
		}
		ck_assert_uint_eq(count_names(""), 1);
		spool_free(spool);
		ck_assert_int_eq(directory_tree_remove(AT_FDCWD, directory), 0);
		ck_assert_int_eq(mkdir(directory, 0700), 0);
	}
}
END_TEST

/* ---- leftover files of commands ---- */

static int dirfd_of;

static void setup_leftover(void)
{
	scene_directory(directory);
	dirfd_of = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	incident_init(&incident, "1");
}

static void teardown_leftover(void)
{
	close(dirfd_of);
	scene_remove(directory);
}

static void leave_file(const char *name, size_t bytes)
{
	int fd = openat(dirfd_of, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	close(fd);
}

static void add_capture_of(const char *file, uint64_t bytes)
{
	struct incident_capture capture = { .bytes = bytes };

	incident_text(capture.name, sizeof(capture.name), "ours");
	incident_text(capture.file, sizeof(capture.file), file);
	incident_add_capture(&incident, &capture);
}

static bool is_there(const char *name)
{
	return faccessat(dirfd_of, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static const struct incident_capture *kept(const char *file)
{
	for (size_t i = 0; i < incident.capture_count; i++)
		if (strcmp(incident.captures[i].file, file) == 0)
			return &incident.captures[i];

	return NULL;
}

static bool said(const char *part)
{
	for (size_t i = 0; i < incident.capture_count; i++)
		if (incident.captures[i].status == INCIDENT_CAPTURE_FAILED && strstr(incident.captures[i].why, part))
			return true;

	return false;
}

START_TEST(plain_files_are_kept_and_recorded)
{
	leave_file("threads.tsv", 5);
	add_capture_of("threads.tsv", 5);
	leave_file(INCIDENT_FILE, 7);
	leave_file("core.812", 1000);
	ck_assert_int_eq(leftover_files_settle(dirfd_of, 1000, &incident), 0);
	ck_assert_uint_eq(incident.capture_count, 2);
	ck_assert_ptr_nonnull(kept("core.812"));
	ck_assert_uint_eq(kept("core.812")->bytes, 1000);
	ck_assert_str_eq(kept("core.812")->name, INCIDENT_LEFT_FILE);
	ck_assert(is_there(INCIDENT_FILE) && is_there("threads.tsv") && is_there("core.812"));
}
END_TEST

START_TEST(the_smallest_are_kept_as_long_as_there_is_room)
{
	leave_file("c", 600);
	leave_file("a", 500);
	leave_file("b", 400);
	ck_assert_int_eq(leftover_files_settle(dirfd_of, 1000, &incident), 0);
	ck_assert(is_there("a") && is_there("b") && !is_there("c"));
	ck_assert(said("removed: c: 600 B, more than max_incident_size leaves room for"));
}
END_TEST

START_TEST(what_cannot_be_sealed_is_removed_and_said)
{
	char longer[100];

	memset(longer, 'n', sizeof(longer));
	longer[64] = '\0'; /* a manifest would take it, a record has no room */
	leave_file(longer, 1);
	leave_file(".hidden", 1);
	leave_file("a b", 1);
	leave_file("MANIFEST", 1);
	leave_file(INCIDENT_SAMPLES_FILE, 1);
	ck_assert_int_eq(mkdirat(dirfd_of, "directory", 0700), 0);
	leave_file("directory/file", 1);
	ck_assert_int_eq(symlinkat("/etc/passwd", dirfd_of, "link"), 0);
	ck_assert_int_eq(mkfifoat(dirfd_of, "fifo", 0600), 0);
	leave_file("good", 1);
	ck_assert_int_eq(leftover_files_settle(dirfd_of, 1000, &incident), 0);
	ck_assert_ptr_nonnull(kept("good"));
	ck_assert_uint_eq(incident.capture_count, 9);
	ck_assert(said("removed: link: no plain file") && said("removed: a b: its name"));
	ck_assert_int_eq(manifest_write(dirfd_of), 0);
	ck_assert_int_eq(manifest_verify(dirfd_of, NULL, NULL), 0);
	ck_assert(!is_there("directory") && !is_there("link") && !is_there(longer));
}
END_TEST

START_TEST(many_files_are_bounded_and_the_rest_is_counted)
{
	char name[20];

	for (int i = 0; i < 400; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		leave_file(name, 1);
	}
	ck_assert_int_eq(leftover_files_settle(dirfd_of, 1000, &incident), 0);
	ck_assert_uint_lt(incident.capture_count, INCIDENT_CAPTURES_MAX);
	ck_assert(said(" more"));
	size_t count = 0;

	for (size_t i = 0; i < incident.capture_count; i++)
		count += incident.captures[i].file[0] != '\0';
	ck_assert_uint_eq(count, LEFTOVER_FILES_MAX);
	ck_assert_int_eq(manifest_write(dirfd_of), 0);
}
END_TEST

START_TEST(a_capture_that_a_command_has_removed_or_replaced_is_said)
{
	add_capture_of("gone.txt", 5);
	add_capture_of("changed.txt", 5);
	leave_file("changed.txt", 9);
	add_capture_of("replaced.txt", 5);
	ck_assert_int_eq(symlinkat("/etc/passwd", dirfd_of, "replaced.txt"), 0);
	ck_assert_int_eq(leftover_files_settle(dirfd_of, 1000, &incident), 0);
	ck_assert_int_eq(incident.captures[0].status, INCIDENT_CAPTURE_FAILED);
	ck_assert_str_eq(incident.captures[0].file, "");
	ck_assert_uint_eq(incident.captures[1].bytes, 9);
	ck_assert_int_eq(incident.captures[2].status, INCIDENT_CAPTURE_FAILED);
	ck_assert(!is_there("replaced.txt"));
}
END_TEST

/* As a user who may not do everything. A child's exit code counts what is wrong. */
static void as_another(int (*run)(void))
{
	int status;

	if (geteuid() != 0)
		SKIP_TEST("only root can become another user");
	ck_assert_int_eq(chmod(directory, 0755), 0);
	ck_assert_int_eq(fchown(dirfd_of, 65534, 65534), 0);

	pid_t child = fork();

	if (child == 0)
		_exit(setgroups(0, NULL) < 0 || setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0
			      ? 99
			      : run());
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
}

static int settle_closed_directories(void)
{
	leave_file("good", 1);
	if (mkdirat(dirfd_of, "closed", 0700) < 0 || mkdirat(dirfd_of, "closed/below", 0700) < 0 ||
	    mkdirat(dirfd_of, "closed/hidden", 0700) < 0)
		return 1;
	leave_file("closed/file", 1);
	leave_file("closed/below/file", 1);
	leave_file("closed/hidden/file", 1);
	if (fchmodat(dirfd_of, "closed/hidden", 0, 0) < 0 || fchmodat(dirfd_of, "closed/below", 0555, 0) < 0 ||
	    fchmodat(dirfd_of, "closed", 0555, 0) < 0 || fchmod(dirfd_of, 0555) < 0)
		return 2;
	if (leftover_files_settle(dirfd_of, 1000, &incident) != 0)
		return 3;
	if (is_there("closed") || !kept("good") || !said("removed: closed: no plain file") || said("not removed"))
		return 4;
	return manifest_write(dirfd_of) == 0 && manifest_verify(dirfd_of, NULL, NULL) == 0 ? 0 : 5;
}

START_TEST(directories_that_are_closed_are_removed_all_the_same)
{
	as_another(settle_closed_directories);
}
END_TEST

static int settle_foreign_directory(void)
{
	leave_file("good", 1);
	if (mkdirat(dirfd_of, "mine", 0700) < 0)
		return 1;
	leave_file("mine/file", 1);
	if (leftover_files_settle(dirfd_of, 1000, &incident) != 0)
		return 2;
	if (is_there("mine") || !is_there("stuck/file") || !kept("good") ||
	    !said("not removed: stuck: Permission denied"))
		return 3;
	return manifest_write(dirfd_of) == 0 ? 0 : 4;
}

START_TEST(what_cannot_be_removed_is_said_and_costs_nothing_else)
{
	ck_assert_int_eq(mkdirat(dirfd_of, "stuck", 0755), 0);
	leave_file("stuck/file", 1);
	as_another(settle_foreign_directory);
}
END_TEST

START_TEST(without_memory_it_says_so)
{
	torture_arm(1);
	int r = leftover_files_settle(dirfd_of, 1000, &incident);

	torture_disarm();
	ck_assert_int_eq(r, -ENOMEM);
}
END_TEST

Suite *spool_suite(void);
Suite *spool_suite(void)
{
	Suite *suite = suite_create("spool");
	TCase *tcase = tcase_create("all"), *leftover = tcase_create("leftover files");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_noted_draft_of_a_writer_that_died_is_sealed_as_it_is);
	tcase_add_test(tcase, what_was_sealed_is_whole);
	tcase_add_test(tcase, a_draft_is_not_listed_and_an_abort_leaves_nothing);
	tcase_add_test(tcase, numbers_make_names_unique);
	tcase_add_test(tcase, what_a_dead_writer_left_is_swept_and_a_living_one_is_not);
	tcase_add_test(tcase, a_writer_that_is_killed_at_any_step_leaves_a_whole_incident_or_none_and_that_is_said);
	tcase_add_test(tcase, a_draft_that_children_of_a_killed_writer_hold_is_waited_for);
	tcase_add_test(tcase, what_is_not_ours_is_never_touched);
	tcase_add_test(tcase, links_inside_an_incident_are_removed_and_not_followed);
	tcase_add_test(tcase, the_worst_are_kept_not_the_newest);
	tcase_add_test(tcase, bytes_are_bounded);
	tcase_add_test(tcase, age_goes_first_and_makes_room_for_the_rest);
	tcase_add_test(tcase, age_is_time_in_the_spool_and_not_the_time_of_day);
	tcase_add_test(tcase, order_is_that_of_arrival_whatever_the_clock_says);
	tcase_add_test(tcase, ages_start_again_when_their_file_is_damaged);
	tcase_add_test(tcase, a_clock_set_back_makes_nothing_old);
	tcase_add_test(tcase, a_file_system_filled_by_others_costs_nothing);
	tcase_add_test(tcase, no_owner_displaces_the_incidents_of_another);
	tcase_add_test(tcase, owners_beyond_all_bounds_are_sorted_in_reasonable_time);
	tcase_add_test(tcase, free_space_never_costs_the_worst);
	tcase_add_test(tcase, only_what_is_needed_goes_for_free_space);
	tcase_add_test(tcase, an_unreadable_incident_counts_as_mild);
	tcase_add_test(tcase, a_seal_that_cannot_write_leaves_nothing);
	tcase_add_test(tcase, every_failing_allocation_leaves_nothing_or_a_whole_incident);
	tcase_add_test(tcase, retention_without_memory_removes_nothing);
	tcase_add_test(tcase, new_limits_hold_from_the_next_time_on);
	tcase_add_test(tcase, a_directory_that_is_gone_has_the_room_of_the_one_above);
	tcase_add_test(tcase, a_draft_whose_directory_was_removed_knows_it);
	tcase_add_test(tcase, what_was_written_may_be_written_again);
	tcase_add_test(tcase, a_permission_that_was_lost_is_an_error_until_it_is_back);
	tcase_add_test(tcase, a_path_that_is_no_directory_is_an_error);
	tcase_add_test(tcase, a_link_to_a_directory_is_not_entered);
	tcase_add_test(tcase, a_tree_of_any_depth_is_removed);
	tcase_add_test(tcase, a_member_of_the_group_holds_nothing_up);
	tcase_add_test(tcase, a_lock_that_is_not_let_go_of_is_an_error);
	tcase_add_test(tcase, what_is_being_removed_is_not_swept);
	tcase_add_checked_fixture(leftover, setup_leftover, teardown_leftover);
	tcase_add_test(leftover, plain_files_are_kept_and_recorded);
	tcase_add_test(leftover, the_smallest_are_kept_as_long_as_there_is_room);
	tcase_add_test(leftover, what_cannot_be_sealed_is_removed_and_said);
	tcase_add_test(leftover, many_files_are_bounded_and_the_rest_is_counted);
	tcase_add_test(leftover, a_capture_that_a_command_has_removed_or_replaced_is_said);
	tcase_add_test(leftover, directories_that_are_closed_are_removed_all_the_same);
	tcase_add_test(leftover, what_cannot_be_removed_is_said_and_costs_nothing_else);
	tcase_add_test(leftover, without_memory_it_says_so);
	suite_add_tcase(suite, tcase);
	suite_add_tcase(suite, leftover);
	return suite;
}
