/*
 * configfile.h: the configuration as the command line names it, to be read at the start and at every reload alike: a bad one is refused
 * with the same words by both, and by --check.
 */
#ifndef SPIKEWATCH_CONFIGFILE_H
#define SPIKEWATCH_CONFIGFILE_H

#include "config.h"

#include <stddef.h>

/* Texts are borrowed, and must outlive every configuration that was loaded. */
struct configfile {
	const char *path;        /* absolute or as the working directory has it */
	const char *dropins;     /* directory of *.json that are read after it, or NULL */
	const char *proc_root;   /* instead of what the file says, or NULL */
	const char *cgroup_root; /* the same */
};

/* "FILE:LINE:COLUMN: KEY: what is wrong", always terminated, fits. */
#define CONFIGFILE_MESSAGE_MAX 1024

/* 0; -ENOMEM; -EINVAL. Unless 0, message (CONFIGFILE_MESSAGE_MAX bytes) says where and why. *ret is the caller's: config_free. */
int configfile_load(const struct configfile *file, struct config **ret, char *message);

#endif
