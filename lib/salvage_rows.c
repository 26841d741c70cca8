/*
 * Rows are accounted for as in an anti-replay window: the highest number seen, and one bit for each of the 64
 * at and below it. A step of more than one is a loss, a number below with its bit clear is a late row and no
 * loss after all, everything else is a copy. So nothing grows with the input, and no row is handed out twice.
 */
#include "salvage_rows.h"

#include "text.h"

#include <string.h>

#define WINDOW_ROWS (SALVAGE_ROWS_LATE + 1)

/*
 * "1184\t\t52": reads cells, the first of them into ret[0], and returns how many there are; 0 if they make no
 * sense or are more than max. Bit n of *ret_mask: cell n is not empty. Empty cells are left alone.
 */
static size_t parse_cells(const char *p, const char *end, size_t max, uint64_t *ret, uint32_t *ret_mask)
{
	uint32_t mask = 0;

	for (size_t n = 0; n < max; n++, p++) {
		if (p < end && *p != '\t') {
			p = text_parse_u64(p, end, &ret[n]);
			mask |= 1u << n;
		}
		if (!p || (p < end && *p != '\t'))
			return 0;
		if (p == end) {
			*ret_mask = mask;
			return n + 1;
		}
	}
	return 0;
}

/* A number and the tab behind it. */
static const char *parse_leading(const char *p, const char *end, uint64_t *ret)
{
	p = p ? text_parse_u64(p, end, ret) : NULL;
	return p && p < end && *p == '\t' ? p + 1 : NULL;
}

/*
 * Sample lines: "17\t250000000\t3\t1184\t\t52" (number, time, target, values);
 * in gVisor's format "250000000\t1184\t52" (time, values, none of them empty).
 */
bool salvage_rows_parse(enum stream_format format, const char *p, size_t len, struct salvage_row *ret)
{
	bool gvisor = format == STREAM_GVISOR;
	const char *end = p + len;
	uint64_t seq = 0, target = 0;

	memset(ret, 0, sizeof(*ret));
	if (!gvisor)
		p = parse_leading(p, end, &seq);
	p = parse_leading(p, end, &ret->time_ns);
	if (!gvisor)
		p = parse_leading(p, end, &target);
	if (!p || (!gvisor && !seq) || target > UINT32_MAX)
		return false;

	ret->seq = seq;
	ret->target = (uint32_t)target;
	ret->columns = parse_cells(p, end, STREAM_COLUMNS_MAX, ret->values, &ret->mask);
	return ret->columns && (!gvisor || ret->mask == UINT32_MAX >> (STREAM_COLUMNS_MAX - ret->columns));
}

bool salvage_rows_is_copy(const struct salvage_rows *rows, uint64_t seq)
{
	uint64_t back = rows->highest - seq;

	if (seq > rows->highest)
		return false;
	return back >= WINDOW_ROWS || (rows->seen >> back & 1);
}

uint64_t salvage_rows_advance(struct salvage_rows *rows, uint64_t upto)
{
	uint64_t step = upto - rows->highest;

	rows->seen = step < WINDOW_ROWS ? rows->seen << step : 0;
	rows->highest = upto;
	return step;
}

void salvage_rows_mark(struct salvage_rows *rows, uint64_t seq)
{
	rows->seen |= 1ULL << (rows->highest - seq);
}
