/* targetjson.h: a target's declaration in a stream, as lib/columns.h writes it, back into a target. Nothing in it is trusted. */
#ifndef SPIKEWATCH_TARGETJSON_H
#define SPIKEWATCH_TARGETJSON_H

#include "json.h"
#include "target.h"

#include <stdint.h>

/*
 * The target that an object says. What is missing or of the wrong type is empty, 0 or, for the kind, a process. Strings belong to the
 * document.
 */
struct target targetjson_read(const struct json_node *object, uint32_t id);

/* A member that is a number from 0 to max, else 0. */
double targetjson_number(const struct json_node *object, const char *key, double max);

#endif
