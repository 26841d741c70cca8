/*
 * scene.h: what tests of whole parts of the daemon need: conditions that are waited for,
 * configurations from text, directories that go away, processes that have names and do as they are
 * told, and the log as a text.
 *
 * Nothing here depends on how fast the machine is: what is waited for comes, or the test fails
 * after half a minute and more.
 */
#ifndef SPIKEWATCH_TESTS_SCENE_H
#define SPIKEWATCH_TESTS_SCENE_H

#include "lib/config/config.h"
#include "lib/base/io.h"
#include "daemon/engine/base/log.h"
#include "lib/stream/stream.h"

#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- waiting ---- */

#define SCENE_NAPS 15000

/* Two milliseconds. */
static inline void scene_nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
}

#define scene_wait_for(condition) \
	do { \
		int naps_ = 0; \
		while (!(condition) && naps_++ < SCENE_NAPS) \
			scene_nap(); \
		ck_assert_msg(naps_ <= SCENE_NAPS, "waited in vain for: %s", #condition); \
	} while (0)

/* ---- directories and files ---- */

/* Makes a directory below /tmp; its path in ret. */
static inline void scene_directory(char ret[64])
{
	snprintf(ret, 64, "/tmp/check_scene.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(ret));
}

static inline void scene_remove(const char *path)
{
	ck_assert_int_eq(directory_tree_remove(AT_FDCWD, path), 0);
}

/* Writes a file whole. */
__attribute__((format(printf, 2, 3))) static inline void scene_write(const char *path, const char *format, ...)
{
	FILE *file = fopen(path, "we");
	va_list arguments;

	ck_assert_msg(file != NULL, "%s", path);
	va_start(arguments, format);
	vfprintf(file, format, arguments);
	va_end(arguments);
	ck_assert_int_eq(fclose(file), 0);
}

/* A file as text, for free(3); NULL if there is none. */
static inline char *scene_read(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len = 0, room = 1 << 16;
	char *text = fd < 0 ? NULL : malloc(room);
	ssize_t got;

	while (text && (got = read(fd, text + len, room - len - 1)) > 0) {
		len += (size_t)got;
		if (room - len < 2)
			text = realloc(text, room *= 2);
	}
	if (text)
		text[len] = '\0';
	if (fd >= 0)
		close(fd);

	return text;
}

/* Whether there is such a file, and it says so. */
static inline bool scene_says(const char *path, const char *part)
{
	char *text = scene_read(path);
	bool says = text && strstr(text, part);

	free(text);

	return says;
}

/* ---- names of our own ---- */

/*
 * The text with this test's process id for each @, valid for three more calls. Processes of names that
 * a configuration matches are called so: other runs of the same test have such processes too, at the
 * same time. The kernel cuts names to 15 bytes, of which the number may take seven.
 */
static inline const char *scene_own(const char *text)
{
	static char texts[4][8192];
	static unsigned next;
	static int pid; /* not that of a child, which calls this later */
	char *made = texts[next++ % 4];
	size_t len = 0;

	pid = pid ? pid : getpid();
	*made = '\0';
	for (; *text && len < sizeof(texts[0]); text++)
		len += (size_t)snprintf(made + len, sizeof(texts[0]) - len, *text == '@' ? "%d" : "%c",
					*text == '@' ? pid : *text);

	return made;
}

/* ---- configurations ---- */

/* Must be good; scene_own() makes its names. */
__attribute__((format(printf, 1, 2))) static inline struct config *scene_config(const char *format, ...)
{
	char text[8192], message[1024] = "";
	struct config *config = NULL;
	struct config_error error;
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);

	struct config_source source = { .file = "scene", .text = scene_own(text) };

	source.len = strlen(source.text);

	int r = config_parse(&source, 1, &config, &error);

	if (r < 0)
		config_error_format(&error, message, sizeof(message));
	ck_assert_msg(r == 0, "%s", message);

	return config;
}

/* ---- processes ---- */

/* Sleeps, and does what it is told. Ends with the test. */
struct actor {
	pid_t pid;
	int commands, done;
};

struct actor_command {
	char what;
	char text[31];
};

static inline void *actor_burn(void *name)
{
	volatile unsigned long turns = 0;

	prctl(PR_SET_NAME, name);
	for (;;)
		turns++;

	return NULL;
}

static inline void actor_obey(struct actor_command *command)
{
	pthread_t thread;
	char *memory;

	switch (command->what) {
	case 'n':
		prctl(PR_SET_NAME, command->text);
		break;
	case 'b':
		if (pthread_create(&thread, NULL, actor_burn, strdup(command->text)) != 0)
			_exit(1);
		break;
	case 'm':
		memory = malloc(32u << 20);
		if (memory)
			explicit_bzero(memory, 32u << 20);
		break;
	default:
		_exit(0);
	}
}

/* Called scene_own(name). Before any thread is started: it is forked. */
static inline struct actor actor_start(const char *name)
{
	struct actor_command command;
	const char *own = scene_own(name);
	int commands[2], done[2];

	ck_assert_int_eq(pipe2(commands, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(done, O_CLOEXEC), 0);
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, own);
		close(commands[1]);
		close(done[0]);
		while (write(done[1], "", 1) == 1 && read(commands[0], &command, sizeof(command)) == sizeof(command))
			actor_obey(&command);
		_exit(0);
	}
	close(commands[0]);
	close(done[1]);

	struct actor actor = { .pid = pid, .commands = commands[1], .done = done[0] };
	char ready;

	ck_assert_int_eq(read(actor.done, &ready, 1), 1);

	return actor;
}

/*
 * 'n': takes the name scene_own(text); 'b': starts a thread of the name text that burns CPU from now on; 'm':
 * touches 32 MiB more; 'x': exits. Returns when it is done, but for 'x'.
 */
static inline void actor_do(const struct actor *actor, char what, const char *text)
{
	struct actor_command command = { .what = what };
	char done;

	snprintf(command.text, sizeof(command.text), "%s", scene_own(text));
	ck_assert_int_eq(write(actor->commands, &command, sizeof(command)), (ssize_t)sizeof(command));
	if (what != 'x')
		ck_assert_int_eq(read(actor->done, &done, 1), 1);
}

/* Kills and reaps it. */
static inline void actor_end(const struct actor *actor)
{
	kill(actor->pid, SIGKILL);
	ck_assert_int_eq(waitpid(actor->pid, NULL, 0), actor->pid);
	close(actor->commands);
	close(actor->done);
}

/* Start time of a process, clock ticks since boot. */
static inline uint64_t scene_start_ticks(pid_t pid)
{
	char path[64];
	unsigned long long ticks = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	char *text = scene_read(path);
	ck_assert_ptr_nonnull(text);
	/* Field 22; the name before the last ")" is the second. */
	const char *at = strrchr(text, ')');

	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	ck_assert_ptr_nonnull(at);
	ticks = strtoull(at, NULL, 10);
	free(text);

	return ticks;
}

/* ---- the log ---- */

struct scene_log {
	int before, file;
};

/* From now on what is logged, or printed to standard error, goes into a file. */
static inline struct scene_log scene_log_catch(void)
{
	char path[] = "/tmp/check_log.XXXXXX";
	struct scene_log log = { .before = dup(STDERR_FILENO), .file = mkstemp(path) };

	ck_assert_int_ge(log.file, 0);
	unlink(path);
	fcntl(log.file, F_SETFL, O_APPEND);
	dup2(log.file, STDERR_FILENO);
	unsetenv("JOURNAL_STREAM");
	log_open("scene", NULL);

	return log;
}

/* What was said since it was caught, or since this was last called; for free(3). */
static inline char *scene_log_text(const struct scene_log *log)
{
	char *text = calloc(1, 1 << 16);

	ck_assert_ptr_nonnull(text);
	ck_assert_int_ge(pread(log->file, text, (1 << 16) - 1, 0), 0);
	ck_assert_int_eq(ftruncate(log->file, 0), 0);

	return text;
}

static inline void scene_log_release(const struct scene_log *log)
{
	dup2(log->before, STDERR_FILENO);
	close(log->before);
	close(log->file);
}

/* ---- streams ---- */

/* Feeds a file to stream reader. */
static inline struct stream_reader_report scene_stream_reader(const char *path,
							      const struct stream_reader_events *events)
{
	static const struct stream_reader_events nothing;
	struct stream_reader_report report;
	struct stream_reader *stream_reader;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	ck_assert_msg(fd >= 0, "%s", path);
	ck_assert_int_eq(stream_reader_new(events ? events : &nothing, &stream_reader), 0);
	ck_assert_int_eq(stream_read_fd(stream_reader, fd, UINT64_MAX), 0);
	ck_assert_int_eq(stream_reader_finish(stream_reader, &report), 0);
	stream_reader_free(stream_reader);
	close(fd);

	return report;
}

struct scene_rows {
	uint64_t count, first_ns, last_ns; /* times since START_TIME */
	uint64_t gone;                     /* targets that were said to have ended */
	uint64_t again;                    /* rows that are not later than the one before */
};

static inline int scene_on_row(void *ctx, uint64_t seq, uint64_t time_ns, uint32_t target, const uint64_t *values,
			       uint32_t mask)
{
	struct scene_rows *rows = ctx;

	(void)seq;
	(void)target;
	(void)values;
	(void)mask;
	rows->again += rows->count > 0 && time_ns <= rows->last_ns;
	if (rows->count++ == 0)
		rows->first_ns = time_ns;
	rows->last_ns = time_ns;

	return 0;
}

static inline int scene_on_note(void *ctx, const char *kind, const char *json, size_t len)
{
	struct scene_rows *rows = ctx;

	(void)json;
	(void)len;
	rows->gone += strcmp(kind, "GONE") == 0;

	return 0;
}

/* The stream in a file, which must be whole. */
static inline struct scene_rows scene_rows(const char *directory, const char *name)
{
	struct scene_rows rows = { 0 };
	struct stream_reader_events events = { .row = scene_on_row, .note = scene_on_note, .ctx = &rows };
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	struct stream_reader_report report = scene_stream_reader(path, &events);

	ck_assert_msg(stream_reader_whole(&report), "%s: %ju of %ju lines damaged, %ju rows lost, complete %d", path,
		      (uintmax_t)report.damaged_lines, (uintmax_t)report.lines, (uintmax_t)report.rows_lost,
		      report.complete);

	return rows;
}

#endif
