/* sampler_target.c: a target's memory, the cold side's business: the sampler itself only ever uses it. */
#include "sampler.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int sampler_target_describe(struct sampler_target *target, const struct target *what)
{
	unsigned char encoded[TARGET_ENCODED_MAX];
	size_t len = target_encode(what, encoded, sizeof encoded);

	target->description = malloc(len);
	if (!target->description)
		return -ENOMEM;

	memcpy(target->description, encoded, len);
	target->track = (struct ring_track){
		.description = target->description,
		.description_len = (uint32_t)len,
		.id = what->id,
	};

	return 0;
}

void sampler_target_release(struct sampler_target *target)
{
	source_entry_free(target->entry);
	free(target->description);
}
