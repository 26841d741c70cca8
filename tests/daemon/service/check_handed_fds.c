/*
 * check_handed_fds.c: descriptors 3 and up as systemd hands them over, in a child of the test; and
 * the daemon behind them.
 */
#include "daemon/service/control.h"

#include "program.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/un.h>

Suite *handed_fds_suite(void);

static char directory[64];

static void setup(void)
{
	scene_directory(directory);
}

static void teardown(void)
{
	scene_remove(directory);
}

/* ---- what is handed over: a letter each ---- */

static int unix_socket(int type, bool listening)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, type, 0);
	static unsigned number;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket.%d.%u", directory, getpid(), number++);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || (listening && listen(fd, 4) < 0))
		return -1;

	return fd;
}

static int inet_socket(int family, int type)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(family, type, 0);

	if (bind(fd, family == AF_INET ? (void *)&v4 : (void *)&v6, family == AF_INET ? sizeof(v4) : sizeof(v6)) < 0 ||
	    (type == SOCK_STREAM && listen(fd, 4) < 0))
		return -1;

	return fd;
}

static int make(char what)
{
	switch (what) {
	case 'u':
		return unix_socket(SOCK_STREAM, true);
	case 'd':
		return unix_socket(SOCK_DGRAM, false);
	case 'c':
		return unix_socket(SOCK_STREAM, false);
	case '4':
		return inet_socket(AF_INET, SOCK_STREAM);
	case '6':
		return inet_socket(AF_INET6, SOCK_STREAM);
	case 'n':
		return inet_socket(AF_INET, SOCK_DGRAM);
	default:
		return open("/dev/null", O_RDWR);
	}
}

/* In the child: descriptors 3 and up are these, and the environment says so. */
static void hand_over(const char *what)
{
	char text[32];
	int fds[16], count = 0;

	for (; what[count]; count++) {
		int fd = make(what[count]);

		if (fd < 0)
			_exit(100);
		fds[count] = fcntl(fd, F_DUPFD, 64);
	}
	for (int fd = 3; fd < 64; fd++)
		close(fd);
	for (int i = 0; i < count; i++) {
		dup2(fds[i], 3 + i);
		close(fds[i]);
	}
	snprintf(text, sizeof(text), "%d", count);
	setenv("LISTEN_FDS", text, 1);
	snprintf(text, sizeof(text), "%d", getpid());
	setenv("LISTEN_PID", text, 1);
}

/* Takes them in a child; the test is what the child finds. */
static void takes(const char *what, int control, int metrics, size_t unknown)
{
	pid_t pid = fork();
	int status = 0;

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		struct handed_fds handed, again;

		hand_over(what);
		if (handed_fds_take(&handed) != 0)
			_exit(1);
		if (handed.control != control || handed.metrics != metrics || handed.unknown != unknown)
			_exit(2);
		for (int i = 0; what[i]; i++) {
			int flags = fcntl(3 + i, F_GETFD);
			bool kept = 3 + i == control || 3 + i == metrics;

			if (kept != (flags >= 0) ||
			    (kept && (!(flags & FD_CLOEXEC) || !(fcntl(3 + i, F_GETFL) & O_NONBLOCK))))
				_exit(3);
		}
		if (handed_fds_take(&again) != 0 || again.control || again.metrics || again.unknown ||
		    getenv("LISTEN_FDS"))
			_exit(4);
		handed_fds_release(&handed);
		_exit(fcntl(3, F_GETFD) < 0 && fcntl(4, F_GETFD) < 0 ? 0 : 5);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "\"%s\": %d", what, WEXITSTATUS(status));
}

START_TEST(sockets_are_told_apart_by_what_they_are)
{
	takes("u", 3, 0, 0);
	takes("4", 0, 3, 0);
	takes("u4", 3, 4, 0);
	takes("4u", 4, 3, 0);
	if (inet_socket(AF_INET6, SOCK_STREAM) >= 0)
		takes("6u", 4, 3, 0);
}
END_TEST

START_TEST(what_is_unknown_or_too_many_is_closed_and_counted)
{
	takes("x", 0, 0, 1);
	takes("dcnx", 0, 0, 4);
	takes("x4du", 6, 4, 2);
	takes("uu44", 3, 5, 2);
}
END_TEST

/* Of another process: it was not meant for us. */
START_TEST(what_another_process_was_handed_is_left_alone)
{
	struct handed_fds handed;

	setenv("LISTEN_FDS", "1", 1);
	setenv("LISTEN_PID", "1", 1);
	ck_assert_int_eq(handed_fds_take(&handed), 0);
	ck_assert_int_eq(handed.control + handed.metrics, 0);
	ck_assert_uint_eq(handed.unknown, 0);
}
END_TEST

/* ---- the daemon ---- */

/* Whether what answers the request says so. */
static bool answers(int family, const void *address, socklen_t len, const char *request, const char *part)
{
	char text[65536] = "";
	size_t had = 0;
	ssize_t got;
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){ .tv_sec = 1 }, sizeof(struct timeval));
	if (connect(fd, address, len) == 0 && send(fd, request, strlen(request), MSG_NOSIGNAL) > 0)
		while (had < sizeof(text) - 1 && (got = recv(fd, text + had, sizeof(text) - 1 - had, 0)) > 0)
			had += (size_t)got;
	close(fd);

	return strstr(text, part) != NULL;
}

/* It has no socket of its own making, and the one that was there before it is there after it. */
START_TEST(the_daemon_answers_at_the_sockets_that_it_is_handed)
{
	static char spikewatchd[512];
	struct sockaddr_un control = { .sun_family = AF_UNIX };
	struct sockaddr_in web = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(web);
	char config[128], err[128];

	if (!program_find("spikewatchd", spikewatchd))
		return;

	snprintf(config, sizeof(config), "%s/config.json", directory);
	snprintf(err, sizeof(err), "%s/stderr", directory);
	scene_write(config,
		    "{\"ring\": {\"path\": \"%s/ring\", \"size\": \"4MiB\", \"lock\": false},\n"
		    "\"incidents\": {\"directory\": \"%s/incidents\", \"min_free\": \"0B\"},\n"
		    "\"state_file\": \"%s/state.json\", \"targets\": [{\"name\": \"me\", \"pid\": %d}]}\n",
		    directory, directory, directory, getpid());
	snprintf(control.sun_path, sizeof(control.sun_path), "%s/handed", directory);

	int unix_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), web_fd = inet_socket(AF_INET, SOCK_STREAM);

	ck_assert_int_eq(bind(unix_fd, (struct sockaddr *)&control, sizeof(control)), 0);
	ck_assert_int_eq(listen(unix_fd, 4), 0);
	ck_assert_int_eq(getsockname(web_fd, (struct sockaddr *)&web, &len), 0);

	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		char text[16];
		int log = open(err, O_WRONLY | O_CREAT | O_APPEND, 0644);
		int fds[] = { fcntl(unix_fd, F_DUPFD, 64), fcntl(web_fd, F_DUPFD, 64) };

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		unsetenv("JOURNAL_STREAM");
		unsetenv("NOTIFY_SOCKET");
		dup2(log, STDERR_FILENO);
		dup2(fds[0], 4);
		dup2(fds[1], 3);
		close(fds[0]);
		close(fds[1]);
		setenv("LISTEN_FDS", "2", 1);
		snprintf(text, sizeof(text), "%d", getpid());
		setenv("LISTEN_PID", text, 1);
		execl(spikewatchd, spikewatchd, "-c", config, (char *)NULL);
		_exit(126);
	}
	close(unix_fd);
	close(web_fd);
	scene_wait_for(answers(AF_UNIX, &control, sizeof(control), "status\n", "\"daemon\""));
	scene_wait_for(answers(AF_INET, &web, sizeof(web), "GET /metrics HTTP/1.0\r\n\r\n", "spikewatch_build_info{"));
	kill(pid, SIGTERM);

	struct program program = { .pid = pid };
	char own[128];

	ck_assert_int_eq(program_wait(&program), 0);
	ck_assert_int_eq(access(control.sun_path, F_OK), 0);
	snprintf(own, sizeof(own), "%s/control", directory);
	ck_assert_int_lt(access(own, F_OK), 0);
}
END_TEST

Suite *handed_fds_suite(void)
{
	Suite *suite = suite_create("handed_fds");
	TCase *tcase = tcase_create("sockets");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, sockets_are_told_apart_by_what_they_are);
	tcase_add_test(tcase, what_is_unknown_or_too_many_is_closed_and_counted);
	tcase_add_test(tcase, what_another_process_was_handed_is_left_alone);
	tcase_add_test(tcase, the_daemon_answers_at_the_sockets_that_it_is_handed);
	suite_add_tcase(suite, tcase);

	return suite;
}
