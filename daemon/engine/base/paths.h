/*
 * paths.h: where the product's files are: the constants for the system's own installation, and
 * what the daemon takes when its configuration does not say: under systemd what
 * $RUNTIME_DIRECTORY and $STATE_DIRECTORY name, for root the directories below, for another user
 * directories below $XDG_RUNTIME_DIR and $XDG_STATE_HOME, or else below $HOME.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_BASE_PATHS_H
#define SPIKEWATCH_DAEMON_ENGINE_BASE_PATHS_H

#include "lib/config/config.h"

/* The configuration file and the directory of its drop-ins. */
#define PATHS_CONFIG "/etc/spikewatch/spikewatch.json"
#define PATHS_DROPINS "/etc/spikewatch/spikewatch.d"

/* Where the daemon of the system has its files, and their names there. */
#define PATHS_SYSTEM_RUN "/run/spikewatch"
#define PATHS_SYSTEM_STATE "/var/lib/spikewatch"
#define PATHS_SYSTEM_RING PATHS_SYSTEM_RUN "/ring"
#define PATHS_SYSTEM_CONTROL PATHS_SYSTEM_RUN "/control"
#define PATHS_SYSTEM_INCIDENTS PATHS_SYSTEM_STATE "/incidents"

/* Where the installation puts the programs that only other programs start. */
#ifndef PATHS_LIBEXEC
#define PATHS_LIBEXEC "/usr/libexec/spikewatch"
#endif

#define PATHS_MAX 1024

struct paths {
	char ring[PATHS_MAX];      /* file */
	char control[PATHS_MAX];   /* socket, beside the ring */
	char incidents[PATHS_MAX]; /* directory */
	char state[PATHS_MAX];     /* directory of the state file */
	char state_name[256];      /* its name */
	char history[PATHS_MAX];   /* directory */
};

/* 0; -ENAMETOOLONG; -ENOENT: neither root nor $HOME. */
int paths_choose(const struct config *config, struct paths *ret);

/* The lock file of a directory: of the spool, of the history. */
#define PATHS_LOCK ".lock"

/*
 * Takes the lock of a file, which is made if it is missing, and the directories of path too: flock(2),
 * which the kernel drops however the process ends. The file is its user's alone (0600): who may open it
 * could keep the daemon out. Never waits. 0 and *ret, to be closed; -EBUSY: another process holds it;
 * -errno.
 */
int lock_file_take(int dirfd, const char *path, int *ret);

#endif
