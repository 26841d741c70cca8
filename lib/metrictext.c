/* metrictext.c: one format per unit, those of units.h. */
#include "metrictext.h"

#include "units.h"

#include <stdio.h>

const char *metrictext_value(enum metric_unit unit, double value, char *buf, size_t cap)
{
	char number[32];

	switch (unit) {
	case METRIC_PERCENT:
		return units_format_percent(buf, cap, value);
	case METRIC_BYTES:
		return units_format_bytes(buf, cap, value > 0 ? (uint64_t)value : 0);
	case METRIC_COUNT:
		return units_format_count(buf, cap, value > 0 ? (uint64_t)value : 0);
	case METRIC_CORES:
		snprintf(buf, cap, "%s cores", units_format_number(number, sizeof number, value));
		return buf;
	case METRIC_PER_SECOND:
		snprintf(buf, cap, "%s /s", units_format_number(number, sizeof number, value));
		return buf;
	}

	return buf;
}
