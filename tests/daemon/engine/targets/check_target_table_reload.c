/*
 * check_target_table_reload.c: the configuration of a target table is replaced, and what is watched
 * by both goes on as if nothing had happened. The old configuration is freed right after, so that a
 * sanitizer sees what still refers to it.
 */
#include "target_table_rig.h"
#include "torture.h"
#include "samplers_tick.h"

#include <errno.h>

Suite *target_table_reload_suite(void);

static struct target_table_rig rig;

static void setup(void)
{
	target_table_rig_setup(&rig);
}

static void teardown(void)
{
	target_table_rig_teardown(&rig);
}

#define A "{\"name\": \"a\", \"comm\": \"app\"}"
#define B "{\"name\": \"b\", \"comm\": \"other\"}"
#define G "{\"name\": \"g\", \"comm\": \"app\", \"per\": \"group\"}"

static void reload(const char *entries)
{
	struct config *new = scene_config("{\"targets\": [%s]}", entries);

	ck_assert_int_eq(target_table_reload(rig.table, new), 0);
	config_free(rig.config);
	rig.config = new;
}

static void begin(const char *entries)
{
	char text[1024];

	snprintf(text, sizeof(text), "{\"targets\": [%s]}", entries);
	make(&rig, 64, text);
	for (int pid = 10; pid < 13; pid++)
		appear(&rig, pid, 500, "/");
}

/* Everybody of 10, 11 and 12 is met for an entry. */
static void meet_all(size_t entry, uint64_t scan)
{
	for (int pid = 10; pid < 13; pid++)
		ck_assert_int_eq(meet(&rig, entry, pid, 500, scan), 0);
}

struct said {
	unsigned gone, sampled;
};

/* What the whole ring says of a target. */
static struct said said_of(uint32_t id)
{
	struct ring_cursor *cursor = NULL;
	struct ring_event event;
	struct said said = { 0 };

	ck_assert_int_eq(ring_cursor_new(rig.ring, RING_OLDEST, &cursor), 0);
	while (ring_cursor_next(cursor, &event) == 0) {
		if (event.type == RING_EVENT_GONE && event.id == id)
			said.gone++;
		else if (event.type == RING_EVENT_SAMPLE && event.id == id)
			said.sampled++;
	}
	ring_cursor_free(cursor);

	return said;
}

/* Finds the one of several of the same key that does not leave. */
struct stayer {
	const char *key;
	struct target_table_target *found;
};

static int look_for_stayer(void *ctx, struct target_table_target *target)
{
	struct stayer *stayer = ctx;

	if (!target->leaving && strcmp(target->what.key, stayer->key) == 0)
		stayer->found = target;

	return 0;
}

static struct target_table_target *find_staying(const char *key)
{
	struct stayer stayer = { .key = key };

	target_table_visit(rig.table, look_for_stayer, &stayer);

	return stayer.found;
}

static const char *const keys[] = { "a:10@500", "a:11@500", "a:12@500" };

START_TEST(the_same_configuration_changes_nothing)
{
	struct target_table_target *targets[3];
	struct source_entry *entries[3];
	uint32_t ids[3];

	begin(A "," G);
	meet_all(0, 1);
	meet_all(1, 1);
	settle(&rig);
	struct target_table_target *group = find(&rig, "g");
	struct target_table_counts before = counts(&rig);

	for (int i = 0; i < 3; i++) {
		targets[i] = find(&rig, keys[i]);
		ids[i] = targets[i]->what.id;
		entries[i] = targets[i]->sampled.entry;
	}
	for (uint64_t scan = 2; scan < 6; scan++) {
		reload(A "," G);
		meet_all(0, scan);
		meet_all(1, scan);
		target_table_sweep(rig.table, scan);
		settle(&rig);
	}
	struct target_table_counts after = counts(&rig);

	ck_assert_int_eq(memcmp(&before, &after, sizeof(before)), 0);
	for (int i = 0; i < 3; i++) {
		ck_assert_ptr_eq(find(&rig, keys[i]), targets[i]);
		ck_assert_uint_eq(targets[i]->what.id, ids[i]);
		ck_assert_ptr_eq(targets[i]->sampled.entry, entries[i]);
		ck_assert_str_eq(targets[i]->what.entry, "a");
		ck_assert_uint_eq(said_of(ids[i]).gone, 0);
		ck_assert_uint_ge(said_of(ids[i]).sampled, 1);
	}
	ck_assert_ptr_eq(find(&rig, "g"), group);
	ck_assert_ptr_eq(find(&rig, "g:10@500")->group, group);
	ck_assert_uint_eq(said_of(group->what.id).gone, 0);
	ck_assert_uint_eq(after.left, 0);
}
END_TEST

START_TEST(an_entry_that_moves_takes_its_targets_along)
{
	begin(A "," B);
	meet_all(0, 1);
	settle(&rig);
	uint32_t id = find(&rig, "a:10@500")->what.id;

	reload(B "," A);
	ck_assert(target_table_process_known(rig.table, 1, 10, 500, 2));
	ck_assert(!target_table_process_known(rig.table, 0, 10, 500, 2));
	meet_all(1, 2);
	target_table_sweep(rig.table, 2);
	settle(&rig);
	ck_assert_uint_eq(counts(&rig).targets, 3);
	ck_assert_uint_eq(counts(&rig).found, 3);
	ck_assert_uint_eq(find(&rig, "a:10@500")->what.id, id);
}
END_TEST

START_TEST(an_entry_with_another_name_is_another)
{
	begin(A);
	meet_all(0, 1);
	settle(&rig);
	uint32_t id = find(&rig, "a:10@500")->what.id;

	reload("{\"name\": \"z\", \"comm\": \"app\"}");
	ck_assert_uint_eq(counts(&rig).leaving, 3);
	ck_assert_uint_eq(counts(&rig).targets, 3);
	ck_assert_str_eq(find(&rig, "a:10@500")->what.entry, "a"); /* its configuration is freed */
	ck_assert(!target_table_process_known(rig.table, 0, 10, 500, 2));
	meet_all(0, 2);
	target_table_sweep(rig.table, 2);
	ck_assert_uint_eq(counts(&rig).targets, 6);
	settle(&rig);
	ck_assert_uint_eq(counts(&rig).targets, 3);
	ck_assert_uint_eq(counts(&rig).left, 3);
	ck_assert_uint_eq(counts(&rig).leaving, 0);
	ck_assert_ptr_null(find(&rig, "a:10@500"));
	ck_assert_str_eq(find(&rig, "z:10@500")->what.entry, "z");
	ck_assert_uint_eq(said_of(id).gone, 1);
}
END_TEST

START_TEST(the_same_process_under_the_same_key_goes_and_comes)
{
	begin(A);
	meet_all(0, 1);
	settle(&rig);
	uint32_t old = find(&rig, "a:10@500")->what.id;

	reload("{\"name\": \"a\", \"cmdline\": \"app\"}");
	meet_all(0, 2);
	uint32_t new = find_staying("a:10@500")->what.id;

	ck_assert_uint_ne(old, new);
	target_table_sweep(rig.table, 2);
	settle(&rig);
	ck_assert_uint_eq(counts(&rig).targets, 3);
	ck_assert_uint_eq(find(&rig, "a:10@500")->what.id, new);
	ck_assert_uint_eq(said_of(old).gone, 1);
	ck_assert_uint_eq(said_of(new).gone, 0);
	ck_assert_uint_ge(said_of(new).sampled, 1);
}
END_TEST

START_TEST(a_removed_entry_lets_its_targets_go_and_an_added_one_takes_them)
{
	begin(A "," B);
	meet_all(0, 1);
	meet_all(1, 1);
	settle(&rig);
	uint32_t kept = find(&rig, "b:11@500")->what.id;

	reload(B);
	settle(&rig);
	ck_assert_uint_eq(counts(&rig).targets, 3);
	ck_assert_ptr_null(find(&rig, "a:10@500"));
	ck_assert_uint_eq(find(&rig, "b:11@500")->what.id, kept);
	reload(A "," B);
	meet_all(0, 2);
	meet_all(1, 2);
	target_table_sweep(rig.table, 2);
	settle(&rig);
	ck_assert_uint_eq(counts(&rig).targets, 6);
	ck_assert_uint_eq(find(&rig, "b:11@500")->what.id, kept);
	ck_assert_uint_eq(counts(&rig).found, 9);
}
END_TEST

START_TEST(a_removed_cgroup_entry_lets_its_cgroups_go)
{
	const char *path = "/system.slice/postgresql.service";

	begin("{\"name\": \"s\", \"cgroup\": \"/system.slice/*\"}");
	ck_assert_int_eq(target_table_cgroup(rig.table, 0, path, 1), 0);
	settle(&rig);
	reload("{\"name\": \"t\", \"cgroup\": \"/system.slice/*\"}");
	ck_assert_int_eq(target_table_cgroup(rig.table, 0, path, 2), 0);
	ck_assert_uint_eq(visited(&rig), 2);
	settle(&rig);
	ck_assert_uint_eq(visited(&rig), 1);
	ck_assert_str_eq(find(&rig, "t:/system.slice/postgresql.service")->what.entry, "t");
}
END_TEST

START_TEST(a_group_that_is_removed_goes_with_its_members)
{
	begin(G "," B);
	meet_all(0, 1);
	settle(&rig);
	uint32_t id = find(&rig, "g")->what.id;

	ck_assert_uint_eq(counts(&rig).members, 3);
	reload(B);
	ck_assert_uint_eq(counts(&rig).leaving, 4);
	settle(&rig);
	ck_assert_uint_eq(visited(&rig), 0);
	ck_assert_uint_eq(counts(&rig).members, 0);
	ck_assert_uint_eq(counts(&rig).targets, 0);
	ck_assert_uint_eq(said_of(id).gone, 1);
}
END_TEST

START_TEST(a_group_that_is_added_is_there_at_once)
{
	begin(B);
	reload(B "," G);
	ck_assert_uint_eq(counts(&rig).targets, 1);
	meet_all(1, 2);
	settle(&rig);
	ck_assert_uint_eq(counts(&rig).members, 3);
	ck_assert_uint_ge(said_of(find(&rig, "g")->what.id).sampled, 1);
	ck_assert_uint_eq(limits_of(&rig, "g").cpu, 4 * NS_PER_S);
}
END_TEST

START_TEST(a_group_that_is_changed_is_another_with_the_same_members)
{
	begin(G);
	meet_all(0, 1);
	settle(&rig);
	struct target_table_target *old = find(&rig, "g");
	uint32_t old_id = old->what.id;

	reload("{\"name\": \"g\", \"cmdline\": \"app\", \"per\": \"group\"}");
	meet_all(0, 2);
	target_table_sweep(rig.table, 2);
	ck_assert_uint_eq(counts(&rig).targets, 2);
	ck_assert_uint_eq(counts(&rig).members, 6);
	refresh_limits(&rig, (mono_t){ NS_PER_S }); /* while both are there */
	settle(&rig);
	ck_assert_uint_eq(counts(&rig).targets, 1);
	ck_assert_uint_eq(counts(&rig).members, 3);
	ck_assert_uint_ne(find(&rig, "g")->what.id, old_id);
	ck_assert_ptr_eq(find(&rig, "g:10@500")->group, find(&rig, "g"));
	ck_assert_uint_eq(said_of(old_id).gone, 1);
}
END_TEST

START_TEST(a_group_can_become_single_processes_and_back)
{
	begin(G);
	meet_all(0, 1);
	settle(&rig);
	for (uint64_t scan = 2; scan < 8; scan++) {
		bool single = scan % 2 == 0;

		reload(single ? "{\"name\": \"g\", \"comm\": \"app\"}" : G);
		meet_all(0, scan);
		target_table_sweep(rig.table, scan);
		settle(&rig);
		ck_assert_uint_eq(counts(&rig).targets, single ? 3 : 1);
		ck_assert_uint_eq(counts(&rig).members, single ? 0 : 3);
	}
}
END_TEST

START_TEST(members_that_ended_meanwhile_do_not_keep_their_group)
{
	char path[128];

	begin(G);
	meet_all(0, 1);
	settle(&rig);
	for (int pid = 10; pid < 13; pid++) {
		snprintf(path, sizeof(path), "%s/%d", rig.root, pid);
		scene_remove(path);
	}
	reload(B);
	for (int i = 0; i < 3; i++)
		settle(&rig);
	ck_assert_uint_eq(visited(&rig), 0);
}
END_TEST

START_TEST(reloads_in_a_row_need_no_tick_in_between)
{
	begin(A "," G);
	meet_all(0, 1);
	meet_all(1, 1);
	settle(&rig);
	reload(B);
	reload(A "," G); /* another A and another G */
	reload(B "," G);
	reload(A "," G);
	meet_all(0, 2);
	meet_all(1, 2);
	target_table_sweep(rig.table, 2);
	settle(&rig);
	ck_assert_uint_eq(counts(&rig).targets, 4);
	ck_assert_uint_eq(counts(&rig).members, 3);
	ck_assert_uint_eq(counts(&rig).leaving, 0);
	ck_assert_uint_eq(visited(&rig), 7);
}
END_TEST

START_TEST(one_that_was_leaving_anyway_leaves_once)
{
	begin(A);
	meet_all(0, 1);
	settle(&rig);
	target_table_sweep(rig.table, 2);
	reload(B);
	settle(&rig);
	settle(&rig);
	ck_assert_uint_eq(visited(&rig), 0);
	ck_assert_uint_eq(counts(&rig).left, 3);
}
END_TEST

/*
 * Takes so many answers, ticking as often as it needs; what comes behind them is the target
 * table's.
 */
static void take_answers(unsigned count)
{
	struct sampler_target *returned;
	enum sampler_return why;

	for (unsigned naps = 0; count > 0 && naps < 100; naps++) {
		samplers_tick(rig.samplers);
		while (count > 0 && samplers_returned(rig.samplers, &returned, &why))
			count--;
	}
	ck_assert_uint_eq(count, 0);
}

/* Fills the queue to the sampler but for so many places. How many answers that will be. */
static unsigned fill_queue(unsigned room)
{
	static struct sampler_target dummy;
	unsigned length = 0;

	while (samplers_remove(rig.samplers, &dummy))
		length++;
	take_answers(length);
	for (unsigned i = 0; i < length - room; i++)
		ck_assert(samplers_remove(rig.samplers, &dummy));

	return length - room;
}

START_TEST(a_full_queue_to_the_sampler_only_delays)
{
	begin(A "," G);
	meet_all(0, 1);
	meet_all(1, 1);
	settle(&rig);
	unsigned queued = fill_queue(0);

	reload("{\"name\": \"a\", \"cmdline\": \"app\"}, {\"name\": \"h\", \"comm\": \"app\", \"per\": \"group\"}");
	ck_assert_uint_eq(counts(&rig).leaving, 0);
	ck_assert(counts(&rig).owing);
	meet_all(0, 2);
	meet_all(1, 2);
	ck_assert_uint_eq(counts(&rig).targets, 5); /* three processes, the old group and the new */
	ck_assert_uint_eq(counts(&rig).members, 3);
	take_answers(queued);
	target_table_collect(rig.table);
	ck_assert(!counts(&rig).owing);
	ck_assert_uint_eq(counts(&rig).leaving, 7);
	meet_all(0, 3);
	meet_all(1, 3);
	target_table_sweep(rig.table, 3);
	settle(&rig);
	ck_assert_uint_eq(counts(&rig).targets, 4);
	ck_assert_uint_eq(counts(&rig).members, 3);
	ck_assert_ptr_nonnull(find(&rig, "h"));
	ck_assert_ptr_null(find(&rig, "g"));
}
END_TEST

START_TEST(a_group_is_asked_for_when_all_its_members_are)
{
	begin(G);
	meet_all(0, 1);
	settle(&rig);
	for (unsigned room = 0; room < 5; room++) {
		uint64_t scan = 2 + room;
		struct target_table_target *group = find(&rig, "g");
		unsigned queued = fill_queue(room);

		reload(B);
		ck_assert_uint_eq(counts(&rig).leaving, room < 4 ? room : 4);
		ck_assert_int_eq(group->leaving, room >= 4);
		ck_assert_int_eq(counts(&rig).owing, room < 4);
		take_answers(queued);
		target_table_collect(rig.table);
		settle(&rig);
		ck_assert_uint_eq(visited(&rig), 0);
		reload(G);
		meet_all(0, scan);
		target_table_sweep(rig.table, scan);
		settle(&rig);
		ck_assert_uint_eq(visited(&rig), 4);
	}
}
END_TEST

START_TEST(a_successor_waits_for_who_must_leave)
{
	begin(A);
	meet_all(0, 1);
	settle(&rig);
	unsigned queued = fill_queue(1);

	reload("{\"name\": \"a\", \"cmdline\": \"app\"}");
	ck_assert_uint_eq(counts(&rig).leaving, 1);
	take_answers(queued);
	meet_all(0, 2); /* now there is room, but two have not been asked yet */
	ck_assert_uint_eq(counts(&rig).found, 3);
	target_table_collect(rig.table);
	ck_assert_uint_eq(counts(&rig).targets, 2);
	ck_assert_uint_eq(counts(&rig).leaving, 2);
	meet_all(0, 3);
	target_table_sweep(rig.table, 3);
	settle(&rig);
	ck_assert_uint_eq(counts(&rig).targets, 3);
	ck_assert_uint_eq(counts(&rig).found, 6);
}
END_TEST

START_TEST(a_group_that_finds_the_sampler_full_is_lent_when_there_is_room)
{
	make(&rig, 1, "{\"targets\": [" A "]}");
	appear(&rig, 10, 500, "/");
	meet(&rig, 0, 10, 500, 1);
	settle(&rig);
	reload(A "," G);
	settle(&rig); /* refused */
	settle(&rig); /* and again */
	struct target_table_target *group = find(&rig, "g");

	ck_assert_ptr_nonnull(group);
	ck_assert_uint_eq(said_of(group->what.id).sampled, 0);
	reload(G);
	for (int i = 0; i < 4; i++)
		settle(&rig);
	ck_assert_ptr_eq(find(&rig, "g"), group);
	ck_assert_uint_ge(said_of(group->what.id).sampled, 1);
	ck_assert_uint_eq(visited(&rig), 1);
}
END_TEST

START_TEST(a_group_that_the_sampler_never_had_can_leave)
{
	make(&rig, 1, "{\"targets\": [" A "]}");
	appear(&rig, 10, 500, "/");
	meet(&rig, 0, 10, 500, 1);
	settle(&rig);
	reload(A "," G);
	meet(&rig, 1, 10, 500, 2);
	settle(&rig);
	meet(&rig, 1, 10, 500, 3);
	reload(A);
	for (int i = 0; i < 4; i++)
		settle(&rig);
	ck_assert_uint_eq(visited(&rig), 1);
	ck_assert_ptr_nonnull(find(&rig, "a:10@500"));
}
END_TEST

START_TEST(above_a_smaller_maximum_nobody_is_sent_away)
{
	begin(A);
	meet_all(0, 1);
	settle(&rig);
	struct config *new = scene_config("{\"sampling\": {\"max_targets\": 1}, \"targets\": [" A "]}");

	ck_assert_int_eq(target_table_reload(rig.table, new), 0);
	config_free(rig.config);
	rig.config = new;
	appear(&rig, 13, 500, "/");
	meet_all(0, 2);
	ck_assert_int_eq(meet(&rig, 0, 13, 500, 2), 0);
	target_table_sweep(rig.table, 2);
	settle(&rig);
	ck_assert_uint_eq(counts(&rig).targets, 3);
	ck_assert_uint_eq(counts(&rig).refused, 1);
}
END_TEST

START_TEST(the_place_of_one_that_leaves_is_free_for_its_successor)
{
	make(&rig, 4, "{\"sampling\": {\"max_targets\": 3}, \"targets\": [" A "]}");
	for (int pid = 10; pid < 13; pid++)
		appear(&rig, pid, 500, "/");
	meet_all(0, 1);
	settle(&rig);
	struct config *new = scene_config(
		"{\"sampling\": {\"max_targets\": 3}, \"targets\": [{\"name\": \"z\", \"comm\": \"app\"}]}");

	ck_assert_int_eq(target_table_reload(rig.table, new), 0);
	config_free(rig.config);
	rig.config = new;
	meet_all(0, 2);
	target_table_sweep(rig.table, 2);
	settle(&rig);
	ck_assert_uint_eq(counts(&rig).refused, 0);
	ck_assert_uint_eq(counts(&rig).targets, 3);
	ck_assert_ptr_nonnull(find(&rig, "z:12@500"));
}
END_TEST

START_TEST(when_any_allocation_fails_nothing_has_changed)
{
	struct config *new = scene_config("{\"targets\": [" B "," A ", {\"name\": \"h\", \"comm\": \"x\", \"per\": "
					  "\"group\"}, {\"name\": \"i\", \"comm\": \"x\", \"per\": \"group\"}]}");
	bool injected = true;

	begin(A "," G);
	meet_all(0, 1);
	meet_all(1, 1);
	settle(&rig);
	struct target_table_counts before = counts(&rig);
	struct target_table_target *first = find(&rig, "a:10@500"), *group = find(&rig, "g");

	for (long n = 1; injected; n++) {
		torture_arm(n);
		int r = target_table_reload(rig.table, new);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		if (!injected) {
			ck_assert_int_gt(n, 10); /* list; b; h and i with seven each */
			break;
		}
		struct target_table_counts after = counts(&rig);

		ck_assert_int_eq(memcmp(&before, &after, sizeof(before)), 0);
		ck_assert_ptr_eq(find(&rig, "a:10@500"), first);
		ck_assert_ptr_eq(find(&rig, "g"), group);
		ck_assert_ptr_null(find(&rig, "h"));
		ck_assert(target_table_process_known(rig.table, 0, 10, 500, 1));
		ck_assert(target_table_process_known(rig.table, 1, 10, 500, 1));
		target_table_sweep(rig.table, 1);
		settle(&rig);
	}
	config_free(rig.config);
	rig.config = new;
	meet_all(1, 2);
	target_table_sweep(rig.table, 2);
	settle(&rig);
	ck_assert_ptr_eq(find(&rig, "a:10@500"), first);
	ck_assert_ptr_null(find(&rig, "g"));
	ck_assert_ptr_nonnull(find(&rig, "i"));
	ck_assert_uint_eq(counts(&rig).targets, 5);
	ck_assert_uint_eq(counts(&rig).members, 0);
}
END_TEST

Suite *target_table_reload_suite(void)
{
	Suite *suite = suite_create("target_table_reload");
	TCase *tcase = tcase_create("reload");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, the_same_configuration_changes_nothing);
	tcase_add_test(tcase, an_entry_that_moves_takes_its_targets_along);
	tcase_add_test(tcase, an_entry_with_another_name_is_another);
	tcase_add_test(tcase, the_same_process_under_the_same_key_goes_and_comes);
	tcase_add_test(tcase, a_removed_entry_lets_its_targets_go_and_an_added_one_takes_them);
	tcase_add_test(tcase, a_removed_cgroup_entry_lets_its_cgroups_go);
	tcase_add_test(tcase, a_group_that_is_removed_goes_with_its_members);
	tcase_add_test(tcase, a_group_that_is_added_is_there_at_once);
	tcase_add_test(tcase, a_group_that_is_changed_is_another_with_the_same_members);
	tcase_add_test(tcase, a_group_can_become_single_processes_and_back);
	tcase_add_test(tcase, members_that_ended_meanwhile_do_not_keep_their_group);
	tcase_add_test(tcase, reloads_in_a_row_need_no_tick_in_between);
	tcase_add_test(tcase, one_that_was_leaving_anyway_leaves_once);
	tcase_add_test(tcase, a_full_queue_to_the_sampler_only_delays);
	tcase_add_test(tcase, a_group_is_asked_for_when_all_its_members_are);
	tcase_add_test(tcase, a_successor_waits_for_who_must_leave);
	tcase_add_test(tcase, a_group_that_finds_the_sampler_full_is_lent_when_there_is_room);
	tcase_add_test(tcase, a_group_that_the_sampler_never_had_can_leave);
	tcase_add_test(tcase, above_a_smaller_maximum_nobody_is_sent_away);
	tcase_add_test(tcase, the_place_of_one_that_leaves_is_free_for_its_successor);
	tcase_add_test(tcase, when_any_allocation_fails_nothing_has_changed);
	suite_add_tcase(suite, tcase);

	return suite;
}
