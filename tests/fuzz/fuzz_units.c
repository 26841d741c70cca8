/* Whatever is read as a quantity can be shown, and what is shown can be read. */
#include "lib/base/units.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	char buf[UNITS_TEXT_MAX];
	uint64_t value, back;
	double number;

	/* Rounding up to three digits may carry the largest values out of range. */
	if (units_duration(text, size, &value) == 0 && value < UINT64_MAX / 2 &&
	    units_duration(buf, strlen(units_format_duration(buf, sizeof(buf), value)), &back) != 0)
		abort();
	if (units_bytes(text, size, &value) == 0 && value < UINT64_MAX / 2 &&
	    units_bytes(buf, strlen(units_format_bytes(buf, sizeof(buf), value)), &back) != 0)
		abort();
	if (units_count(text, size, &value) == 0)
		units_format(buf, sizeof(buf), UNIT_COUNT, (double)value, UNITS_READING);
	if (units_percent(text, size, &number) == 0 &&
	    (number < 0 || units_percent(buf, strlen(units_format_percent(buf, sizeof(buf), number)), &number) != 0))
		abort();

	return 0;
}
