/* unitbus_signals.c: what systemd tells of its own accord: where to look, and no more (see unitbus.c). */
#include "unitbus_inside.h"

#include "scope.h"

#include <stdio.h>

static int on_new(sd_bus_message *message, void *userdata, sd_bus_error *error)
{
	struct unitbus *bus = userdata;
	const char *id, *object;

	(void)error;
	bus->state.signals++;
	if (sd_bus_message_read(message, "so", &id, &object) > 0)
		unitbus_meet(bus, object, true);

	return 0;
}

/* Also the hint that one is gone needs an answer. */
static int on_removed(sd_bus_message *message, void *userdata, sd_bus_error *error)
{
	struct unitbus *bus = userdata;
	const char *id, *object;
	struct unit *unit;

	(void)error;
	bus->state.signals++;
	unit = sd_bus_message_read(message, "so", &id, &object) > 0 ? unittable_find(bus->table, object) : NULL;
	if (unit) {
		unit->doubtful = true;
		unitbus_due(bus, unit);
	}

	return 0;
}

static int on_changed(sd_bus_message *message, void *userdata, sd_bus_error *error)
{
	struct unitbus *bus = userdata;
	const char *object = sd_bus_message_get_path(message);
	struct unit *unit = object ? unittable_find(bus->table, object) : NULL;

	(void)error;
	bus->state.signals++;
	if (unit)
		unitbus_due(bus, unit);

	return 0;
}

/* All may be different when systemd has read its files again. */
static int on_reloading(sd_bus_message *message, void *userdata, sd_bus_error *error)
{
	struct unitbus *bus = userdata;
	int begins;

	(void)error;
	bus->state.signals++;
	if (sd_bus_message_read(message, "b", &begins) > 0 && !begins)
		bus->relist = true;

	return 0;
}

static int on_subscribed(sd_bus_message *reply, void *userdata, sd_bus_error *error)
{
	char why[UNITBUS_WHY_MAX];

	(void)error;
	if (sd_bus_message_is_method_error(reply, NULL)) {
		unitbus_reply_error(reply, why, sizeof(why));
		unitbus_fail(userdata, 0, why);
	}

	return 0;
}

int unitbus_subscribe(struct unitbus *bus)
{
	return unitbus_call(bus, NULL, SYSTEMD_PATH, SYSTEMD_MANAGER, "Subscribe", on_subscribed, bus, "");
}

/* systemd has another name on the bus: it executed itself anew. */
static int on_owner(sd_bus_message *message, void *userdata, sd_bus_error *error)
{
	struct unitbus *bus = userdata;
	const char *name, *before, *after;

	(void)error;
	bus->state.signals++;
	if (sd_bus_message_read(message, "sss", &name, &before, &after) <= 0 || *after == '\0')
		return 0;
	bus->relist = true;
	int r = unitbus_subscribe(bus);

	if (r < 0)
		unitbus_fail(bus, r, NULL);

	return 0;
}

struct signal {
	const char *match;
	sd_bus_message_handler_t handler;
	bool from_bus; /* not from systemd */
};

static int listen_for(struct unitbus *bus, const struct signal *signal)
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

int unitbus_listen(struct unitbus *bus)
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
