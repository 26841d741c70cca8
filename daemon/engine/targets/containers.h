/*
 * containers.h: which container a cgroup is, or is in, its name and its labels. They are read from
 * what the runtime has on disk when a container is met, and remembered while it is asked for.
 *
 * A runtime may write a name a moment after it has made the cgroup. Until then, and at most for
 * CONTAINERS_WAIT_NS, a container is pending; after that its id stands for its name.
 *
 * A container may be renamed, and its labels may become readable: every 30 s the file is checked,
 * and read if it is another one.
 *
 * For one thread at a time (discovery's lock), except label_cache_get. The files are read in an
 * unlocked section (containers_set_section): other threads may then ask for containers_unlabelled.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_TARGETS_CONTAINERS_H
#define SPIKEWATCH_DAEMON_ENGINE_TARGETS_CONTAINERS_H

#include "daemon/engine/targets/fair_mutex.h"
#include "lib/base/base.h"
#include "lib/model/target.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * The labels of containers, one copy of each, by the path of the container's own cgroup. One thread
 * at a time writes (discovery's lock); any thread may read.
 */

struct label_cache;

/*
 * The labels of the container that the cgroup is, or is in. False: there are none, or they are not
 * known. Any thread.
 */
bool label_cache_get(struct label_cache *cache, const char *cgroup, struct labels *ret);

#define CONTAINERS_WAIT_NS (500 * NS_PER_MS)

/* Remembered at a time, 1.5 KiB each and the labels; the one asked for longest ago makes room. */
#define CONTAINERS_MAX 2048u

struct containers;

/*
 * runtime_root: "/", or where the host's root is mounted. 0; a positive errno: it could not be
 * opened, and containers are without names; -ENOMEM.
 */
int containers_new(const char *runtime_root, struct containers **ret);

/*
 * In which files are read: by containers_find and containers_update, within which the lock is
 * released then, for two seconds at most. It must not cancel. containers NULL is fine.
 */
void containers_set_section(struct containers *containers, const struct unlocked_section *section);

/* NULL is fine. */
void containers_free(struct containers *containers);

enum containers_answer { CONTAINERS_NONE, CONTAINERS_KNOWN, CONTAINERS_PENDING };

/*
 * The innermost container that the cgroup is, or is inside of. *ret is valid until the next call,
 * its labels until containers_update or containers_forget, and set unless NONE; *ret_own: whether
 * the cgroup is the container's own and not one below. containers NULL: NONE.
 */
enum containers_answer containers_find(struct containers *containers, const char *cgroup, mono_t now,
				       const struct container **ret, bool *ret_own);

/* When pending ones are looked up again. False: there are none. */
bool containers_next(const struct containers *containers, mono_t *ret);

/*
 * Looks up some of the pending ones again and hands those that are no longer pending to `named`; if
 * a review is due or running, checks a few of those that are known and hands those whose names or
 * labels have changed to `changed`. Both get the path of the cgroup and may call containers_find.
 * To be called often: there is no timeout of reviews to wait for.
 */
void containers_update(struct containers *containers, mono_t now, void (*named)(void *ctx, const char *cgroup),
		       void (*changed)(void *ctx, const char *cgroup), void *ctx);

/*
 * Forgets those that were not asked for during the last minute, or during three pauses between
 * scans if these are longer.
 */
void containers_forget(struct containers *containers, mono_t now, uint64_t rescan_interval_ns);

/*
 * Those whose labels cannot be read; *ret_error: why, of one of them, -errno; 0: no file has them.
 * Not counted: containers within others.
 */
size_t containers_unlabelled(const struct containers *containers, int *ret_error);

/* The labels of all of them; owned by containers. */
struct label_cache *containers_labels(struct containers *containers);

#endif
