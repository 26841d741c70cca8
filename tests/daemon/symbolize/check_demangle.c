/*
 * check_demangle.c: names of C++ and Rust as their sources have them, and those that grow without
 * end left as they are.
 */
#include "daemon/symbolize/symbols.c"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 2048

static void says(const char *mangled, const char *plain)
{
	char text[DEMANGLE_MAX];

	ck_assert_uint_eq(demangle(mangled, strlen(mangled), text), strlen(plain));
	ck_assert_str_eq(text, plain);
}

static void stays(const char *name, size_t len)
{
	char text[DEMANGLE_MAX];

	ck_assert_uint_eq(demangle(name, len, text), 0);
}

START_TEST(names_of_cpp_have_their_arguments)
{
	says("_ZN5store5TableIiE6insertEiPKc", "store::Table<int>::insert(int, char const*)");
	says("_ZNKSt6vectorIiSaIiEE4sizeEv", "std::vector<int, std::allocator<int> >::size() const");
	says("_Z4testv.part.0", "test() [clone .part.0]");
}
END_TEST

START_TEST(names_of_rust_have_no_hash)
{
	says("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad");
	says("_ZN69_$LT$core..fmt..builders..DebugStruct$u20$as$u20$core..fmt..Write$GT$3fmt17hc4e6a3c9f0f7a0b1E",
	     "<core::fmt::builders::DebugStruct as core::fmt::Write>::fmt");
	says("_ZN4test4main17h0123456789abcdefE.llvm.123", "test::main");
}
END_TEST

START_TEST(names_of_rust_are_those_of_its_newer_kind_too)
{
	says("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar");
	says("_RINvNtC3std3mem8align_ofdE", "std::mem::align_of::<f64>");
	says("_RNCNvCs6xxl1lAjzDf_1a4main0B3_", "a::main::{closure#0}");
	says("_RINvMNtCs6xxl1lAjzDf_1a4deepINtB3_1QhE4lookNCNvB5_4main0EB5_",
	     "<a::deep::Q<u8>>::look::<a::main::{closure#0}>");
}
END_TEST

START_TEST(what_is_no_such_name_stays)
{
	static const char *const names[] = { "",    "_",   "_Z",      "_R",       "main", "_start",
					     "_ZZ", "_RX", "_Znever", "__Z3foov", "_RNvC" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		stays(names[i], strlen(names[i]));
	stays("_ZN3foo3barE", 8); /* only so much of it belongs to the name */
}
END_TEST

static size_t put(char *name, size_t at, const char *text)
{
	size_t len = strlen(text);

	ck_assert_uint_lt(at + len, NAME_MAX_BYTES);
	memcpy(name + at, text, len + 1);

	return at + len;
}

/* f(P<A, A>, P<that, that>, P<that, that> ...): each is twice as long as the one before. */
static void double_cpp(char *name, size_t times)
{
	size_t at = put(name, 0, "_Z1f1A1PIS_S_E");

	for (size_t i = 0; i < times; i++) {
		/* S_ is A, S0_ is P, S1_ the first pair, and so on. */
		char pair = "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[i], text[32];

		snprintf(text, sizeof(text), "S0_IS%c_S%c_E", pair, pair);
		at = put(name, at, text);
	}
}

/* a::<(u8 ...), (that, that), ...> */
static void double_rust(char *name, size_t times)
{
	static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
	size_t last = put(name, 0, "_RIC1a"), at = put(name, last, "ThhhE");

	for (size_t i = 0; i < times; i++) {
		/* Places count from behind _R; B_ is 0, B0_ is 1. */
		size_t number = last - 2 - 1;
		char high[2] = { number < 62 ? '\0' : digits[number / 62], '\0' }, low = digits[number % 62], text[32];

		snprintf(text, sizeof(text), "TB%s%c_B%s%c_E", high, low, high, low);
		last = at;
		at = put(name, at, text);
	}
	put(name, at, "E");
}

START_TEST(a_name_that_doubles_with_every_few_letters_stays)
{
	char name[NAME_MAX_BYTES];

	double_cpp(name, 2);
	says(name, "f(A, P<A, A>, P<P<A, A>, P<A, A> >, P<P<P<A, A>, P<A, A> >, P<P<A, A>, P<A, A> > >)");
	double_cpp(name, 35);
	stays(name, strlen(name));
	double_rust(name, 2);
	says(name, "a::<(u8, u8, u8), ((u8, u8, u8), (u8, u8, u8)), (((u8, u8, u8), (u8, u8, u8)), ((u8, u8, u8), (u8, "
		   "u8, u8)))>");
	double_rust(name, 60);
	stays(name, strlen(name));
}
END_TEST

START_TEST(a_name_in_itself_many_times_over_ends)
{
	char name[NAME_MAX_BYTES] = "_Z";

	for (size_t len = 100; len < sizeof(name) - 2; len += 400) {
		memset(name + 2, 'P', len);
		name[2 + len] = '\0';
		stays(name, strlen(name));
		memset(name + 1, 'R', len);
		stays(name, strlen(name));
	}
}
END_TEST

Suite *demangle_suite(void);
Suite *demangle_suite(void)
{
	Suite *suite = suite_create("demangle");
	TCase *core = tcase_create("core");

	tcase_add_test(core, names_of_cpp_have_their_arguments);
	tcase_add_test(core, names_of_rust_have_no_hash);
	tcase_add_test(core, names_of_rust_are_those_of_its_newer_kind_too);
	tcase_add_test(core, what_is_no_such_name_stays);
	tcase_add_test(core, a_name_that_doubles_with_every_few_letters_stays);
	tcase_add_test(core, a_name_in_itself_many_times_over_ends);
	suite_add_tcase(suite, core);

	return suite;
}
