/* sample.c: the field table as data. */
#include "sample.h"

#include <assert.h>

static const struct sample_field_info fields[SAMPLE_FIELDS] = {
#define X(identifier, name, unit, kind, source) [SAMPLE_##identifier] = { name, unit, SAMPLE_##kind, source },
	SAMPLE_FIELD_TABLE(X)
#undef X
};

const struct sample_field_info *sample_field_info(enum sample_field field)
{
	assert(field < SAMPLE_FIELDS);

	return &fields[field];
}

const char *sample_kind_name(enum sample_kind kind)
{
	static const char *const names[] = {
		[SAMPLE_COUNTER] = "counter",
		[SAMPLE_GAUGE] = "gauge",
		[SAMPLE_LIMIT] = "limit",
	};

	return names[kind];
}
