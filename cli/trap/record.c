/*
 * record.c: spikewatch record: the daemon's sampler and ring in this process, streamed to a file or
 * a pipe.
 *
 * The main thread is the ring's blocking reader: while the sink is slow the sampler backs off,
 * which the STATS line and the report at the end count. The options become the text of a
 * configuration, so that one parser knows the ranges.
 */
#include "cli/base/options.h"
#include "cli/base/output.h"
#include "cli/trap/child.h"
#include "daemon/engine/base/children.h"
#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/log.h"
#include "daemon/engine/base/proc_read.h"
#include "daemon/engine/incident/ring_recorder.h"
#include "daemon/engine/sampling/sampler.h"
#include "daemon/engine/session/session.h"
#include "daemon/engine/targets/discovery.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/config/config.h"
#include "lib/model/sample.h"
#include "lib/ring/ring.h"
#include "lib/source/source.h"
#include "lib/stream/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How often buffered lines are written at least. */
#define FLUSH_INTERVAL_NS (200 * NS_PER_MS)

/* Entries that a configuration may have. */
#define WATCHED_MAX 1000u

/* Four pages of the default size. */
#define RING_BYTES_LEAST (256u << 10)

/* A process to be recorded. */
struct watched {
	int32_t pid;
	bool tree; /* with all processes that it starts */
	char name[TARGET_NAME_MAX];
};

struct record {
	const char *pids, *output, *format_name, *source;
	uint64_t interval_ns, duration_ns, ring_bytes;
	bool spin, idle_backoff, quiet, tree;
	enum stream_format format;
	int fd;                     /* of the sink */
	struct stopped_child child; /* COMMAND, or none */
	struct watched *watched;
	const char **names; /* theirs */
	size_t watched_count, trees;
};

/* ---- what to watch ---- */

static int make_room(struct record *record)
{
	record->watched = calloc(WATCHED_MAX, sizeof(*record->watched));
	record->names = calloc(WATCHED_MAX, sizeof(*record->names));
	if (record->watched && record->names)
		return 0;

	output_no_memory();

	return -ENOMEM;
}

/* program: NULL: the name in /proc. */
static int add_pid(struct record *record, long pid, const char *program, bool tree)
{
	struct watched *watched = &record->watched[record->watched_count];
	char comm[32];

	if (record->watched_count == WATCHED_MAX || (tree && record->trees == CONFIG_TREES_MAX)) {
		fprintf(stderr, "spikewatch record: at most %u processes at a time, %d with --tree\n", WATCHED_MAX,
			CONFIG_TREES_MAX);
		return -E2BIG;
	}

	if (!program) {
		AUTO_CLOSE int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		program = proc_read_line(procfd, (int32_t)pid, "comm", comm, sizeof comm) > 0 ? comm : "pid";
	}
	watched->pid = (int32_t)pid;
	watched->tree = tree;
	target_name_of(program, (int32_t)pid, watched->name);
	record->names[record->watched_count++] = watched->name;
	record->trees += tree;

	return 0;
}

static bool is_watched(const struct record *record, long pid)
{
	for (size_t i = 0; i < record->watched_count; i++)
		if (record->watched[i].pid == pid)
			return true;

	return false;
}

static int parse_pids(struct record *record)
{
	const char *at = record->pids;

	while (at && *at) {
		char *end;

		errno = 0;
		long pid = strtol(at, &end, 10);

		if (errno || end == at || pid <= 0 || pid > INT32_MAX || (*end && *end != ',')) {
			fprintf(stderr,
				"spikewatch record: --pid %s: expected process ids separated by commas, as in "
				"812,813\n",
				record->pids);
			return -EINVAL;
		}
		if (kill((pid_t)pid, 0) < 0 && errno == ESRCH) {
			fprintf(stderr, "spikewatch record: --pid %s: there is no process %ld\n", record->pids, pid);
			return -ESRCH;
		}

		int r = is_watched(record, pid) ? 0 : add_pid(record, pid, NULL, record->tree);

		if (r < 0)
			return r;
		at = *end ? end + 1 : end;
	}

	return 0;
}

/* 0; EXIT_USAGE, printed; -errno. */
static int build_config(const struct record *record, struct config **ret)
{
	/* The columns of gVisor's format are fixed at the start: there a tree is a sum. */
	const char *tree =
		record->format == STREAM_GVISOR ? ", \"per\": \"group\", \"tree\": true" : ", \"tree\": true";
	const char *rescan = record->trees ? "100ms" : "1s";
	AUTO_FREE char *text = NULL;
	size_t len = 0;
	FILE *file = open_memstream(&text, &len);
	struct config_error error;
	char message[1024];

	if (!file)
		return -ENOMEM;
	if (record->source[strspn(record->source, "abcdefghijklmnopqrstuvwxyz")] != '\0') {
		fclose(file);
		return options_wrong("spikewatch record", "--source: expected auto, kernel or files");
	}
	if (record->ring_bytes < RING_BYTES_LEAST) {
		fclose(file);
		return options_wrong("spikewatch record", "--ring-size: expected at least 256 KiB");
	}

	fprintf(file,
		"{\"sampling\": {\"interval\": \"%lluns\", \"rescan_interval\": \"%s\", \"wait\": \"%s\", "
		"\"read_interval\": \"0s\", \"idle_backoff\": \"%s\", \"source\": \"%s\"},\n",
		(unsigned long long)record->interval_ns, rescan, record->spin ? "spin" : "sleep",
		record->idle_backoff ? "always" : "never", record->source);
	fprintf(file, " \"ring\": {\"size\": \"%lluB\"},\n \"targets\": [", (unsigned long long)record->ring_bytes);
	for (size_t i = 0; i < record->watched_count; i++)
		fprintf(file, "%s\n  {\"name\": \"%s\", \"pid\": %d%s}", i ? "," : "", record->watched[i].name,
			record->watched[i].pid, record->watched[i].tree ? tree : "");
	fprintf(file, "]}\n");
	fclose(file);

	struct config_source source = { .file = "command line", .text = text, .len = len };
	int r = config_parse(&source, 1, ret, &error);

	if (r < 0) {
		config_error_format(&error, message, sizeof message);
		fprintf(stderr, "spikewatch record: %s\n", message);
		return EXIT_USAGE; /* an option is out of range */
	}

	(*ret)->sampling.cpu_budget_percent = 0; /* the interval is as requested */

	return 0;
}

/* ---- running ---- */

#define SINK_PATIENCE_MS 1000

/* Blocks while the reader is slow; after a signal only writes what does not block. */
static int write_output(void *ctx, const void *data, size_t len)
{
	const struct record *record = ctx;
	struct pollfd pollfd = { .fd = record->fd, .events = POLLOUT };

	for (const char *at = data; len > 0;) {
		if (interruption_signal() && poll(&pollfd, 1, SINK_PATIENCE_MS) == 0)
			return -ETIMEDOUT;

		ssize_t n = write(record->fd, at, interruption_signal() && len > PIPE_BUF ? PIPE_BUF : len);

		if (n < 0 && errno == EAGAIN)
			poll(&pollfd, 1, -1);
		else if (n < 0 && errno != EINTR)
			return -errno;
		at += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}

	return 0;
}

/* Processes that are watched now; members of the sums in gVisor's format are counted. */
static size_t still_there(const struct record *record, struct session *session)
{
	struct discovery_state found;

	discovery_state(session_parts(session).discovery, &found);

	return found.target_table.members + found.target_table.targets -
	       (record->format == STREAM_GVISOR ? record->trees : 0);
}

static bool is_over(struct record *record, struct session *session, const struct recorder *recorder, mono_t start,
		    mono_t now)
{
	struct recorder_counts counts;

	if (interruption_signal())
		return true;
	if (record->duration_ns && mono_diff(now, start) >= (int64_t)record->duration_ns)
		return true;
	/* It is not reaped yet, so that the last sample has its total usage. */
	if (stopped_child_ended(&record->child))
		return true;

	if (record->child.pid)
		return false;
	if (record->trees)
		return still_there(record, session) == 0;
	recorder_counts(recorder, &counts);

	return counts.targets && counts.gone == counts.targets;
}

static int pump_until_over(struct record *record, struct session *session, struct recorder *recorder, mono_t start)
{
	struct clock clock = real_clock();
	uint64_t nap = record->interval_ns < NS_PER_MS ? NS_PER_MS : record->interval_ns;
	mono_t flushed = start;

	if (nap > 20 * NS_PER_MS)
		nap = 20 * NS_PER_MS;

	for (;;) {
		int r = recorder_pump(recorder);
		mono_t now = clock_mono(&clock);

		if (r == 0 && mono_diff(now, flushed) >= (int64_t)FLUSH_INTERVAL_NS) {
			r = recorder_flush(recorder);
			flushed = now;
		}
		if (r < 0 || is_over(record, session, recorder, start, now))
			return r;
		real_clock_sleep_until(mono_add(now, nap));
	}
}

static void report(const struct record *record, const struct stats *stats, const struct recorder_counts *counts)
{
	static const struct stats nothing;
	struct verdict verdicts[VERDICT_KINDS];

	if (record->quiet)
		return;

	stats_verdicts(stats, &nothing, verdicts);
	fprintf(stderr,
		"spikewatch record: %llu snapshots in %llu slots (capture rate %.2f %%), %llu rows, %llu backoff "
		"sleeps\n",
		(unsigned long long)stats->total_snapshots, (unsigned long long)stats->total_slots,
		100 * verdicts[VERDICT_CAPTURE_RATE].ratio, (unsigned long long)counts->rows,
		(unsigned long long)stats->num_backoff_sleeps);
	if (counts->estimated)
		fprintf(stderr, "spikewatch record: CPU time of the sums is an estimate: what processes that ended had "
				"used is not known exactly\n");
	for (int i = 0; i < VERDICT_KINDS; i++)
		if (verdicts[i].bad)
			fprintf(stderr, "spikewatch record: warning: %s: %.2f %%. %s %s\n", verdicts[i].what,
				100 * verdicts[i].ratio, verdicts[i].cause, verdicts[i].remedy);
}

static int run_session(struct record *record, struct session *session)
{
	struct clock clock = real_clock();
	AUTO(ring_cursor_freep) struct ring_cursor *cursor = NULL;
	struct recorder *recorder;
	struct recorder_counts counts;
	struct stats stats;
	struct recorder_options options = {
		.format = record->format,
		.start = clock_mono(&clock),
		.start_wall = clock_wall(&clock),
		.names = record->names,
		.name_count = record->watched_count,
	};
	int r = ring_cursor_new_blocking(session_parts(session).ring, getpid(), 0, NULL, &cursor);

	if (r == 0)
		r = recorder_new(cursor, (struct sink){ write_output, record }, &options, &recorder);
	if (r < 0)
		return r;

	r = session_start(session);
	if (r == 0)
		r = stopped_child_open(&record->child);
	if (r == 0)
		r = pump_until_over(record, session, recorder, options.start);
	session_stop(session);

	samplers_stats(session_parts(session).samplers, &stats);

	int closed = recorder_close(recorder, &stats, 0, &counts);

	report(record, &stats, &counts);

	return r < 0 ? r : closed;
}

/* COMMAND's, as with time(1): it is waited for also if recording has ended. */
static int exit_code(struct record *record, bool has_command, int result)
{
	int code = has_command ? stopped_child_wait(&record->child) : EXIT_OK;

	if (result > 0)
		return result;
	if (result < 0) {
		fprintf(stderr, "spikewatch record: %s: %s\n", record->output, strerror(-result));
		return EXIT_TROUBLE;
	}

	return code;
}

static bool open_output(struct record *record)
{
	bool to_stdout = strcmp(record->output, "-") == 0;

	record->fd =
		to_stdout ? dup(STDOUT_FILENO) : open(record->output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
	if (record->fd < 0)
		fprintf(stderr, "spikewatch record: %s: %s\n", record->output, strerror(errno));

	return record->fd >= 0;
}

static int check_request(struct record *record, bool has_command)
{
	if (strcmp(record->format_name, "gvisor") == 0)
		record->format = STREAM_GVISOR;
	else if (strcmp(record->format_name, "spikewatch") != 0) {
		fprintf(stderr, "spikewatch record: --format %s: expected spikewatch or gvisor\n", record->format_name);
		return -EINVAL;
	}
	if (!record->pids && !has_command) {
		fprintf(stderr, "spikewatch record: nothing to record: expected --pid PID[,PID...] or -- COMMAND\n");
		return -EINVAL;
	}

	int r = parse_pids(record);

	if (r == 0 && record->format == STREAM_GVISOR &&
	    record->watched_count + has_command > RECORDER_GVISOR_TARGETS) {
		fprintf(stderr, "spikewatch record: --format gvisor has room for %u processes\n",
			RECORDER_GVISOR_TARGETS);
		return -E2BIG;
	}

	return r;
}

/*
 * After the first scan: a process that has ended, or is a thread, would be waited for in vain. 0;
 * EXIT_TROUBLE.
 */
static int check_found(const struct record *record, struct session *session)
{
	struct discovery_state found;
	size_t count = still_there(record, session);

	discovery_state(session_parts(session).discovery, &found);
	if (!count)
		fprintf(stderr, "spikewatch record: nothing to record: %s\n",
			strerror(found.target_table.failed ? -found.target_table.last_error : ESRCH));

	return count ? 0 : EXIT_TROUBLE;
}

static int record_all(struct record *record, char **command)
{
	struct config *config = NULL;
	struct session *session = NULL;
	int r = *command ? stopped_child_fork("spikewatch record", command, &record->child) : 0;

	if (r == 0 && *command)
		r = add_pid(record, record->child.pid, command[0], true);
	if (r == 0)
		r = children_begin();
	if (r == 0)
		(void)sandbox_recorder(record->child.pid); /* without a filter it records, too */
	if (r == 0)
		r = build_config(record, &config);
	if (r == 0)
		r = session_new(config, NULL, &session);
	if (r == 0)
		r = check_found(record, session);
	if (r == 0)
		r = run_session(record, session);
	if (session_free(session))
		config_free(config);

	return r;
}

static void release(struct record *record)
{
	free(record->watched);
	free(record->names);
}

int record_command(int argc, char **argv)
{
	AUTO(release)
	struct record record = {
		.output = "-",
		.format_name = "spikewatch",
		.source = "files",
		.interval_ns = 10 * NS_PER_MS,
		.ring_bytes = 8u << 20,
		.fd = -1,
		.child.gate = -1,
	};
	const struct option_spec options[] = {
		{ 'p', "pid", OPTION_TEXT, "PID[,PID]", "processes to record", &record.pids },
		{ 0, "tree", OPTION_FLAG, NULL, "with all that they start", &record.tree },
		{ 'i', "interval", OPTION_DURATION, "TIME", "between two samples (10ms)", &record.interval_ns },
		{ 'o', "output", OPTION_TEXT, "FILE", "where to write; - is standard output (-)", &record.output },
		{ 'f', "format", OPTION_TEXT, "FORMAT", "spikewatch or gvisor (spikewatch)", &record.format_name },
		{ 'd', "duration", OPTION_DURATION, "TIME", "record for this long (until all have ended)",
		  &record.duration_ns },
		{ 0, "ring-size", OPTION_SIZE, "SIZE", "buffer between sampling and writing (8MiB)",
		  &record.ring_bytes },
		{ 0, "idle-backoff", OPTION_FLAG, NULL,
		  "look at what sleeps 10 times a second: costs less, misses onsets", &record.idle_backoff },
		{ 0, "source", OPTION_TEXT, "SOURCE", "of CPU time: kernel, auto or files (files)", &record.source },
		{ 0, "spin", OPTION_FLAG, NULL, "spin before each sample: exact, costs 10 % of a core", &record.spin },
		{ 'q', "quiet", OPTION_FLAG, NULL, "no report at the end", &record.quiet },
	};
	const struct options_usage usage = {
		.command = "spikewatch record",
		.operands = "[-- COMMAND [ARGUMENT...]]",
		.summary = "Streams samples of processes, without daemon or configuration file.",
		.description =
			"A slow reader slows the sampling down; nothing is lost silently. COMMAND is\n"
			"recorded with all that it starts: each process for itself, in gVisor's format as a sum.",

		.example = "spikewatch record -i 1ms -o job.tsv -- python3 job.py\nspikewatch record -p 812,813 -d 10s "
			   "| gzip "
			   "> postgres.tsv.gz",
		.exits = "that of COMMAND, else 0; 1 writing failed, 2 wrong usage",
		.options = options,
		.option_count = ARRAY_LEN(options),
		.operands_max = -1,
		.stops_at_operand = true,
	};
	int first = 0;
	int code = options_start(&usage, argc, argv, &first);

	if (code >= 0)
		return code;
	if (make_room(&record) < 0)
		return EXIT_TROUBLE;
	if (check_request(&record, first < argc) < 0)
		return EXIT_USAGE;
	if (!open_output(&record))
		return EXIT_TROUBLE;

	log_open("spikewatch record", &(struct log_options){ .may_block = true });
	interruption_catch();
	code = record_all(&record, argv + first);
	code = exit_code(&record, first < argc, code);
	close(record.fd);

	return code;
}
