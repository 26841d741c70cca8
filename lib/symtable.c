/*
 * symtable.c: an array sorted by start. `reach`, the highest end so far, says when looking further back is of no use.
 *
 * Of symbols with one start the preferred stands last, so that going back from the last one that starts at or before the address, the
 * first that covers it is the innermost and best. A file of a stranger can nest symbols a million deep: after STEPS_MAX no name is given.
 *
 * An open symbol inside of one whose size is known is a label in a function: it would only hide the function, so it covers nothing.
 */
#include "symtable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* How far a lookup goes back. Symbols of real programs nest a few deep; code that was compiled again and again piles up higher. */
#define STEPS_MAX 4096

int symtable_add(struct symtable *table, const struct symtable_symbol *symbol)
{
	if (symbol->end <= symbol->start)
		return 0;
	if (table->count == SYMTABLE_MAX) {
		table->dropped++;
		return 0;
	}
	if (table->count == table->cap) {
		size_t cap = table->cap > 0 ? 2 * table->cap : 256;
		struct symtable_symbol *grown = reallocarray(table->symbols, cap, sizeof(*grown));

		if (grown == NULL)
			return -ENOMEM;
		table->symbols = grown;
		table->cap = cap;
	}
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

static void close_open(struct symtable *table)
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
	close_open(table);
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
