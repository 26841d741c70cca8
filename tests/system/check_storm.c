/*
 * check_storm.c: the real daemon where processes are forked and end as fast as they can: each of
 * them is looked at, known by its exit record, or counted as missed; and if the kernel had no room
 * for the news, that is counted, and a scan follows. By every way in which the daemon may hear of
 * processes.
 *
 * What is held to is the account, not the pace.
 */
#include "live_rig.h"

#include <dirent.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

Suite *storm_suite(void);

static struct live_rig rig;

static void setup(void)
{
	live_rig_setup(&rig);
}

static void teardown(void)
{
	live_rig_teardown(&rig);
}

/* More than fit into the kernel's buffers while they are not read. */
#define FORKS_LOST 3000u

#define LIFE_US "100"
#define LIFE_NS (100 * NS_PER_US)

/*
 * Of the storm's parent what it uses after it has said what it used, and a tick of the sampler's.
 */
#define GRAIN_NS (10 * NS_PER_MS)

/* Of the daemon, after a storm that was like the one before: allocators keep some. */
#define GROWTH_MAX (3u << 20)

#ifdef __SANITIZE_ADDRESS__
#define FORKS 600u                        /* each copies the sanitizer's tables */
static const bool memory_is_told = false; /* what is freed is kept for a while */
#else
#define FORKS 3000u
static const bool memory_is_told = true;
#endif

/* A storm of so many processes of this name; what they and their parent used, ns. */
static uint64_t storm(const char *program, unsigned forks)
{
	char count[16];
	const char *arguments[] = { program, "forks", count, LIFE_US, NULL }, *apart = place(&rig, "storming");
	int out = open(place(&rig, "storm"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	unsigned long long used;
	unsigned long done;

	snprintf(count, sizeof(count), "%u", forks);
	mkdir(apart, 0755);

	struct program storming = program_start(arguments, apart, out, 0);

	close(out);
	ck_assert_int_eq(program_wait(&storming), 0);

	char *text = scene_read(place(&rig, "storm"));

	ck_assert_int_eq(sscanf(text, "%lu %llu", &done, &used), 2);
	free(text);
	ck_assert_uint_eq(done, forks);

	return used;
}

/* Of the readers of files of others, which are started when the first is needed, and stay. */
#define READER_DESCRIPTORS 9

static size_t descriptors(void)
{
	size_t count = 0;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/fd", rig.server.pid);

	DIR *dir = opendir(path);

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		count++;
	closedir(dir);

	return count;
}

static const char *group_called(const char *name)
{
	static char text[128];

	snprintf(text, sizeof(text), "{\"name\": \"g\", \"comm\": \"%s\", \"per\": \"group\"}", name);

	return text;
}

static pid_t start_lasting(const char *program)
{
	const char *arguments[] = { program, "stops", rig.file, NULL };
	pid_t pid = run(arguments);

	await_stop(pid);

	return pid;
}

static void end_lasting(pid_t pid)
{
	kill(pid, SIGKILL);
	await_end(pid);
}

/* What was known before a storm. */
struct account {
	uint64_t looks, missed, overruns;
	uint64_t cpu_ns; /* of the group */
};

static struct account take_account(void)
{
	return (struct account){ .looks = counted(&rig, "looks"),
				 .missed = counted(&rig, "missed"),
				 .overruns = counted(&rig, "overruns"),
				 .cpu_ns = read_on(&rig, "g").cpu_ns };
}

/* Others' processes on this machine are looked at too. */
static bool is_accounted_for(const struct account *before)
{
	struct account now = take_account();

	return now.overruns > before->overruns || now.looks - before->looks + now.missed - before->missed >= FORKS;
}

/* Where nothing is heard, and a scan meets whom it meets, nothing is claimed. */
static void nothing_is_claimed(void)
{
	ck_assert(discovery_says(&rig, "\"exit_records\": false"));
	ck_assert_uint_eq(counted(&rig, "events"), 0);
	ck_assert_uint_eq(counted(&rig, "looks"), 0);
	ck_assert_uint_eq(counted(&rig, "missed"), 0);
	ck_assert_uint_eq(counted(&rig, "credited"), 0);
}

/* One storm, and what is said of it. */
static void holds(enum way way, const char *program)
{
	struct account before = take_account();
	uint64_t used = storm(program, FORKS);

	if (way == RESCAN)
		nothing_is_claimed();
	else
		live_wait_for(&rig, is_accounted_for(&before));
	if (way == CONNECTOR && discovery_says(&rig, "\"exit_records\": true"))
		live_wait_for(&rig, counted(&rig, "overruns") > before.overruns ||
					    read_on(&rig, "g").cpu_ns - before.cpu_ns + GRAIN_NS >= FORKS * LIFE_NS);
	live_wait_for(&rig, counted(&rig, "members") == 0);
	ck_assert(!read_on(&rig, "g").stepped_back);
	ck_assert_msg(read_on(&rig, "g").cpu_ns - before.cpu_ns <=
			      used + FORKS * NS_PER_US + GRAIN_NS + live_surplus_ns(used),
		      "%ju us are in the sum, %ju were used",
		      (uintmax_t)(read_on(&rig, "g").cpu_ns - before.cpu_ns) / 1000, (uintmax_t)used / 1000);
}

START_TEST(every_process_of_a_storm_is_looked_at_or_known_by_its_end_or_counted_as_missed)
{
	const char *name = own("storm"), *program = program_called(&rig, name);
	uint64_t memory;
	size_t open;

	if (!start(&rig, (enum way)_i, group_called(name), ""))
		SKIP_TEST("%s", skip_why());
	open = descriptors();
	holds((enum way)_i, program);
	live_wait_for(&rig, descriptors() <= open + READER_DESCRIPTORS);
	if (_i != CONNECTOR)
		return; /* once is enough: what is kept is the same */
	memory = told(&rig, "daemon", "memory_bytes");
	holds((enum way)_i, program);
	live_wait_for(&rig, descriptors() <= open + READER_DESCRIPTORS);
	if (memory_is_told)
		live_wait_for(&rig, told(&rig, "daemon", "memory_bytes") <= memory + GROWTH_MAX);
}
END_TEST

/*
 * A stopped daemon gets no news; when it goes on it notices the loss, scans, and
 * hears again.
 */
START_TEST(news_that_were_lost_are_counted_and_a_scan_finds_who_lasts)
{
	const char *name = own("lost"), *program = program_called(&rig, name);
	pid_t lasting, later;
	uint64_t scans;
	size_t open;

	if (!start(&rig, (enum way)_i, group_called(name), ""))
		SKIP_TEST("%s", skip_why());
	open = descriptors();
	scans = counted(&rig, "scans");
	ck_assert_uint_eq(counted(&rig, "overruns"), 0);
	kill(rig.server.pid, SIGSTOP);
	await_stop(rig.server.pid);
	storm(program, FORKS_LOST);
	lasting = start_lasting(program);
	kill(rig.server.pid, SIGCONT);
	live_wait_for(&rig, counted(&rig, "overruns") > 0);
	live_wait_for(&rig, counted(&rig, "scans") > scans);
	live_wait_for(&rig, counted(&rig, "members") == 1);
	live_wait_for(&rig, read_on(&rig, "g").samples > 0);
	later = start_lasting(program);
	live_wait_for(&rig, counted(&rig, "members") == 2);
	end_lasting(lasting);
	end_lasting(later);
	live_wait_for(&rig, counted(&rig, "members") == 0);
	live_wait_for(&rig, descriptors() <= open + READER_DESCRIPTORS);
	ck_assert(!read_on(&rig, "g").stepped_back);
}
END_TEST

/* The daemon's thread of this name. */
static pid_t thread_called(const char *name)
{
	char path[300];
	pid_t found = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", rig.server.pid);

	DIR *dir = opendir(path);

	ck_assert_ptr_nonnull(dir);
	for (const struct dirent *item; !found && (item = readdir(dir));) {
		snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", rig.server.pid, item->d_name);
		if (item->d_name[0] != '.' && scene_says(path, name))
			found = (pid_t)strtol(item->d_name, NULL, 10);
	}
	closedir(dir);
	ck_assert_int_gt(found, 0);

	return found;
}

#define SHARE_OF_FORKS 200u
#define STANDS_NS (300 * NS_PER_MS)

/* As if it had no CPU while the sampler has one. */
START_TEST(what_is_counted_long_after_it_was_used_is_in_a_row_that_says_so)
{
	const char *name = own("late"), *program = program_called(&rig, name);
	uint64_t before_ns;
	pid_t thread;

	if (!start(&rig, KERNEL, group_called(name), ""))
		SKIP_TEST("%s", skip_why());
	thread = thread_called("discovery");
	before_ns = read_on(&rig, "g").cpu_ns;
	ck_assert_int_eq(ptrace(PTRACE_SEIZE, thread, NULL, NULL), 0);
	ck_assert_int_eq(ptrace(PTRACE_INTERRUPT, thread, NULL, NULL), 0);
	ck_assert_int_eq(waitpid(thread, NULL, __WALL), thread);
	storm(program, SHARE_OF_FORKS);
	nanosleep(&(struct timespec){ .tv_nsec = (long)STANDS_NS }, NULL);
	ck_assert_uint_eq(read_on(&rig, "g").cpu_ns, before_ns);
	ck_assert_int_eq(ptrace(PTRACE_DETACH, thread, NULL, NULL), 0);
	live_wait_for(&rig, read_on(&rig, "g").cpu_ns - before_ns + GRAIN_NS >= SHARE_OF_FORKS * LIFE_NS);
	ck_assert_uint_ge(read_on(&rig, "g").late_ns, STANDS_NS);
	ck_assert(!read_on(&rig, "g").stepped_back);
}
END_TEST

Suite *storm_suite(void)
{
	Suite *suite = suite_create("storm");
	TCase *tcase = tcase_create("storm");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, every_process_of_a_storm_is_looked_at_or_known_by_its_end_or_counted_as_missed, 0,
			    WAYS);
	tcase_add_loop_test(tcase, news_that_were_lost_are_counted_and_a_scan_finds_who_lasts, 0, RESCAN);
	tcase_add_test(tcase, what_is_counted_long_after_it_was_used_is_in_a_row_that_says_so);
	suite_add_tcase(suite, tcase);

	return suite;
}
