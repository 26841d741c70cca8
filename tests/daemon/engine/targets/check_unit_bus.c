/*
 * check_unit_bus.c: what is learnt from systemd, from one that the test plays itself; and from one
 * that is out of its mind.
 */
#include "fakesystemd.h"
#include "skip.h"
#include "torture.h"
#include "daemon/engine/targets/unit_bus.h"
#include "lib/base/base.h"
#include "lib/config/selection.h"

#include <limits.h>

Suite *unit_bus_suite(void);

#define MARIADB "/system.slice/mariadb.service"

static char root[64], address[128];
static struct fake_systemd fake;
static struct unit_bus *bus;
static const struct unit_table *table;
static mono_t now;
static unsigned changes, starts, nameless, answers;
static char last_answer[512];

static void on_changed(void *ctx, const struct unit *unit, bool started)
{
	(void)ctx;
	changes++;
	starts += started;
	nameless += !unit->names; /* nothing is asserted in a call that may be without memory */
}

static void on_answered(void *ctx, const char *name, enum unit_bus_answer before, enum unit_bus_answer answer,
			const char *why)
{
	(void)ctx;
	answers++;
	snprintf(last_answer, sizeof(last_answer), "%s %d>%d %s", name, before, answer, why);
}

static struct unit_bus_options options(void)
{
	return (struct unit_bus_options){
		.address = address, .peer = true, .changed = on_changed, .answered = on_answered
	};
}

static void setup(void)
{
	struct unit_bus_options with;

	scene_directory(root);
	fake = (struct fake_systemd){ .fd = -1 };
	fake_listen(&fake, root);
	snprintf(address, sizeof(address), "unix:path=%s", fake.path);
	now = (mono_t){ 3600 * NS_PER_S };
	changes = starts = nameless = answers = 0;
	last_answer[0] = '\0';
	with = options();
	ck_assert_int_eq(unit_bus_new(&with, &bus, &table), 0);
}

static void teardown(void)
{
	ck_assert_uint_eq(nameless, 0);
	unit_bus_free(bus);
	fake_end(&fake);
	scene_remove(root);
}

static void want(const char *first, const char *second)
{
	const char *names[] = { first, second };

	ck_assert_int_eq(unit_bus_want(bus, names, !first ? 0 : second ? 2 : 1), 0);
}

static struct unit_bus_state state(void)
{
	struct unit_bus_state ret;

	unit_bus_state(bus, &ret);

	return ret;
}

/* So many milliseconds. */
static void pass(unsigned steps)
{
	for (unsigned i = 0; i < steps; i++) {
		now = mono_add(now, NS_PER_MS);
		unit_bus_read(bus, now);
		fake_step(&fake);
	}
}

static bool matches(const char *glob, const char *cgroup, bool below)
{
	return unit_table_matches(table, glob, cgroup, below);
}

static const struct unit *of(const char *cgroup)
{
	const struct unit *unit = unit_table_of(table, cgroup);

	ck_assert_ptr_nonnull(unit);

	return unit;
}

static struct fake_unit mariadb(void)
{
	return (struct fake_unit){ .id = "mariadb.service",
				   .aliases = { "mysql.service", "mysqld.service" },
				   .cgroup = MARIADB,
				   .main_pid = 4711,
				   .restarts = 3,
				   .invocation = 0xab };
}

START_TEST(knows_a_unit_by_its_alias)
{
	struct fake_unit units[] = { mariadb(), { .id = "other.service", .cgroup = "/system.slice/other.service" } };

	fake.units = units;
	fake.count = 2;
	want("mysql.service", NULL);
	pass(200);
	ck_assert(state().connected);
	ck_assert_uint_eq(state().units, 1);
	ck_assert(matches("mysql.service", MARIADB, false));
	ck_assert(matches("mysql.service", MARIADB "/worker", true));
	ck_assert(!matches("mysql.service", MARIADB "/worker", false));
	ck_assert(!matches("mysql.service", MARIADB "2", true));
	ck_assert(!matches("other.service", "/system.slice/other.service", false));
	ck_assert_str_eq(last_answer, "mysql.service 0>1 ");

	const struct unit_facts *facts = &of(MARIADB "/worker")->facts;

	ck_assert_str_eq(of(MARIADB)->names, "mariadb.service");
	ck_assert_str_eq(facts->active_state, "active");
	ck_assert_str_eq(facts->invocation_id, "ab000000000000000000000000000000");
	ck_assert(facts->has_main_pid && facts->has_restarts);
	ck_assert_uint_eq(facts->main_pid, 4711);
	ck_assert_uint_eq(facts->restarts, 3);
	ck_assert_uint_eq(facts->started_ns, 1500 * NS_PER_MS);
	ck_assert_uint_eq(starts, 1);
}
END_TEST

START_TEST(a_glob_means_any_name_of_a_unit)
{
	struct fake_unit units[] = { mariadb(),
				     { .id = "my-own.service", .cgroup = "/system.slice/my-own.service" },
				     { .id = "my-own.timer" },
				     { .id = "cpu.service", .cgroup = "/system.slice/_cpu.service" },
				     { .id = "a-b\\x2dc.service", .cgroup = "/system.slice/a-b\\x2dc.service" } };

	fake.units = units;
	fake.count = 5;
	want("my*.service", "cpu.*");
	pass(200);
	ck_assert_uint_eq(state().units, 3);
	ck_assert(matches("my*.service", MARIADB, false));
	ck_assert(matches("cpu.*", "/system.slice/_cpu.service", false));
	ck_assert_str_eq(of("/system.slice/my-own.service")->names, "my-own.service");
	ck_assert(!of("/system.slice/my-own.service")->unlike);
	ck_assert_uint_eq(answers, 0);

	want("a-b\\x2d*.service", NULL);
	pass(200);
	ck_assert_uint_eq(state().units, 1);
	ck_assert(match_unit_name("a-b\\x2d?.service", of("/system.slice/a-b\\x2dc.service")->names));
}
END_TEST

START_TEST(a_unit_that_starts_later_is_told_of)
{
	struct fake_unit units[] = { mariadb(), { .id = "vm@two.service", .cgroup = "/system.slice/vm@two.service" } };

	fake.units = units;
	want("vm@*.service", "mysql.service");
	pass(200);
	ck_assert_uint_eq(state().units, 0);
	ck_assert_str_eq(last_answer, "mysql.service 0>2 there is no such unit");

	fake.count = 2;
	fake_signal(&fake, "UnitNew", "vm@two.service");
	fake_signal(&fake, "UnitNew", "mariadb.service");
	pass(200);
	ck_assert_uint_eq(state().units, 2);
	ck_assert_uint_eq(starts, 2);
	ck_assert(matches("mysql.service", MARIADB, false));
	ck_assert_str_eq(last_answer, "mysql.service 2>1 ");

	fake.count = 1;
	fake_signal(&fake, "UnitRemoved", "vm@two.service");
	pass(200);
	ck_assert_uint_eq(state().units, 1);
}
END_TEST

START_TEST(a_restart_is_noticed_and_keeps_the_place)
{
	struct fake_unit units[] = { mariadb() };

	fake.units = units;
	fake.count = 1;
	want("mysql.service", NULL);
	pass(200);
	units[0].cgroup = NULL;
	units[0].active = "inactive";
	fake_changed(&fake, "mariadb.service");
	pass(200);
	ck_assert_str_eq(of(MARIADB)->facts.active_state, "inactive");
	ck_assert(matches("mysql.service", MARIADB, false));

	units[0] = mariadb();
	units[0].invocation = 0xcd;
	units[0].restarts = 4;
	for (int i = 0; i < 5; i++)
		fake_changed(&fake, "mariadb.service");
	pass(200);
	ck_assert_uint_eq(of(MARIADB)->facts.restarts, 4);
	ck_assert_uint_eq(state().restarts, 1);
	ck_assert_uint_eq(starts, 2);
	ck_assert_uint_le(changes, 4);
}
END_TEST

START_TEST(says_what_is_wrong_with_a_unit)
{
	struct fake_unit units[] = { { .id = "masked.service", .load = "masked" }, { .id = "daily.timer" } };

	fake.units = units;
	fake.count = 2;
	want("masked.service", NULL);
	pass(200);
	ck_assert_str_eq(last_answer, "masked.service 0>2 it is masked");
	want("daily.timer", NULL);
	pass(200);
	ck_assert_str_eq(last_answer, "daily.timer 0>2 units of this kind have no processes");
	fake.lies = "ListUnitsByNames";
	fake.lie_type = "error";
	fake.lie = SD_BUS_ERROR_INVALID_ARGS;
	want("vm@.service", NULL);
	pass(200);
	ck_assert_str_eq(last_answer, "vm@.service 0>2 not here");
	ck_assert_uint_eq(state().units, 0);
	ck_assert(state().connected);
}
END_TEST

START_TEST(a_reload_of_systemd_is_followed_by_another_look)
{
	struct fake_unit units[] = { mariadb() };

	fake.units = units;
	want("mysql.service", "my*.service");
	pass(200);
	unsigned lists = fake.lists;

	fake.count = 1;
	fake_reloading(&fake, true);
	pass(100);
	ck_assert_uint_eq(fake.lists, lists);
	fake_reloading(&fake, false);
	pass(200);
	ck_assert_uint_eq(fake.lists, lists + 2);
	ck_assert(matches("mysql.service", MARIADB, false));

	fake.count = 0;
	fake_reloading(&fake, false);
	pass(200);
	ck_assert_uint_eq(state().units, 0);
	ck_assert_str_eq(last_answer, "mysql.service 1>2 there is no such unit");
}
END_TEST

/* It is in the list, and gone when it is asked about; and every question brings it up once more. */
START_TEST(a_unit_that_vanishes_is_not_asked_about_for_ever)
{
	struct fake_unit units[] = { { .id = "gone.service", .unloaded = true }, { .id = "here.service" } };

	fake.units = units;
	fake.count = 2;
	fake.echoes = true;
	want("gone.service", "*.service");
	pass(500);
	ck_assert_uint_eq(state().units, 1);
	ck_assert_uint_eq(fake.loads, 0);

	for (int i = 0; i < 20; i++) {
		fake_signal(&fake, "UnitNew", "gone.service");
		pass(3);
	}
	pass(1000);
	unsigned calls = fake.calls;

	pass(1000);
	ck_assert_uint_eq(fake.calls, calls);
	ck_assert_uint_eq(fake.loads, 0);
	ck_assert_uint_eq(state().units, 1);
	ck_assert_str_eq(last_answer, "gone.service 0>1 ");
}
END_TEST

static const struct lie {
	const char *of, *type, *what;
} lies[] = {
	{ "Names", "s", "mysql.service" },
	{ "Names", "as", "" },
	{ "Names", "as", "../../x.service" },
	{ "Names", "as", "\x7f\x01.service" },
	{ "Names", "u", "" },
	{ "LoadState", "u", "" },
	{ "LoadState", "s", "a state whose name is longer than that of any state" },
	{ "ActiveState", "as", "active" },
	{ "SubState", "u", "" },
	{ "InvocationID", "ay", "abc" },
	{ "InvocationID", "s", "abc" },
	{ "InactiveExitTimestampMonotonic", "s", "now" },
	{ "ControlGroup", "s", "" },
	{ "ControlGroup", "s", "/" },
	{ "ControlGroup", "s", "/../../etc" },
	{ "ControlGroup", "s", "/a//b" },
	{ "ControlGroup", "s", "/a/." },
	{ "ControlGroup", "s", "system.slice/x" },
	{ "ControlGroup", "u", "" },
	{ "MainPID", "s", "4711" },
	{ "NRestarts", "as", "3" },
	{ "ListUnitsByNames", "s", "no list" },
	{ "ListUnitsByPatterns", "as", "no list" },
	{ "ListUnitsByPatterns", "error", SD_BUS_ERROR_ACCESS_DENIED },
	{ "ListUnitsByNames", "error", SD_BUS_ERROR_UNKNOWN_METHOD },
	{ "Get", "error", "org.freedesktop.DBus.Error.UnknownProperty" },
	{ "Get", "error", SD_BUS_ERROR_ACCESS_DENIED },
	{ "Subscribe", "error", SD_BUS_ERROR_ACCESS_DENIED },
};

START_TEST(believes_nothing_that_is_malformed)
{
	const struct lie *lie = &lies[_i];
	struct fake_unit units[] = { mariadb() };
	const struct unit *unit;

	fake.units = units;
	fake.count = 1;
	fake.lies = lie->of;
	fake.lie_type = lie->type;
	fake.lie = lie->what;
	want("mysql.service", "mariadb*");
	pass(300);
	unit = unit_table_of(table, MARIADB);
	ck_assert_uint_le(state().units, 1);
	ck_assert_int_eq(unit != NULL, strcmp(lie->of, "ControlGroup") != 0 && strcmp(lie->of, "Get") != 0 &&
					       strcmp(lie->of, "Subscribe") != 0);
	if (unit && strcmp(lie->of, "MainPID") == 0)
		ck_assert(!unit->facts.has_main_pid);
	if (unit && strcmp(lie->of, "NRestarts") == 0)
		ck_assert(!unit->facts.has_restarts);
	if (unit && strcmp(lie->of, "InvocationID") == 0)
		ck_assert_str_eq(unit->facts.invocation_id, "");
	if (unit && strcmp(lie->of, "Names") == 0)
		ck_assert_str_eq(unit->names + strlen(unit->names) + 1, "");

	fake.lies = NULL;
	pass(20000); /* what was refused is tried again */
	ck_assert(state().connected);
	fake_reloading(&fake, false);
	pass(200);
	ck_assert(matches("mysql.service", MARIADB, false));
	ck_assert_uint_eq(of(MARIADB)->facts.main_pid, 4711);
}
END_TEST

START_TEST(signals_of_another_form_are_passed_over)
{
	struct fake_unit units[] = { mariadb() };

	fake.units = units;
	fake.count = 1;
	want("mysql.service", "*.service");
	pass(200);
	ck_assert_int_ge(sd_bus_emit_signal(fake.bus, FAKE_PATH, FAKE_MANAGER, "UnitNew", "u", 7), 0);
	ck_assert_int_ge(sd_bus_emit_signal(fake.bus, FAKE_PATH, FAKE_MANAGER, "UnitNew", "so", "x.service", "/x"), 0);
	ck_assert_int_ge(sd_bus_emit_signal(fake.bus, FAKE_PATH, FAKE_MANAGER, "UnitNew", "so", "x.service",
					    FAKE_UNITS "/_2e_2e_2fx_2eservice"),
			 0);
	ck_assert_int_ge(sd_bus_emit_signal(fake.bus, FAKE_PATH, FAKE_MANAGER, "UnitRemoved", "", 0), 0);
	ck_assert_int_ge(sd_bus_emit_signal(fake.bus, FAKE_PATH, FAKE_MANAGER, "Reloading", "s", "no"), 0);
	fake_signal(&fake, "UnitRemoved", "mariadb.service"); /* which is not true */
	pass(200);
	ck_assert(state().connected);
	ck_assert_uint_eq(state().units, 1);
	ck_assert(matches("mysql.service", MARIADB, false));
}
END_TEST

/* ---- without a bus ---- */

START_TEST(says_that_there_is_no_bus_and_tries_again_ever_more_seldom)
{
	struct pollfd poll;
	mono_t until, last = now;
	unsigned tries = 0;
	uint64_t pause = 0;

	fake_end(&fake);
	want("mysql.service", NULL);
	for (int i = 0; i < 12; i++) {
		unit_bus_read(bus, now);
		until = mono_add(now, 3600 * NS_PER_S);
		ck_assert(!unit_bus_await(bus, now, &poll, &until));
		ck_assert_int_ge(mono_diff(until, now), (int64_t)pause);
		pause = (uint64_t)mono_diff(until, now);
		now = until;
		tries++;
	}
	ck_assert(!state().connected);
	ck_assert_str_eq(state().why, strerror(ENOENT));
	ck_assert_uint_eq(pause, 60 * NS_PER_S);
	ck_assert_int_ge(mono_diff(now, last), (int64_t)(300 * NS_PER_S));
	ck_assert_uint_eq(tries, 12);

	struct fake_unit units[] = { mariadb() };

	fake_listen(&fake, root);
	fake.units = units;
	fake.count = 1;
	pass(200);
	ck_assert(state().connected);
	ck_assert_str_eq(state().why, "");
	ck_assert(matches("mysql.service", MARIADB, false));
}
END_TEST

START_TEST(keeps_what_it_knows_when_the_bus_goes_and_finds_it_again)
{
	struct fake_unit units[] = { mariadb(), { .id = "mysql-old.service", .cgroup = "/mysql-old.service" } };

	fake.units = units;
	fake.count = 2;
	want("mysql*.service", NULL);
	pass(200);
	ck_assert_uint_eq(state().units, 2);
	fake_hang_up(&fake);
	unit_bus_read(bus, now);
	ck_assert(!state().connected);
	ck_assert_str_ne(state().why, "");
	ck_assert(matches("mysql*.service", MARIADB, false));

	fake.count = 1;
	pass(1000);
	ck_assert(state().connected);
	ck_assert_uint_eq(state().connects, 2);
	ck_assert_uint_eq(state().units, 1);
	ck_assert(matches("mysql*.service", MARIADB, false));

	/* Again and again: the pauses grow, because none of them lasted. */
	uint64_t connects = state().connects;

	for (int i = 0; i < 60000; i++) {
		pass(1);
		if (state().connected)
			fake_hang_up(&fake);
	}
	ck_assert_uint_ge(state().connects, connects + 4);
	ck_assert_uint_le(state().connects, connects + 9);
}
END_TEST

START_TEST(one_that_never_answers_is_left_alone)
{
	struct fake_unit units[] = { mariadb() };
	struct unit_bus_options with = options();

	unit_bus_free(bus);
	with.timeout_ns = 20 * NS_PER_MS;
	ck_assert_int_eq(unit_bus_new(&with, &bus, &table), 0);
	fake.silent = true;
	fake.units = units;
	fake.count = 1;
	want("mysql.service", NULL);
	for (int i = 0; i < SCENE_NAPS && state().why[0] == '\0'; i++) {
		pass(1);
		scene_nap();
	}
	ck_assert_str_eq(state().why, "systemd does not answer");
	ck_assert(!state().connected);
	ck_assert_uint_eq(answers, 0);

	fake.silent = false;
	for (int i = 0; i < SCENE_NAPS && !state().connected; i++)
		pass(10);
	pass(200);
	ck_assert(matches("mysql.service", MARIADB, false));
}
END_TEST

START_TEST(nobody_is_asked_when_nothing_is_wanted)
{
	struct fake_unit units[] = { mariadb() };
	struct pollfd poll;
	mono_t until = mono_add(now, NS_PER_S);

	fake.units = units;
	fake.count = 1;
	pass(100);
	ck_assert(!unit_bus_await(bus, now, &poll, &until));
	ck_assert_uint_eq(state().connects, 0);
	want("mysql.service", NULL);
	pass(200);
	ck_assert_uint_eq(state().units, 1);
	want(NULL, NULL);
	ck_assert_uint_eq(state().units, 0);
	pass(100);
	ck_assert(!state().connected);
	ck_assert_uint_eq(state().connects, 1);
	ck_assert_ptr_null(fake.bus);
	want("mysql.service", NULL);
	pass(200);
	ck_assert_uint_eq(state().units, 1);
}
END_TEST

/* ---- a real bus ---- */

/* 0: there is no such program here. */
static pid_t start_bus(void)
{
	char where[160];
	pid_t pid;

	if (access("/usr/bin/dbus-daemon", X_OK) < 0)
		return 0;
	snprintf(where, sizeof(where), "--address=%s", address);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(open("/dev/null", O_RDWR), STDERR_FILENO);
		execl("/usr/bin/dbus-daemon", "dbus-daemon", "--session", "--nofork", "--nopidfile", where, NULL);
		_exit(1);
	}
	ck_assert_int_gt(pid, 0);

	return pid;
}

static void end_bus(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	fake_hang_up(&fake);
	snprintf(address, sizeof(address), "%s/bus", root);
	unlink(address);
	snprintf(address, sizeof(address), "unix:path=%s/bus", root);
}

/* A step of all three: the bus takes its time. */
static bool stepped(void)
{
	pass(1);

	return true;
}

START_TEST(over_a_bus_that_is_ended_and_started_again)
{
	struct fake_unit units[] = { mariadb() };
	struct unit_bus_options with = options();
	pid_t pid;

	fake_end(&fake);
	snprintf(address, sizeof(address), "unix:path=%s/bus", root);
	pid = start_bus();
	if (pid == 0)
		SKIP_TEST("there is no dbus-daemon");
	unit_bus_free(bus);
	with.peer = false;
	ck_assert_int_eq(unit_bus_new(&with, &bus, &table), 0);
	fake.units = units;
	scene_wait_for(fake_join(&fake, address));
	want("mysql.service", "vm@*.service");
	scene_wait_for(stepped() && state().connected);
	ck_assert_uint_eq(state().units, 0);
	ck_assert_uint_eq(fake.subscribed, 1);

	fake.count = 1;
	fake_signal(&fake, "UnitNew", "mariadb.service");
	scene_wait_for(stepped() && matches("mysql.service", MARIADB, false));
	units[0].restarts = 8;
	fake_changed(&fake, "mariadb.service");
	scene_wait_for(stepped() && of(MARIADB)->facts.restarts == 8);

	/* systemd gives its name away, and takes it again. */
	ck_assert_int_ge(sd_bus_release_name(fake.bus, "org.freedesktop.systemd1"), 0);
	ck_assert_int_ge(sd_bus_request_name(fake.bus, "org.freedesktop.systemd1", 0), 0);
	scene_wait_for(stepped() && fake.subscribed == 2);

	end_bus(pid);
	scene_wait_for(stepped() && !state().connected);
	ck_assert_str_ne(state().why, "");
	pid = start_bus();
	scene_wait_for(fake_join(&fake, address));
	scene_wait_for(stepped() && state().connected);
	ck_assert(matches("mysql.service", MARIADB, false));
	end_bus(pid);
}
END_TEST

/* ---- many ---- */

static struct fake_unit *many(size_t count)
{
	struct fake_unit *units = calloc(count, sizeof(*units));
	char text[64];

	ck_assert_ptr_nonnull(units);
	for (size_t i = 0; i < count; i++) {
		snprintf(text, sizeof(text), "m%zu.service", i);
		units[i].id = strdup(text);
		snprintf(text, sizeof(text), "/system.slice/m%zu.service", i);
		units[i].cgroup = strdup(text);
	}

	return units;
}

static void free_many(struct fake_unit *units, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		free((char *)(uintptr_t)units[i].id);
		free((char *)(uintptr_t)units[i].cgroup);
	}
	free(units);
}

/* The clock goes on by a second whenever its share of one is taken. */
static void until_known(size_t count)
{
	for (unsigned i = 0; i < 100000 && changes < count; i++) {
		struct pollfd poll;
		mono_t until = mono_add(now, NS_PER_MS);

		pass(1);
		until = mono_add(now, 2 * NS_PER_S);
		if (!unit_bus_await(bus, now, &poll, &until))
			now = until;
	}
}

START_TEST(thousands_of_units_are_no_matter)
{
	const size_t count = 2000;

	fake.units = many(count);
	fake.count = count;
	fake.units[1234].aliases[0] = "alias.service";
	want("*.service", NULL);
	until_known(count);
	ck_assert_uint_eq(state().units, count);
	ck_assert_uint_eq(state().left_out, 0);
	ck_assert_uint_eq(changes, count);
	ck_assert(matches("alias.service", "/system.slice/m1234.service", false));
	free_many(fake.units, count);
}
END_TEST

START_TEST(more_than_there_is_room_for_are_left_out)
{
	const size_t count = UNIT_TABLE_MAX + 10;

	fake.units = many(count);
	fake.count = count;
	want("*.service", NULL);
	for (int i = 0; i < 1000 && state().left_out == 0; i++)
		pass(1);
	ck_assert_uint_eq(state().left_out, 10);
	ck_assert_uint_eq(state().units, UNIT_TABLE_MAX);
	free_many(fake.units, count);
}
END_TEST

START_TEST(a_flood_of_names_without_units_keeps_nobody_out)
{
	struct fake_unit units[] = { { .id = "first.service", .cgroup = "/system.slice/first.service" }, mariadb() };
	char name[32];

	fake.units = units;
	fake.count = 1;
	want("*.service", NULL);
	pass(50);
	ck_assert(state().connected);
	for (unsigned i = 0; i < UNIT_TABLE_MAX + 64; i++) {
		snprintf(name, sizeof(name), "f%u.service", i);
		fake_signal(&fake, "UnitNew", name);
		if (i % 32 == 31) {
			now = mono_add(now, NS_PER_S);
			unit_bus_read(bus, now);
		}
	}
	fake.count = 2;
	fake_signal(&fake, "UnitNew", "mariadb.service");
	for (unsigned i = 0; i < 100 && state().left_out < 65; i++) {
		now = mono_add(now, NS_PER_S);
		unit_bus_read(bus, now);
	}
	ck_assert_uint_ge(state().left_out, 65);
	for (unsigned i = 0; i < 20000 && !matches("mysql.service", MARIADB, false); i++) {
		now = mono_add(now, NS_PER_S);
		pass(1);
	}
	ck_assert(matches("mysql.service", MARIADB, false));
	ck_assert_uint_eq(state().units, 2);
}
END_TEST

START_TEST(a_flood_of_signals_is_answered_with_few_questions)
{
	struct fake_unit units[] = { mariadb() };
	uint64_t asked;

	fake.units = units;
	fake.count = 1;
	want("mysql.service", NULL);
	pass(200);
	asked = state().asked;
	for (int i = 0; i < 500; i++) {
		for (int j = 0; j < 20; j++)
			fake_changed(&fake, "mariadb.service");
		pass(1);
	}
	ck_assert_uint_le(state().asked - asked, 500 / 50 + 2);
	ck_assert_uint_ge(state().asked - asked, 1);
}
END_TEST

/* Fails the nth allocation of what it takes to know all. False: there were not so many. */
static bool hear_without_memory(long n)
{
	bool injected = false;

	for (int i = 0; i < 200; i++) {
		unsigned long before = torture_allocations();

		now = mono_add(now, NS_PER_MS);
		torture_arm(injected ? LONG_MAX : n);
		unit_bus_read(bus, now);
		injected |= torture_disarm();
		n -= (long)(torture_allocations() - before);
		fake_step(&fake);
	}

	return injected;
}

START_TEST(is_torn_apart_by_no_lack_of_memory)
{
	struct unit_bus_options with = options();
	const char *names[] = { "mysql.service", "vm@*.service" };
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct unit_bus *made = NULL;
		const struct unit_table *unused;

		torture_arm(n);
		int r = unit_bus_new(&with, &made, &unused);
		if (r == 0)
			r = unit_bus_want(made, names, 2);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		unit_bus_free(made);
	}

	struct fake_unit units[] = { mariadb(), { .id = "vm@1.service", .cgroup = "/vm@1.service" } };

	fake.units = units;
	fake.count = 2;
	injected = true;
	for (long n = 1; injected; n++) {
		unit_bus_free(bus);
		ck_assert_int_eq(unit_bus_new(&with, &bus, &table), 0);
		want(names[0], names[1]);
		injected = hear_without_memory(n);
		ck_assert_uint_eq(state().left_out, injected);
		fake_reloading(&fake, false);
		pass(200);
		ck_assert_uint_eq(state().units, 2);
		ck_assert(matches("mysql.service", MARIADB, false));
	}
}
END_TEST

Suite *unit_bus_suite(void)
{
	Suite *suite = suite_create("unit_bus");
	TCase *tcase = tcase_create("unitbus");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, knows_a_unit_by_its_alias);
	tcase_add_test(tcase, a_glob_means_any_name_of_a_unit);
	tcase_add_test(tcase, a_unit_that_starts_later_is_told_of);
	tcase_add_test(tcase, a_restart_is_noticed_and_keeps_the_place);
	tcase_add_test(tcase, says_what_is_wrong_with_a_unit);
	tcase_add_test(tcase, a_reload_of_systemd_is_followed_by_another_look);
	tcase_add_test(tcase, a_unit_that_vanishes_is_not_asked_about_for_ever);
	tcase_add_loop_test(tcase, believes_nothing_that_is_malformed, 0, (int)(sizeof(lies) / sizeof(lies[0])));
	tcase_add_test(tcase, signals_of_another_form_are_passed_over);
	tcase_add_test(tcase, says_that_there_is_no_bus_and_tries_again_ever_more_seldom);
	tcase_add_test(tcase, keeps_what_it_knows_when_the_bus_goes_and_finds_it_again);
	tcase_add_test(tcase, one_that_never_answers_is_left_alone);
	tcase_add_test(tcase, nobody_is_asked_when_nothing_is_wanted);
	tcase_add_test(tcase, over_a_bus_that_is_ended_and_started_again);
	tcase_add_test(tcase, thousands_of_units_are_no_matter);
	tcase_add_test(tcase, more_than_there_is_room_for_are_left_out);
	tcase_add_test(tcase, a_flood_of_names_without_units_keeps_nobody_out);
	tcase_add_test(tcase, a_flood_of_signals_is_answered_with_few_questions);
	tcase_add_test(tcase, is_torn_apart_by_no_lack_of_memory);
	suite_add_tcase(suite, tcase);

	return suite;
}
