/*
 * symtable.c: an array sorted by start. `reach`, the highest end so far, says when looking further
 * back is of no use.
 *
 * Of symbols with one start the preferred is last, so that going back from the last one that starts
 * at or before the address, the first that covers it is the innermost and best. An untrusted file
 * can nest symbols a million deep: after STEPS_MAX no name is given. An open symbol inside of one
 * whose size is known is a label in a function: it would only hide the function, so it covers
 * nothing.
 *
 * Perf maps are parsed line by line; invalid lines are skipped, as perf(1) does: a compiler may be
 * writing one. /proc/kallsyms has columns of a fixed width up to the name. The kernel says where
 * symbols start, not where they end, so all of them are open: the next symbol of any kind ends
 * them, and before a hole KALLSYMS_FUNCTION_MAX does. Of two names for one address the global one
 * is preferred, as perf(1) does.
 */
#include "daemon/symbolize/symtable.h"

#include "lib/base/map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Symbols a table takes. A large browser has about one million. */
#define SYMTABLE_MAX (4u << 20)

/*
 * How far a lookup goes back. Symbols of real programs nest a few deep; code that was compiled
 * again and again piles up higher.
 */
#define STEPS_MAX 4096

int symtable_add(struct symtable *table, const struct symtable_symbol *symbol)
{
	if (symbol->end <= symbol->start)
		return 0;
	if (table->count == SYMTABLE_MAX) {
		table->dropped++;
		return 0;
	}
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
static int compare(const void *left, const void *right)
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

int symtable_seal(struct symtable *table, enum symtable_order order)
{
	uint64_t reach = 0;

	table->order = order;
	if (table->count == 0)
		return 0;
	table->reach = reallocarray(NULL, table->count, sizeof(*table->reach));
	if (table->reach == NULL)
		return -ENOMEM;

	qsort(table->symbols, table->count, sizeof(*table->symbols), compare);
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

const struct symtable_symbol *symtable_find(const struct symtable *table, uint64_t address)
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

void symtable_release(struct symtable *table)
{
	free(table->symbols);
	free(table->reach);
	*table = (struct symtable){ 0 };
}

/* ---- perf maps ---- */

static int digit(char c)
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
	for (; p < end && digit(*p) >= 0; p++, digits++) {
		if (value >> 60)
			return false;
		value = value << 4 | (uint64_t)digit(*p);
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

int perf_map_parse(const char *text, size_t len, struct symtable *table, struct perf_map_counts *ret_counts)
{
	struct perf_map_counts counts = { 0 };
	const char *end = text + len;

	for (const char *line = text; line < end;) {
		const char *stop = memchr(line, '\n', (size_t)(end - line));
		struct symtable_symbol symbol;

		stop = stop != NULL ? stop : end;
		if (!parse_perf_map_line(line, stop, &symbol)) {
			counts.broken += stop > line;
		} else {
			symbol.rank = (uint32_t)counts.lines++;
			if (symtable_add(table, &symbol) < 0)
				return -ENOMEM;
		}
		line = stop < end ? stop + 1 : end;
	}
	if (ret_counts != NULL)
		*ret_counts = counts;
	return symtable_seal(table, SYMTABLE_LATEST);
}

/* ---- /proc/kallsyms ---- */

/* "ffffffff81000000 T _text": 32-bit kernels print eight digits. */
static bool parse_kallsyms_line(const char *line, const char *end, struct symtable_symbol *ret)
{
	static const char digits[] = "0123456789abcdef";
	uint64_t address = 0;
	const char *p = line;

	for (; p < end && p - line < 16 && *p != ' '; p++) {
		const char *digit = memchr(digits, *p, sizeof(digits) - 1);

		if (digit == NULL)
			return false;
		address = address << 4 | (uint64_t)(digit - digits);
	}
	/* " T x" */
	if (address == 0 || end - p < 4 || p[0] != ' ' || p[2] != ' ')
		return false;
	uint64_t room = UINT64_MAX - address;

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

int kallsyms_parse(const char *text, size_t len, struct symtable *table)
{
	const char *end = text + len;

	for (const char *line = text; line < end;) {
		const char *stop = memchr(line, '\n', (size_t)(end - line));
		struct symtable_symbol symbol;

		stop = stop != NULL ? stop : end;
		if (parse_kallsyms_line(line, stop, &symbol) && symtable_add(table, &symbol) < 0)
			return -ENOMEM;
		line = stop < end ? stop + 1 : end;
	}

	return symtable_seal(table, SYMTABLE_INNERMOST);
}
