/*
 * tuning.c: two words. Whoever exchanges `posted` for something else owns what was in it, so each set of options has one owner at any time.
 * What comes back is a list, because a second set may be taken before the first was collected.
 */
#include "tuning.h"

#include "scope.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

static void free_tunings(struct tuning *tuning)
{
	while (tuning) {
		struct tuning *next = tuning->next;

		source_room_free(tuning->room);
		free(tuning);
		tuning = next;
	}
}

static void collect_spent(struct tuning_box *box)
{
	free_tunings(atomic_exchange_explicit(&box->spent, NULL, memory_order_acquire));
}

int tuning_post(struct tuning_box *box, const struct sampler_options *options)
{
	AUTO_FREE struct tuning *tuning = calloc(1, sizeof *tuning);

	collect_spent(box);
	if (!tuning)
		return -ENOMEM;

	int r = source_room_new(options->source.capacity, &tuning->room);
	if (r < 0)
		return r;

	tuning->options = *options;
	free_tunings(atomic_exchange_explicit(&box->posted, TAKE(tuning), memory_order_acq_rel));

	return 0;
}

void tuning_release(struct tuning_box *box)
{
	free_tunings(atomic_exchange(&box->posted, NULL));
	collect_spent(box);
}

struct tuning *tuning_take(struct tuning_box *box)
{
	if (!atomic_load_explicit(&box->posted, memory_order_relaxed))
		return NULL;

	return atomic_exchange_explicit(&box->posted, NULL, memory_order_acquire);
}

/* Only the collector competes for the word, and it comes once per post: the loop ends. */
void tuning_return(struct tuning_box *box, struct tuning *tuning)
{
	tuning->next = atomic_load_explicit(&box->spent, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&box->spent, &tuning->next, tuning, memory_order_release,
						      memory_order_relaxed))
		;
}
