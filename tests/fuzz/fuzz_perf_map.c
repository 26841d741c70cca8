/*
 * fuzz_perf_map.c: perf maps and /proc/kallsyms: what is found is in the text, and where its line
 * says.
 */
#include "daemon/symbolize/symbols.c"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(struct symtable *table, const char *text, size_t size)
{
	for (size_t i = 0; i < table->count; i++) {
		const struct symtable_symbol *symbol = &table->symbols[i];
		const struct symtable_symbol *found = symtable_find(table, symbol->start);

		assert(symbol->name >= text && symbol->len <= size && symbol->name <= text + (size - symbol->len));
		assert(symbol->end >= symbol->start && (i == 0 || symbol[-1].start <= symbol->start));
		assert(!found || (found->len > 0 && found->start <= symbol->start && symbol->start < found->end));
	}
	symtable_release(table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	struct symtable table = { 0 };
	struct perf_map_counts counts;

	if (perf_map_parse(text, size, &table, &counts) == 0)
		assert(table.count == counts.lines && counts.lines + counts.broken <= size + 1);
	check(&table, text, size);
	(void)kallsyms_parse(text, size, &table);
	check(&table, text, size);

	return 0;
}
