/*
 * moment.h: moments as people type them.
 *
 *	2h  90s  30d               so long ago
 *	now  today  yesterday      the latter two: midnight, local time
 *	2026-11-20                 midnight, local time
 *	2026-11-20T03:15           also with a space for the T, with :SS and a fraction; local time,
 *	2026-11-20T03:15:02.123Z   or behind it Z or +HH:MM
 *	20261120T031502.123Z       as in the name of an incident
 */
#ifndef SPIKEWATCH_MOMENT_H
#define SPIKEWATCH_MOMENT_H

#include "clock.h"

/* What to say of a text that is none. */
#define MOMENT_EXPECTED "a time is \"2h\" (ago), \"yesterday\", \"2026-11-20\" or \"2026-11-20T03:15:02Z\""

/* Local time is that of tzset(3). 0; -EINVAL: no such moment; -ERANGE: before 1970 or after 9999. */
int moment_parse(const char *text, wall_t now, wall_t *ret);

#endif
