/*
 * check_privileges.c: what an ordinary process lacks; each case in a child, whose privileges are
 * its own to lose.
 */
#include "daemon/service/health/overview.h"

#include "scene.h"
#include "skip.h"
#include "lib/config/config.h"

#include <grp.h>
#include <sys/mman.h>
#include <sys/resource.h>

Suite *privileges_suite(void);

static bool lacks(const struct privileges *privileges, const char *needs)
{
	for (size_t i = 0; i < privileges->count; i++)
		if (strstr(privileges->lacks[i].needs, needs) && *privileges->lacks[i].off)
			return true;

	return false;
}

static void become_nobody(void)
{
	if (geteuid() == 0)
		ck_assert(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
}

static uint64_t locked_kib(void)
{
	char *text = scene_read("/proc/self/status");
	const char *line = text ? strstr(text, "VmLck:") : NULL;
	uint64_t kib = line ? strtoull(line + 6, NULL, 10) : 0;

	free(text);

	return kib;
}

START_TEST(an_ordinary_user_is_told_what_is_off)
{
	struct config *config =
		scene_config("{\"targets\": [{\"name\": \"x\", \"pid\": 1}], \"ring\": {\"lock\": false}}");
	struct privileges privileges = { .count = 0 };

	become_nobody();
	privileges_look(config, &privileges);
	ck_assert(lacks(&privileges, "CAP_SYS_PTRACE"));
	ck_assert(lacks(&privileges, "CAP_DAC_READ_SEARCH"));
	ck_assert(!lacks(&privileges, "CAP_DAC_OVERRIDE"));
	ck_assert(!lacks(&privileges, "MEMLOCK"));
	config_free(config);
}
END_TEST

START_TEST(what_nobody_asked_for_is_not_missed)
{
	struct config *config = scene_config("{\"targets\": [{\"name\": \"x\", \"pid\": 1}], \"ring\": {\"lock\": "
					     "false}, \"sampling\": {\"reset_peaks\": true}}");
	struct privileges privileges = { .count = 0 };

	become_nobody();
	privileges_look(config, &privileges);
	ck_assert(lacks(&privileges, "CAP_DAC_OVERRIDE"));
	config_free(config);
}
END_TEST

START_TEST(memory_is_not_locked_where_the_limit_would_turn_against_us)
{
	struct config *config =
		scene_config("{\"targets\": [{\"name\": \"x\", \"pid\": 1}], \"ring\": {\"lock\": true}}");
	struct rlimit limit = { .rlim_cur = 1 << 20, .rlim_max = 1 << 20 };
	struct privileges privileges = { .count = 0 };

	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	become_nobody();
	privileges_look(config, &privileges);
	ck_assert(lacks(&privileges, "MEMLOCK"));
	ck_assert_uint_eq(locked_kib(), 0);
	config_free(config);
}
END_TEST

/* Root without the limit, which a container may not raise, has CAP_IPC_LOCK. */
static bool may_lock(void)
{
	struct rlimit limit = { .rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY };
	void *page = mmap(NULL, 64u << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool may = setrlimit(RLIMIT_MEMLOCK, &limit) == 0;

	may = may || (geteuid() == 0 && mlock2(page, 64u << 20, MLOCK_ONFAULT) == 0);
	munmap(page, 64u << 20);

	return may;
}

START_TEST(memory_is_locked_where_that_is_allowed)
{
	struct config *config =
		scene_config("{\"targets\": [{\"name\": \"x\", \"pid\": 1}], \"ring\": {\"lock\": true}}");
	struct privileges privileges = { .count = 0 };

	if (!may_lock()) {
		config_free(config);
		SKIP_TEST("the limit of locked memory cannot be raised");
	}
	privileges_look(config, &privileges);
	ck_assert(!lacks(&privileges, "MEMLOCK"));
	ck_assert_uint_gt(locked_kib(), 0);
	munlockall();
	config_free(config);
}
END_TEST

/* Locked pages are refused by madvise(2): malloc_trim(3) could give nothing back. */
START_TEST(what_is_allocated_later_is_not_locked_and_goes_back)
{
	struct config *config =
		scene_config("{\"targets\": [{\"name\": \"x\", \"pid\": 1}], \"ring\": {\"lock\": true}}");
	struct privileges privileges = { .count = 0 };
	const size_t bytes = 32u << 20;
	uint64_t locked;

	if (!may_lock()) {
		config_free(config);
		SKIP_TEST("the limit of locked memory cannot be raised");
	}
	privileges_look(config, &privileges);
	locked = locked_kib();
	char *evidence = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(evidence, MAP_FAILED);
	memset(evidence, 1, bytes);
	ck_assert_uint_eq(locked_kib(), locked);
	ck_assert_int_eq(madvise(evidence, bytes, MADV_DONTNEED), 0);
	munmap(evidence, bytes);
	munlockall();
	config_free(config);
}
END_TEST

START_TEST(a_lack_is_said_once)
{
	struct config *config =
		scene_config("{\"targets\": [{\"name\": \"x\", \"pid\": 1}], \"ring\": {\"lock\": false}}");
	struct privileges privileges = { .count = 0 };

	become_nobody();
	struct scene_log log = scene_log_catch();

	privileges_look(config, &privileges);
	char *first = scene_log_text(&log);
	privileges_look(config, &privileges);
	char *second = scene_log_text(&log);

	scene_log_release(&log);
	ck_assert_ptr_nonnull(strstr(first, "CAP_SYS_PTRACE"));
	ck_assert_str_eq(second, "");
	ck_assert(lacks(&privileges, "CAP_SYS_PTRACE"));
	free(first);
	free(second);
	config_free(config);
}
END_TEST

Suite *privileges_suite(void)
{
	Suite *suite = suite_create("privileges");
	TCase *tcase = tcase_create("privileges");

	tcase_add_test(tcase, an_ordinary_user_is_told_what_is_off);
	tcase_add_test(tcase, what_nobody_asked_for_is_not_missed);
	tcase_add_test(tcase, memory_is_not_locked_where_the_limit_would_turn_against_us);
	tcase_add_test(tcase, memory_is_locked_where_that_is_allowed);
	tcase_add_test(tcase, what_is_allocated_later_is_not_locked_and_goes_back);
	tcase_add_test(tcase, a_lack_is_said_once);
	suite_add_tcase(suite, tcase);

	return suite;
}
