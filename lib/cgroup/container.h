/*
 * container.h: which container a cgroup belongs to, by its path alone, and what runtimes write down
 * about a container, read for its names and labels: documents of JSON, and names of files. Docker,
 * containerd, CRI-O, Podman, systemd-nspawn and LXC put their names into the paths of the cgroups
 * that they make, with the cgroup files driver and with systemd's, on cgroup v1 and v2; Kubernetes
 * adds the pod's (docs/containers.md). Pure; the bytes are untrusted.
 *
 *	Docker                  /var/lib/docker/containers/<id>/config.v2.json
 *	containerd, nerdctl     /run/containerd/io.containerd.runtime.v2.task/<namespace>/<id>/config.json
 *	CRI-O, Podman           /run/containers/storage/overlay-containers/<id>/userdata/config.json
 *	Podman                  /var/lib/containers/storage/overlay-containers/containers.json
 *	Kubernetes              /var/log/containers/<pod>_<namespace>_<container>-<id>.log,
 *	                        /var/log/pods/<namespace>_<pod>_<uid>
 */
#ifndef SPIKEWATCH_LIB_CGROUP_CONTAINER_H
#define SPIKEWATCH_LIB_CGROUP_CONTAINER_H

#include "lib/model/target.h"

#include <stdbool.h>
#include <stddef.h>

#define CONTAINER_PATH_POD_UID 36

struct container_path {
	enum container_runtime runtime;
	char id[CONTAINER_TEXT_MAX + 1];          /* 64 hexadecimal digits; of nspawn and LXC, the machine's name */
	char space[CONTAINER_SPACE_MAX + 1];      /* containerd's namespace, if the path tells it */
	char pod_uid[CONTAINER_PATH_POD_UID + 1]; /* of Kubernetes, as its API writes it; "" */
	size_t len;                               /* of the container's own cgroup: that much of the path */
	/*
	 * made inside of another container, or by a user's own systemd: what is known here of this
	 * id is not of it
	 */
	bool foreign;
	bool unsure; /* other things are called so too: it is a container only if the runtime knows of it */
};

/*
 * The innermost container that path belongs to, be it the container's own cgroup (len is the length
 * of path) or one below. False: to none. A monitor's cgroup (conmon, lxc.monitor) is none, nor is a
 * virtual machine.
 */
bool container_path_parse(const char *path, struct container_path *ret);

/*
 * A document is at most so large. Docker's has some 10 KiB, an OCI one 10 to 100; a list of
 * containers 2 KiB each.
 */
#define CONTAINER_STATE_BYTES_MAX (1024u * 1024)
#define CONTAINER_STATE_LIST_BYTES_MAX (4096u * 1024)

/* What a document says beside names. */
struct container_state_more {
	/* Labels are added, except those that runtimes write for themselves ("io.kubernetes.", "nerdctl/"). */
	struct labels labels;
	bool labelled; /* it is of a kind that has the container's labels in it */
	char pod_id[CONTAINER_TEXT_MAX +
		    1]; /* of the sandbox, whose document has the pod's labels; "": no such container */
};

/*
 * Each fills in what the document says and *ret does not know yet: names, image, whether it is a
 * sandbox; id and runtime stay (an OCI document that names its manager settles a runtime that is
 * UNKNOWN). more may be NULL. 0; 1: the document says nothing of use; -EBADMSG: it is none, or too
 * large; -ENOMEM.
 */
int container_state_docker(const char *text, size_t len, struct container *ret, struct container_state_more *more);
int container_state_oci(const char *text, size_t len, struct container *ret, struct container_state_more *more);

/* Whether a label of that key was given by a user, and not written by a runtime for itself. */
bool container_state_is_label(const char *key, size_t len);

/*
 * The labels in what Podman keeps of a container in its database. 0; 1: there are none; -EBADMSG;
 * -ENOMEM.
 */
int container_state_podman_labels(const char *text, size_t len, struct container_state_more *more);

/*
 * Podman's and CRI-O's list, which is read once for many questions. Containers beyond
 * CONTAINER_STATE_LIST_MAX are left out. 0; -EBADMSG; -ENOMEM.
 */
#define CONTAINER_STATE_LIST_MAX 4096u
struct container_state_list;
int container_state_list_new(const char *text, size_t len, struct container_state_list **ret);

/* NULL is fine. */
void container_state_list_free(struct container_state_list *list);

/* Of the container whose id ret has: as above. 0; 1: it is not in there, or nothing of use is. */
int container_state_list_find(const struct container_state_list *list, struct container *ret);

/*
 * Whether the name of a link is that of the container whose id ret has; what it says is then filled
 * in.
 */
bool container_state_log_link(const char *name, struct container *ret);

/*
 * Whether the name of a directory is that of the logs of that pod; namespace and pod are then
 * filled in.
 */
bool container_state_log_directory(const char *name, const char *pod_uid, struct container *ret);

#endif
