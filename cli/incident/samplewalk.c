/*
 * samplewalk.c: rows name their target by a number that the stream has declared; the place of the last few is found without a search,
 * because targets come in the same order tick after tick.
 */
#include "samplewalk.h"

#include "incident.h"
#include "incidentload.h"
#include "json.h"
#include "scope.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define READ_BYTES 65536

/* Rows further from the firing are nonsense, and would overflow arithmetic later. */
#define TIME_MAX_NS (INT64_C(86400) * 1000000000)

struct walking {
	const struct samplewalk_visit *visit;
	struct samplewalk walk;
	bool *gaps; /* of each target: something is missing before its next row */
	size_t gaps_cap;
	size_t hint;
	wall_t fired, start;
	bool has_start;
	unsigned field[STREAM_COLUMNS_MAX]; /* SAMPLE_FIELDS: none we know */
};

static int grow(struct walking *walking)
{
	struct samplewalk *walk = &walking->walk;
	size_t cap = walk->cap ? 2 * walk->cap : 16;
	struct samplewalk_target *targets;
	bool *gaps;

	if (walk->count < walk->cap)
		return 0;
	targets = realloc(walk->targets, cap * sizeof(*targets));
	if (!targets)
		return -ENOMEM;
	walk->targets = targets;
	gaps = realloc(walking->gaps, cap * sizeof(*gaps));
	if (!gaps)
		return -ENOMEM;
	walking->gaps = gaps;
	walk->cap = cap;
	return 0;
}

/* 0 and *ret; 1: there are too many; -ENOMEM. */
static int find(struct walking *walking, uint32_t id, size_t *ret)
{
	struct samplewalk *walk = &walking->walk;
	int rc;

	for (size_t i = 0; i < walk->count; i++) {
		size_t at = (walking->hint + i) % walk->count;

		if (walk->targets[at].id != id)
			continue;
		walking->hint = at + 1;
		*ret = at;
		return 0;
	}
	if (walk->count == SAMPLEWALK_TARGETS_MAX)
		return 1;
	rc = grow(walking);
	if (rc < 0)
		return rc;
	walk->targets[walk->count] = (struct samplewalk_target){ .id = id };
	walking->gaps[walk->count] = false;
	*ret = walk->count++;
	walking->hint = walk->count;
	return 0;
}

static int on_column(void *ctx, size_t index, const char *name, const char *json)
{
	struct walking *walking = ctx;

	(void)json;
	if (index >= STREAM_COLUMNS_MAX)
		return 0;
	walking->field[index] = SAMPLE_FIELDS;
	for (unsigned f = 0; f < SAMPLE_FIELDS; f++)
		if (strcmp(name, sample_field_info((enum sample_field)f)->name) == 0)
			walking->field[index] = f;
	return 0;
}

static int on_start_time(void *ctx, wall_t start)
{
	struct walking *walking = ctx;

	walking->start = start;
	walking->has_start = true;
	return 0;
}

static void free_document(struct json_document **document)
{
	json_document_free(*document);
}

static void copy_text(const struct json_node *node, char *ret, size_t cap)
{
	if (node && node->type == JSON_STRING)
		incident_text(ret, cap, node->text);
}

static int on_target(void *ctx, uint32_t id, const char *json, size_t len)
{
	struct walking *walking = ctx;
	AUTO(free_document) struct json_document *document = NULL;
	const struct json_node *pid;
	struct samplewalk_target *target;
	size_t at;
	int rc = find(walking, id, &at);

	if (rc != 0)
		return rc < 0 ? rc : 0;
	target = &walking->walk.targets[at];
	if (target->name[0])
		return 0;
	rc = json_parse(json, len, NULL, &document, NULL);
	if (rc < 0)
		return rc == -ENOMEM ? rc : 0;
	copy_text(json_member(json_root(document), "name"), target->name, sizeof(target->name));
	copy_text(json_member(json_root(document), "kind"), target->kind, sizeof(target->kind));
	pid = json_member(json_root(document), "pid");
	if (pid && pid->type == JSON_NUMBER && pid->number >= 1 && pid->number <= INT32_MAX)
		target->pid = (int32_t)pid->number;
	return 0;
}

/* When a row was taken, since the firing. False: at an absurd time. */
static bool row_time(const struct walking *walking, uint64_t time_ns, int64_t *ret)
{
	uint64_t at = walking->start.ns + time_ns;
	int64_t since = (int64_t)(at - walking->fired.ns);

	if (!walking->has_start || at < time_ns || since > TIME_MAX_NS || since < -TIME_MAX_NS)
		return false;
	*ret = since;
	return true;
}

static int on_row(void *ctx, uint64_t seq, uint64_t time_ns, uint32_t id, const uint64_t *values, uint32_t mask)
{
	struct walking *walking = ctx;
	struct samplewalk_row row = { .target = 0 };
	int rc = find(walking, id, &row.target);

	(void)seq;
	if (rc < 0)
		return rc;
	if (rc > 0 || !row_time(walking, time_ns, &row.at_ns)) {
		walking->walk.outside++;
		return 0;
	}
	for (unsigned c = 0; c < STREAM_COLUMNS_MAX; c++)
		if ((mask >> c & 1u) && walking->field[c] < SAMPLE_FIELDS)
			sample_set(&row.sample, (enum sample_field)walking->field[c], values[c]);
	row.gap = walking->gaps[row.target];
	walking->gaps[row.target] = false;
	walking->walk.targets[row.target].rows++;
	walking->walk.rows++;
	return walking->visit->row ? walking->visit->row(walking->visit->ctx, &walking->walk, &row) : 0;
}

static void miss(struct walking *walking)
{
	for (size_t i = 0; i < walking->walk.count; i++)
		walking->gaps[i] = true;
}

static int on_note(void *ctx, const char *kind, const char *json, size_t len)
{
	(void)json;
	(void)len;
	if (strcmp(kind, "GAP") == 0)
		miss(ctx);
	return 0;
}

static int on_damage(void *ctx, uint64_t line, uint64_t rows_lost, const char *why)
{
	(void)line;
	(void)why;
	if (rows_lost > 0)
		miss(ctx);
	return 0;
}

static void free_salvage(struct salvage **salvage)
{
	salvage_free(*salvage);
}

static int feed(int fd, struct salvage *salvage, struct salvage_report *ret)
{
	AUTO_FREE char *piece = malloc(READ_BYTES);
	uint64_t left = INCIDENTLOAD_SAMPLES_MAX;

	if (!piece)
		return -ENOMEM;
	while (left > 0) {
		ssize_t len = read(fd, piece, left < READ_BYTES ? left : READ_BYTES);
		int rc;

		if (len < 0 && errno == EINTR)
			continue;
		if (len < 0)
			return -errno;
		if (len == 0)
			break;
		rc = salvage_feed(salvage, piece, (size_t)len);
		if (rc != 0)
			return rc;
		left -= (uint64_t)len;
	}
	return salvage_finish(salvage, ret);
}

static void release_walking(struct walking *walking)
{
	samplewalk_release(&walking->walk);
	free(walking->gaps);
}

int samplewalk_run(int incidentfd, wall_t fired, const struct samplewalk_visit *visit, struct samplewalk *ret)
{
	AUTO_CLOSE int fd = incidentload_open_file(incidentfd, INCIDENT_SAMPLES_FILE);
	AUTO(release_walking) struct walking walking = { .visit = visit, .fired = fired };
	const struct salvage_events events = {
		.column = on_column,
		.start_time = on_start_time,
		.target = on_target,
		.row = on_row,
		.note = on_note,
		.damage = on_damage,
		.ctx = &walking,
	};
	AUTO(free_salvage) struct salvage *salvage = NULL;
	int rc = fd < 0 ? fd : salvage_new(&events, &salvage);

	if (rc < 0)
		return rc;
	for (unsigned c = 0; c < STREAM_COLUMNS_MAX; c++)
		walking.field[c] = SAMPLE_FIELDS;
	rc = feed(fd, salvage, &walking.walk.report);
	if (rc != 0)
		return rc;
	*ret = walking.walk;
	walking.walk = (struct samplewalk){ 0 };
	return 0;
}

void samplewalk_release(struct samplewalk *walk)
{
	free(walk->targets);
	*walk = (struct samplewalk){ 0 };
}
