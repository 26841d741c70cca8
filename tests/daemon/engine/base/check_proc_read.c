/* check_proc_read.c: small files, links and names below a proc root. */
#include "daemon/engine/base/foreign.h"
#include "daemon/engine/base/proc_read.h"
#include "scene.h"

#include <errno.h>
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
	ck_assert_int_eq(foreign_cmdline(FOREIGN_DISCOVERY, procfd, 10, buf, sizeof(buf)), 0);
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
	suite_add_tcase(suite, tcase);

	return suite;
}
