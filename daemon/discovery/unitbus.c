/*
 * unitbus.c: the connection: made, heard, lost, made again.
 *
 *	(nothing wanted) ──▶ CLOSED ──▶ connecting, lists ──▶ connected
 *	                       ▲  the next try is later: 0.25 s, 0.5 s, ... 1 min  │
 *	                       └───────────────────────────────────────────────────┘
 *
 * A signal is a hint and nothing more: it says of which unit to ask, and what is known comes from answers alone. So anybody on the bus may send what looks like
 * one, and it does not matter which version of systemd puts what into them.
 *
 * systemd loads a unit whose properties are asked for, tells everybody of it, and unloads it again: asked without care, it would be told of its own
 * question for ever. Hence a unit of which a signal tells is first asked for in the way that loads nothing (GetUnit).
 *
 * Rejected: the daemon's event loop, from which discovery would have to be told: here it is its own thread that hears. And GetAll: among what it
 * returns are dozens of files of cgroups that systemd reads for it.
 */
#include "unitbus_inside.h"

#include "realclock.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_NS (20 * NS_PER_S)
#define PRIVATE_ADDRESS "unix:path=/run/systemd/private"

/* Tries: the pause doubles from one to the other. A connection that held for so long is none that failed. */
#define RETRY_MIN_NS (250 * NS_PER_MS)
#define RETRY_MAX_NS (60 * NS_PER_S)

/* Messages at a time, so that whoever hears gets on. */
#define MESSAGES_MAX 64

/* Of CPU time in a second. */
#define WINDOW_NS NS_PER_S
#define BUDGET_NS (20 * NS_PER_MS)

/* ---- calls ---- */

void unitbus_fail(struct unitbus *bus, int error, const char *why)
{
	if (bus->broken)
		return;

	bus->broken = true;
	snprintf(bus->state.why, sizeof(bus->state.why), "%s", why ? why : strerror(error < 0 ? -error : error));
}

void unitbus_reply_error(sd_bus_message *reply, char *ret, size_t cap)
{
	const sd_bus_error *error = sd_bus_message_get_error(reply);

	if (sd_bus_message_get_errno(reply) == ETIMEDOUT)
		snprintf(ret, cap, "systemd does not answer");
	else
		snprintf(ret, cap, "%s", error && error->message ? error->message : "refused");
}

int unitbus_call(struct unitbus *bus, sd_bus_slot **ret, const char *path, const char *interface, const char *member,
		 sd_bus_message_handler_t reply, void *userdata, const char *types, ...)
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
static int try_address(struct unitbus *bus, const char *address, bool peer)
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

static int open_connection(struct unitbus *bus)
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

static void close_connection(struct unitbus *bus)
{
	unitbus_list_cancel(bus);
	unitbus_ask_cancel(bus);
	bus->connection = sd_bus_close_unref(bus->connection);
	bus->broken = bus->state.connected = false;
}

static void give_up(struct unitbus *bus)
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

static void connect_again(struct unitbus *bus)
{
	int r;

	if (mono_diff(bus->retry, bus->now) > 0)
		return;

	r = open_connection(bus);
	if (r >= 0)
		r = unitbus_listen(bus);
	if (r >= 0)
		r = unitbus_subscribe(bus);
	if (r < 0) {
		unitbus_fail(bus, r, NULL);
		give_up(bus);
		return;
	}
	bus->connected = bus->now;
	bus->state.connects++;
	bus->relist = true;
}

/* ---- heard ---- */

static bool is_held_off(const struct unitbus *bus, mono_t now)
{
	return bus->spent_ns > BUDGET_NS && mono_diff(now, mono_add(bus->window, WINDOW_NS)) < 0;
}

static void spend(struct unitbus *bus, uint64_t cpu_ns)
{
	bool before = bus->spent_ns > BUDGET_NS;

	bus->spent_ns += cpu_ns;
	bus->state.delays += !before && bus->spent_ns > BUDGET_NS;
}

/* True: there were some. */
static bool take_messages(struct unitbus *bus)
{
	bool any = false;

	for (int i = 0; i < MESSAGES_MAX && !bus->broken; i++) {
		int r = sd_bus_process(bus->connection, NULL);

		if (r < 0)
			unitbus_fail(bus, r, r == -ETIMEDOUT ? "the bus does not answer" : NULL);
		else if (sd_bus_is_open(bus->connection) <= 0)
			unitbus_fail(bus, 0, "the bus has closed the connection");
		if (r <= 0)
			return any;
		any = true;
	}

	return any;
}

bool unitbus_hear(struct unitbus *bus, mono_t now)
{
	bool any = false;
	uint64_t cpu;

	if (bus->wish_count == 0 || is_held_off(bus, now))
		return false;

	if (mono_diff(now, mono_add(bus->window, WINDOW_NS)) >= 0) {
		bus->window = now;
		bus->spent_ns = 0;
	}
	cpu = realclock_thread_cpu();
	bus->now = now;
	if (!bus->connection)
		connect_again(bus);
	if (bus->connection) {
		any = take_messages(bus);
		if (!bus->broken)
			unitbus_list(bus);
		if (!bus->broken)
			unitbus_ask(bus);
		if (bus->broken)
			give_up(bus);
	}
	spend(bus, realclock_thread_cpu() - cpu);

	return any;
}

static void sooner(mono_t *until, mono_t at)
{
	if (mono_diff(*until, at) > 0)
		*until = at;
}

bool unitbus_await(struct unitbus *bus, mono_t now, struct pollfd *ret, mono_t *until)
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

int unitbus_new(const struct unitbus_options *options, struct unitbus **ret)
{
	struct unitbus *bus = calloc(1, sizeof(*bus));
	int r;

	if (!bus)
		return -ENOMEM;

	bus->options = *options;
	TAILQ_INIT(&bus->due);
	TAILQ_INIT(&bus->later);
	r = unittable_new(&bus->table);
	if (r == 0)
		r = unitbus_ask_new(bus);
	if (r < 0) {
		unitbus_free(bus);
		return r;
	}
	*ret = bus;

	return 0;
}

static void free_wishes(struct unitbus_wish *wishes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		free(wishes[i].name);
	free(wishes);
}

void unitbus_free(struct unitbus *bus)
{
	if (!bus)
		return;

	close_connection(bus);
	unitbus_ask_free(bus);
	unittable_free(bus->table);
	free_wishes(bus->wishes, bus->wish_count);
	free(bus);
}

static void keep_answer(const struct unitbus *bus, struct unitbus_wish *wish)
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
	struct unitbus *bus = ctx;

	if (unit->names && !unitbus_is_wanted(bus, unit))
		unitbus_drop(bus, unit);
}

int unitbus_want(struct unitbus *bus, const char *const *names, size_t count)
{
	struct unitbus_wish *wishes = calloc(count ? count : 1, sizeof(*wishes));

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
	unitbus_list_cancel(bus);
	free_wishes(bus->wishes, bus->wish_count);
	bus->wishes = wishes;
	bus->wish_count = count;
	bus->relist = bus->connection != NULL;
	unittable_visit(bus->table, drop_unwanted, bus);
	if (count == 0) {
		close_connection(bus);
		bus->failures = 0;
		bus->retry = (mono_t){ 0 };
	}

	return 0;
}

/* ---- questions ---- */

const struct unittable *unitbus_units(const struct unitbus *bus)
{
	return bus->table;
}

void unitbus_state(const struct unitbus *bus, struct unitbus_state *ret)
{
	*ret = bus->state;
	ret->units = unittable_count(bus->table);
}

void unitbus_visit(const struct unitbus *bus,
		   void (*visit)(void *ctx, const char *name, enum unitbus_answer answer, const char *why), void *ctx)
{
	for (size_t i = 0; i < bus->wish_count; i++)
		if (!bus->wishes[i].glob)
			visit(ctx, bus->wishes[i].name, bus->wishes[i].answer, bus->wishes[i].why);
}
