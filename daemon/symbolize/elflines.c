/*
 * elflines.c: two indexes, both made when they are first needed: of all units by address, and of one unit's functions by address. Then
 * there is one function's tree to go down, in which each level that covers the address and is an inlined function gives a frame.
 *
 * .debug_aranges, which libdw would look into, is rejected: clang does not write it, so that half of a program would be missing. So is
 * dwarf_getscopes(3): it walks all of a unit for every address.
 *
 * Debug information can be made to go in circles. Entries that are visited are counted, over all calls; beyond VISITS_MAX there are no more
 * answers, which leaves the names of the symbol table.
 */
#include "elflines.h"

#include "scope.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

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

struct elflines {
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
	if (ranges->count == ranges->cap) {
		size_t cap = ranges->cap > 0 ? 2 * ranges->cap : 16;
		struct range *grown = reallocarray(ranges->all, cap, sizeof(*grown));

		if (grown == NULL)
			return -ENOMEM;
		ranges->all = grown;
		ranges->cap = cap;
	}
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

/* Code belongs to one unit and one function: the range that starts last before the address, or none. */
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

/* All stretches of code that an entry is about. What the linker has thrown away stands at 0. */
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

static int add_unit(struct elflines *lines, const Dwarf_Die *die)
{
	if (lines->unit_count == lines->unit_cap) {
		size_t cap = lines->unit_cap > 0 ? 2 * lines->unit_cap : 16;
		struct unit *grown = reallocarray(lines->units, cap, sizeof(*grown));

		if (grown == NULL)
			return -ENOMEM;
		lines->units = grown;
		lines->unit_cap = cap;
	}
	size_t number = lines->unit_count++;

	lines->units[number] = (struct unit){ .die = *die };

	return add_ranges_of(&lines->by_unit, &lines->units[number].die, number);
}

int elflines_new(struct Dwarf *dwarf, struct elflines **ret)
{
	AUTO_FREE struct elflines *lines = calloc(1, sizeof(*lines));
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
		elflines_free(TAKE(lines));
		return r;
	}
	ranges_sort(&lines->by_unit);
	*ret = TAKE(lines);

	return 0;
}

void elflines_free(struct elflines *lines)
{
	if (lines == NULL)
		return;
	for (size_t i = 0; i < lines->unit_count; i++)
		free(lines->units[i].functions.all);
	free(lines->units);
	free(lines->by_unit.all);
	free(lines);
}

/* May functions with code be described inside of it? */
static bool holds_functions(int tag)
{
	return tag == DW_TAG_namespace || tag == DW_TAG_module || tag == DW_TAG_class_type ||
	       tag == DW_TAG_structure_type || tag == DW_TAG_union_type || tag == DW_TAG_enumeration_type;
}

static int read_functions(struct elflines *lines, struct unit *unit, Dwarf_Die *parent, int depth)
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
static bool go_down(struct elflines *lines, Dwarf_Die *scope, uint64_t address)
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

static uint32_t number_of(Dwarf_Die *die, unsigned attribute)
{
	Dwarf_Attribute at;
	Dwarf_Word value;

	if (dwarf_attr(die, attribute, &at) == NULL || dwarf_formudata(&at, &value) != 0 || value > UINT32_MAX)
		return 0;

	return (uint32_t)value;
}

static void name_frame(Dwarf_Die *die, struct elflines_frame *ret)
{
	Dwarf_Attribute at;

	if (dwarf_attr_integrate(die, DW_AT_linkage_name, &at) != NULL ||
	    dwarf_attr_integrate(die, DW_AT_MIPS_linkage_name, &at) != NULL)
		ret->linkage_name = dwarf_formstring(&at);
	if (dwarf_attr_integrate(die, DW_AT_name, &at) != NULL)
		ret->name = dwarf_formstring(&at);
}

/* Where an inlined function was called, which is where its caller is. */
static void place_of_call(Dwarf_Die *unit, Dwarf_Die *inlined, struct elflines_frame *ret)
{
	uint32_t index = number_of(inlined, DW_AT_call_file);
	Dwarf_Files *files;
	size_t count;

	ret->line = number_of(inlined, DW_AT_call_line);
	if (dwarf_getsrcfiles(unit, &files, &count) == 0 && index < count)
		ret->file = dwarf_filesrc(files, index, NULL, NULL);
}

static void place_of_address(Dwarf_Die *unit, uint64_t address, struct elflines_frame *ret)
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
static size_t functions_down(struct elflines *lines, Dwarf_Die scope, uint64_t address, Dwarf_Die *ret)
{
	size_t count = 0;

	ret[count++] = scope;
	for (int depth = 0; depth < DEPTH_MAX && go_down(lines, &scope, address); depth++)
		if (dwarf_tag(&scope) == DW_TAG_inlined_subroutine)
			ret[count++] = scope;

	return count;
}

static struct unit *unit_at(struct elflines *lines, uint64_t address)
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

size_t elflines_find(struct elflines *lines, uint64_t address, struct elflines_frame *ret, size_t max)
{
	struct unit *unit = lines->visits < VISITS_MAX ? unit_at(lines, address) : NULL;
	const struct range *range = unit != NULL ? ranges_find(&unit->functions, address) : NULL;
	Dwarf_Die functions[DEPTH_MAX + 1];
	size_t count, kept = 0;

	if (range == NULL || dwarf_offdie(lines->dwarf, range->what, &functions[0]) == NULL)
		return 0;
	count = functions_down(lines, functions[0], address, functions);
	for (size_t i = count; i-- > 0;) {
		struct elflines_frame frame = { 0 };

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
