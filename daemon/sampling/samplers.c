/*
 * samplers.c: who gets what.
 *
 * Placing is the cold side's, so it needs no lock: how many each thread has is counted when a target is handed over and when it comes back. The first
 * thread leads: it keeps the budget of the process, and tells the ring of a new interval; the others follow its factor.
 *
 * Each source has room for all, since groups do not split evenly; that there are not more altogether is seen to here. A single thread sees to
 * it itself, exactly.
 *
 * Rejected: moving targets between threads to even them out: the ring would have to say so, and every reader would have to understand it.
 * Processes come and go, and the next ones go where there are fewest.
 */
#include "samplers.h"

#include "scope.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

struct samplers {
	struct ring *ring;
	struct sampler_options options;
	unsigned count;
	unsigned next; /* whose returns are taken next */
	size_t placed; /* on all */
	struct sampler_target *refused;
	struct sampler_target **refused_end;
	uint64_t first_writer; /* the ring's number of the first */
	struct {
		struct sampler *sampler;
		size_t placed;
	} threads[];
};

unsigned samplers_worth(double cpu_budget_percent, unsigned cpus)
{
	unsigned most = cpus < SAMPLERS_MAX ? cpus : SAMPLERS_MAX;
	unsigned count = 1;

	while (count < most && cpu_budget_percent > 100.0 * count)
		count++;
	return count;
}

static void release(struct samplers **samplers)
{
	samplers_free(*samplers);
}

static int add_thread(struct samplers *samplers, unsigned of)
{
	struct sampler **sampler = &samplers->threads[samplers->count].sampler;
	struct sampler_seat seat = { .number = samplers->count, .of = of };
	int r = sampler_new(&samplers->options, samplers->ring, sampler);

	if (r < 0)
		return r;
	if (samplers->count > 0)
		seat.leader = samplers->threads[0].sampler;
	sampler_sit(*sampler, &seat);
	samplers->count++;
	return 0;
}

int samplers_new(const struct sampler_options *options, unsigned count, struct ring *ring, struct samplers **ret)
{
	assert(count >= 1 && count <= SAMPLERS_MAX);

	AUTO(release) struct samplers *samplers = calloc(1, sizeof(*samplers) + count * sizeof(samplers->threads[0]));
	struct ring_info info;

	if (!samplers)
		return -ENOMEM;

	ring_info(ring, &info);
	samplers->first_writer = info.writers;
	samplers->ring = ring;
	samplers->options = *options;
	samplers->refused_end = &samplers->refused;
	for (unsigned i = 0; i < count; i++) {
		int r = add_thread(samplers, count);

		if (r < 0)
			return r;
	}

	*ret = TAKE(samplers);
	return 0;
}

static void call_off(struct samplers *samplers)
{
	for (unsigned i = 0; i < samplers->count; i++)
		sampler_call_off(samplers->threads[i].sampler);
}

void samplers_free(struct samplers *samplers)
{
	if (!samplers)
		return;

	samplers_stop(samplers); /* before the first is freed: the others look at it */
	for (unsigned i = samplers->count; i-- > 0;)
		sampler_free(samplers->threads[i].sampler);
	free(samplers);
}

unsigned samplers_count(const struct samplers *samplers)
{
	return samplers->count;
}

int samplers_retune(struct samplers *samplers, const struct sampler_options *options)
{
	int r = 0;
	unsigned told = 0;

	while (r == 0 && told < samplers->count)
		r = sampler_retune(samplers->threads[told++].sampler, options);
	if (r == 0) {
		samplers->options = *options;
		return 0;
	}

	for (unsigned i = 0; i + 1 < told; i++)
		sampler_retune(samplers->threads[i].sampler, &samplers->options);
	return r;
}

int samplers_start(struct samplers *samplers)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < samplers->count; i++)
		r = sampler_start(samplers->threads[i].sampler);
	if (r < 0)
		samplers_stop(samplers);
	return r;
}

/* All are told before the first is waited for. */
void samplers_stop(struct samplers *samplers)
{
	call_off(samplers);
	for (unsigned i = 0; i < samplers->count; i++)
		sampler_stop(samplers->threads[i].sampler);
}

/* ---- targets ---- */

static unsigned thread_for(const struct samplers *samplers, const struct sampler_target *target)
{
	unsigned best = 0;

	if (target->group)
		return target->group->thread;
	for (unsigned i = 1; i < samplers->count; i++)
		if (samplers->threads[i].placed < samplers->threads[best].placed)
			best = i;
	return best;
}

static void refuse(struct samplers *samplers, struct sampler_target *target)
{
	target->refused = NULL;
	*samplers->refused_end = target;
	samplers->refused_end = &target->refused;
}

bool samplers_add(struct samplers *samplers, struct sampler_target *target)
{
	target->thread = thread_for(samplers, target);
	if (samplers->count > 1 && samplers->placed >= samplers->options.source.capacity) {
		refuse(samplers, target);
		return true;
	}
	if (!sampler_add(samplers->threads[target->thread].sampler, target))
		return false;

	target->placed = true;
	samplers->threads[target->thread].placed++;
	samplers->placed++;
	return true;
}

bool samplers_remove(struct samplers *samplers, struct sampler_target *target)
{
	return sampler_remove(samplers->threads[target->thread].sampler, target);
}

static void displace(struct samplers *samplers, struct sampler_target *target)
{
	if (!target->placed)
		return;

	target->placed = false;
	samplers->threads[target->thread].placed--;
	samplers->placed--;
}

static bool take_refused(struct samplers *samplers, struct sampler_target **ret, enum sampler_return *ret_why)
{
	struct sampler_target *target = samplers->refused;

	if (!target)
		return false;

	samplers->refused = target->refused;
	if (!samplers->refused)
		samplers->refused_end = &samplers->refused;
	*ret = target;
	*ret_why = SAMPLER_REFUSED;
	return true;
}

/* What was refused here comes first: whoever asked for such a target back gets the answer to that afterwards. */
bool samplers_returned(struct samplers *samplers, struct sampler_target **ret, enum sampler_return *ret_why)
{
	if (take_refused(samplers, ret, ret_why))
		return true;

	for (unsigned i = 0; i < samplers->count; i++) {
		unsigned number = (samplers->next + i) % samplers->count;

		if (!sampler_returned(samplers->threads[number].sampler, ret, ret_why))
			continue;
		samplers->next = (number + 1) % samplers->count;
		displace(samplers, *ret);
		return true;
	}
	return false;
}

/* ---- what they say ---- */

void samplers_exempt(struct samplers *samplers, clockid_t thread_clock)
{
	sampler_exempt(samplers->threads[0].sampler, thread_clock);
}

uint32_t samplers_slowdown(const struct samplers *samplers)
{
	return sampler_slowdown(samplers->threads[0].sampler);
}

double samplers_cpu_share(const struct samplers *samplers)
{
	return sampler_cpu_share(samplers->threads[0].sampler);
}

mono_t samplers_thread_pulse(const struct samplers *samplers, unsigned number)
{
	return sampler_pulse(samplers->threads[number].sampler);
}

mono_t samplers_pulse(const struct samplers *samplers)
{
	mono_t oldest = sampler_pulse(samplers->threads[0].sampler);

	for (unsigned i = 1; i < samplers->count; i++) {
		mono_t pulse = sampler_pulse(samplers->threads[i].sampler);

		if (mono_diff(pulse, oldest) < 0)
			oldest = pulse;
	}
	return oldest;
}

void samplers_stats(const struct samplers *samplers, struct stats *ret)
{
	struct stats sum = { 0 };

	for (unsigned i = 0; i < samplers->count; i++) {
		struct stats stats;

		sampler_stats(samplers->threads[i].sampler, &stats);
		stats_merge(&sum, &stats);
	}
	*ret = sum;
}

int samplers_thread_stats(const struct samplers *samplers, unsigned number, struct stats *ret)
{
	return ring_writer_stats(samplers->ring, samplers->first_writer + number, ret);
}

void samplers_tick(struct samplers *samplers)
{
	for (unsigned i = 0; i < samplers->count; i++)
		sampler_tick(samplers->threads[i].sampler);
}
