/*
 * check_top.c: spikewatch top as it is run, beside a daemon that runs: as text, and on a pseudo
 * terminal that is resized, typed at, and given back. What it draws is read as a stream of bytes:
 * what matters is which words come, and that the terminal ends as it began.
 */
#include "program.h"
#include "skip.h"
#include "lib/base/base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <utmp.h>

Suite *top_suite(void);

static char directory[64], spikewatchd[512], spikewatch[512], config_path[128], ring_path[128];
static bool built;
static struct actor actor;
static struct program daemon_program;
static bool runs;

static void configure_as(const char *target, const char *per)
{
	scene_write(
		config_path,
		"{\"sampling\": {\"interval\": \"2ms\", \"rescan_interval\": \"100ms\", \"cpu_budget\": \"100%%\"},\n"
		"\"ring\": {\"path\": \"%s\", \"size\": \"4MiB\", \"lock\": false},\n"
		"\"incidents\": {\"directory\": \"%s/incidents\", \"before\": \"500ms\", \"after\": \"100ms\", "
		"\"min_free\": "
		"\"0B\"},\n"
		"\"state_file\": \"%s/state.json\",\n"
		"\"targets\": [{\"name\": \"%s\", \"pid\": %d, \"per\": \"%s\"}],\n"
		"\"rules\": [{\"name\": \"hot\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": \"100ms\",\n"
		"\"percent\": \"20%%\", \"warmup\": 1, \"cooldown\": \"1h\"},\n"
		"{\"name\": \"lasting\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": \"100ms\",\n"
		"\"percent\": \"1%%\", \"warmup\": 1, \"for\": \"1h\"}]}\n",
		ring_path, directory, directory, target, actor.pid, per);
}

static void configure(const char *target)
{
	configure_as(target, "process");
}

static void start_daemon(void)
{
	const char *const arguments[] = { spikewatchd, "-c", config_path, NULL };

	daemon_program = program_start(arguments, directory, -1, 0);
	runs = true;
	scene_wait_for(program_watches_one(&daemon_program));
}

static void stop_daemon(int number)
{
	kill(daemon_program.pid, number);
	program_wait(&daemon_program);
	runs = false;
}

static void setup(void)
{
	scene_directory(directory);
	snprintf(config_path, sizeof(config_path), "%s/config.json", directory);
	snprintf(ring_path, sizeof(ring_path), "%s/ring", directory);
	built = program_find("spikewatchd", spikewatchd) && program_find("spikewatch", spikewatch);
	actor = actor_start("watched");
	configure("worker");
	setenv("LC_ALL", "C.UTF-8", 1);
	unsetenv("COLUMNS");
	unsetenv("NO_COLOR");
}

static void teardown(void)
{
	if (runs)
		stop_daemon(SIGKILL);
	actor_end(&actor);
	scene_remove(directory);
}

/* ---- as text ---- */

static char out_path[128];
static char *out; /* of the last run; for free(3) */

/* Runs it to its end: the exit code. */
static int run_words(const char *const *words)
{
	snprintf(out_path, sizeof(out_path), "%s/out", directory);
	AUTO_CLOSE int fd = open(out_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	struct program program = program_start(words, "/tmp", fd, 0);
	int code = program_wait(&program);

	unlink(program.err);
	free(out);
	out = scene_read(out_path);
	ck_assert_ptr_nonnull(out);

	return code;
}

#define TOP(...) run_words((const char *const[]){ spikewatch, "top", __VA_ARGS__, NULL })

static bool shows(const char *part)
{
	return strstr(out, part) != NULL;
}

START_TEST(once_prints_one_table_of_what_the_daemon_sees)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	actor_do(&actor, 'b', "busy");
	start_daemon();
	scene_wait_for(TOP("--once", "--ring", ring_path) == 0 && shows("lasting pending") && shows("hot cooling 1"));
	ck_assert_msg(shows("1 target  1 pending, 1 cooling  by cpu  every 2 ms  since "), "%s", out);
	ck_assert_msg(strcspn(out, "\n") <= 80 && strncmp(strchr(out, '\n') + 1, "TARGET", 6) == 0, "%s", out);
	ck_assert_msg(shows("\nworker "), "%s", out);
	ck_assert_msg(!shows("\033"), "%s", out);
	/* The ring may be found through the configuration as well. */
	ck_assert_int_eq(TOP("--once", "-c", config_path, "--sort", "distance"), 0);
	ck_assert_msg(shows("\nworker ") && shows("by distance"), "%s", out);
	ck_assert_int_eq(TOP("--once", "--ring", ring_path, "--filter", "nobody"), 0);
	ck_assert_msg(!shows("\nworker ") && shows("0 of 1 target"), "%s", out);

	setenv("LC_ALL", "C", 1);
	setenv("COLUMNS", "40", 1);
	ck_assert_int_eq(TOP("--once", "--ring", ring_path), 0);
	for (const char *line = out; *line; line += strcspn(line, "\n") + 1)
		ck_assert_msg(strcspn(line, "\n") <= 40, "%s", out);
	for (const char *at = out; *at; at++)
		ck_assert_msg((unsigned char)*at < 0x80, "%s", out);
}
END_TEST

START_TEST(so_many_tables_and_no_more)
{
	size_t heads = 0;

	if (!built)
		SKIP_TEST("the programs were not built");

	start_daemon();
	ck_assert_int_eq(TOP("--count", "3", "-i", "100ms", "--ring", ring_path), 0);
	for (const char *at = out; (at = strstr(at, "TARGET ")) != NULL; at++)
		heads++;
	ck_assert_uint_eq(heads, 3);
}
END_TEST

START_TEST(no_ring_no_table_but_words)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	ck_assert_int_eq(TOP("--once", "--ring", "/nowhere/ring"), 1);
	ck_assert_int_eq(TOP("--once", "--ring", "/etc/passwd"), 2);
	ck_assert_int_eq(TOP("--once", "-c", "/nowhere/config"), 2);
	ck_assert_int_eq(TOP("--sort", "cqu"), 2);
	ck_assert_int_eq(TOP("--interval", "1ms"), 2);
	ck_assert_int_eq(TOP("--count", "0"), 2);
}
END_TEST

/* ---- on a terminal ---- */

struct terminal {
	int fd;
	struct program program;
	struct termios before;
	char said[1 << 20];
	size_t len;
};

static struct terminal terminal;

static void open_terminal(unsigned short lines, unsigned short columns, const char *term)
{
	struct winsize size = { .ws_row = lines, .ws_col = columns };
	const char *const words[] = { spikewatch, "top", "-i", "100ms", "--ring", ring_path, NULL };
	int slave;

	terminal.len = 0;
	ck_assert_int_eq(openpty(&terminal.fd, &slave, NULL, NULL, &size), 0);
	ck_assert_int_eq(tcgetattr(slave, &terminal.before), 0);
	fcntl(terminal.fd, F_SETFD, FD_CLOEXEC);
	fcntl(terminal.fd, F_SETFL, O_NONBLOCK);
	terminal.program.pid = fork();
	ck_assert_int_ge(terminal.program.pid, 0);
	if (terminal.program.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		login_tty(slave);
		if (term)
			setenv("TERM", term, 1);
		else
			unsetenv("TERM");
		execv(words[0], (char *const *)(uintptr_t)words);
		_exit(126);
	}
	close(slave);
}

static void listen_to_it(void)
{
	ssize_t got;

	while (terminal.len + 1 < sizeof(terminal.said) &&
	       (got = read(terminal.fd, terminal.said + terminal.len, sizeof(terminal.said) - 1 - terminal.len)) > 0)
		terminal.len += (size_t)got;
	terminal.said[terminal.len] = '\0';
}

static bool drew(const char *part)
{
	listen_to_it();

	return strstr(terminal.said, part) != NULL;
}

/* What was drawn since the screen was last cleared. */
static const char *last_page(void)
{
	const char *page = terminal.said;

	for (const char *at = page; (at = strstr(at, "\033[2J")) != NULL; at++)
		page = at;

	return page;
}

/* From now on only what is drawn anew counts. */
static void forget(void)
{
	listen_to_it();
	terminal.len = 0;
}

static void type(const char *keys)
{
	forget();
	ck_assert_int_eq(write(terminal.fd, keys, strlen(keys)), (ssize_t)strlen(keys));
}

static void resize(unsigned short lines, unsigned short columns)
{
	struct winsize size = { .ws_row = lines, .ws_col = columns };

	forget();
	ck_assert_int_eq(ioctl(terminal.fd, TIOCSWINSZ, &size), 0); /* sends SIGWINCH */
}

static bool same_modes(const struct termios *a, const struct termios *b)
{
	return a->c_iflag == b->c_iflag && a->c_oflag == b->c_oflag && a->c_cflag == b->c_cflag &&
	       a->c_lflag == b->c_lflag;
}

/* Its exit code; the terminal must be as it was. The master knows the modes too. */
static int ended(void)
{
	struct termios after;
	int status = 0;
	pid_t pid = 0;

	scene_wait_for((listen_to_it(), (pid = waitpid(terminal.program.pid, &status, WNOHANG)) != 0));
	ck_assert_int_eq(pid, terminal.program.pid);
	listen_to_it();
	ck_assert_int_eq(tcgetattr(terminal.fd, &after), 0);
	ck_assert(same_modes(&after, &terminal.before));
	close(terminal.fd);

	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

START_TEST(keys_sort_filter_pause_help_and_quit)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	start_daemon();
	open_terminal(24, 100, "xterm-256color");
	scene_wait_for(drew("worker") && drew("by cpu"));
	ck_assert(drew("\033[?1049h"));
	type("m\f");
	scene_wait_for(drew("memory"));
	type("d\f");
	scene_wait_for(drew("distance"));
	type("r\f");
	scene_wait_for(drew("reversed"));
	type("n\033[B\033[6~\033[5~\033[A\f");
	scene_wait_for(drew("name"));
	type("?\f");
	scene_wait_for(drew("LAST MINUTE: highest") && drew("open the target"));
	type("?\f/nob\f");
	scene_wait_for(drew("nob_"));
	scene_wait_for(drew("0 of 1 target"));
	type("q\f"); /* a letter like any other, while it is typed */
	scene_wait_for(drew("q_"));
	type("\033");
	scene_wait_for(drew("worker"));
	type("p\f");
	scene_wait_for(drew("paused"));
	type("p");
	type("q");
	ck_assert_int_eq(ended(), 0);
	ck_assert(strstr(terminal.said, "\033[?1049l") != NULL);
}
END_TEST

START_TEST(follows_the_size_of_the_terminal)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	start_daemon();
	open_terminal(24, 150, "xterm-256color");
	scene_wait_for(drew("RULES"));
	resize(10, 40);
	scene_wait_for(drew("DIST"));
	/* What was on its way before that is cleared; the line of heads ends there. */
	scene_wait_for(drew("\033[2J") && strstr(last_page(), "DIST"));
	ck_assert_msg(!strstr(last_page(), "RULES") && !strstr(last_page(), "PEAK"), "%s", terminal.said);
	resize(2, 5);
	scene_wait_for(drew(".."));
	resize(1, 1);
	resize(30, 200);
	scene_wait_for(drew("PEAK") && drew("RULES") && drew("worker"));
	type("q");
	ck_assert_int_eq(ended(), 0);
}
END_TEST

/* Whether part is on a page that is drawn anew (Ctrl-L): what comes until nothing has come for a while. */
static bool page_has(const char *part)
{
	size_t before = 0;

	forget();
	ck_assert_int_eq(write(terminal.fd, "\f", 1), 1);
	scene_wait_for(drew("\033[2J"));
	while (before != terminal.len) {
		before = terminal.len;
		for (int naps = 0; naps < 10; naps++)
			scene_nap();
		listen_to_it();
	}

	return strstr(last_page(), part) != NULL;
}

#define TYPE_UNTIL(keys, part) \
	do { \
		type(keys); \
		scene_wait_for(page_has(part)); \
	} while (0)

static bool incident_is_there(const char *part)
{
	char path[128];
	DIR *dir;
	bool found = false;

	snprintf(path, sizeof(path), "%s/incidents", directory);
	dir = opendir(path);
	for (struct dirent *item; dir && (item = readdir(dir));)
		found |= strstr(item->d_name, part) && !strstr(item->d_name, ".tmp");
	if (dir)
		closedir(dir);
	return found;
}

/* On 80 by 24, where nothing may be cut, and on 120 by 40. */
static const unsigned short sizes[][2] = { { 24, 80 }, { 40, 120 } };

START_TEST(enter_opens_a_target_t_triggers_and_i_shows_incidents)
{
	char pid[32];

	if (!built)
		SKIP_TEST("the programs were not built");

	actor_do(&actor, 'b', "busy");
	start_daemon();
	open_terminal(sizes[_i][0], sizes[_i][1], "xterm-256color");
	scene_wait_for(drew("worker"));
	snprintf(pid, sizeof(pid), "process %d, of entry worker", actor.pid);
	TYPE_UNTIL("\r", pid);
	scene_wait_for(page_has("cooling"));
	/* The command line, the last minute, the rules with their distance, the threads. */
	ck_assert_ptr_nonnull(strstr(last_page(), "peak"));
	ck_assert_ptr_nonnull(strstr(last_page(), "THRESHOLD"));
	ck_assert_ptr_nonnull(strstr(last_page(), "hot "));
	ck_assert_ptr_nonnull(strstr(last_page(), "20%"));
	ck_assert_ptr_nonnull(strstr(last_page(), "THREAD "));
	ck_assert_ptr_nonnull(strstr(last_page(), "watched"));
	ck_assert_ptr_null(strstr(last_page(), ".."));

	/* Until then a request would be added to that one. */
	scene_wait_for(incident_is_there("worker-hot"));
	TYPE_UNTIL("t", "Record an incident of worker now?");
	TYPE_UNTIL("x", "arrows scroll");
	ck_assert(!incident_is_there("manual"));
	TYPE_UNTIL("ty", "-worker-manual; sealed in");
	scene_wait_for(incident_is_there("worker-manual"));
	TYPE_UNTIL("i", "asked for by hand");
	ck_assert_ptr_nonnull(strstr(last_page(), "TARGET              RULE            VALUE"));
	/* Drawn by moving to its column. */
	ck_assert_msg(strstr(last_page(), "worker\033[4;35Hhot\033[4;51H"), "%s", last_page());
	TYPE_UNTIL("/manual\r", "1 incidents in");
	TYPE_UNTIL("\r", "-worker-manual-1");
	ck_assert_ptr_nonnull(strstr(last_page(), "because it was asked for"));
	TYPE_UNTIL("f", "a record of worker");
	TYPE_UNTIL("\033", "1 incidents in");
	TYPE_UNTIL("\033", "\033[4;35Hhot"); /* the search */
	TYPE_UNTIL("\033", pid);
	TYPE_UNTIL("?", "open the target: threads");
	TYPE_UNTIL("q", pid);
	TYPE_UNTIL("q", "LAST MINUTE");
	type("q");
	ck_assert_int_eq(ended(), 0);
}
END_TEST

START_TEST(enter_on_a_group_shows_its_processes)
{
	char member[32];

	if (!built)
		SKIP_TEST("the programs were not built");

	configure_as("all", "group");
	actor_do(&actor, 'b', "busy");
	start_daemon();
	open_terminal(24, 80, "xterm-256color");
	scene_wait_for(drew("hot"));
	TYPE_UNTIL("\r", "all: a group, of entry all");
	snprintf(member, sizeof(member), "%d", actor.pid); /* the blanks after it may be drawn as a motion */
	scene_wait_for(page_has(member));
	stop_daemon(SIGTERM);
	scene_wait_for(page_has("spikewatchd did not say which these are") || page_has("has ended"));
	type("q");
	type("q");
	ck_assert_int_eq(ended(), 0);
}
END_TEST

START_TEST(without_a_daemon_a_trigger_says_so_at_the_end_of_the_screen)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	start_daemon();
	open_terminal(24, 80, "xterm-256color");
	scene_wait_for(drew("worker"));
	stop_daemon(SIGTERM);
	TYPE_UNTIL("t", "Record an incident of worker now?");
	TYPE_UNTIL("y", "no daemon answers at");
	type("q");
	type("q");
	ck_assert_int_eq(ended(), 0);
}
END_TEST

/* Whether any sequence chooses a colour. */
static bool colored(void)
{
	return drew("\033[31m") || drew("\033[33m") || drew(";31m") || drew(";33m");
}

START_TEST(colours_unless_nobody_wants_them)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	actor_do(&actor, 'b', "busy");
	start_daemon();
	open_terminal(24, 120, "xterm-256color");
	scene_wait_for(drew("lasting pending"));
	scene_wait_for(colored());
	type("q");
	ck_assert_int_eq(ended(), 0);

	setenv("NO_COLOR", "1", 1);
	open_terminal(24, 120, "xterm-256color");
	scene_wait_for(drew("lasting pending"));
	type("q");
	ck_assert_int_eq(ended(), 0);
	ck_assert(!colored());

	/* A terminal that has none. */
	unsetenv("NO_COLOR");
	open_terminal(24, 120, "vt100");
	scene_wait_for(drew("lasting pending"));
	type("q");
	ck_assert_int_eq(ended(), 0);
	ck_assert(!colored());
}
END_TEST

START_TEST(a_terminal_without_a_cursor_gets_text)
{
	static const char *const kinds[] = { "dumb", NULL, "no-such-terminal" };

	if (!built)
		SKIP_TEST("the programs were not built");

	start_daemon();
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		open_terminal(24, 80, kinds[i]);
		scene_wait_for(drew("worker"));
		ck_assert_msg(!drew("\033"), "%s", terminal.said);
		kill(terminal.program.pid, SIGINT);
		ck_assert_int_eq(ended(), 128 + SIGINT);
	}
}
END_TEST

START_TEST(signals_give_the_terminal_back)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };

	if (!built)
		SKIP_TEST("the programs were not built");

	start_daemon();
	for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
		open_terminal(24, 80, "xterm");
		scene_wait_for(drew("worker"));
		kill(terminal.program.pid, signals[i]);
		ck_assert_int_eq(ended(), 0);
		ck_assert(strstr(terminal.said, "\033[?1049l") != NULL);
	}
}
END_TEST

START_TEST(a_terminal_that_hangs_up_ends_it)
{
	int status = 0;

	if (!built)
		SKIP_TEST("the programs were not built");

	start_daemon();
	open_terminal(24, 80, "xterm");
	scene_wait_for(drew("worker"));
	close(terminal.fd);
	scene_wait_for(waitpid(terminal.program.pid, &status, WNOHANG) != 0);
	/*
	 * The kernel says so twice: to the leader of the session and to the owner of the terminal.
	 */
	ck_assert(WIFEXITED(status) || WTERMSIG(status) == SIGHUP);
}
END_TEST

START_TEST(waits_for_a_daemon_that_is_started_anew)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	start_daemon();
	open_terminal(24, 120, "xterm");
	scene_wait_for(drew("worker"));
	forget();
	stop_daemon(SIGKILL);
	scene_wait_for(drew("the daemon has died"));
	forget();
	configure("second");
	start_daemon();
	scene_wait_for(drew("second"));
	forget();
	stop_daemon(SIGTERM);
	/* Drawn anew each time: of a line that begins as the one before it did only the rest is drawn. */
	scene_wait_for((type("\f"), drew("the daemon has stopped")));
	type("q");
	ck_assert_int_eq(ended(), 0);
}
END_TEST

Suite *top_suite(void)
{
	Suite *suite = suite_create("top");
	TCase *text = tcase_create("text"), *screen = tcase_create("screen");

	tcase_add_checked_fixture(text, setup, teardown);
	tcase_add_test(text, once_prints_one_table_of_what_the_daemon_sees);
	tcase_add_test(text, so_many_tables_and_no_more);
	tcase_add_test(text, no_ring_no_table_but_words);
	suite_add_tcase(suite, text);

	tcase_add_checked_fixture(screen, setup, teardown);
	tcase_add_test(screen, keys_sort_filter_pause_help_and_quit);
	tcase_add_test(screen, follows_the_size_of_the_terminal);
	tcase_add_loop_test(screen, enter_opens_a_target_t_triggers_and_i_shows_incidents, 0, ARRAY_LEN(sizes));
	tcase_add_test(screen, enter_on_a_group_shows_its_processes);
	tcase_add_test(screen, without_a_daemon_a_trigger_says_so_at_the_end_of_the_screen);
	tcase_add_test(screen, colours_unless_nobody_wants_them);
	tcase_add_test(screen, a_terminal_without_a_cursor_gets_text);
	tcase_add_test(screen, signals_give_the_terminal_back);
	tcase_add_test(screen, a_terminal_that_hangs_up_ends_it);
	tcase_add_test(screen, waits_for_a_daemon_that_is_started_anew);
	suite_add_tcase(suite, screen);

	return suite;
}
