/* check_watchdog.c: which thread is alive, and when systemd gets its keep-alive message. */
int spikewatchd_main(int argc, char **argv);

#define main spikewatchd_main
#include "daemon/service/main.c"
#undef main

#include <check.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

Suite *watchdog_suite(void);

static int notified = -1; /* where messages to systemd arrive */

/* An abstract socket: nothing to clean up. */
static void setup(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char name[64];
	int len = snprintf(name, sizeof(name), "@spikewatch-check-%d", (int)getpid());

	memcpy(address.sun_path, name, (size_t)len);
	address.sun_path[0] = '\0';
	notified = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(notified, 0);
	ck_assert_int_eq(bind(notified, (struct sockaddr *)&address,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)len)),
			 0);
	setenv("NOTIFY_SOCKET", name, 1);
	setenv("WATCHDOG_USEC", "8000000", 1);
	unsetenv("WATCHDOG_PID");
}

static void teardown(void)
{
	close(notified);
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
}

static bool was_sent(void)
{
	char text[64] = "";
	ssize_t len = recv(notified, text, sizeof(text) - 1, 0);

	return len > 0 && strcmp(text, "WATCHDOG=1") == 0;
}

static mono_t at(uint64_t ms)
{
	return (mono_t){ 1000 * NS_PER_S + ms * NS_PER_MS };
}

START_TEST(no_message_is_sent_without_systemd)
{
	struct watchdog watchdog = { 0 };

	unsetenv("WATCHDOG_USEC");
	set_limits(&watchdog, 0);
	ck_assert_uint_eq(watchdog.period_ns, 0);
	ck_assert(!send_keep_alive(&watchdog, at(0), at(0)));
	ck_assert(!was_sent());
}
END_TEST

START_TEST(messages_are_sent_four_times_as_often_as_systemd_expects)
{
	struct watchdog watchdog = { 0 };

	set_limits(&watchdog, 0);
	ck_assert_uint_eq(watchdog.period_ns, 2 * NS_PER_S);
	ck_assert(send_keep_alive(&watchdog, at(0), at(0)));
	ck_assert(was_sent());
	ck_assert(!send_keep_alive(&watchdog, at(1999), at(1999)));
	ck_assert(!was_sent());
	ck_assert(send_keep_alive(&watchdog, at(2000), at(2000)));
	ck_assert(was_sent());
}
END_TEST

START_TEST(a_sampler_that_is_silent_holds_the_message_back)
{
	struct watchdog watchdog = { 0 };

	set_limits(&watchdog, 0);
	ck_assert(!send_keep_alive(&watchdog, at(89999), at(100000)));
	ck_assert(!was_sent());
	ck_assert(send_keep_alive(&watchdog, at(90000), at(100000)));
	ck_assert(was_sent());
}
END_TEST

/* Messages until the receiver's queue is full. Their number. */
static unsigned fill_queue(void)
{
	struct watchdog watchdog = { 0 };
	unsigned count = 0;

	set_limits(&watchdog, 0);
	while (count < 100000 && send_keep_alive(&watchdog, at(2000 * count), at(2000 * count)))
		count++;

	return count;
}

START_TEST(a_receiver_that_does_not_read_is_not_waited_for)
{
	unsigned count = fill_queue();
	struct watchdog watchdog = { 0 };

	ck_assert_uint_gt(count, 0);
	ck_assert_uint_lt(count, 100000);
	ck_assert(!notify_manager("READY=1"));
	for (; count > 0; count--)
		ck_assert(was_sent());
	ck_assert(!was_sent());

	/* A message that could not be sent is not one of the past two seconds. */
	fill_queue();
	set_limits(&watchdog, 0);
	ck_assert(!send_keep_alive(&watchdog, at(0), at(0)));
	ck_assert(was_sent());
	ck_assert(send_keep_alive(&watchdog, at(1), at(1)));
}
END_TEST

START_TEST(a_receiver_may_be_a_path)
{
	char directory[] = "/tmp/check_watchdog.XXXXXX", name[64], text[64] = "";
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(name, sizeof(name), "%s/notify", directory);
	memcpy(address.sun_path, name, strlen(name));
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	setenv("NOTIFY_SOCKET", name, 1);
	ck_assert(notify_manager("READY=1"));
	ck_assert_int_eq(recv(fd, text, sizeof(text) - 1, 0), 7);
	ck_assert_str_eq(text, "READY=1");
	close(fd);
	ck_assert(!notify_manager("READY=1"));
	unlink(name);
	rmdir(directory);
	unsetenv("NOTIFY_SOCKET");
	ck_assert(notify_manager("READY=1"));
}
END_TEST

START_TEST(a_thread_is_silent_only_beyond_its_limit)
{
	ck_assert_uint_eq(silence(at(0), SILENCE_NS, at(10000)), 0);
	ck_assert_uint_eq(silence(at(0), SILENCE_NS, at(10001)), 10001 * NS_PER_MS);
	ck_assert_uint_eq(silence(at(5000), SILENCE_NS, at(0)), 0); /* a sign that is newer than the look */
	ck_assert_uint_eq(silence(at(1000), COLLECTING_MAX_NS, at(121000)), 0);
	ck_assert_uint_eq(silence(at(1000), COLLECTING_MAX_NS, at(121001)), 120001 * NS_PER_MS);
}
END_TEST

START_TEST(limits_can_be_shortened)
{
	struct watchdog watchdog = { 0 };

	set_limits(&watchdog, 0);
	ck_assert_uint_eq(watchdog.first_scan_ns, 5 * NS_PER_S);
	ck_assert_uint_eq(watchdog.silence_ns, 10 * NS_PER_S);
	set_limits(&watchdog, NS_PER_S);
	ck_assert_uint_eq(watchdog.first_scan_ns, NS_PER_S);
	ck_assert_uint_eq(watchdog.silence_ns, 2 * NS_PER_S); /* a thread shows a sign once a second */
}
END_TEST

Suite *watchdog_suite(void)
{
	Suite *suite = suite_create("watchdog");
	TCase *tcase = tcase_create("watchdog");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, no_message_is_sent_without_systemd);
	tcase_add_test(tcase, messages_are_sent_four_times_as_often_as_systemd_expects);
	tcase_add_test(tcase, a_sampler_that_is_silent_holds_the_message_back);
	tcase_add_test(tcase, a_receiver_that_does_not_read_is_not_waited_for);
	tcase_add_test(tcase, a_receiver_may_be_a_path);
	tcase_add_test(tcase, a_thread_is_silent_only_beyond_its_limit);
	tcase_add_test(tcase, limits_can_be_shortened);
	suite_add_tcase(suite, tcase);

	return suite;
}
