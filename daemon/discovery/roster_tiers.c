/*
 * roster_tiers.c: heat is how often a process was read after it had run, as of the last scan, and half of what it was before.
 *
 * To change places the cold one must be twice as hot, and hotter by more than chance: those that run alike would change places at every scan
 * otherwise. The warm one gives up its descriptors at its next look, so the cold one has them after the next scan, unless a newcomer came first, which
 * most likely runs too.
 *
 * Rejected: closing and opening in one go (the sampler's thread cannot wait, and nobody else may close what it reads); a process that runs just now
 * becoming warm at once, between scans (whoever wakes once in a minute would be opened and closed for it).
 */
#include "roster_tiers.h"

#include "descriptors.h"
#include "roster_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Fewer runs between two scans are no reason to become warm. */
#define HEAT_MIN 3u

/*
 * What happens by chance n times on average happens n +- sqrt(n) times. A difference within twice that is no difference: among thousands that run alike
 * somebody always happens to have run twice as often as somebody else.
 */
#define CHANCE 4u

/* What a process ran before it was first looked at says little. */
#define RUNS_MAX 4096u

/* A cgroup takes up to ten, a process gives up at least three. */
#define PROCESSES_PER_CGROUP 4u

/* Nobody gets any while fewer are free than a cgroup takes: so many more processes than are waited for give up theirs. */
#define SPARE 3u

/* ---- newcomers ---- */

bool roster_tiers_newcomer(struct roster *roster)
{
	if (roster->tiers.making_way == 0 && !descriptors_short(roster->options.procfd))
		return false;

	roster->tiers.uneven = true;

	return true;
}

void roster_tiers_refused(struct roster *roster)
{
	roster->tiers.unopened++;
}

static bool looks_at(const struct config_rule *rule, const char *entry)
{
	for (size_t i = 0; i < rule->target_count; i++)
		if (strcmp(rule->targets[i], entry) == 0)
			return true;

	return rule->target_count == 0;
}

void roster_tiers_need(struct roster *roster, struct roster_target *target)
{
	const struct config *config = roster->options.config;
	bool peak = false, fds = false;

	if (target->what.kind != TARGET_PROCESS)
		return;

	for (size_t i = 0; i < config->rule_count; i++) {
		const struct config_rule *rule = &config->rules[i];

		if ((rule->metric == METRIC_MEMORY_PEAK || rule->metric == METRIC_FDS) &&
		    looks_at(rule, target->entry->name)) {
			peak |= rule->metric == METRIC_MEMORY_PEAK;
			fds |= rule->metric == METRIC_FDS;
		}
	}
	source_entry_need(target->sampled.entry, peak, fds);
	source_entry_set_idle(target->sampled.entry, config_idle_of(config, target->entry->name));
}

/* ---- after a scan ---- */

/* Pointers to all processes: cold ones from the front, warm ones from the back. */
struct tiers {
	struct roster_target **slots;
	size_t count, cold, warm;
};

static void warm_up(struct roster_target *target)
{
	uint32_t runs = source_entry_runs(target->sampled.entry), since = runs - target->runs;

	target->runs = runs;
	target->heat = target->heat / 2 + (since < RUNS_MAX ? since : RUNS_MAX);
	target->idle_scans = since ? 0 : target->idle_scans + (target->idle_scans < UINT32_MAX);
}

static int sort_in(void *ctx, struct roster_target *target)
{
	struct tiers *tiers = ctx;

	if (target->what.kind != TARGET_PROCESS || target->leaving || tiers->cold + tiers->warm == tiers->count)
		return 0;

	warm_up(target);
	if (source_entry_is_cold(target->sampled.entry))
		tiers->slots[tiers->cold++] = target;
	else
		tiers->slots[tiers->count - ++tiers->warm] = target;

	return 0;
}

/* The hottest first. */
static int compare_heat(const void *a, const void *b)
{
	const struct roster_target *const *x = a, *const *y = b;

	if ((*x)->heat != (*y)->heat)
		return (*x)->heat < (*y)->heat ? 1 : -1;
	if ((*x)->idle_scans != (*y)->idle_scans)
		return (*x)->idle_scans > (*y)->idle_scans ? 1 : -1;

	return 0;
}

/* False: there are no descriptors for more. One that has ended meanwhile is nothing to speak of. */
static bool open_files(struct roster *roster, struct roster_target *target)
{
	const struct config_sampling *sampling = &roster->options.config->sampling;
	struct source_options wanted = {
		.peak_interval_ns = sampling->peak_interval_ns,
		.fds_interval_ns = sampling->fds_interval_ns,
		.reset_peaks = sampling->reset_peaks,
	};

	if (descriptors_short(roster->options.procfd))
		return false;

	int r = source_entry_warm(target->sampled.entry, &wanted);

	if (r == 0)
		target->reading = roster->reading;

	return r != -EMFILE && r != -ENFILE && r != -ENOMEM;
}

/* Descriptors that are free go to the hottest. How many of the cold ones were dealt with. */
static size_t hand_out(struct roster *roster, struct roster_target **cold, size_t count)
{
	size_t done = 0;

	while (roster->tiers.making_way == 0 && done < count && done < ROSTER_TIERS_CHANGES &&
	       open_files(roster, cold[done]))
		done++;

	return done;
}

static bool deserves(const struct roster_target *cold, const struct roster_target *warm)
{
	uint64_t more = cold->heat - warm->heat;

	return cold->heat >= HEAT_MIN && cold->heat / 2 > warm->heat &&
	       more * more > CHANCE * ((uint64_t)cold->heat + warm->heat);
}

/* Those that ran least and longest ago give theirs up: for cgroups, and for the cold ones that are still waiting. */
static void take_away(const struct tiers *tiers, struct roster_target **cold, size_t waiting, size_t making_way)
{
	struct roster_target **last = tiers->slots + tiers->count - 1;
	size_t given = 0, wanted = 0;

	for (; given < tiers->warm && given < making_way * PROCESSES_PER_CGROUP; given++)
		source_entry_chill((*last--)->sampled.entry);
	waiting = waiting < ROSTER_TIERS_CHANGES ? waiting : ROSTER_TIERS_CHANGES;
	while (wanted < waiting && given + wanted < tiers->warm && deserves(cold[wanted], *(last - wanted)))
		wanted++;
	if (wanted > 0)
		wanted += SPARE;
	for (; wanted > 0 && given < tiers->warm && deserves(cold[0], *last); wanted--, given++)
		source_entry_chill((*last--)->sampled.entry);
}

static void balance(struct roster *roster, struct tiers *tiers)
{
	roster_table_visit(&roster->table, sort_in, tiers);

	struct roster_target **cold = tiers->slots, **warm = tiers->slots + tiers->count - tiers->warm;

	qsort(cold, tiers->cold, sizeof cold[0], compare_heat);
	qsort(warm, tiers->warm, sizeof warm[0], compare_heat);

	size_t done = hand_out(roster, cold, tiers->cold);

	take_away(tiers, cold + done, tiers->cold - done, roster->tiers.making_way);
	roster->tiers.uneven = tiers->cold > 0 || roster->tiers.making_way > 0;
	roster->counts.cold = tiers->cold;
}

void roster_tiers_balance(struct roster *roster)
{
	struct tiers tiers = { .count = roster->counts.processes };

	roster->tiers.making_way = roster->tiers.unopened;
	roster->tiers.unopened = 0;
	if (!roster->tiers.uneven && roster->tiers.making_way == 0)
		return;

	tiers.slots = calloc(tiers.count + 1, sizeof(struct roster_target *));
	if (!tiers.slots)
		return;

	balance(roster, &tiers);
	free(tiers.slots);
}
