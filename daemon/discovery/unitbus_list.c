/*
 * unitbus_list.c: which units there are: each that is selected by its name is asked for by it (ListUnitsByNames, which knows aliases and what is not
 * loaded), then all of the kinds that globs may mean in one list, because a glob may mean an alias, and lists know units by their first
 * name only. One call at a time; at the end, units that were in none are gone.
 */
#include "unitbus_inside.h"

#include "match.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *suffix, *interface;
} kinds[UNITBUS_KINDS] = {
	{ ".service", "org.freedesktop.systemd1.Service" }, { ".scope", "org.freedesktop.systemd1.Scope" },
	{ ".slice", "org.freedesktop.systemd1.Slice" },     { ".socket", "org.freedesktop.systemd1.Socket" },
	{ ".mount", "org.freedesktop.systemd1.Mount" },     { ".swap", "org.freedesktop.systemd1.Swap" },
};

/* ---- names ---- */

bool unitbus_is_name(const char *name)
{
	size_t len = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789:-_.\\@");

	return len > 0 && len <= UNIT_NAME_MAX && name[len] == '\0';
}

static bool ends_in(const char *text, const char *suffix)
{
	size_t len = strlen(text), end = strlen(suffix);

	return len >= end && strcmp(text + len - end, suffix) == 0;
}

const char *unitbus_interface(const char *name)
{
	for (size_t i = 0; i < UNITBUS_KINDS; i++)
		if (ends_in(name, kinds[i].suffix))
			return kinds[i].interface;

	return NULL;
}

/* Whether a name or glob may mean units of a kind: that of its suffix, if it has one. */
static bool may_mean(const char *pattern, const char *suffix)
{
	const char *dot = strrchr(pattern, '.');

	return !dot || strpbrk(dot, "*?[]") ? true : strcmp(dot, suffix) == 0;
}

bool unitbus_object_name(const struct unitbus *bus, const char *object, char *ret)
{
	char *name = NULL;
	bool wanted = false;

	if (sd_bus_path_decode(object, SYSTEMD_UNITS, &name) <= 0)
		return false;
	if (unitbus_is_name(name))
		for (size_t i = 0; i < UNITBUS_KINDS; i++)
			for (size_t j = 0; ends_in(name, kinds[i].suffix) && !wanted && j < bus->wish_count; j++)
				wanted = may_mean(bus->wishes[j].name, kinds[i].suffix);
	if (wanted)
		memcpy(ret, name, strlen(name) + 1);
	free(name);

	return wanted;
}

bool unitbus_is_wanted(const struct unitbus *bus, const struct unit *unit)
{
	for (size_t i = 0; i < bus->wish_count; i++)
		if (unit_is_called(unit, bus->wishes[i].name))
			return true;

	return false;
}

/* ---- answers ---- */

void unitbus_answer(struct unitbus *bus, struct unitbus_wish *wish, enum unitbus_answer answer, const char *why)
{
	enum unitbus_answer before = wish->answer;

	if (before == answer && strcmp(wish->why, why) == 0)
		return;

	wish->answer = answer;
	snprintf(wish->why, sizeof(wish->why), "%s", why);
	if (bus->options.answered)
		bus->options.answered(bus->options.ctx, wish->name, before, answer, wish->why);
}

/* One of a list, of which these columns matter. True: there was one. */
static bool read_row(sd_bus_message *list, const char **ret_load, const char **ret_object)
{
	const char *skipped;
	uint32_t job;

	return sd_bus_message_read(list, "(ssssssouso)", &skipped, &skipped, ret_load, &skipped, &skipped, &skipped,
				   ret_object, &job, &skipped, &skipped) > 0;
}

/* Of one name: at most one row. */
static void take_named(struct unitbus *bus, struct unitbus_wish *wish, sd_bus_message *list)
{
	const char *load = "not-found", *object = NULL;
	char name[UNIT_NAME_MAX + 1], why[64];

	if (sd_bus_message_enter_container(list, 'a', "(ssssssouso)") <= 0)
		return;
	read_row(list, &load, &object);
	if (strcmp(load, "not-found") == 0) {
		unitbus_answer(bus, wish, UNITBUS_MISSING, "there is no such unit");
	} else if (strcmp(load, "loaded") != 0) {
		snprintf(why, sizeof(why), "it is %s",
			 strcmp(load, "bad-setting") == 0 ? "not loaded for a bad setting" : load);
		unitbus_answer(bus, wish, UNITBUS_MISSING, why);
	} else if (!unitbus_object_name(bus, object, name)) {
		unitbus_answer(bus, wish, UNITBUS_MISSING, "units of this kind have no processes");
	} else {
		unitbus_answer(bus, wish, UNITBUS_EXISTS, "");
		unitbus_meet(bus, object, true); /* loaded for this question, it may be gone by now */
	}
}

static int on_named(sd_bus_message *list, void *userdata, sd_bus_error *error)
{
	struct unitbus *bus = userdata;
	struct unitbus_wish *wish = &bus->wishes[bus->listed++];
	char why[UNITBUS_WHY_MAX];

	(void)error;
	bus->list = sd_bus_slot_unref(bus->list);
	if (!sd_bus_message_is_method_error(list, NULL)) {
		take_named(bus, wish, list);
		return 0;
	}

	unitbus_reply_error(list, why, sizeof(why));
	if (sd_bus_message_get_errno(list) == ETIMEDOUT)
		unitbus_fail(bus, 0, why);
	else if (sd_bus_message_is_method_error(list, SD_BUS_ERROR_INVALID_ARGS))
		unitbus_answer(bus, wish, UNITBUS_MISSING, why);
	else /* may not be asked, or not in this way */
		unitbus_answer(bus, wish, UNITBUS_UNANSWERED, "");

	return 0;
}

/* ---- the end ---- */

static void drop_unlisted(void *ctx, struct unit *unit)
{
	struct unitbus *bus = ctx;

	if (unit->seen != bus->round)
		unitbus_drop(bus, unit);
}

static void end_round(struct unitbus *bus)
{
	unittable_visit(bus->table, drop_unlisted, bus);
	bus->listed = bus->wish_count + 1;
	bus->state.connected = true;
	bus->state.why[0] = '\0';
}

static int on_kinds(sd_bus_message *list, void *userdata, sd_bus_error *error)
{
	struct unitbus *bus = userdata;
	char why[UNITBUS_WHY_MAX];
	const char *load, *object;

	(void)error;
	bus->list = sd_bus_slot_unref(bus->list);
	if (sd_bus_message_is_method_error(list, NULL)) {
		unitbus_reply_error(list, why, sizeof(why));
		unitbus_fail(bus, 0, why);
		return 0;
	}
	if (sd_bus_message_enter_container(list, 'a', "(ssssssouso)") <= 0) {
		unitbus_fail(bus, 0, "the answer is no list of units");
		return 0;
	}
	while (read_row(list, &load, &object))
		if (strcmp(load, "not-found") != 0)
			unitbus_meet(bus, object, false);
	end_round(bus);

	return 0;
}

/* ---- questions ---- */

static int ask_for_name(struct unitbus *bus, const char *name)
{
	return unitbus_call(bus, &bus->list, SYSTEMD_PATH, SYSTEMD_MANAGER, "ListUnitsByNames", on_named, bus, "as", 1,
			    name);
}

static bool any_glob_means(const struct unitbus *bus, const char *suffix)
{
	for (size_t i = 0; i < bus->wish_count; i++)
		if (bus->wishes[i].glob && may_mean(bus->wishes[i].name, suffix))
			return true;

	return false;
}

/* Patterns that nothing matches take the place of kinds that are not wanted. */
static int ask_for_kinds(struct unitbus *bus, bool *ret_asked)
{
	const char *patterns[UNITBUS_KINDS];
	char text[UNITBUS_KINDS][16];

	*ret_asked = false;
	for (size_t i = 0; i < UNITBUS_KINDS; i++) {
		bool wanted = any_glob_means(bus, kinds[i].suffix);

		snprintf(text[i], sizeof(text[i]), "%s%s", wanted ? "*" : "", kinds[i].suffix);
		patterns[i] = text[i];
		*ret_asked |= wanted;
	}
	if (!*ret_asked)
		return 0;

	return unitbus_call(bus, &bus->list, SYSTEMD_PATH, SYSTEMD_MANAGER, "ListUnitsByPatterns", on_kinds, bus,
			    "asas", 0, UNITBUS_KINDS, patterns[0], patterns[1], patterns[2], patterns[3], patterns[4],
			    patterns[5]);
}

/* The next question of the round. */
static int go_on(struct unitbus *bus)
{
	bool asked = false;
	int r;

	while (bus->listed < bus->wish_count && bus->wishes[bus->listed].glob)
		bus->listed++;
	if (bus->listed < bus->wish_count)
		return ask_for_name(bus, bus->wishes[bus->listed].name);
	if (bus->listed > bus->wish_count)
		return 0;

	r = ask_for_kinds(bus, &asked);
	if (r == 0 && !asked)
		end_round(bus);

	return r;
}

void unitbus_list(struct unitbus *bus)
{
	int r;

	if (bus->list)
		return;
	if (bus->relist) {
		bus->relist = false;
		bus->listed = 0;
		bus->round++;
	}
	r = go_on(bus);
	if (r < 0)
		unitbus_fail(bus, r, NULL);
}

void unitbus_list_cancel(struct unitbus *bus)
{
	bus->list = sd_bus_slot_unref(bus->list);
}
