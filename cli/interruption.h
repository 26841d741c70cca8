/* interruption.h: somebody asks a command that takes its time to end: SIGINT, SIGTERM, SIGHUP. There is one for the process. */
#ifndef SPIKEWATCH_INTERRUPTION_H
#define SPIKEWATCH_INTERRUPTION_H

/*
 * From now on these signals are noted and do not end the process; SIGHUP only if it was not ignored, as nohup(1) does. A second SIGINT
 * ends it at once, with 130: who presses Ctrl-C again does not want to wait for an end in good order.
 */
void interruption_catch(void);

/* The signal that came, the last of several; 0: none. */
int interruption_signal(void);

/*
 * The last that a child has not had: 0, or one that was sent to us alone. What the terminal sends, it sends to all that run in the
 * foreground: that must not hit a child twice.
 */
int interruption_to_pass_on(void);

#endif
