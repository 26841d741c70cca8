/*
 * symbols.c: six layers, each of which uses only those before it; the last one unwinds stacks.
 *
 * Tables of symbols: which function an address is in, from an ELF file, /proc/kallsyms or a perf
 * map. No name is better than a wrong one: a symbol with a size covers just that size; an open one,
 * whose size is unknown, reaches to the next symbol of any kind, and never beyond the end that was
 * given with it; there is no "nearest". The array is sorted by start, of symbols with one start the
 * preferred last: going back from the last one that starts at or before an address, the first that
 * covers it is the innermost and best, and `reach`, the highest end so far, says when to stop. An
 * untrusted file can nest symbols a million deep: after STEPS_MAX no name is given. An
 * open symbol inside of one whose size is known is a label in a function: it would only hide the
 * function, so it covers nothing.
 *
 * Perf maps: invalid lines are skipped, as perf(1) does: a compiler may be writing one.
 * /proc/kallsyms says where symbols start, not where they end, so all of them are open. Of two
 * names for one address the global one is preferred, as perf(1) does.
 *
 * Demangling: libiberty's functions that pass the text on in pieces and allocate nothing that grows
 * with it. An untrusted name can refer to parts of itself, so that every few letters double its
 * length: beyond the limit longjmp(3) leaves the demangler, which cannot be stopped otherwise and
 * may leak a few bytes. It bounds its recursion itself (no DMGL_NO_RECURSE_LIMIT).
 *
 * Lines: functions, inlined functions, files and lines of an address, from DWARF by two indexes,
 * both made when they are first needed: all units by address, and one unit's functions by address.
 * In the function's tree each level that covers the address and is an inlined function gives a
 * frame. Rejected: .debug_aranges, which clang does not write; dwarf_getscopes(3), which walks all
 * of a unit for every address. Debug information can contain cycles: visited entries are counted
 * over all calls, and beyond VISITS_MAX only the names of the symbol table are left.
 *
 * One ELF file: libdwfl opens it and finds its symbol tables, compressed ones too; which symbol an
 * address is in follows the rules above, not libdwfl's, which gives the nearest. The file is
 * reported to libdwfl as loaded where its program headers want it, so that addresses are those of
 * the file: where a process has loaded it does not matter, because both sides know offsets in the
 * file (elf_file_address). The name of a function is the linkage name of the debug
 * information, demangled, else that of the symbol, which says foo.part.0 where it is only part of
 * foo, else that in the source. A linkage name that is not mangled is one of the symbols, and not the one
 * that people call: __GI___libc_write. Inlined functions have no symbol. Where there is no name, .eh_frame
 * still says where functions begin and end: strip(1) leaves it, because exceptions need it.
 *
 * Debug information is often compressed (ELF, SHF_COMPRESSED), and libdw decompresses all sections
 * that it knows when it opens a file. Those that are needed are decompressed before that, by
 * libdeflate, in half the time; those that are not, places of variables for the most part, are
 * emptied. What libdeflate is not given (other formats, files of other machines) libelf reads.
 *
 * Modules: one for each binary of the stack file and one for the vDSO. Texts (perf maps, kallsyms)
 * are read whole: their size is not known before, and a perf map still grows. What was read stays for
 * a second run over more of the same stacks (symbolize.h): the number in the stack file says whether
 * a file is still that one. Counts are those of the last run, as if there was no other.
 */
#include "daemon/symbolize/symbols.h"

#include "daemon/symbolize/symbolize.h"
#include "lib/base/base.h"
#include "lib/base/compress.h"
#include "lib/base/io.h"
#include "lib/base/map.h"
#include "lib/base/text.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwelf.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <libiberty/demangle.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ELF_FILE_BUILD_ID_MAX 20

/* Texts belong to the debug information. */
struct elf_lines_frame {
	const char *linkage_name; /* as the linker has it; NULL: it has none, as in C */
	const char *name;         /* as in the source, without what it is in; NULL: not known */
	const char *file;         /* NULL: not known */
	uint32_t line;            /* 0: not known */
};

/* ---- tables of symbols ---- */

/* Symbols a table takes. A large browser has about one million. */
#define SYMTABLE_MAX (4u << 20)

/*
 * How far a lookup goes back. Symbols of real programs nest a few deep; code that was compiled
 * again and again piles up higher.
 */
#define STEPS_MAX 4096

struct symtable_symbol {
	uint64_t start, end; /* [start, end) */
	const char *name;    /* not terminated; must outlive the table */
	uint32_t len;        /* of the name. 0: no name; it only ends an open symbol before it */
	uint32_t rank;       /* the higher is preferred */
	bool open;           /* ends where the next symbol starts, at `end` at the latest */
};

/* Which of several symbols that cover the same address is preferred. */
enum symtable_order {
	SYMTABLE_INNERMOST, /* the one that starts last; of those, by rank; of those, the shorter name, then by bytes */
	SYMTABLE_LATEST,    /* by rank alone: the rank is when it was written, and code has been moved meanwhile */
};

/* {0} is empty and legal. */
struct symtable {
	struct symtable_symbol *symbols;
	uint64_t *reach; /* the highest end of symbols[0 .. i] */
	size_t count, cap;
	enum symtable_order order;
};

/* Empty symbols, and those beyond SYMTABLE_MAX, are left out. 0 or -ENOMEM. */
static int symtable_add(struct symtable *table, const struct symtable_symbol *symbol)
{
	if (symbol->end <= symbol->start || table->count == SYMTABLE_MAX)
		return 0;
	if (vector_reserve(&table->symbols, &table->cap, table->count + 1, sizeof(*table->symbols)) < 0)
		return -ENOMEM;
	table->symbols[table->count++] = *symbol;
	return 0;
}

static int compare_names(const struct symtable_symbol *a, const struct symtable_symbol *b)
{
	if (a->len != b->len)
		return a->len > b->len ? -1 : 1;
	return a->len > 0 ? memcmp(b->name, a->name, a->len) : 0;
}

/* By start; the preferred last. */
static int compare_symbols(const void *left, const void *right)
{
	const struct symtable_symbol *a = left, *b = right;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	return compare_names(a, b);
}

static void close_open_symbols(struct symtable *table)
{
	uint64_t next = UINT64_MAX, covered = 0;

	for (size_t i = table->count; i-- > 0;) {
		struct symtable_symbol *symbol = &table->symbols[i];
		bool last_of_start = i + 1 == table->count || table->symbols[i + 1].start != symbol->start;

		if (last_of_start && i + 1 < table->count)
			next = table->symbols[i + 1].start;
		if (symbol->open && next < symbol->end)
			symbol->end = next;
	}
	for (size_t i = 0, first = 0; i < table->count; i++) {
		struct symtable_symbol *symbol = &table->symbols[i];

		if (symbol->start != table->symbols[first].start)
			for (; first < i; first++)
				if (!table->symbols[first].open && table->symbols[first].end > covered)
					covered = table->symbols[first].end;
		if (symbol->open && symbol->start < covered)
			symbol->end = symbol->start;
	}
}

/* Where a symbol starts, and its number. */
struct symtable_key {
	uint64_t start;
	size_t index;
};

/* By start, those of one start in the order in which they are: byte by byte, from the lowest on. */
static void sort_keys(struct symtable_key *keys, struct symtable_key *scratch, size_t count)
{
	struct symtable_key *from = keys, *to = scratch;
	uint64_t differs = 0;

	for (size_t i = 1; i < count; i++)
		differs |= keys[i].start ^ keys[0].start;
	for (unsigned shift = 0; shift < 64; shift += 8) {
		size_t place[256] = { 0 }, sum = 0;

		if ((differs >> shift & 0xff) == 0)
			continue;
		for (size_t i = 0; i < count; i++)
			place[from[i].start >> shift & 0xff]++;
		for (size_t i = 0; i < ARRAY_LEN(place); i++) {
			size_t of_byte = place[i];

			place[i] = sum;
			sum += of_byte;
		}
		for (size_t i = 0; i < count; i++)
			to[place[from[i].start >> shift & 0xff]++] = from[i];

		struct symtable_key *sorted = to;

		to = from;
		from = sorted;
	}
	if (from != keys)
		memcpy(keys, from, count * sizeof(*keys));
}

/* As qsort(3) with compare_symbols, which takes a call for each of some 17 comparisons of a symbol. 0 or -ENOMEM. */
static int sort_symbols(struct symtable *table)
{
	size_t count = table->count;
	AUTO_FREE struct symtable_key *keys = reallocarray(NULL, count, 2 * sizeof(*keys));
	struct symtable_symbol *sorted = reallocarray(NULL, count, sizeof(*sorted));

	if (keys == NULL || sorted == NULL) {
		free(sorted);
		return -ENOMEM;
	}
	for (size_t i = 0; i < count; i++)
		keys[i] = (struct symtable_key){ table->symbols[i].start, i };
	sort_keys(keys, keys + count, count);
	for (size_t i = 0; i < count; i++)
		sorted[i] = table->symbols[keys[i].index];
	for (size_t i = 0, next; i < count; i = next) {
		for (next = i + 1; next < count && sorted[next].start == sorted[i].start;)
			next++;
		if (next - i > 1)
			qsort(&sorted[i], next - i, sizeof(*sorted), compare_symbols);
	}
	free(table->symbols);
	table->symbols = sorted;
	table->cap = count;
	return 0;
}

/* To be called once, after the last symbol. 0 or -ENOMEM. */
static int symtable_seal(struct symtable *table, enum symtable_order order)
{
	uint64_t reach = 0;

	table->order = order;
	if (table->count == 0)
		return 0;
	table->reach = reallocarray(NULL, table->count, sizeof(*table->reach));
	if (table->reach == NULL || sort_symbols(table) < 0)
		return -ENOMEM;

	close_open_symbols(table);
	for (size_t i = 0; i < table->count; i++) {
		if (table->symbols[i].end > reach)
			reach = table->symbols[i].end;
		table->reach[i] = reach;
	}

	return 0;
}

/* How many symbols start at or before address. */
static size_t starting_before(const struct symtable *table, uint64_t address)
{
	size_t low = 0, high = table->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (table->symbols[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}

	return low;
}

/* The symbol that address is in; NULL: none is known. Only of a sealed table. */
static const struct symtable_symbol *symtable_find(const struct symtable *table, uint64_t address)
{
	const struct symtable_symbol *best = NULL;
	size_t i = starting_before(table, address);

	for (size_t steps = 0; i-- > 0 && table->reach[i] > address; steps++) {
		const struct symtable_symbol *symbol = &table->symbols[i];

		if (steps == STEPS_MAX)
			return NULL;
		if (symbol->end <= address)
			continue;
		if (best == NULL || symbol->rank > best->rank)
			best = symbol;
		if (table->order == SYMTABLE_INNERMOST)
			break;
	}

	return best != NULL && best->len > 0 ? best : NULL;
}

/* The table is empty and usable again. */
static void symtable_release(struct symtable *table)
{
	free(table->symbols);
	free(table->reach);
	*table = (struct symtable){ 0 };
}

/* The line at *at, which moves to the next one. False: the end. */
static bool next_line(const char **at, const char *end, const char **ret_line, const char **ret_end)
{
	const char *newline = *at < end ? memchr(*at, '\n', (size_t)(end - *at)) : NULL;

	if (*at == end)
		return false;
	*ret_line = *at;
	*ret_end = newline != NULL ? newline : end;
	*at = newline != NULL ? newline + 1 : end;
	return true;
}

/* ---- perf maps ---- */

struct perf_map_counts {
	uint64_t lines;  /* that were functions */
	uint64_t broken; /* that were not; they are skipped */
};

static int hex_digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/*
 * Reads a hexadecimal number, with or without 0x, and the blank behind it. False: there is none, or
 * more than 64 bits.
 */
static bool take_number(const char **at, const char *end, uint64_t *ret)
{
	const char *p = *at;
	uint64_t value = 0;
	int digits = 0;

	if (end - p > 2 && p[0] == '0' && (p[1] | 0x20) == 'x')
		p += 2;
	for (; p < end && hex_digit_of(*p) >= 0; p++, digits++) {
		if (value >> 60)
			return false;
		value = value << 4 | (uint64_t)hex_digit_of(*p);
	}
	if (digits == 0 || p == end || *p != ' ')
		return false;
	*at = p + 1;
	*ret = value;
	return true;
}

static bool parse_perf_map_line(const char *line, const char *end, struct symtable_symbol *ret)
{
	struct symtable_symbol symbol = { 0 };
	uint64_t size;

	if (!take_number(&line, end, &symbol.start) || !take_number(&line, end, &size))
		return false;
	if (end > line && end[-1] == '\r')
		end--;
	if (end == line || size == 0 || size > UINT64_MAX - symbol.start || end - line > UINT16_MAX)
		return false;
	symbol.end = symbol.start + size;
	symbol.name = line;
	symbol.len = (uint32_t)(end - line);
	*ret = symbol;
	return true;
}

/*
 * Reads what a just-in-time compiler wrote to /tmp/perf-<pid>.map (Linux,
 * tools/perf/Documentation/jit-interface.txt) into an empty table and seals it: a line "START SIZE
 * name" for each function, numbers in hexadecimal. Where functions overlap the later line holds,
 * because memory is compiled into again. Names point into text. 0 or -ENOMEM.
 */
static int perf_map_parse(const char *text, size_t len, struct symtable *table, struct perf_map_counts *ret_counts)
{
	const char *at = text, *line, *end;

	*ret_counts = (struct perf_map_counts){ 0 };
	while (next_line(&at, text + len, &line, &end)) {
		struct symtable_symbol symbol;

		if (!parse_perf_map_line(line, end, &symbol)) {
			ret_counts->broken += end > line;
			continue;
		}
		symbol.rank = (uint32_t)ret_counts->lines++;
		if (symtable_add(table, &symbol) < 0)
			return -ENOMEM;
	}

	return symtable_seal(table, SYMTABLE_LATEST);
}

/* ---- /proc/kallsyms ---- */

/* No function of the kernel is longer: an open symbol before a hole ends there. */
#define KALLSYMS_FUNCTION_MAX (1u << 20)

/* "ffffffff81000000 T _text": 32-bit kernels print eight digits. */
static bool parse_kallsyms_line(const char *line, const char *end, struct symtable_symbol *ret)
{
	const char *digits_end = end - line < 16 ? end : line + 16, *p;
	uint64_t address, room;

	p = text_parse_hex(line, digits_end, &address);
	/* " T x" */
	if (p == NULL || address == 0 || end - p < 4 || p[0] != ' ' || p[2] != ' ')
		return false;
	room = UINT64_MAX - address;
	*ret = (struct symtable_symbol){
		.start = address,
		.end = address + (room < KALLSYMS_FUNCTION_MAX ? room : KALLSYMS_FUNCTION_MAX),
		.name = p + 3,
		.len = memchr("tTwWi", p[1], 5) != NULL && end - p - 3 <= UINT16_MAX ? (uint32_t)(end - p - 3) : 0,
		.rank = p[1] == 'T'   ? 3
			: p[1] == 't' ? 2
				      : 1,
		.open = true,
	};

	return true;
}

/*
 * Reads /proc/kallsyms (proc(5)) into an empty table and seals it: "ffffffff81000000 T _text", or
 * with a module "ffffffffc0401000 t helper\t[nf_tables]", whose name is then "helper\t[nf_tables]".
 * Only text symbols (t, T, w, W, i) have names; the others end a function. A reader without
 * privileges is shown addresses of zero: they are left out, so the table is then empty. Names point
 * into text. 0 or -ENOMEM.
 */
static int kallsyms_parse(const char *text, size_t len, struct symtable *table)
{
	const char *at = text, *line, *end;
	struct symtable_symbol symbol;

	while (next_line(&at, text + len, &line, &end))
		if (parse_kallsyms_line(line, end, &symbol) && symtable_add(table, &symbol) < 0)
			return -ENOMEM;

	return symtable_seal(table, SYMTABLE_INNERMOST);
}

/* ---- demangling ---- */

/* Longer names are not demangled. */
#define MANGLED_MAX 2048

/* Names whose demangled form is longer, terminator included, are left as they are. */
#define DEMANGLE_MAX 4096

/* As c++filt writes: arguments, and const and the like. */
#define OPTIONS (DMGL_PARAMS | DMGL_ANSI)

struct output {
	char *text;
	size_t len;
	jmp_buf enough;
};

static void take_piece(const char *piece, size_t len, void *opaque)
{
	struct output *output = opaque;

	if (len >= DEMANGLE_MAX - output->len)
		longjmp(output->enough, 1);
	memcpy(output->text + output->len, piece, len);
	output->len += len;
}

/* Rust's older names are C++ names that end in a hash: they come first. */
static bool write_name(const char *mangled, struct output *output)
{
	if (setjmp(output->enough) != 0)
		return false;
	if (rust_demangle_callback(mangled, OPTIONS, take_piece, output))
		return true;
	output->len = 0;
	return mangled[1] == 'Z' && cplus_demangle_v3_callback(mangled, OPTIONS, take_piece, output);
}

static bool is_mangled(const char *name)
{
	return name[0] == '_' && (name[1] == 'Z' || name[1] == 'R');
}

/* The length of the plain name in ret, terminated; 0: not a mangled name, or too long. */
static size_t demangle(const char *name, size_t len, char ret[DEMANGLE_MAX])
{
	char mangled[MANGLED_MAX + 1];
	struct output output = { .text = ret };

	if (len < 3 || len > MANGLED_MAX || !is_mangled(name))
		return 0;
	memcpy(mangled, name, len);
	mangled[len] = '\0';
	if (!write_name(mangled, &output))
		return 0;
	ret[output.len] = '\0';
	return output.len;
}

/* ---- lines ---- */

/* About a minute of a slow machine; all functions of the largest browser are a tenth of it. */
#define VISITS_MAX 100000000u

/* Of namespaces and classes in each other, and of blocks and inlined functions in each other. */
#define DEPTH_MAX 128

/* [low, high) belongs to the unit, or the function, of that number or offset. */
struct range {
	uint64_t low, high;
	uint64_t what;
};

struct ranges {
	struct range *all;
	size_t count, cap;
};

struct unit {
	Dwarf_Die die;
	struct ranges functions; /* by offset of their entry */
	bool read;
};

struct elf_lines {
	Dwarf *dwarf;
	struct unit *units;
	size_t unit_count, unit_cap;
	struct ranges by_unit;
	uint64_t visits;
};

static int ranges_add(struct ranges *ranges, const struct range *range)
{
	if (range->high <= range->low)
		return 0;
	if (vector_reserve(&ranges->all, &ranges->cap, ranges->count + 1, sizeof(*ranges->all)) < 0)
		return -ENOMEM;
	ranges->all[ranges->count++] = *range;
	return 0;
}

static int compare_ranges(const void *left, const void *right)
{
	const struct range *a = left, *b = right;

	if (a->low != b->low)
		return a->low < b->low ? -1 : 1;
	return a->what < b->what ? -1 : a->what > b->what;
}

static void ranges_sort(struct ranges *ranges)
{
	if (ranges->count > 1)
		qsort(ranges->all, ranges->count, sizeof(*ranges->all), compare_ranges);
}

/*
 * Code belongs to one unit and one function: the range that starts last before the address, or
 * none.
 */
static const struct range *ranges_find(const struct ranges *ranges, uint64_t address)
{
	size_t low = 0, high = ranges->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (ranges->all[middle].low <= address)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0 || ranges->all[low - 1].high <= address)
		return NULL;
	return &ranges->all[low - 1];
}

/* All address ranges of an entry. What the linker has dropped is at 0. */
static int add_ranges_of(struct ranges *ranges, Dwarf_Die *die, uint64_t what)
{
	Dwarf_Addr base, low, high;
	ptrdiff_t offset = 0;
	int r = 0;

	while (r == 0 && (offset = dwarf_ranges(die, offset, &base, &low, &high)) > 0)
		if (low != 0)
			r = ranges_add(ranges, &(struct range){ low, high, what });
	return r;
}

static int add_unit(struct elf_lines *lines, const Dwarf_Die *die)
{
	if (vector_reserve(&lines->units, &lines->unit_cap, lines->unit_count + 1, sizeof(*lines->units)) < 0)
		return -ENOMEM;

	size_t number = lines->unit_count++;

	lines->units[number] = (struct unit){ .die = *die };
	return add_ranges_of(&lines->by_unit, &lines->units[number].die, number);
}

static void elf_lines_free(struct elf_lines *lines)
{
	if (lines == NULL)
		return;
	for (size_t i = 0; i < lines->unit_count; i++)
		free(lines->units[i].functions.all);
	free(lines->units);
	free(lines->by_unit.all);
	free(lines);
}

/* Reads where the units are. dwarf stays the caller's and must outlive it. 0 or -ENOMEM. */
static int elf_lines_new(struct Dwarf *dwarf, struct elf_lines **ret)
{
	AUTO_FREE struct elf_lines *lines = calloc(1, sizeof(*lines));
	Dwarf_CU *cu = NULL;
	Dwarf_Half version;
	uint8_t type;
	Dwarf_Die die, sub;
	int r = 0;

	if (lines == NULL)
		return -ENOMEM;
	lines->dwarf = dwarf;
	while (r == 0 && dwarf_get_units(dwarf, cu, &cu, &version, &type, &die, &sub) == 0)
		if (type == DW_UT_compile && lines->visits++ < VISITS_MAX)
			r = add_unit(lines, &die);
	if (r < 0) {
		elf_lines_free(TAKE(lines));
		return r;
	}
	ranges_sort(&lines->by_unit);
	*ret = TAKE(lines);
	return 0;
}

/* Whether functions with code may be described inside of it. */
static bool holds_functions(int tag)
{
	return tag == DW_TAG_namespace || tag == DW_TAG_module || tag == DW_TAG_class_type ||
	       tag == DW_TAG_structure_type || tag == DW_TAG_union_type || tag == DW_TAG_enumeration_type;
}

static int read_functions(struct elf_lines *lines, struct unit *unit, Dwarf_Die *parent, int depth)
{
	Dwarf_Die die;
	int r = 0;

	if (depth == DEPTH_MAX || dwarf_child(parent, &die) != 0)
		return 0;
	do {
		int tag = dwarf_tag(&die);

		if (lines->visits++ >= VISITS_MAX)
			break;
		if (tag == DW_TAG_subprogram)
			r = add_ranges_of(&unit->functions, &die, dwarf_dieoffset(&die));
		else if (holds_functions(tag))
			r = read_functions(lines, unit, &die, depth + 1);
	} while (r == 0 && dwarf_siblingof(&die, &die) == 0);

	return r;
}

/* The entry inside of *scope that covers the address becomes *scope. False: there is none. */
static bool enter_scope(struct elf_lines *lines, Dwarf_Die *scope, uint64_t address)
{
	Dwarf_Die die;

	if (dwarf_child(scope, &die) != 0)
		return false;
	do {
		int tag = dwarf_tag(&die);

		if (lines->visits++ >= VISITS_MAX)
			return false;
		if ((tag == DW_TAG_inlined_subroutine || tag == DW_TAG_lexical_block || tag == DW_TAG_try_block ||
		     tag == DW_TAG_catch_block) &&
		    dwarf_haspc(&die, address) > 0) {
			*scope = die;
			return true;
		}
	} while (dwarf_siblingof(&die, &die) == 0);

	return false;
}

static uint32_t die_number(Dwarf_Die *die, unsigned attribute)
{
	Dwarf_Attribute at;
	Dwarf_Word value;

	if (dwarf_attr(die, attribute, &at) == NULL || dwarf_formudata(&at, &value) != 0 || value > UINT32_MAX)
		return 0;
	return (uint32_t)value;
}

static void name_frame(Dwarf_Die *die, struct elf_lines_frame *ret)
{
	Dwarf_Attribute at;

	if (dwarf_attr_integrate(die, DW_AT_linkage_name, &at) != NULL ||
	    dwarf_attr_integrate(die, DW_AT_MIPS_linkage_name, &at) != NULL)
		ret->linkage_name = dwarf_formstring(&at);
	if (dwarf_attr_integrate(die, DW_AT_name, &at) != NULL)
		ret->name = dwarf_formstring(&at);
}

/* Where an inlined function was called, which is where its caller is. */
static void place_of_call(Dwarf_Die *unit, Dwarf_Die *inlined, struct elf_lines_frame *ret)
{
	uint32_t index = die_number(inlined, DW_AT_call_file);
	Dwarf_Files *files;
	size_t count;

	ret->line = die_number(inlined, DW_AT_call_line);
	if (dwarf_getsrcfiles(unit, &files, &count) == 0 && index < count)
		ret->file = dwarf_filesrc(files, index, NULL, NULL);
}

static void place_of_address(Dwarf_Die *unit, uint64_t address, struct elf_lines_frame *ret)
{
	Dwarf_Line *line = dwarf_getsrc_die(unit, address);
	int number;

	if (line == NULL)
		return;
	ret->file = dwarf_linesrc(line, NULL, NULL);
	if (dwarf_lineno(line, &number) == 0 && number > 0)
		ret->line = (uint32_t)number;
}

/* Entries that are functions, from the outermost to the innermost. */
static size_t list_inlined(struct elf_lines *lines, Dwarf_Die scope, uint64_t address, Dwarf_Die *ret)
{
	size_t count = 0;

	ret[count++] = scope;
	for (int depth = 0; depth < DEPTH_MAX && enter_scope(lines, &scope, address); depth++)
		if (dwarf_tag(&scope) == DW_TAG_inlined_subroutine)
			ret[count++] = scope;
	return count;
}

static struct unit *unit_at(struct elf_lines *lines, uint64_t address)
{
	const struct range *range = ranges_find(&lines->by_unit, address);
	struct unit *unit = range != NULL ? &lines->units[range->what] : NULL;

	if (unit != NULL && !unit->read) {
		unit->read = true;
		if (read_functions(lines, unit, &unit->die, 0) < 0)
			unit->functions.count = 0;
		ranges_sort(&unit->functions);
	}

	return unit;
}

/*
 * The functions at address, innermost first; how many, at most max (>= 2): of more, the innermost
 * and the outermost. 0: there is no function with debug information. Damaged debug information
 * gives less, at last nothing.
 */
static size_t elf_lines_find(struct elf_lines *lines, uint64_t address, struct elf_lines_frame *ret, size_t max)
{
	struct unit *unit = lines->visits < VISITS_MAX ? unit_at(lines, address) : NULL;
	const struct range *range = unit != NULL ? ranges_find(&unit->functions, address) : NULL;
	Dwarf_Die functions[DEPTH_MAX + 1];
	size_t count, kept = 0;

	if (range == NULL || dwarf_offdie(lines->dwarf, range->what, &functions[0]) == NULL)
		return 0;
	count = list_inlined(lines, functions[0], address, functions);
	for (size_t i = count; i-- > 0;) {
		struct elf_lines_frame frame = { 0 };

		if (kept + 1 == max && i > 0)
			continue;
		name_frame(&functions[i], &frame);
		if (i + 1 == count)
			place_of_address(&unit->die, address, &frame);
		else
			place_of_call(&unit->die, &functions[i + 1], &frame);
		ret[kept++] = frame;
	}

	return kept;
}

/* ---- one ELF file ---- */

#define SEGMENTS_MAX 64

struct segment {
	uint64_t offset, size, address;
};

struct elf_file {
	Dwfl_Callbacks callbacks;
	Dwfl *dwfl;
	Dwfl_Module *module;
	Elf *elf;
	uint64_t bias; /* of libdwfl's addresses to the file's: 0 as far as known */
	int debug_fd;
	struct segment segments[SEGMENTS_MAX];
	size_t segment_count;
	struct symtable symbols;
	Dwarf *dwarf;            /* libdwfl's; NULL: no debug information */
	struct elf_lines *lines; /* the same */
	Dwarf *shared;           /* what the debug information shares with that of other files */
	Elf *shared_elf;
	int shared_fd;
	int (*ask)(void *ctx, const uint8_t *build_id, size_t len); /* opens the latter; may be NULL */
	void *ctx;
	uint64_t lines_bias;
	Dwarf_CFI *eh;                    /* unwinding tables; NULL: none, or not yet read */
	bool eh_read, is_x86_64, is_wide; /* wide: 64 bits, little-endian, as this machine */
	struct ranges described;          /* by .eh_frame: functions, but not their names */
	bool described_read;
	struct inflated *inflated; /* sections of the debug information */
	uint64_t inflated_bytes;
	struct arena texts;
	bool read, unread; /* unread: there is a table of symbols, too large or damaged */
};

struct inflated {
	struct inflated *next;
	size_t len;
	unsigned char data[];
};

/* NULL is fine. */
static void elf_file_free(struct elf_file *file)
{
	if (file == NULL)
		return;
	elf_lines_free(file->lines);
	free(file->described.all);
	symtable_release(&file->symbols);
	arena_release(&file->texts);
	if (file->eh != NULL)
		dwarf_cfi_end(file->eh);
	if (file->dwfl != NULL)
		dwfl_end(file->dwfl);
	if (file->shared != NULL)
		dwarf_end(file->shared);
	elf_end(file->shared_elf);
	scope_close(&file->shared_fd);
	scope_close(&file->debug_fd);
	for (struct inflated *inflated = file->inflated, *next; inflated != NULL; inflated = next) {
		next = inflated->next;
		free(inflated);
	}
	free(file);
}

/* Called by libdwfl when it wants debug information that is not in the file. */
static int hand_over_debug_file(Dwfl_Module *module, void **userdata, const char *name, Dwarf_Addr base,
				const char *path, const char *link, GElf_Word crc, char **ret_path)
{
	struct elf_file *file = *userdata;

	(void)module, (void)name, (void)base, (void)path, (void)link, (void)crc, (void)ret_path;
	return file != NULL ? TAKE_FD(file->debug_fd) : -1;
}

/* Called if libdwfl wants to look for the file itself, which it has. */
static int find_no_elf(Dwfl_Module *module, void **userdata, const char *name, Dwarf_Addr base, char **ret_path,
		       Elf **ret_elf)
{
	(void)module, (void)userdata, (void)name, (void)base, (void)ret_path, (void)ret_elf;
	return -1;
}

/* 64 bits, little-endian, as this machine. */
static bool is_wide(Elf *elf)
{
	const char *ident = elf_getident(elf, NULL);

	return ident != NULL && ident[EI_CLASS] == ELFCLASS64 && ident[EI_DATA] == ELFDATA2LSB && sizeof(void *) == 8 &&
	       __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
}

static int read_segments(struct elf_file *file)
{
	GElf_Ehdr header;
	size_t count;

	if (gelf_getehdr(file->elf, &header) == NULL || (header.e_type != ET_EXEC && header.e_type != ET_DYN) ||
	    elf_getphdrnum(file->elf, &count) != 0)
		return -ENOEXEC;
	file->is_x86_64 = header.e_machine == EM_X86_64 && header.e_ident[EI_CLASS] == ELFCLASS64;
	file->is_wide = is_wide(file->elf);
	for (size_t i = 0; i < count && i <= INT32_MAX && file->segment_count < SEGMENTS_MAX; i++) {
		GElf_Phdr program;

		if (gelf_getphdr(file->elf, (int)i, &program) == NULL)
			return -ENOEXEC;
		if (program.p_type == PT_LOAD && (program.p_flags & PF_X))
			file->segments[file->segment_count++] =
				(struct segment){ program.p_offset, program.p_filesz, program.p_vaddr };
	}

	return 0;
}

/* Object files, which libdwfl would relocate, and other kinds of files are refused. */
static bool is_program(int fd)
{
	unsigned char head[EI_NIDENT + 2];
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || pread(fd, head, sizeof(head), 0) != sizeof(head) ||
	    memcmp(head, ELFMAG, SELFMAG) != 0)
		return false;

	unsigned type = head[EI_DATA] == ELFDATA2MSB ? head[EI_NIDENT + 1] : head[EI_NIDENT];

	return type == ET_EXEC || type == ET_DYN;
}

static int open_module(struct elf_file *file, int *fd)
{
	void **userdata;

	if (!is_program(*fd))
		return -ENOEXEC;
	file->callbacks = (Dwfl_Callbacks){ .find_elf = find_no_elf, .find_debuginfo = hand_over_debug_file };
	file->dwfl = dwfl_begin(&file->callbacks);
	if (file->dwfl == NULL)
		return -ENOMEM;
	dwfl_report_begin(file->dwfl);
	file->module = dwfl_report_elf(file->dwfl, "file", "file", *fd, 0, true);
	if (file->module == NULL)
		return -ENOEXEC;
	*fd = -1; /* libdwfl's */
	dwfl_report_end(file->dwfl, NULL, NULL);
	dwfl_module_info(file->module, &userdata, NULL, NULL, NULL, NULL, NULL, NULL);
	*userdata = file;
	file->elf = dwfl_module_getelf(file->module, &file->bias);
	return file->elf != NULL ? read_segments(file) : -ENOEXEC;
}

/*
 * Takes over the descriptor, also when it fails. 0; -ENOMEM; -ENOEXEC: not a valid ELF program or
 * library.
 */
static int elf_file_open(int fd, struct elf_file **ret)
{
	AUTO_CLOSE int owned = fd;
	struct elf_file *file = calloc(1, sizeof(*file));
	int r;

	if (file == NULL)
		return -ENOMEM;
	file->debug_fd = file->shared_fd = -1;
	elf_version(EV_CURRENT);
	r = open_module(file, &owned);
	if (r < 0) {
		elf_file_free(file);
		return r;
	}
	*ret = file;
	return 0;
}

/* Its length; 0: there is none. Longer ones are cut, as the kernel does. */
static size_t build_id_of(Elf *elf, uint8_t ret[ELF_FILE_BUILD_ID_MAX])
{
	const void *id;
	ssize_t len = dwelf_elf_gnu_build_id(elf, &id);

	if (len <= 0)
		return 0;
	if (len > ELF_FILE_BUILD_ID_MAX)
		len = ELF_FILE_BUILD_ID_MAX;
	memcpy(ret, id, (size_t)len);
	return (size_t)len;
}

/*
 * Takes over the descriptor of a separate debug file; to be called before the first elf_file_names,
 * if at all. False: it is not of this file by its build id, and not used.
 */
static bool elf_file_debug_file(struct elf_file *file, int fd)
{
	AUTO_CLOSE int owned = fd;
	uint8_t ours[ELF_FILE_BUILD_ID_MAX], other[ELF_FILE_BUILD_ID_MAX];
	size_t len = build_id_of(file->elf, ours);
	Elf *elf = len > 0 && is_program(fd) ? elf_begin(fd, ELF_C_READ_MMAP, NULL) : NULL;
	bool same = elf != NULL && build_id_of(elf, other) == len && memcmp(ours, other, len) == 0;

	elf_end(elf);
	if (same && file->debug_fd < 0)
		file->debug_fd = TAKE_FD(owned);
	return same;
}

bool elf_file_address(const struct elf_file *file, uint64_t offset_bytes, uint64_t *ret)
{
	for (size_t i = 0; i < file->segment_count; i++) {
		const struct segment *segment = &file->segments[i];

		if (offset_bytes < segment->offset || offset_bytes - segment->offset >= segment->size)
			continue;
		*ret = segment->address + (offset_bytes - segment->offset);
		return true;
	}

	return false;
}

static bool has_full_table(Elf *elf)
{
	for (Elf_Scn *section = NULL; (section = elf_nextscn(elf, section)) != NULL;) {
		GElf_Shdr header;

		if (gelf_getshdr(section, &header) != NULL && header.sh_type == SHT_SYMTAB)
			return true;
	}

	return false;
}

/* Without its version: read@@GLIBC_2.2.5. */
static uint32_t name_length(const char *name)
{
	size_t len = strnlen(name, UINT16_MAX);
	const char *version = memchr(name, '@', len);

	return (uint32_t)(version != NULL && version > name ? version - name : (ptrdiff_t)len);
}

/* Whether it names a function; other symbols in code only end the one before. */
static bool is_function(const GElf_Sym *symbol)
{
	int type = GELF_ST_TYPE(symbol->st_info);

	return type == STT_FUNC || type == STT_GNU_IFUNC ||
	       (type == STT_NOTYPE && GELF_ST_BIND(symbol->st_info) == STB_GLOBAL);
}

/* Of one function people know the name that is exported without underscores, if only weakly: write, not __write. */
static uint32_t rank_of(const GElf_Sym *symbol, const char *name)
{
	int bind = GELF_ST_BIND(symbol->st_info);
	bool plain = name[0] != '_';

	if (bind != STB_GLOBAL && bind != STB_WEAK)
		return 2 + plain;
	return (plain ? 6u : 4u) + (bind == STB_GLOBAL);
}

/* The symbol in section `index` of elf; false: it is not in code. */
static bool symbol_from(Elf *elf, GElf_Word index, const GElf_Sym *symbol, const char *name, bool full,
			struct symtable_symbol *ret)
{
	int type = GELF_ST_TYPE(symbol->st_info);
	Elf_Scn *section = elf != NULL ? elf_getscn(elf, index) : NULL;
	GElf_Shdr header;

	/* $x and $d tell disassemblers of ARM what follows. */
	if (index == SHN_UNDEF || type == STT_SECTION || type == STT_FILE || type == STT_TLS || name[0] == '$')
		return false;
	if (section == NULL || gelf_getshdr(section, &header) == NULL || !(header.sh_flags & SHF_EXECINSTR))
		return false;
	bool named = is_function(symbol) && (symbol->st_size > 0 || full);
	uint64_t offset = symbol->st_value - header.sh_addr;

	if (symbol->st_value < header.sh_addr || offset >= header.sh_size)
		return false;
	ret->open = !named || symbol->st_size == 0;
	ret->end = ret->start +
		   (ret->open || symbol->st_size > header.sh_size - offset ? header.sh_size - offset : symbol->st_size);
	ret->name = name;
	ret->len = named ? name_length(name) : 0;
	ret->rank = named ? rank_of(symbol, name) : 0;
	return true;
}

/* More is left to libelf. Of the largest browser .debug_info has 3 GB. */
#define INFLATED_MAX ((uint64_t)4 << 30)

/* Deflate makes nothing smaller than by this factor: a larger size is wrong. */
#define DEFLATE_MOST 1032

/*
 * What the section holds, decompressed; NULL: it is not compressed in this format, or damaged, or
 * memory is short.
 */
static struct inflated *inflate_section(const Elf_Data *data, uint64_t room)
{
	Elf64_Chdr header;

	if (data->d_size < sizeof(header))
		return NULL;
	memcpy(&header, data->d_buf, sizeof(header));
	if (header.ch_type != ELFCOMPRESS_ZLIB || header.ch_size > room || header.ch_size / DEFLATE_MOST > data->d_size)
		return NULL;

	struct inflated *inflated = malloc(sizeof(*inflated) + header.ch_size);

	if (inflated == NULL)
		return NULL;
	*inflated = (struct inflated){ .len = header.ch_size };
	if (inflate_zlib((const char *)data->d_buf + sizeof(header), data->d_size - sizeof(header), inflated->data,
			 inflated->len) == 0)
		return inflated;
	free(inflated);
	return NULL;
}

/* Whether names and lines of functions are read from the section. */
static bool is_needed(const char *name)
{
	static const char *const others[] = { ".debug_loclists", ".debug_loc",          ".debug_aranges",
					      ".debug_macro",    ".debug_macinfo",      ".debug_pubnames",
					      ".debug_pubtypes", ".debug_gnu_pubnames", ".debug_gnu_pubtypes" };

	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		if (strcmp(name, others[i]) == 0)
			return false;
	return true;
}

/*
 * Puts in the place of the section's compressed bytes, in memory, what they hold, or nothing where it
 * is not needed: libdw takes it as a section that never was compressed, or is not there.
 */
static void inflate_in_place(struct elf_file *file, Elf_Scn *section, const char *name)
{
	GElf_Shdr header;
	Elf_Data *raw, *data;
	struct inflated *inflated = NULL;

	if (gelf_getshdr(section, &header) == NULL || !(header.sh_flags & SHF_COMPRESSED) ||
	    strncmp(name, ".debug_", 7) != 0)
		return;
	/* Two views of the same bytes; which of them libdw reads depends on its version. */
	raw = elf_rawdata(section, NULL);
	data = elf_getdata(section, NULL);
	if (raw == NULL || data == NULL || raw->d_buf == NULL)
		return;
	if (is_needed(name)) {
		inflated = inflate_section(raw, INFLATED_MAX - file->inflated_bytes);
		if (inflated == NULL)
			return;
		inflated->next = file->inflated;
		file->inflated = inflated;
		file->inflated_bytes += inflated->len;
	}
	header.sh_flags &= ~(GElf_Xword)SHF_COMPRESSED;
	header.sh_size = inflated != NULL ? inflated->len : 0;
	if (gelf_update_shdr(section, &header) == 0)
		return;
	raw->d_buf = data->d_buf = inflated != NULL ? inflated->data : NULL;
	raw->d_size = data->d_size = header.sh_size;
}

static void inflate_debug_sections(struct elf_file *file, Elf *elf)
{
	size_t names;

	if (!is_wide(elf) || elf_getshdrstrndx(elf, &names) != 0)
		return;
	for (Elf_Scn *section = NULL; (section = elf_nextscn(elf, section)) != NULL;) {
		GElf_Shdr header;
		const char *name =
			gelf_getshdr(section, &header) != NULL ? elf_strptr(elf, names, header.sh_name) : NULL;

		if (name != NULL)
			inflate_in_place(file, section, name);
	}
}

/* Of symbols that libdwfl takes from a debug file that file's debug sections are decompressed, too. */
static int read_symbols(struct elf_file *file)
{
	int count = dwfl_module_getsymtab(file->module);
	Elf *last = NULL;
	bool full = false;

	if (count < 0)
		return -ENOENT;
	for (int i = 0; i < count; i++) {
		struct symtable_symbol found = { 0 };
		GElf_Sym symbol;
		GElf_Addr address;
		GElf_Word section = SHN_UNDEF;
		Elf *elf = NULL;
		Dwarf_Addr bias;
		const char *name = dwfl_module_getsym_info(file->module, i, &symbol, &address, &section, &elf, &bias);

		if (name == NULL || elf == NULL)
			continue;
		if (elf != last) {
			full = has_full_table(elf);
			last = elf;
			inflate_debug_sections(file, elf);
		}
		found.start = address - file->bias;
		if (symbol_from(elf, section, &symbol, name, full, &found) && symtable_add(&file->symbols, &found) < 0)
			return -ENOMEM;
	}

	return symtable_seal(&file->symbols, SYMTABLE_INNERMOST);
}

/* Opens the shared debug information that this one refers to: without it, names are missing. */
static void read_shared(struct elf_file *file)
{
	const char *name;
	const void *wanted;
	uint8_t found[ELF_FILE_BUILD_ID_MAX];
	ssize_t len = dwelf_dwarf_gnu_debugaltlink(file->dwarf, &name, &wanted);

	if (len <= 0 || len > ELF_FILE_BUILD_ID_MAX || file->ask == NULL)
		return;
	file->shared_fd = file->ask(file->ctx, wanted, (size_t)len);
	if (file->shared_fd < 0)
		return;
	file->shared_elf = elf_begin(file->shared_fd, ELF_C_READ_MMAP_PRIVATE, NULL);
	if (file->shared_elf != NULL && build_id_of(file->shared_elf, found) == (size_t)len &&
	    memcmp(found, wanted, (size_t)len) == 0) {
		inflate_debug_sections(file, file->shared_elf);
		file->shared = dwarf_begin_elf(file->shared_elf, DWARF_C_READ, NULL);
	}
	if (file->shared != NULL)
		dwarf_setalt(file->dwarf, file->shared);
}

static void elf_file_read_all(struct elf_file *file)
{
	int r = read_symbols(file);

	file->read = true;
	file->unread = r == -ENOMEM || (r < 0 && has_full_table(file->elf));
	if (r < 0)
		symtable_release(&file->symbols);
	inflate_debug_sections(file, file->elf);
	file->dwarf = dwfl_module_getdwarf(file->module, &file->lines_bias);
	if (file->dwarf != NULL)
		read_shared(file);
	if (file->dwarf != NULL && elf_lines_new(file->dwarf, &file->lines) < 0)
		file->lines = NULL;
}

static bool find_rule(Dwarf_CFI *tables, uint64_t address, Dwarf_Frame **ret)
{
	return tables != NULL && dwarf_cfi_addrframe(tables, address, ret) == 0;
}

/*
 * The rule by which the caller of a function at a virtual address of the file is found, from
 * .eh_frame, else .debug_frame, each read when it is first needed; to be freed with free(3). False:
 * there is none, or the file is not of x86-64.
 */
static bool find_caller_rule(struct elf_file *file, uint64_t address, Dwarf_Frame **ret)
{
	if (!file->is_x86_64)
		return false;
	if (!file->eh_read)
		file->eh = dwarf_getcfi_elf(file->elf);
	file->eh_read = true;
	if (find_rule(file->eh, address, ret))
		return true;
	if (!file->read)
		elf_file_read_all(file);
	return file->dwarf != NULL &&
	       find_rule(dwarf_getcfi(file->dwarf), address - (file->lines_bias - file->bias), ret);
}

/* ---- functions without names ---- */

/* Bytes of a pointer in .eh_frame, by its encoding (LSB, 10.5.1); 0: of variable length. */
static size_t encoded_bytes(uint8_t encoding)
{
	static const uint8_t bytes[16] = {
		[0x0] = 8, [0x2] = 2, [0x3] = 4, [0x4] = 8, [0xa] = 2, [0xb] = 4, [0xc] = 8
	};

	return bytes[encoding & 0x0f];
}

/* How the functions of a CIE are encoded: "zPLR" lists what its augmentation data hold. False: not known. */
static bool find_encoding(const Dwarf_CIE *cie, uint8_t *ret)
{
	const uint8_t *data = cie->augmentation_data, *end = data + cie->augmentation_data_size;

	*ret = 0;
	if (cie->augmentation[0] != 'z')
		return cie->augmentation[0] == '\0';
	for (const char *letter = cie->augmentation + 1; *letter != '\0' && *letter != 'R'; letter++) {
		size_t bytes = *letter == 'P' && data < end ? encoded_bytes(*data) : 0;

		if (*letter == 'P' && bytes == 0)
			return false;
		data += *letter == 'L' || *letter == 'P' ? 1 + bytes : 0;
	}
	if (strchr(cie->augmentation, 'R') != NULL) {
		if (data >= end)
			return false;
		*ret = *data;
	}
	return true;
}

/* Where a function begins and its length; false: encoded in another way than compilers do. */
static bool read_function(const Dwarf_FDE *fde, uint8_t encoding, uint64_t address, struct range *ret)
{
	size_t bytes = encoded_bytes(encoding);
	uint64_t length = 0;
	int64_t start = 0;

	if (bytes < 4 || (size_t)(fde->end - fde->start) < 2 * bytes || (encoding & 0x70 & ~DW_EH_PE_pcrel) != 0)
		return false;
	memcpy(&start, fde->start, bytes);
	memcpy(&length, fde->start + bytes, bytes);
	if (bytes == 4 && (encoding & 0x08) != 0)
		start = (int32_t)start;
	ret->low = (uint64_t)start + ((encoding & DW_EH_PE_pcrel) != 0 ? address : 0);
	ret->what = ret->low;
	return !__builtin_add_overflow(ret->low, length, &ret->high) && ret->low != 0;
}

/* address: of the section. */
static int read_functions_of(struct elf_file *file, Elf_Data *data, uint64_t address)
{
	const unsigned char *ident = (const unsigned char *)elf_getident(file->elf, NULL), *begin = data->d_buf;
	Dwarf_Off next = 0, at = 0, cie_at = UINT64_MAX;
	Dwarf_CFI_Entry entry;
	uint8_t encoding = 0;
	int r = 0;

	while (r == 0 && file->described.count < SYMTABLE_MAX &&
	       dwarf_next_cfi(ident, data, true, at, &next, &entry) == 0) {
		struct range found;
		Dwarf_CFI_Entry cie;
		Dwarf_Off unused;

		at = next;
		if (dwarf_cfi_cie_p(&entry))
			continue;
		if (entry.fde.CIE_pointer != cie_at) {
			cie_at = UINT64_MAX;
			if (dwarf_next_cfi(ident, data, true, entry.fde.CIE_pointer, &unused, &cie) != 0 ||
			    !dwarf_cfi_cie_p(&cie) || !find_encoding(&cie.cie, &encoding))
				continue;
			cie_at = entry.fde.CIE_pointer;
		}
		if (read_function(&entry.fde, encoding, address + (uint64_t)(entry.fde.start - begin), &found))
			r = ranges_add(&file->described, &found);
	}
	return r;
}

static void read_described(struct elf_file *file)
{
	size_t names;

	file->described_read = true;
	if (!file->is_wide || elf_getshdrstrndx(file->elf, &names) != 0)
		return;
	for (Elf_Scn *section = NULL; (section = elf_nextscn(file->elf, section)) != NULL;) {
		GElf_Shdr header;
		const char *name = gelf_getshdr(section, &header) ? elf_strptr(file->elf, names, header.sh_name) : NULL;
		Elf_Data *data = name != NULL && strcmp(name, ".eh_frame") == 0 && header.sh_type != SHT_NOBITS
					 ? elf_rawdata(section, NULL)
					 : NULL;

		if (data != NULL && data->d_buf != NULL && read_functions_of(file, data, header.sh_addr) < 0)
			file->described.count = 0;
	}
	ranges_sort(&file->described);
}

bool elf_file_function(struct elf_file *file, uint64_t address, uint64_t *ret_start)
{
	if (!file->described_read)
		read_described(file);

	const struct range *range = ranges_find(&file->described, address);

	if (range != NULL)
		*ret_start = range->low;
	return range != NULL;
}

/* ---- names ---- */

static const char *copy_demangled(struct elf_file *file, const char *name, size_t len)
{
	char plain[DEMANGLE_MAX];
	size_t plain_len = demangle(name, len, plain);

	return plain_len > 0 ? arena_copy(&file->texts, plain, plain_len) : arena_copy(&file->texts, name, len);
}

/* NULL: it has none. In a damaged file names may be there and empty. */
static const char *name_of_frame(struct elf_file *file, const struct elf_lines_frame *frame,
				 const struct symtable_symbol *symbol)
{
	if (frame->linkage_name && *frame->linkage_name && (!symbol || is_mangled(frame->linkage_name)))
		return copy_demangled(file, frame->linkage_name, strlen(frame->linkage_name));
	if (symbol)
		return copy_demangled(file, symbol->name, symbol->len);
	return frame->name && *frame->name ? copy_demangled(file, frame->name, strlen(frame->name)) : NULL;
}

size_t elf_file_names(struct elf_file *file, uint64_t address, struct elf_file_name ret[ELF_FILE_NAMES_MAX])
{
	struct elf_lines_frame frames[ELF_FILE_NAMES_MAX] = { 0 };
	const struct symtable_symbol *symbol;
	size_t count = 0, kept = 0;

	if (!file->read)
		elf_file_read_all(file);
	if (file->lines != NULL)
		count = elf_lines_find(file->lines, address + file->bias - file->lines_bias, frames,
				       ELF_FILE_NAMES_MAX);
	symbol = symtable_find(&file->symbols, address);
	if (count == 0 && symbol != NULL)
		count = 1;
	for (size_t i = 0; i < count; i++) {
		const char *name = name_of_frame(file, &frames[i], i + 1 == count ? symbol : NULL);

		if (name == NULL)
			continue;
		ret[kept].function = name;
		ret[kept].file = frames[i].file;
		ret[kept++].line = frames[i].line;
	}

	return kept;
}

/* ---- modules ---- */

/* The largest perf maps, of a Java with all its methods, have some 20 MB; /proc/kallsyms 15 MB. */
#define TEXT_MAX ((size_t)64 << 20)

struct module {
	int number; /* in the stack file */
	int fd;     /* until it is opened */
	bool opened;
	enum module_state state;
	struct elf_file *elf_file;
	size_t same; /* 1 + the index of one of the same build that was opened before; 0: this one is read */
	bool debug_file, used, read; /* of a run: asked for by a mapping; for its names */
	uint8_t build_id[ELF_FILE_BUILD_ID_MAX];
	size_t build_id_len;
	struct buffer text; /* of a perf map or kallsyms */
	struct symtable symbols;
};

struct modules {
	const struct stack_file *file;
	const struct symbolize_options *options;
	struct symbolize_counts *counts;
	/*
	 * All processes of this machine and architecture have the same vDSO; those of another have
	 * one of another size.
	 */
	uint64_t vdso_bytes;
	struct module *all; /* the first one is the vDSO, the others are those of the file */
	size_t count;
};

static void release_module(struct module *module)
{
	elf_file_free(module->elf_file);
	symtable_release(&module->symbols);
	buffer_release(&module->text);
	scope_close(&module->fd);
}

static int descriptor_of(const struct symbolize_options *options, int number)
{
	if (number <= STDERR_FILENO)
		return -1;
	if (options->received == NULL)
		return number;
	return (size_t)number < options->received_count ? options->received[number] : -1;
}

/* Only what can have changed is read again: compilers add to their maps. */
static void keep_module(struct modules *modules, struct module *module, const struct stack_file_binary *binary)
{
	bool is_map = binary->kind == STACK_FILE_PERF_MAP;

	if (module->number != binary->fd || (is_map && module->opened)) {
		int fd = module->number == binary->fd ? TAKE_FD(module->fd) : -1;

		release_module(module);
		*module = (struct module){ .number = binary->fd, .fd = fd };
		if (fd < 0)
			module->fd = descriptor_of(modules->options, binary->fd);
	}
	module->used = module->read = false;
}

/* Up to this many, empty ones. 0; -ENOMEM; -EINVAL: there are more. */
static int add_modules(struct modules *modules, size_t count)
{
	struct module *all = count >= modules->count ? reallocarray(modules->all, count, sizeof(*all)) : NULL;

	if (all == NULL)
		return count >= modules->count ? -ENOMEM : -EINVAL;
	modules->all = all;
	for (; modules->count < count; modules->count++)
		all[modules->count] = (struct module){ .number = -1, .fd = -1 };
	return 0;
}

static void add_vdso(struct modules *modules, int fd)
{
	struct stat st;

	modules->all[0].fd = fd;
	if (fd >= 0 && fstat(fd, &st) == 0)
		modules->vdso_bytes = (uint64_t)st.st_size;
}

int modules_new(const struct stack_file *file, const struct symbolize_options *options, struct symbolize_counts *counts,
		struct modules **ret)
{
	struct modules *modules = *ret != NULL ? *ret : calloc(1, sizeof(*modules));
	size_t had = modules != NULL ? modules->count : 0;
	int r;

	if (modules == NULL)
		return -ENOMEM;
	modules->file = file;
	modules->options = options;
	modules->counts = counts;
	*ret = modules;
	r = add_modules(modules, 1 + (size_t)file->head->binaries);
	if (r < 0)
		return r;
	if (had == 0)
		add_vdso(modules, options->vdso);
	modules->all[0].used = modules->all[0].read = false;
	for (size_t i = 1; i < modules->count; i++)
		keep_module(modules, &modules->all[i], &file->binaries[i - 1]);
	return 0;
}

void modules_free(struct modules *modules)
{
	if (modules == NULL)
		return;
	for (size_t i = 0; i < modules->count; i++) {
		struct module *module = &modules->all[i];
		struct symbolize_counts *counts = modules->counts;

		counts->binaries_read += module->used && module->state == MODULE_GOOD;
		counts->binaries_replaced += module->used && module->state == MODULE_REPLACED;
		counts->binaries_unreadable += (module->used && module->state == MODULE_UNREADABLE) ||
					       (module->read && module->elf_file->unread);
		counts->debug_files += module->read && module->debug_file;
		release_module(module);
	}
	free(modules->all);
	free(modules);
}

/* True the first time, if there is a file to open. */
static bool may_open(struct module *module)
{
	bool first = !module->opened;

	module->opened = true;
	return first && module->fd >= 0;
}

/* By offsets: the descriptor may be a copy of one that another symboliser reads now. */
static int read_all(int fd, struct buffer *text)
{
	char piece[16384];
	ssize_t n;

	text->max = TEXT_MAX;
	while ((n = pread(fd, piece, sizeof(piece), (off_t)text->len)) > 0)
		if (buffer_append(text, piece, (size_t)n) < 0)
			return -EFBIG;
	return n < 0 ? -errno : 0;
}

/*
 * A text that is too long counts as far as it was read: its last line may then be cut, and is left
 * out.
 */
static bool open_text(struct module *module)
{
	if (!may_open(module))
		return false;
	if (read_all(module->fd, &module->text) < 0)
		while (module->text.len > 0 && module->text.data[module->text.len - 1] != '\n')
			module->text.len--;
	return module->text.len > 0;
}

static bool names_file(const struct modules *modules, size_t i, const struct address_space_mapping *mapping)
{
	const struct stack_file_binary *binary = &modules->file->binaries[i - 1];

	return binary->kind == STACK_FILE_ELF && perf_record_file_same(&binary->file, &mapping->file) &&
	       strcmp(modules->file->strings + binary->path_offset, mapping->path) == 0;
}

/* Whether the record identifies the file at all. */
static bool is_known_file(const struct perf_record_file *file)
{
	return file->inode != 0 || file->build_id_len > 0;
}

static struct module *module_of(struct modules *modules, const struct address_space_mapping *mapping)
{
	struct module *vdso = &modules->all[0];

	if (strcmp(mapping->path, "[vdso]") == 0)
		return mapping->end - mapping->start == modules->vdso_bytes ? vdso : NULL;
	if (!is_known_file(&mapping->file))
		return NULL;
	for (size_t i = 1; i < modules->count; i++)
		if (names_file(modules, i, mapping))
			return &modules->all[i];
	return NULL;
}

static void find_debug_file(struct modules *modules, struct module *module)
{
	const struct symbolize_options *options = modules->options;
	int fd = -1;

	if (options->debug_file != NULL && module->build_id_len > 0)
		fd = options->debug_file(options->ctx, module->build_id, module->build_id_len);
	module->debug_file = fd >= 0 && elf_file_debug_file(module->elf_file, fd);
}

static bool is_same_build(const struct module *module, const struct perf_record_file *file)
{
	return file->build_id_len == 0 || (file->build_id_len == module->build_id_len &&
					   memcmp(file->build_id, module->build_id, module->build_id_len) == 0);
}

/*
 * The same library in another mount namespace has a descriptor of its own. Reading the symbols of the C
 * library takes 20 ms.
 */
static size_t find_build(const struct modules *modules, const struct module *module)
{
	for (size_t i = 0; i < modules->count && module->build_id_len > 0; i++) {
		const struct module *other = &modules->all[i];

		if (other != module && other->elf_file && other->state == MODULE_GOOD && !other->same &&
		    other->build_id_len == module->build_id_len &&
		    memcmp(other->build_id, module->build_id, module->build_id_len) == 0)
			return i + 1;
	}
	return 0;
}

static void open_elf(struct modules *modules, struct module *module, const struct perf_record_file *file)
{
	if (modules->options->raw || !may_open(module))
		return;
	if (elf_file_open(TAKE_FD(module->fd), &module->elf_file) < 0) {
		module->state = MODULE_UNREADABLE;
		return;
	}
	module->build_id_len = build_id_of(module->elf_file->elf, module->build_id);
	if (!is_same_build(module, file)) {
		module->state = MODULE_REPLACED;
		return;
	}
	module->state = MODULE_GOOD;
	module->same = find_build(modules, module);
	if (module->same)
		return;
	find_debug_file(modules, module);
	module->elf_file->ask = modules->options->debug_file;
	module->elf_file->ctx = modules->options->ctx;
}

struct elf_file *modules_elf(struct modules *modules, const struct address_space_mapping *mapping,
			     enum module_state *ret_state)
{
	struct module *module = module_of(modules, mapping);

	*ret_state = MODULE_ABSENT;
	if (module == NULL)
		return NULL;
	open_elf(modules, module, &mapping->file);
	*ret_state = module->state;
	module->used = true;
	if (module->state != MODULE_GOOD)
		return NULL;
	if (module->same > 0)
		module = &modules->all[module->same - 1];
	module->read = true;
	return module->elf_file;
}

static size_t symbol_name_at(const struct symtable *symbols, uint64_t address, const char **ret)
{
	const struct symtable_symbol *symbol = symtable_find(symbols, address);

	if (symbol == NULL)
		return 0;
	*ret = symbol->name;
	return symbol->len;
}

static struct module *module_of_kind(struct modules *modules, enum stack_file_kind kind, uint32_t pid)
{
	for (size_t i = 1; i < modules->count; i++)
		if (modules->file->binaries[i - 1].kind == (uint32_t)kind && modules->file->binaries[i - 1].pid == pid)
			return &modules->all[i];
	return NULL;
}

size_t modules_compiled(struct modules *modules, uint32_t pid, uint64_t address, const char **ret)
{
	struct module *module = module_of_kind(modules, STACK_FILE_PERF_MAP, pid);
	struct perf_map_counts counts = { 0 };

	if (module == NULL)
		return 0;
	if (open_text(module)) {
		if (perf_map_parse(module->text.data, module->text.len, &module->symbols, &counts) < 0)
			symtable_release(&module->symbols);
		modules->counts->perf_map_lines_broken += counts.broken;
	}

	return symbol_name_at(&module->symbols, address, ret);
}

size_t modules_kernel(struct modules *modules, uint64_t address, const char **ret)
{
	struct module *module = NULL;

	for (size_t i = 1; i < modules->count && module == NULL; i++)
		if (modules->file->binaries[i - 1].kind == STACK_FILE_KALLSYMS)
			module = &modules->all[i];
	if (module == NULL)
		return 0;
	if (open_text(module) && kallsyms_parse(module->text.data, module->text.len, &module->symbols) < 0)
		symtable_release(&module->symbols);
	return symbol_name_at(&module->symbols, address, ret);
}

/* ---- unwinding ----
 *
 * Three layers. struct frame_state: registers and the copy of the stack; step_by_file: to
 * the caller by the tables of one file; unwind_sample: from function to caller, until one of
 *
 * outermost   the tables say that there is no caller: the stack is complete, and the kernel's chain
 *             is not used
 * lost        no tables and no valid frame pointer, or a caller outside of the process's code
 * cut         the caller is beyond the copy of the stack, or there are too many
 *
 * The stack pointer must move up at each step, except at those of signals, which may have a stack
 * of their own: so it terminates.
 *
 * libdw reads the tables and says for each register how the caller's value is found, as an
 * expression that is evaluated here. Expressions are not trusted: the values on the stack are few,
 * operations are counted, there are no jumps (compilers and assemblers write none here), and memory
 * is the copy of the stack and nothing else.
 *
 * Rejected: libdwfl's unwinder. It wants all modules of one process at a time, opened anew for each
 * process, and guesses by frame pointers without saying so. Here the tables of a file are read once
 * for all processes that have it mapped.
 */

/* Registers as DWARF numbers them (System V ABI, AMD64 supplement, figure 3.36). */
enum {
	FRAME_STATE_BP = 6,
	FRAME_STATE_SP = 7,
	FRAME_STATE_PC = 16, /* "return address" */
	FRAME_STATE_REGISTERS,
};

/*
 * A thread's registers and the copy of its stack, as a sample has them, on the way from a function
 * to its caller. What callers need is on their stack; no other memory is there.
 */
struct frame_state {
	uint64_t registers[FRAME_STATE_REGISTERS];
	uint32_t known; /* a bit for each register */
	const uint8_t *stack;
	uint64_t stack_start; /* the address of its first byte */
	size_t stack_bytes;
	bool beyond; /* something beyond the end of the copy was needed: the stack is deeper */
};

enum frame_way {
	FRAME_CALLER,      /* *state is the caller's */
	FRAME_INTERRUPTED, /* the same, by a signal and not a call: its program counter is exact */
	FRAME_OUTERMOST,   /* there is no caller */
	FRAME_UNKNOWN,     /* not in the tables, or not enough is known; *state changed only in `beyond` */
};

/* What is farther from the stack pointer is not on the stack. */
#define STACK_MAX ((uint64_t)64 << 20)

/* DWARF register to bit of perf_regs: arch/x86/include/uapi/asm/perf_regs.h. */
static const uint8_t perf_bits[FRAME_STATE_REGISTERS] = {
	0, 3, 2, 1, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 8,
};

/*
 * From a sample, which must outlive it. False: no registers of a 64-bit program, no stack, or not
 * on x86-64.
 */
static bool frame_state_init(struct frame_state *state, const struct perf_record_format *format,
			     const struct perf_record_sample *sample)
{
	const uint32_t needed = 1u << FRAME_STATE_SP | 1u << FRAME_STATE_PC;

	*state = (struct frame_state){ .stack = sample->stack, .stack_bytes = sample->stack_bytes };
#ifndef __x86_64__
	return false;
#endif
	if (sample->regs_abi != PERF_SAMPLE_REGS_ABI_64 || sample->regs == NULL || sample->stack == NULL)
		return false;
	for (unsigned i = 0; i < FRAME_STATE_REGISTERS; i++) {
		uint64_t bit = 1ull << perf_bits[i];
		size_t at = (size_t)__builtin_popcountll(format->regs_user & (bit - 1));

		if (!(format->regs_user & bit) || at >= sample->regs_len)
			continue;
		memcpy(&state->registers[i], &sample->regs[at], sizeof(uint64_t));
		state->known |= 1u << i;
	}
	state->stack_start = state->registers[FRAME_STATE_SP];
	return (state->known & needed) == needed && state->stack_start + state->stack_bytes >= state->stack_start;
}

/* False: the register is not known any more. */
static bool frame_state_register(const struct frame_state *state, uint64_t number, uint64_t *ret)
{
	if (number >= FRAME_STATE_REGISTERS || !(state->known & 1u << number))
		return false;
	*ret = state->registers[number];
	return true;
}

/* A number of 1, 2, 4 or 8 bytes from the stack. False: it is not in the copy. */
static bool frame_state_read(struct frame_state *state, uint64_t address, size_t bytes, uint64_t *ret)
{
	uint64_t offset = address - state->stack_start, value = 0;

	if (address < state->stack_start)
		return false;
	if (offset > state->stack_bytes || state->stack_bytes - offset < bytes) {
		state->beyond |= offset < STACK_MAX;
		return false;
	}
	memcpy(&value, state->stack + offset, bytes); /* x86-64 is little-endian */
	*ret = value;
	return true;
}

/*
 * To the caller, by the chain of frame pointers; then only stack pointer, frame pointer and program
 * counter are known. False: it is not valid; only `beyond` may have changed.
 */
static bool frame_state_follow_bp(struct frame_state *state)
{
	uint64_t bp, sp, caller_bp, pc;

	if (!frame_state_register(state, FRAME_STATE_BP, &bp) || !frame_state_register(state, FRAME_STATE_SP, &sp) ||
	    bp < sp || bp % 8 != 0 || bp > UINT64_MAX - 16)
		return false;
	if (!frame_state_read(state, bp, 8, &caller_bp) || !frame_state_read(state, bp + 8, 8, &pc))
		return false;
	state->registers[FRAME_STATE_BP] = caller_bp;
	state->registers[FRAME_STATE_SP] = bp + 16;
	state->registers[FRAME_STATE_PC] = pc;
	state->known = 1u << FRAME_STATE_BP | 1u << FRAME_STATE_SP | 1u << FRAME_STATE_PC;
	return true;
}

/* ---- expressions of the unwinding tables ---- */

#define VALUES_MAX 32
#define OPERATIONS_MAX 256

struct evaluation {
	struct frame_state *state; /* the callee's */
	uint64_t cfa;
	bool has_cfa;
	uint64_t values[VALUES_MAX];
	size_t count;
	bool is_value; /* the result is the value itself, not where it is */
};

static bool push_value(struct evaluation *on, uint64_t value)
{
	if (on->count == VALUES_MAX)
		return false;
	on->values[on->count++] = value;
	return true;
}

static bool push_register(struct evaluation *on, uint64_t number, uint64_t offset)
{
	uint64_t value;

	return frame_state_register(on->state, number, &value) && push_value(on, value + offset);
}

static bool push_copy(struct evaluation *on, uint64_t depth)
{
	return depth < on->count && push_value(on, on->values[on->count - 1 - depth]);
}

static bool dereference(struct evaluation *on, uint64_t bytes)
{
	if (on->count == 0 || (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8))
		return false;

	uint64_t *top = &on->values[on->count - 1];

	return frame_state_read(on->state, *top, bytes, top);
}

/* The two topmost become the first below the others. */
static bool rotate(struct evaluation *on, size_t depth)
{
	if (on->count < depth)
		return false;

	uint64_t *lowest = &on->values[on->count - depth], top = on->values[on->count - 1];

	memmove(lowest + 1, lowest, (depth - 1) * sizeof(*lowest));
	*lowest = top;
	return true;
}

static bool apply_unary(struct evaluation *on, uint8_t atom, uint64_t number)
{
	if (on->count == 0)
		return false;

	uint64_t *top = &on->values[on->count - 1];

	switch (atom) {
	case DW_OP_plus_uconst:
		*top += number;
		return true;
	case DW_OP_abs:
		*top = *top >> 63 ? -*top : *top;
		return true;
	case DW_OP_neg:
		*top = -*top;
		return true;
	case DW_OP_not:
		*top = ~*top;
		return true;
	case DW_OP_drop:
		on->count--;
		return true;
	default:
		return false;
	}
}

/* Left and right operand. *known: false for other operations. */
static uint64_t apply_binary(uint8_t atom, uint64_t left, uint64_t right, bool *known)
{
	*known = true;
	switch (atom) {
	case DW_OP_and:
		return left & right;
	case DW_OP_or:
		return left | right;
	case DW_OP_xor:
		return left ^ right;
	case DW_OP_plus:
		return left + right;
	case DW_OP_minus:
		return left - right;
	case DW_OP_mul:
		return left * right;
	case DW_OP_shl:
		return right < 64 ? left << right : 0;
	case DW_OP_shr:
		return right < 64 ? left >> right : 0;
	case DW_OP_shra:
		return (uint64_t)((int64_t)left >> (right < 64 ? right : 63));
	case DW_OP_eq:
		return left == right;
	case DW_OP_ne:
		return left != right;
	case DW_OP_lt:
		return (int64_t)left < (int64_t)right;
	case DW_OP_le:
		return (int64_t)left <= (int64_t)right;
	case DW_OP_gt:
		return (int64_t)left > (int64_t)right;
	case DW_OP_ge:
		return (int64_t)left >= (int64_t)right;
	default:
		*known = false;
		return left;
	}
}

static bool pop_and_apply_binary(struct evaluation *on, uint8_t atom)
{
	uint64_t *left;
	bool known;

	if (on->count < 2)
		return false;
	left = &on->values[on->count - 2];
	left[0] = apply_binary(atom, left[0], left[1], &known);
	on->count -= known;
	return known;
}

static bool evaluate_operation(struct evaluation *on, const Dwarf_Op *op)
{
	uint8_t atom = op->atom;

	if (atom >= DW_OP_lit0 && atom <= DW_OP_lit31)
		return push_value(on, atom - DW_OP_lit0);
	if (atom >= DW_OP_breg0 && atom <= DW_OP_breg31)
		return push_register(on, atom - DW_OP_breg0, op->number);
	if (atom >= DW_OP_const1u && atom <= DW_OP_consts)
		return push_value(on, op->number);
	switch (atom) {
	case DW_OP_bregx:
		return push_register(on, op->number, op->number2);
	case DW_OP_call_frame_cfa:
		return on->has_cfa && push_value(on, on->cfa);
	case DW_OP_dup:
	case DW_OP_over:
		return push_copy(on, atom == DW_OP_over);
	case DW_OP_pick:
		return push_copy(on, op->number);
	case DW_OP_swap:
	case DW_OP_rot:
		return rotate(on, atom == DW_OP_swap ? 2 : 3);
	case DW_OP_deref:
	case DW_OP_deref_size:
		return dereference(on, atom == DW_OP_deref ? 8 : op->number);
	case DW_OP_stack_value:
		on->is_value = true;
		return true;
	case DW_OP_nop:
		return true;
	default:
		return apply_unary(on, atom, op->number) || pop_and_apply_binary(on, atom);
	}
}

/* False: invalid, or it needs what is not known. */
static bool evaluate(struct evaluation *on, const Dwarf_Op *ops, size_t count)
{
	on->count = 0;
	on->is_value = false;
	if (count > OPERATIONS_MAX)
		return false;
	for (size_t i = 0; i < count; i++)
		if (!evaluate_operation(on, &ops[i]))
			return false;
	return on->count > 0;
}

/* ---- from function to caller ---- */

/* The register that the whole expression stands for; false: it is another kind of expression. */
static bool is_register(const Dwarf_Op *ops, size_t count, uint64_t *ret)
{
	if (count != 1 || !((ops->atom >= DW_OP_reg0 && ops->atom <= DW_OP_reg31) || ops->atom == DW_OP_regx))
		return false;
	*ret = ops->atom == DW_OP_regx ? ops->number : (uint64_t)(ops->atom - DW_OP_reg0);
	return true;
}

/* The caller's value of a register. False: not known. *ret_undefined: the tables say so. */
static bool caller_register(Dwarf_Frame *frame, struct evaluation *on, int number, uint64_t *ret, bool *ret_undefined)
{
	Dwarf_Op room[3], *ops;
	size_t count;
	uint64_t other;

	*ret_undefined = false;
	if (dwarf_frame_register(frame, number, room, &ops, &count) != 0)
		return false;
	if (count == 0) {
		*ret_undefined = ops != NULL;
		return ops == NULL && frame_state_register(on->state, (uint64_t)number, ret);
	}
	if (is_register(ops, count, &other))
		return frame_state_register(on->state, other, ret);
	if (!evaluate(on, ops, count))
		return false;

	uint64_t result = on->values[on->count - 1];

	if (!on->is_value)
		return frame_state_read(on->state, result, 8, ret);
	*ret = result;
	return true;
}

static bool find_cfa(Dwarf_Frame *frame, struct evaluation *on)
{
	Dwarf_Op *ops;
	size_t count;

	if (dwarf_frame_cfa(frame, &ops, &count) != 0 || !evaluate(on, ops, count))
		return false;
	on->cfa = on->values[on->count - 1];
	on->has_cfa = true;
	return true;
}

static enum frame_way step_by_rule(Dwarf_Frame *frame, struct frame_state *state)
{
	struct evaluation on = { .state = state };
	struct frame_state caller = *state; /* not its `beyond`: that register may not be needed */
	bool undefined, signal = false;
	int pc = dwarf_frame_info(frame, NULL, NULL, &signal);

	if (pc != FRAME_STATE_PC || !find_cfa(frame, &on))
		return FRAME_UNKNOWN;
	caller.known = 0;
	for (int i = 0; i < FRAME_STATE_REGISTERS; i++) {
		if (caller_register(frame, &on, i, &caller.registers[i], &undefined))
			caller.known |= 1u << i;
		else if (i == FRAME_STATE_PC)
			return undefined ? FRAME_OUTERMOST : FRAME_UNKNOWN;
	}
	if (!(caller.known & 1u << FRAME_STATE_SP)) {
		caller.registers[FRAME_STATE_SP] = on.cfa;
		caller.known |= 1u << FRAME_STATE_SP;
	}
	*state = caller;
	return signal ? FRAME_INTERRUPTED : FRAME_CALLER;
}

/*
 * From a function to its caller. address: the virtual address in the file of the program counter,
 * or of a return address the byte before it.
 */
static enum frame_way step_by_file(struct elf_file *file, uint64_t address, struct frame_state *state)
{
	AUTO_FREE Dwarf_Frame *rule = NULL;

	return find_caller_rule(file, address, &rule) ? step_by_rule(rule, state) : FRAME_UNKNOWN;
}

enum outcome {
	OUTERMOST,
	LOST,
};

/* False: no table knows the address. */
static bool step_by_tables(const struct unwind_place *place, uint64_t address, struct frame_state *state,
			   enum frame_way *ret)
{
	const struct address_space_mapping *mapping = address_spaces_find(place->spaces, place->pid, address);
	enum module_state module;
	struct elf_file *file = mapping != NULL ? modules_elf(place->modules, mapping, &module) : NULL;
	uint64_t inside;

	if (file == NULL || !elf_file_address(file, address - mapping->start + mapping->offset_bytes, &inside))
		return false;
	*ret = step_by_file(file, inside, state);
	return *ret != FRAME_UNKNOWN;
}

static bool append_frame(struct unwind *stack, uint64_t address, bool exact)
{
	if (stack->count == UNWIND_FRAMES_MAX)
		return false;
	stack->addresses[stack->count] = address;
	stack->exact[stack->count++] = exact;
	return true;
}

static bool is_code(const struct unwind_place *place, uint64_t address, bool exact)
{
	return address_spaces_find(place->spaces, place->pid, address - !exact) != NULL;
}

static bool has_moved_up(const struct frame_state *state, uint64_t sp)
{
	return state->registers[FRAME_STATE_SP] > sp;
}

/* To the caller. False: *outcome says why there is none. */
static bool step_to_caller(const struct unwind_place *place, struct frame_state *state, struct unwind *stack,
			   bool *exact, enum outcome *outcome)
{
	uint64_t sp = state->registers[FRAME_STATE_SP];
	uint64_t address = state->registers[FRAME_STATE_PC] - !*exact;
	enum frame_way way = FRAME_CALLER;
	bool tables = step_by_tables(place, address, state, &way);

	*outcome = tables && way == FRAME_OUTERMOST ? OUTERMOST : LOST;
	if (tables && way == FRAME_OUTERMOST)
		return false;
	if (!tables && (state->beyond || !frame_state_follow_bp(state)))
		return false;
	*exact = way == FRAME_INTERRUPTED;
	if (!has_moved_up(state, sp) && !*exact)
		return false;
	stack->by_tables += tables;
	return is_code(place, state->registers[FRAME_STATE_PC], *exact);
}

static enum outcome unwind_by_tables(const struct unwind_place *place, struct frame_state *state, struct unwind *stack)
{
	enum outcome outcome = LOST;
	bool exact = true;

	while (append_frame(stack, state->registers[FRAME_STATE_PC], exact) &&
	       step_to_caller(place, state, stack, &exact, &outcome))
		;
	return outcome;
}

/*
 * How many functions of the chain are at or below the outermost one that both have. The chain may
 * lack functions, and in recursions repeats them, so each is looked for above the one before.
 */
static size_t common_with_chain(const struct unwind *stack, const uint64_t *chain, size_t len)
{
	size_t above = 0, common = 0;

	for (size_t i = 0; i < len && above < stack->count; i++)
		for (size_t j = above; j < stack->count; j++)
			if (stack->addresses[j] == chain[i]) {
				above = j + 1;
				common = i + 1;
				break;
			}

	return common;
}

/* Appends what the kernel knows beyond an incomplete stack, as long as it is in code. */
static void append_chain(const struct unwind_place *place, struct unwind *stack, const uint64_t *chain, size_t len)
{
	size_t i = common_with_chain(stack, chain, len);

	if (i == 0 && len <= stack->count)
		return;
	if (i == 0)
		stack->count = stack->by_tables = 0;
	for (bool exact = i == 0; i < len; i++, exact = false) {
		if (!is_code(place, chain[i], exact) || !append_frame(stack, chain[i], exact))
			return;
		stack->cut = false;
	}
}

void unwind_sample(const struct unwind_place *place, const struct perf_record_format *format,
		   const struct perf_record_sample *sample, const uint64_t *chain, size_t chain_len, struct unwind *ret)
{
	struct frame_state state;

	ret->count = ret->by_tables = 0;
	ret->cut = false;
	if (!frame_state_init(&state, format, sample)) {
		for (size_t i = 0; i < chain_len && append_frame(ret, chain[i], i == 0); i++)
			;
		return;
	}
	if (unwind_by_tables(place, &state, ret) == OUTERMOST)
		return;
	ret->cut = state.beyond || ret->count == UNWIND_FRAMES_MAX;
	append_chain(place, ret, chain, chain_len);
}
