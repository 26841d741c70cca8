/*
 * bench_scale.c: the daemon on 1,000, 5,000 and 10,000 processes, one in a hundred of which runs in
 * every tick: its CPU, what of it each of its threads takes, how many of its ticks come when they
 * are due, its memory, descriptors and ring, and how long it needs for a status of all.
 *
 * The floor is the bare loop (bench_targets.h) at the same rate over the same processes, while the
 * daemon is stopped. A machine that cannot hold so many processes gets as many as it can, and says
 * so.
 */
#include "bench_spikewatch.h"
#include "bench_targets.h"

#define SETTLE_NS (3 * NS_PER_S)
#define MEASURE_NS (4 * NS_PER_S)
#define BARE_NS NS_PER_S

/* What a process that sleeps takes of the kernel, in its tables, rounded up. */
#define PROCESS_KIB 256u

/* What else goes on needs some. */
#define PIDS_LEFT 2000u

static const unsigned counts[] = { 1000, 5000, 10000 };

enum { STEPS = sizeof counts / sizeof counts[0] };

static const char rest[] =
	"\"targets\": [ { \"name\": \"many\", \"comm\": \"bench_crowd\", \"per\": \"process\" } ],"
	"  \"rules\": ["
	"    { \"name\": \"cpu\", \"metric\": \"cpu\", \"window\": \"1s\", \"percent\": \"90%\" },"
	"    { \"name\": \"memory\", \"metric\": \"memory\", \"window\": \"1s\", \"percent\": \"90%\" },"
	"    { \"name\": \"jump\", \"metric\": \"memory_bytes\", \"window\": \"5s\", \"minimum\": \"1GiB\", \"delta\": "
	"\"50%\" },"
	"    { \"name\": \"threads\", \"metric\": \"threads\", \"window\": \"1s\", \"above\": 1000 },"
	"    { \"name\": \"fds\", \"metric\": \"fds\", \"window\": \"1s\", \"above\": 1000 } ]";

/* Each step adds to the processes of the one before. */
struct rig {
	struct bench_spikewatch daemon;
	struct bench_targets many_targets[STEPS];
	size_t steps;     /* of many_targets */
	unsigned count;   /* of its processes */
	unsigned watched; /* of them, by the daemon */
	unsigned target_cpu;
};

/* ---- room ---- */

/* UINT64_MAX: no number there. */
static uint64_t read_number(const char *path)
{
	unsigned long long number = UINT64_MAX;
	FILE *file = fopen(path, "r");

	if (file && fscanf(file, "%llu", &number) != 1)
		number = UINT64_MAX;
	if (file)
		fclose(file);
	return number;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/*
 * What the pids controller leaves to the cgroup this runs in: of version 2 where it is usually
 * mounted, and of version 1.
 */
static uint64_t room_in_cgroup(void)
{
	char line[512], path[600];
	uint64_t room = UINT64_MAX;
	FILE *file = fopen("/proc/self/cgroup", "r");

	while (file && fgets(line, sizeof line, file)) {
		char *controllers = strchr(line, ':'), *cgroup = controllers ? strchr(controllers + 1, ':') : NULL;

		if (!cgroup || (!strstr(controllers, ":pids:") && controllers[1] != ':'))
			continue;
		cgroup[strcspn(cgroup, "\n")] = '\0';
		const char *root = controllers[1] == ':' ? "/sys/fs/cgroup" : "/sys/fs/cgroup/pids";

		snprintf(path, sizeof path, "%s%s/pids.max", root, cgroup + 1);
		uint64_t most = read_number(path);

		snprintf(path, sizeof path, "%s%s/pids.current", root, cgroup + 1);
		uint64_t now = read_number(path);

		if (most != UINT64_MAX && now != UINT64_MAX)
			room = least(room, most > now ? most - now : 0);
	}
	if (file)
		fclose(file);
	return room;
}

static uint64_t room_in_memory(void)
{
	FILE *file = fopen("/proc/meminfo", "r");
	unsigned long long kib = 0;
	char line[128];

	while (file && fgets(line, sizeof line, file))
		if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
			break;
	if (file)
		fclose(file);
	return kib / 2 / PROCESS_KIB;
}

static uint64_t count_processes(void)
{
	uint64_t count = 0;
	DIR *proc = opendir("/proc");

	bench_need(proc, "/proc");
	for (struct dirent *entry; (entry = readdir(proc));)
		count += entry->d_name[0] >= '1' && entry->d_name[0] <= '9';
	closedir(proc);
	return count;
}

/* How many processes this machine can hold besides those it has. */
static uint64_t room_for_processes(void)
{
	uint64_t pids = least(read_number("/proc/sys/kernel/pid_max"), read_number("/proc/sys/kernel/threads-max"));
	uint64_t taken = count_processes() + PIDS_LEFT;
	uint64_t room = pids > taken ? pids - taken : 0;
	struct rlimit limit;

	bench_need(getrlimit(RLIMIT_NPROC, &limit) == 0, "getrlimit");
	if (limit.rlim_cur != RLIM_INFINITY)
		room = least(room, limit.rlim_cur > taken ? limit.rlim_cur - taken : 0);
	return least(room, least(room_in_cgroup(), room_in_memory()));
}

/*
 * Adds processes until there are `count`, or as many as fit. False: there is no more
 * room than for those there are.
 */
static bool grow(struct rig *rig, unsigned count)
{
	uint64_t room = room_for_processes();
	unsigned more = count - rig->count;

	if (more > room) {
		printf("(this machine has room for %u processes of %u)\n", rig->count + (unsigned)room, count);
		more = (unsigned)room;
	}
	if (more < 100)
		return false;

	rig->many_targets[rig->steps] = (struct bench_targets){ .count = more,
								.busy = more / 100,
								.manner = BENCH_TICKING,
								.name = "bench_crowd",
								.cpu = rig->target_cpu };
	bench_targets_start(&rig->many_targets[rig->steps++]);
	rig->count += more;
	return true;
}

/* ---- figures ---- */

/* CPU of the bare looks at all, hertz times a second: ns for each. */
static double bare_ns(const struct rig *rig, unsigned hertz)
{
	struct bench_bare bare[STEPS];
	uint64_t looks = 0;

	for (size_t i = 0; i < rig->steps; i++) {
		bench_bare_make(&bare[i], &rig->many_targets[i]);
		bench_bare_tick(&bare[i]);
	}

	uint64_t began = bench_now(), deadline = began, cpu = bench_cpu();

	while (bench_now() < began + BARE_NS) {
		deadline += NS_PER_S / hertz;
		bench_sleep_until(deadline);
		for (size_t i = 0; i < rig->steps; i++)
			bench_bare_tick(&bare[i]);
		looks += rig->count;
	}
	cpu = bench_cpu() - cpu;
	for (size_t i = 0; i < rig->steps; i++)
		bench_bare_end(&bare[i]);
	return (double)cpu / (double)looks;
}

static void report_pace(const struct rig *rig, unsigned hertz, const struct bench_meter *from,
			const struct bench_meter *to, double bare)
{
	double looks = (double)(to->ticks - from->ticks) * rig->watched;
	double seconds = (double)(to->at_ns - from->at_ns) / 1e9;
	bool budgeted = rig->count == counts[0] && hertz == 100;
	char what[80];

	snprintf(what, sizeof what, "  process-sample, %u processes, %u Hz", rig->watched, hertz);
	bench_report((struct bench_row){ what, "ns", looks > 0 ? (double)(to->cpu_ns - from->cpu_ns) / looks : 0, bare,
					 budgeted ? BENCH_AT_MOST : BENCH_NO_LIMIT, 400 });
	bench_report((struct bench_row){ "  CPU, of one core", "%", bench_meter_percent(from, to), 0,
					 budgeted ? BENCH_AT_MOST : BENCH_NO_LIMIT, 4 });
	bench_report_threads(from, to, 0.05);
	bench_report((struct bench_row){
		.what = "  ticks that came when due", .unit = "%", .measured = bench_meter_captured(from, to) });
	bench_report((struct bench_row){ .what = "  into the ring",
					 .unit = "KiB/s",
					 .measured = (double)(to->ring_bytes - from->ring_bytes) / 1024 / seconds });
}

static void report_size(const struct rig *rig)
{
	struct bench_memory memory = bench_spikewatch_memory(&rig->daemon);
	bool budgeted = rig->count == counts[0];

	bench_report((struct bench_row){ "  resident memory, without the ring", "MiB", memory.resident_mib, 0,
					 budgeted ? BENCH_AT_MOST : BENCH_NO_LIMIT, 12 });
	bench_report((struct bench_row){ .what = "    of it private", .unit = "MiB", .measured = memory.private_mib });
	bench_report((struct bench_row){
		.what = "  open descriptors", .unit = "", .measured = bench_count_descriptors(rig->daemon.pid) });
}

/*
 * With the first rate of a step: how many of its processes the daemon watches. Descriptors may be too few for
 * all.
 */
static void report_status(struct rig *rig)
{
	uint64_t began = bench_now();
	size_t len = 0;
	char *status = bench_spikewatch_ask(&rig->daemon, "status", &len);
	double took_ms = (double)(bench_now() - began) / 1e6;

	bench_need(status, "a status");
	rig->watched = (unsigned)bench_status_number(status, "discovery", "targets");
	free(status);
	bench_need(rig->watched > 0, "processes are watched");
	bench_report((struct bench_row){
		.what = "  processes that are watched", .unit = "", .measured = rig->watched, .against = rig->count });
	bench_report(
		(struct bench_row){ .what = "  status of all, asked and read", .unit = "ms", .measured = took_ms });
	bench_report(
		(struct bench_row){ .what = "    its size", .unit = "MiB", .measured = (double)len / (1024 * 1024) });
}

static void report_rate(struct rig *rig, unsigned hertz)
{
	char interval[16];
	struct bench_meter from, to;

	snprintf(interval, sizeof interval, "%ums", 1000 / hertz);
	bench_spikewatch_configure(&rig->daemon, interval, rest);

	double bare = bare_ns(rig, hertz);

	bench_spikewatch_start(&rig->daemon);
	bench_sleep(SETTLE_NS);
	bench_spikewatch_meter(&rig->daemon, &from);
	bench_sleep(MEASURE_NS);
	bench_spikewatch_meter(&rig->daemon, &to);
	if (hertz == 10)
		report_status(rig);
	kill(rig->daemon.pid, SIGSTOP);
	bare = (bare + bare_ns(rig, hertz)) / 2;
	kill(rig->daemon.pid, SIGCONT);
	report_pace(rig, hertz, &from, &to, bare);
	if (hertz == 100)
		report_size(rig);
	bench_spikewatch_end(&rig->daemon);
}

/*
 * Four descriptors for each process: as many as the shipped service is allowed, where this user
 * may.
 */
static void raise_descriptors(void)
{
	struct rlimit limit = { .rlim_cur = 65536, .rlim_max = 65536 };

	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		bench_raise_descriptors();
}

int main(void)
{
	static struct rig rig;

	rig.target_cpu = bench_nth_cpu(1);
	prctl(PR_SET_TIMERSLACK, 1000ul);
	raise_descriptors();
	bench_spikewatch_make(&rig.daemon, NULL, NULL);
	for (size_t i = 0; i < STEPS && grow(&rig, counts[i]); i++) {
		printf("daemon, %u processes, of which one in a hundred runs in every tick\n", rig.count);
		fflush(stdout);
		report_rate(&rig, 10);
		report_rate(&rig, 100);
	}
	for (size_t i = 0; i < rig.steps; i++)
		bench_targets_end(&rig.many_targets[i]);

	return 0;
}
