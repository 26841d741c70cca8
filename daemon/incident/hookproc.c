/*
 * hookproc.c: what a command writes goes through a pipe, so that it can be cut; when it is, the pipe is closed, and a command that goes on
 * writing is ended by SIGPIPE, as with head(1): throwing away what an endless one writes would cost as much as the command.
 */
#include "hookproc.h"

#include "hookline.h"
#include "hookspawn.h"
#include "scope.h"
#include "sink.h"
#include "units.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#define PATH_VALUE "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static void close_one(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void hookproc_release(struct hookproc *proc)
{
	close_one(&proc->out);
	close_one(&proc->file);
	close_one(&proc->pidfd);
}

/* ---- what it writes ---- */

/* The file is there when there is something in it. */
static int write_piece(struct hookproc *proc, const char *data, size_t len)
{
	struct incident_capture *record = proc->record;
	uint64_t room = proc->command->max_output_bytes - record->bytes;
	size_t fits = len < room ? len : (size_t)room;
	int r;

	if (proc->file < 0) {
		snprintf(record->file, sizeof record->file, "%s.txt", record->name);
		proc->file =
			openat(proc->dirfd, record->file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
		if (proc->file < 0) {
			r = -errno;
			record->file[0] = '\0';
			return r;
		}
	}
	r = sink_write_all(proc->file, data, fits);
	if (r < 0)
		return r;
	record->bytes += fits;
	proc->cut = fits < len;

	return 0;
}

void hookproc_take(struct hookproc *proc, char *piece, bool whole)
{
	do {
		ssize_t len = proc->out < 0 ? 0 : read(proc->out, piece, HOOKPROC_PIECE_BYTES);

		if (len < 0 && errno == EINTR)
			continue;
		if (len < 0 && errno == EAGAIN)
			return;
		if (len > 0)
			proc->write_error = write_piece(proc, piece, (size_t)len);
		if (len <= 0 || proc->cut || proc->write_error < 0)
			close_one(&proc->out);
	} while (whole && proc->out >= 0);
}

/* ---- beginning ---- */

/* Where the draft is; it has no other name for us than its descriptor. */
static int draft_path(int dirfd, char path[PATH_MAX])
{
	char link[40];
	ssize_t len;

	snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
	len = readlink(link, path, PATH_MAX - 1);
	if (len < 0)
		return -errno;
	path[len] = '\0';

	return 0;
}

/* Its end that is written to stays the caller's to close. */
static int make_pipe(int *ret_out, int *ret_write_end)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;

	*ret_out = ends[0];
	*ret_write_end = ends[1];

	return fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int spawn(const struct hookproc_options *options, const char *path, struct hookproc *proc)
{
	const struct hookline_values values = { {
		[HOOKLINE_PID] = options->pid,
		[HOOKLINE_INCIDENT] = path,
		[HOOKLINE_RULE] = options->rule,
		[HOOKLINE_TARGET] = options->target,
	} };
	char texts[4][PATH_MAX + 32], search[] = PATH_VALUE;
	char *environment[] = { search, texts[0], texts[1], texts[2], texts[3], NULL };
	AUTO_FREE char **words = NULL;
	AUTO_CLOSE int write_end = -1;
	int r;

	snprintf(texts[0], sizeof texts[0], "SPIKEWATCH_INCIDENT=%s", path);
	snprintf(texts[1], sizeof texts[1], "SPIKEWATCH_RULE=%s", options->rule);
	snprintf(texts[2], sizeof texts[2], "SPIKEWATCH_TARGET=%s", options->target);
	snprintf(texts[3], sizeof texts[3], "SPIKEWATCH_PID=%s", options->pid);
	r = hookplan_words(options->command, &values, &words);
	if (r == 0)
		r = make_pipe(&proc->out, &write_end);
	if (r < 0)
		return r;

	return hookspawn(&(struct hookspawn_options){ .words = words,
						      .environment = environment,
						      .dirfd = options->dirfd,
						      .out = write_end,
						      .max_file_bytes = options->max_file_bytes },
			 &proc->pid);
}

int hookproc_start(const struct hookproc_options *options, struct incident_capture *record, struct hookproc *ret)
{
	struct hookproc proc = {
		.command = options->command,
		.record = record,
		.dirfd = options->dirfd,
		.pidfd = -1,
		.out = -1,
		.file = -1,
		.began = options->now,
		.deadline = mono_add(options->now, options->command->timeout_ns),
	};
	char path[PATH_MAX];
	int r = draft_path(options->dirfd, path);

	if (r == 0)
		r = spawn(options, path, &proc);
	if (r < 0) {
		hookproc_release(&proc);
		return r;
	}
	proc.pidfd = (int)syscall(SYS_pidfd_open, proc.pid, 0);
	*ret = proc;

	return 0;
}

/* ---- the end ---- */

void hookproc_judge(struct hookproc *proc, const siginfo_t *how)
{
	struct incident_capture *record = proc->record;
	char limit[UNITS_TEXT_MAX] = "";
	bool told = proc->phase != HOOKPROC_RUNNING;

	record->has_exit = how->si_code == CLD_EXITED;
	record->has_signal = !record->has_exit;
	record->exit_status = record->has_exit ? how->si_status : 0;
	record->signal = record->has_signal ? how->si_status : 0;
	record->status = INCIDENT_CAPTURE_FAILED;

	if (told && proc->stopped)
		snprintf(record->why, sizeof record->why, "ended because the daemon was stopped");
	else if (told)
		snprintf(record->why, sizeof record->why, "ended because it took longer than %s",
			 units_format_duration(limit, sizeof limit, proc->command->timeout_ns));
	else if (proc->write_error < 0)
		snprintf(record->why, sizeof record->why, "what it said could not be written: %s",
			 strerrordesc_np(-proc->write_error));
	else if (record->has_signal && how->si_status == SIGXFSZ)
		snprintf(record->why, sizeof record->why, "ended because a file of it grew beyond max_incident_size");
	else if (record->has_signal && !(proc->cut && how->si_status == SIGPIPE))
		snprintf(record->why, sizeof record->why, "ended by signal %d (%s)", how->si_status,
			 sigdescr_np(how->si_status) ? sigdescr_np(how->si_status) : "of the user");
	else if (record->exit_status != 0)
		snprintf(record->why, sizeof record->why, "exit status %d", record->exit_status);
	else
		record->status = INCIDENT_CAPTURE_OK;
	if (proc->cut) {
		size_t len = strlen(record->why);

		units_format_bytes(limit, sizeof limit, proc->command->max_output_bytes);
		snprintf(record->why + len, sizeof record->why - len, "%scut: it said more than %s", len ? "; " : "",
			 limit);
	}
}
