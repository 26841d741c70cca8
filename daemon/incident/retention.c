/*
 * retention.c: one pass over the incidents, the mildest first.
 *
 * Sums are estimates taken once: some file systems report freed space minutes later, and a loop that asks again and
 * again would remove everything. What is over age goes first, so that its space counts before a younger one must go. For free
 * space nothing goes in vain: where others have filled the file system so far that all of ours would not do, ours stay.
 */
#include "retention.h"

#include <stdlib.h>
#include <string.h>

/* What is still too much. */
struct excess {
	uint64_t bytes;
	size_t count;
	uint64_t free; /* bytes that are missing on the file system */
	size_t left;   /* incidents */
};

int retention_compare_age(const void *a, const void *b)
{
	const struct retention_entry *left = a, *right = b;

	if (left->wall.ns != right->wall.ns)
		return left->wall.ns < right->wall.ns ? -1 : 1;
	return strcmp(left->name, right->name);
}

static int compare_severity(const void *a, const void *b)
{
	const struct retention_entry *left = a, *right = b;

	if (left->severity != right->severity)
		return left->severity < right->severity ? -1 : 1;
	return retention_compare_age(a, b);
}

static uint64_t above(uint64_t value, uint64_t limit)
{
	return limit > 0 && value > limit ? value - limit : 0;
}

static uint64_t less(uint64_t value, uint64_t by)
{
	return value > by ? value - by : 0;
}

static void take_out(struct excess *excess, const struct retention_entry *entry)
{
	excess->bytes = less(excess->bytes, entry->bytes);
	excess->free = less(excess->free, entry->bytes);
	excess->count -= excess->count > 0;
	excess->left--;
}

/* What may go for free space at most: the last one, the worst, never does. */
static uint64_t removable(const struct retention_entry *entries, const enum retention_reason *reasons, size_t count)
{
	uint64_t bytes = 0;
	size_t last = count;

	while (last > 0 && reasons[last - 1] != RETENTION_KEEP)
		last--;
	for (size_t i = 0; i + 1 < last; i++)
		if (reasons[i] == RETENTION_KEEP)
			bytes += entries[i].bytes;

	return bytes;
}

static enum retention_reason judge(const struct excess *excess)
{
	if (excess->count > 0)
		return RETENTION_COUNT;
	if (excess->bytes > 0)
		return RETENTION_BYTES;
	return excess->free > 0 && excess->left > 1 ? RETENTION_FREE : RETENTION_KEEP;
}

uint64_t retention_free_bytes(const struct retention_limits *limits)
{
	uint64_t bytes;

	return __builtin_add_overflow(limits->min_free_bytes, limits->next_bytes, &bytes) ? UINT64_MAX : bytes;
}

void retention_choose(const struct retention_limits *limits, wall_t now, uint64_t free_bytes,
		      struct retention_entry *entries, enum retention_reason *reasons, size_t count)
{
	struct excess excess = { .count = above(count, limits->max_count), .left = count };
	uint64_t total = 0;

	if (count == 0)
		return;
	qsort(entries, count, sizeof(*entries), compare_severity);
	for (size_t i = 0; i < count; i++)
		total += entries[i].bytes;
	excess.bytes = above(total, limits->max_bytes);
	excess.free = less(retention_free_bytes(limits), free_bytes);

	for (size_t i = 0; i < count; i++) {
		reasons[i] = RETENTION_KEEP;
		if (limits->max_age_ns > 0 && less(now.ns, entries[i].wall.ns) > limits->max_age_ns) {
			reasons[i] = RETENTION_AGE;
			take_out(&excess, &entries[i]);
		}
	}
	if (excess.free > removable(entries, reasons, count))
		excess.free = 0;
	for (size_t i = 0; i < count; i++) {
		if (reasons[i] != RETENTION_KEEP)
			continue;
		reasons[i] = judge(&excess);
		if (reasons[i] == RETENTION_KEEP)
			return;
		take_out(&excess, &entries[i]);
	}
}

const char *retention_reason_name(enum retention_reason reason)
{
	static const char *const names[] = {
		[RETENTION_KEEP] = "keep",   [RETENTION_AGE] = "age",         [RETENTION_COUNT] = "count",
		[RETENTION_BYTES] = "bytes", [RETENTION_FREE] = "free space",
	};

	return names[reason];
}
