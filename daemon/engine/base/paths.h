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

/*
 * Makes the ring's directory where it is missing, and takes the lock of the ring's writer: flock(2)
 * on a file beside the ring, which the kernel drops however the process ends. 0 and *ret, which the
 * caller closes when it no longer writes; -EALREADY: another daemon holds it; -errno. Errors are
 * logged.
 */
int ring_lock_take(const char *ring, int *ret);

#endif
