/*
 * waited_times.c: accounts of parents in a map by pid, and in a list by when they last lost a child.
 *
 * An account begins with the first exit that is seen of a child. What its parent had waited for by
 * then is its opening balance: nothing if that is proven by the page faults, which are shown exactly,
 * else as much as stat may not show is added, so that nothing is handed out that is not certain.
 * A parent that ends takes its account with it: what it has waited for
 * is part of what its own parent then waits for.
 *
 * Times are read between two events, so a child may be known here and not be waited for yet, or the
 * other way round: then the account is overdrawn, or too full, for a moment. Parts that were handed
 * out too early are made up for by the next ones.
 *
 * What is never handed out: more than can be missing in the records of the children that ended of
 * late. A jump beyond that comes from a child whose end, or whose own waiting, was not seen: it
 * belongs to the opening balance. An account that is still overdrawn when its last child was waited
 * for is of a parent that does not wait for all of its children: it is balanced as well.
 */
#include "daemon/engine/targets/waited_times.h"

#include "daemon/engine/base/proc_read.h"
#include "lib/base/map.h"
#include "lib/proc/procfs.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <unistd.h>

#define ACCOUNTS_MAX 512u

#define STAT_MAX 1024

#define FAULTS_AFTER_RECORD 4

/* No process has waited for more: ninety years of a CPU. */
#define WAITED_MAX (UINT64_C(1) << 38)

/* How often stat of a parent is read: 3 us each. */
#define READ_NS (4 * NS_PER_MS)

/* The pauses after the last child at which what is left over is handed out, each a part of it. */
#define SETTLE_NS (10 * NS_PER_MS)
#define SETTLE_MAX_NS (2 * NS_PER_S)

/*
 * No more is handed out at a time: what a parent that waits late may have of twenty children or
 * more. A jump as small as that may be of a child that had waited for children before it was known.
 */
#define LIMIT_MAX_NS (250 * NS_PER_MS)

/* How long a jump is believed to come from an exit that will be known in a moment. */
#define JUMP_NS (100 * NS_PER_MS)

struct account {
	struct map_node node;
	TAILQ_ENTRY(account) all; /* the one that lost a child last is the last */
	int32_t pid;
	uint64_t start_ticks;
	int64_t opening_ns;   /* waited for before, as it was shown */
	uint64_t hidden_ns;   /* and what was not shown of it, at most */
	bool may_be_new;      /* it may have waited for no others: then that is nothing */
	uint64_t faults;      /* minor, of children, with theirs */
	uint64_t known_ns;    /* of children, with theirs: records and parts */
	uint64_t owed_ns;     /* missing, and not handed out yet */
	uint64_t part_ns;     /* of it, for each child */
	uint64_t limit_ns;    /* what can be missing of the children that ended of late */
	uint64_t children;    /* since something was missing */
	uint64_t groups;      /* of these, */
	bool mixed;           /* but not of all of them */
	uint64_t owed_groups; /* of those of which it is missing */
	mono_t jumped;        /* since when more is missing than can be; 0: it is not */
	mono_t read, ended;   /* stat; the last child */
	mono_t due;           /* the next settlement; 0: there is none */
	int32_t last_pid;     /* the last child */
	uint64_t last_groups;
};

TAILQ_HEAD(account_list, account);

struct waited_times {
	int procfd;
	uint64_t tick_ns, grain_ns; /* two times are shown, each less than a tick below the truth */
	struct map accounts;        /* of parents, by pid */
	struct account_list used, unused;
	struct account slots[ACCOUNTS_MAX];
};

/* ---- accounts ---- */

static uint64_t hash_pid(int32_t pid)
{
	return map_hash(&pid, sizeof pid);
}

static struct account *find_account(const struct waited_times *times, int32_t pid)
{
	for (struct map_node *node = map_first(&times->accounts, hash_pid(pid)); node; node = map_next(node)) {
		struct account *account = MAP_ENTRY(node, struct account, node);

		if (account->pid == pid)
			return account;
	}

	return NULL;
}

static void close_account(struct waited_times *times, struct account *account)
{
	map_remove(&times->accounts, &account->node);
	TAILQ_REMOVE(&times->used, account, all);
	TAILQ_INSERT_HEAD(&times->unused, account, all);
}

/* What stat says of a parent. */
struct waited {
	uint64_t start_ticks;
	uint64_t shown_ns; /* of what it has waited for: at most two ticks less */
	uint64_t faults;   /* minor, of the same processes: exact */
};

/* False: the process is gone. */
static bool read_waited(const struct waited_times *times, int32_t pid, struct waited *ret)
{
	char text[STAT_MAX];
	struct procfs_stat stat;
	ssize_t len = proc_read_file(times->procfd, pid, "stat", text, sizeof text);

	if (len < 0 || procfs_stat_parse(text, (size_t)len, &stat) < 0 || stat.waited_ticks > WAITED_MAX)
		return false;

	*ret = (struct waited){
		.start_ticks = stat.start_ticks,
		.shown_ns = stat.waited_ticks * times->tick_ns,
		.faults = stat.waited_minor_faults,
	};

	return true;
}

/* Reads the times of its parent. False: it has ended, and what is known is still of use. */
static bool read_account(const struct waited_times *times, const struct account *account, struct waited *ret)
{
	return read_waited(times, account->pid, ret) && ret->start_ticks == account->start_ticks;
}

/* What a process that ended had waited for itself. */
struct inheritance {
	uint64_t waited_ns;  /* as far as it is known, and what may be of others */
	uint64_t missing_ns; /* in that, at most */
	uint64_t rest_ns;    /* of it, what was missing and not handed out yet */
	uint64_t faults;     /* of those that it had waited for */
};

/*
 * The faults of all that it has waited for are those of the children that are known: there were no
 * others. Any other one would have had more than these few, which may happen after the record.
 */
static void learn_whether_new(struct account *account, const struct waited *waited)
{
	int64_t others = (int64_t)(waited->faults - account->faults);

	if (others < -FAULTS_AFTER_RECORD || others > FAULTS_AFTER_RECORD)
		return;

	account->may_be_new = false;
	account->opening_ns = 0;
	account->hidden_ns = 0;
}

/* NULL: the parent is gone. */
static struct account *open_account(struct waited_times *times, const struct waited_child *child,
				    const struct inheritance *own)
{
	uint64_t its_ns = child->gone ? child->cpu_ns + own->waited_ns : 0;
	struct waited waited;

	if (!read_waited(times, child->parent_pid, &waited))
		return NULL;
	if (TAILQ_EMPTY(&times->unused))
		close_account(times, TAILQ_FIRST(&times->used));

	struct account *account = TAILQ_FIRST(&times->unused);

	TAILQ_REMOVE(&times->unused, account, all);
	TAILQ_INSERT_TAIL(&times->used, account, all);
	*account = (struct account){
		.all = account->all,
		.pid = child->parent_pid,
		.start_ticks = waited.start_ticks,
		.opening_ns = (int64_t)waited.shown_ns - (int64_t)its_ns,
		.hidden_ns = times->grain_ns,
		.may_be_new = waited.shown_ns <= its_ns + child->missing_ns + own->missing_ns + times->grain_ns,
	};
	learn_whether_new(account, &waited);
	map_insert(&times->accounts, &account->node, hash_pid(account->pid));

	return account;
}

/* ---- the balance ---- */

static void raise_limit(struct account *account, uint64_t by_ns)
{
	account->limit_ns += by_ns;
	account->limit_ns = account->limit_ns < LIMIT_MAX_NS ? account->limit_ns : LIMIT_MAX_NS;
}

/*
 * Of children that count in different groups it is not known in which ones it is missing: then it
 * counts in none. Those that count nowhere have their parts like others.
 */
static void add_missing(struct account *account, uint64_t missing_ns)
{
	account->limit_ns -= missing_ns < account->limit_ns ? missing_ns : account->limit_ns;
	if (account->mixed) {
		account->known_ns += missing_ns;
		account->children = 0;
		return;
	}
	if (account->groups && account->owed_groups != account->groups) {
		account->known_ns += account->owed_ns;
		account->owed_ns = 0;
		account->owed_groups = account->groups;
	}
	account->owed_ns += missing_ns;
	account->part_ns = account->owed_ns / (account->children ? account->children : 1) + 1;
	account->children = 0;
}

static void take_from_owed(struct account *account, uint64_t surplus_ns)
{
	surplus_ns = surplus_ns < account->owed_ns ? surplus_ns : account->owed_ns;
	account->owed_ns -= surplus_ns;
	raise_limit(account, surplus_ns);
}

/* What was waited for is explained by what is known and by others: these are as many as can be. */
static void balance_by_opening(const struct waited_times *times, struct account *account, int64_t missing_ns)
{
	account->opening_ns += missing_ns + (int64_t)account->hidden_ns;
	account->hidden_ns = times->grain_ns;
	account->may_be_new = false;
}

/* Compares with what is shown. The balance, ns: what is missing, or, less than 0, not shown. */
static int64_t balance_account(const struct waited_times *times, struct account *account, uint64_t shown_ns, mono_t now)
{
	int64_t missing_ns = (int64_t)shown_ns - account->opening_ns -
			     (int64_t)(account->hidden_ns + account->known_ns + account->owed_ns);

	if (missing_ns > (int64_t)(account->limit_ns + times->grain_ns)) {
		if (account->jumped.ns == 0)
			account->jumped = now;
		if (mono_diff(now, account->jumped) < (int64_t)JUMP_NS)
			return missing_ns;
		balance_by_opening(times, account, missing_ns);
		missing_ns = 0;
	}
	account->jumped = (mono_t){ 0 };
	if (missing_ns > 0)
		add_missing(account, (uint64_t)missing_ns);
	else
		take_from_owed(account, (uint64_t)-missing_ns);

	return missing_ns;
}

static uint64_t hand_out(struct account *account, uint64_t groups, uint64_t most_ns)
{
	uint64_t part_ns = most_ns < account->owed_ns ? most_ns : account->owed_ns;

	if (groups && groups != account->owed_groups)
		return 0;

	account->owed_ns -= part_ns;
	account->known_ns += part_ns;

	return part_ns;
}

/* ---- children ---- */

static struct inheritance close_account_of(struct waited_times *times, const struct waited_child *child)
{
	struct account *account = find_account(times, child->pid);
	struct inheritance own = { 0 };
	int64_t waited_ns;

	if (!account)
		return own;

	own.rest_ns = hand_out(account, child->groups, UINT64_MAX);
	account->known_ns += account->owed_ns; /* of groups that this child is not in */
	own.missing_ns = account->limit_ns;
	own.faults = account->faults;
	waited_ns = account->opening_ns + (int64_t)(account->hidden_ns + account->known_ns);
	own.waited_ns = waited_ns > 0 ? (uint64_t)waited_ns : 0;
	close_account(times, account);

	return own;
}

static void enter_child(struct waited_times *times, struct account *account, const struct waited_child *child,
			const struct inheritance *own, mono_t now)
{
	account->known_ns += child->cpu_ns + own->waited_ns;
	account->faults += child->faults + own->faults;
	raise_limit(account, child->missing_ns + own->missing_ns);
	if (account->children++ == 0) {
		account->groups = 0;
		account->mixed = false;
	}
	account->mixed |= child->groups && account->groups && account->groups != child->groups;
	account->groups = child->groups ? child->groups : account->groups;
	account->last_pid = child->pid;
	account->last_groups = child->groups;
	account->ended = now;
	account->due = mono_add(now, SETTLE_NS);
	TAILQ_REMOVE(&times->used, account, all);
	TAILQ_INSERT_TAIL(&times->used, account, all);
}

uint64_t waited_times_child(struct waited_times *times, const struct waited_child *child, mono_t now)
{
	struct inheritance own = close_account_of(times, child);
	struct waited waited;
	struct account *account = child->parent_pid > 0 ? find_account(times, child->parent_pid) : NULL;

	if (!account && child->parent_pid > 0 && child->groups)
		account = open_account(times, child, &own);
	if (!account)
		return own.rest_ns;

	enter_child(times, account, child, &own, now);
	if (mono_diff(now, account->read) >= (int64_t)READ_NS) {
		account->read = now;
		if (read_account(times, account, &waited)) {
			if (account->may_be_new && child->gone)
				learn_whether_new(account, &waited);
			balance_account(times, account, waited.shown_ns, now);
		}
	}

	return own.rest_ns + hand_out(account, child->groups, account->part_ns);
}

/* ---- what is left over ---- */

static bool is_gone(const struct waited_times *times, int32_t pid)
{
	struct waited waited;

	return !read_waited(times, pid, &waited);
}

static void settle_account(struct waited_times *times, struct account *account, mono_t now,
			   void (*credit)(void *ctx, uint64_t groups, uint64_t cpu_ns), void *ctx)
{
	struct waited waited;
	uint64_t left_ns, passed_ns = (uint64_t)mono_diff(now, account->ended);
	int64_t missing_ns;

	if (!read_account(times, account, &waited)) {
		account->due = (mono_t){ 0 }; /* its own end is still to be known */
		return;
	}
	if (account->may_be_new && is_gone(times, account->last_pid))
		learn_whether_new(account, &waited);
	missing_ns = balance_account(times, account, waited.shown_ns, now);
	if (missing_ns < -(int64_t)times->grain_ns && is_gone(times, account->last_pid))
		balance_by_opening(times, account, missing_ns);
	left_ns = hand_out(account, account->last_groups,
			   passed_ns < 4 * SETTLE_NS ? (account->owed_ns + 1) / 2 : UINT64_MAX);
	if (left_ns && account->last_groups)
		credit(ctx, account->last_groups, left_ns);
	account->due = passed_ns < SETTLE_MAX_NS ? mono_add(now, passed_ns > SETTLE_NS ? passed_ns : SETTLE_NS)
						 : (mono_t){ 0 };
}

void waited_times_settle(struct waited_times *times, mono_t now,
			 void (*credit)(void *ctx, uint64_t groups, uint64_t cpu_ns), void *ctx)
{
	struct account *account;

	TAILQ_FOREACH(account, &times->used, all)
	if (account->due.ns && mono_diff(now, account->due) >= 0)
		settle_account(times, account, now, credit, ctx);
}

void waited_times_forget_groups(struct waited_times *times)
{
	struct account *account;

	TAILQ_FOREACH(account, &times->used, all)
	account->last_groups = 0;
}

bool waited_times_due(const struct waited_times *times, mono_t *ret)
{
	const struct account *account;
	bool found = false;

	TAILQ_FOREACH(account, &times->used, all)
	{
		if (!account->due.ns || (found && mono_diff(account->due, *ret) >= 0))
			continue;
		*ret = account->due;
		found = true;
	}

	return found;
}

/* ---- new, free ---- */

int waited_times_new(int procfd, struct waited_times **ret)
{
	struct waited_times *times = calloc(1, sizeof *times);

	if (!times || map_reserve(&times->accounts, ACCOUNTS_MAX) < 0) {
		free(times);
		return -ENOMEM;
	}

	times->procfd = procfd;
	times->tick_ns = NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
	times->grain_ns = 2 * times->tick_ns;
	TAILQ_INIT(&times->used);
	TAILQ_INIT(&times->unused);
	for (size_t i = 0; i < ACCOUNTS_MAX; i++)
		TAILQ_INSERT_TAIL(&times->unused, &times->slots[i], all);
	*ret = times;

	return 0;
}

void waited_times_free(struct waited_times *times)
{
	if (!times)
		return;

	map_release(&times->accounts);
	free(times);
}
