/*
 * supervise.h: runs tests so that nothing of them is left, however they end: no process, no
 * temporary file, no cgroup.
 */
#ifndef SPIKEWATCH_TESTS_SUPERVISE_H
#define SPIKEWATCH_TESTS_SUPERVISE_H

/*
 * Runs body in a child, and waits for it to end, or for SIGINT, SIGTERM or SIGHUP, which ends it.
 * Then every process that descends from the child is killed, those with another parent, session or
 * group too, and what was made in the meantime by mkdtemp(3) and mkstemp(3), or as a cgroup by
 * mkdir(2), in the child or its forks, is removed. Programs that were executed have a TMPDIR that
 * is removed with all that is in it.
 *
 * Returns the exit code of the child, or 128 + the signal that ended it or us; 1: it could not be
 * started. Signals are blocked then.
 */
int supervise(int (*body)(int argc, char **argv), int argc, char **argv);

/*
 * In the child or its forks: this is to be removed too, whether it is there yet or not. An absolute
 * path.
 */
void supervise_note(const char *path);

#endif
