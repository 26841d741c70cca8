/*
 * perfmap.c: line by line. What is no such line is skipped: a compiler may be in the midst of writing one. perf(1) does the same.
 */
#include "perfmap.h"

#include <errno.h>
#include <string.h>

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);

	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads a hexadecimal number, with or without 0x, and the blank behind it. False: there is none, or more than 64 bits. */
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

static bool parse_line(const char *line, const char *end, struct symtable_symbol *ret)
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

int perfmap_parse(const char *text, size_t len, struct symtable *table, struct perfmap_counts *ret_counts)
{
	struct perfmap_counts counts = { 0 };
	const char *end = text + len;

	for (const char *line = text; line < end;) {
		const char *stop = memchr(line, '\n', (size_t)(end - line));
		struct symtable_symbol symbol;

		stop = stop != NULL ? stop : end;
		if (!parse_line(line, stop, &symbol)) {
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
