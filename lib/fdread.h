/* fdread.h: reading a descriptor to its end: the one loop over short reads and interruptions. */
#ifndef SPIKEWATCH_FDREAD_H
#define SPIKEWATCH_FDREAD_H

#include <stddef.h>
#include <sys/types.h>

/* Reads until the end of the file or until cap bytes are there, whichever comes first. The bytes read, or -errno. */
ssize_t fdread_all(int fd, void *buf, size_t cap);

#endif
