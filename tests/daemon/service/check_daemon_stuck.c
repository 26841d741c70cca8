/*
 * check_daemon_stuck.c: spikewatchd on a /proc in which a file of a process is a FIFO
 * without a writer: a read that blocks, at the start, while the daemon runs and when it stops.
 * --stuck-after shortens what is otherwise waited for.
 */
#include "lib/incident/manifest.h"
#include "program.h"
#include "skip.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

Suite *daemon_stuck_suite(void);

static char directory[64], spikewatchd[512], spikewatch[512], stuck[128];
static bool built;
static int notified; /* where messages to systemd arrive */
static char notify[64];

static const char *place(const char *name)
{
	static char paths[4][128];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", directory, name);

	return path;
}

static void listen_as_systemd(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char name[32];
	int len = snprintf(name, sizeof(name), "@spikewatch-stuck-%d", (int)getpid());

	snprintf(notify, sizeof(notify), "NOTIFY_SOCKET=%s", name);
	memcpy(address.sun_path, name, (size_t)len);
	address.sun_path[0] = '\0';
	notified = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(notified, (struct sockaddr *)&address,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)len)),
			 0);
}

static void configure(const char *captures, const char *targets)
{
	char cgroups[PATH_MAX];

	ck_assert_ptr_nonnull(realpath("tests/data/cgroup/v1", cgroups));
	scene_write(place("config"),
		    "{\"proc_root\": \"%s/proc\", \"cgroup_root\": \"%s\", \"stacks\": \"off\",\n"
		    "\"sampling\": {\"interval\": \"10ms\", \"rescan_interval\": \"100ms\"},\n"
		    "\"ring\": {\"path\": \"%s/ring\", \"size\": \"4MiB\", \"lock\": false},\n"
		    "\"incidents\": {\"directory\": \"%s/incidents\", \"before\": \"500ms\", \"after\": \"1h\",\n"
		    "%s, \"min_free\": \"0B\"}, \"state_file\": \"%s/state\",\n"
		    "\"targets\": [%s], \"rules\": []}\n",
		    directory, cgroups, directory, directory, captures, directory, targets);
}

/* The file of process 10 that is going to be a pipe. */
static void write_file(const char *name)
{
	snprintf(stuck, sizeof(stuck), "%s/proc/10/%s", directory, name);
	scene_write(stuck, strcmp(name, "cgroup") == 0 ? "4:cpu,cpuacct:/x\n3:memory:/x\n" : "web");
}

static void make_proc(void)
{
	ck_assert_int_eq(mkdir(place("proc"), 0700), 0);
	ck_assert_int_eq(mkdir(place("proc/10"), 0700), 0);
	scene_write(place("proc/meminfo"), "MemTotal: 1048576 kB\n");
	scene_write(place("proc/10/stat"), "10 (web) S 1 1 1 0 -1 0 10 0 0 0 5 5 0 0 20 0 3 0 500 1000000 100 0\n");
	scene_write(place("proc/10/statm"), "200 100 50 1 0 60 0\n");
	scene_write(place("proc/10/cmdline"), "web");
	write_file("cgroup");
	configure("\"captures\": [\"samples\"]", "{\"name\": \"web\", \"cmdline\": \"web\"},\n"
						 "{\"name\": \"x\", \"cgroup\": \"/x\", \"per\": \"process\"}");
}

static void setup(void)
{
	scene_directory(directory);
	listen_as_systemd();
	make_proc();
	built = program_find("spikewatchd", spikewatchd) && program_find("spikewatch", spikewatch);
}

static void teardown(void)
{
	close(notified);
	scene_remove(directory);
}

/* How many keep-alive messages have arrived since the last call. */
static unsigned keep_alives(void)
{
	char text[64];
	unsigned times = 0;

	for (ssize_t len; (len = recv(notified, text, sizeof(text) - 1, 0)) > 0;) {
		text[len] = '\0';
		times += strcmp(text, "WATCHDOG=1") == 0;
	}

	return times;
}

/* How many incidents there are, all sealed and whole; -1: one is being written. */
static int sealed(void)
{
	DIR *dir = opendir(place("incidents"));
	int count = 0;

	for (struct dirent *item; dir && (item = readdir(dir));) {
		if (item->d_name[0] == '.')
			continue;
		if (strstr(item->d_name, ".tmp")) {
			count = -1;
			break;
		}

		int fd = openat(dirfd(dir), item->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		ck_assert_int_eq(manifest_verify(fd, NULL, NULL), 0);
		close(fd);
		count++;
	}
	if (dir)
		closedir(dir);

	return count;
}

static struct program start(void)
{
	const char *const arguments[] = { "/usr/bin/env", notify,          "WATCHDOG_USEC=2000000", spikewatchd,
					  "-c",           place("config"), "--stuck-after=1s",      NULL };

	return program_start(arguments, directory, -1, 0);
}

static void await_message(const struct program *program, const char *message)
{
	scene_wait_for(scene_says(program->err, message) || waitpid(program->pid, NULL, WNOHANG) != 0);
	program_said(directory, message);
}

static void make_stuck(void)
{
	ck_assert_int_eq(unlink(stuck), 0);
	ck_assert_int_eq(mkfifo(stuck, 0600), 0);
}

/* Waits until it is being read. */
static int await_reader(void)
{
	int fd = -1;

	scene_wait_for((fd = open(stuck, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) >= 0);

	return fd;
}

START_TEST(a_blocked_scan_is_reported_and_stops_neither_the_keep_alive_nor_the_stop)
{
	if (!built)
		SKIP_TEST("spikewatchd and spikewatch were not built");

	struct program program = start();

	await_message(&program, "watching ");
	make_stuck();

	int fd = await_reader();

	scene_wait_for((keep_alives(), scene_says(program.err, "it is blocked in a read of the files of process 10")));
	scene_wait_for(keep_alives() > 0);
	scene_wait_for(keep_alives() > 0);

	kill(program.pid, SIGUSR1);
	scene_wait_for(sealed() == -1);
	kill(program.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&program), 0);
	ck_assert_int_eq(sealed(), 1);
	program_said(directory, "not waiting for it any longer");
	program_said(directory, "stopped: 1 incidents sealed");
	close(fd);
}
END_TEST

/* No process was found yet: process 10 is the first. */
START_TEST(a_blocked_first_scan_is_reported_and_the_daemon_becomes_ready_without_it)
{
	const char *const status[] = { spikewatch, "status", "-s", place("control"), NULL };

	if (!built)
		SKIP_TEST("spikewatchd and spikewatch were not built");

	make_stuck();

	struct program program = start();
	int fd = await_reader();

	await_message(&program, "watching 0 targets");
	program_said(directory, "it is reading the files of process 10, and may be blocked there");
	scene_wait_for(keep_alives() > 0);
	ck_assert_int_eq(mkdir(place("asked"), 0700), 0);
	ck_assert_int_eq(program_run(status, place("asked")), 0);
	kill(program.pid, SIGHUP);
	await_message(&program, "reloaded: nothing has changed");

	/* The scan continues, and finds what is there now. */
	unlink(stuck);
	write_file("cgroup");
	close(fd);
	await_message(&program, "target web/10 found");
	kill(program.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&program), 0);
}
END_TEST

/* The capture "status" reads it, and nothing else. */
START_TEST(a_capture_that_blocks_does_not_keep_it_from_stopping)
{
	if (!built)
		SKIP_TEST("spikewatchd and spikewatch were not built");

	configure("\"captures\": [\"samples\", \"status\"]", "{\"name\": \"web\", \"comm\": \"web\"}");
	write_file("status");

	struct program program = start();

	await_message(&program, "target web/10 found");
	make_stuck();
	kill(program.pid, SIGUSR1);

	int fd = await_reader();

	kill(program.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&program), 0);
	program_said(directory, "the incident worker is blocked");
	program_said(directory, "stopped: 0 incidents sealed");
	close(fd);

	/* The next start seals what was noted, and recovers what the ring held, as after a crash. */
	unlink(stuck);
	write_file("status");
	program = start();
	await_message(&program, "watching ");
	scene_wait_for(sealed() == 2);
	kill(program.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&program), 0);
}
END_TEST

/* The text of a file of the only incident, for free(3). */
static char *incident_file(const char *name)
{
	DIR *dir = opendir(place("incidents"));
	char *text = NULL;

	for (struct dirent *item; dir && (item = readdir(dir));) {
		struct buffer found = { 0 };
		int fd = item->d_name[0] == '.' ? -1 : openat(dirfd(dir), item->d_name, O_RDONLY | O_DIRECTORY);

		if (fd < 0)
			continue;
		if (whole_file_read(fd, name, &found) == 0 && buffer_append(&found, "", 1) == 0)
			text = found.data;
		close(fd);
	}
	closedir(dir);
	return text;
}

/*
 * A command line that does not come, as one whose process holds its mmap lock: it is missing in the
 * incident, which says so, and nothing else is.
 */
START_TEST(a_command_line_that_does_not_come_is_missing_in_the_incident)
{
	char *text;

	if (!built)
		SKIP_TEST("spikewatchd and spikewatch were not built");

	configure("\"captures\": [\"samples\", \"status\"]", "{\"name\": \"web\", \"comm\": \"web\"}");
	scene_write(place("proc/10/status"), "Name:\tweb\nUid:\t1234\t1234\t1234\t1234\n");
	write_file("cmdline");

	struct program program = start();

	await_message(&program, "target web/10 found");
	make_stuck();
	kill(program.pid, SIGUSR1);

	int fd = await_reader();

	await_message(&program, "/proc/10/cmdline did not answer within 2 s");
	kill(program.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&program), 0);
	program_said(directory, "stopped: 1 incidents sealed");
	ck_assert_int_eq(sealed(), 1);
	close(fd);

	text = incident_file("status.txt");
	ck_assert_ptr_nonnull(text);
	ck_assert_msg(strstr(text, "# /proc/10/cmdline: did not answer in time\n"), "%s", text);
	ck_assert_msg(strstr(text, "Name:\tweb\n"), "%s", text);
	free(text);
	text = incident_file("incident.json");
	ck_assert_msg(strstr(text, "in part left out: it did not answer in time"), "%s", text);
	free(text);
}
END_TEST

/* A cgroup file, which discovery reads with its lock held. */
static void make_own_cgroups(void)
{
	char command[512];
	char *text;

	snprintf(command, sizeof(command), "cp -r tests/data/cgroup/v1 %s", place("cgroups"));
	ck_assert_int_eq(system(command), 0);
	snprintf(command, sizeof(command), "%s/cgroups", directory);
	text = scene_read(place("config"));

	char *root = strstr(text, "\"cgroup_root\": \""), *end = strchr(root + 16, '"');

	scene_write(place("config"), "%.*s\"cgroup_root\": \"%s%s", (int)(root - text), text, command, end);
	free(text);
	snprintf(stuck, sizeof(stuck), "%s/cgroups/cpu,cpuacct/system.slice/cpu.cfs_quota_us", directory);
}

START_TEST(a_cgroup_file_that_does_not_answer_holds_nothing_but_discovery)
{
	char control[128];
	const char *const status[] = { spikewatch, "status", "-s", control, NULL };
	const char *const reload[] = { spikewatch, "reload", "-s", control, NULL };
	struct timespec from, to;
	char *text;

	if (!built)
		SKIP_TEST("spikewatchd and spikewatch were not built");
	snprintf(control, sizeof(control), "%s/control", directory);
	configure("\"captures\": [\"samples\", \"status\"]", "{\"name\": \"web\", \"comm\": \"web\"}");
	scene_write(place("proc/10/cgroup"), "4:cpu,cpuacct:/system.slice/a\n3:memory:/system.slice/a\n");
	make_own_cgroups();
	make_stuck();

	struct program program = start();
	int fd = await_reader();

	await_message(&program, "watching ");
	scene_wait_for((keep_alives(), scene_says(program.err, "the discovery thread has given no sign of life")));
	ck_assert_int_eq(mkdir(place("asked"), 0700), 0);
	clock_gettime(CLOCK_MONOTONIC, &from);
	ck_assert_int_eq(program_run(status, place("asked")), 0);
	clock_gettime(CLOCK_MONOTONIC, &to);
	ck_assert_int_lt(to.tv_sec - from.tv_sec, 5);
	scene_wait_for(keep_alives() > 0);

	/* Rules are in force at once, new targets when the file has come. */
	text = scene_read(place("config"));
	*strstr(text, "\"rules\": []}") = '\0';
	*strstr(text, "\"targets\": [") = '\0';
	scene_write(place("config"),
		    "%s\"targets\": [{\"name\": \"late\", \"comm\": \"web\"}],\n\"rules\": "
		    "[{\"name\": \"r\", \"targets\": [\"late\"], \"metric\": \"cpu\", \"percent\": 80}]}",
		    text);
	free(text);
	ck_assert_int_eq(program_run(reload, place("asked")), 0);
	await_message(&program, "rules: 1 added; new targets when discovery has read what it waits for");
	scene_wait_for(keep_alives() > 0);
	if (_i == 1) {
		ck_assert_int_eq(unlink(stuck), 0);
		close(fd);
		await_message(&program, "discovery goes by the configuration that was reloaded");
		await_message(&program, "target late/10 found");
		kill(program.pid, SIGTERM);
		ck_assert_int_eq(program_wait(&program), 0);
		return;
	}
	kill(program.pid, SIGUSR1);
	scene_wait_for(sealed() == -1);
	kill(program.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&program), 0);
	ck_assert_int_eq(sealed(), 1);
	close(fd);
}
END_TEST

START_TEST(a_signal_ends_a_start_that_is_blocked)
{
	if (!built)
		SKIP_TEST("spikewatchd and spikewatch were not built");

	make_stuck();

	struct program program = start();
	int fd = await_reader();

	kill(program.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&program), 0);
	program_said(directory, "stopping (Terminated)");
	program_said(directory, "not waiting for it any longer");
	close(fd);
}
END_TEST

Suite *daemon_stuck_suite(void)
{
	Suite *suite = suite_create("daemon_stuck");
	TCase *tcase = tcase_create("stuck");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_blocked_scan_is_reported_and_stops_neither_the_keep_alive_nor_the_stop);
	tcase_add_test(tcase, a_blocked_first_scan_is_reported_and_the_daemon_becomes_ready_without_it);
	tcase_add_test(tcase, a_command_line_that_does_not_come_is_missing_in_the_incident);
	tcase_add_test(tcase, a_capture_that_blocks_does_not_keep_it_from_stopping);
	tcase_add_loop_test(tcase, a_cgroup_file_that_does_not_answer_holds_nothing_but_discovery, 0, 2);
	tcase_add_test(tcase, a_signal_ends_a_start_that_is_blocked);
	suite_add_tcase(suite, tcase);

	return suite;
}
