/*
 * restore.h: the files of an incident out of the page that spikewatch report has made of it, bit for bit, as a directory again. Says on stdout
 * what it did, and on stderr what is wrong.
 */
#ifndef SPIKEWATCH_RESTORE_H
#define SPIKEWATCH_RESTORE_H

#include <stdbool.h>

/* A larger page is not read. */
#define RESTORE_PAGE_MAX ((size_t)2 << 30)

/* Is it a plain file: a page then, because incidents are directories. */
bool restore_is_page(const char *path);

/*
 * directory: to be made; NULL: called as the incident was, here. It gets its name when all files are in it. One that is there already is
 * refused. Returns the code to exit with: EXIT_OK; EXIT_TROUBLE: something failed, or is damaged or missing, and everything else was
 * restored; EXIT_USAGE: no report. command: "spikewatch export", for messages.
 */
int restore_page(const char *command, const char *path, const char *directory);

#endif
