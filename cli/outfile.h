/*
 * outfile.h: the file that a command writes to, "-" for the standard output: whole under its name, or not there at all.
 */
#ifndef SPIKEWATCH_OUTFILE_H
#define SPIKEWATCH_OUTFILE_H

#include <stdbool.h>
#include <stdio.h>

/*
 * Calls write with a stream, whose errors it need not look at, and returns the code that it exits with; EXIT_TROUBLE, explained on stderr for
 * command, if the output could not be written (of "-" that is said when the program ends). A plain file is written beside path and renamed if
 * write returned EXIT_OK or EXIT_TROUBLE with *keep set; anything else at path (a pipe, a terminal) is written to as it is.
 */
struct outfile {
	const char *command, *path;
	int (*write)(void *ctx, FILE *file, bool *keep);
	void *ctx;
	bool kept; /* set by outfile_write: what was written is there, whole */
};
int outfile_write(struct outfile *out);

#endif
