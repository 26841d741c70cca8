/*
 * check_stacktruth.c: workloads whose stacks are known, the real daemon as it is by default, and
 * what an incident says of them.
 */
#include "daemon/engine/base/proc_read.h"
#include "lib/model/sample.h"
#include "own_cgroups.h"
#include "skip.h"
#include "stacks_rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

Suite *stacktruth_suite(void);

static struct stacks_rig rig;
static struct own_cgroups cgroups;
static bool able;

static void setup(void)
{
	able = stacks_rig_init(&rig);
}

static void teardown(void)
{
	stacks_rig_release(&rig);
}

#define DWARF "\"dwarf\""
#define NO_RULES "[]"

/*
 * Ten times as many samples, each of a tenth of the size: of one of a thousand page faults there
 * are too few in a second to measure shares by.
 */
#define FINE "{\"mode\": \"dwarf\", \"frequency\": 999, \"stack_size\": \"1KiB\", \"max_memory\": \"1GiB\"}"
#define FINE_SECONDS 20 /* that much fits */
#define FINE_BEFORE "20s"

static double work_seconds; /* from when the workload was let go until its incident was there */

static double seconds_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* A workload from its start to an incident that was asked for when it was done. */
static void run(const char *stacks, const char *what, const char *much, const char *file)
{
	const char *arguments[] = { rig.workload, what, much, file, NULL };

	stacks_rig_start_work(&rig, arguments);
	stacks_rig_until_stopped(&rig);
	stacks_rig_start_daemon(&rig, stacks, NO_RULES);
	work_seconds = -seconds_now();
	stacks_rig_work(&rig);
	stacks_rig_trigger(&rig);
	work_seconds += seconds_now();
}

/* So much CPU time a workload uses. */
#define BURN_MS 1000
#define BURN_MS_TEXT "1000"

/*
 * What burns has nearly all of its program's samples: a few are in the kernel, or where the clock
 * is read. In all they are as many as 99 Hz give: events of its own are due by the time that it had
 * a CPU, however busy that is. But not of a virtual one: the host may take it away for a while, and
 * more samples, or fewer, are due then.
 */
static void has_nearly_all(unsigned long count, const char *program, int cpu_ms)
{
	char start[32];
	double due = 0.099 * cpu_ms;

	snprintf(start, sizeof(start), "%s;", program);

	unsigned long all = STACKS_RIG_FOLDED(&rig, "cpu.folded", start);

	if (count <= all && (double)count > 0.8 * (double)all && (double)all > 0.5 * due && (double)all < 1.8 * due)
		return;

	stacks_rig_give_up(&rig, "cpu.folded", "%lu of %lu samples of %s in %d ms", count, all, program, cpu_ms);
}

/* The samples of the workload in which these functions called each other. */
#define CALLED(...) STACKS_RIG_FOLDED(&rig, "cpu.folded", rig.name, __VA_ARGS__)

START_TEST(one_hot_thread_among_fifty_is_named)
{
	if (!able)
		SKIP_TEST("%s", skip_why());

	run(DWARF, "threads", BURN_MS_TEXT, NULL);
	has_nearly_all(stacks_rig_function(&rig, "functions.tsv", "burn_hot").total, rig.name, BURN_MS);
	has_nearly_all(CALLED(";be_hot;burn_hot"), rig.name, BURN_MS);
	ck_assert_uint_eq(CALLED("sleep_cold"), 0);

	char *text = stacks_rig_file(&rig, "functions.tsv");
	char *at = strstr(text, "\nburn_hot\t");

	ck_assert_ptr_nonnull(at);
	at[1 + strcspn(at + 1, "\n")] = '\0';
	ck_assert_msg(strstr(at, "\thot\t"), "the hottest thread of burn_hot is not \"hot\": %s", at);
	free(text);
	stacks_rig_end(&rig);
}
END_TEST

START_TEST(every_level_of_a_recursion_is_there)
{
	char levels[20 * 10 + 16];
	size_t len = 0;

	if (!able)
		SKIP_TEST("%s", skip_why());

	run(DWARF, "recursion", BURN_MS_TEXT, NULL);
	for (int i = 0; i < 20; i++)
		len += (size_t)snprintf(levels + len, sizeof(levels) - len, ";go_deeper");
	snprintf(levels + len, sizeof(levels) - len, ";burn_leaf");
	has_nearly_all(CALLED(";main;", levels), rig.name, BURN_MS);
	ck_assert_uint_eq(CALLED(";go_deeper", levels), 0); /* 21 levels */
	stacks_rig_end(&rig);
}
END_TEST

START_TEST(who_is_called_back_by_a_library_without_frame_pointers_has_its_callers)
{
	if (!able)
		SKIP_TEST("%s", skip_why());

	run(DWARF, "qsort", BURN_MS_TEXT, NULL);
	has_nearly_all(CALLED(";main;", ";sort_all;", ";compare_slowly"), rig.name, BURN_MS);
	stacks_rig_end(&rig);
}
END_TEST

START_TEST(a_library_that_was_loaded_late_is_known)
{
	char library[128], command[512];

	if (!able)
		SKIP_TEST("%s", skip_why());

	snprintf(library, sizeof(library), "%s/late.so", rig.directory);
	snprintf(command, sizeof(command), "%s/late.c", rig.directory);
	scene_write(command, "static volatile unsigned long sum;\n"
			     "__attribute__((noinline)) static void burn_inside(void)\n"
			     "{ for (int i = 0; i < 200000; i++) sum = sum * 25214903917ul + 11; }\n"
			     "void burn_in_library(void) { burn_inside(); sum++; }\n");
	snprintf(command, sizeof(command), "cc -O2 -g -shared -fPIC -o '%s' '%s/late.c'", library, rig.directory);
	ck_assert_int_eq(system(command), 0);
	run(DWARF, "library", BURN_MS_TEXT, library);
	has_nearly_all(CALLED(";main;", ";burn_in_library;burn_inside"), rig.name, BURN_MS);
	stacks_rig_end(&rig);
}
END_TEST

START_TEST(code_that_was_compiled_at_run_time_has_the_name_of_its_perf_map)
{
	if (!able)
		SKIP_TEST("%s", skip_why());

#ifdef __x86_64__
	char map[64];

	run(DWARF, "compiled", BURN_MS_TEXT, NULL);
	has_nearly_all(CALLED(";main;", ";burn_compiled"), rig.name, BURN_MS);
	snprintf(map, sizeof(map), "/tmp/perf-%d.map", rig.work.pid);
	unlink(map);
	stacks_rig_end(&rig);
#endif
}
END_TEST

START_TEST(children_that_live_a_tenth_of_a_second_are_named)
{
	if (!able)
		SKIP_TEST("%s", skip_why());

	run(DWARF, "children", BURN_MS_TEXT, NULL);
	has_nearly_all(CALLED(";main;", ";burn_in_child"), rig.name, BURN_MS);
	stacks_rig_end(&rig);
}
END_TEST

/* They have all ended when the incident begins: that they were members is remembered. */
START_TEST(functions_of_members_that_have_ended_are_those_of_their_group)
{
	unsigned long all, own;
	char other[64];

	if (!able)
		SKIP_TEST("%s", skip_why());

	rig.keys = ", \"per\": \"group\", \"tree\": true";
	run(DWARF, "children", BURN_MS_TEXT, NULL);
	all = CALLED(";burn_in_child");
	own = stacks_rig_function(&rig, "functions.tsv", "burn_in_child").total;
	ck_assert_uint_gt(all, 0);
	ck_assert_msg(100 * own >= 99 * all, "%lu of %lu", own, all);
	snprintf(other, sizeof(other), "\n%s\t(another process)\t", rig.name);

	char *text = stacks_rig_file(&rig, "functions.tsv");

	ck_assert_ptr_null(strstr(text, other));
	free(text);
	stacks_rig_end(&rig);
}
END_TEST

/* ---- two hundred members ---- */

#define CROWD_MS "2000"

/* What `show` says: of how many own samples the shares are, before and during; and that none of it is another's. */
static unsigned long shown_as_own(void)
{
	unsigned long before = 0, during = 0;
	const char *arguments[] = { rig.spikewatch, "show", "--full", rig.incident, NULL }, *others;
	char place[128], *at;
	int out = open(rig.said, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	struct program program = program_start(arguments, stacks_rig_place(&rig, "shown", place), out, 0);

	close(out);
	ck_assert_int_eq(program_wait(&program), 0);

	AUTO_FREE char *text = scene_read(rig.said);

	at = strstr(text, "(percent of its own samples: ");
	ck_assert_msg(at && sscanf(at, "(percent of its own samples: %lu before the spike, %lu", &before, &during) == 2,
		      "%s", text);
	/* The table ends with an empty line. */
	*strstr(at, "\n\n") = '\0';
	others = strstr(at, "other processes (percent of all):");
	ck_assert_msg(!others || !strstr(others, rig.name), "%s", others);
	return before + during;
}

static const struct {
	const char *what;
	bool by_name;
} crowds[] = { { "crowd", true }, { "brief", true }, { "brief", false } };

/*
 * At least 99 % of what they used: of so many samples, five standard deviations less. They are all
 * called as their parent is, or known as its children.
 */
START_TEST(own_samples_of_two_hundred_members_are_those_of_their_group)
{
	char selector[64];
	double all, own;

	if (!able)
		SKIP_TEST("%s", skip_why());

	snprintf(selector, sizeof(selector), "\"comm\": \"%s\"", rig.name);
	rig.selector = crowds[_i].by_name ? selector : NULL;
	rig.keys = crowds[_i].by_name ? ", \"per\": \"group\"" : ", \"per\": \"group\", \"tree\": true";
	run(DWARF, crowds[_i].what, CROWD_MS, NULL);
	all = (double)CALLED(";burn_in_crowd");
	own = (double)stacks_rig_function(&rig, "functions.tsv", "burn_in_crowd").total;
	if (!(all > 50 && own >= 0.99 * all - 5 * sqrt(0.99 * 0.01 * all)))
		stacks_rig_give_up(&rig, "functions.tsv", "%.0f of %.0f", own, all);
	ck_assert_double_ge((double)shown_as_own(), own);
	stacks_rig_end(&rig);
}
END_TEST

/* ---- members of a cgroup that no ancestor says anything of ---- */

__attribute__((noinline, noclone, noipa)) static void burn_without_kin(void)
{
	struct timespec used = { 0 };
	volatile unsigned long sum = 0;

	while (used.tv_sec == 0 && used.tv_nsec < 400000000) {
		for (unsigned long i = 0; i < 100000; i++)
			sum += i * i;
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	}
}

/* In the cgroup a process starts one that burns, and ends before it; both are gone at the end. */
static void burn_in_cgroup(const char *name)
{
	int ended[2];
	char byte;

	ck_assert_int_eq(pipe(ended), 0);
	pid_t parent = fork();

	if (parent == 0) {
		pid_t self = getpid();

		own_cgroups_join(&cgroups, name, self);
		if (fork() == 0) {
			while (getppid() == self)
				usleep(1000);
			burn_without_kin();
			_exit(0);
		}
		_exit(0);
	}
	close(ended[1]);
	ck_assert_int_eq(waitpid(parent, NULL, 0), parent);
	ck_assert_int_eq(read(ended[0], &byte, 1), 0);
	close(ended[0]);
}

static void setup_cgroups(void)
{
	own_cgroups_make(&cgroups, "kin");
}

static void teardown_cgroups(void)
{
	own_cgroups_remove(&cgroups);
}

static bool is_v2_of_perf(void)
{
	char *text = scene_read("/proc/1/cgroup");
	bool v2 = text && strstr(text, "0::") && !strstr(text, "perf_event");

	free(text);
	return v2;
}

/*
 * They have ended before discovery looks again, and what they were forked from is outside: their
 * samples say where they were. With _i the cgroup is made after the recorder began, and is gone before
 * the incident.
 */
START_TEST(functions_of_members_without_kin_are_those_of_their_cgroup)
{
	const char *arguments[] = { rig.spikewatchd, "-c", rig.config, NULL };
	unsigned long before = 0, during = 0;

	if (!able)
		SKIP_TEST("%s", skip_why());
	if (cgroups.count == 0 || (!_i && own_cgroups_add(&cgroups, "stays") < 0))
		SKIP_TEST("no cgroups of our own");
	if (!is_v2_of_perf())
		SKIP_TEST("the perf_event controller is in cgroup v1");
	scene_write(rig.config,
		    "{\"ring\": {\"path\": \"%s/ring\", \"size\": \"4MiB\", \"lock\": false},\n"
		    "\"sampling\": {\"rescan_interval\": \"10s\"}, \"stacks\": \"frame-pointers\",\n"
		    "\"incidents\": {\"directory\": \"%s/incidents\", \"before\": \"60s\", \"after\": \"0s\", "
		    "\"min_free\": \"0B\",\n"
		    "\"captures\": [\"samples\"]}, \"targets\": [{\"name\": \"work\", \"cgroup\": \"%s\", \"per\": "
		    "\"cgroup\"}]}\n",
		    rig.directory, rig.directory, cgroups.name);
	rig.daemon = program_start(arguments, rig.directory, -1, 0);
	scene_wait_for(program_watches_one(&rig.daemon));
	if (_i)
		ck_assert_int_eq(own_cgroups_add(&cgroups, "goes"), 0);
	burn_in_cgroup(_i ? "goes" : "stays");
	if (_i)
		own_cgroups_drop(&cgroups, "goes");
	stacks_rig_trigger(&rig);
	/* Not by name: what such a process has mapped may be unknown. */
	char *text = stacks_rig_file(&rig, "functions.tsv"),
	     *at = text ? strstr(text, "# own samples before, during: ") : NULL;

	if (!at || sscanf(at, "# own samples before, during: %lu, %lu", &before, &during) != 2 || before + during < 20)
		stacks_rig_give_up(&rig, "functions.tsv", "%lu and %lu own samples", before, during);
	free(text);
	kill(rig.daemon.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&rig.daemon), 0);
}
END_TEST

/* ---- the end of a process ---- */

static bool sealed(struct stacks_rig *target)
{
	char path[128];
	DIR *directory;
	bool found = false;

	snprintf(path, sizeof(path), "%s/incidents", target->directory);
	directory = opendir(path);
	for (struct dirent *entry; directory && (entry = readdir(directory));) {
		char file[640];

		if (entry->d_name[0] < '0' || entry->d_name[0] > '9' || strstr(entry->d_name, ".tmp"))
			continue; /* it is being written */
		snprintf(target->incident, sizeof(target->incident), "%s/%s", path, entry->d_name);
		snprintf(file, sizeof(file), "%s/incident.json", target->incident);
		found = access(file, F_OK) == 0;
		if (found)
			break;
	}
	if (directory)
		closedir(directory);

	return found;
}

START_TEST(a_process_that_exits_right_at_its_spike_has_names)
{
	const char *arguments[] = { rig.workload, "exit", "600", NULL };

	if (!able)
		SKIP_TEST("%s", skip_why());

	rig.after = "1s";
	stacks_rig_start_work(&rig, arguments);
	stacks_rig_until_stopped(&rig);
	stacks_rig_start_daemon(&rig, DWARF,
				"[{\"name\": \"spike\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": \"100ms\", "
				"\"percent\": \"5%\", \"warmup\": 1}]");
	kill(rig.work.pid, SIGCONT);
	ck_assert_int_eq(program_wait(&rig.work), 0);
	rig.work.pid = 0;
	scene_wait_for(sealed(&rig));
	ck_assert_uint_gt(CALLED(";main;", "burn_and_go"), 2);
	stacks_rig_end(&rig);
}
END_TEST

/* ---- a mount namespace of its own ---- */

/* Whether start_inside() can mount: in a chroot the root directory is no mount point. */
static bool may_mount(void)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0);
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* In a child: a file system that no other process sees, with the workload in it. */
static void start_inside(const char *inner)
{
	char program[256], command[1024];
	const char *arguments[] = { program, "recursion", BURN_MS_TEXT, NULL };
	int out = open(rig.out, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	snprintf(program, sizeof(program), "%s/%s", inner, rig.name);
	snprintf(command, sizeof(command), "cp '%s' '%s'", rig.workload, program);
	rig.work.pid = fork();
	ck_assert_int_ge(rig.work.pid, 0);
	if (rig.work.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		    mount("none", inner, "tmpfs", 0, NULL) < 0 || system(command) != 0)
			_exit(125);
		dup2(out, STDOUT_FILENO);
		execv(program, (char *const *)(uintptr_t)arguments);
		_exit(126);
	}
	close(out);
}

START_TEST(a_program_of_another_mount_namespace_has_names)
{
	char inner[128], unseen[160];

	if (!able)
		SKIP_TEST("%s", skip_why());
	if (geteuid() != 0)
		SKIP_TEST("making mount namespaces takes root");
	if (!may_mount())
		SKIP_TEST("this root directory is no mount point that could be made private");

	stacks_rig_place(&rig, "inner", inner);
	start_inside(inner);
	stacks_rig_until_stopped(&rig);
	snprintf(unseen, sizeof(unseen), "%s/%s", inner, rig.name);
	ck_assert_int_lt(access(unseen, F_OK), 0);
	stacks_rig_start_daemon(&rig, DWARF, NO_RULES);
	stacks_rig_work(&rig);
	stacks_rig_trigger(&rig);
	has_nearly_all(CALLED(";main;", ";go_deeper;burn_leaf"), rig.name, BURN_MS);
	stacks_rig_end(&rig);
}
END_TEST

/* ---- memory ---- */

/* What each of the two has grown by, as the profile says; and how far that is from three to one. */
static double grown_bytes(double by)
{
	double three = (double)STACKS_RIG_FOLDED(&rig, "memory.folded", rig.name, ";main;", ";grow_three"),
	       one = (double)STACKS_RIG_FOLDED(&rig, "memory.folded", rig.name, ";main;", ";grow_one"),
	       all = three + one;

	if (!(three / all > 0.75 - by && three / all < 0.75 + by))
		stacks_rig_give_up(&rig, "memory.folded", "%.3f of %.0f", three / all, all);

	return all;
}

/*
 * Of 153,600 page faults each 101st is a sample where all are counted, and half of them or more
 * are: 1.6 % is one standard deviation of 750.
 */
START_TEST(memory_that_grew_three_to_one_is_so_in_the_profile)
{
	if (!able)
		SKIP_TEST("%s", skip_why());

	rig.before = FINE_BEFORE;
	run(FINE, "memory", "600", NULL);
	if (work_seconds > FINE_SECONDS) {
		stacks_rig_end(&rig);
		SKIP_TEST("it took %.1f s, of which %d are recorded", work_seconds, FINE_SECONDS);
	}
	grown_bytes(0.1);
	ck_assert_uint_gt(stacks_rig_function(&rig, "memory-functions.tsv", "grow_three").total, 0);
	stacks_rig_end(&rig);
}
END_TEST

#define HUGE_MIB 1600
#define HUGE_MIB_TEXT "1600"

/*
 * A sample stands for 4 MiB of either: 300 and 100 of them. The sum of what was touched in huge
 * pages is exact but for what was left on each CPU. Where others have many page faults, too, a part of the
 * small ones is counted and stands for all, half and more: five standard deviations of 50 samples are 0.12 of
 * the share; or huge pages are not weighed any more. The incident says both.
 */
START_TEST(memory_in_huge_pages_weighs_what_it_brings)
{
	const double bytes = HUGE_MIB / 12 / 2 * 2 * 12 * 1048576.0;
	char text[256] = "";
	double all;

	if (!able)
		SKIP_TEST("%s", skip_why());
	if (geteuid() != 0)
		SKIP_TEST("samples of huge pages take CAP_BPF");
	proc_read_file(AT_FDCWD, 0, "/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof(text));
	if (*text == '\0' || strstr(text, "[never]"))
		SKIP_TEST("no transparent huge pages here");

	rig.before = FINE_BEFORE;
	run(FINE, "huge", HUGE_MIB_TEXT, NULL);
	if (work_seconds > FINE_SECONDS) {
		stacks_rig_end(&rig);
		SKIP_TEST("it took %.1f s, of which %d are recorded", work_seconds, FINE_SECONDS);
	}

	AUTO_FREE char *about = stacks_rig_file(&rig, "incident.json");
	const char *large = strstr(about, "huge pages count as small ones");
	bool all_counted = !strstr(about, "% of the page faults were counted");

	if (large) {
		stacks_rig_end(&rig);
		SKIP_TEST("others had too many page faults: %.*s", (int)strcspn(large, "\""), large);
	}
	all = grown_bytes(all_counted ? 0.75 * 0.15 / 4 : 0.12);
	if (!(all > (all_counted ? 0.85 : 0.8) * bytes && all < (all_counted ? 1.15 : 1.2) * bytes))
		stacks_rig_give_up(&rig, "memory.folded", "%.0f bytes of %.0f", all, bytes);
	stacks_rig_end(&rig);
}
END_TEST

static double page_faults(void)
{
	char *text = scene_read("/proc/vmstat"), *at = text ? strstr(text, "\npgfault ") : NULL;
	double count = at ? (double)strtoull(at + strlen("\npgfault "), NULL, 10) : 0;

	free(text);

	return count;
}

/*
 * Page faults until a moment that others had few after, if there is one within some seconds, and
 * 300 ms ago.
 */
static double await_calm(void)
{
	double count = 0;

	for (int i = 0; i < 20; i++) {
		count = page_faults();
		nanosleep(&(struct timespec){ .tv_nsec = 300000000 }, NULL);
		if (page_faults() - count < 1000)
			break;
	}

	return count;
}

/*
 * Far faster than page faults may be counted: what was is a part of it, and stands for all. Where
 * none is counted it is known only how many there were on the whole machine, so those of others are
 * given to the flood, too, or what was its own to others. For each that others had while it was
 * counted it had eight and more while it was not.
 */
static void flood(const char *stacks, const char *mib, double bytes)
{
	const char *arguments[] = { rig.workload, "flood", mib, NULL };
	double before, others, others_in_all, all;

	rig.before = FINE_BEFORE;
	stacks_rig_start_work(&rig, arguments);
	stacks_rig_until_stopped(&rig);
	stacks_rig_start_daemon(&rig, stacks, NO_RULES);
	before = await_calm() + bytes / 4096;
	stacks_rig_work(&rig);
	others = fmax(page_faults() - before, 0) * 4096;
	stacks_rig_trigger(&rig);
	others_in_all = fmax(page_faults() - before, 0) * 4096;
	all = grown_bytes(stacks[0] == '{' ? 0.15 : 0.75);
	if (!(all > 0.75 * bytes - 10 * others && all < 1.25 * bytes + others_in_all))
		stacks_rig_give_up(&rig, "memory.folded", "%.0f bytes of %.0f, others had %.0f, and %.0f", all, bytes,
				   others, others_in_all);
	stacks_rig_end(&rig);
}

START_TEST(half_a_gigabyte_at_once_has_its_bytes)
{
	if (!able)
		SKIP_TEST("%s", skip_why());
	flood(FINE, "512", 512u << 20);
}
END_TEST

/* As it is by default: a sample for each 4 MB. */
START_TEST(a_burst_of_two_hundred_megabytes_has_its_stacks)
{
	if (!able)
		SKIP_TEST("%s", skip_why());
	flood(DWARF, "200", 200u << 20);
}
END_TEST

/* ---- the profile and the samples ---- */

/* CPU time by the first row and by the last. */
struct cpu_time {
	bool begun;
	uint64_t first_ns, last_ns;
};

static int take_row(void *ctx, uint64_t seq, uint64_t time_ns, uint32_t target, const uint64_t *values, uint32_t mask)
{
	struct cpu_time *time = ctx;

	(void)seq;
	(void)time_ns;
	(void)target;
	if (!(mask & 1u << SAMPLE_CPU))
		return 0;
	if (!time->begun)
		time->first_ns = values[SAMPLE_CPU];
	time->begun = true;
	time->last_ns = values[SAMPLE_CPU];

	return 0;
}

static double cpu_seconds(void)
{
	struct cpu_time time = { .begun = false };
	struct stream_reader_events events = { .row = take_row, .ctx = &time };
	char path[640];

	snprintf(path, sizeof(path), "%s/samples.tsv", rig.incident);
	scene_stream_reader(path, &events);
	ck_assert(time.begun);

	return (double)(time.last_ns - time.first_ns) / 1e9;
}

/* That the host took from all CPUs of this machine since it was started. */
static double stolen_seconds(void)
{
	char *text = scene_read("/proc/stat");
	unsigned long long ticks = 0;

	ck_assert_ptr_nonnull(text);
	sscanf(text, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &ticks);
	free(text);

	return (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

START_TEST(the_profile_has_as_many_cpu_seconds_as_the_samples)
{
	if (!able)
		SKIP_TEST("%s", skip_why());

	double stolen = stolen_seconds();

	run(DWARF, "recursion", "2000", NULL);
	stolen = stolen_seconds() - stolen;

	double samples = (double)CALLED(";"), seconds = cpu_seconds();

	/*
	 * Evenly spaced: one in a hundred off for the clock, one for each time it was put off the
	 * CPU. What was stolen is no CPU time, but has samples.
	 */
	ck_assert_msg(samples / 99 > 0.75 * seconds && samples / 99 < 1.25 * seconds + stolen,
		      "%.0f samples of %.3f s, %.2f s were stolen", samples, seconds, stolen);
	stacks_rig_end(&rig);
}
END_TEST

/* ---- an interpreter ---- */

/* One that can tell perf the names of its functions (3.12). False: there is none. */
static bool find_python(char ret[512])
{
	FILE *file = popen(
		"for p in python3.14 python3.13 python3.12 python3 \"$HOME\"/.pyenv/versions/3.1[2-9]*/bin/python3; do "
		"$p -X perf -c 'import sys; assert sys.is_stack_trampoline_active(); print(sys.executable)' "
		"2>/dev/null && "
		"break; done",
		"re");
	bool found = file && fgets(ret, 512, file) != NULL;

	if (file)
		pclose(file);
	ret[strcspn(ret, "\n")] = '\0';

	return found;
}

START_TEST(functions_of_python_have_their_names)
{
	char python[512], script[128], map[64];
	const char *arguments[] = { python, "-X", "perf", script, NULL };

	if (!able)
		SKIP_TEST("%s", skip_why());
	if (!find_python(python))
		SKIP_TEST("no python3 of 3.12 or later");

	snprintf(script, sizeof(script), "%s/burn.py", rig.directory);
	scene_write(script,
		    "import os, signal, time\n"
		    "open('/proc/self/comm', 'w').write('%s')\n"
		    "def burn_in_python():\n"
		    "    x = 0\n"
		    "    for i in range(100000):\n"
		    "        x = (x * 31 + i) & 0xffff\n"
		    "    return x\n"
		    "def work_in_python():\n"
		    "    while time.process_time() < until:\n"
		    "        burn_in_python()\n"
		    "os.kill(os.getpid(), signal.SIGSTOP)\n"
		    "until = time.process_time() + 1.0\n"
		    "work_in_python()\n"
		    "print('done', flush=True)\n"
		    "signal.pause()\n",
		    rig.name);
	stacks_rig_start_work(&rig, arguments);
	stacks_rig_until_stopped(&rig);
	stacks_rig_start_daemon(&rig, DWARF, NO_RULES);
	stacks_rig_work(&rig);
	stacks_rig_trigger(&rig);
	has_nearly_all(CALLED("burn_in_python"), rig.name, BURN_MS);
	snprintf(map, sizeof(map), "/tmp/perf-%d.map", rig.work.pid);
	unlink(map);
	stacks_rig_end(&rig);
}
END_TEST

Suite *stacktruth_suite(void)
{
	Suite *suite = suite_create("stacktruth");
	TCase *tcase = tcase_create("stacktruth");

	tcase_add_unchecked_fixture(tcase, setup_cgroups, teardown_cgroups);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, one_hot_thread_among_fifty_is_named);
	tcase_add_test(tcase, every_level_of_a_recursion_is_there);
	tcase_add_test(tcase, who_is_called_back_by_a_library_without_frame_pointers_has_its_callers);
	tcase_add_test(tcase, a_library_that_was_loaded_late_is_known);
	tcase_add_test(tcase, code_that_was_compiled_at_run_time_has_the_name_of_its_perf_map);
	tcase_add_test(tcase, children_that_live_a_tenth_of_a_second_are_named);
	tcase_add_test(tcase, functions_of_members_that_have_ended_are_those_of_their_group);
	tcase_add_loop_test(tcase, functions_of_members_without_kin_are_those_of_their_cgroup, 0, 2);
	tcase_add_test(tcase, a_process_that_exits_right_at_its_spike_has_names);
	tcase_add_test(tcase, a_program_of_another_mount_namespace_has_names);
	tcase_add_test(tcase, the_profile_has_as_many_cpu_seconds_as_the_samples);
	tcase_add_test(tcase, functions_of_python_have_their_names);
	suite_add_tcase(suite, tcase);

	TCase *crowd = tcase_create("crowds");

	tcase_add_checked_fixture(crowd, setup, teardown);
	tcase_add_loop_test(crowd, own_samples_of_two_hundred_members_are_those_of_their_group, 0, ARRAY_LEN(crowds));
	suite_add_tcase(suite, crowd);

	TCase *memory = tcase_create("memory");

	tcase_add_checked_fixture(memory, setup, teardown);
	tcase_add_test(memory, memory_that_grew_three_to_one_is_so_in_the_profile);
	tcase_add_test(memory, memory_in_huge_pages_weighs_what_it_brings);
	tcase_add_test(memory, half_a_gigabyte_at_once_has_its_bytes);
	tcase_add_test(memory, a_burst_of_two_hundred_megabytes_has_its_stacks);
	suite_add_tcase(suite, memory);

	return suite;
}
