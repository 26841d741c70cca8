/*
 * addressbook_maps.h: the lines of /proc/<pid>/maps that can be executed, as the mmap records they would have been.
 */
#ifndef SPIKEWATCH_ADDRESSBOOK_MAPS_H
#define SPIKEWATCH_ADDRESSBOOK_MAPS_H

#include "perfrecord.h"

#define ADDRESSBOOK_MAPS_PATH_MAX 4096

/* The path of the line at hand. */
struct addressbook_maps {
	const char *text;
	size_t len, at;
	char path[ADDRESSBOOK_MAPS_PATH_MAX];
};

/*
 * The next line that says x. Lines that cannot be read are skipped, those whose path is too long too. False: the end. ret->path is in maps, until
 * the next call.
 */
bool addressbook_maps_next(struct addressbook_maps *maps, struct perfrecord_mmap *ret);

#endif
