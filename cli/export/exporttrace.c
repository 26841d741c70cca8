/*
 * exporttrace.c: two walks over the samples: the first finds where time begins, because times below zero are not shown, the second writes
 * each row as it comes. Events need no order.
 *
 * A target that is no process has no pid; it gets one that no process can have.
 */
#include "exporttrace.h"

#include "exportrows.h"
#include "json.h"
#include "jsonmember.h"
#include "samplewalk.h"
#include "scope.h"

#include <errno.h>
#include <string.h>

/* Above the kernel's PID_MAX_LIMIT. */
#define PID_INCIDENT 4194305
#define PID_TARGETS 4194306

/* Of a target, between two rows. */
struct last {
	bool has;
	int64_t at_ns;
	uint64_t cpu_ns;
};

struct trace {
	const struct incident *incident;
	struct json_writer *json;
	bool any;
	int64_t from_ns, to_ns; /* of all rows, since the firing */
	struct last *last;      /* of each target */
	size_t last_count;
};

static int measure_row(void *ctx, const struct samplewalk *walk, const struct samplewalk_row *row)
{
	struct trace *trace = ctx;

	(void)walk;
	if (!trace->any || row->at_ns < trace->from_ns)
		trace->from_ns = row->at_ns;
	if (!trace->any || row->at_ns > trace->to_ns)
		trace->to_ns = row->at_ns;
	trace->any = true;
	return 0;
}

/* In microseconds since the first row; what is earlier is there. */
static double when(const struct trace *trace, int64_t at_ns)
{
	int64_t since = at_ns - trace->from_ns;

	return since > 0 ? (double)since / 1e3 : 0;
}

static int64_t pid_of(const struct samplewalk *walk, size_t target)
{
	return walk->targets[target].pid ? walk->targets[target].pid : PID_TARGETS + (int64_t)target;
}

/* The members that all events have; the object stays open. */
static void begin_event(struct json_writer *json, const char *phase, const char *name, int64_t pid, double ts)
{
	json_begin_object(json);
	jsonmember_text(json, "ph", phase);
	jsonmember_text(json, "name", name);
	json_key(json, "pid");
	json_i64(json, pid);
	json_key(json, "tid");
	json_i64(json, pid);
	jsonmember_double(json, "ts", ts);
}

static void put_counter(const struct trace *trace, int64_t pid, int64_t at_ns, const char *name, double value)
{
	begin_event(trace->json, "C", name, pid, when(trace, at_ns));
	json_key(trace->json, "args");
	json_begin_object(trace->json);
	jsonmember_double(trace->json, "value", value);
	json_end_object(trace->json);
	json_end_object(trace->json);
}

/* CPU is drawn from the row before to this one: a counter holds from its event on. */
static void put_cpu(const struct trace *trace, struct last *last, int64_t pid, const struct samplewalk_row *row)
{
	uint64_t cpu_ns = row->sample.value[SAMPLE_CPU];
	int64_t since = row->at_ns - last->at_ns, ran_ns;

	if (last->has && !row->gap && since > 0 && cpu_ns >= last->cpu_ns) {
		if (exportrows_ran_ns(since, cpu_ns - last->cpu_ns, trace->incident->cost.interval_ns, &ran_ns)) {
			put_counter(trace, pid, last->at_ns, "cpu (cores)", 0);
			last->at_ns = row->at_ns - ran_ns;
			since = ran_ns;
		}
		put_counter(trace, pid, last->at_ns, "cpu (cores)", (double)(cpu_ns - last->cpu_ns) / (double)since);
	}
	*last = (struct last){ true, row->at_ns, cpu_ns };
}

static int write_row(void *ctx, const struct samplewalk *walk, const struct samplewalk_row *row)
{
	static const struct {
		enum sample_field field;
		const char *name;
	} gauges[] = {
		{ SAMPLE_MEMORY, "memory (bytes)" },
		{ SAMPLE_WORKING_SET, "working set (bytes)" },
		{ SAMPLE_THREADS, "threads" },
		{ SAMPLE_FDS, "descriptors" },
	};
	struct trace *trace = ctx;
	int64_t pid = pid_of(walk, row->target);

	if (row->target >= trace->last_count)
		return 0;
	if (sample_has(&row->sample, SAMPLE_CPU))
		put_cpu(trace, &trace->last[row->target], pid, row);
	for (size_t i = 0; i < ARRAY_LEN(gauges); i++)
		if (sample_has(&row->sample, gauges[i].field))
			put_counter(trace, pid, row->at_ns, gauges[i].name, (double)row->sample.value[gauges[i].field]);
	return 0;
}

static void put_name(const struct trace *trace, const char *what, int64_t pid, const char *name)
{
	begin_event(trace->json, "M", what, pid, 0);
	json_key(trace->json, "args");
	json_begin_object(trace->json);
	jsonmember_text(trace->json, "name", name[0] ? name : "?");
	json_end_object(trace->json);
	json_end_object(trace->json);
}

static void put_names(const struct trace *trace, const struct samplewalk *walk)
{
	put_name(trace, "process_name", PID_INCIDENT, trace->incident->id);
	put_name(trace, "thread_name", PID_INCIDENT, "phases");
	for (size_t i = 0; i < walk->count; i++)
		put_name(trace, "process_name", pid_of(walk, i), walk->targets[i].name);
}

static void put_slice(const struct trace *trace, const char *name, int64_t from_ns, int64_t to_ns)
{
	double from = when(trace, from_ns), to = when(trace, to_ns);

	if (to <= from)
		return;
	begin_event(trace->json, "X", name, PID_INCIDENT, from);
	jsonmember_text(trace->json, "cat", "phase");
	jsonmember_double(trace->json, "dur", to - from);
	json_end_object(trace->json);
}

static void put_phases(const struct trace *trace)
{
	const struct incident *incident = trace->incident;
	int64_t window_ns = mono_diff(incident->window_from, incident->mono);

	if (window_ns > 0 || window_ns < trace->from_ns)
		window_ns = 0;
	put_slice(trace, "before", trace->from_ns, window_ns);
	put_slice(trace, "window of the rule", window_ns, 0);
	put_slice(trace, "after", 0, trace->to_ns);
	begin_event(trace->json, "i", incident->rule.name[0] ? incident->rule.name : "fired", PID_INCIDENT,
		    when(trace, 0));
	jsonmember_text(trace->json, "cat", "firing");
	jsonmember_text(trace->json, "s", "g");
	json_end_object(trace->json);
}

static int write_events(struct trace *trace, int fd)
{
	AUTO(samplewalk_release) struct samplewalk walk = { 0 };
	const struct samplewalk_visit visit = { .row = write_row, .ctx = trace };
	int rc;

	json_key(trace->json, "traceEvents");
	json_begin_array(trace->json);
	rc = samplewalk_run(fd, trace->incident->wall, &visit, &walk);
	if (rc == 0) {
		put_names(trace, &walk);
		put_phases(trace);
	}
	json_end_array(trace->json);
	return rc;
}

static int write_trace(struct trace *trace, const struct exporting *exporting)
{
	int closed, rc = json_writer_new(exporting->sink, false, &trace->json);

	if (rc < 0)
		return rc;
	json_begin_object(trace->json);
	rc = write_events(trace, exporting->fd);
	jsonmember_text(trace->json, "displayTimeUnit", "ms");
	json_key(trace->json, "otherData");
	json_begin_object(trace->json);
	jsonmember_text(trace->json, "incident", trace->incident->id);
	jsonmember_text(trace->json, "hostname", trace->incident->hostname);
	jsonmember_text(trace->json, "version", trace->incident->version);
	json_end_object(trace->json);
	json_end_object(trace->json);
	closed = json_writer_close(trace->json);
	return rc ? rc : closed;
}

int exporttrace_write(const struct exporting *exporting)
{
	AUTO(samplewalk_release) struct samplewalk walk = { 0 };
	struct trace trace = { .incident = exporting->incident };
	const struct samplewalk_visit visit = { .row = measure_row, .ctx = &trace };
	AUTO_FREE struct last *last = NULL;
	int rc = samplewalk_run(exporting->fd, exporting->incident->wall, &visit, &walk);

	if (rc == -ENOENT || (rc == 0 && !trace.any)) {
		fprintf(stderr, "spikewatch export: the incident has no samples\n");
		return EXPORTING_NOTHING;
	}
	if (rc < 0)
		return rc;
	last = calloc(walk.count, sizeof(*last));
	if (!last)
		return -ENOMEM;
	trace.last = last;
	trace.last_count = walk.count;
	return write_trace(&trace, exporting);
}
