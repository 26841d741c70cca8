/*
 * stackcapture.c: two looks at the rings, put together; the files they speak of, opened with our rights and handed over; one child.
 *
 * The child gets descriptors by their numbers here: nothing is renumbered but 0, 1 and 2. Between fork and exec only what is safe there is
 * called.
 */
#include "stackcapture.h"

#include "perfmerge.h"
#include "realclock.h"
#include "scope.h"
#include "stackfile.h"
#include "stackparcel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of both looks together. */
#define RECORDS_MAX (64u << 20)

/* What the child says, and complains. */
#define SAID_MAX 4096u

#define OUTPUTS 3

struct stackcapture {
	struct stackcapture_focus focus;
	struct stackcapture_options options;
	struct stackrecorder_snapshot first;
};

static const struct {
	const char *name, *file, *option;
} outputs[OUTPUTS] = {
	{ "stacks", "cpu.pb.gz", "--pprof" },
	{ "stacks-folded", "cpu.folded", "--folded" },
	{ "functions", "functions.tsv", "--functions" },
};

/* ---- looking ---- */

void stackcapture_free(struct stackcapture *capture)
{
	if (!capture)
		return;

	stackrecorder_snapshot_release(&capture->first);
	free(capture);
}

static int add_records(struct perfmerge *merge, const struct perfrecord_format *format, const struct buffer *records)
{
	struct perfrecord record;

	for (size_t at = 0; at < records->len; at += record.size) {
		int r = perfrecord_decode(format, records->data + at, records->len - at, &record);

		if (r == 0)
			r = perfmerge_add(merge, records->data + at, record.size, record.time_ns);
		if (r < 0)
			return r == -EFBIG || r == -EBADMSG ? 0 : r;
	}

	return 0;
}

/* Both looks in the order of time. What the book said in both is said twice, which changes nothing. */
static int merge_looks(const struct stackcapture *capture, const struct stackrecorder_snapshot *second, uint64_t type,
		       struct buffer *ret)
{
	struct perfrecord_format format = { .sample_type = type };
	struct perfmerge merge = { .bytes.max = RECORDS_MAX };
	struct sink sink = sink_buffer(ret);
	int r = add_records(&merge, &format, &capture->first.records);

	if (r == 0)
		r = add_records(&merge, &format, &second->records);
	if (r == 0) {
		perfmerge_sort(&merge);
		r = perfmerge_write(&merge, &sink);
	}
	perfmerge_release(&merge);

	return r;
}

/* ---- the stackfile ---- */

static struct stackfile_head head_of(const struct stackcapture *capture, const struct stackrecorder_snapshot *second)
{
	struct stackrecorder_status status;

	stackrecorder_status(capture->options.recorder, &status);

	return (struct stackfile_head){
		.sample_type = status.sample_type,
		.page_bytes = (uint32_t)sysconf(_SC_PAGESIZE),
		.fired_mono_ns = capture->options.fired.ns,
		.fired_wall_ns = capture->options.wall.ns,
		.from_ns = capture->first.from_ns,
		.to_ns = second->to_ns,
		.covered_ns = capture->first.covered_ns,
		.period_ns = status.period_ns,
		.lost = capture->first.lost + second->lost,
	};
}

static int write_stackfile(const struct stackcapture *capture, const struct stackrecorder_snapshot *second,
			   const struct stackparcel *parcel, int *ret_fd)
{
	AUTO(buffer_release) struct buffer records = { .max = RECORDS_MAX };
	AUTO_CLOSE int fd = memfd_create("stackfile", MFD_CLOEXEC);
	struct stackfile_content content = {
		.head = head_of(capture, second),
		.entries = parcel->entries,
		.entry_count = parcel->count,
	};
	struct sink sink = sink_fd(&fd);
	int r = fd < 0 ? -errno : merge_looks(capture, second, content.head.sample_type, &records);

	if (r < 0)
		return r;

	content.records = records.data;
	content.record_bytes = records.len;
	r = stackfile_write(&content, &sink);
	if (r < 0)
		return r;
	if (lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	*ret_fd = TAKE_FD(fd);

	return 0;
}

/* ---- the child ---- */

struct child {
	int input, said, outputs[OUTPUTS];
	char *words[OUTPUTS + 5];
	char text[OUTPUTS + 2][64], focus[16 + 12 * STACKCAPTURE_FOCUS_MAX];
};

/* "--focus=1,2,3" */
static char *name_focus(const struct stackcapture_focus *focus, char *buf, size_t cap)
{
	size_t len = (size_t)snprintf(buf, cap, "--focus");

	for (size_t i = 0; i < focus->count && len < cap; i++)
		len += (size_t)snprintf(buf + len, cap - len, "%c%d", i ? ',' : '=', focus->pids[i]);

	return buf;
}

static void name_words(struct child *child, const struct stackcapture *capture)
{
	int count = 0;

	child->words[count++] = (char *)(uintptr_t)capture->options.symbolizer;
	for (int i = 0; i < OUTPUTS; i++, count++) {
		snprintf(child->text[i], sizeof child->text[i], "%s=%d", outputs[i].option, child->outputs[i]);
		child->words[count] = child->text[i];
	}
	snprintf(child->text[OUTPUTS], sizeof child->text[0], "--spike-from=%ju",
		 (uintmax_t)capture->options.spike_from_ns);
	child->words[count++] = child->text[OUTPUTS];
	snprintf(child->text[OUTPUTS + 1], sizeof child->text[0], "--wall=%llu", STACKCAPTURE_PATIENCE_NS / NS_PER_S);
	child->words[count++] = child->text[OUTPUTS + 1];
	if (capture->focus.count)
		child->words[count++] = name_focus(&capture->focus, child->focus, sizeof child->focus);
	child->words[count] = NULL;
}

static void keep_open(int fd)
{
	if (fd >= 0)
		fcntl(fd, F_SETFD, 0);
}

/* In the child, where little is allowed. */
_Noreturn static void become(const struct child *child, const struct stackparcel *parcel)
{
	static char path[] = "PATH=/usr/bin:/bin";
	char *const environment[] = { path, NULL };
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/* Else the service's capabilities go along, and it forbids to give them up (capset(2)): the symboliser would refuse to work. */
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	setpgid(0, 0);
	dup2(child->input, STDIN_FILENO);
	dup2(child->said, STDOUT_FILENO);
	dup2(child->said, STDERR_FILENO);
	for (int i = 0; i < OUTPUTS; i++)
		keep_open(child->outputs[i]);
	for (size_t i = 0; i < parcel->count; i++)
		keep_open(parcel->entries[i].binary.fd);
	execve(child->words[0], child->words, environment);
	_exit(127);
}

/* Reads until its end or the deadline. What it says is kept as far as there is room. */
static void listen_to(int fd, mono_t deadline, char *said, size_t cap)
{
	struct clock clock = realclock();
	size_t len = 0;
	char scrap[512];

	for (;;) {
		int64_t left = mono_diff(deadline, clock_mono(&clock));
		struct pollfd wait = { .fd = fd, .events = POLLIN };
		ssize_t got;

		if (left <= 0 || poll(&wait, 1, (int)(left / (int64_t)NS_PER_MS) + 1) == 0)
			break;
		got = len + 1 < cap ? read(fd, said + len, cap - 1 - len) : read(fd, scrap, sizeof scrap);
		if (got == 0 || (got < 0 && errno != EINTR))
			break;
		if (got > 0 && len + 1 < cap)
			len += (size_t)got;
	}
	said[len] = '\0';
}

/* 0; -errno; positive: how it ended, as wait(2) says it. said: what it said. */
static int run_child(struct child *child, const struct stackparcel *parcel, char *said)
{
	struct clock clock = realclock();
	AUTO_CLOSE int listening = -1, speaking = -1;
	int pipe[2], status = 0;
	pid_t pid;

	if (pipe2(pipe, O_CLOEXEC) < 0)
		return -errno;
	listening = pipe[0];
	speaking = pipe[1];
	child->said = speaking;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		become(child, parcel);

	close(speaking);
	speaking = -1;
	listen_to(listening, mono_add(clock_mono(&clock), STACKCAPTURE_PATIENCE_NS + 2 * NS_PER_S), said, SAID_MAX);
	kill(-pid, SIGKILL); /* it has said its last word, or had its time */
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;

	return status;
}

/* ---- the incident ---- */

static void add_record(struct incident *info, int output, enum incident_capture_status status, uint64_t bytes,
		       const char *why)
{
	struct incident_capture record = { .status = status, .bytes = bytes };

	incident_text(record.name, sizeof record.name, outputs[output].name);
	incident_text(record.why, sizeof record.why, why);
	if (status == INCIDENT_CAPTURE_OK)
		incident_text(record.file, sizeof record.file, outputs[output].file);
	incident_add_capture(info, &record);
}

static void give_up(int dirfd, struct incident *info, const char *why)
{
	for (int i = 0; i < OUTPUTS; i++)
		unlinkat(dirfd, outputs[i].file, 0);
	add_record(info, 0, INCIDENT_CAPTURE_FAILED, 0, why);
}

static void say_end(int status, const char *said, char *why, size_t cap)
{
	if (WIFSIGNALED(status))
		snprintf(why, cap, "the symboliser was ended by signal %d (%s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else
		snprintf(why, cap, "the symboliser failed with %d: %.*s", WEXITSTATUS(status), (int)strcspn(said, "\n"),
			 said);
}

static int open_outputs(struct child *child, int dirfd)
{
	for (int i = 0; i < OUTPUTS; i++) {
		child->outputs[i] = openat(dirfd, outputs[i].file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
		if (child->outputs[i] < 0)
			return -errno;
	}

	return 0;
}

static void close_outputs(const struct child *child)
{
	for (int i = 0; i < OUTPUTS; i++)
		if (child->outputs[i] >= 0)
			close(child->outputs[i]);
}

/* What is not as it should be with the profile; "" if nothing. */
static void describe_gaps(const struct stackcapture *capture, const struct stackrecorder_snapshot *second, char *why,
			  size_t cap)
{
	uint64_t late_ns = capture->first.covered_ns - capture->first.from_ns;
	uint64_t lost = capture->first.lost + second->lost;
	size_t len = 0;

	why[0] = '\0';
	if (late_ns > NS_PER_S)
		len = (size_t)snprintf(why, cap, "the first %.1f s had been overwritten", (double)late_ns / 1e9);
	if (lost && len < cap)
		snprintf(why + len, cap - len, "%s%ju samples were lost", len ? "; " : "", (uintmax_t)lost);
}

static void report(const struct stackcapture *capture, const struct stackrecorder_snapshot *second,
		   const struct child *child, struct incident *info)
{
	char why[160];
	struct stat st;

	describe_gaps(capture, second, why, sizeof why);
	for (int i = 0; i < OUTPUTS; i++)
		add_record(info, i, INCIDENT_CAPTURE_OK, fstat(child->outputs[i], &st) == 0 ? (uint64_t)st.st_size : 0,
			   i == 0 ? why : "");
}

/* The child's part. 0; -errno: nothing was written; else why says how the child ended. */
static int symbolize(const struct stackcapture *capture, const struct stackrecorder_snapshot *second, int dirfd,
		     struct child *child, char *why, size_t cap)
{
	AUTO_FREE struct stackparcel *parcel = calloc(1, sizeof *parcel);
	AUTO_CLOSE int stackfile = -1;
	char said[SAID_MAX] = "";
	int r;

	if (!parcel)
		return -ENOMEM;

	stackparcel_open(parcel, capture->options.procfd, &capture->first, second);
	r = write_stackfile(capture, second, parcel, &stackfile);
	if (r == 0)
		r = open_outputs(child, dirfd);
	if (r == 0) {
		child->input = stackfile;
		name_words(child, capture);
		r = run_child(child, parcel, said);
	}
	if (r > 0)
		say_end(r, said, why, cap);
	stackparcel_close(parcel);

	return r;
}

struct stackcapture *stackcapture_secure(const struct stackcapture_options *options, struct incident *info)
{
	struct stackcapture *capture = calloc(1, sizeof *capture);
	mono_t from = mono_sub(options->fired, options->before_ns);
	int r = -ENOMEM;

	if (capture) {
		capture->options = *options;
		r = stackrecorder_snapshot(options->recorder, from.ns, UINT64_MAX, RECORDS_MAX / 2, &capture->first);
	}
	if (r == 0)
		return capture;

	add_record(info, 0, INCIDENT_CAPTURE_FAILED, 0, strerrordesc_np(-r));
	free(capture);

	return NULL;
}

void stackcapture_write(struct stackcapture *capture, const struct stackcapture_focus *focus, int dirfd,
			struct incident *info)
{
	struct child child = { .outputs = { -1, -1, -1 } };
	struct stackrecorder_snapshot second = { 0 };
	char why[160] = "";
	int r = stackrecorder_snapshot(capture->options.recorder, capture->first.to_ns, UINT64_MAX, RECORDS_MAX / 2,
				       &second);

	capture->focus = *focus;
	if (r == 0)
		r = symbolize(capture, &second, dirfd, &child, why, sizeof why);
	if (r < 0)
		snprintf(why, sizeof why, "%s", strerrordesc_np(-r));
	if (r == 0)
		report(capture, &second, &child, info);
	else
		give_up(dirfd, info, why);
	close_outputs(&child);
	stackrecorder_snapshot_release(&second);
	stackcapture_free(capture);
}

/* ---- the program ---- */

#ifndef SPIKEWATCH_LIBEXEC
#define SPIKEWATCH_LIBEXEC "/usr/libexec/spikewatch"
#endif

bool stackcapture_find_symbolizer(char *ret, size_t cap)
{
	char self[1024];
	ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
	char *slash;

	if (len > 0) {
		self[len] = '\0';
		slash = strrchr(self, '/');
		if (slash && (size_t)snprintf(ret, cap, "%.*s/spikewatch-symbolize", (int)(slash - self), self) < cap &&
		    access(ret, X_OK) == 0)
			return true;
	}

	return (size_t)snprintf(ret, cap, "%s/spikewatch-symbolize", SPIKEWATCH_LIBEXEC) < cap &&
	       access(ret, X_OK) == 0;
}
