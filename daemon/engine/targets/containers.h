/*
 * containers.h: which container a cgroup is, or is in, what it is called and which labels it has.
 * Both are read from what the runtime has on disk (container_files.h) when a container is met, and
 * remembered while it is asked for.
 *
 * A runtime may write a name a moment after it has made the cgroup. Until then, and at most for
 * CONTAINERS_WAIT_NS, a container is pending; whoever can wait does. After that its id stands for
 * its name.
 *
 * It may be renamed, and its labels may become readable: every CONTAINERS_REVIEW_NS the file is
 * looked at, and read if it is another one.
 *
 * Belongs to one thread at a time (discovery's lock), but for the book of labels, of which any may
 * ask.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_TARGETS_CONTAINERS_H
#define SPIKEWATCH_DAEMON_ENGINE_TARGETS_CONTAINERS_H

#include "lib/base/base.h"
#include "lib/model/target.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * label_cache.h: the labels of containers, one copy of each, by the path of the container's own
 * cgroup: any number of targets in a container have the same.
 *
 * One thread at a time writes (discovery's lock); any thread may ask, and waits for nothing but
 * another's copying.
 */

struct label_cache;

/*
 * The labels of the container at path are these from now on. Returns the book's copy, for the
 * thread that writes: it stays where it is until label_cache_tidy after the next put or drop of
 * this path. NULL: no memory, and none are known.
 */
const struct labels *label_cache_put(struct label_cache *book, const char *path, const struct labels *labels);

/*
 * The labels of the container that the cgroup is, or is in. False: there are none, or they are not
 * known. Any thread.
 */
bool label_cache_get(struct label_cache *book, const char *cgroup, struct labels *ret);

#define CONTAINERS_WAIT_NS (500 * NS_PER_MS)

/*
 * Remembered at a time, some 1.5 KiB each and the labels; beyond that the one that was asked for
 * longest ago is forgotten.
 */
#define CONTAINERS_MAX 2048u

struct containers;

/*
 * runtime_root: "/", or where the host's root is mounted; one that is not there leaves containers
 * without names. 0 or -ENOMEM.
 */
int containers_new(const char *runtime_root, struct containers **ret);

/* Why runtime_root could not be opened: -errno. 0: it was. */
int containers_error(const struct containers *containers);

/* NULL is fine. */
void containers_free(struct containers *containers);

enum containers_answer { CONTAINERS_NONE, CONTAINERS_KNOWN, CONTAINERS_PENDING };

/*
 * The innermost container that the cgroup is, or is inside of. *ret is valid until the next call,
 * its labels until containers_review or containers_forget, and set unless NONE; *ret_own: whether
 * the cgroup is the container's own and not one below. containers NULL: NONE.
 */
enum containers_answer containers_find(struct containers *containers, const char *cgroup, mono_t now,
				       const struct container **ret, bool *ret_own);

/* When pending ones are looked at again. False: there are none. */
bool containers_next(const struct containers *containers, mono_t *ret);

/*
 * Looks at some of them again, the rest is for the next call; those whose waiting is over by that
 * are handed to visit, with the path of their cgroup: it may ask for that one.
 */
void containers_retry(struct containers *containers, mono_t now, void (*visit)(void *ctx, const char *cgroup),
		      void *ctx);

/*
 * Looks, when it is time, at a few of those that are known; whoever is called something else now or
 * has other labels is handed to visit. To be called again and again: it asks for no time of its
 * own.
 */
void containers_review(struct containers *containers, mono_t now, void (*visit)(void *ctx, const char *cgroup),
		       void *ctx);

/*
 * Forgets those that nobody has asked for during the last minute, or three pauses between scans if
 * these are longer.
 */
void containers_forget(struct containers *containers, mono_t now, uint64_t rescan_interval_ns);

/* Now remembered. */
size_t containers_count(const struct containers *containers);

/*
 * Of them those whose labels cannot be read; *ret_error: why, of one of them, -errno; 0: nothing
 * has them. Not counted: containers within others.
 */
size_t containers_unlabelled(const struct containers *containers, int *ret_error);

/* The labels of all of them. It lives as long as they do. */
struct label_cache *containers_labels(struct containers *containers);

#endif
