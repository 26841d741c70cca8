/*
 * container.h: a container as a value: what its runtime calls it. Pure.
 *
 * No pointers inside but one to labels, which are lent. Strings are NUL-terminated, "" if not known, and hold no control characters; whoever prints them
 * escapes the rest.
 */
#ifndef SPIKEWATCH_CONTAINER_H
#define SPIKEWATCH_CONTAINER_H

#include "labels.h"

#include <stdbool.h>
#include <stddef.h>

enum container_runtime {
	CONTAINER_UNKNOWN, /* a container, but nobody says whose */
	CONTAINER_DOCKER,
	CONTAINER_CONTAINERD,
	CONTAINER_CRIO,
	CONTAINER_PODMAN,
	CONTAINER_NSPAWN,
	CONTAINER_LXC, /* LXD and Incus too */
	CONTAINER_RUNTIMES
};

#define CONTAINER_TEXT_MAX 255
#define CONTAINER_SPACE_MAX 76 /* of containerd's namespaces; those of Kubernetes have up to 63 characters */

struct container {
	enum container_runtime runtime;
	char id[CONTAINER_TEXT_MAX + 1];     /* 64 hexadecimal digits; of nspawn and LXC, the name */
	char name[CONTAINER_TEXT_MAX + 1];   /* of Kubernetes, within its pod */
	char space[CONTAINER_SPACE_MAX + 1]; /* Kubernetes: the namespace */
	char pod[CONTAINER_TEXT_MAX + 1];    /* Kubernetes: the name of the pod; "": it is in none */
	char image[CONTAINER_TEXT_MAX + 1];  /* as it was asked for: "nginx:1.27" */
	bool sandbox;                        /* only keeps a pod's namespaces ("pause") */
	const struct labels *labels; /* its own and its pod's; whoever gave this out keeps them. NULL: not known */
};

/* "docker", "containerd", "crio", "podman", "nspawn", "lxc"; "container" for UNKNOWN and what is none. */
const char *container_runtime_name(enum container_runtime runtime);

/* Copies len bytes into room of cap > 0 bytes, up to a NUL if there is one, cut at a character; control characters become "_". */
void container_text(char *ret, size_t cap, const char *text, size_t len);

/* Its name; if that is not known, what stands for it: the first 12 digits of the id. Always terminated. */
void container_short(const struct container *container, char *ret, size_t cap);

/*
 * What people call it: "pod/NAMESPACE/POD/CONTAINER" for Kubernetes, else "docker/web", of container_short. Always terminated.
 */
void container_title(const struct container *container, char *ret, size_t cap);

/* Room for the longest: "pod/" and three names. */
#define CONTAINER_TITLE_MAX 640

/*
 * Whether a pattern of the configuration means it: a glob in which * stands for slashes too, over the title, the title without its first word
 * ("NAMESPACE/POD/CONTAINER", "web"), the name, or the id; "image:GLOB" over the image; or at least 12 digits that the id begins with. A sandbox is
 * never meant.
 */
bool container_matches(const struct container *container, const char *pattern);

/*
 * As one line of text, for a target's description (target.h): runtime, id, name, namespace, pod, image, separated by tabs. Always terminated; what does
 * not fit into cap > 0 bytes is cut. Sandboxes are not told.
 */
void container_pack(const struct container *container, char *ret, size_t cap);

/* Room for the longest. */
#define CONTAINER_PACKED_MAX 1200

/* Reads that, also where its end was cut off. False: it is no container ("", NULL). */
bool container_unpack(const char *text, struct container *ret);

#endif
