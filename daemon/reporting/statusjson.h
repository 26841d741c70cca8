/*
 * statusjson.h: how the daemon is, and why each rule did or did not fire on each target, as parts of one JSON document, which statusanswer.h
 * puts together. What is in it is described in docs/status.md.
 */
#ifndef SPIKEWATCH_STATUSJSON_H
#define SPIKEWATCH_STATUSJSON_H

#include "json.h"
#include "overview.h"

/* Puts all members but those about targets. */
void statusjson_put_head(struct json_writer *json, const struct overview *overview);

/* Begins the object of a target, up to the array of its rules, which is open then. */
void statusjson_begin_target(struct json_writer *json, const struct overview *overview, const struct target *target);

/* Puts a rule on that target into the array. */
void statusjson_put_rule(struct json_writer *json, const struct evaluator_status *row);

/* Ends both. */
void statusjson_end_target(struct json_writer *json);

#endif
