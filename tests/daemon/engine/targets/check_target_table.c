/*
 * check_target_table.c: targets from the moment they are found until the sampler has given them
 * back, over a /proc made of files, so that pids can be used again at will. The sampler's ticks are
 * taken in this thread. White box: includes target_table.c.
 */
#include "daemon/engine/targets/target_table.c"
#include "target_table_rig.h"
#include "lib/base/text.h"
#include "skip.h"
#include "torture.h"
#include "daemon/engine/sampling/sampler.h"
#include "samplers_tick.h"
#include "lib/config/config.h"
#include "lib/model/target.h"

#include <errno.h>
#include <sched.h>
#include <sys/resource.h>

Suite *target_table_suite(void);

static struct target_table_rig rig;

static void setup(void)
{
	target_table_rig_setup(&rig);
}

static void teardown(void)
{
	target_table_rig_teardown(&rig);
}

START_TEST(a_process_is_watched_once_however_often_it_is_met)
{
	make(&rig, 8, "{\"targets\": [{\"name\": \"a\", \"comm\": \"app\"}]}");
	appear(&rig, 10, 500, "/");
	ck_assert(!target_table_process_known(rig.table, 0, 10, 500, 1));
	for (uint64_t scan = 1; scan <= 3; scan++) {
		ck_assert_int_eq(meet(&rig, 0, 10, 500, scan), 0);
		target_table_sweep(rig.table, scan);
		settle(&rig);
	}
	ck_assert(target_table_process_known(rig.table, 0, 10, 500, 3));
	ck_assert_uint_eq(counts(&rig).targets, 1);
	ck_assert_uint_eq(counts(&rig).found, 1);
	ck_assert_uint_eq(counts(&rig).left, 0);
	ck_assert_str_eq(find(&rig, "a:10@500")->what.name, "a/10");
	ck_assert_str_eq(find(&rig, "a:10@500")->what.cmdline, "app -x");
}
END_TEST

START_TEST(what_was_not_seen_leaves_when_the_sampler_gave_it_back)
{
	make(&rig, 8, "{\"targets\": [{\"name\": \"a\", \"comm\": \"app\"}]}");
	appear(&rig, 10, 500, "/");
	appear(&rig, 11, 501, "/");
	meet(&rig, 0, 10, 500, 1);
	meet(&rig, 0, 11, 501, 1);
	settle(&rig);
	ck_assert(target_table_process_known(rig.table, 0, 11, 501, 2));
	target_table_sweep(rig.table, 2);
	target_table_collect(rig.table);
	ck_assert_uint_eq(counts(&rig).targets, 2); /* still lent */
	settle(&rig);
	ck_assert_uint_eq(counts(&rig).targets, 1);
	ck_assert_uint_eq(counts(&rig).left, 1);
	ck_assert_ptr_null(find(&rig, "a:10@500"));
	ck_assert_ptr_nonnull(find(&rig, "a:11@501"));
}
END_TEST

START_TEST(entries_that_match_nothing_are_named)
{
	mono_t began;

	make(&rig, 8,
	     "{\"targets\": [{\"name\": \"a\", \"comm\": \"app\"}, {\"name\": \"b\", \"comm\": \"ape\", \"per\": "
	     "\"group\"}]}");
	ck_assert_uint_eq(counts(&rig).unmatched_entries, 2);
	ck_assert_str_eq(counts(&rig).unmatched[0].entry, "a");
	ck_assert_str_eq(counts(&rig).unmatched[1].entry, "b");
	began = counts(&rig).unmatched[0].since;
	ck_assert_uint_gt(began.ns, 0);
	appear(&rig, 10, 500, "/");
	meet(&rig, 0, 10, 500, 1);
	ck_assert_uint_eq(counts(&rig).unmatched_entries, 1);
	ck_assert_str_eq(counts(&rig).unmatched[0].entry, "b");
	/* It ends. */
	settle(&rig);
	target_table_sweep(rig.table, 2);
	settle(&rig);
	ck_assert_uint_eq(counts(&rig).targets, 1); /* the group, which has no member */
	ck_assert_uint_eq(counts(&rig).unmatched_entries, 2);
	ck_assert_str_eq(counts(&rig).unmatched[0].entry, "a");
	ck_assert_int_gt(mono_diff(counts(&rig).unmatched[0].since, began), 0);
}
END_TEST

START_TEST(a_pid_that_is_used_again_is_a_new_target)
{
	make(&rig, 8, "{\"targets\": [{\"name\": \"a\", \"comm\": \"app\"}]}");
	appear(&rig, 10, 500, "/");
	meet(&rig, 0, 10, 500, 1);
	settle(&rig);
	uint32_t old = find(&rig, "a:10@500")->what.id;

	appear(&rig, 10, 900, "/");
	ck_assert(!target_table_process_known(rig.table, 0, 10, 900, 2));
	meet(&rig, 0, 10, 900, 2);
	target_table_sweep(rig.table, 2);
	settle(&rig);
	ck_assert_ptr_null(find(&rig, "a:10@500"));
	ck_assert_uint_ne(find(&rig, "a:10@900")->what.id, old);
	ck_assert_uint_eq(counts(&rig).targets, 1);
}
END_TEST

START_TEST(one_that_ends_between_scan_and_opening_is_nothing)
{
	make(&rig, 8, "{\"targets\": [{\"name\": \"a\", \"comm\": \"app\"}]}");
	ck_assert_int_eq(meet(&rig, 0, 10, 500, 1), TARGET_TABLE_ENDED);
	appear(&rig, 11, 500, "/");
	ck_assert_int_eq(meet(&rig, 0, 11, 499, 1), TARGET_TABLE_ENDED); /* another one by now */
	ck_assert_uint_eq(counts(&rig).targets, 0);
	ck_assert_uint_eq(counts(&rig).failed, 0);
}
END_TEST

/* Both began in the same hundredth of a second, which is all that is said of when. */
START_TEST(one_whose_pid_another_has_before_it_is_opened_is_not_taken_for_him)
{
	char path[128];

	make(&rig, 8, "{\"targets\": [{\"name\": \"a\", \"comm\": \"app\"}]}");
	appear(&rig, 10, 500, "/");
	snprintf(path, sizeof(path), "%s/10/comm", rig.root);
	scene_write(path, "ape\n");
	ck_assert_int_eq(meet(&rig, 0, 10, 500, 1), 0);
	ck_assert_uint_eq(counts(&rig).targets, 0);
	ck_assert_uint_eq(counts(&rig).cold, 0);
	ck_assert(!target_table_process_known(rig.table, 0, 10, 500, 1));
	scene_write(path, "app\n");
	ck_assert_int_eq(meet(&rig, 0, 10, 500, 2), 0);
	ck_assert_uint_eq(counts(&rig).targets, 1);
}
END_TEST

START_TEST(an_entry_of_one_process_gives_it_its_name)
{
	make(&rig, 8, "{\"targets\": [{\"name\": \"main\", \"pid\": 10}]}");
	appear(&rig, 10, 500, "/");
	meet(&rig, 0, 10, 500, 1);
	ck_assert_str_eq(find(&rig, "main")->what.name, "main"); /* and its key: cooldowns outlive a restart of it */
}
END_TEST

START_TEST(beyond_max_targets_they_are_refused_and_taken_when_there_is_room)
{
	make(&rig, 8, "{\"sampling\": {\"max_targets\": 2}, \"targets\": [{\"name\": \"a\", \"comm\": \"app\"}]}");
	for (int pid = 10; pid < 13; pid++) {
		appear(&rig, pid, 500, "/");
		ck_assert_int_eq(meet(&rig, 0, pid, 500, 1), 0);
	}
	target_table_sweep(rig.table, 1);
	ck_assert_uint_eq(counts(&rig).targets, 2);
	ck_assert_uint_eq(counts(&rig).refused, 1);
	target_table_sweep(rig.table, 2);
	settle(&rig);
	ck_assert_uint_eq(counts(&rig).targets, 0);
	ck_assert_uint_eq(counts(&rig).refused, 0); /* none was refused in this scan */
	ck_assert_int_eq(meet(&rig, 0, 12, 500, 3), 0);
	ck_assert_uint_eq(counts(&rig).targets, 1);
}
END_TEST

START_TEST(one_that_the_sampler_refuses_while_it_leaves_is_freed_once)
{
	make(&rig, 1, "{\"targets\": [{\"name\": \"a\", \"comm\": \"app\"}]}");
	for (int pid = 10; pid < 13; pid++) {
		appear(&rig, pid, 500, "/");
		meet(&rig, 0, pid, 500, 1);
	}
	target_table_sweep(rig.table, 2); /* before the sampler has even seen them */
	settle(&rig);
	settle(&rig);
	ck_assert_uint_eq(counts(&rig).targets, 0);
	ck_assert_uint_eq(counts(&rig).left, 3);
	ck_assert_uint_eq(visited(&rig), 0);
}
END_TEST

START_TEST(members_belong_to_their_group)
{
	make(&rig, 8, "{\"targets\": [{\"name\": \"g\", \"comm\": \"app\", \"per\": \"group\"}]}");
	appear(&rig, 10, 500, "/");
	appear(&rig, 11, 501, "/");
	meet(&rig, 0, 10, 500, 1);
	meet(&rig, 0, 11, 501, 1);
	settle(&rig);
	ck_assert_uint_eq(counts(&rig).targets, 1);
	ck_assert_uint_eq(counts(&rig).members, 2);
	ck_assert_ptr_eq(find(&rig, "g:10@500")->group, find(&rig, "g"));
	target_table_sweep(rig.table, 2);
	settle(&rig);
	ck_assert_uint_eq(counts(&rig).targets, 1); /* the group stays */
	ck_assert_uint_eq(counts(&rig).members, 0);
	ck_assert_ptr_nonnull(find(&rig, "g"));
}
END_TEST

START_TEST(a_process_of_two_entries_is_two_targets)
{
	make(&rig, 8, "{\"targets\": [{\"name\": \"a\", \"comm\": \"app\"}, {\"name\": \"b\", \"cmdline\": \"app\"}]}");
	appear(&rig, 10, 500, "/");
	meet(&rig, 0, 10, 500, 1);
	meet(&rig, 1, 10, 500, 1);
	settle(&rig);
	ck_assert_uint_eq(counts(&rig).targets, 2);
	ck_assert_uint_ne(find(&rig, "a:10@500")->what.id, find(&rig, "b:10@500")->what.id);
}
END_TEST

START_TEST(cgroups_are_found_by_path)
{
	const char *path = "/system.slice/postgresql.service";

	make(&rig, 8, "{\"targets\": [{\"name\": \"s\", \"cgroup\": \"/system.slice/*\"}]}");
	ck_assert_int_eq(target_table_cgroup(rig.table, 0, path, 1), 0);
	ck_assert_int_eq(target_table_cgroup(rig.table, 0, path, 1), 0);
	ck_assert_int_eq(target_table_cgroup(rig.table, 0, "/nowhere", 1), 0);
	settle(&rig);
	ck_assert_uint_eq(counts(&rig).targets, 1);
	ck_assert_uint_eq(counts(&rig).failed, 0);
	ck_assert_str_eq(find(&rig, "s:/system.slice/postgresql.service")->what.name, path);
	target_table_sweep(rig.table, 2);
	settle(&rig);
	ck_assert_uint_eq(counts(&rig).targets, 0);
}
END_TEST

START_TEST(a_full_queue_to_the_sampler_only_delays)
{
	struct sampler_target *returned;
	struct sampler_target dummy = { 0 };
	enum sampler_return why;
	unsigned queued = 0;

	make(&rig, 8, "{\"targets\": [{\"name\": \"a\", \"comm\": \"app\"}]}");
	appear(&rig, 10, 500, "/");
	while (samplers_remove(rig.samplers, &dummy))
		queued++;
	ck_assert_int_eq(meet(&rig, 0, 10, 500, 1), 0);
	ck_assert_uint_eq(counts(&rig).targets, 0);
	while (queued) {
		samplers_tick(rig.samplers);
		while (samplers_returned(rig.samplers, &returned, &why))
			queued--;
	}
	ck_assert_int_eq(meet(&rig, 0, 10, 500, 2), 0);
	ck_assert_uint_eq(counts(&rig).targets, 1);
}
END_TEST

/* As a reader of the ring gets it. */
static struct target described(struct target_table_entry *entry, const char *path, unsigned char *bytes)
{
	static const struct config_target by_path = { .selector = CONFIG_CGROUP };
	struct target_table_target *made = cgroup_target_new(entry, &by_path, path, NULL);
	struct target target;

	ck_assert_ptr_nonnull(made);
	ck_assert_str_eq(made->what.cgroup, path);
	ck_assert_int_eq(target_decode(bytes, target_encode(&made->what, bytes, TARGET_ENCODED_MAX), &target), 0);
	target_free(made);

	return target;
}

START_TEST(a_cgroup_keeps_its_name_and_identity_however_long_its_path_is)
{
	unsigned char bytes[2][TARGET_ENCODED_MAX];
	struct target_table_entry *entry = entry_new("an-entry", 1);
	char path[2][4096];

	for (size_t len = 4095; len > 200; len -= 361) {
		for (int i = 0; i < 2; i++) {
			memset(path[i], 'x', len);
			path[i][0] = '/';
			path[i][len] = '\0';
			/*
			 * All that is different is in the middle; characters of two bytes are at
			 * the seams.
			 */
			path[i][len / 2] = (char)('a' + i);
			for (size_t k = 32; k < 50; k += 2)
				memcpy(path[i] + k + len % 2, "\xc3\xbc", 2);
			for (size_t k = len - 130; k + 2 < len - 100; k += 2)
				memcpy(path[i] + k, "\xc3\xbc", 2);
		}
		struct target one = described(entry, path[0], bytes[0]), other = described(entry, path[1], bytes[1]);

		ck_assert_str_eq(one.entry, "an-entry");
		ck_assert_str_ne(one.name, other.name);
		ck_assert_str_ne(one.key, other.key);
		ck_assert_uint_gt(strlen(one.name), 150);
		ck_assert_int_eq(strncmp(one.name, path[0], 32), 0);
		ck_assert_int_eq(strncmp(one.key, "an-entry:/", 10), 0);
		ck_assert_uint_ge(strlen(one.cgroup), len < 500 ? len : 500);
		for (const char *at = one.name; *at;) {
			uint32_t code;
			size_t step = text_decode(at, strlen(at), &code);

			ck_assert_uint_gt(step, 0);
			at += step;
		}
	}
	struct target brief = described(entry, "/system.slice/x", bytes[0]);

	ck_assert_str_eq(brief.name, "/system.slice/x");
	ck_assert_str_eq(brief.key, "an-entry:/system.slice/x");
	entry_drop(entry);
}
END_TEST

START_TEST(running_out_of_descriptors_is_counted)
{
	struct rlimit limit, none;

	make(&rig, 8, "{\"targets\": [{\"name\": \"a\", \"comm\": \"app\"}]}");
	appear(&rig, 10, 500, "/");
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){ 0, limit.rlim_max };
	setrlimit(RLIMIT_NOFILE, &none);
	int r = meet(&rig, 0, 10, 500, 1);
	setrlimit(RLIMIT_NOFILE, &limit);
	ck_assert_int_eq(r, 0);
	target_table_sweep(rig.table, 1);
	ck_assert_uint_eq(counts(&rig).failed, 1);
	ck_assert_int_eq(counts(&rig).last_error, -EMFILE);
	ck_assert_uint_eq(counts(&rig).targets, 0);
}
END_TEST

START_TEST(every_allocation_may_fail)
{
	bool injected = true;

	rig.config = scene_config("{\"targets\": [{\"name\": \"g\", \"comm\": \"app\", \"per\": \"group\"}]}");
	appear(&rig, 10, 500, "/");
	make_sampler(&rig, 100);
	for (long n = 1; injected; n++) {
		rig.table = NULL;
		torture_arm(n);
		int r = target_table_new(&rig.options, &rig.table);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
	}
	settle(&rig);
	injected = true;
	for (long n = 1; injected; n++) {
		torture_arm(n);
		int r = meet(&rig, 0, 10, 500, 1);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		ck_assert_uint_eq(counts(&rig).members, injected ? 0 : 1);
	}
}
END_TEST

#define MANY 200

static size_t cgroups_kept(void)
{
	size_t count = 0;

	for (unsigned part = 0; part < LIMIT_TREE_PARTS; part++)
		count += limit_tree_refresh(rig.table->tree, part, 1);

	return count;
}

START_TEST(limits_of_cgroups_are_forgotten_with_the_last_process_in_them)
{
	make(&rig, MANY, "{\"targets\": [{\"name\": \"a\", \"comm\": \"app\"}]}");
	for (int pid = 10; pid < 10 + MANY; pid++) {
		char cgroup[32];

		snprintf(cgroup, sizeof(cgroup), "/a/%d", pid);
		appear(&rig, pid, 500, cgroup);
		meet(&rig, 0, pid, 500, 1);
	}
	settle(&rig);
	ck_assert_uint_eq(rig.table->lines.count, MANY);
	ck_assert_uint_eq(cgroups_kept(), 2 * (MANY + 2));
	for (int pid = 10; pid < 10 + MANY; pid++)
		appear(&rig, pid, 500, "/b");
	refresh_limits(&rig, (mono_t){ NS_PER_S });
	ck_assert_uint_eq(rig.table->lines.count, 1);
	ck_assert_uint_eq(cgroups_kept(), 4); /* "/" and "/b", of memory and of CPU */
	target_table_sweep(rig.table, 2);
	settle(&rig);
	settle(&rig);
	ck_assert_uint_eq(counts(&rig).targets, 0);
	ck_assert_uint_eq(rig.table->lines.count, 0);
	ck_assert_uint_eq(cgroups_kept(), 0);
}
END_TEST

/* As if a switch had been hidden. The next look notices it; the process may get another account, in some tries. */
static void lose_a_run(struct target_table_target *target)
{
	const struct cpu_accounts *shared = kernel_accounts_shared(rig.options.accounts);

	ck_assert_uint_ne(target->account, CPU_ACCOUNT_NONE);
	((struct cpu_account *)(uintptr_t)shared->accounts)[target->account].lost = 1;
	rig.table->kept.wanting = true;
	for (int i = 0; rig.table->kept.wanting && i < 1000; i++) {
		target_table_keep_accounts(rig.table);
		scene_nap();
	}
	ck_assert(!rig.table->kept.wanting);
}

/* What loses runs again and again has its clock asked for good; what does so now and then has not. */
START_TEST(three_lost_runs_cost_a_process_its_account_unless_a_minute_lies_between_them)
{
	int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct kernel_accounts *accounts = accounts_here(procfd);
	struct kernel_accounts_state state;
	struct actor actor;
	char key[64];

	if (!accounts)
		SKIP_TEST("%s", skip_why());
	actor = actor_start("lossy@");
	rig.config = scene_config("{\"targets\": [{\"name\": \"a\", \"comm\": \"app\"}]}");
	make_sampler(&rig, 8);
	rig.options.accounts = accounts;
	ck_assert_int_eq(target_table_new(&rig.options, &rig.table), 0);

	uint64_t start = scene_start_ticks(actor.pid);

	appear(&rig, actor.pid, start, "/");
	ck_assert_int_eq(meet(&rig, 0, actor.pid, start, 1), 0);
	snprintf(key, sizeof(key), "a:%d@%llu", actor.pid, (unsigned long long)start);

	struct target_table_target *target = find(&rig, key);

	ck_assert_ptr_nonnull(target);
	rig.table->kept.wanting = true; /* it is young */
	for (int i = 0; target->account == CPU_ACCOUNT_NONE && i < 1000; i++) {
		target_table_keep_accounts(rig.table);
		scene_nap();
	}
	/* The third one is a minute after the second, or it is not. */
	lose_a_run(target);
	lose_a_run(target);
	target->lost_at.ns -= (_i ? 61 : 30) * NS_PER_S;
	lose_a_run(target);
	kernel_accounts_state(accounts, &state);
	ck_assert_uint_eq(state.watched, _i ? 1 : 0);
	if (_i) {
		lose_a_run(target);
		kernel_accounts_state(accounts, &state);
		ck_assert_uint_eq(state.watched, 1);
		lose_a_run(target);
		kernel_accounts_state(accounts, &state);
	}
	ck_assert_uint_eq(state.watched, 0);
	ck_assert_uint_eq(target->account, CPU_ACCOUNT_NONE);
	ck_assert(state.on);

	rig.table->kept.wanting = true;
	target_table_keep_accounts(rig.table);
	ck_assert_uint_eq(target->account, CPU_ACCOUNT_NONE);
	actor_end(&actor);
	samplers_free(rig.samplers);
	target_table_free(rig.table);
	rig.samplers = NULL;
	rig.table = NULL;
	kernel_accounts_close(accounts);
	close(procfd);
}
END_TEST

/* ---- members that have left ---- */

#define BORN_NS (5000 * NS_PER_S)

/* So many of group 7, one each step_ns; of pid 1 and on. They ran for so long. */
static void leave(struct past_members *past, uint32_t first, uint32_t count, uint64_t step_ns, uint64_t ran_ns)
{
	for (uint32_t i = first; i < first + count; i++) {
		uint64_t to_ns = BORN_NS + i * step_ns;
		struct target_member member = { .pid = (int32_t)i + 1, .from_ns = to_ns - ran_ns, .to_ns = to_ns };

		past_members_add(past, 7, &member);
	}
}

START_TEST(members_that_left_are_told_with_a_time_that_has_all_of_theirs)
{
	struct past_members past = { 0 };
	struct member_query query = { .id = 7, .members = calloc(3000, sizeof *query.members) };

	leave(&past, 0, 3000, 7654321, 123456789);
	collect_past_members(&past, 0, &query);
	ck_assert_uint_eq(query.count, 3000);
	for (uint32_t i = 0; i < 3000; i++) {
		uint64_t to_ns = BORN_NS + i * UINT64_C(7654321), from_ns = to_ns - 123456789;

		ck_assert_int_eq(query.members[i].pid, (int32_t)i + 1);
		ck_assert_uint_le(query.members[i].from_ns, from_ns);
		ck_assert_uint_gt(query.members[i].from_ns + PAST_UNIT_NS, from_ns);
		ck_assert_uint_ge(query.members[i].to_ns, to_ns);
		ck_assert_uint_le(query.members[i].to_ns, to_ns + PAST_UNIT_NS);
	}

	/* Of that group, and that late. */
	query.count = 0;
	collect_past_members(&past, BORN_NS + 2990 * UINT64_C(7654321), &query);
	ck_assert_uint_ge(query.count, 10);
	ck_assert_uint_le(query.count, 12);
	query = (struct member_query){ .id = 8, .members = query.members };
	collect_past_members(&past, 0, &query);
	ck_assert_uint_eq(query.count, 0);
	free(query.members);
	free(past.members);
}
END_TEST

START_TEST(one_that_began_long_before_the_first_left_did_so)
{
	struct past_members past = { 0 };

	leave(&past, 0, 1, 0, BORN_NS);
	leave(&past, 1, 1, NS_PER_S, BORN_NS - 1);
	ck_assert_uint_eq(past_member_told(&past, 0).from_ns, 0);
	ck_assert_uint_eq(past_member_told(&past, 1).from_ns, 0);
	free(past.members);
}
END_TEST

START_TEST(of_too_many_that_left_the_newest_are_known_and_memory_goes_back)
{
	struct past_members past = { 0 };
	const uint32_t count = PAST_MEMBERS_MAX + 5000;

	leave(&past, 0, count, NS_PER_US, 0);
	ck_assert_uint_eq(past.count, PAST_MEMBERS_MAX);
	ck_assert_uint_eq(past.room, PAST_MEMBERS_MAX);
	ck_assert_int_eq(past_member_told(&past, 0).pid, 5001);
	ck_assert_int_eq(past_member_told(&past, PAST_MEMBERS_MAX - 1).pid, (int32_t)count);

	/* Those that no query will ask for any more make room, a step each time, for those that follow. */
	for (uint32_t i = 1; i <= 10; i++) {
		past_members_expire(&past, BORN_NS + NS_PER_S);
		leave(&past, count + i, 1, NS_PER_S, 0);
		ck_assert_int_eq(past_member_told(&past, i - 1).pid, (int32_t)(count + i + 1));
	}
	ck_assert_uint_eq(past.count, 10);
	ck_assert_uint_eq(past.room, PAST_MEMBERS_LEAST);
	free(past.members);
}
END_TEST

START_TEST(without_memory_the_oldest_that_left_makes_room)
{
	struct past_members past = { 0 };

	torture_arm(1);
	leave(&past, 0, 1, 0, 0);
	ck_assert(torture_disarm());
	ck_assert_uint_eq(past.count, 0);
	leave(&past, 0, PAST_MEMBERS_LEAST, 1, 0);
	torture_arm(1);
	leave(&past, PAST_MEMBERS_LEAST, 1, 1, 0);
	ck_assert(torture_disarm());
	ck_assert_uint_eq(past.count, PAST_MEMBERS_LEAST);
	ck_assert_int_eq(past_member_told(&past, 0).pid, 2);
	ck_assert_int_eq(past_member_told(&past, PAST_MEMBERS_LEAST - 1).pid, (int32_t)PAST_MEMBERS_LEAST + 1);
	free(past.members);
}
END_TEST

START_TEST(times_start_again_before_they_have_no_room)
{
	struct past_members past = { 0 };
	struct target_member member = { .pid = 9, .from_ns = BORN_NS, .to_ns = BORN_NS + NS_PER_S };

	leave(&past, 0, 1, 0, 0);
	member.to_ns += UINT32_MAX * PAST_UNIT_NS;
	past_members_add(&past, 7, &member);
	ck_assert_uint_eq(past.count, 1);
	ck_assert_int_eq(past_member_told(&past, 0).pid, 9);
	ck_assert_uint_ge(past_member_told(&past, 0).to_ns, member.to_ns);
	ck_assert_uint_eq(past_member_told(&past, 0).from_ns, 0);
	free(past.members);
}
END_TEST

Suite *target_table_suite(void)
{
	Suite *suite = suite_create("target_table");
	TCase *tcase = tcase_create("targets");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_process_is_watched_once_however_often_it_is_met);
	tcase_add_test(tcase, what_was_not_seen_leaves_when_the_sampler_gave_it_back);
	tcase_add_test(tcase, entries_that_match_nothing_are_named);
	tcase_add_test(tcase, a_pid_that_is_used_again_is_a_new_target);
	tcase_add_test(tcase, one_that_ends_between_scan_and_opening_is_nothing);
	tcase_add_test(tcase, one_whose_pid_another_has_before_it_is_opened_is_not_taken_for_him);
	tcase_add_test(tcase, an_entry_of_one_process_gives_it_its_name);
	tcase_add_test(tcase, beyond_max_targets_they_are_refused_and_taken_when_there_is_room);
	tcase_add_test(tcase, one_that_the_sampler_refuses_while_it_leaves_is_freed_once);
	tcase_add_test(tcase, members_belong_to_their_group);
	tcase_add_test(tcase, a_process_of_two_entries_is_two_targets);
	tcase_add_test(tcase, cgroups_are_found_by_path);
	tcase_add_test(tcase, a_full_queue_to_the_sampler_only_delays);
	tcase_add_test(tcase, a_cgroup_keeps_its_name_and_identity_however_long_its_path_is);
	tcase_add_test(tcase, running_out_of_descriptors_is_counted);
	tcase_add_test(tcase, limits_of_cgroups_are_forgotten_with_the_last_process_in_them);
	tcase_add_test(tcase, every_allocation_may_fail);
	tcase_add_test(tcase, members_that_left_are_told_with_a_time_that_has_all_of_theirs);
	tcase_add_test(tcase, one_that_began_long_before_the_first_left_did_so);
	tcase_add_test(tcase, of_too_many_that_left_the_newest_are_known_and_memory_goes_back);
	tcase_add_test(tcase, without_memory_the_oldest_that_left_makes_room);
	tcase_add_test(tcase, times_start_again_before_they_have_no_room);
	tcase_add_loop_test(tcase, three_lost_runs_cost_a_process_its_account_unless_a_minute_lies_between_them, 0, 2);
	suite_add_tcase(suite, tcase);

	return suite;
}
