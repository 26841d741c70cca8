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
 * has the sequence of before, after the account was read, is of a run that is not in what was read. A host may stop
 * a CPU while its slot is being written: then it is not known what that has added yet, nothing is said of
 * the account, and it is changed again the next time.
 *
 * Cgroups. The sum of a watched cgroup is that of its cells and of those of all watched ones below it. A cell that was
 * logged, or whose CPU has ended the run that went on, is read again, and what it has more is added to its
 * cgroup and those above. Only the cell of that CPU: that of another one may already have what still counts
 * as going on there. Cells are read after slots, so that a run that ends in between is in one of them. The tree is
 * copied when its version has changed.
 *
 * What ran when. The length of the log of runs is read, then the slot, then the length again: if that is the same, what
 * went on is not in the log. A run has the time of its beginning and how long it was by the scheduler, which takes out
 * interrupts: so its end may be some microseconds early. That only moves time from one tick to the one before, as what
 * was used in all is what the account says.
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
	uint32_t tid;
	bool stuck;     /* the slot could not be read: perhaps of that account and group */
	uint32_t next;  /* another CPU on which the account's process runs, from 1 on; NO_RUN */
	uint32_t group; /* the watched cgroup; CPU_ACCOUNT_NONE */
	uint32_t from;  /* the one in which it was before it was moved, for so long; CPU_ACCOUNT_NONE */
	uint64_t group_since_ns, from_ns;
};

/* A watched cgroup. */
struct group_sum {
	struct cpu_group is;
	uint64_t own_ns;   /* of its cells */
	uint64_t total_ns; /* and of those below it */
	uint32_t ran;      /* the last begin that saw something of it run */
};

/* How far the log of a CPU was gone through, and the run that went on there when it was looked back. */
struct past {
	uint64_t taken, logged;
	struct cpu_run going; /* both CPU_ACCOUNT_NONE: of nothing watched */
	uint32_t tid;
};

/* The arrays are behind it, in one block. */
struct cpu_accounts_reader {
	const struct cpu_accounts *accounts;
	uint64_t *taken;   /* of each log */
	struct run *runs;  /* of each CPU */
	struct past *past; /* the same */
	mono_t told_until; /* of this round */
	bool in_round;
	uint32_t *running; /* of each account: a CPU, from 1 on; NO_RUN */
	struct group_sum *groups;
	uint64_t *cells_ns;     /* of each cell: what was added */
	uint32_t group_version; /* as copied; odd: it is not known */
	uint32_t group_count;   /* the same */
	uint32_t begins;
};

static uint64_t load(const volatile uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* ---- cgroups ---- */

/* Those above it, and itself. group: of a copied tree, or CPU_ACCOUNT_NONE. */
#define FOR_EACH_ABOVE(at, group, reader) \
	for (uint32_t at = (group); at < (reader)->group_count; at = (reader)->groups[at].is.parent)

static bool is_below(const struct cpu_accounts_reader *reader, uint32_t group, uint32_t above)
{
	FOR_EACH_ABOVE(at, group, reader)
	if (at == above)
		return true;
	return false;
}

static void copy_group(struct cpu_group *to, struct cpu_group *from)
{
	to->base_ns = __atomic_load_n(&from->base_ns, __ATOMIC_RELAXED);
	to->parent = __atomic_load_n(&from->parent, __ATOMIC_RELAXED);
	to->generation = __atomic_load_n(&from->generation, __ATOMIC_RELAXED);
	to->lost = __atomic_load_n(&from->lost, __ATOMIC_RELAXED);
}

static void copy_tree(struct cpu_accounts_reader *reader)
{
	const struct cpu_accounts *accounts = reader->accounts;
	uint32_t version = atomic_load_explicit(&accounts->group_version, memory_order_acquire);

	if (version == reader->group_version)
		return;

	reader->group_count = 0;
	reader->group_version = 1;

	uint32_t count = atomic_load_explicit(&accounts->group_count, memory_order_acquire);

	for (uint32_t i = 0; i < count; i++) {
		copy_group(&reader->groups[i].is, &accounts->groups[i]);
		reader->groups[i].total_ns = 0;
	}
	atomic_thread_fence(memory_order_acquire);
	if (version & 1 || atomic_load_explicit(&accounts->group_version, memory_order_relaxed) != version)
		return;

	reader->group_version = version;
	reader->group_count = count;
	for (uint32_t i = 0; i < count; i++)
		FOR_EACH_ABOVE(at, i, reader)
	reader->groups[at].total_ns += reader->groups[i].own_ns;
}

static void take_cell(struct cpu_accounts_reader *reader, uint32_t cpu, uint32_t group)
{
	size_t at_cell = (size_t)cpu * reader->accounts->group_capacity + group;
	uint64_t now_ns = load(&reader->accounts->cells[at_cell].run_ns), more_ns = now_ns - reader->cells_ns[at_cell];

	reader->cells_ns[at_cell] = now_ns;
	reader->groups[group].own_ns += more_ns;
	FOR_EACH_ABOVE(at, group, reader)
	reader->groups[at].total_ns += more_ns;
}

int cpu_accounts_reader_new(const struct cpu_accounts *accounts, struct cpu_accounts_reader **ret)
{
	size_t groups = accounts->group_capacity + 1u, cells = (size_t)accounts->group_capacity * accounts->cpus;
	AUTO(cpu_accounts_reader_freep)
	struct cpu_accounts_reader *reader = calloc(
		1, sizeof(*reader) + groups * sizeof(reader->groups[0]) +
			   accounts->cpus *
				   (sizeof(reader->runs[0]) + sizeof(reader->past[0]) + sizeof(reader->taken[0])) +
			   cells * sizeof(reader->cells_ns[0]) + accounts->capacity * sizeof(reader->running[0]));
	if (!reader)
		return -ENOMEM;

	reader->accounts = accounts;
	reader->groups = (struct group_sum *)(reader + 1);
	reader->runs = (struct run *)(reader->groups + groups);
	reader->past = (struct past *)(reader->runs + accounts->cpus);
	reader->taken = (uint64_t *)(reader->past + accounts->cpus);
	reader->cells_ns = reader->taken + accounts->cpus;
	reader->running = (uint32_t *)(reader->cells_ns + cells);
	reader->group_version = 1;

	for (uint32_t cpu = 0; cpu < accounts->cpus; cpu++) {
		reader->taken[cpu] = accounts->slots ? load(&accounts->slots[cpu].logged) : 0;
		for (uint32_t i = 0; i < atomic_load(&accounts->group_count); i++)
			take_cell(reader, cpu, i);
		reader->runs[cpu] = (struct run){ .sequence = UINT64_MAX,
						  .account = CPU_ACCOUNT_NONE,
						  .group = CPU_ACCOUNT_NONE,
						  .from = CPU_ACCOUNT_NONE };
	}
	*ret = TAKE(reader);
	return 0;
}

void cpu_accounts_reader_free(struct cpu_accounts_reader *reader)
{
	free(reader);
}

static void tell_of_group(const struct cpu_accounts_reader *reader, uint32_t group,
			  void (*changed)(void *ctx, uint32_t account), void *ctx)
{
	FOR_EACH_ABOVE(at, group, reader)
	changed(ctx, reader->accounts->capacity + at);
}

/* It may be another one by now: then what runs is in none that is known, until the run ends. */
static uint32_t group_of(const struct cpu_accounts_reader *reader, const struct cpu_slot *slot)
{
	if (slot->group >= reader->group_count ||
	    (int32_t)(slot->group_generation - reader->groups[slot->group].is.generation) < 0)
		return CPU_ACCOUNT_NONE;
	return slot->group;
}

static void find_group(struct cpu_accounts_reader *reader, const struct cpu_slot *slot, struct run *run)
{
	run->group = run->from = CPU_ACCOUNT_NONE;
	run->group_since_ns = slot->since_ns;
	if (slot->tid == 0 || slot->tid == CPU_SLOT_UNKNOWN || reader->accounts->words->groups == 0)
		return;

	run->group = group_of(reader, slot);
	if (slot->moved_sequence == slot->sequence) {
		run->from = slot->moved_from;
		run->from_ns = slot->moved_first_ns > slot->since_ns ? slot->moved_first_ns - slot->since_ns : 0;
		run->group = slot->moved_to;
		run->group_since_ns = slot->moved_last_ns;
	}
	FOR_EACH_ABOVE(at, run->group, reader)
	reader->groups[at].ran = reader->begins;
	FOR_EACH_ABOVE(at, run->from, reader)
	reader->groups[at].ran = reader->begins;
}

/* ---- what changed ---- */

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

/* A thread is in two slots if the switch away from it was hidden: then where it came last is where it runs. */
static void add_run(struct cpu_accounts_reader *reader, uint32_t cpu)
{
	struct run *run = &reader->runs[cpu];
	uint32_t *at = &reader->running[run->account];

	while (*at != NO_RUN) {
		struct run *other = &reader->runs[*at - 1];

		if (other->tid != run->tid || other->stuck || run->stuck) {
			at = &other->next;
		} else if (other->since_ns >= run->since_ns) {
			run->account = run->group = run->from = CPU_ACCOUNT_NONE;
			return;
		} else {
			other->account = other->group = other->from = CPU_ACCOUNT_NONE;
			*at = other->next;
		}
	}
	*at = cpu + 1;
}

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
		bool stuck = !cpu_accounts_slot(accounts, cpu, &slot);

		*run = (struct run){
			.sequence = slot.sequence,
			.since_ns = slot.since_ns,
			.generation = generation,
			.account = account_of(accounts, &slot, run, generation),
			.tid = slot.tid,
			.stuck = stuck,
		};
		find_group(reader, &slot, run);
		tell_of_group(reader, run->group, changed, ctx);
		tell_of_group(reader, run->from, changed, ctx);
		if (run->account == CPU_ACCOUNT_NONE)
			continue;
		changed(ctx, run->account);
		add_run(reader, cpu);
	}
}

/* What cpu_accounts_reader_use reads of a process. */
static void fetch(const struct cpu_accounts_reader *reader, uint64_t account)
{
	const struct cpu_accounts *accounts = reader->accounts;

	if (account >= accounts->capacity)
		return;
	__builtin_prefetch((const void *)(uintptr_t)&accounts->accounts[account]);
	__builtin_prefetch(&accounts->base_ns[account]);
	__builtin_prefetch(&reader->running[account]);
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

		fetch(reader, account);
		if (account < accounts->capacity) {
			changed(ctx, (uint32_t)account);
		} else if (account - accounts->capacity < accounts->group_capacity) {
			take_cell(reader, cpu, (uint32_t)account - accounts->capacity);
			tell_of_group(reader, (uint32_t)account - accounts->capacity, changed, ctx);
		}
	}
	for (uint32_t i = 0; !whole && i < reader->group_count; i++)
		take_cell(reader, cpu, i);
	reader->taken[cpu] = logged;
	return whole;
}

/* What ran until now is none of a later round. */
static bool end_round(struct cpu_accounts_reader *reader)
{
	reader->in_round = false;
	for (uint32_t cpu = 0; cpu < reader->accounts->cpus; cpu++)
		reader->past[cpu].taken = load(&reader->accounts->runs[cpu].logged);
	return false;
}

bool cpu_accounts_reader_begin(struct cpu_accounts_reader *reader, void (*changed)(void *ctx, uint32_t account),
			       void *ctx)
{
	bool whole = true;

	reader->begins++;
	if (reader->accounts->words->runs_wanted)
		end_round(reader);
	copy_tree(reader);
	__atomic_fetch_add(&reader->accounts->words->epoch, 1, __ATOMIC_SEQ_CST);
	find_runs(reader, changed, ctx);
	for (uint32_t cpu = 0; cpu < reader->accounts->cpus; cpu++)
		whole &= take_log(reader, cpu, changed, ctx);
	return whole;
}

/* Whether it has not begun to end. One that is ending is waited for, so that it is in the account. */
static bool goes_on(const struct cpu_accounts *accounts, uint32_t cpu, const struct run *run, bool *unknown)
{
	for (int i = 0; !run->stuck && i < CPU_SLOT_TRIES; i++) {
		uint64_t now = load(&accounts->slots[cpu].sequence);

		if (now != run->sequence + 1)
			return now == run->sequence;
	}
	*unknown = true;
	return false;
}

static void add_runs(const struct cpu_accounts_reader *reader, uint32_t account, mono_t now,
		     struct cpu_accounts_use *ret)
{
	ret->going_ns = 0;
	ret->runs = ret->unknown = false;
	for (uint32_t at = reader->running[account]; at != NO_RUN; at = reader->runs[at - 1].next) {
		const struct run *run = &reader->runs[at - 1];

		if (!goes_on(reader->accounts, at - 1, run, &ret->unknown))
			continue;
		ret->runs = true;
		if (now.ns > run->since_ns)
			ret->going_ns += now.ns - run->since_ns;
	}
}

static void use_of_process(const struct cpu_accounts_reader *reader, uint32_t account, mono_t now,
			   struct cpu_accounts_use *ret)
{
	const volatile struct cpu_account *sum = &reader->accounts->accounts[account];
	uint64_t ended_ns;

	/* A run that ended in between is in neither of the first two: then once more. */
	do {
		ended_ns = load(&sum->run_ns);
		add_runs(reader, account, now, ret);
		atomic_thread_fence(memory_order_acquire);
	} while (load(&sum->run_ns) != ended_ns);
	ret->cpu_ns = reader->accounts->base_ns[account] + ended_ns + ret->going_ns;
	ret->wait_ns = load(&sum->wait_ns);
	ret->changes = load(&sum->changes);
	ret->ended = sum->exited != 0;
	ret->lost = sum->lost != 0;
}

/* Of a run that went on, what is in the cgroup and in no cell. One that has ended is in the cells from now on. */
static uint64_t run_ns_in(struct cpu_accounts_reader *reader, uint32_t cpu, uint32_t group, mono_t now, bool *unknown)
{
	struct run *run = &reader->runs[cpu];
	bool now_in = is_below(reader, run->group, group), was_in = is_below(reader, run->from, group);
	uint64_t sum_ns = was_in ? run->from_ns : 0;

	if (!now_in && !was_in)
		return 0;
	if (!goes_on(reader->accounts, cpu, run, unknown)) {
		if (*unknown)
			return 0;
		if (run->group < reader->group_count)
			take_cell(reader, cpu, run->group);
		if (run->from < reader->group_count)
			take_cell(reader, cpu, run->from);
		run->group = run->from = CPU_ACCOUNT_NONE;
		return 0;
	}
	if (now_in && now.ns > run->group_since_ns)
		sum_ns += now.ns - run->group_since_ns;
	return sum_ns;
}

static void use_of_group(struct cpu_accounts_reader *reader, uint32_t group, mono_t now, struct cpu_accounts_use *ret)
{
	uint64_t going_ns = 0;

	ret->lost = group < reader->group_count && reader->groups[group].is.lost;
	ret->unknown = group >= reader->group_count || ret->lost;
	if (ret->unknown)
		return;
	for (uint32_t cpu = 0; reader->groups[group].ran == reader->begins && cpu < reader->accounts->cpus; cpu++)
		going_ns += run_ns_in(reader, cpu, group, now, &ret->unknown);
	ret->cpu_ns = reader->groups[group].is.base_ns + reader->groups[group].total_ns + going_ns;
}

void cpu_accounts_reader_use(struct cpu_accounts_reader *reader, uint32_t account, mono_t now,
			     struct cpu_accounts_use *ret)
{
	*ret = (struct cpu_accounts_use){ .cpu_ns = 0 };
	if (account < reader->accounts->capacity)
		use_of_process(reader, account, now, ret);
	else
		use_of_group(reader, account - reader->accounts->capacity, now, ret);
}

/* ---- what ran when ---- */

static const struct cpu_run no_run = { .account = CPU_ACCOUNT_NONE, .group = CPU_ACCOUNT_NONE };

/* One that was moved between cgroups is told of in none of them: what they have used in all says it. */
static struct cpu_run run_of_slot(struct cpu_accounts_reader *reader, const struct cpu_slot *slot, uint32_t cpu,
				  uint32_t generation)
{
	struct cpu_run run = no_run;

	if (slot->tid == 0 || slot->tid == CPU_SLOT_UNKNOWN)
		return run;
	run.since_ns = slot->since_ns;
	run.account = account_of(reader->accounts, slot, &reader->runs[cpu], generation);
	if (reader->accounts->words->groups > 0 && slot->moved_sequence != slot->sequence)
		run.group = group_of(reader, slot);
	return run;
}

static void look_back_on(struct cpu_accounts_reader *reader, uint32_t cpu, uint32_t generation)
{
	const struct cpu_accounts *accounts = reader->accounts;
	struct past *past = &reader->past[cpu];
	struct cpu_slot slot;

	past->going = no_run;
	past->tid = 0;
	for (int i = 0; i < CPU_SLOT_TRIES; i++) {
		past->logged = load(&accounts->runs[cpu].logged);
		if (!cpu_accounts_slot(accounts, cpu, &slot))
			return;
		if (load(&accounts->runs[cpu].logged) != past->logged)
			continue;
		past->going = run_of_slot(reader, &slot, cpu, generation);
		past->tid = slot.tid;
		return;
	}
}

/* A thread is in two slots if the switch away from it was hidden: it runs where it came last (see add_run). */
static void forget_hidden(struct cpu_accounts_reader *reader)
{
	uint32_t cpus = reader->accounts->cpus;

	for (uint32_t i = 0; i < cpus; i++)
		for (uint32_t other = 0; reader->past[i].tid != 0 && other < cpus; other++)
			if (other != i && reader->past[other].tid == reader->past[i].tid &&
			    reader->past[other].going.since_ns > reader->past[i].going.since_ns)
				reader->past[i].going = no_run;
}

/* As one has it that is written still: then the oldest place is not to be read. */
static bool is_remembered(const struct cpu_accounts_reader *reader, uint32_t cpu)
{
	return load(&reader->accounts->runs[cpu].logged) - reader->past[cpu].taken < CPU_RUNS_LENGTH;
}

static bool look_back(struct cpu_accounts_reader *reader)
{
	uint32_t generation = __atomic_load_n(&reader->accounts->words->generation, __ATOMIC_ACQUIRE);

	reader->told_until = (mono_t){ 0 };
	copy_tree(reader);
	for (uint32_t cpu = 0; cpu < reader->accounts->cpus; cpu++) {
		look_back_on(reader, cpu, generation);
		if (!is_remembered(reader, cpu))
			return end_round(reader);
	}
	forget_hidden(reader);
	return true;
}

struct listener {
	void (*ran)(void *ctx, const struct cpu_accounts_part *part);
	void *ctx;
};

static void tell_part(const struct cpu_accounts_reader *reader, const struct cpu_run *run, mono_t end, mono_t until,
		      const struct listener *listener)
{
	struct cpu_accounts_part part = {
		.account = run->account,
		.from = { run->since_ns > reader->told_until.ns ? run->since_ns : reader->told_until.ns },
		.to = end.ns < until.ns ? end : until,
		.wait_ns = end.ns <= until.ns ? run->wait_ns : 0,
	};

	if (part.from.ns >= part.to.ns)
		return;
	if (run->account < reader->accounts->capacity)
		listener->ran(listener->ctx, &part);
	FOR_EACH_ABOVE(at, run->group, reader)
	{
		part.account = reader->accounts->capacity + at;
		listener->ran(listener->ctx, &part);
	}
}

static void tell_log(struct cpu_accounts_reader *reader, uint32_t cpu, mono_t until, const struct listener *listener)
{
	const volatile struct cpu_run_log *log = &reader->accounts->runs[cpu];
	struct past *past = &reader->past[cpu];

	while (past->taken != past->logged) {
		struct cpu_run run = log->runs[past->taken % CPU_RUNS_LENGTH];
		mono_t end = { run.since_ns + run.run_ns };

		if (run.since_ns >= until.ns)
			return;
		tell_part(reader, &run, end, until, listener);
		if (end.ns > until.ns)
			return;
		past->taken++;
	}
	if (past->going.since_ns < until.ns)
		tell_part(reader, &past->going, (mono_t){ UINT64_MAX }, until, listener);
}

bool cpu_accounts_reader_ran_until(struct cpu_accounts_reader *reader, mono_t until,
				   void (*ran)(void *ctx, const struct cpu_accounts_part *part), void *ctx)
{
	const struct listener listener = { ran, ctx };

	if (!reader->in_round && !look_back(reader))
		return false;
	reader->in_round = true;
	for (uint32_t cpu = 0; cpu < reader->accounts->cpus; cpu++) {
		uint64_t taken = reader->past[cpu].taken;

		tell_log(reader, cpu, until, &listener);
		atomic_thread_fence(memory_order_acquire);
		if (load(&reader->accounts->runs[cpu].logged) - taken >= CPU_RUNS_LENGTH)
			return end_round(reader);
	}
	reader->told_until = until;
	return true;
}
