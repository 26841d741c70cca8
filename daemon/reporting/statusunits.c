/* statusunits.c: visited twice under discovery's lock: which are missing, and which there are. Written to memory, so that nobody waits for a reader. */
#include "statusunits.h"

#include "jsonmember.h"

struct units {
	struct json_writer *json;
	unsigned count;
};

static void skip_unit(void *ctx, const struct unit_report *unit)
{
	(void)ctx;
	(void)unit;
}

static void skip_missing(void *ctx, const char *name, const char *why)
{
	(void)ctx;
	(void)name;
	(void)why;
}

static void put_missing(void *ctx, const char *name, const char *why)
{
	struct units *units = ctx;

	if (units->count++ >= STATUSUNITS_MAX)
		return;
	json_begin_object(units->json);
	jsonmember_text(units->json, "name", name);
	jsonmember_text(units->json, "why", why);
	json_end_object(units->json);
}

static void put_unit(void *ctx, const struct unit_report *unit)
{
	const struct unit_facts *facts = &unit->facts;
	struct units *units = ctx;
	struct json_writer *json = units->json;

	if (units->count++ >= STATUSUNITS_MAX)
		return;
	json_begin_object(json);
	jsonmember_text(json, "name", unit->name);
	jsonmember_text(json, "cgroup", unit->cgroup);
	jsonmember_text(json, "state", facts->active_state);
	jsonmember_text(json, "sub_state", facts->sub_state);
	jsonmember_text(json, "invocation_id", facts->invocation_id);
	if (facts->has_main_pid)
		jsonmember_u64(json, "main_pid", facts->main_pid);
	if (facts->has_restarts)
		jsonmember_u64(json, "restarts", facts->restarts);
	if (facts->started_ns)
		jsonmember_u64(json, "started_monotonic_ns", facts->started_ns);
	json_end_object(json);
}

static void put_list(struct json_writer *json, struct discovery *discovery, const char *key, bool missing)
{
	struct units units = { .json = json };
	const struct unit_visitor visitor = {
		.unit = missing ? skip_unit : put_unit,
		.missing = missing ? put_missing : skip_missing,
		.ctx = &units,
	};

	json_key(json, key);
	json_begin_array(json);
	discovery_visit_units(discovery, &visitor);
	json_end_array(json);
}

void statusunits_put(struct json_writer *json, struct discovery *discovery)
{
	struct discovery_state found;

	discovery_state(discovery, &found);
	jsonmember_object(json, "units");
	jsonmember_bool(json, "wanted", found.units_wanted);
	jsonmember_text(json, "source", found.units.connected ? "systemd" : "cgroups");
	jsonmember_text(json, "why", found.units.why);
	jsonmember_u64(json, "known", found.units.units);
	jsonmember_u64(json, "left_out", found.units.left_out);
	jsonmember_u64(json, "restarts", found.units.restarts);
	jsonmember_u64(json, "connects", found.units.connects);
	jsonmember_u64(json, "signals", found.units.signals);
	jsonmember_u64(json, "asked", found.units.asked);
	jsonmember_u64(json, "delays", found.units.delays);
	put_list(json, discovery, "missing", true);
	put_list(json, discovery, "list", false);
	json_end_object(json);
}
