/*
 * streamseal.h: the end of a stream that its writer did not live to write. What was cut off is lost, and the rest is whole: it gets the closing
 * lines that its writer would have given it.
 */
#ifndef SPIKEWATCH_STREAMSEAL_H
#define SPIKEWATCH_STREAMSEAL_H

/* The stream has its end already, holds none of ours, is damaged in more than its last line, or is gVisor's: it is as it was. */
enum { STREAMSEAL_LEFT = 1 };

/*
 * fd: a plain file, for reading and writing, that nobody else writes. Takes away a last line that has no end, and appends the number of rows and the
 * overall checksum. 0; STREAMSEAL_LEFT; -ENOMEM; -errno: what was appended may be a part. Reads the file once.
 */
int streamseal(int fd);

#endif
