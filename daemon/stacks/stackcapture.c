/*
 * stackcapture.c: two looks at the rings, put together; the files they speak of, opened with our rights and handed over.
 *
 * The second look begins where the first has ended, so of each kind of sample the records of both are in order, one after the other. What the
 * book said of a process that is in both is said twice, which changes nothing, but it has to be sorted in.
 */
#include "stackcapture.h"

#include "perfmerge.h"
#include "scope.h"
#include "stackfile.h"
#include "stackparcel.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files that an incident holds open from the firing on; the others are opened when it ends. */
#define FILES_AT_ONCE 64u

/* Of each look, beyond what all rings hold: for what the book knows. */
#define BOOK_MAX (16u << 20)

/* As much as an incident says about one capture. */
#define WHY_MAX 160

struct stackcapture {
	struct stackcapture_options options;
	struct stackrecorder_snapshot first, second;
	struct buffer book; /* of both */
	struct stackparcel parcel;
	size_t held; /* of options.held, by this one */
};

/* ---- looking ---- */

static void hold(struct stackcapture *capture)
{
	for (size_t i = 0; i < capture->first.stream_count; i++)
		capture->held += capture->first.streams[i].records.cap;
	if (capture->options.held)
		*capture->options.held += capture->held;
}

static void let_go(struct stackcapture *capture)
{
	if (capture->options.held)
		*capture->options.held -= capture->held;
	capture->held = 0;
}

void stackcapture_free(struct stackcapture *capture)
{
	if (!capture)
		return;

	let_go(capture);
	stackrecorder_snapshot_release(&capture->first);
	stackrecorder_snapshot_release(&capture->second);
	buffer_release(&capture->book);
	stackparcel_close(&capture->parcel);
	free(capture);
	malloc_trim(0); /* an incident takes megabytes for a while, and there may be none for weeks */
}

static int look(struct stackrecorder *recorder, uint64_t from_ns, size_t held, struct stackrecorder_snapshot *ret)
{
	struct stackrecorder_status status;

	stackrecorder_status(recorder, &status);

	size_t most = status.memory_bytes + BOOK_MAX;

	return stackrecorder_snapshot(recorder, from_ns, UINT64_MAX, held < 2 * most ? (2 * most - held) / 2 : 1, ret);
}

static const struct stackrecorder_stream *find_stream(const struct stackrecorder_snapshot *snapshot, uint32_t kind)
{
	for (size_t i = 0; i < snapshot->stream_count; i++)
		if (snapshot->streams[i].head.kind == kind)
			return &snapshot->streams[i];

	return NULL;
}

static int add_records(struct perfmerge *merge, const struct stackrecorder_stream *stream)
{
	struct perfrecord_format format = { stream->head.sample_type, stream->head.regs_user };
	struct perfrecord record;

	for (size_t at = 0; at < stream->records.len; at += record.size) {
		int r = perfrecord_decode(&format, stream->records.data + at, stream->records.len - at, &record);

		if (r == 0)
			r = perfmerge_add(merge, stream->records.data + at, record.size, record.time_ns);
		if (r < 0)
			return r == -EFBIG || r == -EBADMSG ? 0 : r;
	}

	return 0;
}

static int merge_books(struct stackcapture *capture)
{
	const struct stackrecorder_stream *first = find_stream(&capture->first, STACKFILE_BOOK);
	const struct stackrecorder_stream *second = find_stream(&capture->second, STACKFILE_BOOK);
	struct perfmerge merge = { .bytes.max = 2 * BOOK_MAX };
	struct sink sink = sink_buffer(&capture->book);
	int r = first ? add_records(&merge, first) : 0;

	if (r == 0 && second)
		r = add_records(&merge, second);
	if (r == 0) {
		perfmerge_sort(&merge);
		r = perfmerge_write(&merge, &sink);
	}
	perfmerge_release(&merge);

	return r;
}

/* ---- the stackfile ---- */

/* What both looks say of one kind of sample; the first covers less of its time, if any does: rings overwrite their oldest. False: nothing. */
static bool join(const struct stackcapture *capture, uint32_t kind, struct stackfile_records *ret)
{
	const struct stackrecorder_stream *first = find_stream(&capture->first, kind);
	const struct stackrecorder_stream *second = find_stream(&capture->second, kind);

	if (!first && !second)
		return false;

	*ret = (struct stackfile_records){ .stream = first ? first->head : second->head };
	if (kind == STACKFILE_BOOK) {
		ret->records = capture->book.data;
		ret->record_bytes = capture->book.len;
		return true;
	}
	if (first) {
		ret->records = first->records.data;
		ret->record_bytes = first->records.len;
	}
	if (second) {
		ret->more = second->records.data;
		ret->more_bytes = second->records.len;
		ret->stream.units_per_second = second->head.units_per_second;
	}
	if (first && second)
		ret->stream.lost += second->head.lost;

	return true;
}

/* Of both looks, ascending: the second knows more of what started since. *ret is the caller's, the texts are the looks'. */
static size_t join_cgroups(const struct stackcapture *capture, struct stackfile_cgroup **ret)
{
	const struct stackrecorder_snapshot *a = &capture->first, *b = &capture->second;
	struct stackfile_cgroup *joined = calloc(a->cgroup_count + b->cgroup_count + 1, sizeof *joined);
	size_t count = 0, i = 0, j = 0;

	while (joined && (i < a->cgroup_count || j < b->cgroup_count)) {
		bool of_a = j == b->cgroup_count || (i < a->cgroup_count && a->cgroups[i].pid <= b->cgroups[j].pid);
		const struct stackfile_cgroup *next = of_a ? &a->cgroups[i++] : &b->cgroups[j++];

		if (count == 0 || joined[count - 1].pid != next->pid)
			joined[count++] = *next;
	}
	*ret = joined;

	return count;
}

static int write_stackfile(const struct stackcapture *capture, int *ret_fd)
{
	AUTO_CLOSE int fd = memfd_create("stackfile", MFD_CLOEXEC);
	AUTO_FREE struct stackfile_cgroup *cgroups = NULL;
	struct stackfile_records streams[STACKFILE_STREAM_KINDS];
	struct stackrecorder_status status;
	struct stackfile_content content = {
		.streams = streams,
		.entries = capture->parcel.entries,
		.entry_count = capture->parcel.count,
		.cgroup_count = join_cgroups(capture, &cgroups),
	};
	struct sink sink = sink_fd(&fd);
	int r;

	if (fd < 0)
		return -errno;

	stackrecorder_status(capture->options.recorder, &status);
	content.cgroups = cgroups;
	content.head = (struct stackfile_head){
		.page_bytes = (uint32_t)sysconf(_SC_PAGESIZE),
		.frequency = status.frequency,
		.fired_mono_ns = capture->options.fired.ns,
		.fired_wall_ns = capture->options.wall.ns,
		.from_ns = capture->first.from_ns,
		.to_ns = capture->second.to_ns,
	};
	for (uint32_t kind = 0; kind < STACKFILE_STREAM_KINDS; kind++)
		content.stream_count += join(capture, kind, &streams[content.stream_count]);
	r = stackfile_write(&content, &sink);
	if (r == 0)
		*ret_fd = TAKE_FD(fd);

	return r;
}

/* ---- the incident ---- */

static void add_record(struct incident *info, int output, enum incident_capture_status status, uint64_t bytes,
		       const char *why)
{
	struct incident_capture record = { .status = status, .bytes = bytes };

	incident_text(record.name, sizeof record.name, symbolizer_outputs[output].name);
	incident_text(record.why, sizeof record.why, why);
	if (status == INCIDENT_CAPTURE_OK)
		incident_text(record.file, sizeof record.file, symbolizer_outputs[output].file);
	incident_add_capture(info, &record);
}

static void give_up(int dirfd, struct incident *info, const char *why)
{
	for (int i = 0; i < SYMBOLIZER_OUTPUTS; i++)
		unlinkat(dirfd, symbolizer_outputs[i].file, 0);
	add_record(info, 0, INCIDENT_CAPTURE_FAILED, 0, why);
}

static int open_outputs(int outputs[SYMBOLIZER_OUTPUTS], int dirfd)
{
	for (int i = 0; i < SYMBOLIZER_OUTPUTS; i++) {
		outputs[i] = openat(dirfd, symbolizer_outputs[i].file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
		if (outputs[i] < 0)
			return -errno;
	}

	return 0;
}

static void close_outputs(const int outputs[SYMBOLIZER_OUTPUTS])
{
	for (int i = 0; i < SYMBOLIZER_OUTPUTS; i++)
		if (outputs[i] >= 0)
			close(outputs[i]);
}

static void empty_outputs(const int outputs[SYMBOLIZER_OUTPUTS])
{
	for (int i = 0; i < SYMBOLIZER_OUTPUTS; i++)
		if (ftruncate(outputs[i], 0) == 0)
			lseek(outputs[i], 0, SEEK_SET);
}

/* Adds "; text" to what is said already. */
__attribute__((format(printf, 3, 4))) static void add_text(char *why, size_t cap, const char *format, ...)
{
	size_t len = strlen(why);
	va_list args;

	if (len && len + 2 < cap)
		len += (size_t)snprintf(why + len, cap - len, "; ");
	va_start(args, format);
	vsnprintf(why + len, cap - len, format, args);
	va_end(args);
}

/* Everybody's samples of a quantity, or where there are none those of the threads that are followed. */
static const struct stackrecorder_stream *widest(const struct stackcapture *capture, bool memory)
{
	const struct stackrecorder_stream *all =
		find_stream(&capture->first, memory ? STACKFILE_FAULTS : STACKFILE_CPU);

	return all ? all : find_stream(&capture->first, memory ? STACKFILE_FAULTS_FOLLOWED : STACKFILE_CPU_FOLLOWED);
}

void stackcapture_faults_text(const struct thinning_summary *first, const struct thinning_summary *second,
			      uint64_t fired_ns, char *ret, size_t cap)
{
	uint64_t counted = first->counted + second->counted, all = first->all + second->all;
	uint64_t since_ns = first->since_ns != 0 ? first->since_ns : second->since_ns;

	*ret = '\0';
	if (all > counted)
		snprintf(ret, cap,
			 "%.1f %% of the page faults were counted, from %+.1f s on, and stand for all of them",
			 100 * (double)counted / (double)all, ((double)since_ns - (double)fired_ns) / 1e9);
}

/* What there is to say of page faults alone. */
static void describe_faults(const struct stackcapture *capture, const struct stackrecorder_status *status, char *why,
			    size_t cap)
{
	char text[WHY_MAX];

	stackcapture_faults_text(&capture->first.faults, &capture->second.faults, capture->options.fired.ns, text,
				 sizeof(text));
	if (*text)
		add_text(why, cap, "%s", text);
	if (status->faults_error != 0)
		add_text(why, cap, "page faults are not sampled any more: perf_event_open: %s",
			 strerrordesc_np(-status->faults_error));
}

/* What is not as it should be with the profile of a quantity is added to why. */
static void describe_gaps(const struct stackcapture *capture, bool memory, char *why, size_t cap)
{
	const struct stackrecorder_stream *stream = widest(capture, memory);
	uint64_t late_ns = stream ? stream->head.covered_ns - capture->first.from_ns : 0, lost = 0, left_out = 0;
	struct stackrecorder_status status;

	stackrecorder_status(capture->options.recorder, &status);
	if (memory)
		describe_faults(capture, &status, why, cap);
	if (late_ns > capture->options.before_ns)
		late_ns = capture->options.before_ns;
	/* Before that there was no recorder, which the samples say, too. */
	if (late_ns > NS_PER_S && stream->head.covered_ns > status.opened_ns)
		add_text(why, cap, "stacks go back %.1f s and not %.1f s",
			 (double)(capture->options.before_ns - late_ns) / 1e9,
			 (double)capture->options.before_ns / 1e9);
	for (uint32_t kind = memory ? STACKFILE_FAULTS : STACKFILE_CPU, i = 0; i < 2; i++, kind++) {
		const struct stackrecorder_stream *looks[] = { find_stream(&capture->first, kind),
							       find_stream(&capture->second, kind) };

		for (size_t look_no = 0; look_no < ARRAY_LEN(looks); look_no++) {
			lost += looks[look_no] ? looks[look_no]->head.lost : 0;
			left_out += looks[look_no] ? looks[look_no]->left_out : 0;
		}
	}
	if (lost)
		add_text(why, cap, "%ju samples were lost", (uintmax_t)lost);
	if (left_out)
		add_text(why, cap, "%ju bytes of samples found no room", (uintmax_t)left_out);
}

/* All that is not as it should be with the profile of a quantity. */
static void describe(const struct stackcapture *capture, bool memory, char why[WHY_MAX])
{
	struct stackrecorder_status status;

	stackrecorder_status(capture->options.recorder, &status);
	describe_gaps(capture, memory, why, WHY_MAX);
	if (!status.everybody)
		add_text(why, WHY_MAX, "stacks are of watched processes of this user only");
	if (*status.limits)
		add_text(why, WHY_MAX, "%s", status.limits);
	if (status.dwarf && status.not_followed)
		add_text(why, WHY_MAX, "of %u watched processes there are no whole stacks", status.not_followed);
}

/* An output that is empty has nothing to tell: it goes. */
static void report(const struct stackcapture *capture, const int outputs[SYMBOLIZER_OUTPUTS], int dirfd,
		   const char *nameless, struct incident *info)
{
	for (int i = 0; i < SYMBOLIZER_OUTPUTS; i++) {
		bool memory = i >= SYMBOLIZER_OUTPUTS / 2, first = i % (SYMBOLIZER_OUTPUTS / 2) == 0;
		char why[WHY_MAX] = "";
		struct stat st;
		bool empty = fstat(outputs[i], &st) < 0 || st.st_size == 0;

		if (first && empty)
			add_text(why, sizeof why, "there are no samples");
		else if (first && *nameless)
			add_text(why, sizeof why, "no names: %s", nameless);
		if (first)
			describe(capture, memory, why);
		if (empty)
			unlinkat(dirfd, symbolizer_outputs[i].file, 0);
		else
			add_record(info, i, INCIDENT_CAPTURE_OK, (uint64_t)st.st_size, why);
		/* Without page faults nothing is missing. */
		if (empty && first && !memory)
			add_record(info, i, INCIDENT_CAPTURE_SKIPPED, 0, why);
	}
}

/* They are in the stackfile now, and can be megabytes. */
static void drop_records(struct stackrecorder_snapshot *snapshot)
{
	for (size_t i = 0; i < snapshot->stream_count; i++)
		buffer_release(&snapshot->streams[i].records);
}

/* The child's part. 0: there are names; 1: it only got through without reading any file, and why says why. 2: not even so. -errno. */
static int symbolize(struct stackcapture *capture, const struct stackcapture_focus *focus,
		     const struct symbolizer_waiting *waiting, const int outputs[SYMBOLIZER_OUTPUTS], char why[WHY_MAX])
{
	AUTO_CLOSE int stackfile = -1;
	struct symbolizer_job job = {
		.program = capture->options.symbolizer,
		.parcel = &capture->parcel,
		.spike_from_ns = capture->options.spike_from_ns,
		.focus = focus->pids,
		.focus_count = focus->count,
		.waiting = waiting,
	};
	char again[WHY_MAX];
	int r;

	memcpy(job.outputs, outputs, sizeof job.outputs);
	stackparcel_add(&capture->parcel, capture->options.procfd, &capture->second, STACKPARCEL_FILES_MAX);
	stackparcel_add_kernel(&capture->parcel, capture->options.procfd);
	r = write_stackfile(capture, &stackfile);
	job.stackfile = stackfile;
	drop_records(&capture->first);
	let_go(capture);
	drop_records(&capture->second);
	if (r == 0)
		r = symbolizer_run(&job, why, WHY_MAX);
	if (r > 0) {
		empty_outputs(outputs);
		job.raw = true;
		r = symbolizer_run(&job, again, sizeof again);
		r = r < 0 ? r : 1 + r;
	}

	return r;
}

struct stackcapture *stackcapture_secure(const struct stackcapture_options *options, struct incident *info)
{
	struct stackcapture *capture = calloc(1, sizeof *capture);
	mono_t from = mono_sub(options->fired, options->before_ns);
	int r = -ENOMEM;

	if (capture) {
		capture->options = *options;
		r = look(options->recorder, from.ns, options->held ? *options->held : 0, &capture->first);
	}
	if (r == 0) {
		hold(capture);
		stackparcel_add(&capture->parcel, options->procfd, &capture->first, FILES_AT_ONCE);
		return capture;
	}

	add_record(info, 0, INCIDENT_CAPTURE_FAILED, 0, strerrordesc_np(-r));
	free(capture);

	return NULL;
}

void stackcapture_write(struct stackcapture *capture, const struct stackcapture_focus *focus, int dirfd,
			const struct symbolizer_waiting *waiting, struct incident *info)
{
	int outputs[SYMBOLIZER_OUTPUTS] = { -1, -1, -1, -1, -1, -1 };
	char why[WHY_MAX] = "";
	int r = look(capture->options.recorder, capture->first.to_ns, 0, &capture->second);

	if (r == 0)
		r = merge_books(capture);
	if (r == 0)
		r = open_outputs(outputs, dirfd);
	if (r == 0)
		r = symbolize(capture, focus, waiting, outputs, why);
	if (r < 0)
		snprintf(why, sizeof why, "%s", strerrordesc_np(-r));
	if (r == 0 || r == 1)
		report(capture, outputs, dirfd, why, info);
	else
		give_up(dirfd, info, why);
	close_outputs(outputs);
	stackcapture_free(capture);
}
