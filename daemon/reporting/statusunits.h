/* statusunits.h: the part of the status document about units of systemd. docs/status.md describes it. */
#ifndef SPIKEWATCH_STATUSUNITS_H
#define SPIKEWATCH_STATUSUNITS_H

#include "discovery.h"
#include "json.h"

/* Units and names in the lists; the others are counted. */
#define STATUSUNITS_MAX 256u

/* Writes the member "units" into the object that is open. */
void statusunits_put(struct json_writer *json, struct discovery *discovery);

#endif
