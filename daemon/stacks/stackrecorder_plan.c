/*
 * stackrecorder_plan.c: a row of plans, each smaller than the one before; the first that fits is taken.
 *
 *	as long as asked for ── stacks ever shorter, page faults' first ── chains half, a quarter ── no stacks, chains as asked for ── ever shorter
 *
 * Stacks are a hundred times the size of a chain and the first that gives way, but for less than a second of a busy CPU they are not worth what the
 * chains would have to give. Rings of page faults are half of those of CPU samples: the kernel takes fewer of them. There is
 * one ring of them for each CPU, with stacks where there are stacks: of everybody, if everybody may be sampled (stackrecorder_faults.c).
 */
#include "stackrecorder_plan.h"

#include "clock.h"

#include <errno.h>
#include <stdio.h>

#define DEFAULT_MEMORY_BYTES (64ULL << 20)
#define DEFAULT_BEFORE_NS (15 * NS_PER_S)
#define DEFAULT_STACK_BYTES 8192
#define SLACK_NS (5 * NS_PER_S)      /* from the spike to the question */
#define CHAIN_SAMPLE_BYTES 320       /* of forty frames */
#define STACK_SAMPLE_BYTES 400       /* a chain and registers, beside the stack */
#define RING_BYTES_MIN (64ULL << 10) /* a second of deep chains */
#define RING_BYTES_MAX (1ULL << 30)
#define SIDE_BYTES (64ULL << 10) /* eighty short programs, and it is emptied when half full */
#define CHAIN_HALVINGS 2         /* that chains put up with for the sake of stacks */

/* What a plan of the row is made from. */
struct sizes {
	uint64_t chains, chain_faults, stacks, stack_faults;
};

uint64_t stackrecorder_plan_memory(const struct stackrecorder_options *options)
{
	return options->max_memory_bytes != 0 ? options->max_memory_bytes : DEFAULT_MEMORY_BYTES;
}

uint64_t stackrecorder_plan_bytes(const struct stackrecorder_plan *plan)
{
	uint64_t sum = 0;

	for (int kind = 0; kind < STACKFILE_STREAM_KINDS; kind++)
		sum += plan->ring_bytes[kind];
	return sum;
}

static uint64_t round_up(uint64_t bytes, uint64_t least)
{
	uint64_t power = least;

	while (power < bytes && power < RING_BYTES_MAX)
		power *= 2;
	return power;
}

/* To the power of two that is nearer by its ratio: stacks are too large to round them up always. */
static uint64_t round_near(uint64_t bytes, uint64_t least)
{
	uint64_t power = round_up(bytes, least);

	return power > least && bytes < power / 10 * 7 ? power / 2 : power;
}

static uint64_t half(uint64_t bytes, uint64_t least)
{
	return bytes / 2 > least ? bytes / 2 : least;
}

/* Bytes of samples in span_ns. */
static uint64_t samples(const struct stackrecorder_needs *needs, uint64_t span_ns, uint64_t sample_bytes)
{
	return (uint64_t)((unsigned __int128)span_ns * needs->frequency * sample_bytes / NS_PER_S);
}

static uint64_t span_ns(const struct stackrecorder_needs *needs)
{
	uint64_t before_ns = needs->options->before_ns != 0 ? needs->options->before_ns : DEFAULT_BEFORE_NS;

	return before_ns < UINT64_MAX - SLACK_NS ? before_ns + SLACK_NS : before_ns;
}

static uint64_t stack_sample_bytes(const struct stackrecorder_needs *needs)
{
	uint32_t stack_bytes = needs->options->stack_bytes != 0 ? needs->options->stack_bytes : DEFAULT_STACK_BYTES;

	return stack_bytes + STACK_SAMPLE_BYTES;
}

/* Those of everybody, or of followed threads without stacks. */
static struct sizes chains_as_asked_for(const struct stackrecorder_needs *needs)
{
	uint64_t asked = needs->options->ring_bytes != 0 ? needs->options->ring_bytes
							 : samples(needs, span_ns(needs), CHAIN_SAMPLE_BYTES);
	uint64_t chains = round_up(asked, RING_BYTES_MIN);

	return (struct sizes){ .chains = chains, .chain_faults = half(chains, RING_BYTES_MIN) };
}

static struct stackrecorder_plan plan_of(const struct stackrecorder_needs *needs, const struct sizes *sizes)
{
	struct stackrecorder_plan plan = { .ring_bytes[STACKFILE_BOOK] = SIDE_BYTES, .dwarf = sizes->stacks > 0 };
	bool faults = !needs->options->without_faults;

	if (needs->everybody)
		plan.ring_bytes[STACKFILE_CPU] = sizes->chains;
	if (plan.dwarf)
		plan.ring_bytes[STACKFILE_CPU_FOLLOWED] = sizes->stacks;
	else if (!needs->everybody)
		plan.ring_bytes[STACKFILE_CPU_FOLLOWED] = sizes->chains;
	if (faults)
		plan.ring_bytes[needs->everybody ? STACKFILE_FAULTS : STACKFILE_FAULTS_FOLLOWED] =
			plan.dwarf ? sizes->stack_faults : sizes->chain_faults;
	return plan;
}

static bool fits(const struct stackrecorder_needs *needs, const struct sizes *sizes, uint64_t most,
		 struct stackrecorder_plan *ret)
{
	*ret = plan_of(needs, sizes);
	return stackrecorder_plan_bytes(ret) <= most / needs->cpus;
}

static void halve_chains(struct sizes *sizes)
{
	sizes->chains = half(sizes->chains, RING_BYTES_MIN);
	sizes->chain_faults = half(sizes->chain_faults, RING_BYTES_MIN);
}

static bool fits_with_stacks(const struct stackrecorder_needs *needs, uint64_t most, struct stackrecorder_plan *ret)
{
	struct sizes sizes = chains_as_asked_for(needs);
	uint64_t least = round_up(samples(needs, NS_PER_S, stack_sample_bytes(needs)), RING_BYTES_MIN);

	sizes.stacks = round_near(samples(needs, span_ns(needs), stack_sample_bytes(needs)), least);
	sizes.stack_faults = half(sizes.stacks, least / 2);
	for (;;) {
		if (fits(needs, &sizes, most, ret))
			return true;
		if (sizes.stacks == least && sizes.stack_faults == least / 2)
			break;
		if (sizes.stack_faults > sizes.stacks / 4 && sizes.stack_faults > least / 2)
			sizes.stack_faults /= 2;
		else
			sizes.stacks = half(sizes.stacks, least);
	}
	for (int i = 0; needs->everybody && i < CHAIN_HALVINGS; i++) {
		halve_chains(&sizes);
		if (fits(needs, &sizes, most, ret))
			return true;
	}
	return false;
}

int stackrecorder_plan(const struct stackrecorder_needs *needs, struct stackrecorder_plan *ret, char *reason)
{
	uint64_t most = needs->most != 0 ? needs->most : stackrecorder_plan_memory(needs->options) / 4 * 3;
	struct sizes sizes = chains_as_asked_for(needs);
	struct stackrecorder_plan plan;

	if (needs->dwarf && fits_with_stacks(needs, most, ret))
		return 0;
	while (!fits(needs, &sizes, most, &plan)) {
		if (sizes.chains == RING_BYTES_MIN) {
			uint64_t least = needs->cpus * stackrecorder_plan_bytes(&plan);

			snprintf(reason, STACKRECORDER_REASON_MAX,
				 "the smallest rings of %u CPUs take %llu KiB, and %llu KiB are allowed them",
				 needs->cpus, (unsigned long long)(least >> 10), (unsigned long long)(most >> 10));
			return -ENOSPC;
		}
		halve_chains(&sizes);
	}
	*ret = plan;
	return 0;
}
