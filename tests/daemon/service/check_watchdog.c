/* check_watchdog.c: who is alive, and what systemd is told. */
#include "daemon/service/watchdog.h"
#include "lib/base/base.h"

#include <check.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

Suite *watchdog_suite(void);

static int notified = -1; /* where the words to systemd arrive */

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

static bool was_told(void)
{
	char text[64] = "";
	ssize_t len = recv(notified, text, sizeof(text) - 1, 0);

	return len > 0 && strcmp(text, "WATCHDOG=1") == 0;
}

static mono_t at(uint64_t ms)
{
	return (mono_t){ 1000 * NS_PER_S + ms * NS_PER_MS };
}

START_TEST(nobody_waits_for_a_word_without_systemd)
{
	struct watchdog watchdog;

	unsetenv("WATCHDOG_USEC");
	watchdog_init(&watchdog);
	ck_assert_uint_eq(watchdog.period_ns, 0);
	ck_assert(!watchdog_feed(&watchdog, NULL, 0, at(0)));
	ck_assert(!was_told());
}
END_TEST

START_TEST(the_word_comes_four_times_as_often_as_it_must)
{
	struct watchdog watchdog;
	struct watchdog_sign sign = { .part = "sampler", .at = at(0) };

	watchdog_init(&watchdog);
	ck_assert_uint_eq(watchdog.period_ns, 2 * NS_PER_S);
	ck_assert(watchdog_feed(&watchdog, &sign, 1, at(0)));
	ck_assert(was_told());
	ck_assert(!watchdog_feed(&watchdog, &sign, 1, at(1999)));
	ck_assert(!was_told());
	ck_assert(watchdog_feed(&watchdog, &sign, 1, at(2000)));
	ck_assert(was_told());
}
END_TEST

START_TEST(one_part_that_is_silent_keeps_the_word_back)
{
	struct watchdog watchdog;
	struct watchdog_sign signs[] = { { .part = "sampler", .at = at(100000) },
					 { .part = "discovery", .at = at(100000) } };

	watchdog_init(&watchdog);
	for (size_t i = 0; i < 2; i++) {
		signs[i].at = at(89999);
		ck_assert(!watchdog_feed(&watchdog, signs, 2, at(100000)));
		ck_assert(!was_told());
		signs[i].at = at(100000);
	}
	ck_assert(watchdog_feed(&watchdog, signs, 2, at(100000)));
	ck_assert(was_told());
}
END_TEST

START_TEST(a_part_is_silent_only_beyond_the_patience)
{
	struct watchdog_sign sign = { .part = "sampler", .at = at(0) };

	ck_assert_uint_eq(watchdog_silence(&sign, at(10000)), 0);
	ck_assert_uint_eq(watchdog_silence(&sign, at(10001)), 10001 * NS_PER_MS);
	sign.at = at(5000); /* a sign that is newer than the look */
	ck_assert_uint_eq(watchdog_silence(&sign, at(0)), 0);
}
END_TEST

START_TEST(a_part_may_have_a_patience_of_its_own)
{
	struct watchdog_sign sign = { .part = "collector", .at = at(1000), .patience_ns = 120 * NS_PER_S };

	ck_assert_uint_eq(watchdog_silence(&sign, at(999)), 0);
	ck_assert_uint_eq(watchdog_silence(&sign, at(121000)), 0);
	ck_assert_uint_eq(watchdog_silence(&sign, at(121001)), 120001 * NS_PER_MS);
}
END_TEST

Suite *watchdog_suite(void)
{
	Suite *suite = suite_create("watchdog");
	TCase *tcase = tcase_create("watchdog");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, nobody_waits_for_a_word_without_systemd);
	tcase_add_test(tcase, the_word_comes_four_times_as_often_as_it_must);
	tcase_add_test(tcase, one_part_that_is_silent_keeps_the_word_back);
	tcase_add_test(tcase, a_part_is_silent_only_beyond_the_patience);
	tcase_add_test(tcase, a_part_may_have_a_patience_of_its_own);
	suite_add_tcase(suite, tcase);

	return suite;
}
