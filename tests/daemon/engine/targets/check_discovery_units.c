/*
 * check_discovery_units.c: targets that are units, from what a systemd says that the test plays,
 * over a hierarchy made of directories. Rescans are an hour apart.
 */
#include "discovery_rig.h"
#include "fakesystemd.h"

Suite *discovery_units_suite(void);

static struct discovery_rig rig;

#define MARIADB "/system.slice/mariadb.service"
#define KEY "e:" MARIADB

static struct fake_systemd fake;
static char tree[96], address[128];
static const char *selected;
static struct ring_cursor *cursor;
static unsigned described; /* the target, by its key */

static void setup_units(void)
{
	char path[128];

	discovery_rig_setup(&rig);
	fake = (struct fake_systemd){ .fd = -1 };
	fake_listen(&fake, rig.root);
	snprintf(address, sizeof(address), "unix:path=%s", fake.path);
	snprintf(tree, sizeof(tree), "%s/tree", rig.root);
	ck_assert_int_eq(mkdir(tree, 0700), 0);
	snprintf(path, sizeof(path), "%s/cgroup.controllers", tree);
	scene_write(path, "cpu memory\n");
	snprintf(path, sizeof(path), "%s/system.slice", tree);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	cursor = NULL;
	described = 0;
}

static void teardown_units(void)
{
	if (rig.discovery)
		discovery_stop(rig.discovery);
	ring_cursor_free(cursor);
	fake_end(&fake);
	discovery_rig_teardown(&rig);
}

/* A cgroup with the files that are read, as a whole. */
static void make_unit(const char *path)
{
	char made[128], file[160];

	snprintf(made, sizeof(made), "%s/made", rig.root);
	ck_assert_int_eq(mkdir(made, 0700), 0);
	snprintf(file, sizeof(file), "%s/cpu.stat", made);
	scene_write(file, "usage_usec 10\nuser_usec 5\nsystem_usec 5\n");
	snprintf(file, sizeof(file), "%s/memory.current", made);
	scene_write(file, "4096\n");
	snprintf(file, sizeof(file), "%s%s", tree, path);
	ck_assert_int_eq(rename(made, file), 0);
}

static void remove_unit(const char *path)
{
	char full[160];

	snprintf(full, sizeof(full), "%s%s", tree, path);
	scene_remove(full);
}

static struct config *config_of(const char *selector)
{
	return scene_config("{\"sampling\": {\"rescan_interval\": \"1h\"}, \"targets\": [{\"name\": \"e\", %s}]}",
			    selector);
}

static void start(const char *selector)
{
	struct ring_options ring_options = { .size_bytes = 1 << 20, .page_bytes = 16384 };
	struct sampler_options sampler_options = { .source = { .capacity = 64, .interval_ns = 5 * NS_PER_MS } };

	selected = selector;
	rig.config = config_of(selector);
	rig.procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(cgroup_mounts_new("/proc", tree, &rig.mounts), 0);
	ck_assert_int_eq(ring_create_anonymous(&ring_options, &rig.ring), 0);
	ck_assert_int_eq(samplers_new(&sampler_options, 1, rig.ring, &rig.samplers), 0);

	struct discovery_options options = {
		.target_table = {
			.machine = { .cores = 2, .memory_bytes = 1 << 30 },
			.config = rig.config,
			.samplers = rig.samplers,
			.mounts = rig.mounts,
			.procfd = rig.procfd,
			.own_proc = true,
		},
		.unit_bus = address,
	};
	ck_assert_int_eq(discovery_new(&options, &rig.discovery), 0);
	ck_assert_int_eq(samplers_start(rig.samplers), 0);
	ck_assert_int_eq(discovery_start(rig.discovery, true), 0);
}

/* Steps the systemd that is played, too: for scene_wait_for. */
static struct discovery_state state(void)
{
	struct discovery_state found;

	fake_step(&fake);
	discovery_state(rig.discovery, &found);

	return found;
}

static void reload(struct config *after)
{
	ck_assert_int_eq(discovery_reload(rig.discovery, after), 0);
	config_free(rig.config);
	rig.config = after;
}

/* A directory that is removed is gone only when it is looked for: another scan. */
static void scan_again(void)
{
	reload(config_of(selected));
}

static unsigned descriptions(void)
{
	struct ring_event event;

	state();
	if (!cursor)
		ck_assert_int_eq(ring_cursor_new(rig.ring, RING_OLDEST, &cursor), 0);
	while (ring_cursor_next(cursor, &event) == 0)
		described += event.type == RING_EVENT_TARGET && strcmp(event.target.key, KEY) == 0;

	return described;
}

static struct fake_unit mariadb(void)
{
	return (struct fake_unit){ .id = "mariadb.service",
				   .aliases = { "mysql.service" },
				   .cgroup = MARIADB,
				   .main_pid = 4711,
				   .invocation = 1 };
}

START_TEST(a_unit_is_a_target_by_its_alias_and_after_a_restart_under_the_same_key)
{
	struct fake_unit units[] = { mariadb() };
	struct unit_report report;

	make_unit(MARIADB);
	fake.units = units;
	fake.count = 1;
	start("\"unit\": \"mysql.service\"");
	scene_wait_for(state().target_table.targets == 1);
	scene_wait_for(descriptions() == 1);
	ck_assert_uint_eq(state().scans, 1);
	ck_assert(discovery_unit(rig.discovery, MARIADB "/x", &report));
	ck_assert_str_eq(report.name, "mariadb.service");
	ck_assert_str_eq(report.cgroup, MARIADB);
	ck_assert_uint_eq(report.facts.main_pid, 4711);
	ck_assert(!discovery_unit(rig.discovery, "/system.slice", &report));

	units[0].active = "inactive";
	units[0].cgroup = NULL;
	remove_unit(MARIADB);
	fake_changed(&fake, "mariadb.service");
	scan_again();
	scene_wait_for(state().target_table.targets == 0);
	units[0] = mariadb();
	units[0].invocation = 2;
	units[0].restarts = 1;
	make_unit(MARIADB);
	fake_changed(&fake, "mariadb.service");
	scene_wait_for(state().units.restarts == 1);
	scene_wait_for(descriptions() == 2);
	ck_assert(discovery_unit(rig.discovery, MARIADB, &report));
	ck_assert_uint_eq(report.facts.restarts, 1);
}
END_TEST

START_TEST(a_unit_that_starts_under_an_alias_is_a_target_without_a_scan)
{
	struct fake_unit units[] = { mariadb() };

	fake.units = units;
	start("\"unit\": \"my*.service\"");
	scene_wait_for(state().units.connected);
	ck_assert_uint_eq(state().target_table.targets, 0);
	make_unit(MARIADB);
	fake.count = 1;
	fake_signal(&fake, "UnitNew", "mariadb.service");
	scene_wait_for(state().target_table.targets == 1);
	scene_wait_for(descriptions() == 1);
}
END_TEST

static char missing[256];

static void on_unit(void *ctx, const struct unit_report *unit)
{
	(void)unit;
	*(unsigned *)ctx += 1;
}

static void on_missing(void *ctx, const char *name, const char *why)
{
	(void)ctx;
	snprintf(missing, sizeof(missing), "%s: %s", name, why);
}

START_TEST(a_unit_that_does_not_exist_is_said_unless_something_of_its_name_is_there)
{
	unsigned units = 0, lists;
	const struct unit_visitor visitor = { on_unit, on_missing, &units };
	struct scene_log log = scene_log_catch();
	char *text;

	make_unit("/system.slice/of-user.service");
	start("\"unit\": \"ngnix.service\"");
	scene_wait_for(state().units.connected);
	discovery_visit_units(rig.discovery, &visitor);
	ck_assert_str_eq(missing, "ngnix.service: there is no such unit");
	ck_assert_uint_eq(units, 0);

	missing[0] = '\0';
	lists = fake.lists;
	reload(config_of("\"unit\": \"of-user.service\""));
	scene_wait_for(state().target_table.targets == 1);
	scene_wait_for(state().units.connected && fake.lists > lists);
	for (int i = 0; i < 10; i++)
		scene_nap();
	discovery_visit_units(rig.discovery, &visitor);
	ck_assert_str_eq(missing, "");
	discovery_stop(rig.discovery);
	text = scene_log_text(&log);
	scene_log_release(&log);
	ck_assert_ptr_nonnull(strstr(text, "target e: no unit ngnix.service: there is no such unit"));
	ck_assert_ptr_null(strstr(text, "of-user"));
	free(text);
}
END_TEST

START_TEST(without_a_bus_units_are_found_by_their_names)
{
	fake_end(&fake);
	make_unit(MARIADB);
	start("\"unit\": \"mariadb.service\"");
	scene_wait_for(state().units.why[0] != '\0');
	scene_wait_for(descriptions() == 1);
	ck_assert(!state().units.connected);
	ck_assert(state().units_wanted);
	ck_assert_str_eq(state().units.why, strerror(ENOENT));
}
END_TEST

START_TEST(systemd_is_not_asked_about_another_machine)
{
	struct fake_unit units[] = { mariadb() };

	fake.units = units;
	fake.count = 1;
	make_unit(MARIADB);
	start("\"unit\": \"mariadb.service\"}], \"cgroup_root\": \"/mnt\", \"rules\": [{\"name\": \"r\", \"metric\": "
	      "\"pids\", \"above\": 1");
	scene_wait_for(state().scans >= 1);
	scene_wait_for(descriptions() == 1);
	ck_assert_str_eq(state().units.why, "cgroup_root is set");
	ck_assert_uint_eq(fake.calls, 0);
}
END_TEST

START_TEST(nobody_is_asked_while_no_entry_selects_units)
{
	start("\"comm\": \"no process has\"");
	scene_wait_for(state().scans >= 1);
	ck_assert(!state().units_wanted);
	ck_assert_uint_eq(state().units.connects, 0);
	ck_assert_str_eq(state().units.why, "");
}
END_TEST

Suite *discovery_units_suite(void)
{
	Suite *suite = suite_create("discovery_units");
	TCase *tcase = tcase_create("discovery_units");

	tcase_add_checked_fixture(tcase, setup_units, teardown_units);
	tcase_add_test(tcase, a_unit_is_a_target_by_its_alias_and_after_a_restart_under_the_same_key);
	tcase_add_test(tcase, a_unit_that_starts_under_an_alias_is_a_target_without_a_scan);
	tcase_add_test(tcase, a_unit_that_does_not_exist_is_said_unless_something_of_its_name_is_there);
	tcase_add_test(tcase, without_a_bus_units_are_found_by_their_names);
	tcase_add_test(tcase, systemd_is_not_asked_about_another_machine);
	tcase_add_test(tcase, nobody_is_asked_while_no_entry_selects_units);
	suite_add_tcase(suite, tcase);

	return suite;
}
