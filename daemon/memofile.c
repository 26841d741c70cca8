/*
 * memofile.c: the directory is opened for each save: it may have been removed, or mounted over, since the last.
 */
#include "memofile.h"

#include "dirtree.h"
#include "log.h"
#include "procread.h"
#include "scope.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct memofile {
	const struct paths *paths;
	struct memo *memo;
	bool failing;
};

static void release(struct memofile **file)
{
	if (!*file)
		return;

	memo_free((*file)->memo);
	free(*file);
}

/* It is made if it is not there. */
static int open_directory(const struct paths *paths)
{
	int fd = open(paths->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT) {
		int r = dirtree_make(paths->state);

		if (r < 0)
			return r;
		fd = open(paths->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}

	return fd < 0 ? -errno : fd;
}

static void read_boot_id(int procfd, char *ret, size_t cap)
{
	ssize_t len = procread_file(procfd, 0, "sys/kernel/random/boot_id", ret, cap);

	ret[len > 0 ? strcspn(ret, "\n") : 0] = '\0';
}

static void set_aside(const struct paths *paths, int dirfd, const char *why)
{
	char aside[300];

	snprintf(aside, sizeof aside, "%s.damaged", paths->state_name);
	renameat(dirfd, paths->state_name, dirfd, aside);
	log_line(LOG_WARNING, "the state file is damaged (%s): it is now %s/%s, and cooldowns begin anew", why,
		 paths->state, aside);
}

static int load(struct memofile *file)
{
	const struct paths *paths = file->paths;
	AUTO_CLOSE int dirfd = open_directory(paths);
	char error[256];
	int r;

	if (dirfd < 0) {
		log_line(LOG_ERR, "cannot open the state directory %s: %s", paths->state, strerror(-dirfd));
		return dirfd;
	}

	r = memo_load(file->memo, dirfd, paths->state_name, error, sizeof error);
	if (r == -EBADMSG)
		set_aside(paths, dirfd, error);
	else if (r < 0)
		log_line(LOG_WARNING, "cannot read the state file %s/%s: %s. Cooldowns begin anew.", paths->state,
			 paths->state_name, strerror(-r));

	return r == -ENOMEM ? r : 0;
}

int memofile_open(const struct paths *paths, int procfd, struct memofile **ret)
{
	AUTO(release) struct memofile *file = calloc(1, sizeof *file);
	char boot_id[64];
	int r;

	if (!file)
		return -ENOMEM;

	file->paths = paths;
	read_boot_id(procfd, boot_id, sizeof boot_id);
	r = memo_new(boot_id, &file->memo);
	if (r == 0)
		r = load(file);
	if (r < 0)
		return r;

	*ret = TAKE(file);

	return 0;
}

struct memo *memofile_memo(const struct memofile *file)
{
	return file->memo;
}

static int save(const struct memofile *file)
{
	AUTO_CLOSE int dirfd = open_directory(file->paths);

	if (dirfd < 0)
		return dirfd;

	return memo_save(file->memo, dirfd, file->paths->state_name);
}

void memofile_save(struct memofile *file)
{
	struct log_about about = { .message = MESSAGE_STATE_NOT_SAVED };
	bool before = file->failing;

	if (!memo_changed(file->memo))
		return;

	about.error = save(file);
	file->failing = about.error < 0;
	if (file->failing && !before) {
		about.state = "begin";
		log_about(LOG_WARNING, &about,
			  "cannot save cooldowns and counts to %s/%s: %s. They will not survive a restart.",
			  file->paths->state, file->paths->state_name, strerror(-about.error));
	} else if (!file->failing && before) {
		about.state = "end";
		log_about(LOG_NOTICE, &about, "cooldowns and counts are saved again");
	}
}

bool memofile_is_failing(const struct memofile *file)
{
	return file->failing;
}

void memofile_close(struct memofile *file)
{
	if (file)
		memofile_save(file);
	release(&file);
}
