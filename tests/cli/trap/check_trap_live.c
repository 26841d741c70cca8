/* check_trap_live.c: what the line of spikewatch trap says, and that it stays one line. */
#include "cli/trap/trap.h"

#include "lib/base/base.h"

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

Suite *trap_live_suite(void);

static char text[TRAP_LIVE_TEXT_MAX];

static const char *say(const struct trap_plan *plan, const struct trap_session_view *view, uint64_t wanted)
{
	return trap_live_text(plan, view, 12300 * NS_PER_MS, wanted, text, sizeof(text));
}

START_TEST(it_says_values_and_what_they_are_held_against)
{
	struct trap_plan plan = { .cpu_percent = 80, .memory_bytes = 512 << 20 };
	struct trap_session_view view = {
		.targets = 1,
		.name = "job-812",
		.has_cpu = true,
		.cpu_percent = 43.4,
		.has_memory = true,
		.memory_bytes = 84 << 20,
	};

	ck_assert_str_eq(say(&plan, &view, 1), "12.3 s: job-812 CPU 43% of 80%, memory 84 MiB of 512 MiB");
	plan.memory_bytes = 0;
	view.pending_ns = 600 * NS_PER_MS;
	ck_assert_str_eq(say(&plan, &view, 1), "12.3 s: job-812 CPU 43% of 80%, memory 84 MiB; over for 0.6 s");
	view.has_cpu = false;
	view.pending_ns = 0;
	view.targets = 3;
	ck_assert_str_eq(say(&plan, &view, 1), "12.3 s: job-812 memory 84 MiB; the nearest of 3");
}
END_TEST

START_TEST(it_says_what_it_waits_for_otherwise)
{
	struct trap_plan plan = { .cpu_percent = 80, .comm = "a\033b" };
	struct trap_session_view view = { .caught = 1 };

	ck_assert_str_eq(say(&plan, &view, 3), "12.3 s: caught 1 of 3; no process is called a\\x1bb yet");
	view = (struct trap_session_view){
		.targets = 1, .name = "x\x1b[2J", .open = 1, .open_ns = 2100 * NS_PER_MS, .disarmed = true
	};
	ck_assert_str_eq(say(&plan, &view, 1), "12.3 s: recording 2.1 s more; x\\x1b[2J");
	view.open = 0;
	ck_assert_str_eq(say(&plan, &view, 1), "12.3 s: x\\x1b[2J; has to come down first");
}
END_TEST

/* A terminal of so many columns: our side, and in *ret_file the other. */
static int open_terminal(unsigned short columns, FILE **ret_file)
{
	struct winsize size = { .ws_row = 24, .ws_col = columns };
	int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);

	ck_assert_int_ge(master, 0);
	ck_assert_int_eq(grantpt(master), 0);
	ck_assert_int_eq(unlockpt(master), 0);
	int slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
	ck_assert_int_ge(slave, 0);
	ck_assert_int_eq(ioctl(slave, TIOCSWINSZ, &size), 0);
	*ret_file = fdopen(slave, "w");
	ck_assert_ptr_nonnull(*ret_file);

	return master;
}

static const char *seen(int master)
{
	static char buf[4096];
	ssize_t got = read(master, buf, sizeof(buf) - 1);

	ck_assert_int_gt(got, 0);
	buf[got] = '\0';

	return buf;
}

START_TEST(it_never_fills_the_terminal_and_takes_itself_back)
{
	struct winsize narrow = { .ws_row = 24, .ws_col = 10 };
	struct trap_live live;
	FILE *file;
	int master = open_terminal(20, &file);

	setenv("TERM", "xterm", 1);
	trap_live_detect(&live, file);
	ck_assert(live.on);
	trap_live_draw(&live, "0123456789012345678901234");
	ck_assert_str_eq(seen(master), "\r\033[J0123456789012345678");
	trap_live_draw(&live, "\xc3\xa4\xc3\xa4");
	ck_assert_str_eq(seen(master), "\r\033[J\xc3\xa4\xc3\xa4");
	trap_live_draw(&live, "0123456789012345678");
	seen(master);
	/* Nineteen columns in a terminal of ten are two lines. */
	ck_assert_int_eq(ioctl(fileno(file), TIOCSWINSZ, &narrow), 0);
	trap_live_draw(&live, "x");
	ck_assert_str_eq(seen(master), "\033[1A\r\033[Jx");
	trap_live_erase(&live);
	ck_assert_str_eq(seen(master), "\r\033[J");
	ck_assert_uint_eq(live.shown, 0);
	fclose(file);
	close(master);
}
END_TEST

START_TEST(there_is_none_where_it_cannot_be_taken_back)
{
	struct trap_live live;
	FILE *terminal, *file = tmpfile();
	int master = open_terminal(20, &terminal);

	setenv("TERM", "dumb", 1);
	trap_live_detect(&live, terminal);
	ck_assert(!live.on);
	setenv("TERM", "xterm", 1);
	trap_live_detect(&live, file);
	ck_assert(!live.on);
	trap_live_draw(&live, "x");
	trap_live_erase(&live);
	ck_assert_int_eq(ftell(file), 0);
	fclose(file);
	fclose(terminal);
	close(master);
}
END_TEST

Suite *trap_live_suite(void)
{
	Suite *suite = suite_create("trap_live");
	TCase *tcase = tcase_create("line");

	tcase_add_test(tcase, it_says_values_and_what_they_are_held_against);
	tcase_add_test(tcase, it_says_what_it_waits_for_otherwise);
	tcase_add_test(tcase, it_never_fills_the_terminal_and_takes_itself_back);
	tcase_add_test(tcase, there_is_none_where_it_cannot_be_taken_back);
	suite_add_tcase(suite, tcase);

	return suite;
}
