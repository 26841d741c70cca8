/*
 * check_held_memory.c: what the real daemon holds when incidents are over: what is locked is bounded
 * by what sampling runs on, and what evidence took has gone back.
 */
#include "live_rig.h"

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

static bool start_locked(void)
{
	const char *arguments[] = { rig.spikewatchd, "-c", place(&rig, "config"), NULL };

	if (!rig.able)
		return false;
	if (geteuid() != 0)
		return skip_because("locking memory takes root");
	scene_write(place(&rig, "config"),
		    "{\"ring\": {\"path\": \"%s/ring\", \"size\": \"8MiB\", \"lock\": true},\n"
		    "\"incidents\": {\"directory\": \"%s/incidents\", \"min_free\": \"0B\", \"after\": \"100ms\"},\n"
		    "\"state_file\": \"%s/state\", \"targets\": [{\"name\": \"here\", \"pid\": %d}]}\n",
		    rig.directory, rig.directory, rig.directory, getpid());
	rig.server = program_start(arguments, rig.directory, -1, 0);
	live_wait_for(&rig, scene_says(rig.server.err, "watching "));

	return true;
}

/* An incident with all that the daemon can have of it, from its beginning to its end. */
static void record_one(uint64_t sealed_before)
{
	const char *arguments[] = { rig.spikewatch, "trigger", "--socket", place(&rig, "control"), "here", NULL };

	struct program trigger = program_start(arguments, rig.directory, -1, 0);
	int code = program_wait(&trigger);
	char *said = scene_read(trigger.err);

	ck_assert_msg(code == 0, "%s", said ? said : "nothing was said");
	free(said);
	live_wait_for(&rig, told(&rig, "incidents", "sealed") == sealed_before + 1);
}

START_TEST(what_is_locked_does_not_grow_and_what_evidence_took_goes_back)
{
	uint64_t rest, locked;

	if (!start_locked())
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

Suite *held_memory_suite(void)
{
	Suite *suite = suite_create("held_memory");
	TCase *tcase = tcase_create("held_memory");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_is_locked_does_not_grow_and_what_evidence_took_goes_back);
	suite_add_tcase(suite, tcase);

	return suite;
}
