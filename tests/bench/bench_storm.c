/*
 * bench_storm.c: the daemon beside a machine that forks: 2,000 processes a second that end at once,
 * then 200 cgroups a second that are made and removed, each for five seconds, while a hundred other
 * processes are watched 100 times a second.
 *
 * Told: what the daemon takes, how many of its ticks come when they are due, whether memory and
 * descriptors are afterwards as they were before, what forking costs the parent, with and
 * without the daemon in turns, and how many of those that came are neither looked at nor counted as
 * missed.
 */
#include "bench_spikewatch.h"
#include "bench_targets.h"
#include "lib/cgroup/cgroup_mounts.h"

#include <sys/stat.h>

#define WATCHED 100u
#define FORKS_PER_SECOND 2000u
#define CGROUPS_PER_SECOND 200u
#define STORM_NS (5 * NS_PER_S)
#define TURN_NS (1 * NS_PER_S)
#define TURNS 3u
#define SETTLE_NS (2 * NS_PER_S)

/* How many cgroups there are at a time: each lives for 50 ms. */
#define CGROUPS_ALIVE 10u

#define HIERARCHIES_MAX 8u

struct rig {
	struct bench_spikewatch daemon;
	struct bench_targets watched;
	char *hierarchies[HIERARCHIES_MAX]; /* a directory of our own in each */
	size_t hierarchy_count;
	pid_t first; /* the process they are named after */
};

/* What a storm cost the process that made it. */
struct storm {
	uint64_t count;
	uint64_t cpu_ns; /* its own and its children's */
};

static uint64_t cpu_of(int who)
{
	struct rusage usage;

	bench_need(getrusage(who, &usage) == 0, "getrusage");
	return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * NS_PER_S +
	       (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * NS_PER_US;
}

static uint64_t cpu_so_far(void)
{
	return cpu_of(RUSAGE_SELF) + cpu_of(RUSAGE_CHILDREN);
}

/* ---- processes ---- */

static void fork_one(const struct rig *rig, uint64_t n)
{
	pid_t pid = fork();

	(void)rig, (void)n;
	if (pid == 0)
		_exit(0);
	bench_need(pid > 0 && waitpid(pid, NULL, 0) == pid, "fork");
}

/* ---- cgroups ---- */

/* Above all they differ by number: in every hierarchy the same one. */
static void cgroup_path(const struct rig *rig, size_t hierarchy, uint64_t n, char *ret, size_t cap)
{
	snprintf(ret, cap, "%s/c%llu", rig->hierarchies[hierarchy], (unsigned long long)n);
}

static void remove_cgroup(const struct rig *rig, uint64_t n)
{
	char path[600];

	for (size_t i = 0; i < rig->hierarchy_count; i++) {
		cgroup_path(rig, i, n, path, sizeof path);
		rmdir(path);
	}
}

/* Makes one, and removes the one that is due. */
static void turn_cgroup(const struct rig *rig, uint64_t n)
{
	char path[600];

	for (size_t i = 0; i < rig->hierarchy_count; i++) {
		cgroup_path(rig, i, n, path, sizeof path);
		bench_need(mkdir(path, 0755) == 0, path);
	}
	if (n >= CGROUPS_ALIVE)
		remove_cgroup(rig, n - CGROUPS_ALIVE);
}

static void add_hierarchy(struct rig *rig, const char *root)
{
	char path[512];

	if (!root || rig->hierarchy_count == HIERARCHIES_MAX)
		return;
	snprintf(path, sizeof path, "%s/bench_storm.%d", root, rig->first);
	if (mkdir(path, 0755) < 0)
		return; /* it is there: several controllers share a hierarchy; or this user may not */

	rig->hierarchies[rig->hierarchy_count] = strdup(path);
	bench_need(rig->hierarchies[rig->hierarchy_count++], "memory");
}

/*
 * The directory of our own in each hierarchy that the daemon reads. None: this user may make none.
 */
static void make_hierarchies(struct rig *rig)
{
	struct cgroup_mounts *mounts;
	bool v2;

	bench_need(cgroup_mounts_new("/proc", "", &mounts) == 0, "cgroups");
	for (int controller = 0; controller < CGROUP_CONTROLLERS; controller++)
		add_hierarchy(rig, cgroup_mounts_controller(mounts, (enum cgroup_resource)controller, &v2));
	add_hierarchy(rig, cgroup_mounts_v2(mounts));
	cgroup_mounts_free(mounts);
}

/* With what is left in them. */
static void remove_hierarchies(void *ctx)
{
	struct rig *rig = ctx;

	for (size_t i = 0; i < rig->hierarchy_count; i++) {
		DIR *dir = opendir(rig->hierarchies[i]);

		for (struct dirent *entry; dir && (entry = readdir(dir));)
			if (entry->d_name[0] == 'c' && entry->d_type == DT_DIR)
				unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
		if (dir)
			closedir(dir);
		rmdir(rig->hierarchies[i]);
	}
}

/* ---- a storm ---- */

struct kind {
	const char *title, *cost; /* of the rows */
	unsigned per_second;
	void (*one)(const struct rig *rig, uint64_t n);
	unsigned alive;         /* the last ones are still there afterwards */
	const char *counted[3]; /* members of the status, section "discovery", that account for one each */
};

static const struct kind forks = {
	.title = "2000 short processes a second beside 100 watched ones, 100 Hz",
	.cost = "  fork and exit, CPU (against: without the daemon)",
	.per_second = FORKS_PER_SECOND,
	.one = fork_one,
	.counted = { "looks", "missed" },
};

static const struct kind cgroups = {
	.title = "200 cgroups a second made and removed beside 100 watched processes, 100 Hz",
	.cost = "  making and removing one, CPU (against: without the daemon)",
	.per_second = CGROUPS_PER_SECOND,
	.one = turn_cgroup,
	.alive = CGROUPS_ALIVE,
	.counted = { "cgroups_heard" },
};

static struct storm rage(const struct rig *rig, const struct kind *kind, uint64_t for_ns)
{
	uint64_t began = bench_now(), due = began, cpu_ns = cpu_so_far();
	struct storm storm = { 0 };

	while (due < began + for_ns) {
		kind->one(rig, storm.count++);
		due += NS_PER_S / kind->per_second;
		bench_sleep_until(due);
	}
	storm.cpu_ns = cpu_so_far() - cpu_ns;
	for (uint64_t n = storm.count - kind->alive; n < storm.count; n++)
		remove_cgroup(rig, n);
	return storm;
}

static double cost_of(struct storm storm)
{
	return (double)storm.cpu_ns / 1e3 / (double)storm.count;
}

static void start_daemon(struct rig *rig, bool stacks)
{
	char rest[640];

	snprintf(rest, sizeof rest,
		 "\"targets\": [ { \"name\": \"watched\", \"comm\": \"bench_watched\", \"per\": \"process\" },"
		 "  { \"name\": \"churn\", \"cgroup\": \"/bench_storm.%d/*\", \"per\": \"cgroup\" } ],"
		 "\"rules\": [ { \"name\": \"cpu\", \"metric\": \"cpu\", \"window\": \"1s\", \"percent\": \"90%%\" } ],"
		 "\"stacks\": { \"mode\": \"%s\" }",
		 rig->first, stacks ? "dwarf" : "off");
	bench_spikewatch_configure(&rig->daemon, "10ms", rest);
	bench_spikewatch_start(&rig->daemon);
	bench_sleep(SETTLE_NS);
}

/* With and without the daemon in turns, so that what else goes on is in both. */
static void report_cost(struct rig *rig, const struct kind *kind)
{
	double with[TURNS], without[TURNS];

	for (unsigned i = 0; i < TURNS; i++) {
		without[i] = cost_of(rage(rig, kind, TURN_NS));
		start_daemon(rig, true);
		with[i] = cost_of(rage(rig, kind, TURN_NS));
		bench_spikewatch_end(&rig->daemon);
	}
	bench_report((struct bench_row){ .what = kind->cost,
					 .unit = "us",
					 .measured = bench_median(with, TURNS),
					 .against = bench_median(without, TURNS) });
}

/* What the storm could have done, as the daemon says it. */
struct account {
	double counted, overruns, storms;
	double descriptors;
	struct bench_memory memory;
};

static struct account take_account(const struct rig *rig, const struct kind *kind)
{
	struct account account = { .descriptors = bench_count_descriptors(rig->daemon.pid),
				   .memory = bench_spikewatch_memory(&rig->daemon) };
	size_t len;
	char *status = bench_spikewatch_ask(&rig->daemon, "status", &len);

	bench_need(status, "a status");
	for (size_t i = 0; i < 3 && kind->counted[i]; i++)
		account.counted += bench_status_number(status, "discovery", kind->counted[i]);
	account.overruns = bench_status_number(status, "discovery", "overruns");
	account.storms = bench_status_number(status, "discovery", "storms");
	free(status);
	return account;
}

/* Others' processes are counted too: what is lost is never less than none. */
static void report_account(const struct account *from, const struct account *to, double came)
{
	double lost = came - (to->counted - from->counted);

	bench_report((struct bench_row){ "  neither looked at nor counted as missed", "", lost > 0 ? lost : 0, came,
					 BENCH_AT_MOST, 0 });
	bench_report((struct bench_row){ .what = "  times the kernel had no room for news",
					 .unit = "",
					 .measured = to->overruns - from->overruns });
	bench_report((struct bench_row){ .what = "  seconds in which they came faster than they may be looked at",
					 .unit = "",
					 .measured = to->storms - from->storms });
	bench_report((struct bench_row){ "  descriptors afterwards (against: before)", "", to->descriptors,
					 from->descriptors, BENCH_RATIO_AT_MOST, 1.01 });
}

/*
 * For its call stacks it keeps, within a bound, which files ended processes had mapped: without
 * that all is given back.
 */
static void report_memory(struct rig *rig, const struct kind *kind)
{
	struct bench_memory before, after;

	start_daemon(rig, false);
	rage(rig, kind, STORM_NS); /* tables grow to what a storm takes, once */
	bench_sleep(SETTLE_NS);
	before = bench_spikewatch_memory(&rig->daemon);
	rage(rig, kind, STORM_NS);
	bench_sleep(SETTLE_NS);
	after = bench_spikewatch_memory(&rig->daemon);
	bench_report((struct bench_row){ "  private memory afterwards, stacks off (against: before)", "MiB",
					 after.private_mib, before.private_mib, BENCH_RATIO_AT_MOST, 1.1 });
	bench_spikewatch_end(&rig->daemon);
}

static void report_storm(struct rig *rig, const struct kind *kind)
{
	struct bench_meter calm, from, to;
	struct account before, after;

	start_daemon(rig, true);
	rage(rig, kind, TURN_NS); /* what is taken once and kept */
	bench_sleep(SETTLE_NS);
	bench_spikewatch_meter(&rig->daemon, &calm);
	bench_sleep(SETTLE_NS);
	before = take_account(rig, kind);
	bench_spikewatch_meter(&rig->daemon, &from);

	struct storm storm = rage(rig, kind, STORM_NS);

	bench_spikewatch_meter(&rig->daemon, &to);
	bench_sleep(SETTLE_NS);
	after = take_account(rig, kind);
	printf("%s\n", kind->title);
	bench_report((struct bench_row){ .what = "  the daemon, CPU, of one core (against: before the storm)",
					 .unit = "%",
					 .measured = bench_meter_percent(&from, &to),
					 .against = bench_meter_percent(&calm, &from) });
	bench_report_threads(&from, &to, 0.05);
	bench_report((struct bench_row){
		.what = "  ticks that came when due", .unit = "%", .measured = bench_meter_captured(&from, &to) });
	report_account(&before, &after, (double)storm.count);
	bench_report((struct bench_row){ .what = "  private memory afterwards (against: before)",
					 .unit = "MiB",
					 .measured = after.memory.private_mib,
					 .against = before.memory.private_mib });
	bench_spikewatch_end(&rig->daemon);
	report_memory(rig, kind);
	report_cost(rig, kind);
}

int main(void)
{
	static struct rig rig;

	prctl(PR_SET_TIMERSLACK, 1000ul);
	bench_raise_descriptors();
	rig.first = getpid();
	make_hierarchies(&rig);
	bench_spikewatch_make(&rig.daemon, remove_hierarchies, &rig);
	rig.watched = (struct bench_targets){
		.count = WATCHED, .busy = 1, .manner = BENCH_TICKING, .name = "bench_watched", .cpu = bench_nth_cpu(1)
	};
	bench_targets_start(&rig.watched);

	report_storm(&rig, &forks);
	if (rig.hierarchy_count > 0)
		report_storm(&rig, &cgroups);
	else
		printf("%s: this user may make none\n", cgroups.title);
	bench_targets_end(&rig.watched);

	return 0;
}
