/*
 * growth.c: both texts become rows, sorted by what they are about; one walk over the two puts equals beside each other.
 */
#include "growth.h"

#include "scope.h"
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Columns of smaps.tsv that are read; docs/incident.md. */
enum { COLUMN_PID, COLUMN_MAPPING, COLUMN_PERMISSIONS, COLUMN_RSS = 4, COLUMN_SWAP = 7, COLUMNS };

struct piece {
	const char *at;
	size_t len;
};

struct row {
	struct piece pid, mapping, permissions;
	uint64_t rss_bytes, swap_bytes;
};

struct rows {
	struct row *row;
	size_t count, cap;
};

struct change {
	const struct row *before, *after; /* NULL: new; gone */
};

static void release_rows(struct rows *rows)
{
	free(rows->row);
}

static bool read_number(const struct piece *piece, uint64_t *ret)
{
	const char *end = piece->at + piece->len;

	/* Nobody has a sixteenth of all addresses: sums and differences then fit. */
	return text_parse_u64(piece->at, end, ret) == end && *ret < (uint64_t)1 << 60;
}

static bool read_row(const char *at, const char *end, struct row *ret)
{
	struct piece column[COLUMNS] = { { NULL, 0 } };
	uint64_t pid;

	for (size_t i = 0; i < COLUMNS; i++) {
		const char *tab = at < end ? memchr(at, '\t', (size_t)(end - at)) : NULL;
		const char *stop = tab ? tab : end;

		column[i] = (struct piece){ at, (size_t)(stop - at) };
		if (!tab && i + 1 < COLUMNS)
			return false;
		at = tab ? tab + 1 : end;
	}
	ret->pid = column[COLUMN_PID];
	ret->mapping = column[COLUMN_MAPPING];
	ret->permissions = column[COLUMN_PERMISSIONS];
	return read_number(&ret->pid, &pid) && read_number(&column[COLUMN_RSS], &ret->rss_bytes) &&
	       read_number(&column[COLUMN_SWAP], &ret->swap_bytes);
}

static int add_row(struct rows *rows, const struct row *row)
{
	if (rows->count == rows->cap) {
		size_t cap = rows->cap ? rows->cap * 2 : 256;
		struct row *grown = realloc(rows->row, cap * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		rows->row = grown;
		rows->cap = cap;
	}
	rows->row[rows->count++] = *row;
	return 0;
}

static int compare_pieces(const struct piece *a, const struct piece *b)
{
	size_t least = a->len < b->len ? a->len : b->len;
	int order = memcmp(a->at, b->at, least);

	return order != 0 ? order : (a->len > b->len) - (a->len < b->len);
}

static int compare_rows(const void *a, const void *b)
{
	const struct row *left = a, *right = b;
	int order = compare_pieces(&left->pid, &right->pid);

	if (order == 0)
		order = compare_pieces(&left->mapping, &right->mapping);
	return order != 0 ? order : compare_pieces(&left->permissions, &right->permissions);
}

static int read_rows(const struct buffer *text, struct rows *ret)
{
	const char *end = text->data + text->len;

	for (const char *at = text->data; at && at < end;) {
		const char *newline = memchr(at, '\n', (size_t)(end - at)), *stop = newline ? newline : end;
		struct row row;

		if (read_row(at, stop, &row) && add_row(ret, &row) < 0)
			return -ENOMEM;
		at = stop + 1;
	}
	if (ret->count > 0)
		qsort(ret->row, ret->count, sizeof(*ret->row), compare_rows);
	return 0;
}

static int64_t rss_growth(const struct change *change)
{
	return (int64_t)(change->after ? change->after->rss_bytes : 0) -
	       (int64_t)(change->before ? change->before->rss_bytes : 0);
}

static int64_t swap_growth(const struct change *change)
{
	return (int64_t)(change->after ? change->after->swap_bytes : 0) -
	       (int64_t)(change->before ? change->before->swap_bytes : 0);
}

static uint64_t size_of_change(const struct change *change)
{
	return (uint64_t)llabs(rss_growth(change) + swap_growth(change));
}

static int compare_changes(const void *a, const void *b)
{
	const struct change *left = a, *right = b;
	uint64_t x = size_of_change(left), y = size_of_change(right);

	if (x != y)
		return x > y ? -1 : 1;
	return compare_rows(left->after ? left->after : left->before, right->after ? right->after : right->before);
}

/* Room for all rows of both. Returns how many changes there are. */
static size_t find_changes(const struct rows *before, const struct rows *after, struct change *ret)
{
	size_t i = 0, k = 0, count = 0;

	while (i < before->count || k < after->count) {
		struct change change = { NULL, NULL };
		int order = i == before->count  ? 1
			    : k == after->count ? -1
						: compare_rows(&before->row[i], &after->row[k]);

		if (order <= 0)
			change.before = &before->row[i++];
		if (order >= 0)
			change.after = &after->row[k++];
		if (rss_growth(&change) != 0 || swap_growth(&change) != 0)
			ret[count++] = change;
	}
	return count;
}

static int put_piece(struct buffer *ret, const struct piece *piece)
{
	int r = buffer_append(ret, piece->at, piece->len);

	return r < 0 ? r : buffer_append(ret, "\t", 1);
}

static int put_change(const struct change *change, struct buffer *ret)
{
	const struct row *row = change->after ? change->after : change->before;
	char text[128];
	int len = snprintf(text, sizeof(text), "%+" PRId64 "\t%+" PRId64 "\t%" PRIu64 "\t", rss_growth(change),
			   swap_growth(change), change->after ? change->after->rss_bytes : 0);
	int r = buffer_append(ret, text, (size_t)len);

	if (r == 0)
		r = put_piece(ret, &row->permissions);
	if (r == 0)
		r = put_piece(ret, &row->mapping);
	if (r == 0)
		r = put_piece(ret, &row->pid);
	if (r < 0)
		return r;
	len = snprintf(text, sizeof(text), "%s\n", !change->before ? "new" : !change->after ? "gone" : "");
	return buffer_append(ret, text, (size_t)len);
}

int growth_table(const struct buffer *first, const struct buffer *second, struct buffer *ret, size_t *ret_rows)
{
	static const char header[] =
		"rss_growth_bytes\tswap_growth_bytes\trss_bytes\tpermissions\tmapping\tpid\tremark\n";
	AUTO(release_rows) struct rows before = { 0 };
	AUTO(release_rows) struct rows after = { 0 };
	AUTO_FREE struct change *changes = NULL;
	size_t count;
	int r;

	if (read_rows(first, &before) < 0 || read_rows(second, &after) < 0)
		return -ENOMEM;
	changes = calloc(before.count + after.count + 1, sizeof(*changes));
	if (!changes)
		return -ENOMEM;

	count = find_changes(&before, &after, changes);
	qsort(changes, count, sizeof(*changes), compare_changes);
	r = buffer_append(ret, header, sizeof(header) - 1);
	for (size_t i = 0; r == 0 && i < count; i++)
		r = put_change(&changes[i], ret);
	if (r < 0)
		return r;
	*ret_rows = count;
	return 0;
}
