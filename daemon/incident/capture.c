/*
 * capture.c: the table of captures, and what becomes of an error.
 *
 * A capture puts its text together in memory and writes it in one go: a file is there whole or not at all, and a full
 * disk costs one file, not the incident. Which errors are nobody's fault is decided in one place, judge().
 */
#include "capture.h"
#include "capture_host.h"
#include "capture_process.h"
#include "capture_text.h"
#include "columns.h"
#include "scope.h"
#include "stream.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct capture {
	enum config_capture which;
	const char *file;
	const char *again; /* the second look; NULL: there is none */
	int (*collect)(const struct capture_context *context, struct capture_text *text); /* NULL: samples */
};

/* In the order of the evidence: what costs nothing and vanishes first comes first, what holds up the target last. */
static const struct capture captures[] = {
	{ CONFIG_CAPTURE_THREADS, "threads.tsv", "threads.again.tsv", capture_process_threads },
	{ CONFIG_CAPTURE_STATUS, "status.txt", "status.again.txt", capture_process_status },
	{ CONFIG_CAPTURE_LIMITS, "limits.txt", NULL, capture_process_limits },
	{ CONFIG_CAPTURE_CGROUP, "cgroup.txt", NULL, capture_host_cgroup },
	{ CONFIG_CAPTURE_SYSTEM, "system.txt", NULL, capture_host_system },
	{ CONFIG_CAPTURE_SAMPLES, INCIDENT_SAMPLES_FILE, NULL, NULL },
	{ CONFIG_CAPTURE_SMAPS, "smaps.tsv", "smaps.again.tsv", capture_process_smaps },
};

static const struct capture *find(enum config_capture which)
{
	for (size_t i = 0; i < ARRAY_LEN(captures); i++)
		if (captures[i].which == which)
			return &captures[i];
	return NULL;
}

/* ---- samples ---- */

static int write_stream(const struct capture_context *context, struct stream_writer *writer, uint32_t id)
{
	AUTO(buffer_release) struct buffer json = { 0 };
	int r;

	r = columns_target_json(context->target, 0, &json);
	if (r < 0)
		return r;
	r = stream_target(writer, id, json.data, json.len);
	if (r < 0)
		return r;
	return slice_write(context->slice, writer, id, slice_start(context->slice));
}

/* Writes samples.tsv into the sink. */
static int write_samples(const struct capture_context *context, struct sink sink)
{
	struct stream_column columns[SAMPLE_FIELDS];
	struct stream_options options = {
		.format = STREAM_SPIKEWATCH,
		.columns = columns,
		.column_count = SAMPLE_FIELDS,
		.start = context->slice_start,
	};
	struct stream_writer *writer;
	int r, close_r;

	columns_of_samples(columns);
	r = stream_writer_new(sink, &options, &writer);
	if (r < 0)
		return r;
	r = write_stream(context, writer, context->target->id ? context->target->id : 1);
	close_r = stream_close(writer);
	return r < 0 ? r : close_r;
}

static int count_bytes(void *ctx, const void *data, size_t len)
{
	uint64_t *bytes = ctx;

	(void)data;
	*bytes += len;
	return 0;
}

int capture_samples_bytes(const struct capture_context *context, uint64_t *ret_bytes)
{
	uint64_t bytes = 0;
	int r = write_samples(context, (struct sink){ .write = count_bytes, .ctx = &bytes });

	if (r == 0)
		*ret_bytes = bytes;
	return r;
}

static int run_samples(const struct capture_context *context, int dirfd, uint64_t *ret_bytes)
{
	AUTO_CLOSE int fd = -1;
	struct stat st;
	int r;

	if (!context->slice)
		return -ENODATA;
	fd = openat(dirfd, INCIDENT_SAMPLES_FILE, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
	if (fd < 0)
		return -errno;
	r = write_samples(context, sink_fd(&fd));
	if (r == 0 && fstat(fd, &st) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(dirfd, INCIDENT_SAMPLES_FILE, 0);
	else
		*ret_bytes = (uint64_t)st.st_size;
	return r;
}

/* ---- captures ---- */

/* *ret_collected: could it look; if not, that is something else than not being able to write what it saw. */
static int run_text(const struct capture_context *context, const struct capture *capture, int dirfd,
		    struct incident_capture *ret, bool *ret_collected)
{
	AUTO(capture_text_release) struct capture_text text = { .buffer.max = CAPTURE_BYTES_MAX };
	int r;

	r = capture->collect(context, &text);
	if (r < 0)
		return r;
	*ret_collected = true;
	r = capture_text_save(&text, dirfd, ret->file, &ret->bytes);
	if (r == 0 && text.cut)
		incident_text(ret->why, sizeof(ret->why), "cut: there was more");
	return r;
}

/* Sets status and why for an error. */
static int judge(struct incident_capture *ret, int error, bool collected)
{
	const char *why = NULL;

	if (!collected && error == -ESRCH)
		why = "target has exited";
	else if (!collected && (error == -EACCES || error == -EPERM))
		why = "not permitted";
	else if (!collected && error == -ENOENT)
		why = "not offered by this system";
	else if (!collected && error == -ENODATA)
		why = "nothing was recorded";

	ret->status = why ? INCIDENT_CAPTURE_SKIPPED : INCIDENT_CAPTURE_FAILED;
	ret->bytes = 0;
	ret->file[0] = '\0';
	incident_text(ret->why, sizeof(ret->why), why ? why : strerrordesc_np(-error));
	return why ? 0 : error;
}

/* What it is called, for its record. */
static void name_record(struct incident_capture *ret, const struct capture *capture, bool again)
{
	const char *name = config_capture_name(capture->which);

	incident_text(ret->name, sizeof(ret->name), name);
	incident_text(ret->file, sizeof(ret->file), again ? capture->again : capture->file);
	if (!again)
		return;
	snprintf(ret->name, sizeof(ret->name), "%s-again", name);
	incident_text(ret->again_of, sizeof(ret->again_of), name);
}

int capture_run(const struct capture_context *context, enum config_capture which, int dirfd,
		struct incident_capture *ret)
{
	const struct capture *capture = find(which);
	bool collected = false;
	int r;

	assert(capture && !(context->again && !capture->again));
	*ret = (struct incident_capture){ .status = INCIDENT_CAPTURE_OK, .has_at = context->fired.ns > 0 };
	name_record(ret, capture, context->again);
	if (ret->has_at)
		ret->at_ns = mono_diff(clock_mono(context->clock), context->fired);

	if (capture->collect)
		r = run_text(context, capture, dirfd, ret, &collected);
	else
		r = run_samples(context, dirfd, &ret->bytes);
	return r < 0 ? judge(ret, r, collected) : 0;
}

unsigned capture_run_all(const struct capture_context *context, unsigned set, int dirfd, struct incident *incident)
{
	unsigned failed = 0;

	for (size_t i = 0; i < ARRAY_LEN(captures); i++) {
		struct incident_capture record;

		if (!(set & captures[i].which))
			continue;
		if (capture_run(context, captures[i].which, dirfd, &record) < 0)
			failed++;
		incident_add_capture(incident, &record);
	}
	return failed;
}

void capture_fail_all(unsigned set, int error, struct incident *incident)
{
	for (size_t i = 0; i < ARRAY_LEN(captures); i++) {
		struct incident_capture record = { .status = INCIDENT_CAPTURE_FAILED };

		if (!(set & captures[i].which))
			continue;
		incident_text(record.name, sizeof(record.name), config_capture_name(captures[i].which));
		incident_text(record.why, sizeof(record.why), strerrordesc_np(-error));
		incident_add_capture(incident, &record);
	}
}

void capture_skip_again(unsigned set, const char *why, struct incident *incident)
{
	for (size_t i = 0; i < ARRAY_LEN(captures); i++) {
		struct incident_capture record = { .status = INCIDENT_CAPTURE_SKIPPED };

		if (!(set & captures[i].which))
			continue;
		name_record(&record, &captures[i], true);
		record.file[0] = '\0';
		incident_text(record.why, sizeof(record.why), why);
		incident_add_capture(incident, &record);
	}
}
