/*
 * containerpath.h: is a cgroup a container's, or inside of one, by its path alone? Docker, containerd, CRI-O, Podman, systemd-nspawn and LXC put
 * their names into the paths of the cgroups that they make, with the cgroupfs driver and with systemd's, on cgroup v1 and v2; Kubernetes adds the
 * pod's. Pure. docs/containers.md has the forms.
 */
#ifndef SPIKEWATCH_CONTAINERPATH_H
#define SPIKEWATCH_CONTAINERPATH_H

#include "container.h"

#include <stdbool.h>
#include <stddef.h>

#define CONTAINERPATH_POD_UID 36

struct containerpath {
	enum container_runtime runtime;
	char id[CONTAINER_TEXT_MAX + 1];         /* 64 hexadecimal digits; of nspawn and LXC, the machine's name */
	char space[CONTAINER_SPACE_MAX + 1];     /* containerd's namespace, if the path tells it */
	char pod_uid[CONTAINERPATH_POD_UID + 1]; /* of Kubernetes, as its API writes it; "" */
	size_t len;                              /* of the container's own cgroup: that much of the path */
	bool foreign; /* made inside of another container, or by a user's own systemd: what is known here of this id is not of it */
	bool unsure; /* other things are called so too: it is a container only if the runtime knows of it */
};

/*
 * The innermost container that path belongs to, be it the container's own cgroup (len is the length of path) or one below. False: to none.
 * A monitor's cgroup (conmon, lxc.monitor) is none, nor is a virtual machine.
 */
bool containerpath_parse(const char *path, struct containerpath *ret);

#endif
