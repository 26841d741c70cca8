/*
 * exposition_targets.c: two visits of all targets, then the families in turn.
 *
 *     1. ids ─▶ sorted ─▶ the id up to which targets have series of their own: ids are given in the order of discovery
 *     2. each target: up to that id ─▶ its labels as text and its sample are copied ("own")
 *                     beyond it    ─▶ added to the sum of its entry; its counters are kept for the next page ("seen")
 *     3. own, sorted by labels: two of the same labels would be one series with two values, so all but the first are summed too
 *     4. families ─▶ own in that order, then the sums
 *
 * Rejected: the busiest targets instead of those known longest. Series that come and go with the load are stale just when somebody looks, and
 * rates over them are wrong.
 */
#include "exposition_targets.h"

#include "exposition_columns.h"
#include "families.h"
#include "scope.h"
#include "targetlabels.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A target with series of its own. */
struct own {
	uint32_t id;
	size_t entry;
	size_t at, len; /* its labels within the text */
	size_t more;    /* bytes after them: those of its container, for the family that has them */
	struct sample sample;
};

/* One that is summed, as the last page had it. */
struct seen {
	uint32_t id;
	struct sample sample;
};

/* The sum of an entry. */
struct entry_sum {
	char *entry;
	uint64_t members;
	struct sample total; /* counters go on from page to page, gauges begin anew; its mask only grows */
	bool ever;           /* has had a member: it keeps its series */
};

/* An array of whatever it is used for. */
#define ITEMS(buffer, type) ((type *)(void *)(buffer)->data)
#define ITEM_COUNT(buffer, type) ((buffer)->len / sizeof(type))

struct exposition_targets {
	struct entry_sum *sums;
	size_t sum_count;
	struct buffer ids, own, text; /* of the page being made; kept for their memory */
	struct buffer seen, before;   /* struct seen, the latter sorted by id */
	struct labelnames names;      /* of the labels of containers */
	uint32_t last_own;            /* ids up to this have series of their own */
};

/* ---- sums ---- */

static void free_sums(struct entry_sum *sums, size_t count)
{
	for (size_t i = 0; sums && i < count; i++)
		free(sums[i].entry);
	free(sums);
}

static bool sums_match(const struct exposition_targets *targets, const struct config *config)
{
	bool match = targets->sums && targets->sum_count == config->target_count;

	for (size_t i = 0; match && i < config->target_count; i++)
		match = strcmp(targets->sums[i].entry, config->targets[i].name) == 0;

	return match;
}

/* One for each entry, in the order of the configuration; those that were there before go on. */
static int renew_sums(struct exposition_targets *targets, const struct config *config)
{
	size_t count = config->target_count;
	struct entry_sum *sums;

	if (sums_match(targets, config))
		return 0;

	sums = calloc(count + 1, sizeof(*sums));
	for (size_t i = 0; sums && i < count; i++) {
		sums[i].entry = strdup(config->targets[i].name);
		if (sums[i].entry == NULL) {
			free_sums(sums, i);
			return -ENOMEM;
		}
	}
	if (sums == NULL)
		return -ENOMEM;

	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < targets->sum_count; k++)
			if (strcmp(sums[i].entry, targets->sums[k].entry) == 0) {
				sums[i].total = targets->sums[k].total;
				sums[i].ever = targets->sums[k].ever;
			}
	free_sums(targets->sums, targets->sum_count);
	targets->sums = sums;
	targets->sum_count = count;

	return 0;
}

/* Targets come entry by entry, more or less: the last answer is tried first. sum_count: of no entry that there is. */
static size_t entry_of(const struct exposition_targets *targets, const char *entry, size_t hint)
{
	if (hint < targets->sum_count && strcmp(targets->sums[hint].entry, entry) == 0)
		return hint;
	for (size_t i = 0; i < targets->sum_count; i++)
		if (strcmp(targets->sums[i].entry, entry) == 0)
			return i;

	return targets->sum_count;
}

static void begin_sums(struct exposition_targets *targets)
{
	for (size_t i = 0; i < targets->sum_count; i++) {
		struct entry_sum *sum = &targets->sums[i];

		sum->members = 0;
		for (enum sample_field field = 0; field < SAMPLE_FIELDS; field++)
			if (sample_field_info(field)->kind != SAMPLE_COUNTER)
				sum->total.value[field] = 0;
	}
}

static int by_id(const void *a, const void *b)
{
	uint32_t left = ((const struct seen *)a)->id, right = ((const struct seen *)b)->id;

	return (left > right) - (left < right);
}

/* A counter that stepped back has begun anew. */
static uint64_t growth(const struct sample *before, const struct sample *now, enum sample_field field)
{
	if (!before || !sample_has(before, field))
		return 0;

	return now->value[field] >= before->value[field] ? now->value[field] - before->value[field] : now->value[field];
}

/* NULL: it was none of them on the last page. */
static const struct seen *find_seen(const struct buffer *before, const struct seen *key)
{
	size_t count = ITEM_COUNT(before, struct seen);

	return count > 0 ? bsearch(key, before->data, count, sizeof(*key), by_id) : NULL;
}

/* What is read of a target may be missing for once: what was read before is kept, or its return would count anew. */
static int add_to_sum(struct exposition_targets *targets, size_t entry, uint32_t id, const struct sample *sample)
{
	struct seen key = { .id = id, .sample = *sample };
	const struct seen *known = find_seen(&targets->before, &key);
	struct entry_sum *sum = entry < targets->sum_count ? &targets->sums[entry] : NULL;
	int r;

	for (enum sample_field field = 0; known && field < SAMPLE_FIELDS; field++)
		if (!sample_has(sample, field) && sample_has(&known->sample, field))
			sample_set(&key.sample, field, known->sample.value[field]);
	r = buffer_append(&targets->seen, &key, sizeof(key));
	if (r < 0 || sum == NULL)
		return r;

	sum->members++;
	sum->ever = true;
	sum->total.mask |= sample->mask;
	for (enum sample_field field = 0; field < SAMPLE_FIELDS; field++)
		if (sample_has(sample, field))
			sum->total.value[field] += sample_field_info(field)->kind == SAMPLE_COUNTER
							   ? growth(known ? &known->sample : NULL, sample, field)
							   : sample->value[field];

	return 0;
}

/* What was seen on this page is what the next one starts from. */
static void keep_seen(struct exposition_targets *targets)
{
	struct buffer emptied = targets->before;

	if (targets->seen.len > 0)
		qsort(targets->seen.data, ITEM_COUNT(&targets->seen, struct seen), sizeof(struct seen), by_id);
	targets->before = targets->seen;
	targets->seen = emptied;
	targets->seen.len = 0;
}

/* ---- who has series of its own ---- */

static int take_id(void *ctx, const struct evaluator_sight *sight)
{
	struct buffer *ids = ctx;

	return buffer_append(ids, &sight->target->id, sizeof(sight->target->id));
}

static int compare_ids(const void *a, const void *b)
{
	uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

	return (left > right) - (left < right);
}

static int choose_own(struct exposition_targets *targets, const struct overview *overview)
{
	size_t count, most = overview->config->metrics.max_targets;
	int r;

	targets->ids.len = 0;
	r = evaluator_visit_targets(overview->evaluator, take_id, &targets->ids);
	if (r < 0)
		return r;

	count = ITEM_COUNT(&targets->ids, uint32_t);
	targets->last_own = most > 0 ? UINT32_MAX : 0;
	if (count > most && most > 0) {
		qsort(targets->ids.data, count, sizeof(uint32_t), compare_ids);
		targets->last_own = ITEMS(&targets->ids, uint32_t)[most - 1];
	}

	return 0;
}

/* ---- the second visit ---- */

struct visit {
	struct exposition_targets *targets;
	struct labelbook *book;
	size_t entry;
};

static int take_labels(const struct visit *visit, const struct target *target)
{
	struct exposition_targets *targets = visit->targets;
	struct labels labels;

	if (targets->names.count == 0 || !target->container || !*target->container ||
	    !labelbook_get(visit->book, target->cgroup, &labels))
		return 0;

	return targetlabels_put_labels(&labels, &targets->names, &targets->text);
}

static int take_own(const struct visit *visit, const struct evaluator_sight *sight)
{
	struct exposition_targets *targets = visit->targets;
	const struct target *target = sight->target;
	struct own own = { .id = target->id, .entry = visit->entry, .at = targets->text.len, .sample = *sight->sample };
	int r = targetlabels_put(target, &targets->text);

	own.len = targets->text.len - own.at;
	if (r == 0)
		r = take_labels(visit, target);
	own.more = targets->text.len - own.at - own.len;

	return r < 0 ? r : buffer_append(&targets->own, &own, sizeof(own));
}

/* One that is not seen for the moment is no less a member of its sum: what was read of it goes on to the next page. */
static int take_target(void *ctx, const struct evaluator_sight *sight)
{
	static const struct sample nothing;
	struct visit *visit = ctx;
	struct exposition_targets *targets = visit->targets;

	visit->entry = entry_of(targets, sight->target->entry, visit->entry);
	if (sight->target->id > targets->last_own)
		return add_to_sum(targets, visit->entry, sight->target->id, sight->seen ? sight->sample : &nothing);

	return sight->seen ? take_own(visit, sight) : 0;
}

static int by_labels(const void *a, const void *b, void *ctx)
{
	const struct own *left = a, *right = b;
	const char *text = ctx;
	size_t len = left->len < right->len ? left->len : right->len;
	int order = memcmp(text + left->at, text + right->at, len);

	if (order == 0)
		order = (left->len > right->len) - (left->len < right->len);

	return order != 0 ? order : (left->id > right->id) - (left->id < right->id);
}

/* Sorts, and moves all but the first of the same labels into the sums. */
static int make_unique(struct exposition_targets *targets)
{
	struct own *own = ITEMS(&targets->own, struct own);
	size_t count = ITEM_COUNT(&targets->own, struct own), kept = 0;
	const char *text = targets->text.data;

	if (count == 0)
		return 0;

	qsort_r(own, count, sizeof(*own), by_labels, targets->text.data);
	for (size_t i = 0; i < count; i++) {
		bool same = kept > 0 && own[kept - 1].len == own[i].len &&
			    memcmp(text + own[kept - 1].at, text + own[i].at, own[i].len) == 0;
		int r = same ? add_to_sum(targets, own[i].entry, own[i].id, &own[i].sample) : 0;

		if (r < 0)
			return r;
		if (!same)
			own[kept++] = own[i];
	}
	targets->own.len = kept * sizeof(*own);

	return 0;
}

/* ---- families ---- */

static void put_value(struct openmetrics *out, const struct exposition_column *column,
		      const struct openmetrics_labels *labels, uint64_t value)
{
	if (column->how == EXPOSITION_COUNT)
		openmetrics_u64(out, labels, value);
	else
		openmetrics_ns(out, labels, value); /* 1e9 ns/s is one core */
}

/* A limit that is not known says nothing. */
static void put_column(struct openmetrics *out, const struct exposition_column *column,
		       const struct openmetrics_labels *block, const struct sample *sample)
{
	struct openmetrics_labels labels = *block;
	uint64_t value = sample->value[column->field];

	if (!sample_has(sample, column->field))
		return;
	if (sample_field_info(column->field)->kind == SAMPLE_LIMIT && value == UINT64_MAX)
		return;

	labels.further[0] = column->label;
	put_value(out, column, &labels, value);
}

static void put_ratio(struct openmetrics *out, const struct openmetrics_labels *labels, const struct sample *sample)
{
	uint64_t limit = sample->value[SAMPLE_MEMORY_LIMIT];

	if (sample_has(sample, SAMPLE_MEMORY) && sample_has(sample, SAMPLE_MEMORY_LIMIT) && limit != UINT64_MAX &&
	    limit > 0)
		openmetrics_double(out, labels, (double)sample->value[SAMPLE_MEMORY] / (double)limit);
}

static struct openmetrics_labels labels_of(const struct exposition_targets *targets, const struct own *own)
{
	return (struct openmetrics_labels){ .block = targets->text.data + own->at, .block_len = own->len };
}

static void put_own(const struct exposition_targets *targets, struct openmetrics *out,
		    const struct exposition_column *column)
{
	const struct own *own = ITEMS(&targets->own, struct own);

	for (size_t i = 0; i < ITEM_COUNT(&targets->own, struct own); i++) {
		struct openmetrics_labels labels = labels_of(targets, &own[i]);

		if (column)
			put_column(out, column, &labels, &own[i].sample);
		else
			put_ratio(out, &labels, &own[i].sample);
	}
}

static void put_info(const struct exposition_targets *targets, struct openmetrics *out)
{
	const struct own *own = ITEMS(&targets->own, struct own);

	openmetrics_family(out, families_info(FAMILY_TARGET_INFO));
	for (size_t i = 0; i < ITEM_COUNT(&targets->own, struct own); i++) {
		struct openmetrics_labels labels = labels_of(targets, &own[i]);

		labels.block_len += own[i].more;
		if (own[i].more > 0)
			openmetrics_u64(out, &labels, 1);
	}
}

static int put_sums(const struct exposition_targets *targets, struct openmetrics *out,
		    const struct exposition_column *column)
{
	AUTO(buffer_release) struct buffer text = { 0 };

	for (size_t i = 0; column->summed && i < targets->sum_count; i++) {
		const struct entry_sum *sum = &targets->sums[i];
		int r = 0;

		if (!sum->ever)
			continue;
		text.len = 0;
		r = targetlabels_put_sum(sum->entry, &text);
		if (r < 0)
			return r;
		put_column(out, column, &(struct openmetrics_labels){ .block = text.data, .block_len = text.len },
			   &sum->total);
	}

	return 0;
}

static int put_families(const struct exposition_targets *targets, struct openmetrics *out)
{
	put_info(targets, out);
	for (size_t i = 0; i < exposition_column_count; i++) {
		int r;

		if (i == 0 || exposition_columns[i].family != exposition_columns[i - 1].family)
			openmetrics_family(out, families_info(exposition_columns[i].family));
		put_own(targets, out, &exposition_columns[i]);
		r = put_sums(targets, out, &exposition_columns[i]);
		if (r < 0)
			return r;
	}
	openmetrics_family(out, families_info(FAMILY_TARGET_MEMORY_RATIO));
	put_own(targets, out, NULL);

	openmetrics_family(out, families_info(FAMILY_SUMMED));
	for (size_t i = 0; i < targets->sum_count; i++) {
		struct openmetrics_labels labels = { .further = { { "entry", targets->sums[i].entry } } };

		openmetrics_u64(out, &labels, targets->sums[i].members);
	}

	return 0;
}

/* ---- the whole ---- */

int exposition_targets_write(struct exposition_targets *targets, const struct overview *overview,
			     struct openmetrics *out)
{
	const struct config_metrics *metrics = &overview->config->metrics;
	struct visit visit = { .targets = targets, .book = session_labels(overview->session) };
	int r = renew_sums(targets, overview->config);

	labelnames_make(metrics->container_labels, metrics->container_label_count, &targets->names);

	if (r == 0)
		r = choose_own(targets, overview);
	if (r < 0)
		return r;

	begin_sums(targets);
	targets->own.len = targets->text.len = targets->seen.len = 0;
	r = evaluator_visit_targets(overview->evaluator, take_target, &visit);
	if (r == 0)
		r = make_unique(targets);
	if (r == 0)
		r = put_families(targets, out);
	keep_seen(targets);

	return r;
}

int exposition_targets_new(struct exposition_targets **ret)
{
	struct exposition_targets *targets = calloc(1, sizeof(*targets));

	if (targets == NULL)
		return -ENOMEM;
	*ret = targets;

	return 0;
}

void exposition_targets_free(struct exposition_targets *targets)
{
	if (targets == NULL)
		return;

	free_sums(targets->sums, targets->sum_count);
	buffer_release(&targets->ids);
	buffer_release(&targets->own);
	buffer_release(&targets->text);
	buffer_release(&targets->seen);
	buffer_release(&targets->before);
	free(targets);
}
