/* exposition_columns.h: which fields of samples are samples of which families. */
#ifndef SPIKEWATCH_EXPOSITION_COLUMNS_H
#define SPIKEWATCH_EXPOSITION_COLUMNS_H

#include "families.h"
#include "sample.h"

#include <stdbool.h>
#include <stddef.h>

enum exposition_how { EXPOSITION_COUNT, EXPOSITION_TIME, EXPOSITION_CORES };

/* A field of samples as samples of a family; families of several fields follow each other. */
struct exposition_column {
	enum family family;
	enum sample_field field;
	enum exposition_how how;
	bool summed;
	struct openmetrics_label label; /* name NULL: none */
};

extern const struct exposition_column exposition_columns[];
extern const size_t exposition_column_count;

#endif
