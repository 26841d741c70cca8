/*
 * capture_process.c: threads, status, limits and memory of the processes of a target.
 *
 * Every capture visits all members and goes on when one of them has vanished: the others are evidence all the same.
 * Only when not a single one could be looked at does it report why.
 */
#include "capture_process.h"
#include "piddir.h"
#include "scope.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "The last second": a baseline younger than this says little, one much older dilutes the spike. */
#define THREADS_MIN_AGE_NS (900 * NS_PER_MS)
/* What began since the last scan has no baseline and needs none: all that it used is of its own short life. Scans are ten seconds apart at most. */
#define THREADS_YOUNG_NS (10 * NS_PER_S)
#define FILE_BYTES 65536
#define UPTIME_MAX_S 1e9 /* thirty years */

typedef int member_fn(const struct capture_context *context, const struct capture_member *member,
		      struct capture_text *text);

static size_t members(const struct capture_context *context)
{
	return context->member_count < CAPTURE_MEMBERS_MAX ? context->member_count : CAPTURE_MEMBERS_MAX;
}

static int each_member(const struct capture_context *context, struct capture_text *text, member_fn *visit)
{
	int error = -ESRCH;
	bool any = false;

	for (size_t i = 0; i < members(context); i++) {
		int r = visit(context, &context->members[i], text);

		if (r == -ESRCH)
			capture_text_say(text, "# process %d has exited\n", context->members[i].pid);
		else if (r < 0)
			capture_text_say(text, "# process %d: %s\n", context->members[i].pid, strerrordesc_np(-r));
		if (r < 0 && r != -ESRCH)
			error = r;
		any |= r >= 0;
	}
	return any ? 0 : error;
}

/* ---- raw files ---- */

/* Adds a file of the process, below a heading. */
static int add_file(int piddir, int32_t pid, const char *name, struct capture_text *text)
{
	AUTO_FREE char *data = malloc(FILE_BYTES);
	ssize_t len;

	if (!data)
		return -ENOMEM;
	len = piddir_read(piddir, name, data, FILE_BYTES);
	if (len < 0)
		return (int)len;
	capture_text_say(text, "# /proc/%d/%s\n", pid, name);
	capture_text_lines(text, data, (size_t)len);
	return 0;
}

/* Arguments end with a NUL each; here they are separated by spaces. */
static int add_cmdline(int piddir, int32_t pid, struct capture_text *text)
{
	AUTO_FREE char *data = malloc(FILE_BYTES);
	ssize_t len;

	if (!data)
		return -ENOMEM;
	len = piddir_read(piddir, "cmdline", data, FILE_BYTES);
	if (len < 0)
		return (int)len;
	while (len > 0 && data[len - 1] == '\0')
		len--;
	for (ssize_t i = 0; i < len; i++)
		if (data[i] == '\0')
			data[i] = ' ';
	capture_text_say(text, "# /proc/%d/cmdline\n", pid);
	capture_text_word(text, data, (size_t)len);
	capture_text_say(text, "\n");
	return 0;
}

static int status_of(const struct capture_context *context, const struct capture_member *member,
		     struct capture_text *text)
{
	AUTO_CLOSE int piddir = -1;
	int r;

	r = piddir_open(context->procfd, member->pid, member->start_ticks, &piddir);
	if (r < 0)
		return r;
	r = add_cmdline(piddir, member->pid, text);
	if (r < 0)
		return r;
	return add_file(piddir, member->pid, "status", text);
}

int capture_process_status(const struct capture_context *context, struct capture_text *text)
{
	return each_member(context, text, status_of);
}

static int limits_of(const struct capture_context *context, const struct capture_member *member,
		     struct capture_text *text)
{
	AUTO_CLOSE int piddir = -1;
	int r;

	r = piddir_open(context->procfd, member->pid, member->start_ticks, &piddir);
	return r < 0 ? r : add_file(piddir, member->pid, "limits", text);
}

static void say_from(struct capture_text *text, bool is_machine, const char *cgroup)
{
	if (is_machine) {
		capture_text_say(text, "\tthe machine\n");
		return;
	}
	capture_text_say(text, "\tcgroup ");
	capture_text_word(text, cgroup, strlen(cgroup));
	capture_text_say(text, "\n");
}

int capture_process_limits(const struct capture_context *context, struct capture_text *text)
{
	const struct cglimits *limits = context->limits;
	bool effective = false;

	capture_text_say(text, "# effective limits of the target: limit, value, where it is from\n");
	if (limits && limits->cpu != UINT64_MAX) {
		capture_text_say(text, "cpu\t%.3f cores", (double)limits->cpu / (double)NS_PER_S);
		say_from(text, limits->cpu_is_machine, limits->cpu_from);
		effective = true;
	}
	if (limits && limits->memory_bytes != UINT64_MAX) {
		capture_text_say(text, "memory\t%ju bytes", (uintmax_t)limits->memory_bytes);
		say_from(text, limits->memory_is_machine, limits->memory_from);
		effective = true;
	}
	if (!effective)
		capture_text_say(text, "# not known\n");

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

static uint64_t growth(uint64_t now, uint64_t then)
{
	return now > then ? now - then : 0; /* counters of a process may step back by a little */
}

static void subtract(struct thread_row *row, const struct thread_record *then)
{
	row->record.cpu_ns = growth(row->record.cpu_ns, then->cpu_ns);
	row->record.user_ns = growth(row->record.user_ns, then->user_ns);
	row->record.system_ns = growth(row->record.system_ns, then->system_ns);
}

/*
 * Without a baseline: all times are since its start, and if that was just now, that is how long ago. uptime_ns: 0 if it is not
 * known. Both are in clock ticks; one is added, so that nobody has used more than there was.
 */
static void add_age(struct thread_row *row, uint64_t uptime_ns)
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
		/* A list that was cut at its limit cannot tell a new thread from one that was not listed. */
		row->is_new = before && !then && before->unlisted == 0;
		if (before && !then && before->unlisted > 0)
			row->since_ns = 0;
		if (!before)
			add_age(row, uptime_ns);
	}
	return 0;
}

/* What it used of the time that it is compared over, which is not the same for all. */
static double share(const struct thread_row *row)
{
	return row->since_ns > 0 ? (double)row->record.cpu_ns / (double)row->since_ns : 0;
}

/* Busiest first; what has no interval to be busy in comes last. */
static int compare_rows(const void *a, const void *b)
{
	const struct thread_row *left = a, *right = b;
	double of_left = share(left), of_right = share(right);

	if ((left->since_ns == 0) != (right->since_ns == 0))
		return left->since_ns == 0 ? 1 : -1;
	if (of_left < of_right || of_left > of_right)
		return of_left > of_right ? -1 : 1;
	if (left->record.cpu_ns != right->record.cpu_ns)
		return left->record.cpu_ns > right->record.cpu_ns ? -1 : 1;
	return (left->record.tid > right->record.tid) - (left->record.tid < right->record.tid);
}

static double ms(uint64_t ns)
{
	return (double)ns / (double)NS_PER_MS;
}

static void say_row(struct capture_text *text, const struct thread_row *row)
{
	const struct thread_record *record = &row->record;

	capture_text_say(text, "%d\t%d\t", row->pid, record->tid);
	capture_text_word(text, record->name, strnlen(record->name, sizeof(record->name)));
	capture_text_say(text, "\t");
	capture_text_word(text, &record->state, 1);
	capture_text_say(text, "\t%.3f\t", ms(record->cpu_ns));
	if (row->since_ns > 0)
		capture_text_say(text, "%.1f", 100 * share(row));
	capture_text_say(text, "\t%.0f\t%.0f\t", ms(record->user_ns), ms(record->system_ns));
	if (row->since_ns > 0)
		capture_text_say(text, "%.0f\t%s\n", ms(row->since_ns), row->is_new ? "new" : "");
	else
		capture_text_say(text, "\tsince its start: no baseline\n");
}

/* "4961.28 9011.02\n" (proc(5)): seconds since boot, as start times are; 0: not known. */
static uint64_t read_uptime(int procfd)
{
	char text[64], *end;
	double seconds;

	if (piddir_read(procfd, "uptime", text, sizeof(text)) <= 0)
		return 0;
	seconds = strtod(text, &end);
	return end != text && seconds > 0 && seconds < UPTIME_MAX_S ? (uint64_t)(seconds * (double)NS_PER_S) : 0;
}

static int collect_threads(const struct capture_context *context, struct capture_text *text, struct thread_table *table)
{
	int error = -ESRCH;

	for (size_t i = 0; i < members(context); i++) {
		const struct capture_member *member = &context->members[i];
		AUTO_FREE struct thread_snapshot *snapshot = NULL;
		int r;

		r = thread_snapshot_take(context->procfd, member->pid, member->start_ticks, clock_mono(context->clock),
					 &snapshot);
		/* Asked behind that: no thread is younger. */
		if (r == 0)
			r = add_threads(table, member, snapshot, read_uptime(context->procfd));
		if (r == 0 && snapshot->unlisted > 0)
			capture_text_say(text, "# process %d has %zu more threads\n", member->pid, snapshot->unlisted);
		else if (r == -ESRCH)
			capture_text_say(text, "# process %d has exited\n", member->pid);
		if (r < 0)
			error = r;
	}
	return table->count > 0 ? 0 : error;
}

int capture_process_threads(const struct capture_context *context, struct capture_text *text)
{
	struct thread_table table = { 0 };
	int r;

	capture_text_say(text,
			 "# CPU time of each thread within the last since_ms milliseconds; 100 percent is one core\n");
	r = collect_threads(context, text, &table);
	if (r == 0) {
		qsort(table.rows, table.count, sizeof(table.rows[0]), compare_rows);
		capture_text_say(text,
				 "pid\ttid\tname\tstate\tcpu_ms\tcpu_percent\tuser_ms\tsystem_ms\tsince_ms\tremark\n");
		for (size_t i = 0; i < table.count; i++)
			say_row(text, &table.rows[i]);
	}
	free(table.rows);
	return r;
}

/* ---- memory ---- */

/* What a mapping is sorted by: what it grew by, what it has where there is nothing to compare with. */
struct maps_row {
	const struct maps_record *record;
	const struct maps_record *before; /* NULL: was not there, or no baseline */
	double weight;
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

static int64_t grown(uint64_t now, uint64_t then)
{
	return (int64_t)(now - then);
}

static void say_mapping(struct capture_text *text, int32_t pid, const struct maps_row *row, bool compared)
{
	const struct maps_record *record = row->record, *before = row->before;

	capture_text_say(text, "%d\t", pid);
	capture_text_word(text, record->name, strlen(record->name));
	capture_text_say(text, "\t");
	capture_text_word(text, record->permissions, strlen(record->permissions));
	capture_text_say(text, "\t%u\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64, record->mappings,
			 record->rss_bytes, record->pss_bytes, record->private_dirty_bytes, record->swap_bytes);
	if (compared)
		capture_text_say(text, "\t%+" PRId64 "\t%+" PRId64 "\t%+" PRId64 "\t%+" PRId64,
				 grown(record->rss_bytes, before ? before->rss_bytes : 0),
				 grown(record->pss_bytes, before ? before->pss_bytes : 0),
				 grown(record->private_dirty_bytes, before ? before->private_dirty_bytes : 0),
				 grown(record->swap_bytes, before ? before->swap_bytes : 0));
	else
		capture_text_say(text, "\t\t\t\t");
	capture_text_say(text, "\n");
}

static int maps_of(const struct capture_context *context, const struct capture_member *member,
		   struct capture_text *text)
{
	AUTO_FREE struct maps_snapshot *now = NULL;
	AUTO_FREE struct maps_row *rows = NULL;
	int r;

	r = maps_snapshot_take(context->procfd, member->pid, member->start_ticks, clock_mono(context->clock), &now);
	if (r < 0)
		return r;
	rows = calloc(now->count + 1, sizeof(*rows));
	if (!rows)
		return -ENOMEM;

	for (size_t i = 0; i < now->count; i++) {
		const struct maps_record *record = &now->records[i];
		const struct maps_record *before = member->maps ? maps_snapshot_find(member->maps, record) : NULL;

		rows[i] = (struct maps_row){ record, before, footprint(record) - footprint(before) };
	}
	qsort(rows, now->count, sizeof(rows[0]), compare_weight);

	if (member->maps)
		capture_text_say(text, "# process %d: growth within the last %.1f s\n", member->pid,
				 ms(growth(now->taken.ns, member->maps->taken.ns)) / 1000);
	else
		capture_text_say(text, "# process %d: no baseline: growth is not known, largest first\n", member->pid);
	for (size_t i = 0; i < now->count; i++)
		say_mapping(text, member->pid, &rows[i], member->maps != NULL);
	return 0;
}

int capture_process_smaps(const struct capture_context *context, struct capture_text *text)
{
	capture_text_say(text,
			 "# memory by what is mapped; what grew most first\n"
			 "pid\tmapping\tpermissions\tmappings\trss_bytes\tpss_bytes\tprivate_dirty_bytes\tswap_bytes"
			 "\trss_growth_bytes\tpss_growth_bytes\tprivate_dirty_growth_bytes\tswap_growth_bytes\n");
	return each_member(context, text, maps_of);
}
