/*
 * file_writer.c: the thread and its owner share one text:
 *
 *     IDLE ── put ──▶ WRITING ── written, or failed ──▶ IDLE ── free ──▶ DONE
 *
 * The text and the names are the thread's while it writes. A thread that is blocked in the kernel
 * can neither be stopped nor joined: after a while file_writer_free leaves the object to it, and
 * the thread frees it when it ends. Rejected: a queue. Each text replaces the one before, so what
 * could be queued is out of date.
 */
#include "daemon/service/health/file_writer.h"

#include "daemon/engine/base/clocks.h"
#include "lib/base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum file_writer_state { IDLE, WRITING, DONE };

struct file_writer {
	struct file_writer_options options;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	char *directory, *name;
	struct buffer text;
	enum file_writer_state state;
	int error; /* of the last text */
	bool started, ending, abandoned;
	bool given_up; /* the text that is being written was waited for in vain: no more */
};

static int open_directory(const struct file_writer *writer)
{
	int fd = open(writer->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT && writer->options.make_directory) {
		int r = directory_tree_make(writer->directory);

		if (r < 0)
			return r;
		fd = open(writer->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	return fd < 0 ? -errno : fd;
}

static int write_text(const struct file_writer *writer)
{
	AUTO_CLOSE int dirfd = writer->options.write ? -1 : open_directory(writer);

	if (writer->options.write)
		return writer->options.write(writer->options.ctx, &writer->text);
	if (dirfd < 0)
		return dirfd;
	return whole_file_replace(dirfd, writer->name, writer->text.data, writer->text.len, writer->options.kind);
}

static void remove_file(const struct file_writer *writer)
{
	AUTO_CLOSE int dirfd = open(writer->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dirfd >= 0)
		unlinkat(dirfd, writer->name, 0);
}

static void release_writer(struct file_writer *writer)
{
	pthread_cond_destroy(&writer->changed);
	pthread_mutex_destroy(&writer->lock);
	buffer_release(&writer->text);
	free(writer->directory);
	free(writer->name);
	if (writer->started && writer->options.release)
		writer->options.release(writer->options.ctx);
	free(writer);
}

static void *write_texts(void *arg)
{
	struct file_writer *writer = arg;
	bool abandoned;

	pthread_mutex_lock(&writer->lock);
	while (!writer->ending || writer->state == WRITING) {
		int r;

		if (writer->state != WRITING) {
			pthread_cond_wait(&writer->changed, &writer->lock);
			continue;
		}
		pthread_mutex_unlock(&writer->lock);
		r = write_text(writer);
		pthread_mutex_lock(&writer->lock);
		writer->error = r;
		writer->state = IDLE;
		writer->given_up = false;
		pthread_cond_signal(&writer->changed);
	}
	pthread_mutex_unlock(&writer->lock);
	if (writer->options.transient)
		remove_file(writer);

	pthread_mutex_lock(&writer->lock);
	writer->state = DONE;
	abandoned = writer->abandoned;
	pthread_cond_signal(&writer->changed);
	pthread_mutex_unlock(&writer->lock);
	if (abandoned)
		release_writer(writer);
	return NULL;
}

static int split_path(struct file_writer *writer, const char *path)
{
	const char *slash = strrchr(path, '/');

	if (*path != '/' || !slash[1] || strcmp(slash, "/.") == 0 || strcmp(slash, "/..") == 0)
		return -EINVAL;

	writer->directory = strndup(path, slash == path ? 1 : (size_t)(slash - path));
	writer->name = strdup(slash + 1);
	return writer->directory && writer->name ? 0 : -ENOMEM;
}

int file_writer_new(const char *path, const struct file_writer_options *options, struct file_writer **ret)
{
	struct file_writer *writer = calloc(1, sizeof(*writer));
	pthread_condattr_t attributes;
	int r;

	if (writer == NULL)
		return -ENOMEM;

	writer->options = *options;
	pthread_mutex_init(&writer->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&writer->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	r = options->write ? 0 : split_path(writer, path);
	if (r == 0)
		r = thread_start(&writer->thread, write_texts, writer);
	if (r < 0) {
		release_writer(writer);
		return r;
	}
	writer->started = true; /* for release_writer alone: the thread does not look at it before it is abandoned */
	*ret = writer;
	return 0;
}

static int result_of(const struct file_writer *writer)
{
	return writer->state == WRITING ? FILE_WRITER_BUSY : writer->error;
}

int file_writer_result(struct file_writer *writer)
{
	int r;

	pthread_mutex_lock(&writer->lock);
	r = result_of(writer);
	pthread_mutex_unlock(&writer->lock);
	return r;
}

int file_writer_put(struct file_writer *writer, struct buffer *text)
{
	struct buffer unused = *text;
	int r;

	*text = (struct buffer){ .max = text->max };
	pthread_mutex_lock(&writer->lock);
	r = result_of(writer);
	if (r <= 0) {
		struct buffer old = writer->text;

		writer->text = unused;
		unused = old;
		writer->error = 0;
		writer->state = WRITING;
		pthread_cond_signal(&writer->changed);
	}
	pthread_mutex_unlock(&writer->lock);
	buffer_release(&unused);
	return r;
}

/* Waits as long as waits() is true, not beyond `until`. Under the lock. */
static void wait_while(struct file_writer *writer, bool (*waits)(const struct file_writer *writer), mono_t until)
{
	const struct timespec end = { (time_t)(until.ns / NS_PER_S), (long)(until.ns % NS_PER_S) };

	while (waits(writer) && !writer->given_up)
		if (pthread_cond_timedwait(&writer->changed, &writer->lock, &end) == ETIMEDOUT)
			writer->given_up = true;
}

static bool is_writing(const struct file_writer *writer)
{
	return writer->state == WRITING;
}

static bool is_alive(const struct file_writer *writer)
{
	return writer->state != DONE;
}

int file_writer_wait(struct file_writer *writer, mono_t until)
{
	int r;

	pthread_mutex_lock(&writer->lock);
	wait_while(writer, is_writing, until);
	r = result_of(writer);
	pthread_mutex_unlock(&writer->lock);
	return r;
}

void file_writer_free(struct file_writer *writer)
{
	struct clock clock = real_clock();
	bool done;

	if (writer == NULL)
		return;

	pthread_mutex_lock(&writer->lock);
	writer->ending = true;
	pthread_cond_signal(&writer->changed);
	wait_while(writer, is_alive, mono_add(clock_mono(&clock), writer->options.patience_ns));
	done = writer->state == DONE;
	writer->abandoned = !done;
	if (!done)
		pthread_detach(writer->thread);
	pthread_mutex_unlock(&writer->lock);
	if (!done)
		return;

	pthread_join(writer->thread, NULL);
	release_writer(writer);
}
