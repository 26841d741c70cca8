/*
 * check_symbols.c: tables of symbols, what they are read from (perf maps, /proc/kallsyms), and
 * names of C++ and Rust as their sources have them.
 */
#include "daemon/symbolize/symbols.c"
#include "skip.h"
#include "torture.h"

#include <check.h>
#include <stdio.h>

/* ---- tables of symbols ---- */

static struct symtable table;

static void setup(void)
{
	table = (struct symtable){ 0 };
}

static void teardown(void)
{
	symtable_release(&table);
}

static void add(uint64_t start, uint64_t end, const char *name, uint32_t rank, bool open)
{
	struct symtable_symbol symbol = { start, end, name, (uint32_t)strlen(name), rank, open };

	ck_assert_int_eq(symtable_add(&table, &symbol), 0);
}

static const char *at(uint64_t address)
{
	const struct symtable_symbol *symbol = symtable_find(&table, address);

	return symbol != NULL ? symbol->name : "";
}

START_TEST(an_address_is_in_a_symbol_only_within_its_size)
{
	add(100, 110, "a", 0, false);
	add(120, 121, "b", 0, false);
	ck_assert_int_eq(symtable_seal(&table, SYMTABLE_INNERMOST), 0);
	ck_assert_str_eq(at(99), "");
	ck_assert_str_eq(at(100), "a");
	ck_assert_str_eq(at(109), "a");
	ck_assert_str_eq(at(110), "");
	ck_assert_str_eq(at(120), "b");
	ck_assert_str_eq(at(121), "");
	ck_assert_str_eq(at(UINT64_MAX), "");
}
END_TEST

START_TEST(an_open_symbol_ends_at_the_next_of_any_kind_or_at_its_end)
{
	add(100, 1000, "open", 0, true);
	add(150, 160, "", 0, false);
	add(200, 1000, "last", 0, true);
	ck_assert_int_eq(symtable_seal(&table, SYMTABLE_INNERMOST), 0);
	ck_assert_str_eq(at(149), "open");
	ck_assert_str_eq(at(150), "");
	ck_assert_str_eq(at(160), "");
	ck_assert_str_eq(at(200), "last");
	ck_assert_str_eq(at(999), "last");
	ck_assert_str_eq(at(1000), "");
}
END_TEST

START_TEST(a_label_in_a_function_does_not_hide_it)
{
	add(100, 200, "function", 0, false);
	add(150, 1000, "label", 9, true);
	add(300, 1000, "free", 0, true);
	ck_assert_int_eq(symtable_seal(&table, SYMTABLE_INNERMOST), 0);
	ck_assert_str_eq(at(150), "function");
	ck_assert_str_eq(at(199), "function");
	ck_assert_str_eq(at(200), "");
	ck_assert_str_eq(at(300), "free");
}
END_TEST

START_TEST(the_innermost_is_found_and_what_is_around_it_behind_it)
{
	add(100, 1000, "outer", 0, false);
	add(200, 300, "inner", 0, false);
	add(400, 410, "other", 0, false);
	ck_assert_int_eq(symtable_seal(&table, SYMTABLE_INNERMOST), 0);
	ck_assert_str_eq(at(250), "inner");
	ck_assert_str_eq(at(300), "outer");
	ck_assert_str_eq(at(409), "other");
	ck_assert_str_eq(at(999), "outer");
}
END_TEST

START_TEST(of_names_for_one_address_the_preferred_is_found_in_any_order)
{
	for (int swapped = 0; swapped < 2; swapped++) {
		setup();
		add(100, 110, swapped ? "a" : "global", swapped ? 0 : 5, false);
		add(100, 110, swapped ? "global" : "a", swapped ? 5 : 0, false);
		add(200, 210, swapped ? "ab" : "b", 1, false);
		add(200, 210, swapped ? "b" : "ab", 1, false);
		ck_assert_int_eq(symtable_seal(&table, SYMTABLE_INNERMOST), 0);
		ck_assert_str_eq(at(105), "global");
		ck_assert_str_eq(at(205), "b");
		teardown();
	}
}
END_TEST

START_TEST(the_latest_holds_where_code_was_moved)
{
	add(100, 200, "old", 1, false);
	add(90, 150, "new", 2, false);
	add(140, 145, "older", 0, false);
	ck_assert_int_eq(symtable_seal(&table, SYMTABLE_LATEST), 0);
	ck_assert_str_eq(at(95), "new");
	ck_assert_str_eq(at(142), "new");
	ck_assert_str_eq(at(149), "new");
	ck_assert_str_eq(at(150), "old");
}
END_TEST

START_TEST(what_is_nested_beyond_measure_has_no_name_rather_than_a_slow_one)
{
	add(0, 1000000, "all", 0, false);
	for (uint64_t i = 0; i < 10000; i++)
		add(10 + i, 11 + i, "tiny", 0, false);
	ck_assert_int_eq(symtable_seal(&table, SYMTABLE_INNERMOST), 0);
	ck_assert_str_eq(at(20), "tiny");
	ck_assert_str_eq(at(500000), "");
}
END_TEST

/* The order is that of compare_symbols, whichever bytes of the starts differ. */
START_TEST(symbols_are_sorted_wherever_they_start)
{
	static const uint64_t masks[] = { 0xff, 0xffff, 0xff00ff, UINT64_MAX, 0xffffffff80ffff00 };
	static struct symtable_symbol want[3000];
	uint64_t seed = 1;

	for (size_t m = 0; m < ARRAY_LEN(masks); m++) {
		setup();
		for (size_t i = 0; i < ARRAY_LEN(want); i++) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			want[i] = (struct symtable_symbol){ .start = (seed ^ seed >> 29) & masks[m] & ~(uint64_t)1,
							    .end = UINT64_MAX,
							    .name = &"abcdefgh"[seed >> 61],
							    .len = 1,
							    .rank = seed >> 50 & 3 };
			ck_assert_int_eq(symtable_add(&table, &want[i]), 0);
		}
		qsort(want, ARRAY_LEN(want), sizeof(want[0]), compare_symbols);
		ck_assert_int_eq(sort_symbols(&table), 0);
		ck_assert_uint_eq(table.count, ARRAY_LEN(want));
		for (size_t i = 0; i < ARRAY_LEN(want); i++)
			ck_assert_int_eq(compare_symbols(&table.symbols[i], &want[i]), 0);
		teardown();
	}
}
END_TEST

START_TEST(a_table_without_memory_says_so)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct symtable_symbol symbol = { 1, 2, "x", 1, 0, false };

		torture_arm(n);
		int r = symtable_add(&table, &symbol);
		r = r < 0 ? r : symtable_seal(&table, SYMTABLE_INNERMOST);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		symtable_release(&table);
	}
}
END_TEST

START_TEST(an_empty_table_knows_nothing)
{
	ck_assert_int_eq(symtable_seal(&table, SYMTABLE_INNERMOST), 0);
	ck_assert_str_eq(at(0), "");
}
END_TEST

/* ---- perf maps and /proc/kallsyms ---- */

static struct perf_map_counts counts;
static void read_map(const char *text)
{
	symtable_release(&table);
	ck_assert_int_eq(perf_map_parse(text, strlen(text), &table, &counts), 0);
}

static void read_kernel(const char *text)
{
	symtable_release(&table);
	ck_assert_int_eq(kallsyms_parse(text, strlen(text), &table), 0);
}

#define ck_assert_name(address, expected) \
	do { \
		const struct symtable_symbol *symbol_ = symtable_find(&table, address); \
		const char *expected_ = expected; \
		ck_assert_uint_eq(symbol_ ? symbol_->len : 0, strlen(expected_)); \
		ck_assert(!symbol_ || memcmp(symbol_->name, expected_, symbol_->len) == 0); \
	} while (0)

START_TEST(lines_of_a_perf_map_are_functions)
{
	read_map("7f1000 20 LazyCompile:~render /srv/app.js:12\n0x7f2000 0x10 py::main:<module>\n7F3000 A upper\n");
	ck_assert_uint_eq(counts.lines, 3);
	ck_assert_uint_eq(counts.broken, 0);
	ck_assert_name(0x7f101f, "LazyCompile:~render /srv/app.js:12");
	ck_assert_name(0x7f1020, "");
	ck_assert_name(0x7f2000, "py::main:<module>");
	ck_assert_name(0x7f3009, "upper");
}
END_TEST

START_TEST(lines_that_are_none_are_skipped_and_counted)
{
	read_map("nonsense\n100\n100 10\n100 10 \n100 0 nothing\n11111111111111111 1 long\nffffffffffffffff 10 "
		 "wraps\n\n200 10 good");
	ck_assert_uint_eq(counts.lines, 1);
	ck_assert_uint_eq(counts.broken, 7);
	ck_assert_name(0x20f, "good");
	ck_assert_name(0x100, "");
}
END_TEST

START_TEST(code_that_was_replaced_has_its_last_name)
{
	read_map("100 100 first\n180 10 inside\n150 100 second\n");
	ck_assert_name(0x14f, "first");
	ck_assert_name(0x150, "second");
	ck_assert_name(0x185, "second");
	ck_assert_name(0x24f, "second");
}
END_TEST

START_TEST(kernel_symbols_end_where_the_next_begins)
{
	read_kernel("ffffffff81000000 T _text\nffffffff81000000 t local\nffffffff81000100 t second\nffffffff81000200 D "
		    "data\n"
		    "ffffffffc0000000 t helper\t[ext4]\n");
	ck_assert_name(0xffffffff80ffffff, "");
	ck_assert_name(0xffffffff810000ff, "_text");
	ck_assert_name(0xffffffff81000100, "second");
	ck_assert_name(0xffffffff81000200, "");
	ck_assert_name(0xffffffffc0000000, "helper\t[ext4]");
	ck_assert_name(0xffffffffc0000000 + KALLSYMS_FUNCTION_MAX, "");
}
END_TEST

START_TEST(a_kernel_that_hides_its_addresses_says_nothing)
{
	read_kernel("0000000000000000 T _text\n0000000000000000 t second\n");
	ck_assert_uint_eq(table.count, 0);
	read_kernel("ffffffff8100000 T\nxyz\nffffffff81000000T no\nffffffff81000000 T \n");
	ck_assert_uint_eq(table.count, 0);
}
END_TEST

START_TEST(a_perf_map_without_memory_says_so)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		torture_arm(n);
		int r = perf_map_parse("1 1 a\n2 1 b\n", 12, &table, &counts);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		symtable_release(&table);
	}
}
END_TEST

/* ---- demangling ---- */

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

/* ---- compressed debug information ---- */

/* A program with or without it compressed: the names and lines of main, and what libdw need not decompress. */
static size_t names_of_main(const char *flags, struct elf_file_name names[ELF_FILE_NAMES_MAX], struct elf_file **ret)
{
	char directory[] = "/tmp/spikewatch-symbols-XXXXXX", command[512], program[64];
	size_t count = 0;
	GElf_Ehdr header;

	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(program, sizeof(program), "%s/program", directory);
	snprintf(command, sizeof(command),
		 "(echo 'int main(int argc, char **argv) { int sum = 0; while (argv[sum]) sum += argc; return sum; }'; "
		 "for i in $(seq 100); do echo \"int f$i(int a) { int b = a * $i; while (b > 3) b /= a; return b; }\"; "
		 "done) | "
		 "gcc -x c -O1 -g %s -nostartfiles -Wl,-e,main -no-pie -o %s - 2>/dev/null",
		 flags, program);
	if (system(command) == 0 && elf_file_open(open(program, O_RDONLY | O_CLOEXEC), ret) == 0 &&
	    gelf_getehdr((*ret)->elf, &header) != NULL)
		count = elf_file_names(*ret, header.e_entry, names);
	unlink(program);
	rmdir(directory);
	return count;
}

START_TEST(compressed_debug_information_is_decompressed_as_far_as_it_is_needed)
{
	struct elf_file_name plain_names[ELF_FILE_NAMES_MAX], names[ELF_FILE_NAMES_MAX];
	struct elf_file *plain = NULL, *compressed = NULL;
	size_t count = names_of_main("", plain_names, &plain);

	if (count == 0)
		SKIP_TEST("there is no compiler");
	ck_assert_uint_eq(names_of_main("-gz=zlib", names, &compressed), count);
	ck_assert_str_eq(names[0].function, "main");
	ck_assert_str_eq(names[0].file, plain_names[0].file);
	ck_assert_uint_eq(names[0].line, plain_names[0].line);
	ck_assert_uint_eq(names[0].line, 1);
	ck_assert_ptr_null(plain->inflated);
	ck_assert_ptr_nonnull(compressed->inflated);
	for (Elf_Scn *section = NULL; (section = elf_nextscn(compressed->elf, section)) != NULL;) {
		GElf_Shdr header;
		size_t strings;

		ck_assert_ptr_nonnull(gelf_getshdr(section, &header));
		ck_assert_int_eq(elf_getshdrstrndx(compressed->elf, &strings), 0);
		ck_assert_uint_eq(header.sh_flags & SHF_COMPRESSED, 0);
		if (strcmp(elf_strptr(compressed->elf, strings, header.sh_name), ".debug_loclists") == 0)
			ck_assert_uint_eq(header.sh_size, 0);
	}
	elf_file_free(plain);
	elf_file_free(compressed);
}
END_TEST

Suite *symbols_suite(void);
/* ---- unwinding: expressions and frame pointers ---- */

static const struct {
	uint8_t atom;
	uint64_t left, right, result;
} operations[] = {
	{ DW_OP_and, 12, 10, 8 },
	{ DW_OP_or, 12, 10, 14 },
	{ DW_OP_xor, 12, 10, 6 },
	{ DW_OP_plus, 7, 5, 12 },
	{ DW_OP_minus, 7, 5, 2 },
	{ DW_OP_mul, 7, 5, 35 },
	{ DW_OP_shl, 1, 63, 1ULL << 63 },
	{ DW_OP_shl, 1, 64, 0 },
	{ DW_OP_shr, 1ULL << 63, 63, 1 },
	{ DW_OP_shr, 1ULL << 63, 64, 0 },
	{ DW_OP_shra, 1ULL << 63, 62, UINT64_MAX - 1 },
	{ DW_OP_shra, 1ULL << 63, 64, UINT64_MAX },
	{ DW_OP_eq, 7, 7, 1 },
	{ DW_OP_eq, 7, 5, 0 },
	{ DW_OP_ne, 7, 7, 0 },
	{ DW_OP_ne, 7, 5, 1 },
	{ DW_OP_lt, UINT64_MAX, 0, 1 }, /* signed */
	{ DW_OP_lt, 5, 5, 0 },
	{ DW_OP_le, 5, 5, 1 },
	{ DW_OP_le, 6, 5, 0 },
	{ DW_OP_gt, 0, UINT64_MAX, 1 },
	{ DW_OP_gt, 5, 5, 0 },
	{ DW_OP_ge, 5, 5, 1 },
	{ DW_OP_ge, 5, 6, 0 },
};

START_TEST(an_operation_of_two_leaves_its_result)
{
	struct evaluation on = { .values = { 99, operations[_i].left, operations[_i].right }, .count = 3 };

	ck_assert(pop_and_apply_binary(&on, operations[_i].atom));
	ck_assert_uint_eq(on.count, 2);
	ck_assert_uint_eq(on.values[0], 99);
	ck_assert_uint_eq(on.values[1], operations[_i].result);
}
END_TEST

START_TEST(a_rotation_moves_what_it_is_to_and_nothing_behind)
{
	struct evaluation on = { .values = { 9, 1, 2, 3, 77, 78 }, .count = 4 };
	static const uint64_t after[] = { 9, 3, 1, 2, 77, 78 };

	ck_assert(rotate(&on, 3));
	ck_assert_mem_eq(on.values, after, sizeof(after));
	ck_assert_uint_eq(on.count, 4);
	ck_assert(!rotate(&on, 5));
}
END_TEST

START_TEST(a_frame_pointer_is_followed_only_if_it_is_known)
{
	uint64_t stack[] = { 0, 0, 0x7040, 0x401234, 0, 0 };
	const struct frame_state state = { .registers = { [FRAME_STATE_BP] = 0x7010, [FRAME_STATE_SP] = 0x7000 },
					   .known = 1u << FRAME_STATE_BP | 1u << FRAME_STATE_SP,
					   .stack = (const uint8_t *)stack,
					   .stack_start = 0x7000,
					   .stack_bytes = sizeof(stack) };
	struct frame_state followed = state;

	ck_assert(frame_state_follow_bp(&followed));
	ck_assert_uint_eq(followed.registers[FRAME_STATE_BP], 0x7040);
	ck_assert_uint_eq(followed.registers[FRAME_STATE_SP], 0x7020);
	ck_assert_uint_eq(followed.registers[FRAME_STATE_PC], 0x401234);
	for (int gone = FRAME_STATE_BP; gone <= FRAME_STATE_SP; gone++) {
		followed = state;
		followed.known &= ~(1u << gone);
		ck_assert(!frame_state_follow_bp(&followed));
	}
}
END_TEST

Suite *symbols_suite(void)
{
	Suite *suite = suite_create("symbols");
	TCase *tables = tcase_create("tables");
	TCase *demangling = tcase_create("demangling");
	TCase *files = tcase_create("files");
	TCase *unwinding = tcase_create("unwinding");

	tcase_add_checked_fixture(tables, setup, teardown);
	tcase_add_test(tables, an_address_is_in_a_symbol_only_within_its_size);
	tcase_add_test(tables, an_open_symbol_ends_at_the_next_of_any_kind_or_at_its_end);
	tcase_add_test(tables, a_label_in_a_function_does_not_hide_it);
	tcase_add_test(tables, the_innermost_is_found_and_what_is_around_it_behind_it);
	tcase_add_test(tables, of_names_for_one_address_the_preferred_is_found_in_any_order);
	tcase_add_test(tables, the_latest_holds_where_code_was_moved);
	tcase_add_test(tables, what_is_nested_beyond_measure_has_no_name_rather_than_a_slow_one);
	tcase_add_test(tables, symbols_are_sorted_wherever_they_start);
	tcase_add_test(tables, a_table_without_memory_says_so);
	tcase_add_test(tables, an_empty_table_knows_nothing);
	tcase_add_test(tables, lines_of_a_perf_map_are_functions);
	tcase_add_test(tables, lines_that_are_none_are_skipped_and_counted);
	tcase_add_test(tables, code_that_was_replaced_has_its_last_name);
	tcase_add_test(tables, kernel_symbols_end_where_the_next_begins);
	tcase_add_test(tables, a_kernel_that_hides_its_addresses_says_nothing);
	tcase_add_test(tables, a_perf_map_without_memory_says_so);
	suite_add_tcase(suite, tables);
	tcase_add_test(demangling, names_of_cpp_have_their_arguments);
	tcase_add_test(demangling, names_of_rust_have_no_hash);
	tcase_add_test(demangling, names_of_rust_are_those_of_its_newer_kind_too);
	tcase_add_test(demangling, what_is_no_such_name_stays);
	tcase_add_test(demangling, a_name_that_doubles_with_every_few_letters_stays);
	tcase_add_test(demangling, a_name_in_itself_many_times_over_ends);
	suite_add_tcase(suite, demangling);
	tcase_add_test(files, compressed_debug_information_is_decompressed_as_far_as_it_is_needed);
	suite_add_tcase(suite, files);
	tcase_add_loop_test(unwinding, an_operation_of_two_leaves_its_result, 0, (int)ARRAY_LEN(operations));
	tcase_add_test(unwinding, a_rotation_moves_what_it_is_to_and_nothing_behind);
	tcase_add_test(unwinding, a_frame_pointer_is_followed_only_if_it_is_known);
	suite_add_tcase(suite, unwinding);

	return suite;
}
