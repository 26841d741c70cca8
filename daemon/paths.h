/*
 * paths.h: where the daemon's files are when the configuration does not say: under systemd where it says ($RUNTIME_DIRECTORY,
 * $STATE_DIRECTORY), for root below /run and /var/lib, for anybody else below $XDG_RUNTIME_DIR and $XDG_STATE_HOME.
 */
#ifndef SPIKEWATCH_PATHS_H
#define SPIKEWATCH_PATHS_H

#include "config.h"

#define PATHS_MAX 1024

struct paths {
	char ring[PATHS_MAX];      /* file */
	char control[PATHS_MAX];   /* socket, beside the ring */
	char incidents[PATHS_MAX]; /* directory */
	char state[PATHS_MAX];     /* directory of the state file */
	char state_name[256];      /* its name */
};

/* 0; -ENAMETOOLONG; -ENOENT: neither root nor $HOME. */
int paths_choose(const struct config *config, struct paths *ret);

/* Makes the directory of a file, and those above it that are missing. 0 or -errno. */
int paths_make_parent(const char *file);

#endif
