/*
 * textfile.c: one page at a time goes from hand to hand.
 *
 *     IDLE ── put ──▶ WRITING ── written, or not ──▶ IDLE         free: the thread removes the file, then is DONE
 *
 * A thread that hangs in the kernel can neither be stopped nor joined. Whoever has waited long enough leaves the object to it: the last one
 * to leave frees it.
 */
#include "textfile.h"

#include "scope.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum state { IDLE, WRITING, DONE };

struct textfile {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	char *directory, *name, *temporary; /* the latter two within the directory */
	struct buffer page;
	enum state state;
	int error; /* of the last page */
	bool ending, abandoned;
};

/* ---- the file ---- */

static int write_temporary(const struct textfile *textfile, int dirfd)
{
	AUTO_CLOSE int fd = -1;
	int r;

	unlinkat(dirfd, textfile->temporary, 0); /* of a daemon that was killed */
	fd = openat(dirfd, textfile->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0 || fchmod(fd, 0644) < 0)
		return -errno;

	r = sink_write_all(fd, textfile->page.data, textfile->page.len);
	if (r < 0)
		return r;

	return close(TAKE_FD(fd)) < 0 ? -errno : 0;
}

static int write_page(const struct textfile *textfile)
{
	AUTO_CLOSE int dirfd = open(textfile->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (dirfd < 0)
		return -errno;

	r = write_temporary(textfile, dirfd);
	if (r == 0 && renameat(dirfd, textfile->temporary, dirfd, textfile->name) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(dirfd, textfile->temporary, 0);

	return r;
}

static void remove_page(const struct textfile *textfile)
{
	AUTO_CLOSE int dirfd = open(textfile->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dirfd >= 0)
		unlinkat(dirfd, textfile->name, 0);
}

/* ---- the thread ---- */

static void free_all(struct textfile *textfile)
{
	pthread_cond_destroy(&textfile->changed);
	pthread_mutex_destroy(&textfile->lock);
	buffer_release(&textfile->page);
	free(textfile->directory);
	free(textfile->name);
	free(textfile->temporary);
	free(textfile);
}

/* The page and the names are the thread's while it writes. */
static void *work(void *arg)
{
	struct textfile *textfile = arg;
	bool abandoned;

	pthread_mutex_lock(&textfile->lock);
	while (!textfile->ending) {
		if (textfile->state != WRITING) {
			pthread_cond_wait(&textfile->changed, &textfile->lock);
			continue;
		}
		pthread_mutex_unlock(&textfile->lock);
		int r = write_page(textfile);

		pthread_mutex_lock(&textfile->lock);
		textfile->error = r;
		textfile->state = IDLE;
	}
	pthread_mutex_unlock(&textfile->lock);
	remove_page(textfile);

	pthread_mutex_lock(&textfile->lock);
	textfile->state = DONE;
	abandoned = textfile->abandoned;
	pthread_cond_signal(&textfile->changed);
	pthread_mutex_unlock(&textfile->lock);
	if (abandoned)
		free_all(textfile);

	return NULL;
}

/* Signals are for the main thread. */
static int start(struct textfile *textfile)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = -pthread_create(&textfile->thread, NULL, work, textfile);
	pthread_sigmask(SIG_SETMASK, &before, NULL);

	return r;
}

/* ---- the other side ---- */

static int name_files(struct textfile *textfile, const char *path)
{
	const char *slash = strrchr(path, '/');

	if (*path != '/' || !slash[1] || strcmp(slash, "/.") == 0 || strcmp(slash, "/..") == 0)
		return -EINVAL;

	textfile->directory = strndup(path, slash == path ? 1 : (size_t)(slash - path));
	textfile->name = strdup(slash + 1);
	if (asprintf(&textfile->temporary, ".%s.tmp", slash + 1) < 0)
		textfile->temporary = NULL;

	return textfile->directory && textfile->name && textfile->temporary ? 0 : -ENOMEM;
}

int textfile_new(const char *path, struct textfile **ret)
{
	struct textfile *textfile = calloc(1, sizeof(*textfile));
	pthread_condattr_t attributes;
	int r;

	if (textfile == NULL)
		return -ENOMEM;

	pthread_mutex_init(&textfile->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&textfile->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	r = name_files(textfile, path);
	if (r == 0)
		r = start(textfile);
	if (r < 0) {
		free_all(textfile);
		return r;
	}
	*ret = textfile;

	return 0;
}

int textfile_put(struct textfile *textfile, struct buffer *text)
{
	struct buffer page = *text;
	int r = TEXTFILE_BUSY;

	*text = (struct buffer){ .max = text->max };
	pthread_mutex_lock(&textfile->lock);
	if (textfile->state == IDLE) {
		struct buffer old = textfile->page;

		r = textfile->error;
		textfile->page = page;
		page = old;
		textfile->error = 0;
		textfile->state = WRITING;
		pthread_cond_signal(&textfile->changed);
	}
	pthread_mutex_unlock(&textfile->lock);
	buffer_release(&page);

	return r;
}

/* Whether the thread is done, waited for as long as may be. */
static bool wait_until_done(struct textfile *textfile)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)(TEXTFILE_PATIENCE_NS / NS_PER_S);
	while (textfile->state != DONE)
		if (pthread_cond_timedwait(&textfile->changed, &textfile->lock, &until) == ETIMEDOUT)
			break;

	return textfile->state == DONE;
}

void textfile_free(struct textfile *textfile)
{
	bool done;

	if (textfile == NULL)
		return;

	pthread_mutex_lock(&textfile->lock);
	textfile->ending = true;
	pthread_cond_signal(&textfile->changed);
	done = wait_until_done(textfile);
	textfile->abandoned = !done;
	if (!done)
		pthread_detach(textfile->thread);
	pthread_mutex_unlock(&textfile->lock);
	if (!done)
		return;

	pthread_join(textfile->thread, NULL);
	free_all(textfile);
}
