/* families.c: the table as data. */
#include "families.h"

#include <assert.h>

const struct openmetrics_family *families_info(enum family family)
{
	static const struct openmetrics_family families[FAMILIES] = {
#define X(identifier, name, kind, unit, labels, help) [FAMILY_##identifier] = { name, OPENMETRICS_##kind, unit, help },
		FAMILIES_TABLE(X)
#undef X
	};

	assert(family < FAMILIES);

	return &families[family];
}

const char *families_labels(enum family family)
{
	static const char *const names[FAMILIES] = {
#define X(identifier, name, kind, unit, labels, help) [FAMILY_##identifier] = labels,
		FAMILIES_TABLE(X)
#undef X
	};

	assert(family < FAMILIES);

	return names[family];
}
