/*
 * labelbook.h: the labels of containers, one copy of each, by the path of the container's own cgroup: any number of targets in a container have the same.
 *
 * One thread at a time writes (discovery's lock); any thread may ask, and waits for nothing but another's copying.
 */
#ifndef SPIKEWATCH_LABELBOOK_H
#define SPIKEWATCH_LABELBOOK_H

#include "labels.h"

#include <stdbool.h>
#include <stddef.h>

struct labelbook;

/* 0 or -ENOMEM. */
int labelbook_new(struct labelbook **ret);

/* NULL is fine. */
void labelbook_free(struct labelbook *book);

/*
 * The labels of the container at path are these from now on. Returns the book's copy, for the thread that writes: it stays where it is until labelbook_tidy
 * after the next put or drop of this path. NULL: no memory, and none are known.
 */
const struct labels *labelbook_put(struct labelbook *book, const char *path, const struct labels *labels);

/* They are not known any more. */
void labelbook_drop(struct labelbook *book, const char *path);

/* Frees what was put out of use. */
void labelbook_tidy(struct labelbook *book);

/* The labels of the container that the cgroup is, or is in. False: there are none, or they are not known. Any thread. */
bool labelbook_get(struct labelbook *book, const char *cgroup, struct labels *ret);

#endif
