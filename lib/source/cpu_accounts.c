/*
 * cpu_accounts.c: the reader's side.
 *
 * Order. The kernel changes an account, then reads the epoch, and puts the account into a log if it
 * is not in one of this epoch. The reader changes the epoch, then reads logs and accounts. A change
 * that sees the old epoch came before all that the reader reads; one that sees the new one is in a log
 * for the next time. Both sides have a full barrier in between: the atomic addition to the account
 * there, the exchange of the epoch here.
 *
 * A run that goes on is in the slot of its CPU, and in the account once it has ended. The slot's
 * sequence is odd from before the addition until after the slot was written anew. So a slot that still
 * has the sequence of before, after the account was read, is of a run that is not in what was read.
 */
#include "lib/source/cpu_accounts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Zero, so that of accounts that are never used nothing is touched. */
#define NO_RUN 0

/* A run that went on when begin looked. */
struct run {
	uint64_t sequence, since_ns;
	uint32_t generation;
	uint32_t account; /* CPU_ACCOUNT_NONE: of no watched process */
	uint32_t next;    /* another CPU on which the account's process runs, from 1 on; NO_RUN */
};

struct cpu_accounts_reader {
	const struct cpu_accounts *accounts;
	uint64_t *taken;   /* of each log */
	struct run *runs;  /* of each CPU */
	uint32_t *running; /* of each account: a CPU, from 1 on; NO_RUN */
};

static uint64_t load(const volatile uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

int cpu_accounts_reader_new(const struct cpu_accounts *accounts, struct cpu_accounts_reader **ret)
{
	AUTO(cpu_accounts_reader_freep) struct cpu_accounts_reader *reader = calloc(1, sizeof(*reader));
	if (!reader)
		return -ENOMEM;

	reader->accounts = accounts;
	reader->taken = calloc(accounts->cpus, sizeof(reader->taken[0]));
	reader->runs = calloc(accounts->cpus, sizeof(reader->runs[0]));
	reader->running = calloc(accounts->capacity, sizeof(reader->running[0]));
	if (!reader->taken || !reader->runs || !reader->running)
		return -ENOMEM;

	for (uint32_t cpu = 0; cpu < accounts->cpus; cpu++) {
		reader->taken[cpu] = load(&accounts->slots[cpu].logged);
		reader->runs[cpu] = (struct run){ .sequence = UINT64_MAX, .account = CPU_ACCOUNT_NONE };
	}
	*ret = TAKE(reader);
	return 0;
}

void cpu_accounts_reader_free(struct cpu_accounts_reader *reader)
{
	if (!reader)
		return;

	free(reader->taken);
	free(reader->runs);
	free(reader->running);
	free(reader);
}

/*
 * The table of watched processes may have changed since the run began: then its process is searched for,
 * once in each generation. A lone thread runs for seconds.
 */
static uint32_t account_of(const struct cpu_accounts *accounts, const struct cpu_slot *slot, const struct run *before,
			   uint32_t generation)
{
	if (slot->generation == generation)
		return slot->account < accounts->capacity ? slot->account : CPU_ACCOUNT_NONE;
	if (before->sequence == slot->sequence && before->generation == generation)
		return before->account;
	for (uint32_t i = 0; slot->tgid != 0 && i < accounts->capacity; i++)
		if (atomic_load_explicit(&accounts->pids[i], memory_order_relaxed) == slot->tgid &&
		    !accounts->accounts[i].exited) /* else it had the id before */
			return i;
	return CPU_ACCOUNT_NONE;
}

/* A slot that cannot be read is taken for idle: what runs there is known when it has ended. */
static void find_runs(struct cpu_accounts_reader *reader, void (*changed)(void *ctx, uint32_t account), void *ctx)
{
	const struct cpu_accounts *accounts = reader->accounts;
	uint32_t generation = __atomic_load_n(&accounts->words->generation, __ATOMIC_ACQUIRE);
	struct cpu_slot slot;

	for (uint32_t cpu = 0; cpu < accounts->cpus; cpu++)
		if (reader->runs[cpu].account != CPU_ACCOUNT_NONE)
			reader->running[reader->runs[cpu].account] = NO_RUN;
	for (uint32_t cpu = 0; cpu < accounts->cpus; cpu++) {
		struct run *run = &reader->runs[cpu];

		if (!cpu_accounts_slot(accounts, cpu, &slot)) {
			run->account = CPU_ACCOUNT_NONE;
			continue;
		}
		*run = (struct run){
			.sequence = slot.sequence,
			.since_ns = slot.since_ns,
			.generation = generation,
			.account = account_of(accounts, &slot, run, generation),
		};
		if (run->account == CPU_ACCOUNT_NONE)
			continue;
		run->next = reader->running[run->account];
		reader->running[run->account] = cpu + 1;
		changed(ctx, run->account);
	}
}

static bool take_log(struct cpu_accounts_reader *reader, uint32_t cpu, void (*changed)(void *ctx, uint32_t account),
		     void *ctx)
{
	const struct cpu_accounts *accounts = reader->accounts;
	const volatile uint64_t *log = accounts->logs + (size_t)cpu * accounts->log_length;
	uint64_t logged = load(&accounts->slots[cpu].logged);
	bool whole = logged - reader->taken[cpu] <= accounts->log_length;

	for (uint64_t i = whole ? reader->taken[cpu] : logged; i != logged; i++) {
		uint64_t account = log[i & (accounts->log_length - 1)];

		if (account < accounts->capacity)
			changed(ctx, (uint32_t)account);
	}
	reader->taken[cpu] = logged;
	return whole;
}

bool cpu_accounts_reader_begin(struct cpu_accounts_reader *reader, void (*changed)(void *ctx, uint32_t account),
			       void *ctx)
{
	bool whole = true;

	__atomic_fetch_add(&reader->accounts->words->epoch, 1, __ATOMIC_SEQ_CST);
	for (uint32_t cpu = 0; cpu < reader->accounts->cpus; cpu++)
		whole &= take_log(reader, cpu, changed, ctx);
	find_runs(reader, changed, ctx);
	return whole;
}

/* Whether it has not begun to end. One that is ending is waited for, so that it is in the account. */
static bool goes_on(const struct cpu_accounts *accounts, uint32_t cpu, uint64_t sequence)
{
	for (int i = 0; i < CPU_SLOT_TRIES; i++) {
		uint64_t now = load(&accounts->slots[cpu].sequence);

		if (now != sequence + 1)
			return now == sequence;
	}
	return false;
}

static uint64_t runs_ns(const struct cpu_accounts_reader *reader, uint32_t account, mono_t now, bool *ret_any)
{
	uint64_t sum_ns = 0;

	*ret_any = false;
	for (uint32_t at = reader->running[account]; at != NO_RUN; at = reader->runs[at - 1].next) {
		const struct run *run = &reader->runs[at - 1];

		if (!goes_on(reader->accounts, at - 1, run->sequence))
			continue;
		*ret_any = true;
		if (now.ns > run->since_ns)
			sum_ns += now.ns - run->since_ns;
	}
	return sum_ns;
}

void cpu_accounts_reader_use(const struct cpu_accounts_reader *reader, uint32_t account, mono_t now,
			     struct cpu_accounts_use *ret)
{
	const volatile struct cpu_account *sum = &reader->accounts->accounts[account];
	uint64_t ended_ns, going_ns;

	/* A run that ended in between is in neither of the first two: then once more. */
	do {
		ended_ns = load(&sum->run_ns);
		going_ns = runs_ns(reader, account, now, &ret->runs);
		atomic_thread_fence(memory_order_acquire);
	} while (load(&sum->run_ns) != ended_ns);
	ret->cpu_ns = reader->accounts->base_ns[account] + ended_ns + going_ns;
	ret->wait_ns = load(&sum->wait_ns);
	ret->changes = load(&sum->changes);
	ret->ended = sum->exited != 0;
	ret->lost = sum->lost != 0;
}
