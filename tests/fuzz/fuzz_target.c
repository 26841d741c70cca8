/* Whatever decodes must encode to the same bytes. */
#include "lib/model/target.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char again[TARGET_ENCODED_MAX];
	struct target target;

	if (target_decode(data, size, &target) < 0)
		return 0;
	if (target_encode(&target, again, sizeof(again)) != size || memcmp(again, data, size) != 0)
		abort();

	return 0;
}
