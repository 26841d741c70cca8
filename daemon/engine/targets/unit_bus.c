/*
 * unit_bus.c: a table of units, and a connection to systemd that keeps it up to date.
 *
 * 	(nothing wanted) ──▶ CLOSED ──▶ connecting, lists ──▶ connected
 * 	                       ▲  the next try is later: 0.25 s, 0.5 s, ... 1 min  │
 * 	                       └───────────────────────────────────────────────────┘
 *
 * A signal only says which unit to ask about; what the table holds comes from answers alone. So any
 * process on the bus may send what looks like a signal, and it does not matter which version of
 * systemd puts what into them.
 *
 * About a unit is asked, a few units at a time:
 *
 * 	due ──▶ is it loaded (only if in doubt) ──▶ its names ──▶ the rest, all at once ──▶ reported
 * 	             │ no                             │ none is wanted
 * 	             └───────────▶ dropped ◀──────────┘
 *
 * systemd loads a unit whose properties are asked for, signals that, and unloads it again: asked
 * without care, it would signal our own question for ever. Hence a unit that a signal names is
 * first asked for in the way that loads nothing (GetUnit). A unit that changes while it is asked
 * about, or right after, is asked about again a moment later: one that flaps costs twenty rounds a
 * second. An answer that is an error, or of another type than expected, leaves that one property
 * unknown: older systemd does not have all of them.
 *
 * Which units there are: each that is selected by its name is asked for by it (ListUnitsByNames,
 * which knows aliases and what is not loaded), then all of the kinds that globs may mean in one
 * list, because a glob may mean an alias, and lists know units by their first name only. One call
 * at a time; at the end units that were in none are gone.
 *
 * The table is asked with every cgroup and process that a scan meets: where no unit has another
 * name than its cgroup, which is most machines, the answer is one comparison.
 *
 * Rejected: the daemon's event loop, which would have to hand everything to discovery; here
 * discovery's own thread reads. And GetAll: among what it returns are dozens of cgroup files that
 * systemd reads for it.
 */
#include "daemon/engine/targets/unit_bus.h"

#include "daemon/engine/base/clocks.h"
#include "lib/base/map.h"
#include "lib/config/selection.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

#define UNIT_NAMES_MAX 32 /* of one unit; more are left out */
#define NAMES_BYTES (UNIT_NAMES_MAX * (UNIT_NAME_MAX + 1) + 1)

#define SYSTEMD_NAME "org.freedesktop.systemd1"
#define SYSTEMD_PATH "/org/freedesktop/systemd1"
#define SYSTEMD_UNITS "/org/freedesktop/systemd1/unit"
#define SYSTEMD_MANAGER "org.freedesktop.systemd1.Manager"
#define SYSTEMD_UNIT "org.freedesktop.systemd1.Unit"
#define PRIVATE_ADDRESS "unix:path=/run/systemd/private"

/* Kinds of units that have processes. */
#define UNIT_BUS_KINDS 6

/* Units that are asked about at a time; others wait in the queues. */
#define UNIT_BUS_FETCHES 8

/* Properties asked for, beside the names. */
#define PROPERTIES 8

/* Between two rounds of questions about the same unit. */
#define PAUSE_NS (50 * NS_PER_MS)

/* Of an answer. */
#define TIMEOUT_NS (20 * NS_PER_S)

/*
 * Between two tries to connect: doubled each time. A connection that held for the longest pause was
 * no failure.
 */
#define RETRY_MIN_NS (250 * NS_PER_MS)
#define RETRY_MAX_NS (60 * NS_PER_S)

/* Messages at a time, so that the caller makes progress. */
#define MESSAGES_MAX 64

/* CPU time in a second. */
#define WINDOW_NS NS_PER_S
#define BUDGET_NS (20 * NS_PER_MS)

struct unit_bus_fetch;

struct known_unit {
	struct unit shown; /* first, see known_of */
	char *object;      /* its path on the bus: its identity */
	struct map_node object_node, cgroup_node;
	uint64_t seen; /* the last round of lists that had it */
	bool doubtful; /* it may be gone: that is asked first */
	bool is_due;   /* in a queue */
	bool again;    /* something changed while it was asked about */
	struct unit_bus_fetch *asking;
	mono_t asked, due;
	TAILQ_ENTRY(known_unit) queue;
};

TAILQ_HEAD(unit_queue, known_unit);

struct unit_table {
	struct map objects, cgroups;
	size_t unlike; /* units with a name that their cgroup has not */
};

struct ask {
	struct unit_bus_fetch *fetch;
	sd_bus_slot *slot;
};

/* The questions about one unit. */
struct unit_bus_fetch {
	struct unit_bus *bus;
	struct known_unit *unit; /* NULL: free */
	struct ask asks[PROPERTIES];
	unsigned waiting; /* for so many answers */
	char name[UNIT_NAME_MAX + 1];
	char names[NAMES_BYTES];
	char cgroup[PATH_MAX];
	struct unit_facts facts;
};

/* A name or glob that is wanted. */
struct unit_bus_wish {
	char *name;
	bool glob;
	enum unit_bus_answer answer;
	char why[UNIT_BUS_WHY_MAX];
};

struct unit_bus {
	struct unit_bus_options options;
	sd_bus *connection; /* NULL: there is none */
	bool peer;          /* it is to systemd itself */
	struct unit_table *table;
	struct unit_bus_wish *wishes;
	size_t wish_count;
	struct unit_queue due, later; /* to be asked about: now; at their time, in its order */
	struct unit_bus_fetch *fetches[UNIT_BUS_FETCHES];
	sd_bus_slot *list; /* the running call for a list, or NULL */
	size_t listed;     /* wishes that were listed in this round */
	bool relist;       /* from the beginning */
	bool overfull;     /* there was no room for a unit: when there is, lists name it again */
	uint64_t round;    /* of lists: units that were not in it are gone */
	struct unit_bus_state state;
	mono_t now;       /* of this unit_bus_read */
	mono_t retry;     /* without a connection: when the next try is due */
	mono_t connected; /* since when there is this one */
	mono_t window;    /* of the budget, and what was taken out of it */
	uint64_t spent_ns;
	unsigned failures; /* in a row */
	bool broken;       /* the connection is to be closed; state.why says why */
};

static const struct {
	const char *suffix, *interface;
} kinds[UNIT_BUS_KINDS] = {
	{ ".service", "org.freedesktop.systemd1.Service" }, { ".scope", "org.freedesktop.systemd1.Scope" },
	{ ".slice", "org.freedesktop.systemd1.Slice" },     { ".socket", "org.freedesktop.systemd1.Socket" },
	{ ".mount", "org.freedesktop.systemd1.Mount" },     { ".swap", "org.freedesktop.systemd1.Swap" },
};

/* ---- the table ---- */

/* Of a unit that a visitor was handed. */
static struct known_unit *known_of(struct unit *unit)
{
	return (struct known_unit *)(void *)unit;
}

static void unit_table_remove(struct unit_table *table, struct known_unit *unit)
{
	map_remove(&table->objects, &unit->object_node);
	if (unit->shown.cgroup)
		map_remove(&table->cgroups, &unit->cgroup_node);
	table->unlike -= unit->shown.unlike;
	free(unit->object);
	free(unit->shown.names);
	free(unit->shown.cgroup);
	free(unit);
}

static void unit_table_free(struct unit_table *table)
{
	if (!table)
		return;

	MAP_FOR_EACH(node, &table->objects)
		unit_table_remove(table, MAP_ENTRY(node, struct known_unit, object_node));
	map_release(&table->objects);
	map_release(&table->cgroups);
	free(table);
}

static int unit_table_new(struct unit_table **ret)
{
	struct unit_table *table = calloc(1, sizeof(*table));
	int r = table ? map_reserve(&table->objects, 1) : -ENOMEM;

	if (r == 0)
		r = map_reserve(&table->cgroups, 1);
	if (r < 0) {
		unit_table_free(table);
		return r;
	}
	*ret = table;

	return 0;
}

static struct known_unit *unit_table_find(const struct unit_table *table, const char *object)
{
	uint64_t hash = map_hash(object, strlen(object));

	for (struct map_node *node = map_first(&table->objects, hash); node; node = map_next(node)) {
		struct known_unit *unit = MAP_ENTRY(node, struct known_unit, object_node);

		if (strcmp(unit->object, object) == 0)
			return unit;
	}

	return NULL;
}

/* Enters one that is not in it. 0; -ENOMEM; -ENOSPC: there are UNIT_TABLE_MAX. */
static int unit_table_enter(struct unit_table *table, const char *object, struct known_unit **ret)
{
	struct known_unit *unit;

	if (table->objects.count == UNIT_TABLE_MAX)
		return -ENOSPC;
	if (map_reserve(&table->objects, table->objects.count + 1) < 0 ||
	    map_reserve(&table->cgroups, table->objects.count + 1) < 0)
		return -ENOMEM;
	unit = calloc(1, sizeof(*unit));
	if (!unit)
		return -ENOMEM;
	unit->object = strdup(object);
	if (!unit->object) {
		free(unit);
		return -ENOMEM;
	}

	map_insert(&table->objects, &unit->object_node, map_hash(object, strlen(object)));
	*ret = unit;

	return 0;
}

/* Whether it has a name that its cgroup has not. */
static void compare_names(struct unit_table *table, struct known_unit *unit)
{
	bool unlike = false;

	for (const char *name = unit->shown.cgroup ? unit->shown.names : NULL; name && *name; name += strlen(name) + 1)
		unlike |= strcmp(strrchr(unit->shown.cgroup, '/') + 1, name) != 0;
	table->unlike += unlike;
	table->unlike -= unit->shown.unlike;
	unit->shown.unlike = unlike;
}

/* names as in struct unit; they are copied. 0; -ENOMEM: nothing has changed. */
static int unit_table_rename(struct unit_table *table, struct known_unit *unit, const char *names)
{
	size_t len = 1;
	char *copy;

	for (const char *name = names; *name; name += strlen(name) + 1)
		len += strlen(name) + 1;
	copy = malloc(len);
	if (!copy)
		return -ENOMEM;

	memcpy(copy, names, len);
	free(unit->shown.names);
	unit->shown.names = copy;
	compare_names(table, unit);

	return 0;
}

/* A path of a cgroup below the root, without "." and "..". */
static bool is_cgroup_path(const char *cgroup)
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

/* Its cgroup now; with no path below the root ("") the last one stays. 0; -ENOMEM: no change. */
static int unit_table_place(struct unit_table *table, struct known_unit *unit, const char *cgroup)
{
	char *copy;

	if (!is_cgroup_path(cgroup) || (unit->shown.cgroup && strcmp(unit->shown.cgroup, cgroup) == 0))
		return 0;
	copy = strdup(cgroup);
	if (!copy)
		return -ENOMEM;

	if (unit->shown.cgroup)
		map_remove(&table->cgroups, &unit->cgroup_node);
	free(unit->shown.cgroup);
	unit->shown.cgroup = copy;
	map_insert(&table->cgroups, &unit->cgroup_node, map_hash(copy, strlen(copy)));
	compare_names(table, unit);

	return 0;
}

static bool unit_is_called(const struct known_unit *unit, const char *glob)
{
	for (const char *name = unit->shown.names; name && *name; name += strlen(name) + 1)
		if (match_unit_name(glob, name))
			return true;

	return false;
}

/* node, or the first one after it, whose cgroup is these bytes. */
static const struct known_unit *with_cgroup(struct map_node *node, const char *cgroup, size_t len)
{
	for (; node; node = map_next(node)) {
		const struct known_unit *unit = MAP_ENTRY(node, struct known_unit, cgroup_node);

		if (strncmp(unit->shown.cgroup, cgroup, len) == 0 && unit->shown.cgroup[len] == '\0')
			return unit;
	}

	return NULL;
}

static size_t parent_length(const char *cgroup, size_t len)
{
	while (len > 0 && cgroup[--len] != '/')
		;

	return len;
}

const struct unit *unit_table_of(const struct unit_table *table, const char *cgroup)
{
	for (size_t len = strlen(cgroup); len > 0; len = parent_length(cgroup, len)) {
		const struct known_unit *unit =
			with_cgroup(map_first(&table->cgroups, map_hash(cgroup, len)), cgroup, len);

		if (unit)
			return &unit->shown;
	}

	return NULL;
}

bool unit_table_matches(const struct unit_table *table, const char *glob, const char *cgroup, bool below)
{
	if (table->unlike == 0)
		return false;

	for (size_t len = strlen(cgroup); len > 0; len = below ? parent_length(cgroup, len) : 0) {
		const struct known_unit *unit =
			with_cgroup(map_first(&table->cgroups, map_hash(cgroup, len)), cgroup, len);

		for (; unit; unit = with_cgroup(map_next(&unit->cgroup_node), cgroup, len))
			if (unit->shown.unlike && unit_is_called(unit, glob))
				return true;
	}

	return false;
}

static void unit_table_visit(const struct unit_table *table, void (*visit)(void *ctx, struct unit *unit), void *ctx)
{
	MAP_FOR_EACH(node, &table->objects)
		visit(ctx, &MAP_ENTRY(node, struct known_unit, object_node)->shown);
}

/* ---- calls ---- */

/* The connection is closed as soon as possible. why NULL: the text of error. */
static void fail(struct unit_bus *bus, int error, const char *why)
{
	if (bus->broken)
		return;

	bus->broken = true;
	snprintf(bus->state.why, sizeof(bus->state.why), "%s", why ? why : strerror(error < 0 ? -error : error));
}

/* The text of a reply that is an error. */
static void reply_error(sd_bus_message *reply, char *ret, size_t cap)
{
	const sd_bus_error *error = sd_bus_message_get_error(reply);

	if (sd_bus_message_get_errno(reply) == ETIMEDOUT)
		snprintf(ret, cap, "systemd does not answer");
	else
		snprintf(ret, cap, "%s", error && error->message ? error->message : "refused");
}

/* A call to systemd; types and what follows as sd_bus_message_append. 0 or -errno. */
static int call_systemd(struct unit_bus *bus, sd_bus_slot **ret, const char *path, const char *interface,
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

/* ---- names ---- */

static bool is_unit_name(const char *name)
{
	size_t len = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789:-_.\\@");

	return len > 0 && len <= UNIT_NAME_MAX && name[len] == '\0';
}

static bool ends_in(const char *text, const char *suffix)
{
	size_t len = strlen(text), end = strlen(suffix);

	return len >= end && strcmp(text + len - end, suffix) == 0;
}

/* The D-Bus interface of the unit's kind; NULL: units of that kind have no processes. */
static const char *interface_of(const char *name)
{
	for (size_t i = 0; i < UNIT_BUS_KINDS; i++)
		if (ends_in(name, kinds[i].suffix))
			return kinds[i].interface;

	return NULL;
}

/* Whether a name or glob may mean units of the kind with this suffix. */
static bool may_mean(const char *pattern, const char *suffix)
{
	const char *dot = strrchr(pattern, '.');

	return !dot || strpbrk(dot, "*?[]") ? true : strcmp(dot, suffix) == 0;
}

/* If it may be a wanted unit with processes. ret has room for UNIT_NAME_MAX and its NUL. */
static bool name_of_object(const struct unit_bus *bus, const char *object, char *ret)
{
	char *name = NULL;
	bool wanted = false;

	if (sd_bus_path_decode(object, SYSTEMD_UNITS, &name) <= 0)
		return false;
	if (is_unit_name(name))
		for (size_t i = 0; i < UNIT_BUS_KINDS; i++)
			for (size_t j = 0; ends_in(name, kinds[i].suffix) && !wanted && j < bus->wish_count; j++)
				wanted = may_mean(bus->wishes[j].name, kinds[i].suffix);
	if (wanted)
		memcpy(ret, name, strlen(name) + 1);
	free(name);

	return wanted;
}

static bool is_wanted(const struct unit_bus *bus, const struct known_unit *unit)
{
	for (size_t i = 0; i < bus->wish_count; i++)
		if (unit_is_called(unit, bus->wishes[i].name))
			return true;

	return false;
}

/* The answer to a wish; another one than before is passed on. */
static void answer_wish(struct unit_bus *bus, struct unit_bus_wish *wish, enum unit_bus_answer answer, const char *why)
{
	enum unit_bus_answer before = wish->answer;

	if (before == answer && strcmp(wish->why, why) == 0)
		return;

	wish->answer = answer;
	snprintf(wish->why, sizeof(wish->why), "%s", why);
	if (bus->options.answered)
		bus->options.answered(bus->options.ctx, wish->name, before, answer, wish->why);
}

/* ---- questions about a unit ---- */

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

static void queue_remove(struct unit_bus *bus, struct known_unit *unit)
{
	if (unit->is_due)
		TAILQ_REMOVE(unit->due.ns ? &bus->later : &bus->due, unit, queue);
	unit->is_due = false;
}

/* It may have changed. */
static void queue_unit(struct unit_bus *bus, struct known_unit *unit)
{
	bool lately = unit->asked.ns && mono_diff(bus->now, unit->asked) < (int64_t)PAUSE_NS;

	unit->again |= unit->asking != NULL;
	if (unit->asking || unit->is_due)
		return;

	/* The pause is the same for all, so the queue is in the order of due. */
	unit->is_due = true;
	unit->due = lately ? mono_add(bus->now, PAUSE_NS) : (mono_t){ 0 };
	TAILQ_INSERT_TAIL(lately ? &bus->later : &bus->due, unit, queue);
}

/* Enters a unit and asks about it. doubtful: it may be gone again. */
static void meet_unit(struct unit_bus *bus, const char *object, bool doubtful)
{
	struct known_unit *unit = unit_table_find(bus->table, object);
	char name[UNIT_NAME_MAX + 1];

	if (!unit) {
		if (!name_of_object(bus, object, name))
			return;
		if (unit_table_enter(bus->table, object, &unit) < 0) {
			bus->state.left_out++;
			bus->overfull = true;
			return;
		}
	}
	unit->seen = bus->round;
	unit->doubtful |= doubtful;
	queue_unit(bus, unit);
}

static void fetch_end(struct unit_bus_fetch *fetch)
{
	for (size_t i = 0; i < PROPERTIES; i++)
		fetch->asks[i].slot = sd_bus_slot_unref(fetch->asks[i].slot);
	fetch->waiting = 0;
	if (fetch->unit)
		fetch->unit->asking = NULL;
	fetch->unit = NULL;
}

static void drop_unit(struct unit_bus *bus, struct known_unit *unit)
{
	if (unit->asking)
		fetch_end(unit->asking);
	queue_remove(bus, unit);
	unit_table_remove(bus->table, unit);
}

static void answer_wishes(struct unit_bus *bus, const struct known_unit *unit)
{
	bool loaded = strcmp(unit->shown.facts.load_state, "loaded") == 0;

	for (size_t i = 0; loaded && i < bus->wish_count; i++)
		if (!bus->wishes[i].glob && unit_is_called(unit, bus->wishes[i].name))
			answer_wish(bus, &bus->wishes[i], UNIT_BUS_EXISTS, "");
}

static void fetch_finish(struct unit_bus_fetch *fetch)
{
	struct unit_bus *bus = fetch->bus;
	struct known_unit *unit = fetch->unit;
	const char *before = unit->shown.facts.invocation_id, *after = fetch->facts.invocation_id;
	bool other = *after && strcmp(before, after) != 0, again = unit->again, placed = unit->shown.cgroup != NULL;

	bus->state.restarts += *before && other;
	bus->state.left_out += unit_table_place(bus->table, unit, fetch->cgroup) < 0;
	unit->shown.facts = fetch->facts;
	unit->asked = bus->now;
	unit->again = false;
	fetch_end(fetch);
	if (again)
		queue_unit(bus, unit);
	answer_wishes(bus, unit);
	if (bus->options.changed)
		bus->options.changed(bus->options.ctx, &unit->shown, other || (unit->shown.cgroup && !placed));
}

/* True: it was no answer: the connection is given up. */
static bool is_no_answer(struct unit_bus *bus, sd_bus_message *reply)
{
	if (sd_bus_message_get_errno(reply) != ETIMEDOUT)
		return false;

	fail(bus, 0, "systemd does not answer");

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
	} else if (is_no_answer(fetch->bus, reply)) {
		return 0;
	}
	if (--fetch->waiting == 0)
		fetch_finish(fetch);

	return 0;
}

static int ask_property(struct unit_bus_fetch *fetch, size_t i, const char *kind)
{
	const char *interface = properties[i].scope == OF_UNITS ? SYSTEMD_UNIT : kind;
	int r;

	if (!interface || (properties[i].scope == OF_SERVICES && !strstr(interface, ".Service")))
		return 0;

	r = call_systemd(fetch->bus, &fetch->asks[i].slot, fetch->unit->object, "org.freedesktop.DBus.Properties",
			 "Get", on_property, &fetch->asks[i], "ss", interface, properties[i].name);
	fetch->waiting += r == 0;

	return r;
}

static void ask_rest(struct unit_bus_fetch *fetch)
{
	const char *kind = interface_of(fetch->name);
	int r = 0;

	for (size_t i = 0; r == 0 && i < PROPERTIES; i++)
		r = ask_property(fetch, i, kind);
	if (r < 0)
		fail(fetch->bus, r, NULL);
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
		if (strcmp(name, fetch->name) == 0 || !is_unit_name(name))
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
	if (sd_bus_message_is_method_error(reply, NULL) && is_no_answer(bus, reply))
		return 0;

	take_names(fetch, reply);
	if (unit_table_rename(bus->table, fetch->unit, fetch->names) < 0) {
		bus->state.left_out++;
		drop_unit(bus, fetch->unit);
	} else if (!is_wanted(bus, fetch->unit)) {
		drop_unit(bus, fetch->unit);
	} else {
		ask_rest(fetch);
	}

	return 0;
}

static void ask_names(struct unit_bus_fetch *fetch)
{
	int r = call_systemd(fetch->bus, &fetch->asks[0].slot, fetch->unit->object, "org.freedesktop.DBus.Properties",
			     "Get", on_names, &fetch->asks[0], "ss", SYSTEMD_UNIT, "Names");

	fetch->waiting = 1;
	if (r < 0)
		fail(fetch->bus, r, NULL);
}

static int on_loaded(sd_bus_message *reply, void *userdata, sd_bus_error *error)
{
	struct ask *ask = userdata;
	struct unit_bus_fetch *fetch = ask->fetch;

	(void)error;
	ask->slot = sd_bus_slot_unref(ask->slot);
	if (!sd_bus_message_is_method_error(reply, NULL))
		ask_names(fetch);
	else if (!is_no_answer(fetch->bus, reply))
		drop_unit(fetch->bus, fetch->unit);

	return 0;
}

static void fetch_begin(struct unit_bus_fetch *fetch, struct known_unit *unit)
{
	struct unit_bus *bus = fetch->bus;
	bool doubtful = unit->doubtful;

	queue_remove(bus, unit);
	if (!name_of_object(bus, unit->object, fetch->name)) {
		drop_unit(bus, unit); /* of a kind that is not wanted any more */
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

	int r = call_systemd(bus, &fetch->asks[0].slot, SYSTEMD_PATH, SYSTEMD_MANAGER, "GetUnit", on_loaded,
			     &fetch->asks[0], "s", fetch->name);

	fetch->waiting = 1;
	if (r < 0)
		fail(bus, r, NULL);
}

/* Units that turned out not to exist have left room: lists name those again that had none. */
static void relist_if_room(struct unit_bus *bus)
{
	if (!bus->overfull || !TAILQ_EMPTY(&bus->due) || bus->table->objects.count > UNIT_TABLE_MAX / 2)
		return;

	bus->overfull = false;
	bus->relist = true;
}

static void ask_due(struct unit_bus *bus)
{
	struct known_unit *unit;

	while ((unit = TAILQ_FIRST(&bus->later)) && mono_diff(bus->now, unit->due) >= 0) {
		TAILQ_REMOVE(&bus->later, unit, queue);
		unit->due = (mono_t){ 0 };
		TAILQ_INSERT_TAIL(&bus->due, unit, queue);
	}
	for (size_t i = 0; i < UNIT_BUS_FETCHES && !bus->broken; i++)
		while (!bus->broken && !bus->fetches[i]->unit && (unit = TAILQ_FIRST(&bus->due)))
			fetch_begin(bus->fetches[i], unit);
	relist_if_room(bus);
}

/* The units that were asked about are due when there is a connection again. */
static void ask_cancel(struct unit_bus *bus)
{
	for (size_t i = 0; i < UNIT_BUS_FETCHES; i++) {
		struct known_unit *unit = bus->fetches[i] ? bus->fetches[i]->unit : NULL;

		if (!unit)
			continue;
		fetch_end(bus->fetches[i]);
		queue_unit(bus, unit);
	}
}

/* ---- lists ---- */

/* A row of a list, of which these columns matter. True: there was one. */
static bool read_row(sd_bus_message *list, const char **ret_load, const char **ret_object)
{
	const char *skipped;
	uint32_t job;

	return sd_bus_message_read(list, "(ssssssouso)", &skipped, &skipped, ret_load, &skipped, &skipped, &skipped,
				   ret_object, &job, &skipped, &skipped) > 0;
}

/* The list of one name: at most one row. */
static void take_named(struct unit_bus *bus, struct unit_bus_wish *wish, sd_bus_message *list)
{
	const char *load = "not-found", *object = NULL;
	char name[UNIT_NAME_MAX + 1], why[64];

	if (sd_bus_message_enter_container(list, 'a', "(ssssssouso)") <= 0)
		return;
	read_row(list, &load, &object);
	if (strcmp(load, "not-found") == 0) {
		answer_wish(bus, wish, UNIT_BUS_MISSING, "there is no such unit");
	} else if (strcmp(load, "loaded") != 0) {
		snprintf(why, sizeof(why), "it is %s",
			 strcmp(load, "bad-setting") == 0 ? "not loaded for a bad setting" : load);
		answer_wish(bus, wish, UNIT_BUS_MISSING, why);
	} else if (!name_of_object(bus, object, name)) {
		answer_wish(bus, wish, UNIT_BUS_MISSING, "units of this kind have no processes");
	} else {
		answer_wish(bus, wish, UNIT_BUS_EXISTS, "");
		meet_unit(bus, object, true); /* loaded for this question, it may be gone by now */
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

	reply_error(list, why, sizeof(why));
	if (sd_bus_message_get_errno(list) == ETIMEDOUT)
		fail(bus, 0, why);
	else if (sd_bus_message_is_method_error(list, SD_BUS_ERROR_INVALID_ARGS))
		answer_wish(bus, wish, UNIT_BUS_MISSING, why);
	else /* may not be asked, or not in this way */
		answer_wish(bus, wish, UNIT_BUS_UNANSWERED, "");

	return 0;
}

static void drop_unlisted(void *ctx, struct unit *visited)
{
	struct known_unit *unit = known_of(visited);
	struct unit_bus *bus = ctx;

	if (unit->seen != bus->round)
		drop_unit(bus, unit);
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
		reply_error(list, why, sizeof(why));
		fail(bus, 0, why);
		return 0;
	}
	if (sd_bus_message_enter_container(list, 'a', "(ssssssouso)") <= 0) {
		fail(bus, 0, "the answer is no list of units");
		return 0;
	}
	while (read_row(list, &load, &object))
		if (strcmp(load, "not-found") != 0)
			meet_unit(bus, object, false);
	end_round(bus);

	return 0;
}

static int ask_for_name(struct unit_bus *bus, const char *name)
{
	return call_systemd(bus, &bus->list, SYSTEMD_PATH, SYSTEMD_MANAGER, "ListUnitsByNames", on_named, bus, "as", 1,
			    name);
}

static bool any_glob_means(const struct unit_bus *bus, const char *suffix)
{
	for (size_t i = 0; i < bus->wish_count; i++)
		if (bus->wishes[i].glob && may_mean(bus->wishes[i].name, suffix))
			return true;

	return false;
}

/* Patterns that match nothing take the place of kinds that are not wanted. */
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

	return call_systemd(bus, &bus->list, SYSTEMD_PATH, SYSTEMD_MANAGER, "ListUnitsByPatterns", on_kinds, bus,
			    "asas", 0, UNIT_BUS_KINDS, patterns[0], patterns[1], patterns[2], patterns[3], patterns[4],
			    patterns[5]);
}

/* The next call of the round. */
static int list_next(struct unit_bus *bus)
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

/* Continues the round of lists, or begins one if it is due. */
static void list_units(struct unit_bus *bus)
{
	int r;

	if (bus->list)
		return;
	if (bus->relist) {
		bus->relist = false;
		bus->listed = 0;
		bus->round++;
	}
	r = list_next(bus);
	if (r < 0)
		fail(bus, r, NULL);
}

static void list_cancel(struct unit_bus *bus)
{
	bus->list = sd_bus_slot_unref(bus->list);
}

/* ---- signals ---- */

static int on_unit_new(sd_bus_message *message, void *userdata, sd_bus_error *error)
{
	struct unit_bus *bus = userdata;
	const char *id, *object;

	(void)error;
	bus->state.signals++;
	if (sd_bus_message_read(message, "so", &id, &object) > 0)
		meet_unit(bus, object, true);

	return 0;
}

/* It may only look as if it were gone: that is asked. */
static int on_unit_removed(sd_bus_message *message, void *userdata, sd_bus_error *error)
{
	struct unit_bus *bus = userdata;
	const char *id, *object;
	struct known_unit *unit;

	(void)error;
	bus->state.signals++;
	unit = sd_bus_message_read(message, "so", &id, &object) > 0 ? unit_table_find(bus->table, object) : NULL;
	if (unit) {
		unit->doubtful = true;
		queue_unit(bus, unit);
	}

	return 0;
}

static int on_unit_changed(sd_bus_message *message, void *userdata, sd_bus_error *error)
{
	struct unit_bus *bus = userdata;
	const char *object = sd_bus_message_get_path(message);
	struct known_unit *unit = object ? unit_table_find(bus->table, object) : NULL;

	(void)error;
	bus->state.signals++;
	if (unit)
		queue_unit(bus, unit);

	return 0;
}

/* After systemd has read its files again everything may be different. */
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
		reply_error(reply, why, sizeof(why));
		fail(userdata, 0, why);
	}

	return 0;
}

static int subscribe(struct unit_bus *bus)
{
	return call_systemd(bus, NULL, SYSTEMD_PATH, SYSTEMD_MANAGER, "Subscribe", on_subscribed, bus, "");
}

/* systemd has another name on the bus: it has executed itself anew. */
static int on_owner(sd_bus_message *message, void *userdata, sd_bus_error *error)
{
	struct unit_bus *bus = userdata;
	const char *name, *before, *after;

	(void)error;
	bus->state.signals++;
	if (sd_bus_message_read(message, "sss", &name, &before, &after) <= 0 || *after == '\0')
		return 0;
	bus->relist = true;
	int r = subscribe(bus);

	if (r < 0)
		fail(bus, r, NULL);

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

/* Subscribes to signals, at the bus or the socket. 0 or -errno. */
static int listen_to_signals(struct unit_bus *bus)
{
#define ABOUT_UNITS "path='" SYSTEMD_PATH "',interface='" SYSTEMD_MANAGER "',"
	static const struct signal signals[] = {
		{ ABOUT_UNITS "member='UnitNew'", on_unit_new, false },
		{ ABOUT_UNITS "member='UnitRemoved'", on_unit_removed, false },
		{ ABOUT_UNITS "member='Reloading'", on_reloading, false },
		/* One of two for every change: that of the unit's kind comes with it. */
		{ "interface='org.freedesktop.DBus.Properties',member='PropertiesChanged',path_namespace="
		  "'" SYSTEMD_UNITS "',arg0='" SYSTEMD_UNIT "'",
		  on_unit_changed, false },
		{ "path='/org/freedesktop/"
		  "DBus',interface='org.freedesktop.DBus',member='NameOwnerChanged',arg0='" SYSTEMD_NAME "'",
		  on_owner, true },
	};
	int r = 0;

	for (size_t i = 0; r >= 0 && i < ARRAY_LEN(signals); i++)
		r = listen_for(bus, &signals[i]);

	return r;
}

/* ---- the connection ---- */

/* Does not block: what is behind the address need not be there yet. */
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
	list_cancel(bus);
	ask_cancel(bus);
	bus->connection = sd_bus_close_unref(bus->connection);
	bus->broken = bus->state.connected = false;
}

static void connection_failed(struct unit_bus *bus)
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

static void connection_retry(struct unit_bus *bus)
{
	int r;

	if (mono_diff(bus->retry, bus->now) > 0)
		return;

	r = open_connection(bus);
	if (r >= 0)
		r = listen_to_signals(bus);
	if (r >= 0)
		r = subscribe(bus);
	if (r < 0) {
		fail(bus, r, NULL);
		connection_failed(bus);
		return;
	}
	bus->connected = bus->now;
	bus->state.connects++;
	bus->relist = true;
}

static bool is_held_off(const struct unit_bus *bus, mono_t now)
{
	return bus->spent_ns > BUDGET_NS && mono_diff(now, mono_add(bus->window, WINDOW_NS)) < 0;
}

static void charge_cpu(struct unit_bus *bus, uint64_t cpu_ns)
{
	bool before = bus->spent_ns > BUDGET_NS;

	bus->spent_ns += cpu_ns;
	bus->state.delays += !before && bus->spent_ns > BUDGET_NS;
}

static bool take_messages(struct unit_bus *bus)
{
	bool any = false;

	for (int i = 0; i < MESSAGES_MAX && !bus->broken; i++) {
		int r = sd_bus_process(bus->connection, NULL);

		if (r < 0)
			fail(bus, r, r == -ETIMEDOUT ? "the bus does not answer" : NULL);
		else if (sd_bus_is_open(bus->connection) <= 0)
			fail(bus, 0, "the bus has closed the connection");
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
		connection_retry(bus);
	if (bus->connection) {
		any = take_messages(bus);
		if (!bus->broken)
			list_units(bus);
		if (!bus->broken)
			ask_due(bus);
		if (bus->broken)
			connection_failed(bus);
	}
	charge_cpu(bus, real_clock_thread_cpu() - cpu);

	return any;
}

static void lower_to(mono_t *until, mono_t at)
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
		lower_to(until, mono_add(bus->window, WINDOW_NS));
		return false;
	}
	if (!bus->connection) {
		lower_to(until, bus->retry);
		return false;
	}

	events = sd_bus_get_events(bus->connection);
	if (events < 0 || sd_bus_get_timeout(bus->connection, &timeout_us) < 0 || (bus->relist && !bus->list)) {
		lower_to(until, now); /* it is broken, which hearing finds out */
		return false;
	}
	if (timeout_us < UINT64_MAX / NS_PER_US)
		lower_to(until, (mono_t){ timeout_us * NS_PER_US });
	if (!TAILQ_EMPTY(&bus->later))
		lower_to(until, TAILQ_FIRST(&bus->later)->due);
	*ret = (struct pollfd){ .fd = sd_bus_get_fd(bus->connection), .events = (short)events };

	return true;
}

/* ---- the bus ---- */

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
	for (size_t i = 0; i < UNIT_BUS_FETCHES; i++)
		free(bus->fetches[i]);
	unit_table_free(bus->table);
	free_wishes(bus->wishes, bus->wish_count);
	free(bus);
}

static int fetches_new(struct unit_bus *bus)
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

int unit_bus_new(const struct unit_bus_options *options, struct unit_bus **ret, const struct unit_table **ret_table)
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
		r = fetches_new(bus);
	if (r < 0) {
		unit_bus_free(bus);
		return r;
	}
	*ret_table = bus->table;
	*ret = bus;

	return 0;
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

static void drop_unwanted(void *ctx, struct unit *visited)
{
	struct known_unit *unit = known_of(visited);
	struct unit_bus *bus = ctx;

	if (unit->shown.names && !is_wanted(bus, unit))
		drop_unit(bus, unit);
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
	list_cancel(bus);
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

void unit_bus_state(const struct unit_bus *bus, struct unit_bus_state *ret)
{
	*ret = bus->state;
	ret->units = bus->table->objects.count;
}

void unit_bus_visit(const struct unit_bus *bus,
		    void (*answer)(void *ctx, const char *name, enum unit_bus_answer answer, const char *why),
		    void (*unit)(void *ctx, struct unit *unit), void *ctx)
{
	for (size_t i = 0; i < bus->wish_count; i++)
		if (!bus->wishes[i].glob)
			answer(ctx, bus->wishes[i].name, bus->wishes[i].answer, bus->wishes[i].why);
	unit_table_visit(bus->table, unit, ctx);
}
