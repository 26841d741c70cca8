/* Addresses to listen on: what is read as which, and what is none. */
#include "lib/base/units.h"

#include "lib/base/base.h"

#include <check.h>
#include <errno.h>
#include <string.h>

Suite *listen_address_suite(void);

static const struct {
	const char *text, *host;
	uint16_t port;
} good[] = {
	{ "7745", "127.0.0.1", 7745 },
	{ "1", "127.0.0.1", 1 },
	{ "00080", "127.0.0.1", 80 },
	{ "0.0.0.0:65535", "0.0.0.0", 65535 },
	{ "[::1]:7745", "::1", 7745 },
	{ "[0:0::0]:7745", "::", 7745 },
	{ "[::FFFF:10.0.0.1]:7745", "::ffff:10.0.0.1", 7745 },
	{ "[1111:2222:3333:4444:5555:6666:7777:8888]:65535", "1111:2222:3333:4444:5555:6666:7777:8888", 65535 },
};

START_TEST(address_is_read)
{
	struct listen_address address;

	ck_assert_int_eq(listen_address_parse(good[_i].text, strlen(good[_i].text), &address), 0);
	ck_assert_str_eq(address.host, good[_i].host);
	ck_assert_uint_eq(address.port, good[_i].port);
}
END_TEST

static const char *const bad[] = {
	"",
	"0",
	"65536",
	"000080",
	"-1",
	"+1",
	" 80",
	"80 ",
	":80",
	"*:80",
	"localhost:80",
	"127.0.0.1",
	"127.0.0.1:",
	"127.0.0.1:0",
	"127.0.0.1:http",
	"127.0.0.256:80",
	"127.1:80",
	"::1:80",
	"[::1]",
	"[::1]80",
	"[::1:80",
	"[127.0.0.1]:80",
	"[]:80",
	"[fe80::1%lo]:80",
	"[[::1]]:80",
	"127.0.0.1:80:80",
	"[0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000]:80",
};

START_TEST(what_is_no_address_is_refused_and_leaves_the_result_alone)
{
	struct listen_address address = { .host = "x", .port = 7 };

	ck_assert_int_eq(listen_address_parse(bad[_i], strlen(bad[_i]), &address), -EINVAL);
	ck_assert_str_eq(address.host, "x");
	ck_assert_uint_eq(address.port, 7);
}
END_TEST

START_TEST(text_ends_where_it_is_said_to)
{
	struct listen_address address;

	ck_assert_int_eq(listen_address_parse("77451", 4, &address), 0);
	ck_assert_uint_eq(address.port, 7745);
	ck_assert_int_eq(listen_address_parse("127.0.0.1\0:80", 13, &address), -EINVAL);
}
END_TEST

Suite *listen_address_suite(void)
{
	Suite *suite = suite_create("listen_address");
	TCase *tcase = tcase_create("texts");

	tcase_add_loop_test(tcase, address_is_read, 0, ARRAY_LEN(good));
	tcase_add_loop_test(tcase, what_is_no_address_is_refused_and_leaves_the_result_alone, 0, ARRAY_LEN(bad));
	tcase_add_test(tcase, text_ends_where_it_is_said_to);
	suite_add_tcase(suite, tcase);
	return suite;
}
