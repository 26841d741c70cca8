/*
 * samplers.h: the sampler threads of a session (sampler.h), one or several, as one: targets are shared out among them, each fills pages of its own
 * in the ring, and what they say of themselves is put together. To the cold side it is what one sampler is.
 *
 * A target goes to the thread that has the fewest, a member of a group to where its group is: a group lives whole in one thread. There it
 * stays. Functions belong to the thread that a sampler's of the same name belong to.
 */
#ifndef SPIKEWATCH_SAMPLERS_H
#define SPIKEWATCH_SAMPLERS_H

#include "sampler.h"

#define SAMPLERS_MAX 16u

struct samplers;

/*
 * How many threads a budget is worth: as many as could ever run at the same time within it, and not more than there are CPUs. Less than a core is never
 * more than one thread's work, and without a limit (<= 0) one is enough until it is told otherwise.
 */
unsigned samplers_worth(double cpu_budget_percent, unsigned cpus);

/* count: 1 to SAMPLERS_MAX. options->source.capacity is that of all together. 0; -ENOMEM; -errno. ring must outlive them. */
int samplers_new(const struct sampler_options *options, unsigned count, struct ring *ring, struct samplers **ret);

/* Stops them. The targets they hold are the cold side's to release. NULL is fine. */
void samplers_free(struct samplers *samplers);

/* How many threads there are, running or not. */
unsigned samplers_count(const struct samplers *samplers);

/* As sampler_retune. -ENOMEM: nothing changed, as far as there was memory to take back what one of them was told already. */
int samplers_retune(struct samplers *samplers, const struct sampler_options *options);

/* All or none. 0 or -errno. */
int samplers_start(struct samplers *samplers);
void samplers_stop(struct samplers *samplers);

/* As sampler_add and sampler_remove. target's thread, placed and refused are theirs; zeroed is the right start. A group must be added before its members. */
bool samplers_add(struct samplers *samplers, struct sampler_target *target);
bool samplers_remove(struct samplers *samplers, struct sampler_target *target);

/* Of all threads, each one's in its order. */
bool samplers_returned(struct samplers *samplers, struct sampler_target **ret, enum sampler_return *ret_why);

/* Those of the process: one budget, one slowdown for all. */
void samplers_exempt(struct samplers *samplers, clockid_t thread_clock);
uint32_t samplers_slowdown(const struct samplers *samplers);
double samplers_cpu_share(const struct samplers *samplers);

/* Of the thread that was seen at work least recently. */
mono_t samplers_pulse(const struct samplers *samplers);

/* Of one thread: number 0 to samplers_count. */
mono_t samplers_thread_pulse(const struct samplers *samplers, unsigned number);

/* All in one (stats_merge). */
void samplers_stats(const struct samplers *samplers, struct stats *ret);

/* What one thread has published: number 0 to samplers_count. 0; -ENOENT: nothing yet. Any thread. */
int samplers_thread_stats(const struct samplers *samplers, unsigned number, struct stats *ret);

/* One of each, one after the other. */
void samplers_tick(struct samplers *samplers);

#endif
