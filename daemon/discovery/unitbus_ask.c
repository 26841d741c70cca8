/*
 * unitbus_ask.c: what is asked about a unit, a few units at a time:
 *
 *	due ──▶ is it loaded (only if in doubt) ──▶ its names ──▶ the rest, all at once ──▶ told
 *	             │ no                             │ none is wanted
 *	             └───────────▶ dropped ◀──────────┘
 *
 * A unit that changes while it is asked about, or right after, is asked about again a moment later: one that flaps costs twenty rounds a second.
 *
 * An answer that is an error, or of another type than it should be, leaves that one thing unknown: older systemd has not all of it.
 */
#include "unitbus_inside.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Between two rounds of questions about the same unit. */
#define PAUSE_NS (50 * NS_PER_MS)

#define NAMES_BYTES (UNIT_NAMES_MAX * (UNIT_NAME_MAX + 1) + 1)

#define PROPERTIES 8

struct ask {
	struct unitbus_fetch *fetch;
	sd_bus_slot *slot;
};

/* One unit's questions. */
struct unitbus_fetch {
	struct unitbus *bus;
	struct unit *unit; /* NULL: free */
	struct ask asks[PROPERTIES];
	unsigned waiting; /* for so many answers */
	char name[UNIT_NAME_MAX + 1];
	char names[NAMES_BYTES];
	char cgroup[PATH_MAX];
	struct unit_facts facts;
};

/* ---- properties ---- */

static void take_text(sd_bus_message *value, char *ret, size_t cap)
{
	const char *text;

	if (sd_bus_message_read(value, "s", &text) > 0 && strlen(text) < cap)
		memcpy(ret, text, strlen(text) + 1);
}

static void take_load(struct unitbus_fetch *fetch, sd_bus_message *value)
{
	take_text(value, fetch->facts.load_state, sizeof(fetch->facts.load_state));
}

static void take_active(struct unitbus_fetch *fetch, sd_bus_message *value)
{
	take_text(value, fetch->facts.active_state, sizeof(fetch->facts.active_state));
}

static void take_sub(struct unitbus_fetch *fetch, sd_bus_message *value)
{
	take_text(value, fetch->facts.sub_state, sizeof(fetch->facts.sub_state));
}

static void take_invocation(struct unitbus_fetch *fetch, sd_bus_message *value)
{
	const void *bytes;
	size_t len;

	if (sd_bus_message_read_array(value, 'y', &bytes, &len) <= 0 || len != 16)
		return;
	for (size_t i = 0; i < len; i++)
		snprintf(fetch->facts.invocation_id + 2 * i, 3, "%02x", ((const uint8_t *)bytes)[i]);
}

static void take_started(struct unitbus_fetch *fetch, sd_bus_message *value)
{
	uint64_t us;

	if (sd_bus_message_read(value, "t", &us) > 0 && us < UINT64_MAX / NS_PER_US)
		fetch->facts.started_ns = us * NS_PER_US;
}

static void take_cgroup(struct unitbus_fetch *fetch, sd_bus_message *value)
{
	take_text(value, fetch->cgroup, sizeof(fetch->cgroup));
}

static void take_main_pid(struct unitbus_fetch *fetch, sd_bus_message *value)
{
	fetch->facts.has_main_pid = sd_bus_message_read(value, "u", &fetch->facts.main_pid) > 0;
}

static void take_restarts(struct unitbus_fetch *fetch, sd_bus_message *value)
{
	fetch->facts.has_restarts = sd_bus_message_read(value, "u", &fetch->facts.restarts) > 0;
}

enum scope { OF_UNITS, OF_KIND, OF_SERVICES };

static const struct {
	const char *name, *type;
	enum scope scope;
	void (*take)(struct unitbus_fetch *fetch, sd_bus_message *value);
} properties[PROPERTIES] = {
	{ "LoadState", "s", OF_UNITS, take_load },
	{ "ActiveState", "s", OF_UNITS, take_active },
	{ "SubState", "s", OF_UNITS, take_sub },
	{ "InvocationID", "ay", OF_UNITS, take_invocation }, /* systemd 232 */
	{ "InactiveExitTimestampMonotonic", "t", OF_UNITS, take_started },
	{ "ControlGroup", "s", OF_KIND, take_cgroup },
	{ "MainPID", "u", OF_SERVICES, take_main_pid },
	{ "NRestarts", "u", OF_SERVICES, take_restarts }, /* systemd 235 */
};

/* ---- turns ---- */

static void dequeue(struct unitbus *bus, struct unit *unit)
{
	if (unit->is_due)
		TAILQ_REMOVE(unit->due.ns ? &bus->later : &bus->due, unit, queue);
	unit->is_due = false;
}

void unitbus_due(struct unitbus *bus, struct unit *unit)
{
	bool lately = unit->asked.ns && mono_diff(bus->now, unit->asked) < (int64_t)PAUSE_NS;

	unit->again |= unit->asking != NULL;
	if (unit->asking || unit->is_due)
		return;

	/* The pause is the same for all, so that who comes last is due last. */
	unit->is_due = true;
	unit->due = lately ? mono_add(bus->now, PAUSE_NS) : (mono_t){ 0 };
	TAILQ_INSERT_TAIL(lately ? &bus->later : &bus->due, unit, queue);
}

void unitbus_meet(struct unitbus *bus, const char *object, bool doubtful)
{
	struct unit *unit = unittable_find(bus->table, object);
	char name[UNIT_NAME_MAX + 1];

	if (!unit) {
		if (!unitbus_object_name(bus, object, name))
			return;
		if (unittable_enter(bus->table, object, &unit) < 0) {
			bus->state.left_out++;
			bus->overfull = true;
			return;
		}
	}
	unit->seen = bus->round;
	unit->doubtful |= doubtful;
	unitbus_due(bus, unit);
}

static void end_fetch(struct unitbus_fetch *fetch)
{
	for (size_t i = 0; i < PROPERTIES; i++)
		fetch->asks[i].slot = sd_bus_slot_unref(fetch->asks[i].slot);
	fetch->waiting = 0;
	if (fetch->unit)
		fetch->unit->asking = NULL;
	fetch->unit = NULL;
}

void unitbus_drop(struct unitbus *bus, struct unit *unit)
{
	if (unit->asking)
		end_fetch(unit->asking);
	dequeue(bus, unit);
	unittable_remove(bus->table, unit);
}

/* ---- told ---- */

static void answer_wishes(struct unitbus *bus, const struct unit *unit)
{
	bool loaded = strcmp(unit->facts.load_state, "loaded") == 0;

	for (size_t i = 0; loaded && i < bus->wish_count; i++)
		if (!bus->wishes[i].glob && unit_is_called(unit, bus->wishes[i].name))
			unitbus_answer(bus, &bus->wishes[i], UNITBUS_EXISTS, "");
}

static void finish(struct unitbus_fetch *fetch)
{
	struct unitbus *bus = fetch->bus;
	struct unit *unit = fetch->unit;
	const char *before = unit->facts.invocation_id, *after = fetch->facts.invocation_id;
	bool other = *after && strcmp(before, after) != 0, again = unit->again, placed = unit->cgroup != NULL;

	bus->state.restarts += *before && other;
	bus->state.left_out += unittable_place(bus->table, unit, fetch->cgroup) < 0;
	unit->facts = fetch->facts;
	unit->asked = bus->now;
	unit->again = false;
	end_fetch(fetch);
	if (again)
		unitbus_due(bus, unit);
	answer_wishes(bus, unit);
	if (bus->options.changed)
		bus->options.changed(bus->options.ctx, unit, other || (unit->cgroup && !placed));
}

/* ---- questions ---- */

/* True: what is asked cannot be had from here. */
static bool is_silent(struct unitbus *bus, sd_bus_message *reply)
{
	if (sd_bus_message_get_errno(reply) != ETIMEDOUT)
		return false;

	unitbus_fail(bus, 0, "systemd does not answer");

	return true;
}

static int on_property(sd_bus_message *reply, void *userdata, sd_bus_error *error)
{
	struct ask *ask = userdata;
	struct unitbus_fetch *fetch = ask->fetch;
	size_t i = (size_t)(ask - fetch->asks);

	(void)error;
	ask->slot = sd_bus_slot_unref(ask->slot);
	if (!sd_bus_message_is_method_error(reply, NULL)) {
		if (sd_bus_message_enter_container(reply, 'v', properties[i].type) > 0)
			properties[i].take(fetch, reply);
	} else if (is_silent(fetch->bus, reply)) {
		return 0;
	}
	if (--fetch->waiting == 0)
		finish(fetch);

	return 0;
}

static int ask_property(struct unitbus_fetch *fetch, size_t i, const char *kind)
{
	const char *interface = properties[i].scope == OF_UNITS ? SYSTEMD_UNIT : kind;
	int r;

	if (!interface || (properties[i].scope == OF_SERVICES && !strstr(interface, ".Service")))
		return 0;

	r = unitbus_call(fetch->bus, &fetch->asks[i].slot, fetch->unit->object, "org.freedesktop.DBus.Properties",
			 "Get", on_property, &fetch->asks[i], "ss", interface, properties[i].name);
	fetch->waiting += r == 0;

	return r;
}

static void ask_rest(struct unitbus_fetch *fetch)
{
	const char *kind = unitbus_interface(fetch->name);
	int r = 0;

	for (size_t i = 0; r == 0 && i < PROPERTIES; i++)
		r = ask_property(fetch, i, kind);
	if (r < 0)
		unitbus_fail(fetch->bus, r, NULL);
}

/* The unit's own name first, which its object has. */
static void take_names(struct unitbus_fetch *fetch, sd_bus_message *reply)
{
	size_t len = strlen(fetch->name) + 1, count = 1;
	const char *name;

	memcpy(fetch->names, fetch->name, len);
	fetch->names[len] = '\0';
	if (sd_bus_message_is_method_error(reply, NULL) || sd_bus_message_enter_container(reply, 'v', "as") <= 0 ||
	    sd_bus_message_enter_container(reply, 'a', "s") <= 0)
		return;

	while (count < UNIT_NAMES_MAX && sd_bus_message_read(reply, "s", &name) > 0) {
		if (strcmp(name, fetch->name) == 0 || !unitbus_is_name(name))
			continue;
		memcpy(fetch->names + len, name, strlen(name) + 1);
		len += strlen(name) + 1;
		fetch->names[len] = '\0';
		count++;
	}
}

static int on_names(sd_bus_message *reply, void *userdata, sd_bus_error *error)
{
	struct ask *ask = userdata;
	struct unitbus_fetch *fetch = ask->fetch;
	struct unitbus *bus = fetch->bus;

	(void)error;
	ask->slot = sd_bus_slot_unref(ask->slot);
	fetch->waiting = 0;
	if (sd_bus_message_is_method_error(reply, NULL) && is_silent(bus, reply))
		return 0;

	take_names(fetch, reply);
	if (unittable_rename(bus->table, fetch->unit, fetch->names) < 0) {
		bus->state.left_out++;
		unitbus_drop(bus, fetch->unit);
	} else if (!unitbus_is_wanted(bus, fetch->unit)) {
		unitbus_drop(bus, fetch->unit);
	} else {
		ask_rest(fetch);
	}

	return 0;
}

static void ask_names(struct unitbus_fetch *fetch)
{
	int r = unitbus_call(fetch->bus, &fetch->asks[0].slot, fetch->unit->object, "org.freedesktop.DBus.Properties",
			     "Get", on_names, &fetch->asks[0], "ss", SYSTEMD_UNIT, "Names");

	fetch->waiting = 1;
	if (r < 0)
		unitbus_fail(fetch->bus, r, NULL);
}

static int on_loaded(sd_bus_message *reply, void *userdata, sd_bus_error *error)
{
	struct ask *ask = userdata;
	struct unitbus_fetch *fetch = ask->fetch;

	(void)error;
	ask->slot = sd_bus_slot_unref(ask->slot);
	if (!sd_bus_message_is_method_error(reply, NULL))
		ask_names(fetch);
	else if (!is_silent(fetch->bus, reply))
		unitbus_drop(fetch->bus, fetch->unit);

	return 0;
}

static void begin_fetch(struct unitbus_fetch *fetch, struct unit *unit)
{
	struct unitbus *bus = fetch->bus;
	bool doubtful = unit->doubtful;

	dequeue(bus, unit);
	if (!unitbus_object_name(bus, unit->object, fetch->name)) {
		unitbus_drop(bus, unit); /* of a kind that is not wanted any more */
		return;
	}
	fetch->unit = unit;
	fetch->facts = (struct unit_facts){ 0 };
	fetch->cgroup[0] = '\0';
	unit->asking = fetch;
	unit->doubtful = unit->again = false;
	bus->state.asked++;
	if (!doubtful) {
		ask_names(fetch);
		return;
	}

	int r = unitbus_call(bus, &fetch->asks[0].slot, SYSTEMD_PATH, SYSTEMD_MANAGER, "GetUnit", on_loaded,
			     &fetch->asks[0], "s", fetch->name);

	fetch->waiting = 1;
	if (r < 0)
		unitbus_fail(bus, r, NULL);
}

/* Who fills the table with names of which there are no units keeps nobody out for longer than it takes to find that out. */
static void make_up_for_lack(struct unitbus *bus)
{
	if (!bus->overfull || !TAILQ_EMPTY(&bus->due) || unittable_count(bus->table) > UNITTABLE_MAX / 2)
		return;

	bus->overfull = false;
	bus->relist = true;
}

void unitbus_ask(struct unitbus *bus)
{
	struct unit *unit;

	while ((unit = TAILQ_FIRST(&bus->later)) && mono_diff(bus->now, unit->due) >= 0) {
		TAILQ_REMOVE(&bus->later, unit, queue);
		unit->due = (mono_t){ 0 };
		TAILQ_INSERT_TAIL(&bus->due, unit, queue);
	}
	for (size_t i = 0; i < UNITBUS_FETCHES && !bus->broken; i++)
		while (!bus->broken && !bus->fetches[i]->unit && (unit = TAILQ_FIRST(&bus->due)))
			begin_fetch(bus->fetches[i], unit);
	make_up_for_lack(bus);
}

/* ---- life ---- */

int unitbus_ask_new(struct unitbus *bus)
{
	for (size_t i = 0; i < UNITBUS_FETCHES; i++) {
		bus->fetches[i] = calloc(1, sizeof(*bus->fetches[i]));
		if (!bus->fetches[i])
			return -ENOMEM;
		bus->fetches[i]->bus = bus;
		for (size_t j = 0; j < PROPERTIES; j++)
			bus->fetches[i]->asks[j].fetch = bus->fetches[i];
	}

	return 0;
}

void unitbus_ask_free(struct unitbus *bus)
{
	for (size_t i = 0; i < UNITBUS_FETCHES; i++)
		free(bus->fetches[i]);
}

/* Who was asked about is due when there is a connection again. */
void unitbus_ask_cancel(struct unitbus *bus)
{
	for (size_t i = 0; i < UNITBUS_FETCHES; i++) {
		struct unit *unit = bus->fetches[i] ? bus->fetches[i]->unit : NULL;

		if (!unit)
			continue;
		end_fetch(bus->fetches[i]);
		unitbus_due(bus, unit);
	}
}
