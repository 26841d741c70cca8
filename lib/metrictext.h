/* metrictext.h: values of metrics as people read them: "182 %", "1.25 cores", "512 MiB", "1240 /s". */
#ifndef SPIKEWATCH_METRICTEXT_H
#define SPIKEWATCH_METRICTEXT_H

#include "metric.h"

#include <stddef.h>

/* Into buf, always terminated; returns buf. 32 bytes are enough. */
const char *metrictext_value(enum metric_unit unit, double value, char *buf, size_t cap);

#endif
