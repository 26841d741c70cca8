/* signals.h: the signals that the event loop takes (SIGTERM, SIGINT, SIGHUP, SIGUSR1), and what decides what SIGHUP means. */
#ifndef SPIKEWATCH_SIGNALS_H
#define SPIKEWATCH_SIGNALS_H

#include <stdbool.h>

/* In the main thread, before there is another: they are blocked, but for a SIGHUP that is ignored, and SIGPIPE is ignored. */
void signals_block(void);

/* As nohup(1) leaves it: a signal that is blocked would be delivered to the loop nevertheless. */
bool signals_is_ignored(int number);

/* Whether there is a terminal that this was started in, and it is not closed. */
bool signals_has_terminal(void);

#endif
