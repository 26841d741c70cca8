/*
 * replaysource.c: a ring is known by its header, an incident by being a directory; anything else is read as a stream, which says by
 * itself whether it is one.
 */
#include "replaysource.h"

#include "incident_json.h"
#include "incidentload.h"
#include "scope.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define READ_BYTES 262144

__attribute__((format(printf, 3, 4))) static int refuse(char *message, int error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, REPLAYSOURCE_MESSAGE_MAX, format, arguments);
	va_end(arguments);
	return error;
}

/* ---- incidents ---- */

/* What incident.json knows of the clocks and of the machine. Without it the samples are still worth judging. */
static void describe(int dirfd, struct replaysource *source)
{
	AUTO_FREE struct incident *incident = malloc(sizeof(*incident));

	if (!incident || incident_json_read(dirfd, incident) < 0)
		return;
	if (incident->mono.ns > 0 && incident->mono.ns < INT64_MAX && incident->wall.ns < INT64_MAX) {
		source->has_clock = true;
		source->mono_ahead_ns = (int64_t)(incident->mono.ns - incident->wall.ns);
	}
	source->interval_ns = incident->cost.interval_ns;
	source->idle_ns = incident->cost.idle_ns;
	if (incident->limits.cpu_is_machine && incident->limits.cpu != UINT64_MAX)
		source->machine.cores = (double)incident->limits.cpu / (double)NS_PER_S;
	if (incident->limits.memory_is_machine && incident->limits.memory_bytes != UINT64_MAX)
		source->machine.memory_bytes = incident->limits.memory_bytes;
}

static int open_incident(int dirfd, struct replaysource *source, char *message)
{
	struct stat st;

	source->kind = REPLAYSOURCE_INCIDENT;
	source->fd = incidentload_open_file(dirfd, INCIDENT_SAMPLES_FILE);
	if (source->fd == -ENOENT)
		return refuse(message, -EINVAL, "%.300s: there is no " INCIDENT_SAMPLES_FILE " in this directory",
			      source->path);
	if (source->fd < 0)
		return refuse(message, source->fd, "%.300s/" INCIDENT_SAMPLES_FILE ": %s", source->path,
			      source->fd == -EBADMSG ? "is no plain file" : strerror(-source->fd));
	source->rereadable = true;
	if (fstat(source->fd, &st) == 0)
		source->size_bytes = (uint64_t)st.st_size;
	describe(dirfd, source);
	return 0;
}

static int open_named(const char *operand, const char *directory, struct replaysource *source, char *message)
{
	AUTO_CLOSE int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO(incidentload_names_release) struct incidentload_names names = { 0 };
	AUTO_CLOSE int dirfd = -1;
	const char *name;
	int r;

	if (fd < 0 || incidentload_list(fd, &names) < 0)
		return refuse(message, -EINVAL, "%.200s: no such file, and no incidents in %.200s", operand, directory);
	r = incidentload_find(&names, operand, &name);
	if (r == INCIDENTLOAD_NONE)
		return refuse(message, -EINVAL, "%.200s: no such file, and no incident of this name in %.200s", operand,
			      directory);
	if (r == INCIDENTLOAD_MANY)
		return refuse(message, -EINVAL, "%.200s: more than one incident is called so in %.200s", operand,
			      directory);
	snprintf(source->path, sizeof(source->path), "%s/%s", directory, name);
	dirfd = incidentload_open(fd, name);
	if (dirfd < 0)
		return refuse(message, dirfd, "%.300s: %s", source->path, strerror(-dirfd));
	return open_incident(dirfd, source, message);
}

/* ---- files ---- */

static int open_file(struct replaysource *source, const struct stat *st, char *message)
{
	int r = S_ISREG(st->st_mode) ? ring_open(AT_FDCWD, source->path, false, &source->ring) : -EBADMSG;

	if (r == -ENOMEM)
		return refuse(message, r, "out of memory");
	if (r == 0) {
		source->kind = REPLAYSOURCE_RING;
		source->rereadable = true;
		return 0;
	}
	source->fd = open(source->path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (source->fd < 0) {
		int error = errno;

		return refuse(message, -error, "%.300s: %s", source->path, strerror(error));
	}
	source->rereadable = S_ISREG(st->st_mode);
	source->size_bytes = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0;
	return 0;
}

static int open_directory(struct replaysource *source, char *message)
{
	AUTO_CLOSE int dirfd = open(source->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int error = errno;

	if (dirfd < 0)
		return refuse(message, -error, "%.300s: %s", source->path, strerror(error));
	return open_incident(dirfd, source, message);
}

int replaysource_open(const char *operand, const char *directory, struct replaysource *ret, char *message)
{
	struct replaysource source = { .kind = REPLAYSOURCE_STREAM, .fd = -1 };
	struct stat st;
	int r = 0;

	if ((size_t)snprintf(source.path, sizeof(source.path), "%s", operand) >= sizeof(source.path))
		return refuse(message, -EINVAL, "the name of a source is too long");
	if (strcmp(operand, "-") == 0) {
		source.fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
		if (source.fd < 0)
			r = refuse(message, -errno, "the standard input is closed");
	} else if (stat(operand, &st) == 0)
		r = S_ISDIR(st.st_mode) ? open_directory(&source, message) : open_file(&source, &st, message);
	else if (errno == ENOENT && !strchr(operand, '/'))
		r = open_named(operand, directory, &source, message);
	else
		r = refuse(message, -EINVAL, "%.300s: %s", operand, strerror(errno));
	if (r == 0)
		*ret = source;
	return r;
}

void replaysource_close(struct replaysource *source)
{
	if (source->fd >= 0)
		close(source->fd);
	ring_free(source->ring);
	source->fd = -1;
	source->ring = NULL;
}

/* ---- playing ---- */

static void free_tape(struct tape **tape)
{
	tape_free(*tape);
}

static int feed(struct replaysource *source, struct tape *tape, const struct tape_options *options,
		void (*progress)(void *ctx, uint64_t done_bytes, uint64_t size_bytes))
{
	AUTO_FREE char *piece = malloc(READ_BYTES);
	uint64_t done = 0;

	if (!piece)
		return -ENOMEM;
	for (;;) {
		ssize_t len = read(source->fd, piece, READ_BYTES);
		int r;

		if (len < 0 && errno == EINTR)
			continue;
		if (len <= 0)
			return len < 0 ? -errno : 0;
		r = tape_feed(tape, piece, (size_t)len);
		if (r != 0)
			return r;
		done += (uint64_t)len;
		if (progress)
			progress(options->ctx, done, source->size_bytes);
	}
}

int replaysource_play(struct replaysource *source, const struct tape_options *options,
		      void (*progress)(void *ctx, uint64_t done_bytes, uint64_t size_bytes), struct tape_summary *ret)
{
	AUTO(free_tape) struct tape *tape = NULL;
	struct tape_options known = *options;
	int r, finished;

	*ret = (struct tape_summary){ 0 };
	if (source->ring)
		return tape_play_ring(source->ring, options, ret);
	if (source->interval_ns > 0) {
		known.interval_ns = source->interval_ns;
		known.interval_is_known = true;
	}
	known.idle_ns = source->idle_ns;
	if (source->has_clock)
		known.mono_ahead_ns = source->mono_ahead_ns;
	r = tape_new(&known, &tape);
	if (r < 0)
		return r;
	r = feed(source, tape, options, progress);
	finished = tape_finish(tape, ret);
	return r != 0 ? r : finished;
}

const char *replaysource_kind_name(enum replaysource_kind kind)
{
	return kind == REPLAYSOURCE_RING ? "ring" : kind == REPLAYSOURCE_INCIDENT ? "incident" : "recording";
}
