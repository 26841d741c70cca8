/*
 * workload_soak.c: what runs beside the daemon for hours in tests/soak/soak.sh. Each mode names its
 * processes $SOAK_TAG-forks and so on, so that entries of the configuration select them by comm, and
 * runs until it is killed.
 *
 * usage: workload_soak forks PER_SECOND      forks: so many children a second, which end at once
 *                      spikes PERIOD_MS HOLD_MS MIB
 *                                            spikes: once a period takes so much memory, uses
 *                                            CPU until HOLD_MS are over and gives it back. Prints
 *                                            for each: pid, begin and end (CLOCK_REALTIME, ns), and
 *                                            the CPU time of the process by then, ns
 *                      flood SOCKET          flood: clients of the daemon that say nothing, say
 *                                            garbage, or do not read the answer
 *                      manager SOCKET        flood: the receiver of $NOTIFY_SOCKET, which reads for a
 *                                            second of each five, and a neighbour that fills it.
 *                                            Prints for each message of the daemon: when it came
 *                                            (CLOCK_MONOTONIC, s), and the message
 *                      hostile DIRECTORY     hostile: neighbours that make reading them
 *                                            expensive, each a process: see hostile(). DIRECTORY is
 *                                            theirs
 *                      unanswered SECONDS ROUND
 *                                            hostile: processes of another user whose program is on a
 *                                            FUSE file system that stops to answer now and then, and
 *                                            one whose mmap lock is not given back; until so many
 *                                            seconds are over. Needs root
 *                      cgroups DIRECTORY     makes and removes 200 cgroups a second below it
 */
#include "fuse_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000u
#define NS_PER_MS 1000000u

static uint64_t now_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void sleep_ns(uint64_t ns)
{
	struct timespec left = { .tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S) };

	while (nanosleep(&left, &left) < 0 && errno == EINTR)
		continue;
}

static void die(const char *what)
{
	perror(what);
	exit(EXIT_FAILURE);
}

/* As entries select it: two runs at a time do not watch each other's processes. */
static void name_self(const char *role)
{
	const char *tag = getenv("SOAK_TAG");
	char name[16];

	snprintf(name, sizeof(name), "%.6s-%s", tag != NULL ? tag : "soak", role);
	prctl(PR_SET_NAME, name);
}

/* ---- forks ---- */

/* In bursts of a millisecond's worth; what could not be forked in time is not made up for. */
static void forks(const char *per_second)
{
	uint64_t rate = strtoull(per_second, NULL, 10), begin = now_ns(CLOCK_MONOTONIC), made = 0;

	name_self("forks");
	signal(SIGCHLD, SIG_DFL);
	for (;;) {
		uint64_t due = (now_ns(CLOCK_MONOTONIC) - begin) / NS_PER_MS * rate / 1000;

		if (due > made + rate / 10)
			made = due - rate / 10;
		for (; made < due; made++) {
			pid_t pid = fork();

			if (pid == 0)
				_exit(0);
			if (pid < 0)
				break;
		}
		while (waitpid(-1, NULL, WNOHANG) > 0)
			continue;
		sleep_ns(NS_PER_MS);
	}
}

/* ---- spikes ---- */

static void spike(uint64_t hold_ns, size_t bytes)
{
	uint64_t wall = now_ns(CLOCK_REALTIME), until = now_ns(CLOCK_MONOTONIC) + hold_ns;
	volatile char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		die("mmap");
	for (size_t at = 0; at < bytes; at += 4096)
		memory[at] = 1;
	while (now_ns(CLOCK_MONOTONIC) < until)
		continue;
	munmap((void *)(uintptr_t)memory, bytes);
	printf("%d %ju %ju %ju\n", (int)getpid(), (uintmax_t)wall, (uintmax_t)now_ns(CLOCK_REALTIME),
	       (uintmax_t)now_ns(CLOCK_PROCESS_CPUTIME_ID));
	fflush(stdout);
}

static void spikes(const char *period_ms, const char *hold_ms, const char *mib)
{
	uint64_t period_ns = strtoull(period_ms, NULL, 10) * NS_PER_MS;

	name_self("spikes");
	for (uint64_t next = now_ns(CLOCK_MONOTONIC) + period_ns;; next += period_ns) {
		uint64_t now = now_ns(CLOCK_MONOTONIC);

		if (next > now)
			sleep_ns(next - now);
		spike(strtoull(hold_ms, NULL, 10) * NS_PER_MS, strtoull(mib, NULL, 10) << 20);
	}
}

/* ---- clients ---- */

static void flood(const char *path)
{
	static char garbage[65536];
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	name_self("flood");
	signal(SIGPIPE, SIG_IGN);
	memset(garbage, '{', sizeof(garbage));
	strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
	for (unsigned i = 0;; i++) {
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		static const char question[] = "status\n";

		if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && i % 3 > 0)
			(void)send(fd, i % 3 == 1 ? garbage : question,
				   i % 3 == 1 ? sizeof(garbage) : sizeof(question) - 1, MSG_NOSIGNAL);
		sleep_ns(200ull * NS_PER_MS);
		if (fd >= 0)
			close(fd);
	}
}

/* ---- a service manager ---- */

/* Any user may send to the socket of the real one, too. */
static void fill_socket(const struct sockaddr_un *address)
{
	static const char garbage[] = "STATUS=flood";
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	for (;; sleep_ns(NS_PER_MS))
		for (int i = 0; i < 50; i++)
			(void)sendto(fd, garbage, sizeof(garbage) - 1, MSG_NOSIGNAL, (const struct sockaddr *)address,
				     sizeof(*address));
}

static void read_socket(int fd)
{
	char message[256];
	ssize_t len;

	while ((len = recv(fd, message, sizeof(message) - 1, MSG_DONTWAIT)) >= 0) {
		message[len] = '\0';
		if (strcmp(message, "STATUS=flood") != 0)
			printf("%ju %s\n", (uintmax_t)(now_ns(CLOCK_MONOTONIC) / NS_PER_S), message);
	}
	fflush(stdout);
}

static void manager(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	name_self("flood");
	strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
	if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		die(path);
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fill_socket(&address);
	}
	for (;; sleep_ns(4ull * NS_PER_S))
		for (int i = 0; i < 1000; i++, sleep_ns(NS_PER_MS))
			read_socket(fd);
}

/* ---- hostile neighbours ---- */

static const char *home;

static char *in_home(const char *name)
{
	char *path;

	if (asprintf(&path, "%s/%s", home, name) < 0)
		die(name);
	return path;
}

/* Maps a file as a program is and holds a write lease on it: whoever opens it waits. */
static void lease(void)
{
	char *path = in_home("leased");
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0700);

	if (fd < 0 || ftruncate(fd, 65536) < 0 ||
	    mmap(NULL, 65536, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED)
		die(path);
	signal(SIGIO, SIG_IGN);
	for (;; sleep_ns(NS_PER_S))
		(void)fcntl(fd, F_SETLEASE, F_WRLCK);
}

/* Its perf map is a FIFO that has no writer, then a sparse file of 60 GB, and so on. */
static void perf_maps(void)
{
	char path[64];

	snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
	for (unsigned round = 0;; round++) {
		unlink(path);
		if (round % 2 == 0) {
			(void)mkfifo(path, 0644);
		} else {
			int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

			if (fd < 0 || ftruncate(fd, (off_t)60 << 30) < 0)
				die(path);
			close(fd);
		}
		sleep_ns(10ull * NS_PER_S);
	}
}

/* As many mappings as the kernel allows. */
static void mappings(void)
{
	for (unsigned i = 0; i < 65000; i++)
		if (mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
			break;
	for (;;)
		pause();
}

static void *wait_for_ever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static void *end_at_once(void *unused)
{
	return unused;
}

/* A thousand threads that sleep, and two hundred a second that come and go. */
static void threads(void)
{
	pthread_attr_t small;
	pthread_t thread;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 65536);
	for (unsigned i = 0; i < 1000; i++)
		(void)pthread_create(&thread, &small, wait_for_ever, NULL);
	for (;; sleep_ns(5ull * NS_PER_MS))
		if (pthread_create(&thread, &small, end_at_once, NULL) == 0)
			pthread_join(thread, NULL);
}

/* Another name in every tick, of bytes that terminals and formats give a meaning to. */
static void names(void)
{
	static const char *const table[] = { "\n", "\033[31mred", "a) R 1 1 (", "\"},{\"", "\xff\xfe\xed\xa0\x80", "" };

	for (unsigned i = 0;; i++) {
		prctl(PR_SET_NAME, table[i % (sizeof(table) / sizeof(table[0]))]);
		sleep_ns(10ull * NS_PER_MS);
		name_self("hostile");
		sleep_ns(500ull * NS_PER_MS);
	}
}

/* It executes programs that are gone a moment later, by names that end in " (deleted)". */
static void deleted(void)
{
	for (unsigned i = 0;; i++) {
		char name[64], *path;
		pid_t pid;

		snprintf(name, sizeof(name), "program-%u (deleted)", i % 7);
		path = in_home(name);
		if (symlink("/proc/self/exe", path) < 0 && errno != EEXIST)
			die(path);
		pid = fork();
		if (pid == 0) {
			execl("/proc/self/exe", path, "ends", NULL);
			_exit(1);
		}
		unlink(path);
		waitpid(pid, NULL, 0);
		free(path);
		sleep_ns(100ull * NS_PER_MS);
	}
}

/* Stops and continues: its files can be read, it never answers a signal in time. */
static void stops(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		wait_for_ever(NULL);
	}
	for (;;) {
		kill(pid, SIGSTOP);
		sleep_ns(3ull * NS_PER_S);
		kill(pid, SIGCONT);
		sleep_ns(NS_PER_S);
	}
}

/* Takes and gives back memory, so that rules fire on it all the time. */
static void balloons(void)
{
	for (;;) {
		size_t bytes = (size_t)48 << 20;
		char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (memory != MAP_FAILED) {
			memset(memory, 1, bytes);
			sleep_ns(700ull * NS_PER_MS);
			munmap(memory, bytes);
		}
		sleep_ns(5ull * NS_PER_S);
	}
}

/* ---- a file system that does not answer ---- */

/* From the file of that file system: fires rules again and again. */
static void run_unanswered(const char *file, uid_t uid)
{
	if (uid > 0 && setuid(uid) < 0)
		die("setuid");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execl(file, file, "balloons", NULL);
	die(file);
}

/*
 * For so long: reading /proc/PID/cmdline of these waits meanwhile, for ps(1) and everything else on the
 * machine. Three kinds of requests in turn are not answered, beginning with that of this round.
 */
static void unanswered(const char *seconds_text, const char *round)
{
	static const uint64_t hangs[] = { FUSE_HANGS(FUSE_OPEN),   FUSE_HANGS(FUSE_READ),   FUSE_HANGS(FUSE_GETATTR),
					  FUSE_HANGS(FUSE_LOOKUP), FUSE_HANGS(FUSE_STATFS), FUSE_HANGS(FUSE_FLUSH) };
	const size_t kinds = sizeof(hangs) / sizeof(hangs[0]);
	uint64_t until = now_ns(CLOCK_MONOTONIC) + strtoull(seconds_text, NULL, 10) * NS_PER_S;
	size_t kind = 3 * strtoull(round, NULL, 10);
	uid_t uid = geteuid() == 0 ? 65534 : 0;
	struct timespec seconds = { 0 };
	struct fuse_mount mount;
	sigset_t end;

	name_self("hostile");
	sigemptyset(&end);
	sigaddset(&end, SIGTERM);
	sigprocmask(SIG_BLOCK, &end, NULL);
	if (!fuse_mount_begin(&mount, "/proc/self/exe")) {
		fprintf(stderr, "workload_soak: %s\n", skip_why());
		exit(EXIT_FAILURE);
	}
	for (int i = 0; i < 2; i++)
		if (fork() == 0)
			run_unanswered(mount.file, uid);
	sleep_ns(2ull * NS_PER_S);
	fuse_mount_lock_process(&mount, uid);
	for (size_t i = 0; now_ns(CLOCK_MONOTONIC) < until && sigtimedwait(&end, NULL, &seconds) != SIGTERM; i++) {
		fuse_mount_hang(&mount, i % 2 ? hangs[kind++ % kinds] : 0);
		seconds.tv_sec = i % 2 ? 14 : 4;
	}
	fuse_mount_end(&mount);
	exit(EXIT_SUCCESS);
}

/* ---- cgroups ---- */

/* Each is there for 50 ms. */
static void cgroups(const char *directory)
{
	char path[4096];

	for (unsigned i = 0;; i++, sleep_ns(5ull * NS_PER_MS)) {
		snprintf(path, sizeof(path), "%s/c%u", directory, i % 20);
		if (mkdir(path, 0755) < 0 && errno != EEXIST)
			die(path);
		snprintf(path, sizeof(path), "%s/c%u", directory, (i + 10) % 20);
		(void)rmdir(path);
	}
}

static void hostile(void)
{
	static void (*const table[])(void) = { lease, perf_maps, mappings, threads, names, deleted, stops, balloons };

	name_self("hostile");
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			table[i]();
		}
	for (;;)
		if (wait(NULL) < 0)
			pause();
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (strcmp(mode, "forks") == 0 && argc == 3)
		forks(argv[2]);
	if (strcmp(mode, "spikes") == 0 && argc == 5)
		spikes(argv[2], argv[3], argv[4]);
	if (strcmp(mode, "flood") == 0 && argc == 3)
		flood(argv[2]);
	if (strcmp(mode, "manager") == 0 && argc == 3)
		manager(argv[2]);
	if (strcmp(mode, "hostile") == 0 && argc == 3) {
		home = argv[2];
		hostile();
	}
	if (strcmp(mode, "unanswered") == 0 && argc == 4)
		unanswered(argv[2], argv[3]);
	if (strcmp(mode, "balloons") == 0) {
		name_self("hostile");
		balloons();
	}
	if (strcmp(mode, "cgroups") == 0 && argc == 3)
		cgroups(argv[2]);
	if (strcmp(mode, "ends") == 0)
		return EXIT_SUCCESS;
	fprintf(stderr, "usage: workload_soak forks PER_SECOND | spikes PERIOD_MS HOLD_MS MIB | flood SOCKET | manager "
			"SOCKET | "
			"hostile DIRECTORY | unanswered SECONDS ROUND | cgroups DIRECTORY\n");
	return 2;
}
