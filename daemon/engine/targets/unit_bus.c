/*
 * unit_bus.c: the connection: made, heard, lost, made again.
 *
 * 	(nothing wanted) ──▶ CLOSED ──▶ connecting, lists ──▶ connected
 * 	                       ▲  the next try is later: 0.25 s, 0.5 s, ... 1 min  │
 * 	                       └───────────────────────────────────────────────────┘
 *
 * A signal is a hint and nothing more: it says of which unit to ask, and what is known comes from
 * answers alone. So anybody on the bus may send what looks like one, and it does not matter which
 * version of systemd puts what into them.
 *
 * systemd loads a unit whose properties are asked for, tells everybody of it, and unloads it again:
 * asked without care, it would be told of its own question for ever. Hence a unit of which a signal
 * tells is first asked for in the way that loads nothing (GetUnit).
 *
 * Rejected: the daemon's event loop, from which discovery would have to be told: here it is its own
 * thread that hears. And GetAll: among what it returns are dozens of files of cgroups that systemd
 * reads for it.
 */
#include "daemon/engine/targets/unit_bus.h"

#include "daemon/engine/base/clocks.h"
#include "lib/base/base.h"
#include "lib/config/selection.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

#define UNIT_NAMES_MAX 32 /* of one unit; more are left out */

#define SYSTEMD_NAME "org.freedesktop.systemd1"
#define SYSTEMD_PATH "/org/freedesktop/systemd1"
#define SYSTEMD_UNITS "/org/freedesktop/systemd1/unit"
#define SYSTEMD_MANAGER "org.freedesktop.systemd1.Manager"
#define SYSTEMD_UNIT "org.freedesktop.systemd1.Unit"

/* Of units that have processes. */
#define UNIT_BUS_KINDS 6

/* ---- unit_bus.c ---- */

/* ---- unit bus_signals.c ---- */

/* ---- unit_bus_list.c ---- */

/* ---- unit_bus_ask.c ---- */

static void unit_bus_fail(struct unit_bus *bus, int error, const char *why);
static void unit_bus_reply_error(sd_bus_message *reply, char *ret, size_t cap);
static int unit_bus_call(struct unit_bus *bus, sd_bus_slot **ret, const char *path, const char *interface,
			 const char *member, sd_bus_message_handler_t reply, void *userdata, const char *types, ...);
static bool unit_bus_is_wanted(const struct unit_bus *bus, const struct unit *unit);
static void unit_bus_answer(struct unit_bus *bus, struct unit_bus_wish *wish, enum unit_bus_answer answer,
			    const char *why);

/*
 * unit_table.c: two hash tables over the same units: by what the bus calls them, and by their
 * cgroup.
 *
 * Asked with every cgroup and process that a scan meets, so that the answer without units of
 * uncommon names, which is most machines', is one comparison.
 */

#define BUCKETS 4096u

struct unit_table {
	struct unit *objects[BUCKETS], *cgroups[BUCKETS];
	size_t count, unlike;
};

static unsigned bucket(const char *text, size_t len)
{
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char)text[i]) * 16777619u;

	return (hash ^ hash >> 15) % BUCKETS;
}

int unit_table_new(struct unit_table **ret)
{
	struct unit_table *table = calloc(1, sizeof(*table));

	if (!table)
		return -ENOMEM;
	*ret = table;

	return 0;
}

void unit_table_free(struct unit_table *table)
{
	if (!table)
		return;

	for (size_t i = 0; i < BUCKETS; i++)
		while (table->objects[i])
			unit_table_remove(table, table->objects[i]);
	free(table);
}

size_t unit_table_count(const struct unit_table *table)
{
	return table->count;
}

struct unit *unit_table_find(const struct unit_table *table, const char *object)
{
	struct unit *unit = table->objects[bucket(object, strlen(object))];

	while (unit && strcmp(unit->object, object) != 0)
		unit = unit->next_object;

	return unit;
}

int unit_table_enter(struct unit_table *table, const char *object, struct unit **ret)
{
	struct unit *unit, **at = &table->objects[bucket(object, strlen(object))];

	if (table->count == UNIT_TABLE_MAX)
		return -ENOSPC;
	unit = calloc(1, sizeof(*unit));
	if (!unit)
		return -ENOMEM;
	unit->object = strdup(object);
	if (!unit->object) {
		free(unit);
		return -ENOMEM;
	}

	unit->next_object = *at;
	*at = unit;
	table->count++;
	*ret = unit;

	return 0;
}

/* ---- where it is ---- */

static void leave_place(struct unit_table *table, struct unit *unit)
{
	struct unit **at;

	if (!unit->cgroup)
		return;
	at = &table->cgroups[bucket(unit->cgroup, strlen(unit->cgroup))];
	while (*at != unit)
		at = &(*at)->next_cgroup;
	*at = unit->next_cgroup;
}

static void take_place(struct unit_table *table, struct unit *unit)
{
	struct unit **at;

	if (!unit->cgroup)
		return;
	at = &table->cgroups[bucket(unit->cgroup, strlen(unit->cgroup))];
	unit->next_cgroup = *at;
	*at = unit;
}

static void compare_names(struct unit_table *table, struct unit *unit)
{
	bool unlike = false;

	for (const char *name = unit->cgroup ? unit->names : NULL; name && *name; name += strlen(name) + 1)
		unlike |= strcmp(strrchr(unit->cgroup, '/') + 1, name) != 0;
	table->unlike += unlike;
	table->unlike -= unit->unlike;
	unit->unlike = unlike;
}

void unit_table_remove(struct unit_table *table, struct unit *unit)
{
	struct unit **at = &table->objects[bucket(unit->object, strlen(unit->object))];

	while (*at != unit)
		at = &(*at)->next_object;
	*at = unit->next_object;
	leave_place(table, unit);
	table->count--;
	table->unlike -= unit->unlike;
	free(unit->object);
	free(unit->names);
	free(unit->cgroup);
	free(unit);
}

int unit_table_rename(struct unit_table *table, struct unit *unit, const char *names)
{
	size_t len = 1;
	char *copy;

	for (const char *name = names; *name; name += strlen(name) + 1)
		len += strlen(name) + 1;
	copy = malloc(len);
	if (!copy)
		return -ENOMEM;

	memcpy(copy, names, len);
	free(unit->names);
	unit->names = copy;
	compare_names(table, unit);

	return 0;
}

/* A path below the root without components that lead elsewhere. */
static bool is_place(const char *cgroup)
{
	if (*cgroup != '/' || cgroup[1] == '\0' || strlen(cgroup) >= PATH_MAX)
		return false;

	while (*cgroup) {
		size_t len = strcspn(++cgroup, "/");

		if (len == 0 || len > NAME_MAX || (len <= 2 && strspn(cgroup, ".") >= len))
			return false;
		cgroup += len;
	}

	return true;
}

int unit_table_place(struct unit_table *table, struct unit *unit, const char *cgroup)
{
	char *copy;

	if (!is_place(cgroup) || (unit->cgroup && strcmp(unit->cgroup, cgroup) == 0))
		return 0;
	copy = strdup(cgroup);
	if (!copy)
		return -ENOMEM;

	leave_place(table, unit);
	free(unit->cgroup);
	unit->cgroup = copy;
	take_place(table, unit);
	compare_names(table, unit);

	return 0;
}

/* ---- questions ---- */

bool unit_is_called(const struct unit *unit, const char *glob)
{
	for (const char *name = unit->names; name && *name; name += strlen(name) + 1)
		if (match_unit_name(glob, name))
			return true;

	return false;
}

/* The first, behind `after` (or NULL), whose cgroup is these bytes. */
static const struct unit *at_place(const struct unit_table *table, const char *cgroup, size_t len,
				   const struct unit *after)
{
	const struct unit *unit = after ? after->next_cgroup : table->cgroups[bucket(cgroup, len)];

	while (unit && (strncmp(unit->cgroup, cgroup, len) != 0 || unit->cgroup[len] != '\0'))
		unit = unit->next_cgroup;

	return unit;
}

/* The length of the path of the cgroup above; 0 of the root. */
static size_t above(const char *cgroup, size_t len)
{
	while (len > 0 && cgroup[--len] != '/')
		;

	return len;
}

const struct unit *unit_table_of(const struct unit_table *table, const char *cgroup)
{
	for (size_t len = strlen(cgroup); len > 0; len = above(cgroup, len)) {
		const struct unit *unit = at_place(table, cgroup, len, NULL);

		if (unit)
			return unit;
	}

	return NULL;
}

bool unit_table_matches(const struct unit_table *table, const char *glob, const char *cgroup, bool below)
{
	if (table->unlike == 0)
		return false;

	for (size_t len = strlen(cgroup); len > 0; len = below ? above(cgroup, len) : 0)
		for (const struct unit *unit = at_place(table, cgroup, len, NULL); unit;
		     unit = at_place(table, cgroup, len, unit))
			if (unit->unlike && unit_is_called(unit, glob))
				return true;

	return false;
}

void unit_table_visit(const struct unit_table *table, void (*visit)(void *ctx, struct unit *unit), void *ctx)
{
	for (size_t i = 0; i < BUCKETS; i++) {
		for (struct unit *unit = table->objects[i], *next; unit; unit = next) {
			next = unit->next_object;
			visit(ctx, unit);
		}
	}
}

/*
 * unit_bus_ask.c: what is asked about a unit, a few units at a time:
 *
 * 	due ──▶ is it loaded (only if in doubt) ──▶ its names ──▶ the rest, all at once ──▶ told
 * 	             │ no                             │ none is wanted
 * 	             └───────────▶ dropped ◀──────────┘
 *
 * A unit that changes while it is asked about, or right after, is asked about again a moment later:
 * one that flaps costs twenty rounds a second.
 *
 * An answer that is an error, or of another type than it should be, leaves that one thing unknown:
 * older systemd has not all of it.
 */

/* Between two rounds of questions about the same unit. */
#define PAUSE_NS (50 * NS_PER_MS)

#define NAMES_BYTES (UNIT_NAMES_MAX * (UNIT_NAME_MAX + 1) + 1)

#define PROPERTIES 8

struct ask {
	struct unit_bus_fetch *fetch;
	sd_bus_slot *slot;
};

/* One unit's questions. */
struct unit_bus_fetch {
	struct unit_bus *bus;
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

static void take_load(struct unit_bus_fetch *fetch, sd_bus_message *value)
{
	take_text(value, fetch->facts.load_state, sizeof(fetch->facts.load_state));
}

static void take_active(struct unit_bus_fetch *fetch, sd_bus_message *value)
{
	take_text(value, fetch->facts.active_state, sizeof(fetch->facts.active_state));
}

static void take_sub(struct unit_bus_fetch *fetch, sd_bus_message *value)
{
	take_text(value, fetch->facts.sub_state, sizeof(fetch->facts.sub_state));
}

static void take_invocation(struct unit_bus_fetch *fetch, sd_bus_message *value)
{
	const void *bytes;
	size_t len;

	if (sd_bus_message_read_array(value, 'y', &bytes, &len) <= 0 || len != 16)
		return;
	for (size_t i = 0; i < len; i++)
		snprintf(fetch->facts.invocation_id + 2 * i, 3, "%02x", ((const uint8_t *)bytes)[i]);
}

static void take_started(struct unit_bus_fetch *fetch, sd_bus_message *value)
{
	uint64_t us;

	if (sd_bus_message_read(value, "t", &us) > 0 && us < UINT64_MAX / NS_PER_US)
		fetch->facts.started_ns = us * NS_PER_US;
}

static void take_cgroup(struct unit_bus_fetch *fetch, sd_bus_message *value)
{
	take_text(value, fetch->cgroup, sizeof(fetch->cgroup));
}

static void take_main_pid(struct unit_bus_fetch *fetch, sd_bus_message *value)
{
	fetch->facts.has_main_pid = sd_bus_message_read(value, "u", &fetch->facts.main_pid) > 0;
}

static void take_restarts(struct unit_bus_fetch *fetch, sd_bus_message *value)
{
	fetch->facts.has_restarts = sd_bus_message_read(value, "u", &fetch->facts.restarts) > 0;
}

enum scope { OF_UNITS, OF_KIND, OF_SERVICES };

static const struct {
	const char *name, *type;
	enum scope scope;
	void (*take)(struct unit_bus_fetch *fetch, sd_bus_message *value);
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

static void dequeue(struct unit_bus *bus, struct unit *unit)
{
	if (unit->is_due)
		TAILQ_REMOVE(unit->due.ns ? &bus->later : &bus->due, unit, queue);
	unit->is_due = false;
}

/* Something may be different. */
static void unit_bus_due(struct unit_bus *bus, struct unit *unit)
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

/* Enters a unit and asks about it. doubtful: it may be gone again. */
static void unit_bus_meet(struct unit_bus *bus, const char *object, bool doubtful)
{
	struct unit *unit = unit_table_find(bus->table, object);
	char name[UNIT_NAME_MAX + 1];

	if (!unit) {
		if (!unit_bus_object_name(bus, object, name))
			return;
		if (unit_table_enter(bus->table, object, &unit) < 0) {
			bus->state.left_out++;
			bus->overfull = true;
			return;
		}
	}
	unit->seen = bus->round;
	unit->doubtful |= doubtful;
	unit_bus_due(bus, unit);
}

static void end_fetch(struct unit_bus_fetch *fetch)
{
	for (size_t i = 0; i < PROPERTIES; i++)
		fetch->asks[i].slot = sd_bus_slot_unref(fetch->asks[i].slot);
	fetch->waiting = 0;
	if (fetch->unit)
		fetch->unit->asking = NULL;
	fetch->unit = NULL;
}

/* Forgets it. */
static void unit_bus_drop(struct unit_bus *bus, struct unit *unit)
{
	if (unit->asking)
		end_fetch(unit->asking);
	dequeue(bus, unit);
	unit_table_remove(bus->table, unit);
}

/* ---- told ---- */

static void answer_wishes(struct unit_bus *bus, const struct unit *unit)
{
	bool loaded = strcmp(unit->facts.load_state, "loaded") == 0;

	for (size_t i = 0; loaded && i < bus->wish_count; i++)
		if (!bus->wishes[i].glob && unit_is_called(unit, bus->wishes[i].name))
			unit_bus_answer(bus, &bus->wishes[i], UNIT_BUS_EXISTS, "");
}

static void finish(struct unit_bus_fetch *fetch)
{
	struct unit_bus *bus = fetch->bus;
	struct unit *unit = fetch->unit;
	const char *before = unit->facts.invocation_id, *after = fetch->facts.invocation_id;
	bool other = *after && strcmp(before, after) != 0, again = unit->again, placed = unit->cgroup != NULL;

	bus->state.restarts += *before && other;
	bus->state.left_out += unit_table_place(bus->table, unit, fetch->cgroup) < 0;
	unit->facts = fetch->facts;
	unit->asked = bus->now;
	unit->again = false;
	end_fetch(fetch);
	if (again)
		unit_bus_due(bus, unit);
	answer_wishes(bus, unit);
	if (bus->options.changed)
		bus->options.changed(bus->options.ctx, unit, other || (unit->cgroup && !placed));
}

/* ---- questions ---- */

/* True: what is asked cannot be had from here. */
static bool is_silent(struct unit_bus *bus, sd_bus_message *reply)
{
	if (sd_bus_message_get_errno(reply) != ETIMEDOUT)
		return false;

	unit_bus_fail(bus, 0, "systemd does not answer");

	return true;
}

static int on_property(sd_bus_message *reply, void *userdata, sd_bus_error *error)
{
	struct ask *ask = userdata;
	struct unit_bus_fetch *fetch = ask->fetch;
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

static int ask_property(struct unit_bus_fetch *fetch, size_t i, const char *kind)
{
	const char *interface = properties[i].scope == OF_UNITS ? SYSTEMD_UNIT : kind;
	int r;

	if (!interface || (properties[i].scope == OF_SERVICES && !strstr(interface, ".Service")))
		return 0;

	r = unit_bus_call(fetch->bus, &fetch->asks[i].slot, fetch->unit->object, "org.freedesktop.DBus.Properties",
			  "Get", on_property, &fetch->asks[i], "ss", interface, properties[i].name);
	fetch->waiting += r == 0;

	return r;
}

static void ask_rest(struct unit_bus_fetch *fetch)
{
	const char *kind = unit_bus_interface(fetch->name);
	int r = 0;

	for (size_t i = 0; r == 0 && i < PROPERTIES; i++)
		r = ask_property(fetch, i, kind);
	if (r < 0)
		unit_bus_fail(fetch->bus, r, NULL);
}

/* The unit's own name first, which its object has. */
static void take_names(struct unit_bus_fetch *fetch, sd_bus_message *reply)
{
	size_t len = strlen(fetch->name) + 1, count = 1;
	const char *name;

	memcpy(fetch->names, fetch->name, len);
	fetch->names[len] = '\0';
	if (sd_bus_message_is_method_error(reply, NULL) || sd_bus_message_enter_container(reply, 'v', "as") <= 0 ||
	    sd_bus_message_enter_container(reply, 'a', "s") <= 0)
		return;

	while (count < UNIT_NAMES_MAX && sd_bus_message_read(reply, "s", &name) > 0) {
		if (strcmp(name, fetch->name) == 0 || !unit_bus_is_name(name))
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
	struct unit_bus_fetch *fetch = ask->fetch;
	struct unit_bus *bus = fetch->bus;

	(void)error;
	ask->slot = sd_bus_slot_unref(ask->slot);
	fetch->waiting = 0;
	if (sd_bus_message_is_method_error(reply, NULL) && is_silent(bus, reply))
		return 0;

	take_names(fetch, reply);
	if (unit_table_rename(bus->table, fetch->unit, fetch->names) < 0) {
		bus->state.left_out++;
		unit_bus_drop(bus, fetch->unit);
	} else if (!unit_bus_is_wanted(bus, fetch->unit)) {
		unit_bus_drop(bus, fetch->unit);
	} else {
		ask_rest(fetch);
	}

	return 0;
}

static void ask_names(struct unit_bus_fetch *fetch)
{
	int r = unit_bus_call(fetch->bus, &fetch->asks[0].slot, fetch->unit->object, "org.freedesktop.DBus.Properties",
			      "Get", on_names, &fetch->asks[0], "ss", SYSTEMD_UNIT, "Names");

	fetch->waiting = 1;
	if (r < 0)
		unit_bus_fail(fetch->bus, r, NULL);
}

static int on_loaded(sd_bus_message *reply, void *userdata, sd_bus_error *error)
{
	struct ask *ask = userdata;
	struct unit_bus_fetch *fetch = ask->fetch;

	(void)error;
	ask->slot = sd_bus_slot_unref(ask->slot);
	if (!sd_bus_message_is_method_error(reply, NULL))
		ask_names(fetch);
	else if (!is_silent(fetch->bus, reply))
		unit_bus_drop(fetch->bus, fetch->unit);

	return 0;
}

static void begin_fetch(struct unit_bus_fetch *fetch, struct unit *unit)
{
	struct unit_bus *bus = fetch->bus;
	bool doubtful = unit->doubtful;

	dequeue(bus, unit);
	if (!unit_bus_object_name(bus, unit->object, fetch->name)) {
		unit_bus_drop(bus, unit); /* of a kind that is not wanted any more */
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

	int r = unit_bus_call(bus, &fetch->asks[0].slot, SYSTEMD_PATH, SYSTEMD_MANAGER, "GetUnit", on_loaded,
			      &fetch->asks[0], "s", fetch->name);

	fetch->waiting = 1;
	if (r < 0)
		unit_bus_fail(bus, r, NULL);
}

/*
 * Who fills the table with names of which there are no units keeps nobody out for longer than it
 * takes to find that out.
 */
static void make_up_for_lack(struct unit_bus *bus)
{
	if (!bus->overfull || !TAILQ_EMPTY(&bus->due) || unit_table_count(bus->table) > UNIT_TABLE_MAX / 2)
		return;

	bus->overfull = false;
	bus->relist = true;
}

/* Asks about those whose turn it is. */
static void unit_bus_ask(struct unit_bus *bus)
{
	struct unit *unit;

	while ((unit = TAILQ_FIRST(&bus->later)) && mono_diff(bus->now, unit->due) >= 0) {
		TAILQ_REMOVE(&bus->later, unit, queue);
		unit->due = (mono_t){ 0 };
		TAILQ_INSERT_TAIL(&bus->due, unit, queue);
	}
	for (size_t i = 0; i < UNIT_BUS_FETCHES && !bus->broken; i++)
		while (!bus->broken && !bus->fetches[i]->unit && (unit = TAILQ_FIRST(&bus->due)))
			begin_fetch(bus->fetches[i], unit);
	make_up_for_lack(bus);
}

/* ---- life ---- */

static int unit_bus_ask_new(struct unit_bus *bus)
{
	for (size_t i = 0; i < UNIT_BUS_FETCHES; i++) {
		bus->fetches[i] = calloc(1, sizeof(*bus->fetches[i]));
		if (!bus->fetches[i])
			return -ENOMEM;
		bus->fetches[i]->bus = bus;
		for (size_t j = 0; j < PROPERTIES; j++)
			bus->fetches[i]->asks[j].fetch = bus->fetches[i];
	}

	return 0;
}

static void unit_bus_ask_free(struct unit_bus *bus)
{
	for (size_t i = 0; i < UNIT_BUS_FETCHES; i++)
		free(bus->fetches[i]);
}

/* Who was asked about is due when there is a connection again. */
static void unit_bus_ask_cancel(struct unit_bus *bus)
{
	for (size_t i = 0; i < UNIT_BUS_FETCHES; i++) {
		struct unit *unit = bus->fetches[i] ? bus->fetches[i]->unit : NULL;

		if (!unit)
			continue;
		end_fetch(bus->fetches[i]);
		unit_bus_due(bus, unit);
	}
}

/*
 * unit_bus_list.c: which units there are: each that is selected by its name is asked for by it
 * (ListUnitsByNames, which knows aliases and what is not loaded), then all of the kinds that globs
 * may mean in one list, because a glob may mean an alias, and lists know units by their first name
 * only. One call at a time; at the end, units that were in none are gone.
 */

static const struct {
	const char *suffix, *interface;
} kinds[UNIT_BUS_KINDS] = {
	{ ".service", "org.freedesktop.systemd1.Service" }, { ".scope", "org.freedesktop.systemd1.Scope" },
	{ ".slice", "org.freedesktop.systemd1.Slice" },     { ".socket", "org.freedesktop.systemd1.Socket" },
	{ ".mount", "org.freedesktop.systemd1.Mount" },     { ".swap", "org.freedesktop.systemd1.Swap" },
};

/* ---- names ---- */

bool unit_bus_is_name(const char *name)
{
	size_t len = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789:-_.\\@");

	return len > 0 && len <= UNIT_NAME_MAX && name[len] == '\0';
}

static bool ends_in(const char *text, const char *suffix)
{
	size_t len = strlen(text), end = strlen(suffix);

	return len >= end && strcmp(text + len - end, suffix) == 0;
}

const char *unit_bus_interface(const char *name)
{
	for (size_t i = 0; i < UNIT_BUS_KINDS; i++)
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

bool unit_bus_object_name(const struct unit_bus *bus, const char *object, char *ret)
{
	char *name = NULL;
	bool wanted = false;

	if (sd_bus_path_decode(object, SYSTEMD_UNITS, &name) <= 0)
		return false;
	if (unit_bus_is_name(name))
		for (size_t i = 0; i < UNIT_BUS_KINDS; i++)
			for (size_t j = 0; ends_in(name, kinds[i].suffix) && !wanted && j < bus->wish_count; j++)
				wanted = may_mean(bus->wishes[j].name, kinds[i].suffix);
	if (wanted)
		memcpy(ret, name, strlen(name) + 1);
	free(name);

	return wanted;
}

/* Is a unit of one of these names wanted? */
static bool unit_bus_is_wanted(const struct unit_bus *bus, const struct unit *unit)
{
	for (size_t i = 0; i < bus->wish_count; i++)
		if (unit_is_called(unit, bus->wishes[i].name))
			return true;

	return false;
}

/* ---- answers ---- */

/* Another answer to a wish, which is passed on. */
static void unit_bus_answer(struct unit_bus *bus, struct unit_bus_wish *wish, enum unit_bus_answer answer,
			    const char *why)
{
	enum unit_bus_answer before = wish->answer;

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
static void take_named(struct unit_bus *bus, struct unit_bus_wish *wish, sd_bus_message *list)
{
	const char *load = "not-found", *object = NULL;
	char name[UNIT_NAME_MAX + 1], why[64];

	if (sd_bus_message_enter_container(list, 'a', "(ssssssouso)") <= 0)
		return;
	read_row(list, &load, &object);
	if (strcmp(load, "not-found") == 0) {
		unit_bus_answer(bus, wish, UNIT_BUS_MISSING, "there is no such unit");
	} else if (strcmp(load, "loaded") != 0) {
		snprintf(why, sizeof(why), "it is %s",
			 strcmp(load, "bad-setting") == 0 ? "not loaded for a bad setting" : load);
		unit_bus_answer(bus, wish, UNIT_BUS_MISSING, why);
	} else if (!unit_bus_object_name(bus, object, name)) {
		unit_bus_answer(bus, wish, UNIT_BUS_MISSING, "units of this kind have no processes");
	} else {
		unit_bus_answer(bus, wish, UNIT_BUS_EXISTS, "");
		unit_bus_meet(bus, object, true); /* loaded for this question, it may be gone by now */
	}
}

static int on_named(sd_bus_message *list, void *userdata, sd_bus_error *error)
{
	struct unit_bus *bus = userdata;
	struct unit_bus_wish *wish = &bus->wishes[bus->listed++];
	char why[UNIT_BUS_WHY_MAX];

	(void)error;
	bus->list = sd_bus_slot_unref(bus->list);
	if (!sd_bus_message_is_method_error(list, NULL)) {
		take_named(bus, wish, list);
		return 0;
	}

	unit_bus_reply_error(list, why, sizeof(why));
	if (sd_bus_message_get_errno(list) == ETIMEDOUT)
		unit_bus_fail(bus, 0, why);
	else if (sd_bus_message_is_method_error(list, SD_BUS_ERROR_INVALID_ARGS))
		unit_bus_answer(bus, wish, UNIT_BUS_MISSING, why);
	else /* may not be asked, or not in this way */
		unit_bus_answer(bus, wish, UNIT_BUS_UNANSWERED, "");

	return 0;
}

/* ---- the end ---- */

static void drop_unlisted(void *ctx, struct unit *unit)
{
	struct unit_bus *bus = ctx;

	if (unit->seen != bus->round)
		unit_bus_drop(bus, unit);
}

static void end_round(struct unit_bus *bus)
{
	unit_table_visit(bus->table, drop_unlisted, bus);
	bus->listed = bus->wish_count + 1;
	bus->state.connected = true;
	bus->state.why[0] = '\0';
}

static int on_kinds(sd_bus_message *list, void *userdata, sd_bus_error *error)
{
	struct unit_bus *bus = userdata;
	char why[UNIT_BUS_WHY_MAX];
	const char *load, *object;

	(void)error;
	bus->list = sd_bus_slot_unref(bus->list);
	if (sd_bus_message_is_method_error(list, NULL)) {
		unit_bus_reply_error(list, why, sizeof(why));
		unit_bus_fail(bus, 0, why);
		return 0;
	}
	if (sd_bus_message_enter_container(list, 'a', "(ssssssouso)") <= 0) {
		unit_bus_fail(bus, 0, "the answer is no list of units");
		return 0;
	}
	while (read_row(list, &load, &object))
		if (strcmp(load, "not-found") != 0)
			unit_bus_meet(bus, object, false);
	end_round(bus);

	return 0;
}

/* ---- questions ---- */

static int ask_for_name(struct unit_bus *bus, const char *name)
{
	return unit_bus_call(bus, &bus->list, SYSTEMD_PATH, SYSTEMD_MANAGER, "ListUnitsByNames", on_named, bus, "as", 1,
			     name);
}

static bool any_glob_means(const struct unit_bus *bus, const char *suffix)
{
	for (size_t i = 0; i < bus->wish_count; i++)
		if (bus->wishes[i].glob && may_mean(bus->wishes[i].name, suffix))
			return true;

	return false;
}

/* Patterns that nothing matches take the place of kinds that are not wanted. */
static int ask_for_kinds(struct unit_bus *bus, bool *ret_asked)
{
	const char *patterns[UNIT_BUS_KINDS];
	char text[UNIT_BUS_KINDS][16];

	*ret_asked = false;
	for (size_t i = 0; i < UNIT_BUS_KINDS; i++) {
		bool wanted = any_glob_means(bus, kinds[i].suffix);

		snprintf(text[i], sizeof(text[i]), "%s%s", wanted ? "*" : "", kinds[i].suffix);
		patterns[i] = text[i];
		*ret_asked |= wanted;
	}
	if (!*ret_asked)
		return 0;

	return unit_bus_call(bus, &bus->list, SYSTEMD_PATH, SYSTEMD_MANAGER, "ListUnitsByPatterns", on_kinds, bus,
			     "asas", 0, UNIT_BUS_KINDS, patterns[0], patterns[1], patterns[2], patterns[3], patterns[4],
			     patterns[5]);
}

/* The next question of the round. */
static int go_on(struct unit_bus *bus)
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

/* Asks for lists, one after the other, if one is due. */
static void unit_bus_list(struct unit_bus *bus)
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
		unit_bus_fail(bus, r, NULL);
}

static void unit_bus_list_cancel(struct unit_bus *bus)
{
	bus->list = sd_bus_slot_unref(bus->list);
}

/*
 * unit bus_signals.c: what systemd tells of its own accord: where to look, and no more (see
 * unit_bus.c).
 */

static int on_new(sd_bus_message *message, void *userdata, sd_bus_error *error)
{
	struct unit_bus *bus = userdata;
	const char *id, *object;

	(void)error;
	bus->state.signals++;
	if (sd_bus_message_read(message, "so", &id, &object) > 0)
		unit_bus_meet(bus, object, true);

	return 0;
}

/* Also the hint that one is gone needs an answer. */
static int on_removed(sd_bus_message *message, void *userdata, sd_bus_error *error)
{
	struct unit_bus *bus = userdata;
	const char *id, *object;
	struct unit *unit;

	(void)error;
	bus->state.signals++;
	unit = sd_bus_message_read(message, "so", &id, &object) > 0 ? unit_table_find(bus->table, object) : NULL;
	if (unit) {
		unit->doubtful = true;
		unit_bus_due(bus, unit);
	}

	return 0;
}

static int on_changed(sd_bus_message *message, void *userdata, sd_bus_error *error)
{
	struct unit_bus *bus = userdata;
	const char *object = sd_bus_message_get_path(message);
	struct unit *unit = object ? unit_table_find(bus->table, object) : NULL;

	(void)error;
	bus->state.signals++;
	if (unit)
		unit_bus_due(bus, unit);

	return 0;
}

/* All may be different when systemd has read its files again. */
static int on_reloading(sd_bus_message *message, void *userdata, sd_bus_error *error)
{
	struct unit_bus *bus = userdata;
	int begins;

	(void)error;
	bus->state.signals++;
	if (sd_bus_message_read(message, "b", &begins) > 0 && !begins)
		bus->relist = true;

	return 0;
}

static int on_subscribed(sd_bus_message *reply, void *userdata, sd_bus_error *error)
{
	char why[UNIT_BUS_WHY_MAX];

	(void)error;
	if (sd_bus_message_is_method_error(reply, NULL)) {
		unit_bus_reply_error(reply, why, sizeof(why));
		unit_bus_fail(userdata, 0, why);
	}

	return 0;
}

static int unit_bus_subscribe(struct unit_bus *bus)
{
	return unit_bus_call(bus, NULL, SYSTEMD_PATH, SYSTEMD_MANAGER, "Subscribe", on_subscribed, bus, "");
}

/* systemd has another name on the bus: it executed itself anew. */
static int on_owner(sd_bus_message *message, void *userdata, sd_bus_error *error)
{
	struct unit_bus *bus = userdata;
	const char *name, *before, *after;

	(void)error;
	bus->state.signals++;
	if (sd_bus_message_read(message, "sss", &name, &before, &after) <= 0 || *after == '\0')
		return 0;
	bus->relist = true;
	int r = unit_bus_subscribe(bus);

	if (r < 0)
		unit_bus_fail(bus, r, NULL);

	return 0;
}

struct signal {
	const char *match;
	sd_bus_message_handler_t handler;
	bool from_bus; /* not from systemd */
};

static int listen_for(struct unit_bus *bus, const struct signal *signal)
{
	const char *sender = bus->peer          ? ""
			     : signal->from_bus ? "sender='org.freedesktop.DBus',"
						: "sender='" SYSTEMD_NAME "',";
	char match[512];

	if (signal->from_bus && bus->peer)
		return 0;
	snprintf(match, sizeof(match), "type='signal',%s%s", sender, signal->match);

	return sd_bus_add_match_async(bus->connection, NULL, match, signal->handler, on_subscribed, bus);
}

/* Asks for signals: of the bus, or the socket; of systemd. 0 or -errno. */
static int unit_bus_listen(struct unit_bus *bus)
{
#define ABOUT_UNITS "path='" SYSTEMD_PATH "',interface='" SYSTEMD_MANAGER "',"
	static const struct signal signals[] = {
		{ ABOUT_UNITS "member='UnitNew'", on_new, false },
		{ ABOUT_UNITS "member='UnitRemoved'", on_removed, false },
		{ ABOUT_UNITS "member='Reloading'", on_reloading, false },
		/* One of two for every change: that of the unit's kind comes with it. */
		{ "interface='org.freedesktop.DBus.Properties',member='PropertiesChanged',path_namespace="
		  "'" SYSTEMD_UNITS "',arg0='" SYSTEMD_UNIT "'",
		  on_changed, false },
		{ "path='/org/freedesktop/"
		  "DBus',interface='org.freedesktop.DBus',member='NameOwnerChanged',arg0='" SYSTEMD_NAME "'",
		  on_owner, true },
	};
	int r = 0;

	for (size_t i = 0; r >= 0 && i < ARRAY_LEN(signals); i++)
		r = listen_for(bus, &signals[i]);

	return r;
}

#define TIMEOUT_NS (20 * NS_PER_S)
#define PRIVATE_ADDRESS "unix:path=/run/systemd/private"

/*
 * Tries: the pause doubles from one to the other. A connection that held for so long is none that
 * failed.
 */
#define RETRY_MIN_NS (250 * NS_PER_MS)
#define RETRY_MAX_NS (60 * NS_PER_S)

/* Messages at a time, so that whoever hears gets on. */
#define MESSAGES_MAX 64

/* Of CPU time in a second. */
#define WINDOW_NS NS_PER_S
#define BUDGET_NS (20 * NS_PER_MS)

/* ---- calls ---- */

/* The connection is to be given up as soon as that may be. why NULL: error in words. */
static void unit_bus_fail(struct unit_bus *bus, int error, const char *why)
{
	if (bus->broken)
		return;

	bus->broken = true;
	snprintf(bus->state.why, sizeof(bus->state.why), "%s", why ? why : strerror(error < 0 ? -error : error));
}

/* In words, what a reply says that is an error. */
static void unit_bus_reply_error(sd_bus_message *reply, char *ret, size_t cap)
{
	const sd_bus_error *error = sd_bus_message_get_error(reply);

	if (sd_bus_message_get_errno(reply) == ETIMEDOUT)
		snprintf(ret, cap, "systemd does not answer");
	else
		snprintf(ret, cap, "%s", error && error->message ? error->message : "refused");
}

/* A call to systemd; types and what follows as sd_bus_message_append. 0 or -errno. */
static int unit_bus_call(struct unit_bus *bus, sd_bus_slot **ret, const char *path, const char *interface,
			 const char *member, sd_bus_message_handler_t reply, void *userdata, const char *types, ...)
{
	uint64_t timeout_ns = bus->options.timeout_ns ? bus->options.timeout_ns : TIMEOUT_NS;
	sd_bus_message *call = NULL;
	va_list arguments;
	int r = sd_bus_message_new_method_call(bus->connection, &call, bus->peer ? NULL : SYSTEMD_NAME, path, interface,
					       member);

	if (r < 0)
		return r;

	va_start(arguments, types);
	r = sd_bus_message_appendv(call, types, arguments);
	va_end(arguments);
	if (r >= 0)
		r = sd_bus_call_async(bus->connection, ret, call, reply, userdata, timeout_ns / NS_PER_US);
	sd_bus_message_unref(call);

	return r < 0 ? r : 0;
}

/* ---- the connection ---- */

/* Without waiting: what is behind the address need not even be there yet. */
static int try_address(struct unit_bus *bus, const char *address, bool peer)
{
	int r = sd_bus_new(&bus->connection);

	if (r >= 0)
		r = sd_bus_set_address(bus->connection, address);
	if (r >= 0 && !peer)
		r = sd_bus_set_bus_client(bus->connection, 1);
	if (r >= 0)
		r = sd_bus_start(bus->connection);
	bus->peer = peer;
	if (r < 0)
		bus->connection = sd_bus_close_unref(bus->connection);

	return r;
}

static int open_connection(struct unit_bus *bus)
{
	const char *address = bus->options.address, *set = secure_getenv("DBUS_SYSTEM_BUS_ADDRESS");
	int r;

	if (address)
		return try_address(bus, address, bus->options.peer);

	r = try_address(bus, set ? set : "unix:path=/run/dbus/system_bus_socket", false);
	if (r < 0 && geteuid() == 0 && try_address(bus, PRIVATE_ADDRESS, true) >= 0)
		r = 0;

	return r;
}

static void close_connection(struct unit_bus *bus)
{
	unit_bus_list_cancel(bus);
	unit_bus_ask_cancel(bus);
	bus->connection = sd_bus_close_unref(bus->connection);
	bus->broken = bus->state.connected = false;
}

static void give_up(struct unit_bus *bus)
{
	uint64_t pause = RETRY_MIN_NS;

	if (bus->connection && bus->state.connected && mono_diff(bus->now, bus->connected) > (int64_t)RETRY_MAX_NS)
		bus->failures = 0;
	for (unsigned i = 0; i < bus->failures && pause < RETRY_MAX_NS; i++)
		pause *= 2;
	bus->failures++;
	bus->retry = mono_add(bus->now, pause < RETRY_MAX_NS ? pause : RETRY_MAX_NS);
	close_connection(bus);
}

static void connect_again(struct unit_bus *bus)
{
	int r;

	if (mono_diff(bus->retry, bus->now) > 0)
		return;

	r = open_connection(bus);
	if (r >= 0)
		r = unit_bus_listen(bus);
	if (r >= 0)
		r = unit_bus_subscribe(bus);
	if (r < 0) {
		unit_bus_fail(bus, r, NULL);
		give_up(bus);
		return;
	}
	bus->connected = bus->now;
	bus->state.connects++;
	bus->relist = true;
}

/* ---- heard ---- */

static bool is_held_off(const struct unit_bus *bus, mono_t now)
{
	return bus->spent_ns > BUDGET_NS && mono_diff(now, mono_add(bus->window, WINDOW_NS)) < 0;
}

static void spend(struct unit_bus *bus, uint64_t cpu_ns)
{
	bool before = bus->spent_ns > BUDGET_NS;

	bus->spent_ns += cpu_ns;
	bus->state.delays += !before && bus->spent_ns > BUDGET_NS;
}

/* True: there were some. */
static bool take_messages(struct unit_bus *bus)
{
	bool any = false;

	for (int i = 0; i < MESSAGES_MAX && !bus->broken; i++) {
		int r = sd_bus_process(bus->connection, NULL);

		if (r < 0)
			unit_bus_fail(bus, r, r == -ETIMEDOUT ? "the bus does not answer" : NULL);
		else if (sd_bus_is_open(bus->connection) <= 0)
			unit_bus_fail(bus, 0, "the bus has closed the connection");
		if (r <= 0)
			return any;
		any = true;
	}

	return any;
}

bool unit_bus_read(struct unit_bus *bus, mono_t now)
{
	bool any = false;
	uint64_t cpu;

	if (bus->wish_count == 0 || is_held_off(bus, now))
		return false;

	if (mono_diff(now, mono_add(bus->window, WINDOW_NS)) >= 0) {
		bus->window = now;
		bus->spent_ns = 0;
	}
	cpu = real_clock_thread_cpu();
	bus->now = now;
	if (!bus->connection)
		connect_again(bus);
	if (bus->connection) {
		any = take_messages(bus);
		if (!bus->broken)
			unit_bus_list(bus);
		if (!bus->broken)
			unit_bus_ask(bus);
		if (bus->broken)
			give_up(bus);
	}
	spend(bus, real_clock_thread_cpu() - cpu);

	return any;
}

static void sooner(mono_t *until, mono_t at)
{
	if (mono_diff(*until, at) > 0)
		*until = at;
}

bool unit_bus_await(struct unit_bus *bus, mono_t now, struct pollfd *ret, mono_t *until)
{
	uint64_t timeout_us = UINT64_MAX;
	int events;

	if (bus->wish_count == 0)
		return false;
	if (is_held_off(bus, now)) {
		sooner(until, mono_add(bus->window, WINDOW_NS));
		return false;
	}
	if (!bus->connection) {
		sooner(until, bus->retry);
		return false;
	}

	events = sd_bus_get_events(bus->connection);
	if (events < 0 || sd_bus_get_timeout(bus->connection, &timeout_us) < 0 || (bus->relist && !bus->list)) {
		sooner(until, now); /* it is broken, which hearing finds out */
		return false;
	}
	if (timeout_us < UINT64_MAX / NS_PER_US)
		sooner(until, (mono_t){ timeout_us * NS_PER_US });
	if (!TAILQ_EMPTY(&bus->later))
		sooner(until, TAILQ_FIRST(&bus->later)->due);
	*ret = (struct pollfd){ .fd = sd_bus_get_fd(bus->connection), .events = (short)events };

	return true;
}

/* ---- build ---- */

int unit_bus_new(const struct unit_bus_options *options, struct unit_bus **ret)
{
	struct unit_bus *bus = calloc(1, sizeof(*bus));
	int r;

	if (!bus)
		return -ENOMEM;

	bus->options = *options;
	TAILQ_INIT(&bus->due);
	TAILQ_INIT(&bus->later);
	r = unit_table_new(&bus->table);
	if (r == 0)
		r = unit_bus_ask_new(bus);
	if (r < 0) {
		unit_bus_free(bus);
		return r;
	}
	*ret = bus;

	return 0;
}

static void free_wishes(struct unit_bus_wish *wishes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		free(wishes[i].name);
	free(wishes);
}

void unit_bus_free(struct unit_bus *bus)
{
	if (!bus)
		return;

	close_connection(bus);
	unit_bus_ask_free(bus);
	unit_table_free(bus->table);
	free_wishes(bus->wishes, bus->wish_count);
	free(bus);
}

static void keep_answer(const struct unit_bus *bus, struct unit_bus_wish *wish)
{
	for (size_t i = 0; i < bus->wish_count; i++) {
		if (strcmp(bus->wishes[i].name, wish->name) != 0)
			continue;
		wish->answer = bus->wishes[i].answer;
		memcpy(wish->why, bus->wishes[i].why, sizeof(wish->why));
	}
}

static void drop_unwanted(void *ctx, struct unit *unit)
{
	struct unit_bus *bus = ctx;

	if (unit->names && !unit_bus_is_wanted(bus, unit))
		unit_bus_drop(bus, unit);
}

int unit_bus_want(struct unit_bus *bus, const char *const *names, size_t count)
{
	struct unit_bus_wish *wishes = calloc(count ? count : 1, sizeof(*wishes));

	for (size_t i = 0; wishes && i < count; i++) {
		wishes[i].name = strdup(names[i]);
		if (!wishes[i].name) {
			free_wishes(wishes, count);
			wishes = NULL;
		}
	}
	if (!wishes)
		return -ENOMEM;

	for (size_t i = 0; i < count; i++) {
		wishes[i].glob = strpbrk(names[i], "*?[") != NULL;
		keep_answer(bus, &wishes[i]);
	}
	unit_bus_list_cancel(bus);
	free_wishes(bus->wishes, bus->wish_count);
	bus->wishes = wishes;
	bus->wish_count = count;
	bus->relist = bus->connection != NULL;
	unit_table_visit(bus->table, drop_unwanted, bus);
	if (count == 0) {
		close_connection(bus);
		bus->failures = 0;
		bus->retry = (mono_t){ 0 };
	}

	return 0;
}

/* ---- questions ---- */

const struct unit_table *unit_bus_units(const struct unit_bus *bus)
{
	return bus->table;
}

void unit_bus_state(const struct unit_bus *bus, struct unit_bus_state *ret)
{
	*ret = bus->state;
	ret->units = unit_table_count(bus->table);
}

void unit_bus_visit(const struct unit_bus *bus,
		    void (*visit)(void *ctx, const char *name, enum unit_bus_answer answer, const char *why), void *ctx)
{
	for (size_t i = 0; i < bus->wish_count; i++)
		if (!bus->wishes[i].glob)
			visit(ctx, bus->wishes[i].name, bus->wishes[i].answer, bus->wishes[i].why);
}
