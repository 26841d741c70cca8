/*
 * check_daemon_stuck.c: spikewatchd over a /proc in which the command line of a process is a pipe
 * that nobody writes into: a read that does not come to an end, while it runs and when it is
 * stopped.
 */
#include "lib/incident/manifest.h"
#include "program.h"

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
static int notified; /* where the words to systemd arrive */
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

static void make_proc(void)
{
	ck_assert_int_eq(mkdir(place("proc"), 0700), 0);
	ck_assert_int_eq(mkdir(place("proc/10"), 0700), 0);
	scene_write(place("proc/meminfo"), "MemTotal: 1048576 kB\n");
	scene_write(place("proc/10/stat"), "10 (web) S 1 1 1 0 -1 0 10 0 0 0 5 5 0 0 20 0 3 0 500 1000000 100 0\n");
	scene_write(place("proc/10/statm"), "200 100 50 1 0 60 0\n");
	scene_write(place("proc/10/cgroup"), "4:cpu,cpuacct:/x\n3:memory:/x\n");
	snprintf(stuck, sizeof(stuck), "%s/proc/10/cmdline", directory);
	scene_write(stuck, "web");
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

/*
 * How many times systemd was told that all is well, since it was asked last: at least every few
 * seconds, or the daemon waits for us.
 */
static unsigned times_fed(void)
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
	const char *const arguments[] = { "/usr/bin/env",  notify, "WATCHDOG_USEC=2000000", spikewatchd, "-c",
					  place("config"), NULL };

	return program_start(arguments, directory, -1, 0);
}

static void await_words(const struct program *program, const char *words)
{
	scene_wait_for(scene_says(program->err, words) || waitpid(program->pid, NULL, WNOHANG) != 0);
	program_said(directory, words);
}

static void make_stuck(void)
{
	ck_assert_int_eq(unlink(stuck), 0);
	ck_assert_int_eq(mkfifo(stuck, 0600), 0);
}

/* Waits until somebody reads it. */
static int await_reader(void)
{
	int fd = -1;

	scene_wait_for((fd = open(stuck, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) >= 0);

	return fd;
}

START_TEST(it_is_said_and_stops_neither_the_watchdog_nor_the_stop)
{
	if (!built)
		return;

	struct program program = start();

	await_words(&program, "watching ");
	make_stuck();

	int fd = await_reader();

	scene_wait_for((times_fed(), scene_says(program.err, "it hangs in a read of the files of process 10")));
	scene_wait_for(times_fed() > 0);
	scene_wait_for(times_fed() > 0);

	kill(program.pid, SIGUSR1);
	scene_wait_for(sealed() == -1);
	kill(program.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&program), 0);
	ck_assert_int_eq(sealed(), 1);
	program_said(directory, "it is not waited for");
	program_said(directory, "stopped: 1 incidents sealed");
	close(fd);
}
END_TEST

/* It has met nobody yet: process 10 is the first. */
START_TEST(at_the_start_it_is_named_and_the_daemon_becomes_ready_without_it)
{
	const char *const status[] = { spikewatch, "status", "-s", place("control"), NULL };

	if (!built)
		return;

	make_stuck();

	struct program program = start();
	int fd = await_reader();

	await_words(&program, "watching 0 targets");
	program_said(directory, "it is at the files of process 10, and may hang there");
	scene_wait_for(times_fed() > 0);
	ck_assert_int_eq(mkdir(place("asked"), 0700), 0);
	ck_assert_int_eq(program_run(status, place("asked")), 0);
	kill(program.pid, SIGHUP);
	await_words(&program, "reloaded: nothing has changed");

	/* What is there when it goes on is found, and by the same scan. */
	unlink(stuck);
	scene_write(stuck, "web");
	close(fd);
	await_words(&program, "target web/10 found");
	kill(program.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&program), 0);
}
END_TEST

/*
 * Nobody selects by the command line here: discovery has read it and is through with it. Evidence
 * has it too.
 */
START_TEST(evidence_that_hangs_does_not_keep_it_from_stopping)
{
	if (!built)
		return;

	configure("\"captures\": [\"samples\", \"status\"]", "{\"name\": \"web\", \"comm\": \"web\"}");

	struct program program = start();

	await_words(&program, "target web/10 found");
	make_stuck();
	kill(program.pid, SIGUSR1);

	int fd = await_reader();

	kill(program.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&program), 0);
	program_said(directory, "collecting evidence hangs");
	program_said(directory, "stopped: 0 incidents sealed");
	close(fd);

	/* What the ring had is an incident after the next start, as after a death. */
	unlink(stuck);
	scene_write(stuck, "web");
	program = start();
	await_words(&program, "watching ");
	scene_wait_for(sealed() == 1);
	kill(program.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&program), 0);
}
END_TEST

START_TEST(a_signal_ends_a_start_that_hangs)
{
	if (!built)
		return;

	make_stuck();

	struct program program = start();
	int fd = await_reader();

	kill(program.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&program), 0);
	program_said(directory, "stopping (Terminated)");
	program_said(directory, "it is not waited for");
	close(fd);
}
END_TEST

Suite *daemon_stuck_suite(void)
{
	Suite *suite = suite_create("daemon_stuck");
	TCase *tcase = tcase_create("stuck");

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, it_is_said_and_stops_neither_the_watchdog_nor_the_stop);
	tcase_add_test(tcase, at_the_start_it_is_named_and_the_daemon_becomes_ready_without_it);
	tcase_add_test(tcase, evidence_that_hangs_does_not_keep_it_from_stopping);
	tcase_add_test(tcase, a_signal_ends_a_start_that_hangs);
	suite_add_tcase(suite, tcase);

	return suite;
}
