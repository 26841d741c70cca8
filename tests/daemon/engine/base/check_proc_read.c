/* check_proc_read.c: small files, links and names below a proc root. */
#include "daemon/engine/base/proc_read.c"

#include "daemon/engine/base/foreign.h"
#include "scene.h"
#include "skip.h"

#include <errno.h>
#include <sys/mount.h>
#include <sys/stat.h>

Suite *proc_read_suite(void);

static char root[64], path[128], buf[64];
static int procfd;

static void setup(void)
{
	scene_directory(root);
	procfd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(path, sizeof(path), "%s/10", root);
	ck_assert_int_eq(mkdir(path, 0700), 0);
}

static void teardown(void)
{
	close(procfd);
	scene_remove(root);
}

static void put(const char *name, const char *bytes, size_t len)
{
	snprintf(path, sizeof(path), "%s/%s", root, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_eq(write(fd, bytes, len), (ssize_t)len);
	close(fd);
}

START_TEST(reads_a_file_and_ends_it)
{
	put("10/comm", "app\n", 4);
	put("uptime", "1 2\n", 4);
	ck_assert_int_eq(proc_read_file(procfd, 10, "comm", buf, sizeof(buf)), 4);
	ck_assert_str_eq(buf, "app\n");
	ck_assert_int_eq(proc_read_file(procfd, 0, "uptime", buf, sizeof(buf)), 4);
	ck_assert_str_eq(buf, "1 2\n");
}
END_TEST

START_TEST(cuts_what_does_not_fit)
{
	put("10/comm", "abcdef", 6);
	memset(buf, 'x', sizeof(buf));
	ck_assert_int_eq(proc_read_file(procfd, 10, "comm", buf, 4), 3);
	ck_assert_str_eq(buf, "abc");
	ck_assert_int_eq(buf[4], 'x');
	ck_assert_int_eq(proc_read_file(procfd, 10, "comm", buf, 1), 0);
	ck_assert_str_eq(buf, "");
}
END_TEST

START_TEST(a_process_that_is_gone_is_a_condition_a_missing_file_of_the_host_is_not)
{
	ck_assert_int_eq(proc_read_file(procfd, 11, "comm", buf, sizeof(buf)), -ESRCH);
	ck_assert_int_eq(proc_read_link(procfd, 11, "exe", buf, sizeof(buf)), -ESRCH);
	ck_assert_int_eq(foreign_cmdline(FOREIGN_DISCOVERY, procfd, 11, buf, sizeof(buf)), -ESRCH);
	ck_assert_int_eq(proc_read_file(procfd, 0, "uptime", buf, sizeof(buf)), -ENOENT);
}
END_TEST

START_TEST(a_reaped_process_is_gone_in_the_real_proc)
{
	int real = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct actor actor = actor_start("scene-reaped");

	ck_assert_int_gt(proc_read_file(real, actor.pid, "comm", buf, sizeof(buf)), 0);
	ck_assert_str_eq(buf, "scene-reaped\n");
	actor_end(&actor);
	ck_assert_int_eq(proc_read_file(real, actor.pid, "comm", buf, sizeof(buf)), -ESRCH);
	close(real);
}
END_TEST

START_TEST(does_not_follow_links_to_files)
{
	snprintf(path, sizeof(path), "%s/10/comm", root);
	ck_assert_int_eq(symlink("/etc/passwd", path), 0);
	ck_assert_int_eq(proc_read_file(procfd, 10, "comm", buf, sizeof(buf)), -ELOOP);
}
END_TEST

START_TEST(a_deleted_executable_has_its_name)
{
	snprintf(path, sizeof(path), "%s/10/exe", root);
	ck_assert_int_eq(symlink("/opt/app (deleted)", path), 0);
	ck_assert_int_eq(proc_read_link(procfd, 10, "exe", buf, sizeof(buf)), 8);
	ck_assert_str_eq(buf, "/opt/app");
	unlink(path);
	ck_assert_int_eq(symlink(" (deleted)", path), 0);
	ck_assert_int_eq(proc_read_link(procfd, 10, "exe", buf, sizeof(buf)), 10);
}
END_TEST

START_TEST(arguments_are_joined_by_spaces)
{
	put("10/cmdline", "a\0b c\0\0d\0", 9);
	ck_assert_int_eq(foreign_cmdline(FOREIGN_DISCOVERY, procfd, 10, buf, sizeof(buf)), 8);
	ck_assert_str_eq(buf, "a b c  d");
	put("10/cmdline", "", 0);
	ck_assert_int_eq(foreign_cmdline(FOREIGN_DISCOVERY, procfd, 10, buf, sizeof(buf)), -ENODATA);
	ck_assert_str_eq(buf, "");
	put("10/cmdline", "\0\0\0", 3);
	ck_assert_int_eq(foreign_cmdline(FOREIGN_DISCOVERY, procfd, 10, buf, sizeof(buf)), 0);
	put("10/cmdline", "no end", 6);
	ck_assert_int_eq(foreign_cmdline(FOREIGN_DISCOVERY, procfd, 10, buf, sizeof(buf)), 6);
}
END_TEST

START_TEST(arguments_that_do_not_fit_are_cut_at_a_character)
{
	static const char *const tails[] = { "\xc3\xbc", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xfc",
					     "\x80\x80\x80\x80" };
	static const int lost[][4] = { { 0, 1 }, { 0, 1, 2 }, { 0, 1, 2, 3 }, { 1 }, { 0, 0, 0, 0 } };
	char text[64];

	for (size_t i = 0; i < 5; i++) {
		size_t len = strlen(tails[i]);

		/* So many bytes of the last character fit. */
		for (size_t fit = 1; fit < len; fit++) {
			snprintf(text, sizeof(text), "app -x%sand more", tails[i]);
			put("10/cmdline", text, strlen(text));
			ssize_t got = foreign_cmdline(FOREIGN_DISCOVERY, procfd, 10, buf, 6 + fit + 1);

			ck_assert_int_eq(got, (ssize_t)(6 + fit) - lost[i][fit]);
			ck_assert_int_eq(buf[got], '\0');
			ck_assert_int_eq(strncmp(buf, text, (size_t)got), 0);
		}
		ck_assert_int_eq(foreign_cmdline(FOREIGN_DISCOVERY, procfd, 10, buf, 6 + len + 1),
				 (ssize_t)(6 + len) - lost[i][0]);
	}
}
END_TEST

START_TEST(two_mebibytes_of_arguments_are_read_as_far_as_there_is_room)
{
	size_t len = 2 << 20;
	char *text = malloc(len);

	memset(text, 'a', len);
	put("10/cmdline", text, len);
	ck_assert_int_eq(foreign_cmdline(FOREIGN_DISCOVERY, procfd, 10, text, 8192), 8191);
	ck_assert_uint_eq(strlen(text), 8191);
	free(text);
}
END_TEST

START_TEST(only_numbers_are_pids)
{
	static const struct {
		const char *text;
		int32_t pid;
	} cases[] = {
		{ "1", 1 },
		{ "4194304", 4194304 },
		{ "2147483647", INT32_MAX },
		{ "2147483648", 0 },
		{ "99999999999999999999", 0 },
		{ "", 0 },
		{ "self", 0 },
		{ "12x", 0 },
		{ "-1", 0 },
		{ "..", 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		ck_assert_msg(proc_read_pid_of(cases[i].text) == cases[i].pid, "%s", cases[i].text);
}
END_TEST

START_TEST(a_pid_file_says_a_pid_or_nothing)
{
	static const struct {
		const char *text;
		int32_t pid;
	} cases[] = {
		{ "812\n", 812 }, { " 812", 812 },      { "", 0 }, { "none", 0 }, { "-5", 0 },
		{ "0", 0 },       { "99999999999", 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		put("pidfile", cases[i].text, strlen(cases[i].text));
		ck_assert_msg(foreign_pidfile(FOREIGN_DISCOVERY, path) == cases[i].pid, "%s", cases[i].text);
	}
	ck_assert_int_eq(foreign_pidfile(FOREIGN_DISCOVERY, "/nowhere/pidfile"), 0);
	ck_assert_int_eq(foreign_pidfile(FOREIGN_DISCOVERY, root), 0);
}
END_TEST

/* As in a program that was started without standard input. */
START_TEST(a_file_that_is_opened_as_descriptor_0_is_read)
{
	put("10/comm", "postgres", 8);
	close(STDIN_FILENO);
	ck_assert_int_eq(proc_read_file(procfd, 10, "comm", buf, sizeof(buf)), 8);
	ck_assert_str_eq(buf, "postgres");
}
END_TEST

START_TEST(a_pipe_as_pid_file_does_not_hold_us_up)
{
	snprintf(path, sizeof(path), "%s/fifo", root);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(foreign_pidfile(FOREIGN_DISCOVERY, path), 0);
}
END_TEST

/* ---- CPUs ---- */

/* As the kernel writes a list: "0-3,8". */
static const char *list_of(const struct proc_cpus *cpus)
{
	static char text[256];
	size_t len = 0;

	for (uint32_t cpu = 0, first; cpu < cpus->end; cpu++) {
		if (!proc_cpus_has(cpus, cpu))
			continue;
		for (first = cpu; proc_cpus_has(cpus, cpu + 1); cpu++)
			;
		len += (size_t)snprintf(text + len, sizeof(text) - len, len > 0 ? ",%u" : "%u", first);
		if (cpu > first)
			len += (size_t)snprintf(text + len, sizeof(text) - len, "-%u", cpu);
		ck_assert_uint_lt(len, sizeof(text));
	}
	return text;
}

START_TEST(cpus_are_those_that_the_kernel_lists)
{
	static const char *const names[] = { [PROC_CPUS_POSSIBLE] = "possible", [PROC_CPUS_ONLINE] = "online" };
	int sysfd = open("/sys/devices/system/cpu", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char text[256];
	struct proc_cpus cpus;

	if (sysfd < 0 || proc_read_line(sysfd, 0, names[_i], text, sizeof(text)) <= 0)
		SKIP_TEST("no /sys/devices/system/cpu/%s", names[_i]);
	proc_read_cpus((enum proc_cpus_kind)_i, &cpus);
	ck_assert_str_eq(list_of(&cpus), text);
	close(sysfd);
}
END_TEST

START_TEST(a_thread_that_may_run_on_one_cpu_still_sees_all)
{
	struct proc_cpus before, online, own;
	cpu_set_t one;

	proc_read_cpus(PROC_CPUS_ONLINE, &before);
	proc_read_cpus(PROC_CPUS_OWN, &own);
	if (own.count < 2)
		SKIP_TEST("this process may run on one CPU only");
	CPU_ZERO(&one);
	CPU_SET(own.end - 1, &one);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	proc_read_cpus(PROC_CPUS_ONLINE, &online);
	ck_assert_mem_eq(&online, &before, sizeof(online));
	before = own;
	proc_read_cpus(PROC_CPUS_OWN, &own);
	ck_assert_uint_eq(own.count, 1);
	ck_assert_uint_eq(own.end, before.end);
	ck_assert(proc_cpus_has(&own, own.end - 1));
}
END_TEST

START_TEST(a_list_of_cpus_may_be_longer_than_a_page_and_have_gaps)
{
	static char text[PROC_CPUS_MAX * 11 + 64];
	struct proc_cpus cpus = { 0 };
	size_t len = 20;
	uint32_t count = 0;

	memset(text, ' ', len);
	for (uint32_t cpu = 0; cpu < PROC_CPUS_MAX + 2; cpu += cpu % 7 == 0 ? 2 : 1, count++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "CPU%-8u", cpu);
	len += (size_t)snprintf(text + len, sizeof(text) - len, "\n  1:   5  7\n");
	put("interrupts", text, len);
	read_table_head(procfd, "interrupts", &cpus);
	ck_assert_uint_eq(cpus.end, PROC_CPUS_MAX - 1); /* 8191 is a gap */
	for (uint32_t cpu = 0; cpu < PROC_CPUS_MAX; cpu += cpu % 7 == 0 ? 2 : 1) {
		ck_assert_msg(proc_cpus_has(&cpus, cpu), "%u", cpu);
		count--;
	}
	ck_assert_uint_le(count, 2); /* those beyond the most there can be */
	for (uint32_t cpu = 1; cpu < PROC_CPUS_MAX; cpu += 7)
		ck_assert_msg(!proc_cpus_has(&cpus, cpu), "%u", cpu);
}
END_TEST

/* As in a container to which all of /proc/softirqs is hidden. */
START_TEST(without_a_list_the_masks_of_the_kernel_say_how_many_cpus_can_be)
{
	struct proc_cpus possible, other;

	proc_read_cpus(PROC_CPUS_POSSIBLE, &possible);
	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("/dev/null", "/proc/softirqs", NULL, MS_BIND, NULL) < 0)
		SKIP_TEST("no right to mount: %s", strerror(errno));
	proc_read_cpus(PROC_CPUS_POSSIBLE, &other);
	umount2("/proc/softirqs", MNT_DETACH);
	ck_assert_uint_ge(other.end, possible.end);
	ck_assert_uint_eq(other.end % (8 * sizeof(long)), 0);
	ck_assert_uint_eq(other.count, other.end);
}
END_TEST

Suite *proc_read_suite(void)
{
	Suite *suite = suite_create("proc_read");
	TCase *tcase = tcase_create("files");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, reads_a_file_and_ends_it);
	tcase_add_test(tcase, cuts_what_does_not_fit);
	tcase_add_test(tcase, a_process_that_is_gone_is_a_condition_a_missing_file_of_the_host_is_not);
	tcase_add_test(tcase, a_reaped_process_is_gone_in_the_real_proc);
	tcase_add_test(tcase, does_not_follow_links_to_files);
	tcase_add_test(tcase, a_deleted_executable_has_its_name);
	tcase_add_test(tcase, arguments_are_joined_by_spaces);
	tcase_add_test(tcase, arguments_that_do_not_fit_are_cut_at_a_character);
	tcase_add_test(tcase, two_mebibytes_of_arguments_are_read_as_far_as_there_is_room);
	tcase_add_test(tcase, a_file_that_is_opened_as_descriptor_0_is_read);
	tcase_add_test(tcase, only_numbers_are_pids);
	tcase_add_test(tcase, a_pid_file_says_a_pid_or_nothing);
	tcase_add_test(tcase, a_pipe_as_pid_file_does_not_hold_us_up);
	tcase_add_loop_test(tcase, cpus_are_those_that_the_kernel_lists, PROC_CPUS_POSSIBLE, PROC_CPUS_ONLINE + 1);
	tcase_add_test(tcase, a_thread_that_may_run_on_one_cpu_still_sees_all);
	tcase_add_test(tcase, a_list_of_cpus_may_be_longer_than_a_page_and_have_gaps);
	tcase_add_test(tcase, without_a_list_the_masks_of_the_kernel_say_how_many_cpus_can_be);
	suite_add_tcase(suite, tcase);

	return suite;
}
