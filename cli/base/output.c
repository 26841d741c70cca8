/*
 * output.c: stdio keeps that a write failed, but not why: what commands write to goes through a
 * stream that keeps the first errno. A file is written under another name and renamed, so that an
 * existing one is replaced by a whole one or stays.
 */
#include "cli/base/output.h"

#include "cli/base/options.h"
#include "lib/base/base.h"
#include "lib/base/json.h"
#include "lib/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LACKS_SHOWN_MAX 10

/* ---- streams that keep the first error ---- */

struct descriptor_stream {
	int fd;
	int error; /* the errno of the first write that failed, or of close(2); 0: none */
};

static ssize_t descriptor_stream_write(void *ctx, const char *data, size_t len)
{
	struct descriptor_stream *stream = ctx;
	int r = sink_write_all(stream->fd, data, len);

	if (r == 0)
		return (ssize_t)len;
	if (stream->error == 0)
		stream->error = -r;
	errno = -r;
	return 0;
}

static int descriptor_stream_close(void *ctx)
{
	struct descriptor_stream *stream = ctx;

	if (close(stream->fd) == 0)
		return 0;
	if (stream->error == 0)
		stream->error = errno;
	return EOF;
}

/* Writes to stream->fd, and closes it with itself; *stream must outlive it. NULL: no memory. */
static FILE *descriptor_stream_open(struct descriptor_stream *stream)
{
	return fopencookie(
		stream, "w",
		(cookie_io_functions_t){ .write = descriptor_stream_write, .close = descriptor_stream_close });
}

/* ---- the process ---- */

static mode_t umask_before;
static pid_t pager_pid; /* 0: there is none */
static struct descriptor_stream standard_output = { .fd = STDOUT_FILENO };

void process_setup(void)
{
	FILE *file = isatty(STDOUT_FILENO) ? NULL : descriptor_stream_open(&standard_output);

	if (file)
		stdout = file;
	umask_before = umask(077);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
}

int process_finish(int code)
{
	bool failed = ferror(stdout) != 0;
	int error;

	errno = 0;
	failed |= fclose(stdout) != 0;
	error = standard_output.error ? standard_output.error : errno;
	if (pager_pid > 0)
		while (waitpid(pager_pid, NULL, 0) < 0 && errno == EINTR)
			;
	if (!failed)
		return code;
	/* A pager that is left before the end of the text is no error. */
	if (error == EPIPE && pager_pid > 0)
		return code;
	if (error != EPIPE)
		fprintf(stderr, "spikewatch: cannot write the output: %s\n", error ? strerror(error) : "write error");
	return code == EXIT_OK ? EXIT_TROUBLE : code;
}

void process_setup_undo(void)
{
	umask(umask_before);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGXFSZ, SIG_DFL);
}

static unsigned lacks;

int output_incomplete(const char *what, int error)
{
	if (error >= 0 || error == -ENOENT || error == -EBADMSG)
		return error;
	if (lacks++ < LACKS_SHOWN_MAX)
		output_complain("spikewatch: incomplete", what, strerror(-error));
	return error;
}

int output_code(int code)
{
	return lacks > 0 && code == EXIT_OK ? EXIT_TROUBLE : code;
}

/* ---- signals ---- */

static volatile sig_atomic_t interrupted, to_pass_on;

static void on_signal(int number, siginfo_t *info, void *context)
{
	(void)context;
	if (interrupted && number == SIGINT)
		_exit(128 + number);
	interrupted = number;
	if (info->si_code != SI_KERNEL)
		to_pass_on = number;
}

void interruption_catch(void)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO }, before;

	for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
		if (sigaction(numbers[i], NULL, &before) == 0 && (numbers[i] != SIGHUP || before.sa_handler != SIG_IGN))
			sigaction(numbers[i], &action, NULL);
}

int interruption_signal(void)
{
	return interrupted;
}

int interruption_to_pass_on(void)
{
	return to_pass_on;
}

/* ---- files ---- */

static int print_error(const struct output_file *out, const char *path, int error)
{
	output_complain(out->command, path, strerror(error ? error : EIO));
	return EXIT_TROUBLE;
}

/*
 * Anything but a plain file cannot be replaced, only written to. *permissions: of the file that is
 * replaced; 0: there is none.
 */
static bool is_replaceable(const char *path, mode_t *permissions)
{
	struct stat st;

	*permissions = 0;
	if (stat(path, &st) < 0)
		return true;
	*permissions = st.st_mode & 0777;
	return S_ISREG(st.st_mode);
}

/*
 * Sets out->kept if everything was written. flags: of open(2), beside O_WRONLY. permissions: that the
 * file shall have; 0: those that it has.
 */
static int write_open(struct output_file *out, const char *path, int flags, mode_t permissions)
{
	struct descriptor_stream stream = { .fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666) };
	FILE *file = stream.fd >= 0 ? descriptor_stream_open(&stream) : NULL;
	bool keep = false, failed;
	int code;

	if (!file) {
		code = print_error(out, path, errno);
		scope_close(&stream.fd);
		return code;
	}
	code = out->write(out->ctx, file, &keep);
	failed = ferror(file) != 0;
	if (permissions != 0)
		fchmod(stream.fd, permissions);
	errno = 0;
	if (fclose(file) != 0 || failed)
		return print_error(out, path, stream.error ? stream.error : errno);
	out->kept = code == EXIT_OK || keep;
	return code;
}

int output_file_write(struct output_file *out)
{
	char temporary[PATH_MAX];
	mode_t permissions;
	int code, len;

	out->kept = false;
	if (strcmp(out->path, "-") == 0)
		return out->write(out->ctx, stdout, &out->kept);
	if (!is_replaceable(out->path, &permissions))
		return write_open(out, out->path, O_TRUNC, 0);
	len = snprintf(temporary, sizeof(temporary), "%s.tmp-%d", out->path, (int)getpid());
	if (len < 0 || (size_t)len >= sizeof(temporary))
		return print_error(out, out->path, ENAMETOOLONG);
	code = write_open(out, temporary, O_EXCL, permissions);
	if (out->kept && rename(temporary, out->path) == 0)
		return code;
	if (out->kept)
		code = print_error(out, out->path, errno);
	out->kept = false;
	unlink(temporary);
	return code;
}

/* ---- the pager ---- */

static _Noreturn void run_pager(int input)
{
	const char *pager = getenv("PAGER");

	dup2(input, STDIN_FILENO);
	process_setup_undo();
	setenv("LESS", "FRX", 0);
	if (pager)
		execl("/bin/sh", "sh", "-c", pager, (char *)NULL);
	execlp("less", "less", (char *)NULL);
	execlp("more", "more", (char *)NULL);
	execlp("cat", "cat", (char *)NULL);
	_exit(127);
}

void output_page(void)
{
	const char *pager = getenv("PAGER");
	int ends[2];

	if (pager_pid > 0 || !isatty(STDOUT_FILENO) || (pager && !*pager) || pipe2(ends, O_CLOEXEC) < 0)
		return;
	fflush(stdout);
	pager_pid = fork();
	if (pager_pid == 0)
		run_pager(ends[0]);
	if (pager_pid > 0) {
		FILE *file = descriptor_stream_open(&standard_output);

		if (file)
			stdout = file;
		/* The pager handles Ctrl-C. */
		signal(SIGINT, SIG_IGN);
		dup2(ends[1], STDOUT_FILENO);
	}
	close(ends[0]);
	close(ends[1]);
}

/* ---- text ---- */

#define NAME_BYTES "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"

void target_name_of(const char *program, int32_t pid, char ret[static TARGET_NAME_MAX])
{
	const char *slash = strrchr(program, '/');

	program = slash && slash[1] ? slash + 1 : program;
	if (pid)
		snprintf(ret, TARGET_NAME_MAX, "%.20s-%d", program, pid);
	else
		snprintf(ret, TARGET_NAME_MAX, "%.20s", program);
	for (char *at = ret; *at; at++)
		if (!strchr(NAME_BYTES, *at))
			*at = '_';
}

#define PIECE 128

size_t output_escaped_len(FILE *file, const char *text, size_t len)
{
	char piece[4 * PIECE + 1];
	size_t printed = 0;

	while (len > 0) {
		size_t take = len < PIECE ? len : PIECE, back = 0;

		/* Pieces end between characters. */
		while (take < len && back < 3 && ((unsigned char)text[take - back] & 0xC0) == 0x80)
			back++;
		take -= back;
		printed += fwrite(piece, 1, text_escape(piece, sizeof(piece), text, take), file);
		text += take;
		len -= take;
	}
	return printed;
}

static int write_stream(void *ctx, const void *data, size_t len)
{
	FILE *file = ctx;

	errno = 0;
	if (fwrite(data, 1, len, file) == len)
		return 0;
	return errno ? -errno : -EIO;
}

struct sink output_sink(FILE *file)
{
	return (struct sink){ write_stream, file };
}

int output_json_new(struct json_writer **ret)
{
	return json_writer_new(output_sink(stdout), true, ret);
}

void output_complain(const char *command, const char *what, const char *why)
{
	fprintf(stderr, "%s: ", command);
	output_escaped(stderr, what);
	fprintf(stderr, "%s%s\n", why ? ": " : "", why ? why : "");
}

int output_no_memory(void)
{
	fprintf(stderr, "spikewatch: out of memory\n");
	return EXIT_TROUBLE;
}

size_t output_characters(const char *text, size_t len)
{
	size_t count = 0;

	for (size_t i = 0; i < len; i++)
		count += ((unsigned char)text[i] & 0xC0) != 0x80;
	return count;
}

size_t output_prefix(const char *text, size_t count)
{
	size_t len = 0;

	for (; text[len]; len++)
		if (((unsigned char)text[len] & 0xC0) != 0x80 && count-- == 0)
			break;
	return len;
}

/* Of the widest line that is printed, in UTF-8. */
#define CUT_MAX 2048

/* Text in at most width characters. */
static void cut_text(const char *text, size_t width, unsigned how, char ret[static CUT_MAX])
{
	size_t have = output_characters(text, strlen(text)), dots = how & OUTPUT_CUT_DOTS ? 2 : 0;
	size_t tail = (width - dots) * 2 / 5, head = width - dots - tail;

	if (have > width && width > 3 && (how & OUTPUT_CUT_PATHS) && *text == '/')
		snprintf(ret, CUT_MAX, "..%s", text + output_prefix(text, have - width + 2));
	else if (have > width && dots && width > 6)
		snprintf(ret, CUT_MAX, "%.*s..%s", (int)output_prefix(text, head), text,
			 text + output_prefix(text, have - tail));
	else if (have > width)
		snprintf(ret, CUT_MAX, "%.*s%s", (int)output_prefix(text, width - dots), text, dots ? ".." : "");
	else
		snprintf(ret, CUT_MAX, "%s", text);
}

static void print_fit(const char *text, size_t width, unsigned how, FILE *file)
{
	size_t have = output_characters(text, strlen(text));
	int pad = have < width ? (int)(width - have) : 0;

	fprintf(file, "%*s%s%*s", how & OUTPUT_PAD_LEFT ? pad : 0, "", text, how & OUTPUT_PAD_RIGHT ? pad : 0, "");
}

void output_fit(const char *text, size_t width, unsigned how, FILE *file)
{
	char shown[CUT_MAX];

	cut_text(text, width, how, shown);
	print_fit(shown, width, how, file);
}

/* ---- names that differ where they would be cut ---- */

#define APART_WIDTH_MIN 12 /* narrower, there is no room for three parts */
#define APART_CONTEXT 3    /* characters that are equal, before those that differ */

/* The beginning, then what follows the character at which it differs; width >= APART_WIDTH_MIN. */
static void cut_before(const char *text, size_t differs, size_t width, char ret[static CUT_MAX])
{
	size_t have = output_characters(text, strlen(text)), head = (width - 2) / 3, rest = width - 2 - head;
	size_t from = differs > head + APART_CONTEXT ? differs - APART_CONTEXT : head;
	bool to_end = from + rest >= have;
	const char *part;

	from = to_end ? have - rest : from;
	part = text + output_prefix(text, from);
	snprintf(ret, CUT_MAX, "%.*s..%.*s%s", (int)output_prefix(text, head), text,
		 (int)output_prefix(part, to_end ? rest : rest - 2), part, to_end ? "" : "..");
}

/* The first character that differs from one of the names that look the same when cut; SIZE_MAX: none. */
static size_t differs_at(const char *text, const struct output_names *names, size_t width, unsigned how)
{
	char shown[CUT_MAX], other[CUT_MAX];
	size_t first = SIZE_MAX;

	cut_text(text, width, how, shown);
	for (size_t i = 0; i < names->count; i++) {
		const char *name = names->name[i];
		size_t same = 0;

		cut_text(name, width, how, other);
		if (strcmp(name, text) == 0 || strcmp(shown, other) != 0)
			continue;
		while (name[same] == text[same])
			same++;
		while (same > 0 && ((unsigned char)text[same] & 0xC0) == 0x80)
			same--;
		same = output_characters(text, same);
		first = same < first ? same : first;
	}
	return first;
}

static void cut_among(const char *text, const struct output_names *names, size_t width, unsigned how,
		      char ret[static CUT_MAX])
{
	size_t differs =
		width >= APART_WIDTH_MIN && width < CUT_MAX / 4 ? differs_at(text, names, width, how) : SIZE_MAX;

	if (differs == SIZE_MAX)
		cut_text(text, width, how, ret);
	else
		cut_before(text, differs, width, ret);
}

void output_fit_among(const char *text, const struct output_names *names, size_t width, unsigned how, FILE *file)
{
	char shown[CUT_MAX], other[CUT_MAX], number[16];
	unsigned place = 1;

	cut_among(text, names, width, how, shown);
	for (size_t i = 0; i < names->count && strcmp(names->name[i], text) != 0; i++) {
		cut_among(names->name[i], names, width, how, other);
		place += strcmp(shown, other) == 0;
	}
	if (place > 1 && width >= APART_WIDTH_MIN) {
		size_t len = (size_t)snprintf(number, sizeof(number), "~%u", place);
		size_t keep = output_prefix(shown, width - len);

		memcpy(shown + keep, number, len + 1);
	}
	print_fit(shown, width, how, file);
}

void output_wrap(const char *text, size_t width, FILE *file)
{
	size_t used = 0;

	while (*text) {
		size_t len = strcspn(text, " "), wide;

		/* A percent sign stays with its number. */
		if (text[len] == ' ' && text[len + 1] == '%')
			len += 1 + strcspn(text + len + 1, " ");
		wide = output_characters(text, len);

		if (used > 0 && used + 1 + wide > width) {
			fputc('\n', file);
			used = 0;
		} else if (used > 0) {
			fputc(' ', file);
			used++;
		}
		fwrite(text, 1, len, file);
		used += wide;
		text += len + (text[len] == ' ');
	}
	fputc('\n', file);
}
