/*
 * containerdb.h: labels out of the databases of runtimes that keep them nowhere else (boltfile.h):
 *
 *	containerd, nerdctl, Kubernetes   /var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db, and where k3s, RKE2 and k0s have theirs
 *	Podman until 4                    /var/lib/containers/storage/libpod/bolt_state.db
 *
 * Podman 5 has an SQLite database, which is not read. Files are opened below a root, read in pages, and closed.
 */
#ifndef SPIKEWATCH_CONTAINERDB_H
#define SPIKEWATCH_CONTAINERDB_H

#include "containerstate.h"

/*
 * Adds the labels of a container in a namespace of containerd, and those of its pod (pod_id NULL: it is in none), and says in *more that it
 * is labelled. 0; -ENOENT: there is no such database, or it does not know of them; -errno.
 */
int containerdb_containerd(int rootfd, const char *space, const char *id, const char *pod_id,
			   struct containerstate_more *more);

/* The same of a container of Podman's. */
int containerdb_podman(int rootfd, const char *id, struct containerstate_more *more);

#endif
