/* targetname.c: letters and digits of ASCII, whatever the locale says. */
#include "targetname.h"

#include <stdio.h>
#include <string.h>

#define ALLOWED "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"

void targetname_of(const char *program, int32_t pid, char ret[static TARGETNAME_MAX])
{
	const char *slash = strrchr(program, '/');

	program = slash && slash[1] ? slash + 1 : program;
	if (pid)
		snprintf(ret, TARGETNAME_MAX, "%.20s-%d", program, pid);
	else
		snprintf(ret, TARGETNAME_MAX, "%.20s", program);
	for (char *at = ret; *at; at++)
		if (!strchr(ALLOWED, *at))
			*at = '_';
}
