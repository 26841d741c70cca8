/*
 * config_regex.h: what an expression costs to compile. For the config_* modules only.
 */
#ifndef SPIKEWATCH_CONFIG_REGEX_H
#define SPIKEWATCH_CONFIG_REGEX_H

#include <stdbool.h>

/*
 * Whether regcomp(3) compiles this POSIX extended expression within a second and a few megabytes. It may be no
 * expression at all: that is regcomp's to say.
 */
bool config_regex_is_cheap(const char *regex);

#endif
