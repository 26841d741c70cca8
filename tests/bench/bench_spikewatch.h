/*
 * bench_spikewatch.h: the daemon as it was built beside the benchmark, with a ring, a spool and a
 * configuration of its own in a temporary directory, and what can be seen of it from outside: its
 * CPU clock, its threads, its smaps, its fd/, its ring, its control socket and what it says.
 */
#ifndef SPIKEWATCH_BENCH_SPIKEWATCH_H
#define SPIKEWATCH_BENCH_SPIKEWATCH_H

#include "bench.h"
#include "lib/base/base.h"
#include "lib/ring/ring.h"
#include "lib/model/sample.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

struct bench_spikewatch {
	char dir[64];
	char text[6144]; /* its configuration */
	pid_t pid;
	int said_fd; /* what it says */
	char said[8192];
	size_t said_len;
	char last[256];    /* line of it, says why it ended */
	struct ring *ring; /* NULL: bench_spikewatch_meter was not called */
	const char *group; /* cgroup.procs of the cgroup that it is started in; NULL: that of the benchmark */
};

static inline int bench_remove_entry(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
	(void)stat, (void)type, (void)ftw;
	return remove(path);
}

static volatile pid_t bench_guarded; /* the benchmark that the first process waits for */

static inline void bench_pass_on(int number)
{
	kill(bench_guarded, number);
}

/*
 * Makes the directory, and forks: the caller goes on as a child. The first process waits for its
 * end, also by a signal, removes the directory, calls clean, if it is not NULL, and ends as the
 * child did. All children of the benchmark are to die with it (PR_SET_PDEATHSIG).
 */
static inline void bench_spikewatch_make(struct bench_spikewatch *daemon, void (*clean)(void *ctx), void *ctx)
{
	const char *parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
	int status = 0;

	snprintf(daemon->dir, sizeof daemon->dir, "%s/spikewatch-bench-XXXXXX", parent);
	bench_need(mkdtemp(daemon->dir), daemon->dir);
	bench_guarded = fork();
	bench_need(bench_guarded >= 0, "fork");
	if (bench_guarded == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		return;
	}

	signal(SIGINT, bench_pass_on);
	signal(SIGTERM, bench_pass_on);
	signal(SIGHUP, bench_pass_on);
	while (waitpid(bench_guarded, &status, 0) < 0 && errno == EINTR)
		continue;
	bench_sleep(100 * NS_PER_MS); /* until the daemon is gone, too */
	if (clean)
		clean(ctx);
	nftw(daemon->dir, bench_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE);
}

/* rest: the members "targets" and "rules". */
static inline void bench_spikewatch_configure(struct bench_spikewatch *daemon, const char *interval, const char *rest)
{
	const char *dir = daemon->dir;
	int len = snprintf(
		daemon->text, sizeof daemon->text,
		"{ \"sampling\": { \"interval\": \"%s\", \"rescan_interval\": \"1s\", \"cpu_budget\": \"90%%\" },"
		"  \"ring\": { \"path\": \"%s/ring\", \"size\": \"16MiB\", \"lock\": false },"
		"  \"incidents\": { \"directory\": \"%s/incidents\", \"before\": \"30s\", \"after\": \"50ms\","
		"    \"min_free\": \"0\" },"
		"  \"state_file\": \"%s/state\", %s }",
		interval, dir, dir, dir, rest);

	bench_need(len > 0 && (size_t)len < sizeof daemon->text, "a configuration that fits");
}

/* ---- its life ---- */

static inline void bench_spikewatch_exec(const char *config_path, int said_fd)
{
	char path[PATH_MAX + 16];
	ssize_t len = readlink("/proc/self/exe", path, PATH_MAX);

	bench_need(len > 0, "/proc/self/exe");
	path[len] = '\0';
	snprintf(strrchr(path, '/') + 1, 16, "spikewatchd");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(said_fd, STDERR_FILENO);
	unsetenv("JOURNAL_STREAM");
	execl(path, "spikewatchd", "-c", config_path, (char *)NULL);
	dprintf(STDERR_FILENO, "cannot run %s: %s\n", path, strerror(errno));
	_exit(EXIT_FAILURE);
}

/*
 * Waits for a line of the daemon that holds text. The time at which it was read, or 0 if there is
 * none until `until`.
 */
static inline uint64_t bench_spikewatch_hear(struct bench_spikewatch *daemon, const char *text, uint64_t until)
{
	for (;;) {
		char *end = memchr(daemon->said, '\n', daemon->said_len);

		if (end) {
			*end = '\0';

			bool found = strstr(daemon->said, text);

			snprintf(daemon->last, sizeof daemon->last, "%.200s", daemon->said);
			daemon->said_len -= (size_t)(end + 1 - daemon->said);
			memmove(daemon->said, end + 1, daemon->said_len);
			if (found)
				return bench_now();
			continue;
		}

		struct pollfd wait = { .fd = daemon->said_fd, .events = POLLIN };
		uint64_t now = bench_now();

		if (now >= until || poll(&wait, 1, (int)((until - now) / NS_PER_MS) + 1) <= 0)
			return 0;

		ssize_t len =
			read(daemon->said_fd, daemon->said + daemon->said_len, sizeof daemon->said - daemon->said_len);

		bench_need(len > 0, daemon->last);
		daemon->said_len += (size_t)len;
	}
}

static inline void bench_enter_group(const char *group)
{
	FILE *file = fopen(group, "w");

	bench_need(file && fputs("0\n", file) >= 0 && fclose(file) == 0, group);
}

/* Returns at once. */
static inline void bench_spikewatch_begin(struct bench_spikewatch *daemon)
{
	char path[sizeof daemon->dir + 8];
	int ends[2];

	snprintf(path, sizeof path, "%s/config", daemon->dir);

	FILE *file = fopen(path, "w");

	bench_need(file && fputs(daemon->text, file) >= 0 && fclose(file) == 0, path);
	bench_need(pipe2(ends, O_CLOEXEC) == 0, "pipe");
	daemon->pid = fork();
	bench_need(daemon->pid >= 0, "fork");
	if (daemon->pid == 0 && daemon->group)
		bench_enter_group(daemon->group);
	if (daemon->pid == 0)
		bench_spikewatch_exec(path, ends[1]);
	close(ends[1]);
	daemon->said_fd = ends[0];
	daemon->said_len = 0;
}

/* Returns when it watches what it found in its first scan. */
static inline void bench_spikewatch_start(struct bench_spikewatch *daemon)
{
	bench_spikewatch_begin(daemon);
	bench_need(bench_spikewatch_hear(daemon, "watching ", bench_now() + 30 * NS_PER_S), "the daemon watches");
}

static inline void bench_spikewatch_end(struct bench_spikewatch *daemon)
{
	ring_free(daemon->ring);
	daemon->ring = NULL;
	kill(daemon->pid, SIGTERM);
	waitpid(daemon->pid, NULL, 0);
	close(daemon->said_fd);
}

/* ---- what it holds ---- */

struct bench_memory {
	double resident_mib, private_mib; /* without the ring */
};

static inline struct bench_memory bench_spikewatch_memory(const struct bench_spikewatch *daemon)
{
	struct bench_memory sum = { 0 };
	char path[64], line[512];
	bool ring = false;
	double kib;

	snprintf(path, sizeof path, "/proc/%d/smaps", daemon->pid);

	FILE *file = fopen(path, "r");

	bench_need(file, path);
	while (fgets(line, sizeof line, file)) {
		const char *dash = strchr(line, '-'), *blank = strchr(line, ' ');

		if (strstr(line, daemon->dir))
			ring = true;
		else if (line[0] >= '0' && line[0] <= 'f' && dash && dash < blank)
			ring = false;
		else if (!ring && sscanf(line, "Rss: %lf kB", &kib) == 1)
			sum.resident_mib += kib / 1024;
		else if (!ring && (sscanf(line, "Private_Clean: %lf kB", &kib) == 1 ||
				   sscanf(line, "Private_Dirty: %lf kB", &kib) == 1))
			sum.private_mib += kib / 1024;
	}
	fclose(file);
	return sum;
}

static inline double bench_count_descriptors(pid_t pid)
{
	char path[64];
	double count = 0;

	snprintf(path, sizeof path, "/proc/%d/fd", pid);

	DIR *dir = opendir(path);

	bench_need(dir, path);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count - 2;
}

/* ---- what it does ---- */

#define BENCH_THREADS_MAX 64

struct bench_thread {
	int tid;
	char name[17];
	uint64_t cpu_ns;
};

/* What all of it came to so far. */
struct bench_meter {
	uint64_t at_ns, cpu_ns;
	uint64_t ticks, missed; /* of its sampler */
	uint64_t ring_bytes;
	size_t thread_count;
	struct bench_thread threads[BENCH_THREADS_MAX];
};

static inline bool bench_read_thread(pid_t pid, int tid, struct bench_thread *ret)
{
	char path[80];
	unsigned long long cpu;
	bool known = false;

	snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", pid, tid);

	FILE *file = fopen(path, "r");

	if (file) {
		known = fscanf(file, "%llu", &cpu) == 1;
		fclose(file);
	}
	snprintf(path, sizeof path, "/proc/%d/task/%d/comm", pid, tid);
	file = known ? fopen(path, "r") : NULL;
	if (!file)
		return false;
	*ret = (struct bench_thread){ .tid = tid, .cpu_ns = cpu };
	known = fscanf(file, "%16s", ret->name) == 1;
	fclose(file);
	if (tid == pid)
		snprintf(ret->name, sizeof ret->name, "main");
	return known;
}

static inline void bench_read_threads(pid_t pid, struct bench_meter *meter)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/task", pid);

	DIR *dir = opendir(path);

	bench_need(dir, path);
	for (struct dirent *entry; (entry = readdir(dir)) && meter->thread_count < BENCH_THREADS_MAX;) {
		int tid = (int)strtol(entry->d_name, NULL, 10);

		if (tid > 0 && bench_read_thread(pid, tid, &meter->threads[meter->thread_count]))
			meter->thread_count++;
	}
	closedir(dir);
}

static inline void bench_spikewatch_meter(struct bench_spikewatch *daemon, struct bench_meter *ret)
{
	struct ring_info info;
	struct stats stats;
	clockid_t clock;

	*ret = (struct bench_meter){ 0 };
	if (!daemon->ring) {
		int dirfd = open(daemon->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		bench_need(dirfd >= 0 && ring_open(dirfd, "ring", false, &daemon->ring) == 0, "the daemon's ring");
		close(dirfd);
	}
	bench_need(ring_stats(daemon->ring, &stats) == 0, "the daemon's counters");
	ring_info(daemon->ring, &info);
	bench_need(clock_getcpuclockid(daemon->pid, &clock) == 0, "the daemon's CPU clock");
	ret->at_ns = bench_now();
	ret->cpu_ns = bench_clock(clock);
	ret->ticks = stats.total_snapshots;
	ret->missed = stats.missed_slots;
	ret->ring_bytes = info.next_seq * info.page_bytes;
	bench_read_threads(daemon->pid, ret);
}

static inline double bench_meter_percent(const struct bench_meter *from, const struct bench_meter *to)
{
	return 100 * (double)(to->cpu_ns - from->cpu_ns) / (double)(to->at_ns - from->at_ns);
}

/* Of the slots of the sampler in between, percent. */
static inline double bench_meter_captured(const struct bench_meter *from, const struct bench_meter *to)
{
	double taken = (double)(to->ticks - from->ticks), missed = (double)(to->missed - from->missed);

	return taken + missed > 0 ? 100 * taken / (taken + missed) : 0;
}

/*
 * A row for each name among the threads that took more than least_percent of a core: all that have
 * it, together.
 */
static inline void bench_report_threads(const struct bench_meter *from, const struct bench_meter *to,
					double least_percent)
{
	for (size_t i = 0; i < to->thread_count; i++) {
		const char *name = to->threads[i].name;
		uint64_t cpu_ns = 0;
		bool said = false;
		char what[64];

		for (size_t k = 0; k < i; k++)
			said |= strcmp(to->threads[k].name, name) == 0;
		for (size_t k = i; !said && k < to->thread_count; k++)
			if (strcmp(to->threads[k].name, name) == 0)
				cpu_ns += to->threads[k].cpu_ns;
		for (size_t k = 0; !said && k < from->thread_count; k++)
			if (strcmp(from->threads[k].name, name) == 0)
				cpu_ns -= from->threads[k].cpu_ns;

		double percent = 100 * (double)cpu_ns / (double)(to->at_ns - from->at_ns);

		snprintf(what, sizeof what, "    of it thread %s", name);
		if (!said && percent >= least_percent)
			bench_report((struct bench_row){ .what = what, .unit = "%", .measured = percent });
	}
}

/* ---- what it answers ---- */

/*
 * The answer of the control socket to a request, NUL-terminated, for the caller to free; NULL:
 * there was none.
 */
static inline char *bench_spikewatch_ask(const struct bench_spikewatch *daemon, const char *request, size_t *ret_len)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	size_t len = 0, cap = 1u << 20;
	char *answer = malloc(cap);
	ssize_t got = -1;

	bench_need(fd >= 0 && answer, "asking");
	snprintf(address.sun_path, sizeof address.sun_path, "%s/control", daemon->dir);
	if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 && dprintf(fd, "%s\n", request) > 0)
		while ((got = read(fd, answer + len, cap - len - 1)) > 0) {
			len += (size_t)got;
			if (cap - len > cap / 2)
				continue;
			cap *= 2;
			answer = realloc(answer, cap);
			bench_need(answer, "memory");
		}
	close(fd);
	answer[len] = '\0';
	*ret_len = len;
	if (got == 0 && len > 0)
		return answer;
	free(answer);
	return NULL;
}

/* The first number of this key in the section of that name of a status; 0: there is none. */
static inline double bench_status_number(const char *status, const char *section, const char *key)
{
	char quoted[64];

	snprintf(quoted, sizeof quoted, "\"%s\":", section);

	const char *at = strstr(status, quoted);

	snprintf(quoted, sizeof quoted, "\"%s\":", key);
	at = at ? strstr(at, quoted) : NULL;
	return at ? strtod(at + strlen(quoted), NULL) : 0;
}

#endif
