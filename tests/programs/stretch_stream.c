/*
 * stretch_stream.c: makes a long recording of short ones, to standard output: in gVisor's format, of
 * a sum as `spikewatch record --format gvisor -- COMMAND` writes it. Each piece is repeated for as
 * long as is asked for; counters go on from repetition to repetition and from piece to piece.
 *
 * usage: stretch_stream FILE FROM_SECONDS FOR_SECONDS ...    what is before FROM_SECONDS is left out
 */
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/base/map.h"
#include "lib/model/sample.h"
#include "lib/stream/stream.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "/service/"

struct row {
	uint64_t time_ns;
	uint64_t values[STREAM_COLUMNS_MAX];
	uint32_t mask;
};

struct piece {
	uint64_t from_ns;
	struct row *rows;
	size_t count, cap, columns;
	char names[STREAM_COLUMNS_MAX][STREAM_NAME_MAX + 1];
};

/* What has been written. */
struct output {
	struct stream_writer *writer;
	uint64_t time_ns; /* of the next row */
	uint64_t reached[STREAM_COLUMNS_MAX];
	bool counter[STREAM_COLUMNS_MAX];
};

static _Noreturn void fail(const char *what, const char *why)
{
	fprintf(stderr, "stretch_stream: %s: %s\n", what, why);
	exit(1);
}

/* "/sh-812/cpu" becomes "/service/cpu". */
static int on_column(void *ctx, size_t index, const char *name, const char *json)
{
	struct piece *piece = ctx;
	const char *slash = strrchr(name, '/');

	(void)json;
	snprintf(piece->names[index], sizeof(piece->names[index]), NAME "%.100s", slash ? slash + 1 : name);
	piece->columns = index + 1 > piece->columns ? index + 1 : piece->columns;
	return 0;
}

static int on_row(void *ctx, uint64_t seq, uint64_t time_ns, uint32_t target, const uint64_t *values, uint32_t mask)
{
	struct piece *piece = ctx;
	struct row *row;

	(void)seq;
	(void)target;
	if (time_ns < piece->from_ns)
		return 0;
	if (vector_reserve(&piece->rows, &piece->cap, piece->count + 1, sizeof(*piece->rows)) < 0)
		return -1;
	row = &piece->rows[piece->count++];
	row->time_ns = time_ns;
	row->mask = mask;
	memcpy(row->values, values, sizeof(row->values));
	return 0;
}

static void read_piece(const char *path, uint64_t from_ns, struct piece *ret)
{
	const struct stream_reader_events events = { .column = on_column, .row = on_row, .ctx = ret };
	AUTO(stream_reader_freep) struct stream_reader *reader = NULL;
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stream_reader_report report;

	*ret = (struct piece){ .from_ns = from_ns };
	if (fd < 0 || stream_reader_new(&events, &reader) < 0 || stream_read_fd(reader, fd, UINT64_MAX) < 0 ||
	    stream_reader_finish(reader, &report) < 0)
		fail(path, "cannot be read");
	if (report.format != STREAM_GVISOR || ret->count < 2)
		fail(path, "no recording in gVisor's format, or too short");
}

static void begin_output(const struct piece *piece, struct output *output)
{
	struct stream_column columns[STREAM_COLUMNS_MAX] = { { NULL } };
	struct stream_options options = { .format = STREAM_GVISOR,
					  .columns = columns,
					  .column_count = piece->columns,
					  .start = { UINT64_C(1700000000) * NS_PER_S } };
	static int fd = STDOUT_FILENO;

	for (size_t i = 0; i < piece->columns; i++)
		for (unsigned f = 0; f < SAMPLE_FIELDS; f++) {
			const struct sample_field_info *info = sample_field_info((enum sample_field)f);

			if (strcmp(piece->names[i] + strlen(NAME), info->name) != 0)
				continue;
			columns[i] = (struct stream_column){ piece->names[i], info->unit, sample_kind_name(info->kind),
							     info->source };
			output->counter[i] = info->kind == SAMPLE_COUNTER;
		}
	if (stream_writer_new(sink_fd(&fd), &options, &output->writer) < 0)
		fail("output", "cannot be begun");
}

/* Once, from its first row to its last. */
static void write_once(const struct piece *piece, struct output *output)
{
	const struct row *first = &piece->rows[0], *last = &piece->rows[piece->count - 1];
	uint64_t begun_ns = output->time_ns;

	for (size_t i = 0; i < piece->count; i++) {
		struct row row = piece->rows[i];

		for (size_t c = 0; c < piece->columns; c++)
			if (output->counter[c])
				row.values[c] = output->reached[c] + row.values[c] - first->values[c];
		if (stream_row(output->writer, begun_ns + row.time_ns - first->time_ns, 0, row.values, row.mask) < 0)
			fail("output", "cannot be written");
	}
	for (size_t c = 0; c < piece->columns; c++)
		output->reached[c] += last->values[c] - first->values[c];
	/* The next one begins a usual step later, in which nothing was used. */
	output->time_ns = begun_ns + (last->time_ns - first->time_ns) * piece->count / (piece->count - 1);
}

int main(int argc, char **argv)
{
	struct output output = { .writer = NULL };

	if (argc < 4 || argc % 3 != 1)
		fail("usage", "stretch_stream FILE FROM_SECONDS FOR_SECONDS ...");
	for (int i = 1; i < argc; i += 3) {
		struct piece piece;
		uint64_t until_ns;

		read_piece(argv[i], strtoull(argv[i + 1], NULL, 10) * NS_PER_S, &piece);
		if (!output.writer)
			begin_output(&piece, &output);
		until_ns = output.time_ns + strtoull(argv[i + 2], NULL, 10) * NS_PER_S;
		while (output.time_ns < until_ns)
			write_once(&piece, &output);
		free(piece.rows);
	}
	return stream_close(output.writer) < 0 ? 1 : 0;
}
