/*
 * contrast.c: a key is name and place with a NUL between them; its number in the set of keys is the place of its row, until rows are sorted.
 *
 * Ranks are computed, not kept: 100 times an amount below 2^46 is exact, so two equal shares are equal numbers.
 */
#include "contrast.h"

#include "scope.h"
#include "sink.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t add_up(uint64_t a, uint64_t b)
{
	return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

static int make_key(const struct contrast_key *key, struct buffer *ret)
{
	int rc = buffer_append(ret, key->name, key->name_len);

	/* Name and place are strings of their own then. */
	if (rc == 0)
		rc = buffer_append(ret, "", 1);
	return rc == 0 ? buffer_append(ret, key->place, key->place_len) : rc;
}

static int grow(struct contrast *contrast)
{
	size_t cap = contrast->cap ? contrast->cap * 2 : 64;
	struct contrast_row *rows = realloc(contrast->rows, cap * sizeof(*rows));

	if (!rows)
		return -ENOMEM;
	contrast->rows = rows;
	contrast->cap = cap;
	return 0;
}

/* Rows are made before their key: there is no key without a row. */
static int find_row(struct contrast *contrast, const struct buffer *key, size_t name_len, struct contrast_row **ret)
{
	struct intern_budget budget = { 0 };
	uint32_t number;
	size_t len;
	int rc = contrast->count == contrast->cap ? grow(contrast) : 0;

	if (rc == 0)
		rc = intern_put(&contrast->keys, &budget, key->data, key->len, &number);
	if (rc != 0)
		return -ENOMEM;
	if (number > contrast->count) {
		struct contrast_row row = { 0 };

		row.name = intern_get(&contrast->keys, number, &len);
		row.place = row.name + name_len + 1;
		contrast->rows[contrast->count++] = row;
	}
	*ret = &contrast->rows[number - 1];
	return 0;
}

int contrast_add(struct contrast *contrast, enum contrast_side side, const struct contrast_key *key,
		 const uint64_t amount[static CONTRAST_MEASURES])
{
	AUTO(buffer_release) struct buffer text = { 0 };
	struct contrast_row *row = NULL;
	int rc = make_key(key, &text);

	if (rc == 0)
		rc = find_row(contrast, &text, key->name_len, &row);
	if (rc < 0)
		return rc;
	row->there[side] = true;
	for (unsigned m = 0; m < CONTRAST_MEASURES; m++)
		row->amount[side][m] = add_up(row->amount[side][m], amount[m]);
	return 0;
}

bool contrast_ready(const struct contrast *contrast)
{
	return contrast->known[CONTRAST_A] && contrast->known[CONTRAST_B];
}

double contrast_value(const struct contrast *contrast, const struct contrast_row *row, enum contrast_side side,
		      unsigned measure)
{
	double amount = (double)row->amount[side][measure], sum = (double)contrast->sum[side];

	if (!contrast->shares)
		return amount;
	return sum > 0 ? 100 * amount / sum : 0;
}

double contrast_growth(const struct contrast *contrast, const struct contrast_row *row, unsigned measure)
{
	return contrast_value(contrast, row, CONTRAST_B, measure) - contrast_value(contrast, row, CONTRAST_A, measure);
}

double contrast_rank(const struct contrast *contrast, const struct contrast_row *row)
{
	unsigned ranked = contrast->ranked ? contrast->ranked : 1;
	double sum = 0;

	for (unsigned m = 0; m < ranked; m++)
		sum += contrast_growth(contrast, row, m);
	return sum;
}

bool contrast_changed(const struct contrast *contrast, const struct contrast_row *row)
{
	double rank = fabs(contrast_rank(contrast, row));

	return contrast->shares ? rank >= CONTRAST_POINTS_MIN : rank > 0;
}

static int compare_rows(const void *a, const void *b, void *ctx)
{
	const struct contrast_row *left = a, *right = b;
	double x = contrast_rank(ctx, left), y = contrast_rank(ctx, right);
	int order;

	if (x < y || x > y)
		return x > y ? -1 : 1;
	order = strcmp(left->name, right->name);
	return order != 0 ? order : strcmp(left->place, right->place);
}

void contrast_sort(struct contrast *contrast)
{
	if (contrast->count > 0)
		qsort_r(contrast->rows, contrast->count, sizeof(*contrast->rows), compare_rows, contrast);
}

size_t contrast_choose(const struct contrast *contrast, size_t max, size_t *ret_head, size_t *ret_tail)
{
	size_t head = 0, tail = 0, changed = 0;

	for (size_t i = 0; i < contrast->count; i++)
		changed += contrast_changed(contrast, &contrast->rows[i]);
	/* The two ends have changed most, each in its direction. */
	while (head + tail < max && head + tail < changed) {
		double grown = contrast_rank(contrast, &contrast->rows[head]);
		double shrunk = -contrast_rank(contrast, &contrast->rows[contrast->count - 1 - tail]);

		if (grown >= shrunk)
			head++;
		else
			tail++;
	}
	*ret_head = head;
	*ret_tail = tail;
	return changed;
}

void contrast_release(struct contrast *contrast)
{
	intern_release(&contrast->keys);
	free(contrast->rows);
	*contrast = (struct contrast){ 0 };
}
