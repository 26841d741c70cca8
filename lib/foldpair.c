/* foldpair.c: lines become stacks with a count, are sorted, and one walk over the two puts equals beside each other. */
#include "foldpair.h"

#include "cleantext.h"
#include "scope.h"
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct stack {
	const char *at;
	size_t len;
	uint64_t count;
};

struct stacks {
	struct stack *stack;
	size_t count;
	uint64_t sum;
};

static void release_stacks(struct stacks *stacks)
{
	free(stacks->stack);
}

static uint64_t add_up(uint64_t a, uint64_t b)
{
	return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

/* "a;b 12". */
static bool read_line(const char *at, const char *end, struct stack *ret)
{
	const char *space = at < end ? memrchr(at, ' ', (size_t)(end - at)) : NULL;

	if (!space || space == at || text_parse_u64(space + 1, end, &ret->count) != end)
		return false;
	ret->at = at;
	ret->len = (size_t)(space - at);
	return true;
}

/* The next line that is not empty, from *at on, which moves. */
static bool next_line(const char **at, const char *end, const char **ret_from, const char **ret_to)
{
	while (*at < end) {
		const char *newline = memchr(*at, '\n', (size_t)(end - *at));

		*ret_from = *at;
		*ret_to = newline ? newline : end;
		*at = *ret_to + 1;
		if (*ret_to > *ret_from)
			return true;
	}
	return false;
}

bool foldpair_check(const struct buffer *text, uint64_t *ret_sum)
{
	const char *at = text->data, *from, *to;
	struct stack stack;
	uint64_t sum = 0;

	while (text->len > 0 && next_line(&at, text->data + text->len, &from, &to)) {
		if (!read_line(from, to, &stack))
			return false;
		sum = add_up(sum, stack.count);
	}
	*ret_sum = sum;
	return true;
}

static int compare_stacks(const void *a, const void *b)
{
	const struct stack *left = a, *right = b;
	int order = memcmp(left->at, right->at, left->len < right->len ? left->len : right->len);

	return order != 0 ? order : (left->len > right->len) - (left->len < right->len);
}

static int read_stacks(const struct buffer *text, struct stacks *ret)
{
	const char *at = text->data, *end = text->data + text->len, *from, *to;
	size_t lines = 1;

	for (size_t i = 0; i < text->len; i++)
		lines += text->data[i] == '\n';
	ret->stack = calloc(lines, sizeof(*ret->stack));
	if (!ret->stack)
		return -ENOMEM;
	while (text->len > 0 && next_line(&at, end, &from, &to)) {
		if (!read_line(from, to, &ret->stack[ret->count]))
			continue;
		ret->sum = add_up(ret->sum, ret->stack[ret->count++].count);
	}
	qsort(ret->stack, ret->count, sizeof(*ret->stack), compare_stacks);
	return 0;
}

/* The next stack, with what all of its lines count; equals are beside each other. */
static bool take(const struct stacks *stacks, size_t *place, struct stack *ret)
{
	if (*place == stacks->count)
		return false;
	*ret = stacks->stack[(*place)++];
	while (*place < stacks->count && compare_stacks(ret, &stacks->stack[*place]) == 0)
		ret->count = add_up(ret->count, stacks->stack[(*place)++].count);
	return true;
}

static int put(const struct stack *stack, uint64_t first, uint64_t second, const struct sink *sink)
{
	AUTO(buffer_release) struct buffer line = { 0 };
	char counts[64];
	int len = snprintf(counts, sizeof(counts), " %" PRIu64 " %" PRIu64 "\n", first, second);
	int rc = cleantext_append(&line, stack->at, stack->len);

	if (rc == 0)
		rc = buffer_append(&line, counts, (size_t)len);
	return rc == 0 ? sink_write(sink, line.data, line.len) : rc;
}

/* Two walks, side by side. */
struct pair {
	struct stacks side[2];
	size_t place[2];
	struct stack at[2];
	bool there[2];
};

static int put_next(struct pair *pair, double factor, const struct sink *sink)
{
	int order = !pair->there[0] ? 1 : !pair->there[1] ? -1 : compare_stacks(&pair->at[0], &pair->at[1]);
	struct stack stack = pair->at[order > 0];
	uint64_t count[2] = { order <= 0 ? pair->at[0].count : 0, order >= 0 ? pair->at[1].count : 0 };
	double scaled = (double)count[0] * factor + 0.5;
	int rc;

	if (factor > 0)
		count[0] = scaled < 0x1p63 ? (uint64_t)scaled : (uint64_t)1 << 63;
	rc = count[0] > 0 || count[1] > 0 ? put(&stack, count[0], count[1], sink) : 0;
	if (order <= 0)
		pair->there[0] = take(&pair->side[0], &pair->place[0], &pair->at[0]);
	if (order >= 0)
		pair->there[1] = take(&pair->side[1], &pair->place[1], &pair->at[1]);
	return rc;
}

static void release_pair(struct pair *pair)
{
	release_stacks(&pair->side[0]);
	release_stacks(&pair->side[1]);
}

int foldpair_write(const struct buffer *first, const struct buffer *second, bool scale, const struct sink *sink)
{
	AUTO(release_pair) struct pair pair = { 0 };
	double factor = 0; /* 0: as they are */
	int rc = read_stacks(first, &pair.side[0]);

	if (rc == 0)
		rc = read_stacks(second, &pair.side[1]);
	if (rc < 0)
		return rc;
	if (scale && pair.side[0].sum > 0 && pair.side[1].sum > 0)
		factor = (double)pair.side[1].sum / (double)pair.side[0].sum;
	for (unsigned i = 0; i < 2; i++)
		pair.there[i] = take(&pair.side[i], &pair.place[i], &pair.at[i]);
	while (rc == 0 && (pair.there[0] || pair.there[1]))
		rc = put_next(&pair, factor, sink);
	return rc;
}
