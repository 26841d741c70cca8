/*
 * check_matcher.c: the process tree: the trees of a process, in whatever order events come. White
 * box.
 */
#include "daemon/engine/targets/matcher.c"
#include "torture.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>

Suite *matcher_suite(void);

#define INIT 1
#define TREE 1ull
#define OTHER 2ull

static struct process_tree *process_tree;

static void setup(void)
{
	ck_assert_int_eq(process_tree_new(&process_tree), 0);
	process_tree_begin(process_tree);
}

static void teardown(void)
{
	process_tree_free(process_tree);
}

/* A process whose start time is 100 times its pid, unless said otherwise. */
static uint64_t met_as(int32_t pid, int32_t ppid, uint64_t start_ticks, uint64_t roots)
{
	return process_tree_met(process_tree,
				&(struct process_tree_process){ .pid = pid, .ppid = ppid, .start_ticks = start_ticks },
				roots);
}

static uint64_t met(int32_t pid, int32_t ppid, uint64_t roots)
{
	return met_as(pid, ppid, 100u * (uint64_t)pid, roots);
}

static uint64_t trees_of(int32_t pid)
{
	uint64_t trees = 0;

	return process_tree_find(process_tree, pid, &trees) ? trees : 0;
}

START_TEST(children_and_their_children_are_in_the_tree)
{
	ck_assert_uint_eq(met(INIT, 0, 0), 0);
	ck_assert_uint_eq(met(10, INIT, TREE), TREE);
	ck_assert_uint_eq(met(11, 10, 0), TREE);
	ck_assert_uint_eq(met(12, 11, 0), TREE);
	ck_assert_uint_eq(met(13, INIT, 0), 0);
	ck_assert_uint_eq(met(14, 12, OTHER), TREE | OTHER);
	ck_assert_uint_eq(trees_of(12), TREE);
}
END_TEST

START_TEST(a_fork_is_in_the_tree_before_anybody_looked)
{
	met(10, INIT, TREE);
	process_tree_forked(process_tree, 10, 20);
	ck_assert_uint_eq(trees_of(20), TREE);
	process_tree_forked(process_tree, 20, 21);
	ck_assert_uint_eq(trees_of(21), TREE);
	ck_assert_uint_eq(met(21, INIT, 0), TREE);
}
END_TEST

START_TEST(an_orphan_stays)
{
	met(10, INIT, TREE);
	met(11, 10, 0);
	met(12, 11, 0);
	process_tree_ended(process_tree, 11);
	process_tree_ended(process_tree, 10);
	ck_assert_uint_eq(met(12, INIT, 0), TREE);

	/* Two scans later its parents are forgotten. */
	for (int i = 0; i < 2; i++) {
		process_tree_begin(process_tree);
		ck_assert_uint_eq(met(12, INIT, 0), TREE);
		process_tree_sweep(process_tree);
	}
	ck_assert(!process_tree_find(process_tree, 10, &(uint64_t){ 0 }));
	ck_assert(!process_tree_find(process_tree, 11, &(uint64_t){ 0 }));
	ck_assert_uint_eq(met(13, 12, 0), TREE);
}
END_TEST

/* Scans alone: a process that has ended is no longer met. */
START_TEST(an_orphan_stays_where_only_scans_see)
{
	met(10, INIT, TREE);
	met(11, 10, 0);
	met(12, 11, 0);
	process_tree_sweep(process_tree);
	process_tree_begin(process_tree);
	ck_assert_uint_eq(met(12, INIT, 0), TREE);
	process_tree_sweep(process_tree);
	ck_assert_uint_eq(process_tree->pids.count, 1);
	ck_assert_uint_eq(trees_of(12), TREE);
}
END_TEST

START_TEST(who_was_never_seen_with_a_parent_is_not_known)
{
	met(INIT, 0, 0);
	met(10, INIT, TREE);
	process_tree_begin(process_tree);
	met(INIT, 0, 0);
	ck_assert_uint_eq(met(30, INIT, 0), 0);
}
END_TEST

/*
 * A process executes something and matches; its descendants are there already, one of them without
 * its parent.
 */
START_TEST(a_root_that_becomes_one_late_has_its_tree)
{
	met(10, INIT, 0);
	met(11, 10, 0);
	met(12, 11, 0);
	met(13, 10, 0);
	process_tree_ended(process_tree, 11);
	ck_assert(!process_tree_take_belated(process_tree));
	ck_assert_uint_eq(met(10, INIT, TREE), TREE);
	ck_assert(process_tree_take_belated(process_tree));
	ck_assert(!process_tree_take_belated(process_tree));
	ck_assert_uint_eq(trees_of(12), TREE);
	ck_assert_uint_eq(trees_of(13), TREE);
	ck_assert_uint_eq(met(12, INIT, 0), TREE);
}
END_TEST

START_TEST(who_executes_something_else_stays)
{
	met(10, INIT, TREE);
	ck_assert_uint_eq(met(10, INIT, 0), TREE);
	ck_assert_uint_eq(met(11, 10, 0), TREE);
}
END_TEST

START_TEST(the_next_with_the_same_pid_is_another)
{
	met(10, INIT, TREE);
	met(11, 10, 0);
	ck_assert_uint_eq(met_as(11, INIT, 5555, 0), 0);
	ck_assert_uint_eq(met_as(10, INIT, 5556, 0), 0);
	ck_assert_uint_eq(met(12, 10, 0), 0);

	/* The same by its fork, before it was looked at. */
	met(40, INIT, TREE);
	process_tree_forked(process_tree, 40, 41);
	process_tree_ended(process_tree, 41);
	process_tree_forked(process_tree, INIT, 41);
	ck_assert_uint_eq(trees_of(41), 0);
	ck_assert_uint_eq(met(41, INIT, 0), 0);

	/* And of one whose fork was not heard. */
	ck_assert_uint_eq(met(42, 40, 0), TREE);
	process_tree_ended(process_tree, 42);
	process_tree_forked(process_tree, INIT, 42);
	ck_assert_uint_eq(trees_of(42), 0);

	/* And if its end was not heard. */
	process_tree_begin(process_tree);
	met_as(50, 40, 1, 0);
	ck_assert_uint_eq(trees_of(50), TREE);
	process_tree_begin(process_tree);
	process_tree_forked(process_tree, INIT, 50);
	ck_assert_uint_eq(met_as(50, INIT, 2, 0), 0);
}
END_TEST

START_TEST(children_of_one_whose_pid_is_used_again_stay)
{
	met(10, INIT, TREE);
	met(11, 10, 0);
	met(12, 11, 0);
	met_as(11, INIT, 5555, 0);
	ck_assert_uint_eq(met(12, INIT, 0), TREE);
}
END_TEST

START_TEST(news_in_any_order_come_to_the_same)
{
	/*
	 * The fork of a grandchild is heard first, then that of its parent, whose parent has ended
	 * by then.
	 */
	met(10, INIT, TREE);
	process_tree_forked(process_tree, 11, 12);
	ck_assert_uint_eq(trees_of(12), 0);
	process_tree_ended(process_tree, 10);
	process_tree_forked(process_tree, 10, 11);
	ck_assert_uint_eq(trees_of(12), TREE);

	/* A process is met without its parent, and its fork is heard only then. */
	met(20, INIT, TREE);
	met(21, INIT, 0);
	ck_assert(!process_tree_take_belated(process_tree));
	process_tree_forked(process_tree, 20, 21);
	ck_assert_uint_eq(trees_of(21), TREE);
	ck_assert(process_tree_take_belated(process_tree));

	/* A child is met before its parent. */
	ck_assert_uint_eq(met(5, 30, 0), 0);
	ck_assert_uint_eq(met(30, INIT, TREE), TREE);
	ck_assert(process_tree_take_belated(process_tree));
	ck_assert_uint_eq(met(5, 30, 0), TREE);
}
END_TEST

START_TEST(a_process_whose_main_thread_ended_lives_on)
{
	met(10, INIT, TREE);
	met(11, 10, 0);
	process_tree_ended(process_tree, 11);
	process_tree_ended(process_tree, 11);
	ck_assert_uint_eq(met(11, INIT, 0), TREE);
	process_tree_begin(process_tree);
	met(11, INIT, 0);
	process_tree_sweep(process_tree);
	process_tree_begin(process_tree);
	process_tree_forked(process_tree, 11, 12);
	ck_assert_uint_eq(trees_of(12), TREE);
}
END_TEST

/*
 * Those of one that was forgotten are its parent's, so that a root that becomes one late has them
 * too.
 */
START_TEST(children_of_one_that_is_forgotten_are_its_parents)
{
	met(10, INIT, 0);
	met(11, 10, 0);
	met(12, 11, 0);
	process_tree_begin(process_tree);
	met(10, INIT, 0);
	met(12, INIT, 0);
	process_tree_sweep(process_tree);
	ck_assert_uint_eq(process_tree->pids.count, 2);
	ck_assert_uint_eq(met(10, INIT, TREE), TREE);
	ck_assert_uint_eq(trees_of(12), TREE);
}
END_TEST

/* Neither of the two was looked at, and there was no event of the end of the first. */
START_TEST(a_second_fork_with_the_same_pid_is_another)
{
	met(10, INIT, TREE);
	met(20, INIT, OTHER);
	process_tree_forked(process_tree, 10, 11);
	process_tree_forked(process_tree, 20, 11);
	ck_assert_uint_eq(trees_of(11), OTHER);
}
END_TEST

START_TEST(who_was_heard_of_during_a_look_outlives_it)
{
	process_tree_forked(process_tree, 10, 11);
	process_tree_forked(process_tree, 20, 21);
	process_tree_begin(process_tree);
	process_tree_forked(process_tree, 10, 12);
	process_tree_forked(process_tree, 30, 20); /* known only as a parent so far */
	process_tree_sweep(process_tree);
	ck_assert_uint_eq(met(30, INIT, OTHER), OTHER);
	ck_assert_uint_eq(trees_of(20), OTHER);
	ck_assert_uint_eq(trees_of(12), 0);

	/* One that ended during the look: its child is heard of late. */
	met(40, INIT, TREE);
	process_tree_begin(process_tree);
	process_tree_ended(process_tree, 40);
	process_tree_sweep(process_tree);
	process_tree_forked(process_tree, 40, 41);
	ck_assert_uint_eq(trees_of(41), TREE);
}
END_TEST

/* By its fork, whatever /proc says later. */
START_TEST(the_nearest_parent_that_was_heard_of_is_kept)
{
	process_tree_forked(process_tree, 10, 11);
	met(11, INIT, 0);
	ck_assert_uint_eq(met(10, INIT, TREE), TREE);
	ck_assert_uint_eq(trees_of(11), TREE);
}
END_TEST

START_TEST(an_end_that_is_told_twice_or_wrongly_takes_one_place)
{
	int32_t pid = 1000;

	met(10, INIT, TREE);
	process_tree_ended(process_tree, 10);
	process_tree_ended(process_tree, 10);
	met(20, INIT, OTHER);
	process_tree_ended(process_tree, 20);
	ck_assert_uint_eq(met(20, INIT, 0), OTHER); /* only its main thread had ended */
	for (uint32_t i = 0; i < PROCESS_TREE_ENDED_MAX - 2; i++, pid++) {
		met(pid, INIT, 0);
		process_tree_ended(process_tree, pid);
	}
	ck_assert_uint_eq(trees_of(10), TREE);
	for (uint32_t i = 0; i < 2; i++, pid++) {
		met(pid, INIT, 0);
		process_tree_ended(process_tree, pid);
	}
	ck_assert_uint_eq(trees_of(10), 0); /* as many ended after it as are remembered */
	ck_assert_uint_eq(trees_of(20), OTHER);
	ck_assert_uint_eq(process_tree->pids.count, PROCESS_TREE_ENDED_MAX + 2); /* with 20 and init */
}
END_TEST

START_TEST(contradictions_make_no_circle)
{
	met(10, 11, 0);
	met(11, 10, 0);
	process_tree_forked(process_tree, 12, 10);
	process_tree_forked(process_tree, 10, 12);
	process_tree_forked(process_tree, 11, 12);
	process_tree_forked(process_tree, 12, 12);
	met(7, 7, TREE);
	met(10, 12, TREE);
	process_tree_forked(process_tree, -1, 3);
	process_tree_forked(process_tree, 3, -1);
	ck_assert_uint_eq(met(13, 12, 0) | met(14, 11, 0) | met(15, 10, 0), TREE);
}
END_TEST

START_TEST(numbers_of_trees_change)
{
	unsigned place[PROCESS_TREE_TREES];

	met(10, INIT, TREE);
	met(11, 10, OTHER);
	met(12, INIT, 1ull << 63);
	for (unsigned i = 0; i < PROCESS_TREE_TREES; i++)
		place[i] = PROCESS_TREE_TREES;
	place[0] = 63;
	place[63] = 0;
	process_tree_renumber(process_tree, place);
	ck_assert_uint_eq(trees_of(10), 1ull << 63);
	ck_assert_uint_eq(trees_of(11), 1ull << 63);
	ck_assert_uint_eq(trees_of(12), 1);
	ck_assert_uint_eq(met(13, 11, 0), 1ull << 63);
}
END_TEST

START_TEST(memory_is_bounded)
{
	int32_t pid = 2;
	unsigned long before;

	/* A daemon that forks itself for ever: one lives at a time. */
	met(pid, INIT, TREE);
	for (int i = 0; i < 100000; i++, pid++) {
		process_tree_forked(process_tree, pid, pid + 1);
		process_tree_ended(process_tree, pid);
	}
	ck_assert_uint_eq(trees_of(pid), TREE);
	ck_assert_uint_le(process_tree->pids.count, PROCESS_TREE_ENDED_MAX + 2); /* and the two that live */
	ck_assert_uint_eq(process_tree->dropped, 0);
	before = torture_allocations();

	/* More processes than there is room for: what their parents are in is still known. */
	bool known = true;

	for (uint32_t i = 0; i < 2 * PROCESS_TREE_MAX; i++)
		known = known && met(1000000 + (int32_t)i, pid, OTHER) == (TREE | OTHER);
	ck_assert_uint_eq(torture_allocations(), before);
	ck_assert(known);
	ck_assert_uint_eq(process_tree->pids.count, PROCESS_TREE_MAX);
	ck_assert_uint_gt(process_tree->dropped, 0);
	process_tree_forked(process_tree, 5000001, 5000002);

	process_tree_begin(process_tree);
	process_tree_sweep(process_tree);
	ck_assert_uint_eq(process_tree->pids.count, 0);
}
END_TEST

/* ---- against a plain model: forks and ends in their order, looks at random moments ---- */

#define MODEL_PIDS 60
#define MODEL_STEPS 200000

struct model {
	bool alive;
	uint64_t start_ticks, trees;
	int parent; /* living ancestor, as the kernel would have it; 0: init */
};

static int pick(const struct model *model, unsigned *seed, bool alive)
{
	int pid = 1 + rand_r(seed) % MODEL_PIDS;

	return model[pid].alive == alive ? pid : 0;
}

static void end_in_model(struct model *model, int pid)
{
	for (int i = 1; i <= MODEL_PIDS; i++)
		if (model[i].alive && model[i].parent == pid)
			model[i].parent = 0;
	model[pid].alive = false;
}

static void root_in_model(struct model *model, int pid, uint64_t trees)
{
	model[pid].trees |= trees;
	for (int i = 1; i <= MODEL_PIDS; i++)
		if (model[i].alive && model[i].parent == pid)
			root_in_model(model, i, trees);
}

START_TEST(agrees_with_a_plain_model)
{
	static struct model model[MODEL_PIDS + 1];
	unsigned seed = 1;
	int looked = 0;

	for (int step = 0; step < MODEL_STEPS; step++) {
		int living = pick(model, &seed, true), vacant = pick(model, &seed, false);
		int what = rand_r(&seed) % 8;

		if (what < 4 && vacant) {
			model[vacant] = (struct model){ true, (uint64_t)step + 1, model[living].trees, living };
			process_tree_forked(process_tree, living ? living : 1000, vacant);
		} else if (what < 6 && living) {
			end_in_model(model, living);
			process_tree_ended(process_tree, living);
		} else if (living) {
			/*
			 * Roots only of those whose descendants have all their ancestors: a model
			 * of the rest would be the module again.
			 */
			uint64_t roots = rand_r(&seed) % 4 ? 0 : 1ull << rand_r(&seed) % 64;

			for (int i = 1; i <= MODEL_PIDS; i++)
				roots = model[i].alive && model[i].parent == living ? 0 : roots;
			root_in_model(model, living, roots);
			ck_assert_uint_eq(met_as(living, model[living].parent ? model[living].parent : 1000,
						 model[living].start_ticks, roots) &
						  model[living].trees,
					  model[living].trees);
			looked++;
		}
	}
	ck_assert_int_gt(looked, MODEL_STEPS / 20);
	for (int pid = 1; pid <= MODEL_PIDS; pid++)
		if (model[pid].alive)
			ck_assert_uint_eq(trees_of(pid), model[pid].trees);
}
END_TEST

START_TEST(survives_want_of_memory)
{
	struct process_tree *made = NULL;

	torture_arm(1);
	int r = process_tree_new(&made);
	ck_assert(torture_disarm());
	ck_assert_int_eq(r, -ENOMEM);
	process_tree_free(NULL);
}
END_TEST

Suite *matcher_suite(void)
{
	Suite *suite = suite_create("matcher");
	TCase *tcase = tcase_create("trees");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, children_and_their_children_are_in_the_tree);
	tcase_add_test(tcase, a_fork_is_in_the_tree_before_anybody_looked);
	tcase_add_test(tcase, an_orphan_stays);
	tcase_add_test(tcase, an_orphan_stays_where_only_scans_see);
	tcase_add_test(tcase, who_was_never_seen_with_a_parent_is_not_known);
	tcase_add_test(tcase, a_root_that_becomes_one_late_has_its_tree);
	tcase_add_test(tcase, who_executes_something_else_stays);
	tcase_add_test(tcase, the_next_with_the_same_pid_is_another);
	tcase_add_test(tcase, children_of_one_whose_pid_is_used_again_stay);
	tcase_add_test(tcase, news_in_any_order_come_to_the_same);
	tcase_add_test(tcase, a_process_whose_main_thread_ended_lives_on);
	tcase_add_test(tcase, children_of_one_that_is_forgotten_are_its_parents);
	tcase_add_test(tcase, a_second_fork_with_the_same_pid_is_another);
	tcase_add_test(tcase, who_was_heard_of_during_a_look_outlives_it);
	tcase_add_test(tcase, the_nearest_parent_that_was_heard_of_is_kept);
	tcase_add_test(tcase, an_end_that_is_told_twice_or_wrongly_takes_one_place);
	tcase_add_test(tcase, contradictions_make_no_circle);
	tcase_add_test(tcase, numbers_of_trees_change);
	tcase_add_test(tcase, memory_is_bounded);
	tcase_add_test(tcase, agrees_with_a_plain_model);
	tcase_add_test(tcase, survives_want_of_memory);
	suite_add_tcase(suite, tcase);

	return suite;
}
