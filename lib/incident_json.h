/*
 * incident_json.h: an incident as incident.json, and back. Every key is described in docs/incident.md.
 */
#ifndef SPIKEWATCH_INCIDENT_JSON_H
#define SPIKEWATCH_INCIDENT_JSON_H

#include "incident.h"
#include "sink.h"

#define INCIDENT_FILE "incident.json"
#define INCIDENT_BYTES_MAX 524288 /* what is larger is not read; the largest there can be has a third of it */

/* Writes incident.json: pretty-printed, keys in a fixed order. 0, -ENOMEM or the sink's error. */
int incident_json_write(const struct incident *incident, struct sink sink);

/*
 * Reads the text of an incident.json. Unknown keys are passed over, missing ones are as after incident_init, of lists
 * what does not fit is dropped. 0; -ENOMEM; -EBADMSG: no JSON, none of ours, or a value of the wrong type; -EFBIG;
 * -EPROTONOSUPPORT: a later format.
 */
int incident_json_parse(const char *text, size_t len, struct incident *ret);

/* The same of incident.json in dirfd. Also -errno of opening and reading; -EBADMSG if it is no plain file. */
int incident_json_read(int dirfd, struct incident *ret);

#endif
