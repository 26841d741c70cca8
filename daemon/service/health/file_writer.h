/*
 * file_writer.h: a file that a thread of its own replaces, or appends to, so that its owner, the event
 * loop, never waits for a disk. One text is written at a time.
 */
#ifndef SPIKEWATCH_DAEMON_SERVICE_HEALTH_FILE_WRITER_H
#define SPIKEWATCH_DAEMON_SERVICE_HEALTH_FILE_WRITER_H

#include "lib/base/base.h"
#include "lib/base/io.h"

#include <stdbool.h>
#include <stdint.h>

struct file_writer;

struct file_writer_options {
	enum whole_file_kind kind;
	bool make_directory;  /* if it is missing, and again if it was removed */
	bool transient;       /* the file is removed at the end */
	uint64_t patience_ns; /* how long file_writer_free waits for a disk that blocks, if file_writer_wait has not */
	/*
	 * What the thread does with a text, if not NULL, instead of replacing the file: 0 or -errno. The
	 * path is then not looked at. release is called when the writer is freed, by whichever thread
	 * that is; if file_writer_new fails it is not.
	 */
	int (*write)(void *ctx, const struct buffer *text);
	void (*release)(void *ctx);
	void *ctx;
};

/* Condition (positive return). */
enum { FILE_WRITER_BUSY = 1 };

/*
 * path: absolute; is copied. Starts the thread. 0; -ENOMEM; -EINVAL: no file can have that name;
 * -errno.
 */
int file_writer_new(const char *path, const struct file_writer_options *options, struct file_writer **ret);

/* 0: the last text was written, or there was none; FILE_WRITER_BUSY; -errno: it failed. */
int file_writer_result(struct file_writer *writer);

/*
 * Hands a text over; *text is empty then. 0; FILE_WRITER_BUSY: the one before is still being
 * written, this one is dropped; -errno: the one before could not be written, this one is tried now.
 * Never waits.
 */
int file_writer_put(struct file_writer *writer, struct buffer *text);

/*
 * Waits for the text that is being written, not beyond `until`; once it was waited for in vain, no more. As
 * file_writer_result.
 */
int file_writer_wait(struct file_writer *writer, mono_t until);

/*
 * Ends the thread after the text that it is writing. One that is blocked for longer than
 * patience_ns, or that file_writer_wait has waited for in vain, is left to end when it can. NULL is fine.
 */
void file_writer_free(struct file_writer *writer);
CLEANUP(file_writer, free);

#endif
