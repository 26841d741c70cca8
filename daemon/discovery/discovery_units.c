/*
 * discovery_units.c: units by more than their cgroups' names: systemd is asked (unitbus.h), by the thread that scans, while an entry selects units.
 *
 * What it says only adds to what paths say: the targets are the same cgroups under the same keys, whether or not there is a bus.
 */
#include "discovery_inside.h"

#include "log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Between two looks that find something. */
#define GAP_NS NS_PER_MS

/* A bus that comes and goes is spoken of once. */
#define CALM_NS (60 * NS_PER_S)

/* ---- what is heard ---- */

static bool runs(const struct unit *unit)
{
	return strcmp(unit->facts.active_state, "inactive") != 0 && strcmp(unit->facts.active_state, "failed") != 0;
}

/* Its processes were met before it was known that they are its: if its names are not in their paths, a scan finds them. */
static void on_changed(void *ctx, const struct unit *unit, bool started)
{
	struct discovery *discovery = ctx;

	if (!unit->cgroup || !runs(unit))
		return;

	discovery->again |= discovery_sight_cgroup(discovery, unit->cgroup) < 0;
	discovery->again |= started && unit->unlike;
}

struct search {
	const char *entry;
};

static int is_of_entry(void *ctx, struct roster_target *target)
{
	const struct search *search = ctx;

	return target->what.kind != TARGET_GROUP && strcmp(target->what.entry, search->entry) == 0;
}

/* The entry that selects by this name, unless it has targets: those of a user's own systemd, of whom the machine's knows nothing. */
static const char *idle_entry(const struct discovery *discovery, const char *name)
{
	for (size_t i = 0; i < discovery->config->target_count; i++) {
		const struct config_target *entry = &discovery->config->targets[i];
		struct search search = { entry->name };

		if (entry->selector == CONFIG_UNIT && strcmp(entry->pattern, name) == 0 &&
		    !roster_visit(discovery->roster, is_of_entry, &search))
			return entry->name;
	}

	return NULL;
}

static void on_answered(void *ctx, const char *name, enum unitbus_answer before, enum unitbus_answer answer,
			const char *why)
{
	struct discovery *discovery = ctx;
	const char *entry = idle_entry(discovery, name);

	if (answer == UNITBUS_MISSING && entry)
		log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_UNIT_MISSING, .state = "begin" },
			  "target %s: no unit %s: %s", entry, name, why);
	if (answer == UNITBUS_EXISTS && before == UNITBUS_MISSING)
		log_about(LOG_INFO, &(struct log_about){ .message = MESSAGE_UNIT_MISSING, .state = "end" },
			  "unit %s: it is there now", name);
}

static void speak(struct discovery *discovery, mono_t now)
{
	struct unitbus_state state;

	unitbus_state(discovery->units, &state);
	switch (condition_step(&discovery->units_lack, !state.connected && state.why[0] != '\0', now, CALM_NS)) {
	case CONDITION_BEGINS:
		log_line(LOG_INFO, "units are known by the names of their cgroups only: %s", state.why);
		break;
	case CONDITION_ENDS:
		log_line(LOG_INFO, "units are known from systemd");
		break;
	default:
		break;
	}
}

void discovery_hear_units(struct discovery *discovery, mono_t now)
{
	if (!discovery->units || !rest_is_over(&discovery->units_rest, now))
		return;

	discovery->units_heard = now;
	if (unitbus_hear(discovery->units, now))
		rest_found(&discovery->units_rest, GAP_NS, now);
	speak(discovery, now);
}

size_t discovery_await_units(const struct discovery *discovery, mono_t now, struct pollfd *ret, mono_t *until)
{
	bool may = rest_is_over(&discovery->units_rest, now), polled;
	mono_t due = *until, least = may ? mono_add(discovery->units_heard, GAP_NS) : discovery->units_rest.until;

	if (!discovery->units)
		return 0;
	polled = unitbus_await(discovery->units, now, ret, &due) && may;
	if (!may || mono_diff(least, due) > 0)
		due = least; /* what is due all the time is no reason to look all the time */
	if (mono_diff(*until, due) > 0)
		*until = due;

	return polled;
}

/* ---- what is asked for ---- */

/* Why this machine's systemd knows nothing of what is watched; NULL: it does. */
static const char *elsewhere(const struct discovery *discovery)
{
	if (!discovery->options.roster.own_proc)
		return "proc_root is not this machine's own /proc";
	if (*discovery->config->cgroup_root)
		return "cgroup_root is set";

	return NULL;
}

static int want(struct discovery *discovery)
{
	const struct config *config = discovery->config;
	const char **names = calloc(config->target_count ? config->target_count : 1, sizeof(*names));
	size_t count = 0;
	int r;

	if (!names)
		return -ENOMEM;

	for (size_t i = 0; i < config->target_count; i++)
		if (config->targets[i].selector == CONFIG_UNIT)
			names[count++] = config->targets[i].pattern;
	discovery->state.units_wanted = count > 0;
	r = unitbus_want(discovery->units, names, count);
	free(names);

	return r;
}

void discovery_ask_for_units(struct discovery *discovery)
{
	const char *why = elsewhere(discovery);
	struct unitbus_options options = {
		.address = discovery->options.unit_bus,
		.peer = discovery->options.unit_bus != NULL,
		.changed = on_changed,
		.answered = on_answered,
		.ctx = discovery,
	};

	if (!discovery->units_due || discovery->rescan)
		return;

	snprintf(discovery->state.units.why, sizeof(discovery->state.units.why), "%s", why ? why : "");
	if (!why && !discovery->units && unitbus_new(&options, &discovery->units) < 0)
		return; /* without memory: with the next scan */

	discovery->units_due = discovery->units && want(discovery) < 0;
	discovery->matcher->units = discovery->units ? unitbus_units(discovery->units) : NULL;
}

/* ---- questions ---- */

void discovery_units_state(const struct discovery *discovery, struct discovery_state *ret)
{
	if (discovery->units)
		unitbus_state(discovery->units, &ret->units);
}

static void report(const struct unit *unit, struct unit_report *ret)
{
	*ret = (struct unit_report){ .facts = unit->facts };
	snprintf(ret->name, sizeof(ret->name), "%s", unit->names ? unit->names : "");
	snprintf(ret->cgroup, sizeof(ret->cgroup), "%s", unit->cgroup ? unit->cgroup : "");
}

bool discovery_unit(struct discovery *discovery, const char *cgroup, struct unit_report *ret)
{
	const struct unit *unit = NULL;

	turnstile_enter(&discovery->turn);
	if (discovery->units)
		unit = unittable_of(unitbus_units(discovery->units), cgroup);
	if (unit)
		report(unit, ret);
	turnstile_leave(&discovery->turn);

	return unit != NULL;
}

struct visit {
	struct discovery *discovery;
	const struct unit_visitor *visitor;
};

static void visit_unit(void *ctx, struct unit *unit)
{
	const struct visit *visit = ctx;
	struct unit_report reported;

	report(unit, &reported);
	if (reported.name[0])
		visit->visitor->unit(visit->visitor->ctx, &reported);
}

static void visit_missing(void *ctx, const char *name, enum unitbus_answer answer, const char *why)
{
	const struct visit *visit = ctx;

	if (answer == UNITBUS_MISSING && idle_entry(visit->discovery, name))
		visit->visitor->missing(visit->visitor->ctx, name, why);
}

void discovery_visit_units(struct discovery *discovery, const struct unit_visitor *visitor)
{
	struct visit visit = { discovery, visitor };

	turnstile_enter(&discovery->turn);
	if (discovery->units) {
		unitbus_visit(discovery->units, visit_missing, &visit);
		unittable_visit(unitbus_units(discovery->units), visit_unit, &visit);
	}
	turnstile_leave(&discovery->turn);
}
