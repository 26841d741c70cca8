/*
 * target.h: what is watched: its identity, its names, its container and labels. Values; pure.
 *
 * Identity of a process is (pid, start time), never the pid alone. A cgroup is its path. A group is
 * the sum of the processes of one configuration entry. `key` is that identity as text, stable over
 * a restart of the daemon and over re-discovery: cooldowns are kept under it.
 */
#ifndef SPIKEWATCH_LIB_MODEL_TARGET_H
#define SPIKEWATCH_LIB_MODEL_TARGET_H

#include "lib/base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * The labels of a container, or of its pod, of bounded size; untrusted. Keys are of visible ASCII
 * without spaces; values may hold any byte but control characters, so printing escapes them. A
 * label that does not fit is left out as a whole and counted: a value that is cut would be another
 * value.
 */

/*
 * Of one container. A pod has five to fifteen labels of 20 to 60 bytes; images may bring pages of
 * text.
 */
#define LABELS_MAX 64u
#define LABELS_BYTES_MAX 2048u /* of all keys and values, with a NUL after each */
#define LABELS_KEY_MAX 317u    /* what Kubernetes allows: a prefix of 253, a slash, a name of 63 */

/* {0} has none. Sorted by key. */
struct labels {
	uint16_t count, len;
	uint32_t left_out; /* that did not fit, or whose key is no key */
	char text[LABELS_BYTES_MAX];
};

/*
 * Adds one; a key that is there keeps its value. Control characters in the value become "_". When
 * there is no room, the longest of all is left out. A key that is empty, too long or not visible
 * ASCII, and what holds a NUL, is left out as well.
 */
void labels_add(struct labels *labels, const char *key, size_t key_len, const char *value, size_t value_len);

/*
 * Adds those of other whose keys are not there, and what it had left out. None that is there gives
 * way to one of other's, however short.
 */
void labels_merge(struct labels *labels, const struct labels *other);

/* The first key (key NULL), or the one after key, which is one of these labels'. NULL: no more. */
const char *labels_next(const struct labels *labels, const char *key);

/* The value of a key that labels_next has given. */
static inline const char *labels_value(const char *key)
{
	return key + strlen(key) + 1;
}

/* The value of that key; NULL: there is no such label. */
const char *labels_get(const struct labels *labels, const char *key);

/*
 * The bytes of a struct labels that are in use: it may be kept in so many, and is then only read.
 * Copies those.
 */
static inline size_t labels_size(const struct labels *labels)
{
	return offsetof(struct labels, text) + labels->len;
}

static inline void labels_copy(struct labels *ret, const struct labels *labels)
{
	memcpy(ret, labels, labels_size(labels));
}

/* An object with a member for each. */
void labels_json(struct json_writer *json, const char *key, const struct labels *labels);

/*
 * A container: what its runtime calls it. No pointers inside but one to labels, which are lent.
 * Strings are NUL-terminated, "" if not known, and hold no control characters; printing escapes the
 * rest.
 */

enum container_runtime {
	CONTAINER_UNKNOWN, /* a container, of an unknown runtime */
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
	const struct labels *labels;         /* its own and its pod's; lent. NULL: not known */
};

/*
 * "docker", "containerd", "crio", "podman", "nspawn", "lxc"; "container" for UNKNOWN and what is
 * none.
 */
const char *container_runtime_name(enum container_runtime runtime);

/*
 * Copies len bytes into room of cap > 0 bytes, up to a NUL if there is one, cut at a character;
 * control characters become "_".
 */
void container_text(char *ret, size_t cap, const char *text, size_t len);

/*
 * Its name; if that is not known, what stands for it: the first 12 digits of the id. Always
 * terminated.
 */
void container_short(const struct container *container, char *ret, size_t cap);

/*
 * What people call it: "pod/NAMESPACE/POD/CONTAINER" for Kubernetes, else "docker/web", of
 * container_short. Always terminated.
 */
void container_title(const struct container *container, char *ret, size_t cap);

/* Room for the longest: "pod/" and three names. */
#define CONTAINER_TITLE_MAX 640

/*
 * Whether a pattern of the configuration means it: a glob in which * stands for slashes too, over
 * the title, the title without its first word ("NAMESPACE/POD/CONTAINER", "web"), the name, or the
 * id; "image:GLOB" over the image; or at least 12 digits that the id begins with. A sandbox is
 * never meant.
 */
bool container_matches(const struct container *container, const char *pattern);

/*
 * As one line of text, for a target's description (target.h): runtime, id, name, namespace, pod,
 * image, separated by tabs. Always terminated; what does not fit into cap > 0 bytes is cut.
 * Sandboxes are not told.
 */
void container_pack(const struct container *container, char *ret, size_t cap);

/* Room for the longest. */
#define CONTAINER_PACKED_MAX 1200

/* Reads that, also where its end was cut off. False: it is no container ("", NULL). */
bool container_unpack(const char *text, struct container *ret);

enum target_kind { TARGET_PROCESS = 1, TARGET_CGROUP = 2, TARGET_GROUP = 3 };

/* Longest encoded description: what does not fit is cut, at a character, cmdline first. */
#define TARGET_ENCODED_MAX 1024

/*
 * A value; the strings belong to its maker. Strings but container are never NULL ("" = not
 * known) and may hold any byte.
 */
struct target {
	uint32_t id; /* unique within a ring, never reused; 0 is no target */
	enum target_kind kind;
	int32_t pid;          /* 0 unless TARGET_PROCESS */
	uint64_t start_ticks; /* stat starttime, clock ticks since boot; 0 unless TARGET_PROCESS */
	const char *entry;    /* name of the configuration's target entry that matched */
	const char *name;     /* for people and metrics: "postgres/1234", "postgres", "/system.slice/x.service" */
	const char *key;      /* stable identity: "postgres:1234@567890", "postgres:/system.slice/x", "postgres" */
	const char *comm;
	const char *cmdline; /* arguments separated by spaces */
	const char *cgroup;  /* path below the hierarchy's root */
	const char
		*container; /* the one that it is, or is in: container_pack; NULL or "": none. What is decoded has "" */
};

/* A process that was, or is, part of a target, and when. As in stack files (stack_file.h). */
struct target_member {
	int32_t pid;
	uint32_t reserved;       /* 0 */
	uint64_t from_ns, to_ns; /* CLOCK_MONOTONIC; UINT64_MAX: it still is */
};

/*
 * Packs a target into buf. Returns the length used, a multiple of 8 and at most TARGET_ENCODED_MAX,
 * never fails; cap must be at least TARGET_ENCODED_MAX.
 */
size_t target_encode(const struct target *target, void *buf, size_t cap);

/*
 * Unpacks. The strings of *ret point into buf, which must outlive it. 0; -EBADMSG when the bytes
 * are no encoded target (nothing is read outside of them).
 */
int target_decode(const void *buf, size_t len, struct target *ret);

/* "process", "cgroup", "group"; "?" for anything else. */
const char *target_kind_name(enum target_kind kind);

#endif
