/*
 * sampler_target.c: a target's memory, the cold side's business: the sampler itself only ever uses it.
 *
 * A description on its way is a pointer in one of two places, each written by one side and emptied by the other. The sampler takes a new one only when
 * it has where to put the old one, and the cold side frees that when it posts the next, or with the target: so there are never more than three.
 *
 *	cold side ── posted ──▶ sampler ── done ──▶ cold side
 */
#include "sampler.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct sampler_description {
	uint32_t len;
	unsigned char encoded[];
};

static struct sampler_description *describe(const struct target *what)
{
	unsigned char encoded[TARGET_ENCODED_MAX];
	size_t len = target_encode(what, encoded, sizeof encoded);
	struct sampler_description *description = malloc(sizeof(*description) + len);

	if (!description)
		return NULL;

	description->len = (uint32_t)len;
	memcpy(description->encoded, encoded, len);

	return description;
}

int sampler_target_describe(struct sampler_target *target, const struct target *what)
{
	target->description = describe(what);
	if (!target->description)
		return -ENOMEM;

	target->track = (struct ring_track){
		.description = target->description->encoded,
		.description_len = target->description->len,
		.id = what->id,
	};

	return 0;
}

int sampler_target_describe_anew(struct sampler_target *target, const struct target *what)
{
	struct sampler_description *description = describe(what);

	if (!description)
		return -ENOMEM;

	free(atomic_exchange_explicit(&target->done, NULL, memory_order_acquire));
	free(atomic_exchange_explicit(&target->posted, description, memory_order_acq_rel));

	return 0;
}

void sampler_target_take_description(struct sampler_target *target)
{
	struct sampler_description *description;

	if (!atomic_load_explicit(&target->posted, memory_order_relaxed) ||
	    atomic_load_explicit(&target->done, memory_order_relaxed))
		return;

	description = atomic_exchange_explicit(&target->posted, NULL, memory_order_acquire);
	atomic_store_explicit(&target->done, target->description, memory_order_release);
	target->description = description;
	target->track.description = description->encoded;
	target->track.description_len = description->len;
	target->track.described_seq = 0;
}

void sampler_target_release(struct sampler_target *target)
{
	source_entry_free(target->entry);
	free(target->description);
	free(atomic_exchange_explicit(&target->posted, NULL, memory_order_acquire));
	free(atomic_exchange_explicit(&target->done, NULL, memory_order_acquire));
}
