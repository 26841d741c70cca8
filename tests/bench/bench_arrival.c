/*
 * bench_arrival.c: how soon a process is sampled, from its exec to its first sample in the ring;
 * how exact the CPU time of a group is whose processes live for less than a scheduler tick; and what
 * it costs discovery to keep an eye on a host full of processes.
 *
 * The daemon is the one that was built beside this program. Where the proc connector is not
 * allowed, or not wanted for a row, perf's records are heard, as in a network namespace of its own.
 */
#include "bench_targets.h"
#include "daemon/engine/base/proc_read.h"
#include "lib/base/base.h"
#include "lib/cgroup/cgroup.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/ring/ring.h"
#include "lib/model/target.h"

#include <dirent.h>
#include <ftw.h>
#include <limits.h>
#include <math.h>
#include <sys/resource.h>

#define ARRIVALS 200u
#define INTERVAL_MS 10u

/* From an exec to the first sample: the next tick, and this much until it is known. */
#define KNOWN_MS 5u

static const char config_text[] =
	"{ \"sampling\": { \"interval\": \"%ums\", \"cpu_budget\": \"100%%\", \"discovery\": \"%s\", \"source\": "
	"\"%s\" },"
	"  \"ring\": { \"path\": \"%s/ring\", \"size\": \"16MiB\", \"lock\": false },"
	"  \"incidents\": { \"directory\": \"%s/incidents\", \"min_free\": \"0\" }, \"stacks\": \"off\","
	"  \"targets\": [ { \"name\": \"arrival\", \"comm\": \"bench_arrival\" },"
	"    { \"name\": \"group\", \"comm\": \"bench_short\", \"per\": \"group\" } ], \"rules\": [] }";

struct rig {
	char dir[64], program[PATH_MAX];
	pid_t daemon;
	struct ring *ring;
	struct ring_cursor *cursor;
	_Atomic uint64_t *executed_at;
	_Atomic uint64_t *used_ns;    /* by a parent and its children, as it knows it itself */
	_Atomic uint64_t *entered_ns; /* of it, before it was in the cgroup */
	char cgroup[300];             /* of its own; "": none */
	struct cgroup_files usage;    /* of that */
	double delays[ARRIVALS];      /* ms */
	unsigned count;
};

/* ---- the daemon ---- */

static void run_daemon(const struct rig *rig, const char *config_path, bool apart)
{
	char path[PATH_MAX + 16];

	snprintf(path, sizeof path, "%s", rig->program);
	snprintf(strrchr(path, '/') + 1, 16, "spikewatchd");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	bench_need(!apart || unshare(CLONE_NEWNET) == 0, "a network namespace");
	unsetenv("JOURNAL_STREAM");
	dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
	execl(path, "spikewatchd", "-c", config_path, (char *)NULL);
	_exit(EXIT_FAILURE);
}

/* apart: in a network namespace of its own, where the connector says nothing. */
static void start_daemon(struct rig *rig, const char *discovery, const char *source, bool apart)
{
	char path[sizeof rig->dir + 8];
	uint64_t until = bench_now() + 20 * NS_PER_S;
	struct ring_info info = { 0 };

	snprintf(path, sizeof path, "%s/config", rig->dir);

	FILE *file = fopen(path, "w");

	bench_need(file && fprintf(file, config_text, INTERVAL_MS, discovery, source, rig->dir, rig->dir) > 0 &&
			   fclose(file) == 0,
		   path);
	rig->daemon = fork();
	bench_need(rig->daemon >= 0, "fork");
	if (rig->daemon == 0)
		run_daemon(rig, path, apart);
	snprintf(path, sizeof path, "%s/ring", rig->dir);
	while (ring_open(AT_FDCWD, path, false, &rig->ring) < 0 && bench_now() < until)
		bench_sleep(10 * NS_PER_MS);
	bench_need(rig->ring, "the daemon's ring");
	while (info.ticks < 10 && bench_now() < until) {
		bench_sleep(10 * NS_PER_MS);
		ring_info(rig->ring, &info);
	}
	bench_need(info.ticks >= 10 && ring_cursor_new(rig->ring, RING_NEWEST, &rig->cursor) == 0, "the daemon");
	bench_sleep(2 * NS_PER_S);
}

static void end_daemon(struct rig *rig)
{
	char path[sizeof rig->dir + 8];

	ring_cursor_free(rig->cursor);
	ring_free(rig->ring);
	rig->cursor = NULL;
	rig->ring = NULL;
	kill(rig->daemon, SIGTERM);
	waitpid(rig->daemon, NULL, 0);
	snprintf(path, sizeof path, "%s/ring", rig->dir);
	unlink(path);
}

/* ---- arrivals ---- */

/* When pid was sampled for the first time, 0: not within a second. */
static uint64_t await_sample(struct rig *rig, pid_t pid)
{
	uint64_t until = bench_now() + 2 * NS_PER_S;
	struct ring_event event;
	uint32_t id = 0;

	while (bench_now() < until) {
		int r = ring_cursor_next(rig->cursor, &event);

		if (r == RING_EMPTY)
			bench_sleep(2 * NS_PER_MS);
		else if (r == 0 && event.type == RING_EVENT_TARGET && event.target.pid == pid)
			id = event.id;
		else if (r == 0 && event.type == RING_EVENT_SAMPLE && id != 0 && event.id == id)
			return event.time.ns;
	}
	return 0;
}

static void arrive(struct rig *rig)
{
	pid_t pid = fork();

	bench_need(pid >= 0, "fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		atomic_store(rig->executed_at, bench_now());
		execl(rig->program, rig->program, "wait", (char *)NULL);
		_exit(EXIT_FAILURE);
	}

	uint64_t sampled = await_sample(rig, pid);

	if (sampled != 0)
		rig->delays[rig->count++] = ((double)sampled - (double)atomic_load(rig->executed_at)) / 1e6;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void report_arrivals(struct rig *rig, const char *events, const char *source, bool apart)
{
	char what[100];

	start_daemon(rig, "auto", source, apart);
	rig->count = 0;
	for (unsigned i = 0; i < ARRIVALS; i++) {
		arrive(rig);
		bench_sleep((3 + i * 7 % 10) * NS_PER_MS);
	}
	end_daemon(rig);
	bench_need(rig->count > ARRIVALS / 2, "arrivals are sampled");

	double median = bench_median(rig->delays, rig->count);

	snprintf(what, sizeof what, "exec -> first sample, interval %u ms, %s, median", INTERVAL_MS, events);
	bench_report((struct bench_row){ .what = what, .unit = "ms", .measured = median });
	bench_report((struct bench_row){ "  of 100, all but one within (budget: interval + 5 ms)", "ms",
					 rig->delays[rig->count * 99 / 100], 0, BENCH_AT_MOST,
					 INTERVAL_MS + KNOWN_MS });
	bench_report((struct bench_row){
		.what = "  not within two seconds", .unit = "", .measured = ARRIVALS - rig->count });
}

/* ---- the sum of a group ---- */

/* So many others spin in the second and the fourth turn, which last longer: less is left for these. */
#define SPINNERS 3
#define SHORT_S 5u
#define SHORT_BESIDE_S 20u

static void start_spinners(pid_t *pids, int count)
{
	for (int i = 0; i < count; i++) {
		pids[i] = fork();
		bench_need(pids[i] >= 0, "fork");
		if (pids[i] > 0)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "bench_spin");
		for (;;)
			continue;
	}
}

static void end_spinners(const pid_t *pids, int count)
{
	for (int i = 0; i < count; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
}

static uint64_t used_by(int who)
{
	struct rusage usage;

	getrusage(who, &usage);

	return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * NS_PER_S +
	       (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * NS_PER_US;
}

/* A cgroup for a parent and its children. Without the right to make one there is none. */
static void make_cgroup(struct rig *rig)
{
	AUTO(cgroup_mounts_freep) struct cgroup_mounts *mounts = NULL;
	const char *hierarchy = NULL;
	char name[40];
	bool v2;

	rig->cgroup[0] = '\0';
	snprintf(name, sizeof name, "/spikewatch-bench-%d", (int)getpid());
	if (cgroup_mounts_new("/proc", "", &mounts) == 0)
		hierarchy = cgroup_mounts_controller(mounts, CGROUP_CPUACCT, &v2);
	if (!hierarchy && mounts)
		hierarchy = cgroup_mounts_v2(mounts);
	if (!hierarchy)
		return;
	snprintf(rig->cgroup, sizeof rig->cgroup, "%.200s%s", hierarchy, name);
	if (mkdir(rig->cgroup, 0755) < 0 || cgroup_files_init_usage(&rig->usage, mounts, name) < 0) {
		rmdir(rig->cgroup);
		rig->cgroup[0] = '\0';
	}
}

static void enter_cgroup(const struct rig *rig)
{
	char path[sizeof rig->cgroup + 16];

	if (rig->cgroup[0] == '\0')
		return;
	snprintf(path, sizeof path, "%s/cgroup.procs", rig->cgroup);

	int fd = open(path, O_WRONLY | O_CLOEXEC);

	bench_need(fd >= 0 && write(fd, "0", 1) == 1 && close(fd) == 0, path);
	atomic_store(rig->entered_ns, used_by(RUSAGE_SELF));
}

/*
 * What they have used. wait4 lacks what a child runs after its parent has taken it, the last of its end: 1 us on the
 * whole, and of a child of 0.3 ms that is 0.3 %. The usage of a cgroup that holds nobody else has it.
 */
static double read_truth(struct rig *rig)
{
	uint64_t ns;

	if (rig->cgroup[0] == '\0')
		return (double)atomic_load(rig->used_ns);
	bench_need(cgroup_files_usage(&rig->usage, &ns) == 0, rig->cgroup);
	return (double)(ns + atomic_load(rig->entered_ns));
}

static void remove_cgroup(struct rig *rig)
{
	if (rig->cgroup[0] == '\0')
		return;
	cgroup_files_release(&rig->usage);
	for (int i = 0; i < 100 && rmdir(rig->cgroup) < 0; i++)
		bench_sleep(10 * NS_PER_MS);
}

/* Children that never read their CPU clock, which would make their exit records exact. */
static void run_short_children(const struct rig *rig, unsigned least_us, unsigned most_us, unsigned seconds)
{
	uint64_t until = bench_now() + seconds * NS_PER_S;
	unsigned seed = 1;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "bench_short");
	enter_cgroup(rig);
	while (bench_now() < until) {
		unsigned us = least_us + (unsigned)rand_r(&seed) % (most_us - least_us + 1);
		pid_t pid = fork();

		bench_need(pid >= 0, "fork");
		if (pid == 0) {
			for (uint64_t end = bench_now() + us * NS_PER_US; bench_now() < end;)
				continue;
			_exit(0);
		}
		waitpid(pid, NULL, 0);
	}
	atomic_store(rig->used_ns, used_by(RUSAGE_SELF) + used_by(RUSAGE_CHILDREN));
	for (;;)
		pause();
}

/* What the group has used, as its last sample says, ns. */
static uint64_t read_group(struct rig *rig)
{
	struct ring_event event;
	uint32_t id = 0;
	uint64_t ns = 0;

	while (ring_cursor_next(rig->cursor, &event) == 0) {
		bench_need(event.type != RING_EVENT_LAPPED, "all samples");
		if (event.type == RING_EVENT_TARGET && strcmp(event.target.name, "group") == 0)
			id = event.id;
		else if (event.type == RING_EVENT_SAMPLE && id != 0 && event.id == id)
			ns = event.sample->value[SAMPLE_CPU];
	}
	return ns;
}

static void report_group(struct rig *rig, const char *source, int spinners, unsigned least_us, unsigned most_us)
{
	pid_t spinning[SPINNERS];
	char what[120];

	atomic_store(rig->used_ns, 0);
	make_cgroup(rig);
	start_daemon(rig, "auto", source, false);
	start_spinners(spinning, spinners);

	pid_t pid = fork();

	bench_need(pid >= 0, "fork");
	if (pid == 0)
		run_short_children(rig, least_us, most_us, spinners ? SHORT_BESIDE_S : SHORT_S);
	while (atomic_load(rig->used_ns) == 0)
		bench_sleep(10 * NS_PER_MS);
	bench_sleep(NS_PER_S / 2);

	double used = read_truth(rig), sum = (double)read_group(rig), waited = (double)atomic_load(rig->used_ns);

	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	end_spinners(spinning, spinners);
	end_daemon(rig);
	remove_cgroup(rig);
	snprintf(what, sizeof what, "CPU of a group of processes of %.1f to %.1f ms, \"%s\"%s: off by", least_us / 1e3,
		 most_us / 1e3, source, spinners ? ", beside 3 that spin" : "");
	bench_report((struct bench_row){ what, "%", 100 * fabs(sum / used - 1), 0, BENCH_AT_MOST, 1 });
	bench_report((struct bench_row){ "  above what they used", "%", sum > used ? 100 * (sum / used - 1) : 0, 0,
					 BENCH_AT_MOST, 0.02 });
	if (rig->cgroup[0] != '\0')
		bench_report((struct bench_row){ .what = "  their cgroup's usage above what wait4 says",
						 .unit = "%",
						 .measured = 100 * (used / waited - 1) });
}

/* ---- what discovery costs ---- */

/* CPU time of a thread of the daemon's by its name, ns. */
static uint64_t thread_cpu(pid_t pid, const char *name)
{
	char path[64], text[64];
	struct dirent *entry;
	uint64_t ns = 0;

	snprintf(path, sizeof path, "/proc/%d/task", pid);

	DIR *tasks = opendir(path);

	bench_need(tasks, path);
	while ((entry = readdir(tasks))) {
		int32_t tid = proc_read_pid_of(entry->d_name);
		ssize_t len = tid ? proc_read_file(dirfd(tasks), tid, "comm", text, sizeof text) : 0;
		unsigned long long ran;

		if (len <= 0 || strncmp(text, name, strlen(name)) != 0)
			continue;
		bench_need(proc_read_file(dirfd(tasks), tid, "schedstat", text, sizeof text) > 0 &&
				   sscanf(text, "%llu", &ran) == 1,
			   "schedstat");
		ns += ran;
	}
	closedir(tasks);
	return ns;
}

static void report_cost(struct rig *rig, size_t count, const char *discovery)
{
	struct bench_targets idle = { .count = count, .name = "bench_idle", .cpu = bench_nth_cpu(1) };
	char what[100];

	bench_targets_start(&idle);
	start_daemon(rig, discovery, "auto", false);
	bench_sleep(3 * NS_PER_S);

	uint64_t began = bench_now(), cpu = thread_cpu(rig->daemon, "discovery");

	bench_sleep(20 * NS_PER_S);
	cpu = thread_cpu(rig->daemon, "discovery") - cpu;

	double percent = 100 * (double)cpu / (double)(bench_now() - began);

	end_daemon(rig);
	bench_targets_end(&idle);
	snprintf(what, sizeof what, "CPU of discovery, %zu processes that sleep, \"%s\"", count, discovery);
	bench_report((struct bench_row){ what, "%", percent, 0, BENCH_AT_MOST, 2 });
}

static int remove_entry(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
	(void)stat, (void)type, (void)ftw;
	return remove(path);
}

int main(int argc, char **argv)
{
	static struct rig rig;
	const char *parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
	ssize_t len = readlink("/proc/self/exe", rig.program, sizeof rig.program - 1);

	if (argc > 1 && strcmp(argv[1], "wait") == 0) {
		pause();
		return 0;
	}
	bench_need(len > 0, "/proc/self/exe");
	prctl(PR_SET_NAME, "bench");
	bench_raise_descriptors();
	rig.executed_at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bench_need(rig.executed_at != MAP_FAILED, "shared memory");
	rig.used_ns = rig.executed_at + 1;
	rig.entered_ns = rig.executed_at + 2;
	snprintf(rig.dir, sizeof rig.dir, "%s/spikewatch-bench-XXXXXX", parent);
	bench_need(mkdtemp(rig.dir), rig.dir);
	report_arrivals(&rig, "kernel source, if it can be", "auto", false);
	report_arrivals(&rig, "proc connector", "files", false);
	if (geteuid() == 0)
		report_arrivals(&rig, "perf events", "files", true);
	for (int i = 0; i < 4; i++) {
		const char *source = i < 2 ? "auto" : "files";
		int spinners = i % 2 ? SPINNERS : 0;

		report_group(&rig, source, spinners, 3000, 8000);
		report_group(&rig, source, spinners, 1000, 2000);
		report_group(&rig, source, spinners, 200, 500);
	}
	for (size_t count = 1000; count <= 5000; count += 4000) {
		report_cost(&rig, count, "rescan");
		report_cost(&rig, count, "auto");
	}
	nftw(rig.dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);

	return 0;
}
