/*
 * textfile.h: the metrics as a file, for the textfile collector of node_exporter: written under another name in the same directory and
 * renamed, so that a reader sees the old page or the new one. Mode 0644, not synchronised: after a crash the next page is seconds away.
 *
 * A thread of its own does nothing but write. The page is made by whoever has the figures; but the directory is on a disk as a rule
 * (/var/lib/prometheus/node-exporter), a disk can hang for minutes, and the rules must not wait for it.
 */
#ifndef SPIKEWATCH_TEXTFILE_H
#define SPIKEWATCH_TEXTFILE_H

#include "clock.h"
#include "sink.h"

struct textfile;

/* Condition (positive return). */
enum { TEXTFILE_BUSY = 1 };

/* How long the end waits for a disk that hangs. */
#define TEXTFILE_PATIENCE_NS (2 * NS_PER_S)

/* path: absolute; is copied. Its directory may come later. Starts the thread. 0; -ENOMEM; -EINVAL: no file can be called so; -errno. */
int textfile_new(const char *path, struct textfile **ret);

/*
 * Hands a page over; *text is empty then. 0; TEXTFILE_BUSY: the one before is still being written, this one is thrown away; -errno: the
 * one before could not be written, this one is being tried. Never waits.
 */
int textfile_put(struct textfile *textfile, struct buffer *text);

/*
 * Removes the file, so that nobody collects what is no longer so, and ends the thread. If that takes longer than TEXTFILE_PATIENCE_NS, the
 * thread is left to end when it can. NULL is fine.
 */
void textfile_free(struct textfile *textfile);

#endif
