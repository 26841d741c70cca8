/* crowd.c: a second walk over the stream, when the first has told who is worth looking at. */
#include "crowd.h"

#include "incidentload.h"
#include "salvage.h"
#include "scope.h"
#include "stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES 65536
#define TIME_MAX_NS (INT64_C(86400) * 1000000000)

struct walk {
	struct crowd *crowd;
	wall_t fired, start;
	bool has_start;
	bool gap[CROWD_MAX];                /* something is missing before the next row of it */
	unsigned field[STREAM_COLUMNS_MAX]; /* which field of a sample a column is; SAMPLE_FIELDS: none we know */
};

static int on_column(void *ctx, size_t index, const char *name, const char *json)
{
	struct walk *walk = ctx;

	(void)json;
	if (index >= STREAM_COLUMNS_MAX)
		return 0;
	walk->field[index] = SAMPLE_FIELDS;
	for (unsigned f = 0; f < SAMPLE_FIELDS; f++)
		if (strcmp(name, sample_field_info(f)->name) == 0)
			walk->field[index] = f;
	return 0;
}

static int on_start_time(void *ctx, wall_t start)
{
	struct walk *walk = ctx;

	walk->start = start;
	walk->has_start = true;
	return 0;
}

static int on_row(void *ctx, uint64_t seq, uint64_t time_ns, uint32_t target, const uint64_t *values, uint32_t mask)
{
	struct walk *walk = ctx;
	struct series_point point = { .at_ns = (int64_t)(walk->start.ns + time_ns - walk->fired.ns) };
	size_t i = 0;
	int rc;

	(void)seq;
	while (i < walk->crowd->count && walk->crowd->member[i].target->id != target)
		i++;
	if (i == walk->crowd->count || !walk->has_start || point.at_ns > TIME_MAX_NS || point.at_ns < -TIME_MAX_NS)
		return 0;
	point.after_gap = walk->gap[i];
	walk->gap[i] = false;
	for (unsigned c = 0; c < STREAM_COLUMNS_MAX; c++)
		if ((mask >> c & 1u) && walk->field[c] < SAMPLE_FIELDS)
			sample_set(&point.sample, (enum sample_field)walk->field[c], values[c]);
	rc = series_add(&walk->crowd->member[i].series, &point);
	return rc < 0 ? rc : 0;
}

static void miss(struct walk *walk)
{
	for (size_t i = 0; i < CROWD_MAX; i++)
		walk->gap[i] = true;
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

static int read_all(int fd, struct salvage *salvage)
{
	AUTO_FREE char *piece = malloc(READ_BYTES);
	struct salvage_report report;

	if (!piece)
		return -ENOMEM;
	for (uint64_t left = INCIDENTLOAD_SAMPLES_MAX; left > 0;) {
		ssize_t len = read(fd, piece, left < READ_BYTES ? left : READ_BYTES);
		int rc;

		if (len < 0 && errno == EINTR)
			continue;
		if (len <= 0)
			break;
		rc = salvage_feed(salvage, piece, (size_t)len);
		if (rc != 0)
			return rc;
		left -= (uint64_t)len;
	}
	return salvage_finish(salvage, &report);
}

static int walk_stream(int fd, struct walk *walk)
{
	struct salvage_events events = {
		.column = on_column,
		.start_time = on_start_time,
		.row = on_row,
		.note = on_note,
		.damage = on_damage,
		.ctx = walk,
	};
	AUTO(free_salvage) struct salvage *salvage = NULL;
	int rc = salvage_new(&events, &salvage);

	return rc < 0 ? rc : read_all(fd, salvage);
}

int crowd_load(int incidentfd, wall_t fired, const struct peaks *peaks, struct crowd *ret)
{
	AUTO_CLOSE int fd = incidentload_open_file(incidentfd, INCIDENT_SAMPLES_FILE);
	struct walk walk = { .crowd = ret, .fired = fired };
	int rc;

	*ret = (struct crowd){ .count = peaks->count < CROWD_MAX ? peaks->count : CROWD_MAX };
	for (size_t i = 0; i < ret->count; i++)
		ret->member[i].target = &peaks->target[i];
	for (size_t c = 0; c < STREAM_COLUMNS_MAX; c++)
		walk.field[c] = SAMPLE_FIELDS;
	rc = fd >= 0 ? walk_stream(fd, &walk) : 0;
	if (rc < 0)
		crowd_release(ret);
	return rc;
}

void crowd_release(struct crowd *crowd)
{
	for (size_t i = 0; i < crowd->count; i++)
		series_release(&crowd->member[i].series);
	*crowd = (struct crowd){ .count = 0 };
}
