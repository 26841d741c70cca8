/*
 * check_held_memory.c: what the real daemon holds when incidents are over: what is locked is bounded
 * by what sampling runs on, and what evidence took has gone back. Once in a cgroup that gives it, and
 * all that it starts, no more than a small machine would.
 */
#include "live_rig.h"
#include "own_cgroups.h"

#include <sys/prctl.h>

Suite *held_memory_suite(void);

static struct live_rig rig;

static void setup(void)
{
	live_rig_setup(&rig);
}

static void teardown(void)
{
	live_rig_teardown(&rig);
}

#define RING_KIB (8u << 10)

/* Code and data of the program and of the C library, stacks and tables of two samplers. */
#define LOCKED_BESIDE_RING_KIB (16u << 10)

/* What the history of mappings and events of threads grow by meanwhile; six incidents take more than twice as much. */
#define KEPT_KIB (24u << 10)

/* A number of /proc/PID/status, in KiB. */
static uint64_t status_of(const char *key)
{
	char path[64], *text, *at;
	uint64_t kib;

	snprintf(path, sizeof path, "/proc/%d/status", rig.server.pid);
	text = scene_read(path);
	at = text ? strstr(text, key) : NULL;
	kib = at ? strtoull(at + strlen(key), NULL, 10) : 0;
	free(text);

	return kib;
}

/* arguments: of the daemon, and what starts it; targets: the value of that list. */
static bool start_locked(const char *const *arguments, const char *targets)
{
	if (!rig.able)
		return false;
	if (geteuid() != 0)
		return skip_because("locking memory takes root");
	scene_write(place(&rig, "config"),
		    "{\"ring\": {\"path\": \"%s/ring\", \"size\": \"8MiB\", \"lock\": true},\n"
		    "\"incidents\": {\"directory\": \"%s/incidents\", \"min_free\": \"0B\", \"after\": \"100ms\",\n"
		    "\"max_per_hour\": 0}, \"state_file\": \"%s/state\", \"targets\": [%s]}\n",
		    rig.directory, rig.directory, rig.directory, targets);
	rig.server = program_start(arguments, rig.directory, -1, 0);
	live_wait_for(&rig, scene_says(rig.server.err, "watching "));

	return true;
}

/* Whether an incident was opened. If not: it said that too many were. */
static bool trigger(const char *target)
{
	const char *arguments[] = { rig.spikewatch, "trigger", "--socket", place(&rig, "control"), target, NULL };

	struct program trigger = program_start(arguments, rig.directory, -1, 0);
	int code = program_wait(&trigger);
	char *said = scene_read(trigger.err);

	ck_assert_msg(code == 0 || (said && strstr(said, "too many")), "%s", said ? said : "nothing was said");
	free(said);

	return code == 0;
}

/* An incident with all that the daemon can have of it, from its beginning to its end. */
static void record_one(uint64_t sealed_before)
{
	ck_assert(trigger("here"));
	live_wait_for(&rig, told(&rig, "incidents", "sealed") == sealed_before + 1);
}

START_TEST(what_is_locked_does_not_grow_and_what_evidence_took_goes_back)
{
	const char *arguments[] = { rig.spikewatchd, "-c", place(&rig, "config"), NULL };
	uint64_t rest, locked;
	char target[64];

	snprintf(target, sizeof target, "{\"name\": \"here\", \"pid\": %d}", getpid());
	if (!start_locked(arguments, target))
		SKIP_TEST("%s", skip_why());
	live_wait_for(&rig, told(&rig, "sampler", "snapshots") > 10);
	locked = status_of("VmLck:");
	if (locked < RING_KIB)
		SKIP_TEST("memory may not be locked here");
	ck_assert_uint_le(locked, RING_KIB + LOCKED_BESIDE_RING_KIB);
	record_one(0);
	rest = status_of("RssAnon:");
	for (uint64_t i = 1; i < 6; i++)
		record_one(i);
	live_wait_for(&rig, status_of("RssAnon:") <= rest + KEPT_KIB);
	ck_assert_uint_le(status_of("VmLck:"), locked + 1024);
}
END_TEST

/* ---- a machine of 512 MiB, of which the unit lets it have a quarter ---- */

#define LIMIT_BYTES "134217728"

/* An incident of each of these in each second. */
#define BURNERS 2u
#define SECONDS 30u

static struct own_cgroups cgroups;
static pid_t burners[BURNERS];

static void make_cgroups(void)
{
	own_cgroups_make(&cgroups, "held");
}

static void remove_cgroups(void)
{
	own_cgroups_remove(&cgroups);
}

static void end_burners(void)
{
	for (size_t i = 0; i < BURNERS; i++)
		if (burners[i] > 0) {
			kill(burners[i], SIGKILL);
			waitpid(burners[i], NULL, 0);
			burners[i] = 0;
		}
	teardown();
}

/* Sets the limit in the hierarchy that has one. False: there is none that may be set. */
static bool limit_memory(char ret_directory[300])
{
	static const char *const names[] = { "memory.limit_in_bytes", "memory.max" };
	char path[340];

	for (size_t i = 0; i < cgroups.count * ARRAY_LEN(names); i++) {
		snprintf(ret_directory, 300, "%s", cgroups.tops[i / ARRAY_LEN(names)]);
		snprintf(path, sizeof path, "%s/%s", ret_directory, names[i % ARRAY_LEN(names)]);

		AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);

		if (fd >= 0 && write(fd, LIMIT_BYTES, strlen(LIMIT_BYTES)) > 0)
			return true;
	}

	return false;
}

/* What the processes in it have of their own. */
static uint64_t anonymous_kib(const char *cgroup)
{
	static const char *const keys[] = { "\ntotal_rss ", "\nanon ", "anon " };
	char path[340], *text, *at = NULL;
	uint64_t bytes;

	snprintf(path, sizeof path, "%s/memory.stat", cgroup);
	text = scene_read(path);
	for (size_t i = 0; text && !at && i < ARRAY_LEN(keys); i++) {
		at = strstr(text, keys[i]);
		at = at ? at + strlen(keys[i]) : NULL;
	}
	ck_assert_msg(at, "%s", text ? text : "no memory.stat");
	bytes = strtoull(at, NULL, 10);
	free(text);

	return bytes >> 10;
}

__attribute__((noinline)) static unsigned burn(unsigned depth)
{
	unsigned volatile sum = depth;

	for (unsigned i = 0; depth == 0 && i < 100000; i++)
		sum += i;

	return depth == 0 ? sum : sum + burn(depth - 1);
}

static void start_burners(char targets[64 * BURNERS])
{
	size_t len = 0;

	for (unsigned i = 0; i < BURNERS; i++) {
		burners[i] = fork();
		if (burners[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (unsigned depth = 0;; depth = (depth + 1) % 50)
				burn(depth);
		}
		ck_assert_int_gt(burners[i], 0);
		len += (size_t)snprintf(targets + len, 64 * BURNERS - len, "%s{\"name\": \"burner%u\", \"pid\": %d}",
					i > 0 ? ", " : "", i, burners[i]);
	}
}

/* Incidents of all of them, with stacks and all else. How many were opened. */
static unsigned record_all(void)
{
	unsigned opened = 0;
	char name[32];

	for (unsigned i = 0; i < BURNERS; i++) {
		snprintf(name, sizeof name, "burner%u", i);
		opened += trigger(name);
	}

	return opened;
}

/* What was opened is on the disk. */
static bool is_quiet(void)
{
	return told(&rig, "incidents", "open") == 0 &&
	       told(&rig, "incidents", "sealed") == told(&rig, "incidents", "opened");
}

static unsigned count_with_stacks(void)
{
	DIR *dir = opendir(place(&rig, "incidents"));
	unsigned count = 0;
	char path[600];

	for (struct dirent *item; dir && (item = readdir(dir));) {
		snprintf(path, sizeof path, "%s/incidents/%s/cpu.folded", rig.directory, item->d_name);
		count += access(path, F_OK) == 0;
	}
	if (dir)
		closedir(dir);

	return count;
}

START_TEST(a_daemon_that_may_have_128_mebibytes_lives_through_incidents_each_second_and_gives_back_what_they_took)
{
	char cgroup[300], targets[64 * BURNERS];
	uint64_t rest, own;
	unsigned opened = 0;

	if (!limit_memory(cgroup))
		SKIP_TEST("no cgroup whose memory can be limited");

	const char *arguments[] = { "/bin/sh",
				    "-c",
				    "echo 0 >\"$0/cgroup.procs\" && exec \"$@\"",
				    cgroup,
				    rig.spikewatchd,
				    "-c",
				    place(&rig, "config"),
				    NULL };

	start_burners(targets);
	if (!start_locked(arguments, targets))
		SKIP_TEST("%s", skip_why());
	live_wait_for(&rig, told(&rig, "sampler", "snapshots") > 10);
	record_all();
	live_wait_for(&rig, is_quiet());
	rest = anonymous_kib(cgroup);
	own = status_of("RssAnon:");
	ck_assert_uint_gt(rest, 0);

	for (unsigned second = 0; second < SECONDS; second++) {
		opened += record_all();
		sleep(1);
	}
	ck_assert_uint_ge(opened, SECONDS / 2);
	live_wait_for(&rig, is_quiet());
	ck_assert_uint_gt(count_with_stacks(), 0);
	live_wait_for(&rig, status_of("RssAnon:") <= own + KEPT_KIB);
	live_wait_for(&rig, anonymous_kib(cgroup) <= rest + KEPT_KIB);
}
END_TEST

Suite *held_memory_suite(void)
{
	Suite *suite = suite_create("held_memory");
	TCase *tcase = tcase_create("held_memory");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_is_locked_does_not_grow_and_what_evidence_took_goes_back);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("small_machine");
	tcase_add_unchecked_fixture(tcase, make_cgroups, remove_cgroups);
	tcase_add_checked_fixture(tcase, setup, end_burners);
	tcase_add_test(
		tcase,
		a_daemon_that_may_have_128_mebibytes_lives_through_incidents_each_second_and_gives_back_what_they_took);
	suite_add_tcase(suite, tcase);

	return suite;
}
