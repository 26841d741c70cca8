/*
 * fakesystemd.h: what systemd says of units, said by the test itself: over a socket of its own, as
 * systemd's is, or over a bus. It answers when it is stepped, in the thread that steps it, so that
 * nothing depends on time.
 */
#ifndef SPIKEWATCH_TESTS_FAKESYSTEMD_H
#define SPIKEWATCH_TESTS_FAKESYSTEMD_H

#include "scene.h"

#include <errno.h>
#include <fnmatch.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-bus.h>

#define FAKE_PATH "/org/freedesktop/systemd1"
#define FAKE_UNITS "/org/freedesktop/systemd1/unit"
#define FAKE_MANAGER "org.freedesktop.systemd1.Manager"
#define FAKE_ALIASES 3

struct fake_unit {
	const char *id, *aliases[FAKE_ALIASES];
	const char *load, *active, *cgroup; /* NULL: "loaded", "active", none */
	uint32_t main_pid, restarts;
	uint8_t invocation;
	bool unloaded; /* there is a file of it, and no more */
};

struct fake_systemd {
	char path[108];
	int fd;
	sd_bus *bus;
	struct fake_unit *units;
	size_t count;
	/* Bad manners: */
	bool silent;          /* never answers */
	bool echoes;          /* tells of a unit that was loaded for a question, and was unloaded again */
	const char *lies;     /* the member or property that is answered with something else ... */
	const char *lie_type; /* ... of this type: "s", "u", "ay", "as", "error" */
	const char *lie;
	unsigned lists, gets, loads, calls, subscribed;
};

/* ---- the units ---- */

static inline struct fake_unit *fake_find(const struct fake_systemd *fake, const char *name)
{
	for (size_t i = 0; i < fake->count; i++) {
		struct fake_unit *unit = &fake->units[i];

		if (strcmp(unit->id, name) == 0)
			return unit;
		for (size_t j = 0; j < FAKE_ALIASES; j++)
			if (unit->aliases[j] && strcmp(unit->aliases[j], name) == 0)
				return unit;
	}

	return NULL;
}

static inline char *fake_object(const char *name)
{
	char *path = NULL;

	ck_assert_int_ge(sd_bus_path_encode(FAKE_UNITS, name, &path), 0);

	return path;
}

static inline void fake_signal(struct fake_systemd *fake, const char *member, const char *id)
{
	char *path = fake_object(id);

	ck_assert_int_ge(sd_bus_emit_signal(fake->bus, FAKE_PATH, FAKE_MANAGER, member, "so", id, path), 0);
	free(path);
}

static inline void fake_changed(struct fake_systemd *fake, const char *id)
{
	char *path = fake_object(id);

	ck_assert_int_ge(sd_bus_emit_signal(fake->bus, path, "org.freedesktop.DBus.Properties", "PropertiesChanged",
					    "sa{sv}as", "org.freedesktop.systemd1.Unit", 0, 0),
			 0);
	free(path);
}

static inline void fake_reloading(struct fake_systemd *fake, bool begins)
{
	ck_assert_int_ge(sd_bus_emit_signal(fake->bus, FAKE_PATH, FAKE_MANAGER, "Reloading", "b", begins), 0);
}

/* ---- answers ---- */

static inline void fake_row(const struct fake_unit *unit, const char *name, sd_bus_message *reply)
{
	const char *id = unit ? unit->id : name;
	char *path = fake_object(id);

	ck_assert_int_ge(
		sd_bus_message_append(reply, "(ssssssouso)", id, "a unit",
				      unit ? unit->load ? unit->load : "loaded" : "not-found",
				      unit && !unit->unloaded ? unit->active ? unit->active : "active" : "inactive",
				      "running", "", path, 0, "", "/"),
		0);
	free(path);
}

static inline int fake_names(struct fake_systemd *fake, sd_bus_message *call, sd_bus_message *reply)
{
	const char *name;

	ck_assert_int_gt(sd_bus_message_enter_container(call, 'a', "s"), 0);
	ck_assert_int_ge(sd_bus_message_open_container(reply, 'a', "(ssssssouso)"), 0);
	while (sd_bus_message_read(call, "s", &name) > 0)
		fake_row(fake_find(fake, name), name, reply);

	return sd_bus_message_close_container(reply);
}

static inline int fake_patterns(struct fake_systemd *fake, sd_bus_message *call, sd_bus_message *reply)
{
	char **states = NULL, **patterns = NULL;

	ck_assert_int_ge(sd_bus_message_read_strv(call, &states), 0);
	ck_assert_int_ge(sd_bus_message_read_strv(call, &patterns), 0);
	ck_assert_int_ge(sd_bus_message_open_container(reply, 'a', "(ssssssouso)"), 0);
	for (size_t i = 0; i < fake->count; i++)
		for (size_t j = 0; !fake->units[i].unloaded && patterns && patterns[j]; j++)
			if (fnmatch(patterns[j], fake->units[i].id, FNM_NOESCAPE) == 0)
				fake_row(&fake->units[i], NULL, reply);
	for (size_t i = 0; patterns && patterns[i]; i++)
		free(patterns[i]);
	free(patterns);
	free(states);

	return sd_bus_message_close_container(reply);
}

static inline int fake_value(const struct fake_unit *unit, const char *name, const char *property,
			     sd_bus_message *reply)
{
	uint8_t invocation[16] = { unit ? unit->invocation : 0 };

	if (strcmp(property, "LoadState") == 0)
		return sd_bus_message_append(reply, "v", "s", unit ? unit->load ? unit->load : "loaded" : "not-found");
	if (strcmp(property, "ActiveState") == 0)
		return sd_bus_message_append(reply, "v", "s", unit && unit->active ? unit->active : "active");
	if (strcmp(property, "SubState") == 0)
		return sd_bus_message_append(reply, "v", "s", "running");
	if (strcmp(property, "ControlGroup") == 0)
		return sd_bus_message_append(reply, "v", "s", unit && unit->cgroup ? unit->cgroup : "");
	if (strcmp(property, "MainPID") == 0)
		return sd_bus_message_append(reply, "v", "u", unit ? unit->main_pid : 0);
	if (strcmp(property, "NRestarts") == 0)
		return sd_bus_message_append(reply, "v", "u", unit ? unit->restarts : 0);
	if (strcmp(property, "InactiveExitTimestampMonotonic") == 0)
		return sd_bus_message_append(reply, "v", "t", (uint64_t)1500000);
	if (strcmp(property, "InvocationID") == 0) {
		sd_bus_message_open_container(reply, 'v', "ay");
		sd_bus_message_append_array(reply, 'y', invocation, sizeof(invocation));
		return sd_bus_message_close_container(reply);
	}
	ck_assert_str_eq(property, "Names");
	sd_bus_message_open_container(reply, 'v', "as");
	sd_bus_message_open_container(reply, 'a', "s");
	for (size_t i = FAKE_ALIASES; i-- > 0;)
		if (unit && unit->aliases[i])
			sd_bus_message_append(reply, "s", unit->aliases[i]);
	sd_bus_message_append(reply, "s", unit ? unit->id : name);
	sd_bus_message_close_container(reply);

	return sd_bus_message_close_container(reply);
}

static inline int fake_lie(const struct fake_systemd *fake, bool is_property, sd_bus_message *reply)
{
	const char *type = fake->lie_type;
	int r;

	if (is_property)
		sd_bus_message_open_container(reply, 'v', type);
	if (strcmp(type, "ay") == 0)
		r = sd_bus_message_append_array(reply, 'y', fake->lie, strlen(fake->lie));
	else if (strcmp(type, "as") == 0)
		r = sd_bus_message_append(reply, "as", 2, fake->lie, fake->lie);
	else if (strcmp(type, "u") == 0)
		r = sd_bus_message_append(reply, "u", 4000000000u);
	else
		r = sd_bus_message_append(reply, "s", fake->lie);
	ck_assert_int_ge(r, 0);

	return is_property ? sd_bus_message_close_container(reply) : r;
}

/* A question about a unit loads it. */
static inline int fake_get(struct fake_systemd *fake, sd_bus_message *call, sd_bus_message *reply)
{
	const char *interface, *property;
	char *name = NULL;
	struct fake_unit *unit;
	int r;

	fake->gets++;
	ck_assert_int_gt(sd_bus_message_read(call, "ss", &interface, &property), 0);
	ck_assert_int_gt(sd_bus_path_decode(sd_bus_message_get_path(call), FAKE_UNITS, &name), 0);
	unit = fake_find(fake, name);
	if (fake->echoes && (!unit || unit->unloaded)) {
		fake->loads++;
		fake_signal(fake, "UnitNew", name);
		fake_signal(fake, "UnitRemoved", name);
	}
	r = fake->lies && strcmp(fake->lies, property) == 0 ? fake_lie(fake, true, reply)
							    : fake_value(unit, name, property, reply);
	free(name);

	return r;
}

static inline int fake_answer(struct fake_systemd *fake, sd_bus_message *call, const char *member,
			      sd_bus_message *reply)
{
	if (strcmp(member, "Subscribe") == 0) {
		fake->subscribed++;
		return 0;
	}
	if (strcmp(member, "Get") == 0)
		return fake_get(fake, call, reply);
	if (fake->lies && strcmp(fake->lies, member) == 0)
		return fake_lie(fake, false, reply);
	if (strcmp(member, "ListUnitsByNames") == 0)
		return fake_names(fake, call, reply);
	ck_assert_str_eq(member, "ListUnitsByPatterns");

	return fake_patterns(fake, call, reply);
}

/* This one loads nothing. */
static inline int fake_get_unit(struct fake_systemd *fake, sd_bus_message *call)
{
	struct fake_unit *unit;
	const char *name;
	char *path;
	int r;

	ck_assert_int_gt(sd_bus_message_read(call, "s", &name), 0);
	unit = fake_find(fake, name);
	if (!unit || unit->unloaded)
		return sd_bus_reply_method_errorf(call, "org.freedesktop.systemd1.NoSuchUnit", "Unit %s not loaded.",
						  name);
	path = fake_object(unit->id);
	r = sd_bus_reply_method_return(call, "o", path);
	free(path);

	return r;
}

static inline int fake_on_message(sd_bus_message *call, void *userdata, sd_bus_error *error)
{
	struct fake_systemd *fake = userdata;
	const char *member = sd_bus_message_get_member(call);
	sd_bus_message *reply = NULL;

	(void)error;
	if (!sd_bus_message_is_method_call(call, NULL, NULL))
		return 0;
	fake->calls++;
	fake->lists += strncmp(member, "List", 4) == 0;
	if (fake->silent)
		return 1;
	if (fake->lies && strcmp(fake->lie_type, "error") == 0)
		for (const char *property = NULL; !property; property = "")
			if (strcmp(member, fake->lies) == 0)
				return sd_bus_reply_method_errorf(call, fake->lie, "not here");
	if (strcmp(member, "GetUnit") == 0)
		return fake_get_unit(fake, call);
	ck_assert_int_ge(sd_bus_message_new_method_return(call, &reply), 0);
	ck_assert_int_ge(fake_answer(fake, call, member, reply), 0);
	ck_assert_int_ge(sd_bus_send(fake->bus, reply, NULL), 0);
	sd_bus_message_unref(reply);

	return 1;
}

/* ---- the socket ---- */

static inline void fake_listen(struct fake_systemd *fake, const char *directory)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	snprintf(fake->path, sizeof(fake->path), "%s/private", directory);
	memcpy(address.sun_path, fake->path, sizeof(fake->path));
	fake->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_eq(bind(fake->fd, (const struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(fake->fd, 4), 0);
}

static inline void fake_hang_up(struct fake_systemd *fake)
{
	fake->bus = sd_bus_close_unref(fake->bus);
}

static inline void fake_end(struct fake_systemd *fake)
{
	fake_hang_up(fake);
	if (fake->fd >= 0)
		close(fake->fd);
	fake->fd = -1;
	unlink(fake->path);
}

static inline void fake_accept(struct fake_systemd *fake)
{
	int fd = fake->fd < 0 ? -1 : accept4(fake->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	sd_id128_t id;

	if (fd < 0)
		return;
	fake_hang_up(fake);
	ck_assert_int_ge(sd_id128_randomize(&id), 0);
	ck_assert_int_ge(sd_bus_new(&fake->bus), 0);
	ck_assert_int_ge(sd_bus_set_fd(fake->bus, fd, fd), 0);
	ck_assert_int_ge(sd_bus_set_server(fake->bus, 1, id), 0);
	ck_assert_int_ge(sd_bus_add_filter(fake->bus, NULL, fake_on_message, fake), 0);
	ck_assert_int_ge(sd_bus_start(fake->bus), 0);
}

/* On a bus, under systemd's name. False: there is none yet. */
static inline bool fake_join(struct fake_systemd *fake, const char *address)
{
	int r = sd_bus_new(&fake->bus);

	if (r >= 0)
		r = sd_bus_set_address(fake->bus, address);
	if (r >= 0)
		r = sd_bus_set_bus_client(fake->bus, 1);
	if (r >= 0)
		r = sd_bus_start(fake->bus);
	if (r >= 0)
		r = sd_bus_request_name(fake->bus, "org.freedesktop.systemd1", 0);
	if (r >= 0)
		r = sd_bus_add_filter(fake->bus, NULL, fake_on_message, fake);
	if (r < 0)
		fake_hang_up(fake);

	return r >= 0;
}

/* Answers what there is to answer. */
static inline void fake_step(struct fake_systemd *fake)
{
	fake_accept(fake);
	for (int i = 0; i < 1000 && fake->bus; i++) {
		int r = sd_bus_process(fake->bus, NULL);

		if (r < 0)
			fake_hang_up(fake);
		if (r <= 0)
			return;
	}
}

#endif
