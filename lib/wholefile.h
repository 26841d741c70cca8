/*
 * wholefile.h: small files that are read and replaced as a whole: whoever opens one sees the old or the new text, never a part.
 */
#ifndef SPIKEWATCH_WHOLEFILE_H
#define SPIKEWATCH_WHOLEFILE_H

#include "sink.h"

#include <stddef.h>

/*
 * Appends the file name below dirfd to text. 0; -ENOENT and other errors of open(2) and read(2); -EINVAL: not a regular
 * file; -ENOMEM; -EFBIG: larger than text->max.
 */
int wholefile_read(int dirfd, const char *name, struct buffer *text);

/*
 * Writes data under the temporary name ".NAME.tmp", brings it to the disk, renames it (mode 0640, less the umask). 0 or
 * -errno: the old file then stays, whole, unless it was the very last step that failed, the fsync of the directory.
 */
int wholefile_replace(int dirfd, const char *name, const void *data, size_t len);

#endif
