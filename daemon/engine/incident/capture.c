/*
 * capture.c: the evidence of an incident that is not samples: threads, status, limits, cgroup,
 * system and smaps, one file each.
 *
 * A capture builds its text in memory, without a disk; capture_save writes it later, as a whole. So a
 * file is complete or absent, and a full disk costs one file, not the incident. Everything that a
 * watched process controls is escaped, so that no control character reaches a terminal. A file is
 * bounded by CAPTURE_BYTES_MAX and cut at the end of a line; the cut is noted in the file and in the
 * capture's record.
 *
 * A capture visits all processes of the target and continues when one has vanished; it reports an
 * error only if none could be read. Which errors mean "not possible here" (skipped) and which are
 * a fault (failed) is decided in judge_capture() only.
 *
 * Which processes are read follows from the target: the process itself, the busiest of a group or
 * a cgroup, or the busiest of all watched ones. The second snapshot reads those of the first.
 */
#include "daemon/engine/incident/capture.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/foreign.h"
#include "daemon/engine/base/proc_read.h"
#include "daemon/engine/incident/incident_request.h"
#include "daemon/engine/session/session.h"
#include "daemon/engine/targets/baseline.h"
#include "daemon/engine/targets/discovery.h"
#include "lib/base/io.h"
#include "lib/base/text.h"
#include "lib/cgroup/cgroup.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/config/config.h"
#include "lib/model/target.h"
#include "lib/proc/procfs.h"
#include "lib/ring/ring.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CAPTURE_BYTES_MAX (1u << 20)

/*
 * CPU time of all captures of one snapshot: 60 GiB of memory in small pages, 50,000 threads, or
 * 80,000 processes. What is left is left out, and the file and its record say so.
 */
#define CAPTURE_CPU_MS 250
#define LEFT_OUT "left out: the captures of a snapshot take at most " STRINGIFY(CAPTURE_CPU_MS) " ms of CPU time"
#define UNANSWERED "did not answer in time, or others of its user did not"
#define STRINGIFY(number) STRINGIFY_EXPANDED(number)
#define STRINGIFY_EXPANDED(number) #number

/* The captures of the second snapshot: those whose content changes within seconds. */
#define CAPTURE_AGAIN (CONFIG_CAPTURE_THREADS | CONFIG_CAPTURE_STATUS | CONFIG_CAPTURE_SMAPS)

/* A process to read. Baselines: NULL or empty if there are none. */
struct capture_member {
	int32_t pid;
	uint64_t start_ticks; /* 0: not known */
	const struct thread_baseline *threads;
	const struct maps_snapshot *maps;
};

/* What the captures of one incident read. */
struct capture_context {
	int procfd;
	const struct clock *clock;
	const struct cgroup_mounts *mounts; /* NULL: no cgroups */
	const struct target *target;
	const struct cgroup_limits *limits; /* effective ones, of the target */
	const struct capture_member *members;
	size_t member_count;              /* at most CAPTURE_MEMBERS_MAX */
	const struct busy_snapshot *busy; /* a scan of /proc some seconds ago; NULL: none */
	uint64_t cpu_end_ns;              /* CPU time of the thread, and of children for it, at which it stops */
	uint64_t *children_cpu_ns;        /* NULL: none is counted */
	mono_t fired;                     /* records hold the time since it; 0: they do not */
	size_t max_bytes;                 /* of each text; 0: CAPTURE_BYTES_MAX */
	bool again;                       /* the second snapshot */
};

/* ---- text: bounded, escaped, cut at the end of a line ---- */

/* {.buffer.max = ...} is ready for use. Beyond the limit or without memory, text is dropped. */
struct capture_text {
	struct buffer buffer;
	bool cut;        /* something was dropped because of the limit */
	bool left_out;   /* something was not read because the CPU time was used up */
	bool unanswered; /* something was not read because it did not answer */
	int error;       /* -ENOMEM, or why a source could not be read: nothing is saved */
};

#define PIECE_BYTES 256 /* escaped at a time: four times as much at worst */
#define LINE_BYTES 1024
#define CUT_NOTE "# cut: there was more\n"

/* Keeps room for CUT_NOTE. */
static void append_text(struct capture_text *text, const char *data, size_t len)
{
	int r;

	if (text->cut || text->error)
		return;
	if (text->buffer.len + len + sizeof(CUT_NOTE) > text->buffer.max) {
		text->cut = true;
		return;
	}
	r = buffer_append(&text->buffer, data, len);
	if (r < 0)
		text->error = r;
}

__attribute__((format(printf, 2, 3))) static void capture_printf(struct capture_text *text, const char *format, ...)
{
	char line[LINE_BYTES];
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (len > 0)
		append_text(text, line, (size_t)len < sizeof(line) ? (size_t)len : sizeof(line) - 1);
}

/* Up to PIECE_BYTES, without splitting a UTF-8 character. */
static size_t piece_length(const char *data, size_t len)
{
	size_t size = PIECE_BYTES;

	if (len <= PIECE_BYTES)
		return len;
	while (size > PIECE_BYTES - 4 && ((unsigned char)data[size] & 0xc0) == 0x80)
		size--;
	return size;
}

/* Untrusted bytes on one line: what is not printable becomes \xNN. */
static void capture_put_word(struct capture_text *text, const char *data, size_t len)
{
	char escaped[4 * PIECE_BYTES + 1];

	while (len > 0) {
		size_t size = piece_length(data, len);

		append_text(text, escaped, text_escape(escaped, sizeof(escaped), data, size));
		data += size;
		len -= size;
	}
}

/* Untrusted lines: as capture_put_word, but newlines and tabs stay; ends with a newline. */
static void capture_put_lines(struct capture_text *text, const char *data, size_t len)
{
	size_t at = 0;

	while (at < len) {
		size_t end = at;

		while (end < len && data[end] != '\n' && data[end] != '\t')
			end++;
		capture_put_word(text, data + at, end - at);
		if (end < len)
			append_text(text, data + end, 1);
		at = end + 1;
	}
	if (len > 0 && data[len - 1] != '\n')
		append_text(text, "\n", 1);
}

/* Removes a line that was cut, and adds the note. */
static void end_cut_text(struct capture_text *text)
{
	struct buffer *buffer = &text->buffer;

	if (!text->cut)
		return;
	while (buffer->len > 0 && buffer->data[buffer->len - 1] != '\n')
		buffer->len--;
	text->error = buffer_append(buffer, CUT_NOTE, sizeof(CUT_NOTE) - 1);
}

/* The text as it will be in its file; the caller's. 0; text->error. */
static int capture_text_end(struct capture_text *text, struct buffer *ret)
{
	if (!text->error)
		end_cut_text(text);
	if (text->error)
		return text->error;
	*ret = text->buffer;
	text->buffer = (struct buffer){ 0 };
	return 0;
}

static void capture_text_release(struct capture_text *text)
{
	buffer_release(&text->buffer);
}

/* ---- processes: threads, status, limits, smaps ---- */

/* A younger baseline is too short to compare with, a much older one dilutes the spike. */
#define THREADS_MIN_AGE_NS (900 * NS_PER_MS)
/*
 * A thread that began since the last scan has no baseline and needs none: all its CPU time is
 * recent. Scans are ten seconds apart at most.
 */
#define THREADS_YOUNG_NS (10 * NS_PER_S)
#define PROCESS_FILE_BYTES 65536
#define UPTIME_MAX_S 1e9 /* thirty years */

typedef int member_fn(const struct capture_context *context, const struct capture_member *member,
		      struct capture_text *text);

static uint64_t used_cpu(const struct capture_context *context)
{
	return real_clock_thread_cpu() + (context->children_cpu_ns ? *context->children_cpu_ns : 0);
}

static bool is_out_of_time(const struct capture_context *context, struct capture_text *text)
{
	text->left_out |= used_cpu(context) >= context->cpu_end_ns;
	return text->left_out;
}

static int leave_out(const struct capture_member *member, struct capture_text *text)
{
	text->left_out = true;
	capture_printf(text, "# process %d is " LEFT_OUT "\n", member->pid);
	return 0;
}

static int each_member(const struct capture_context *context, struct capture_text *text, member_fn *visit)
{
	int error = -ESRCH;
	bool any = false;

	for (size_t i = 0; i < context->member_count; i++) {
		const struct capture_member *member = &context->members[i];
		int r = is_out_of_time(context, text) ? leave_out(member, text) : visit(context, member, text);

		if (r == -ESRCH)
			capture_printf(text, "# process %d has exited\n", context->members[i].pid);
		else if (r < 0)
			capture_printf(text, "# process %d: %s\n", context->members[i].pid, foreign_error(r));
		text->unanswered |= r == -ETIMEDOUT || r == -EBUSY;
		if (r < 0 && r != -ESRCH)
			error = r;
		any |= r >= 0;
	}
	return any ? 0 : error;
}

/* ---- raw files ---- */

/* Arguments end with a NUL each; here they are separated by spaces. */
static void put_arguments(struct capture_text *text, char *data, size_t len)
{
	while (len > 0 && data[len - 1] == '\0')
		len--;
	for (size_t i = 0; i < len; i++)
		if (data[i] == '\0')
			data[i] = ' ';
	capture_put_word(text, data, len);
	append_text(text, "\n", 1);
}

/* Adds a file of the process, below a heading. */
static int add_file(int pid_directory, int32_t pid, const char *name, struct capture_text *text)
{
	AUTO_FREE char *data = malloc(PROCESS_FILE_BYTES);
	ssize_t len;

	if (!data)
		return -ENOMEM;
	len = pid_directory_read(pid_directory, name, data, PROCESS_FILE_BYTES);
	if (len < 0)
		return (int)len;
	capture_printf(text, "# /proc/%d/%s\n", pid, name);
	capture_put_lines(text, data, (size_t)len);
	return 0;
}

/* The arguments are read by a child, since that may wait. Without them the rest is still there. */
static int add_cmdline(const struct capture_context *context, int32_t pid, struct capture_text *text)
{
	AUTO_FREE char *data = malloc(PROCESS_FILE_BYTES);
	ssize_t len;

	if (!data)
		return -ENOMEM;
	len = foreign_read(FOREIGN_INCIDENTS, context->procfd, pid, "cmdline", data, PROCESS_FILE_BYTES);
	if (len == -ETIMEDOUT || len == -EBUSY) {
		capture_printf(text, "# /proc/%d/cmdline: %s\n", pid, foreign_error((int)len));
		text->unanswered = true;
		return 0;
	}
	if (len < 0)
		return (int)len;
	capture_printf(text, "# /proc/%d/cmdline\n", pid);
	put_arguments(text, data, (size_t)len);
	return 0;
}

static int status_of(const struct capture_context *context, const struct capture_member *member,
		     struct capture_text *text)
{
	AUTO_CLOSE int pid_directory = -1;
	int r;

	r = pid_directory_open(context->procfd, member->pid, member->start_ticks, &pid_directory);
	if (r < 0)
		return r;
	r = add_cmdline(context, member->pid, text);
	return r < 0 ? r : add_file(pid_directory, member->pid, "status", text);
}

static int capture_status(const struct capture_context *context, struct capture_text *text)
{
	return each_member(context, text, status_of);
}

static int limits_of(const struct capture_context *context, const struct capture_member *member,
		     struct capture_text *text)
{
	AUTO_CLOSE int pid_directory = -1;
	int r;

	r = pid_directory_open(context->procfd, member->pid, member->start_ticks, &pid_directory);
	return r < 0 ? r : add_file(pid_directory, member->pid, "limits", text);
}

static void print_origin(struct capture_text *text, bool is_machine, const char *cgroup)
{
	if (is_machine) {
		capture_printf(text, "\tthe machine\n");
		return;
	}
	capture_printf(text, "\tcgroup ");
	capture_put_word(text, cgroup, strlen(cgroup));
	capture_printf(text, "\n");
}

static int capture_limits(const struct capture_context *context, struct capture_text *text)
{
	const struct cgroup_limits *limits = context->limits;
	bool effective = false;

	capture_printf(text, "# effective limits of the target: limit, value, where it is from\n");
	if (limits->cpu != UINT64_MAX) {
		capture_printf(text, "cpu\t%.3f cores", (double)limits->cpu / (double)NS_PER_S);
		print_origin(text, limits->cpu_is_machine, limits->cpu_from);
		effective = true;
	}
	if (limits->memory_bytes != UINT64_MAX) {
		capture_printf(text, "memory\t%ju bytes", (uintmax_t)limits->memory_bytes);
		print_origin(text, limits->memory_is_machine, limits->memory_from);
		effective = true;
	}
	if (!effective)
		capture_printf(text, "# not known\n");

	int r = each_member(context, text, limits_of);

	return effective ? 0 : r; /* the effective ones are worth a file when the process is gone */
}

/* ---- threads ---- */

struct thread_row {
	int32_t pid;
	struct thread_record record; /* the times: since since_ns ago, or all of them without baseline */
	uint64_t since_ns;           /* 0: no baseline */
	bool is_new; /* it was not there then, or there is no baseline because its process is as young */
};

struct thread_table {
	struct thread_row *rows;
	size_t count;
};

/* Counters of a process may step back by a little. */
static uint64_t growth(uint64_t now, uint64_t then)
{
	return now > then ? now - then : 0;
}

static void subtract(struct thread_row *row, const struct thread_record *then)
{
	row->record.cpu_ns = growth(row->record.cpu_ns, then->cpu_ns);
	row->record.user_ns = growth(row->record.user_ns, then->user_ns);
	row->record.system_ns = growth(row->record.system_ns, then->system_ns);
	if (row->record.wait_ns != UINT64_MAX)
		row->record.wait_ns =
			then->wait_ns != UINT64_MAX ? growth(row->record.wait_ns, then->wait_ns) : UINT64_MAX;
}

/*
 * Without a baseline all times are since the thread's start; if that was recent, since_ns is its
 * age. uptime_ns: 0 if it is not known. Both are rounded to clock ticks; one is added, so that no
 * thread has used more than 100 %.
 */
static void set_young_age(struct thread_row *row, uint64_t uptime_ns)
{
	uint64_t tick_ns = NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK), age_ns;

	if (row->record.start_ticks > uptime_ns / tick_ns)
		return;
	age_ns = uptime_ns - row->record.start_ticks * tick_ns + tick_ns;
	if (age_ns > THREADS_YOUNG_NS)
		return;
	row->since_ns = age_ns;
	row->is_new = true;
}

static int add_threads(struct thread_table *table, const struct capture_member *member,
		       const struct thread_snapshot *snapshot, uint64_t uptime_ns)
{
	const struct thread_snapshot *before = NULL;
	struct thread_row *rows;
	mono_t at;

	rows = realloc(table->rows, (table->count + snapshot->count) * sizeof(*rows));
	if (!rows)
		return -ENOMEM;
	table->rows = rows;
	if (member->threads)
		before = thread_baseline_pick(member->threads, snapshot->taken, THREADS_MIN_AGE_NS, &at);

	for (size_t i = 0; i < snapshot->count; i++) {
		struct thread_row *row = &table->rows[table->count++];
		const struct thread_record *then = before ? thread_snapshot_find(before, &snapshot->records[i]) : NULL;

		*row = (struct thread_row){ .pid = member->pid, .record = snapshot->records[i] };
		if (before)
			row->since_ns = growth(snapshot->taken.ns, at.ns);
		if (then)
			subtract(row, then);
		/* If the baseline was cut at its limit, the thread may have been there unlisted. */
		row->is_new = before && !then && before->unlisted == 0;
		if (before && !then && before->unlisted > 0)
			row->since_ns = 0;
		if (!before)
			set_young_age(row, uptime_ns);
	}
	return 0;
}

/* CPU time per time; the interval differs between threads. */
static double cpu_share(const struct thread_row *row)
{
	return row->since_ns > 0 ? (double)row->record.cpu_ns / (double)row->since_ns : 0;
}

/* Busiest first; those without an interval last. */
static int compare_threads(const void *a, const void *b)
{
	const struct thread_row *left = a, *right = b;
	double of_left = cpu_share(left), of_right = cpu_share(right);

	if ((left->since_ns == 0) != (right->since_ns == 0))
		return left->since_ns == 0 ? 1 : -1;
	if (of_left < of_right || of_left > of_right)
		return of_left > of_right ? -1 : 1;
	if (left->record.cpu_ns != right->record.cpu_ns)
		return left->record.cpu_ns > right->record.cpu_ns ? -1 : 1;
	return (left->record.tid > right->record.tid) - (left->record.tid < right->record.tid);
}

static double ns_to_ms(uint64_t ns)
{
	return (double)ns / (double)NS_PER_MS;
}

/* Where it was when it did not run: runnable, but waiting for a CPU; or not runnable. */
static void print_off_cpu(struct capture_text *text, const struct thread_row *row)
{
	uint64_t wait_ns = row->record.wait_ns;

	if (wait_ns == UINT64_MAX) {
		capture_printf(text, "\t\t");
		return;
	}
	capture_printf(text, "%.3f\t", ns_to_ms(wait_ns));
	if (row->since_ns > 0)
		capture_printf(text, "%.0f", ns_to_ms(growth(row->since_ns, row->record.cpu_ns + wait_ns)));
	capture_printf(text, "\t");
}

static void print_thread(struct capture_text *text, const struct thread_row *row)
{
	const struct thread_record *record = &row->record;

	capture_printf(text, "%d\t%d\t", row->pid, record->tid);
	capture_put_word(text, record->name, strnlen(record->name, sizeof(record->name)));
	capture_printf(text, "\t");
	capture_put_word(text, &record->state, 1);
	capture_printf(text, "\t%.3f\t", ns_to_ms(record->cpu_ns));
	if (row->since_ns > 0)
		capture_printf(text, "%.1f", 100 * cpu_share(row));
	capture_printf(text, "\t%.0f\t%.0f\t", ns_to_ms(record->user_ns), ns_to_ms(record->system_ns));
	print_off_cpu(text, row);
	if (row->since_ns > 0)
		capture_printf(text, "%.0f\t%s\n", ns_to_ms(row->since_ns), row->is_new ? "new" : "");
	else
		capture_printf(text, "\tsince its start: no baseline\n");
}

/* "4961.28 9011.02\n" (proc(5)): seconds since boot, as start times are; 0: not known. */
static uint64_t read_uptime(int procfd)
{
	char text[64], *end;
	double seconds;

	if (foreign_read(FOREIGN_INCIDENTS, procfd, 0, "uptime", text, sizeof(text)) <= 0)
		return 0;
	seconds = strtod(text, &end);
	return end != text && seconds > 0 && seconds < UPTIME_MAX_S ? (uint64_t)(seconds * (double)NS_PER_S) : 0;
}

static int collect_threads(const struct capture_context *context, struct capture_text *text, struct thread_table *table)
{
	int error = -ESRCH;

	for (size_t i = 0; i < context->member_count; i++) {
		const struct capture_member *member = &context->members[i];
		AUTO_FREE struct thread_snapshot *snapshot = NULL;
		int r;

		if (is_out_of_time(context, text)) {
			leave_out(member, text);
			continue;
		}
		r = thread_snapshot_take(context->procfd, member->pid, member->start_ticks, clock_mono(context->clock),
					 &snapshot);
		/* The uptime is read after the threads: none is younger. */
		if (r == 0)
			r = add_threads(table, member, snapshot, read_uptime(context->procfd));
		if (r == 0 && snapshot->unlisted > 0)
			capture_printf(text, "# process %d has %zu more threads\n", member->pid, snapshot->unlisted);
		else if (r == -ESRCH)
			capture_printf(text, "# process %d has exited\n", member->pid);
		if (r < 0)
			error = r;
	}
	return table->count > 0 || text->left_out ? 0 : error;
}

static int capture_threads(const struct capture_context *context, struct capture_text *text)
{
	struct thread_table table = { 0 };
	int r;

	capture_printf(text,
		       "# CPU time of each thread within the last since_ms milliseconds; 100 percent is one core\n");
	r = collect_threads(context, text, &table);
	if (r == 0) {
		if (table.count > 0)
			qsort(table.rows, table.count, sizeof(table.rows[0]), compare_threads);
		capture_printf(text, "pid\ttid\tname\tstate\tcpu_ms\tcpu_percent\tuser_ms\tsystem_ms\twait_ms\toff_"
				     "ms\tsince_ms\tremark\n");
		for (size_t i = 0; i < table.count; i++)
			print_thread(text, &table.rows[i]);
	}
	free(table.rows);
	return r;
}

/* ---- memory ---- */

struct maps_row {
	const struct maps_record *record;
	const struct maps_record *before; /* NULL: was not there, or no baseline */
	double weight;                    /* sort key: growth, or size without a baseline */
};

static double footprint(const struct maps_record *record)
{
	return record ? (double)record->rss_bytes + (double)record->swap_bytes : 0;
}

static int compare_weight(const void *a, const void *b)
{
	const struct maps_row *left = a, *right = b;

	if (left->weight != right->weight)
		return left->weight > right->weight ? -1 : 1;
	return footprint(left->record) > footprint(right->record) ? -1
								  : footprint(left->record) < footprint(right->record);
}

enum { KNOWN_PSS = 1, KNOWN_GROWTH = 2, KNOWN_PSS_GROWTH = 4 };

static void print_mapping(struct capture_text *text, int32_t pid, const struct maps_row *row, unsigned known)
{
	static const struct maps_record none;
	const struct maps_record *record = row->record, *before = row->before ? row->before : &none;

	capture_printf(text, "%d\t", pid);
	capture_put_word(text, record->name, strlen(record->name));
	capture_printf(text, "\t");
	capture_put_word(text, record->permissions, strlen(record->permissions));
	capture_printf(text, "\t%u\t%" PRIu64, record->mappings, record->rss_bytes);
	if (known & KNOWN_PSS)
		capture_printf(text, "\t%" PRIu64 "\t%" PRIu64, record->pss_bytes, record->private_dirty_bytes);
	else
		capture_printf(text, "\t\t");
	capture_printf(text, "\t%" PRIu64, record->swap_bytes);
	if (!(known & KNOWN_GROWTH)) {
		capture_printf(text, "\t\t\t\t\n");
		return;
	}
	capture_printf(text, "\t%+" PRId64, (int64_t)(record->rss_bytes - before->rss_bytes));
	if (known & KNOWN_PSS_GROWTH)
		capture_printf(text, "\t%+" PRId64 "\t%+" PRId64, (int64_t)(record->pss_bytes - before->pss_bytes),
			       (int64_t)(record->private_dirty_bytes - before->private_dirty_bytes));
	else
		capture_printf(text, "\t\t");
	capture_printf(text, "\t%+" PRId64 "\n", (int64_t)(record->swap_bytes - before->swap_bytes));
}

/* What of the columns is not known is left empty. */
static unsigned say_what_is_known(const struct capture_member *member, const struct maps_snapshot *now,
				  struct capture_text *text)
{
	const struct maps_snapshot *before = member->maps;
	unsigned known = now->by_pages ? 0 : KNOWN_PSS;

	if (!before)
		capture_printf(text, "# process %d: no baseline: growth is not known, largest first\n", member->pid);
	else if (before->left_out)
		capture_printf(text,
			       "# process %d: no baseline, since it has more memory than can be read in passing:"
			       " growth is not known, largest first\n",
			       member->pid);
	else
		capture_printf(text, "# process %d: growth within the last %.1f s\n", member->pid,
			       ns_to_ms(growth(now->taken.ns, before->taken.ns)) / 1000);
	if (before && !before->left_out)
		known |= KNOWN_GROWTH | (known && !before->by_pages ? KNOWN_PSS_GROWTH : 0);
	if (now->by_pages)
		capture_printf(text,
			       "# process %d: its smaps was not read, which would have held it up:"
			       " pss and private_dirty are not known\n",
			       member->pid);
	return known;
}

static int maps_of(const struct capture_context *context, const struct capture_member *member,
		   struct capture_text *text)
{
	AUTO_FREE struct maps_snapshot *now = NULL;
	AUTO_FREE struct maps_row *rows = NULL;
	uint64_t cpu_ns = used_cpu(context);
	unsigned known;
	int r;

	r = maps_snapshot_take(FOREIGN_INCIDENTS, context->procfd, member->pid, member->start_ticks,
			       clock_mono(context->clock),
			       context->cpu_end_ns > cpu_ns ? context->cpu_end_ns - cpu_ns : 0, &now);
	if (r < 0)
		return r;
	if (context->children_cpu_ns)
		*context->children_cpu_ns += now->cpu_ns;
	if (now->left_out)
		return leave_out(member, text);
	rows = calloc(now->count + 1, sizeof(*rows));
	if (!rows)
		return -ENOMEM;

	known = say_what_is_known(member, now, text);
	for (size_t i = 0; i < now->count; i++) {
		const struct maps_record *record = &now->records[i];
		const struct maps_record *before =
			known & KNOWN_GROWTH ? maps_snapshot_find(member->maps, record) : NULL;

		rows[i] = (struct maps_row){ record, before, footprint(record) - footprint(before) };
	}
	qsort(rows, now->count, sizeof(rows[0]), compare_weight);
	for (size_t i = 0; i < now->count; i++)
		print_mapping(text, member->pid, &rows[i], known);
	return 0;
}

static int capture_smaps(const struct capture_context *context, struct capture_text *text)
{
	capture_printf(text,
		       "# memory by what is mapped; what grew most first\n"
		       "pid\tmapping\tpermissions\tmappings\trss_bytes\tpss_bytes\tprivate_dirty_bytes\tswap_bytes"
		       "\trss_growth_bytes\tpss_growth_bytes\tprivate_dirty_growth_bytes\tswap_growth_bytes\n");
	return each_member(context, text, maps_of);
}

/* ---- cgroups and the machine ---- */

#define FILE_BYTES 32768
#define SMALL_BYTES 8192
#define PLACES_MAX 48 /* CAPTURE_MEMBERS_MAX processes in six hierarchies */
#define BUSIEST 10
#define CANDIDATE_MAX 4096 /* processes of a cgroup that are considered */

/* Errors of this process, not of the file. */
static bool is_own_error(ssize_t error)
{
	return error == -ENOMEM || error == -EMFILE || error == -ENFILE;
}

/* A file that could not be read for lack of memory or descriptors must not look absent. */
static void note_own_error(struct capture_text *text, ssize_t error)
{
	if (is_own_error(error) && !text->error)
		text->error = (int)error;
}

/* ---- cgroups ---- */

/* Directories that were written: processes of a target mostly share them. */
struct places {
	struct {
		dev_t device;
		ino_t inode;
	} seen[PLACES_MAX];
	size_t count;
};

static bool seen_before(struct places *places, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return true;
	for (size_t i = 0; i < places->count; i++)
		if (places->seen[i].device == st.st_dev && places->seen[i].inode == st.st_ino)
			return true;
	if (places->count == PLACES_MAX)
		return true;
	places->seen[places->count].device = st.st_dev;
	places->seen[places->count].inode = st.st_ino;
	places->count++;
	return false;
}

static void add_cgroup_file(int dirfd, const char *directory, const char *name, char *data, struct capture_text *text)
{
	ssize_t len = pid_directory_read(dirfd, name, data, FILE_BYTES);

	note_own_error(text, len);
	if (len < 0)
		return;
	capture_printf(text, "# ");
	capture_put_word(text, directory, strlen(directory));
	capture_printf(text, "/%s\n", name);
	capture_put_lines(text, data, (size_t)len);
}

/* 1: written; 0: there is nothing new there; -ENOMEM, -EMFILE, -ENFILE. */
static int add_place(struct places *places, const char *root, const char *path, struct capture_text *text)
{
	static const char *const names[] = {
		/* v2 */
		"cgroup.controllers", "cgroup.events", "cpu.max", "cpu.weight", "cpu.stat", "cpu.pressure",
		"memory.current", "memory.peak", "memory.min", "memory.low", "memory.high", "memory.max",
		"memory.swap.current", "memory.swap.max", "memory.events", "memory.stat", "memory.pressure", "io.stat",
		"io.pressure", "pids.current", "pids.max", "cpuset.cpus.effective", "cpuset.mems.effective",
		/* v1 */
		"cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.shares", "cpuacct.usage", "cpuacct.stat",
		"cpuacct.usage_percpu", "memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.limit_in_bytes",
		"memory.soft_limit_in_bytes", "memory.memsw.usage_in_bytes", "memory.memsw.limit_in_bytes",
		"memory.failcnt", "memory.oom_control", "cpuset.cpus", "cpuset.mems"
	};
	char directory[PATH_MAX];
	AUTO_CLOSE int fd = -1;
	AUTO_FREE char *data = NULL;

	if (snprintf(directory, sizeof(directory), "%s%s", root, strcmp(path, "/") == 0 ? "" : path) >=
	    (int)sizeof(directory))
		return 0;
	fd = cgroup_open(root, path, O_RDONLY | O_DIRECTORY);
	if (is_own_error(fd))
		return fd;
	if (fd < 0 || seen_before(places, fd))
		return 0;
	data = malloc(FILE_BYTES);
	if (!data)
		return -ENOMEM;
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		add_cgroup_file(fd, directory, names[i], data, text);
	return 1;
}

/* The path in the v2 hierarchy: "0::/user.slice". False if the process is in none, or gone. */
static bool unified_path(const struct capture_context *context, int32_t pid, char *ret, size_t cap,
			 struct capture_text *trouble)
{
	char name[32], text[SMALL_BYTES];
	struct procfs_cgroup line;
	size_t offset = 0;
	ssize_t len;

	snprintf(name, sizeof(name), "%d/cgroup", pid);
	len = pid_directory_read(context->procfd, name, text, sizeof(text));
	note_own_error(trouble, len);
	while (len > 0 && procfs_cgroup_next(text, (size_t)len, &offset, &line) > 0)
		if (line.controllers_len == 0 && line.path_len < cap) {
			memcpy(ret, line.path, line.path_len);
			ret[line.path_len] = '\0';
			return true;
		}
	return false;
}

/*
 * pid 0: the path of the target itself, which is the same in every hierarchy. Returns how many
 * places were written; -ENOMEM, -EMFILE, -ENFILE.
 */
static int add_hierarchies(const struct capture_context *context, int32_t pid, struct places *places,
			   struct capture_text *text)
{
	const char *unified = cgroup_mounts_v2(context->mounts);
	char path[PATH_MAX];
	int added = 0, r;
	bool v2;

	for (unsigned c = 0; c < CGROUP_CONTROLLERS; c++) {
		const char *root = cgroup_mounts_controller(context->mounts, c, &v2);

		if (!root)
			continue;
		r = pid ? cgroup_path_in(context->mounts, context->procfd, pid, c, path, sizeof(path)) : 0;
		if (is_own_error(r))
			return r;
		if (r < 0)
			continue;
		r = add_place(places, root, pid ? path : context->target->cgroup, text);
		if (r < 0)
			return r;
		added += r;
	}
	if (!unified || (pid && !unified_path(context, pid, path, sizeof(path), text)))
		return added;
	r = add_place(places, unified, pid ? path : context->target->cgroup, text);
	return r < 0 ? r : added + r;
}

static int capture_cgroup(const struct capture_context *context, struct capture_text *text)
{
	struct places places = { .count = 0 };
	int added = 0;

	if (!context->mounts || cgroup_mounts_mode(context->mounts) == CGROUPS_NONE)
		return -ENOENT;
	capture_printf(text, "# cgroups: %s\n", cgroup_mode_name(cgroup_mounts_mode(context->mounts)));
	for (size_t i = 0; i < context->member_count; i++) {
		int r = add_hierarchies(context, context->members[i].pid, &places, text);

		if (r < 0)
			return r;
		added += r;
	}
	/* A cgroup is its own evidence; so is the last one that a process was seen in. */
	if (context->target->cgroup[0] == '/' && (added == 0 || context->target->kind == TARGET_CGROUP)) {
		int r = add_hierarchies(context, 0, &places, text);

		if (r < 0)
			return r;
		added += r;
	}
	if (text->error)
		return text->error;
	return added > 0 ? 0 : -ESRCH;
}

/* ---- the machine ---- */

/* In a container a file system of a process (lxcfs) may be mounted on some of them. */
static void add_machine_file(int procfd, const char *name, struct capture_text *text)
{
	char data[SMALL_BYTES];
	ssize_t len = foreign_read(FOREIGN_INCIDENTS, procfd, 0, name, data, sizeof(data));

	note_own_error(text, len);
	if (len == -ETIMEDOUT || len == -EBUSY)
		capture_printf(text, "# /proc/%s: %s\n", name, foreign_error((int)len));
	else if (len < 0)
		capture_printf(text, "# /proc/%s: not available\n", name);
	else
		capture_printf(text, "# /proc/%s\n", name);
	if (len > 0)
		capture_put_lines(text, data, (size_t)len);
}

/* The lines of /proc/meminfo that show what memory is used for. */
static void add_meminfo(int procfd, struct capture_text *text)
{
	static const char *const names[] = { "MemTotal",   "MemFree",     "MemAvailable", "Buffers",      "Cached",
					     "SwapTotal",  "SwapFree",    "Dirty",        "Writeback",    "AnonPages",
					     "Mapped",     "Shmem",       "Slab",         "SReclaimable", "SUnreclaim",
					     "PageTables", "CommitLimit", "Committed_AS" };
	char data[SMALL_BYTES];
	ssize_t len = foreign_read(FOREIGN_INCIDENTS, procfd, 0, "meminfo", data, sizeof(data));

	note_own_error(text, len);
	capture_printf(text, "# /proc/meminfo%s\n", len < 0 ? ": not available" : "");
	for (size_t i = 0; len > 0 && i < ARRAY_LEN(names); i++) {
		uint64_t bytes;

		if (procfs_kb_parse(data, (size_t)len, names[i], &bytes) == 0)
			capture_printf(text, "%s:\t%ju kB\n", names[i], (uintmax_t)bytes / 1024);
	}
}

/* ---- the busiest ---- */

struct busy_row {
	int32_t pid;
	char state;
	char name[64];
	uint64_t start_ticks;
	uint64_t ticks; /* since the baseline; since its start without one */
};

/* The busiest so far, busiest first. */
struct ranking {
	const struct busy_snapshot *before;
	struct busy_row *rows;
	size_t count, room;
	size_t processes;
	uint64_t cpu_end_ns; /* of the context */
};

static uint64_t ticks_since(const struct busy_snapshot *before, const struct procfs_stat *stat)
{
	const struct busy_record *then = before ? busy_snapshot_find(before, stat->pid, stat->start_ticks) : NULL;
	return growth(stat->user_ticks + stat->system_ticks, then ? then->cpu_ticks : 0);
}

static int rank_process(void *ctx, const struct procfs_stat *stat)
{
	struct ranking *ranking = ctx;
	uint64_t ticks = ticks_since(ranking->before, stat);
	size_t at = ranking->count, name_len;

	if (real_clock_thread_cpu() >= ranking->cpu_end_ns)
		return 1;
	ranking->processes++;
	while (at > 0 && ranking->rows[at - 1].ticks < ticks)
		at--;
	if (at == ranking->room)
		return 0;
	if (ranking->count < ranking->room)
		ranking->count++;
	memmove(&ranking->rows[at + 1], &ranking->rows[at], (ranking->count - 1 - at) * sizeof(ranking->rows[0]));

	ranking->rows[at] = (struct busy_row){ stat->pid, stat->state, "", stat->start_ticks, ticks };
	name_len =
		stat->comm_len < sizeof(ranking->rows[at].name) ? stat->comm_len : sizeof(ranking->rows[at].name) - 1;
	memcpy(ranking->rows[at].name, stat->comm, name_len);
	return 0;
}

static void print_busy(struct capture_text *text, const struct busy_row *row, uint64_t since_ns)
{
	double ms = (double)row->ticks * 1000.0 / (double)sysconf(_SC_CLK_TCK);

	capture_printf(text, "%d\t", row->pid);
	capture_put_word(text, row->name, strlen(row->name));
	capture_printf(text, "\t");
	capture_put_word(text, &row->state, 1);
	capture_printf(text, "\t%.0f\t", ms);
	if (since_ns > 0)
		capture_printf(text, "%.1f", 100.0 * ms * (double)NS_PER_MS / (double)since_ns);
	capture_printf(text, "\n");
}

static int add_busiest(const struct capture_context *context, struct capture_text *text)
{
	struct busy_row rows[BUSIEST];
	struct ranking ranking = {
		.before = context->busy, .rows = rows, .room = BUSIEST, .cpu_end_ns = context->cpu_end_ns
	};
	mono_t now = clock_mono(context->clock);
	uint64_t since_ns = context->busy ? growth(now.ns, context->busy->taken.ns) : 0;
	int r;

	r = busy_snapshot_scan(context->procfd, rank_process, &ranking);
	if (r < 0)
		return r;
	if (r > 0)
		text->left_out = true;
	if (context->busy)
		capture_printf(text, "# the busiest of %zu processes within the last %.1f s; 100 percent is one core\n",
			       ranking.processes, (double)since_ns / (double)NS_PER_S);
	else
		capture_printf(text, "# the busiest of %zu processes since each of them started: no baseline\n",
			       ranking.processes);
	capture_printf(text, "pid\tname\tstate\tcpu_ms\tcpu_percent\n");
	for (size_t i = 0; i < ranking.count; i++)
		print_busy(text, &rows[i], since_ns);
	return 0;
}

static int capture_system(const struct capture_context *context, struct capture_text *text)
{
	static const char *const names[] = { "loadavg", "uptime", "pressure/cpu", "pressure/memory", "pressure/io" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		add_machine_file(context->procfd, names[i], text);
	add_meminfo(context->procfd, text);
	return add_busiest(context, text);
}

/* ---- the members of a cgroup or group ---- */

struct candidates {
	const char *root;
	const char *path;
	int32_t *pids;
	size_t count;
};

/* cgroup.procs: one pid a line; 0 is a process outside of the reader's pid namespace. */
static int add_procs(void *ctx, const char *below)
{
	struct candidates *candidates = ctx;
	AUTO_FREE char *text = malloc(FILE_BYTES);
	char file[PATH_MAX];
	const char *at, *end;
	uint64_t pid;
	ssize_t len;

	if (!text)
		return -ENOMEM;
	if (snprintf(file, sizeof(file), "%s%s/cgroup.procs",
		     strcmp(candidates->path, "/") == 0 ? "" : candidates->path,
		     strcmp(below, "/") == 0 ? "" : below) >= (int)sizeof(file))
		return 0;

	AUTO_CLOSE int fd = cgroup_open(candidates->root, file, O_RDONLY);

	len = fd < 0 ? fd : fd_read_all(fd, text, FILE_BYTES);
	if (len <= 0)
		return 0;
	end = text + len;
	for (at = text; candidates->count < CANDIDATE_MAX && (at = text_parse_u64(at, end, &pid)) != NULL; at++)
		if (pid > 0 && pid <= INT32_MAX)
			candidates->pids[candidates->count++] = (int32_t)pid;
	return candidates->count == CANDIDATE_MAX;
}

static size_t read_procs(const struct capture_context *context, int32_t *pids)
{
	static const enum cgroup_resource order[] = { CGROUP_MEMORY, CGROUP_CPUACCT, CGROUP_CPU, CGROUP_PIDS };
	struct candidates candidates = { .path = context->target->cgroup, .pids = pids };
	bool v2;

	if (!context->mounts)
		return 0;
	for (size_t i = 0; candidates.count == 0 && i <= ARRAY_LEN(order); i++) {
		char directory[32];
		const char *roots[] = { directory };

		candidates.root = i < ARRAY_LEN(order) ? cgroup_mounts_controller(context->mounts, order[i], &v2)
						       : cgroup_mounts_v2(context->mounts);
		AUTO_CLOSE int fd =
			candidates.root ? cgroup_open(candidates.root, candidates.path, O_PATH | O_DIRECTORY) : -1;

		if (fd < 0)
			continue;
		snprintf(directory, sizeof(directory), "/proc/self/fd/%d", fd);
		cgroup_tree_walk(roots, 1, add_procs, &candidates); /* as far as it gets */
	}
	return candidates.count;
}

static void rank_pid(const struct capture_context *context, int32_t pid, struct ranking *ranking)
{
	char name[32], text[1024];
	struct procfs_stat stat;
	ssize_t len;

	snprintf(name, sizeof(name), "%d/stat", pid);
	len = pid_directory_read(context->procfd, name, text, sizeof(text));
	if (len > 0 && procfs_stat_parse(text, (size_t)len, &stat) == 0)
		rank_process(ranking, &stat);
}

/*
 * The processes of a group (pids) or, without pids, of a cgroup and the cgroups below it that used
 * most CPU since `busy` (NULL: since they started), busiest first. Returns how many are in ret.
 */
static size_t choose_busiest(const struct capture_context *context, const int32_t *pids, size_t pid_count,
			     struct capture_member *ret, size_t cap)
{
	AUTO_FREE int32_t *own = NULL;
	struct busy_row rows[CAPTURE_MEMBERS_MAX];
	struct ranking ranking = { .before = context->busy, .rows = rows, .cpu_end_ns = context->cpu_end_ns };

	ranking.room = cap < CAPTURE_MEMBERS_MAX ? cap : CAPTURE_MEMBERS_MAX;
	if (pid_count == 0 && context->target->kind == TARGET_CGROUP) {
		own = calloc(CANDIDATE_MAX, sizeof(*own));
		pid_count = own ? read_procs(context, own) : 0;
		pids = own;
	}
	for (size_t i = 0; i < pid_count; i++)
		rank_pid(context, pids[i], &ranking);
	for (size_t i = 0; i < ranking.count; i++)
		ret[i] = (struct capture_member){ .pid = rows[i].pid, .start_ticks = rows[i].start_ticks };
	return ranking.count;
}

/* ---- the table of captures ---- */

struct capture {
	enum config_capture which;
	const char *file;
	const char *again; /* the second snapshot; NULL: there is none */
	/*
	 * Adds to text. 0; -ESRCH: all processes are gone, or there is none; -EACCES, -EPERM,
	 * -ENOENT, ...: nothing could be read, for this reason.
	 */
	int (*collect)(const struct capture_context *context, struct capture_text *text);
};

/*
 * In the order of taking: what vanishes first comes first, what takes longest, and the mmap lock of
 * the target (baseline.h), comes last.
 */
static const struct capture capture_table[] = {
	{ CONFIG_CAPTURE_THREADS, "threads.tsv", "threads.again.tsv", capture_threads },
	{ CONFIG_CAPTURE_STATUS, "status.txt", "status.again.txt", capture_status },
	{ CONFIG_CAPTURE_LIMITS, "limits.txt", NULL, capture_limits },
	{ CONFIG_CAPTURE_CGROUP, "cgroup.txt", NULL, capture_cgroup },
	{ CONFIG_CAPTURE_SYSTEM, "system.txt", NULL, capture_system },
	{ CONFIG_CAPTURE_SMAPS, "smaps.tsv", "smaps.again.tsv", capture_smaps },
};

/* *ret_collected: the sources were read; an error after that is one of memory. */
static int read_capture(const struct capture_context *context, const struct capture *capture, struct capture_file *ret,
			bool *ret_collected)
{
	AUTO(capture_text_release)
	struct capture_text text = { .buffer.max = context->max_bytes ? context->max_bytes : CAPTURE_BYTES_MAX };
	int r = capture->collect(context, &text);

	if (r < 0)
		return r;

	*ret_collected = true;
	r = capture_text_end(&text, &ret->text);
	if (r < 0)
		return r;
	ret->record.bytes = ret->text.len;
	if (text.cut || text.left_out || text.unanswered)
		incident_text(ret->record.why, sizeof(ret->record.why),
			      text.cut        ? "cut: there was more"
			      : text.left_out ? "in part " LEFT_OUT
					      : "in part left out: it " UNANSWERED);
	return 0;
}

/* Sets status and why for an error. Returns 0 if it means skipped, else the error. */
static int judge_capture(struct incident_capture *ret, int error, bool collected)
{
	const char *why = NULL;

	if (!collected && error == -ESRCH)
		why = "target has exited";
	else if (!collected && (error == -EACCES || error == -EPERM))
		why = "not permitted";
	else if (!collected && error == -ENOENT)
		why = "not offered by this system";

	incident_capture_without_file(ret, why ? INCIDENT_CAPTURE_SKIPPED : INCIDENT_CAPTURE_FAILED,
				      why ? why : foreign_error(error));
	return why ? 0 : error;
}

static struct incident_capture make_record(const struct capture *capture, bool again,
					   enum incident_capture_status status, const char *why)
{
	struct incident_capture record = { .status = status };
	const char *name = config_capture_name(capture->which);

	snprintf(record.name, sizeof(record.name), "%s%s", name, again ? "-again" : "");
	incident_text(record.again_of, sizeof(record.again_of), again ? name : "");
	incident_text(record.why, sizeof(record.why), why);
	return record;
}

/* Makes the text of one file and its record. 0: ok or skipped; -errno: failed, there is no text. */
static int run_capture(const struct capture_context *context, const struct capture *capture, struct capture_file *ret)
{
	struct incident_capture *record = &ret->record;
	bool collected = false;
	int r;

	*ret = (struct capture_file){ .record = make_record(capture, context->again, INCIDENT_CAPTURE_OK, "") };
	incident_text(record->file, sizeof(record->file), context->again ? capture->again : capture->file);
	record->has_at = context->fired.ns > 0;
	if (record->has_at)
		record->at_ns = mono_diff(clock_mono(context->clock), context->fired);
	r = read_capture(context, capture, ret, &collected);
	return r < 0 ? judge_capture(record, r, collected) : 0;
}

static void run_captures(const struct capture_context *context, unsigned set, struct capture_files *ret)
{
	for (size_t i = 0; i < ARRAY_LEN(capture_table); i++) {
		if (!(set & capture_table[i].which))
			continue;
		run_capture(context, &capture_table[i], &ret->files[ret->count]);
		ret->bytes += ret->files[ret->count++].text.cap;
	}
}

void capture_not_taken(const struct incident_request *request, bool again, enum incident_capture_status status,
		       const char *why, struct capture_files *ret)
{
	unsigned set = capture_set(request, again);

	capture_save(ret, -1, NULL);
	for (size_t i = 0; i < ARRAY_LEN(capture_table); i++)
		if (set & capture_table[i].which)
			ret->files[ret->count++].record = make_record(&capture_table[i], again, status, why);
}

/* ---- to the disk ---- */

static int write_text_file(const struct buffer *buffer, int dirfd, const char *name)
{
	AUTO_CLOSE int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
	int r;

	if (fd < 0)
		return -errno;
	r = sink_write_all(fd, buffer->data, buffer->len);
	if (r < 0)
		unlinkat(dirfd, name, 0);
	return r;
}

void capture_save(struct capture_files *files, int dirfd, struct incident *incident)
{
	for (size_t i = 0; i < files->count; i++) {
		struct incident_capture *record = &files->files[i].record;
		int r = incident && *record->file ? write_text_file(&files->files[i].text, dirfd, record->file) : 0;

		if (r < 0)
			incident_capture_without_file(record, INCIDENT_CAPTURE_FAILED, foreign_error(r));
		if (incident)
			incident_add_capture(incident, record);
		buffer_release(&files->files[i].text);
	}
	*files = (struct capture_files){ 0 };
}

/* ---- a snapshot ---- */

/* Processes that are considered before the busiest are chosen. */
#define PIDS_MAX 4096u

/* A context and what it points to. */
struct snapshot {
	struct capture_context context;
	uint64_t children_cpu_ns;
	struct busy_snapshot busy;
	struct capture_member members[CAPTURE_MEMBERS_MAX];
	struct thread_baseline threads[CAPTURE_MEMBERS_MAX];
	struct maps_snapshot *maps[CAPTURE_MEMBERS_MAX];
};

static void free_snapshot(struct snapshot *snapshot)
{
	for (size_t i = 0; i < CAPTURE_MEMBERS_MAX; i++) {
		thread_baseline_release(&snapshot->threads[i]);
		free(snapshot->maps[i]);
	}
	busy_snapshot_release(&snapshot->busy);
	free(snapshot);
}

/* All watched processes, those in groups included, of the targets that the ring describes. */
static size_t watched_pids(struct session *session, int32_t *pids, size_t cap)
{
	AUTO(ring_cursor_freep) struct ring_cursor *cursor = NULL;
	struct ring_event event;
	size_t count = 0;

	if (ring_cursor_new(session_parts(session).ring, RING_NEWEST, &cursor) < 0)
		return 0;

	/* Present targets are described before the first tick. */
	while (count < cap && ring_cursor_next(cursor, &event) == 0 && event.type != RING_EVENT_TICK) {
		if (event.type == RING_EVENT_TARGET && event.target.kind != TARGET_CGROUP)
			count += discovery_pids(session_parts(session).discovery, event.target.id, pids + count,
						cap - count);
	}
	return count;
}

static size_t choose_members(const struct capture_options *options, const struct capture_context *context,
			     struct capture_member *members)
{
	const struct incident_request *request = options->request;
	const struct target *target = &request->target;
	AUTO_FREE int32_t *pids = NULL;
	size_t count;

	if (!request->everything && target->kind == TARGET_PROCESS) {
		members[0] = (struct capture_member){ .pid = target->pid, .start_ticks = target->start_ticks };
		return 1;
	}
	if (!request->everything && target->kind == TARGET_CGROUP)
		return choose_busiest(context, NULL, 0, members, CAPTURE_MEMBERS_MAX);

	pids = malloc(PIDS_MAX * sizeof(*pids));
	if (!pids)
		return 0;

	count = request->everything
			? watched_pids(options->session, pids, PIDS_MAX)
			: discovery_pids(session_parts(options->session).discovery, target->id, pids, PIDS_MAX);
	return count ? choose_busiest(context, pids, count, members, CAPTURE_MEMBERS_MAX) : 0;
}

/* The first snapshot chooses the members and stores them in *processes. */
static void set_members(const struct capture_options *options, struct snapshot *snapshot,
			struct capture_processes *processes)
{
	struct capture_member *members = snapshot->members;

	if (!options->again) {
		processes->count = choose_members(options, &snapshot->context, members);
		for (size_t i = 0; i < processes->count; i++) {
			processes->process[i].pid = members[i].pid;
			processes->process[i].start_ticks = members[i].start_ticks;
		}
	}
	for (size_t i = 0; i < processes->count; i++) {
		members[i] = (struct capture_member){ .pid = processes->process[i].pid,
						      .start_ticks = processes->process[i].start_ticks,
						      .threads = &snapshot->threads[i] };
		discovery_baselines(session_parts(options->session).discovery, members[i].pid, &snapshot->threads[i],
				    &snapshot->maps[i]);
		members[i].maps = snapshot->maps[i];
	}
	snapshot->context.member_count = processes->count;
}

static void fill_snapshot(const struct capture_options *options, struct snapshot *snapshot)
{
	const struct incident_request *request = options->request;

	*snapshot = (struct snapshot){
		.context = {
			.procfd = session_parts(options->session).procfd,
			.clock = options->clock,
			.mounts = session_parts(options->session).mounts,
			.target = &request->target,
			.limits = &request->info.limits,
			.members = snapshot->members,
			.cpu_end_ns = real_clock_thread_cpu() + CAPTURE_CPU_MS * NS_PER_MS,
			.children_cpu_ns = &snapshot->children_cpu_ns,
			.fired = request->fired,
			.again = options->again,
			.max_bytes = options->max_bytes,
		},
	};
	if (discovery_busy(session_parts(options->session).discovery, &snapshot->busy) == 0)
		snapshot->context.busy = &snapshot->busy;
}

unsigned capture_set(const struct incident_request *request, bool again)
{
	unsigned captures = request->settings.captures & ~(unsigned)CONFIG_CAPTURE_SAMPLES;

	if (request->everything)
		captures &= CONFIG_CAPTURE_THREADS | CONFIG_CAPTURE_STATUS | CONFIG_CAPTURE_SYSTEM;
	return again ? captures & CAPTURE_AGAIN : captures;
}

void capture_take(const struct capture_options *options, struct capture_processes *processes, struct capture_files *ret)
{
	struct snapshot *snapshot = malloc(sizeof(*snapshot));

	if (!snapshot) {
		capture_not_taken(options->request, options->again,
				  options->again ? INCIDENT_CAPTURE_SKIPPED : INCIDENT_CAPTURE_FAILED,
				  options->again ? "no memory" : strerrordesc_np(ENOMEM), ret);
		return;
	}

	fill_snapshot(options, snapshot);
	set_members(options, snapshot, processes);
	capture_save(ret, -1, NULL);
	run_captures(&snapshot->context, capture_set(options->request, options->again), ret);
	free_snapshot(snapshot);
}
