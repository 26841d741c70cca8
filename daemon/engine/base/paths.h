/*
 * paths.h: where the daemon's files are when the configuration does not say: under systemd where it
 * says ($RUNTIME_DIRECTORY, $STATE_DIRECTORY), for root below /run and /var/lib, for anybody else
 * below $XDG_RUNTIME_DIR and $XDG_STATE_HOME.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_BASE_PATHS_H
#define SPIKEWATCH_DAEMON_ENGINE_BASE_PATHS_H

#include "lib/config/config.h"

/*
 * ring_lock.h: who owns a ring. The lock is held by a file beside it and outlives every way to die
 * but the owner's.
 */

/*
 * Makes the ring's directory if need be. 0 and *ret, to be closed by the caller when it no longer
 * writes; -EALREADY: another daemon has it; -errno. Both are logged.
 */
int ring_lock_take(const char *ring, int *ret);

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
