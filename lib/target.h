/*
 * target.h: what is watched: its identity and its names.
 *
 * Identity of a process is (pid, start time), never the pid alone. A cgroup is its path. A group is the sum of the
 * processes of one configuration entry. `key` is that identity as text, stable over a restart of the daemon and over
 * re-discovery: cooldowns are kept under it.
 */
#ifndef SPIKEWATCH_TARGET_H
#define SPIKEWATCH_TARGET_H

#include <stddef.h>
#include <stdint.h>

enum target_kind { TARGET_PROCESS = 1, TARGET_CGROUP = 2, TARGET_GROUP = 3 };

/* Longest encoded description: what does not fit is cut, at a character, cmdline first. */
#define TARGET_ENCODED_MAX 1024

/* A value; the strings belong to whoever made it. Strings but container are never NULL ("" = not known) and may hold any byte. */
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

/*
 * Packs a target into buf. Returns the length used, a multiple of 8 and at most TARGET_ENCODED_MAX, never fails; cap must be
 * at least TARGET_ENCODED_MAX.
 */
size_t target_encode(const struct target *target, void *buf, size_t cap);

/*
 * Unpacks. The strings of *ret point into buf, which must outlive it. 0; -EBADMSG when the bytes are no encoded
 * target (nothing is read outside of them).
 */
int target_decode(const void *buf, size_t len, struct target *ret);

/* "process", "cgroup", "group"; "?" for anything else. */
const char *target_kind_name(enum target_kind kind);

#endif
