/*
 * kallsyms.c: columns of a fixed width up to the name. The kernel says where symbols start, not where they end, so all of them are open:
 * the next symbol of any kind ends them, and before a hole KALLSYMS_FUNCTION_MAX does.
 *
 * Ranks: of two names for one address the global one is preferred, as perf(1) does.
 */
#include "kallsyms.h"

#include <errno.h>
#include <string.h>

/* "ffffffff81000000 T _text": 32-bit kernels print eight digits. */
static bool parse_line(const char *line, const char *end, struct symtable_symbol *ret)
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
		if (parse_line(line, stop, &symbol) && symtable_add(table, &symbol) < 0)
			return -ENOMEM;
		line = stop < end ? stop + 1 : end;
	}

	return symtable_seal(table, SYMTABLE_INNERMOST);
}
