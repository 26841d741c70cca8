/*
 * Units as a bus tells of them, in lines: which object, called how, in which cgroup, gone again.
 * Whatever comes, the table answers as a plain walk over its units does, keeps no place that leads
 * elsewhere, and takes no name for one of a unit that is none.
 *
 * 	o OBJECT             met: its name is in its path
 * 	n NUMBER NAME NAME   the unit of this number (they count from 0) is called so
 * 	p NUMBER CGROUP      its processes are there
 * 	r NUMBER             it is gone
 * 	q CGROUP             whose is this cgroup?
 */
#include "daemon/engine/targets/unit_bus.c"

#include "lib/config/selection.h"
#include "lib/base/base.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNITS_MAX 32u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct world {
	struct unit_bus *bus;
	struct unit_table *table;
	struct known_unit *units[UNITS_MAX]; /* NULL: gone */
};

static const char *const globs[] = { "*", "*.service", "a?.slice", "[a-m]*", "mysql.service", "" };

static void expect(bool holds)
{
	if (!holds)
		abort();
}

/* ---- what the table should say ---- */

static bool is_expected_path(const char *cgroup)
{
	size_t len = strlen(cgroup);

	if (len < 2 || len >= PATH_MAX || cgroup[0] != '/' || cgroup[len - 1] == '/' || strstr(cgroup, "//"))
		return false;
	for (const char *at = cgroup; at; at = strchr(at + 1, '/')) {
		const char *end = strchrnul(at + 1, '/');

		if (end - at - 1 > NAME_MAX || strncmp(at, "/./", (size_t)(end - at) + 1) == 0 ||
		    strncmp(at, "/../", (size_t)(end - at) + 1) == 0 || strcmp(at, "/.") == 0 || strcmp(at, "/..") == 0)
			return false;
	}

	return true;
}

/* A cgroup, or one below it; strict: not one below it. */
static bool is_at(const struct unit *unit, const char *cgroup, bool strict)
{
	size_t len = unit->cgroup ? strlen(unit->cgroup) : 0;

	return len > 0 && strncmp(unit->cgroup, cgroup, len) == 0 &&
	       (cgroup[len] == '\0' || (!strict && cgroup[len] == '/'));
}

static bool is_unlike(const struct unit *unit)
{
	for (const char *name = unit->names; unit->cgroup && name && *name; name += strlen(name) + 1)
		if (strcmp(strrchr(unit->cgroup, '/') + 1, name) != 0)
			return true;

	return false;
}

static void ask(const struct world *world, const char *cgroup)
{
	const struct unit *found = unit_table_of(world->table, cgroup);
	size_t nearest = 0;

	for (size_t i = 0; i < UNITS_MAX; i++)
		if (world->units[i] && is_at(&world->units[i]->shown, cgroup, false) &&
		    strlen(world->units[i]->shown.cgroup) > nearest)
			nearest = strlen(world->units[i]->shown.cgroup);
	expect((found != NULL) == (nearest > 0));
	expect(!found || (is_at(found, cgroup, false) && strlen(found->cgroup) == nearest));

	for (size_t g = 0; g < ARRAY_LEN(globs); g++)
		for (int below = 0; below < 2; below++) {
			bool any = false;

			for (size_t i = 0; i < UNITS_MAX; i++)
				any |= world->units[i] && is_at(&world->units[i]->shown, cgroup, !below) &&
				       is_unlike(&world->units[i]->shown) && unit_is_called(world->units[i], globs[g]);
			expect(unit_table_matches(world->table, globs[g], cgroup, below) == any);
		}
}

/* ---- what happens ---- */

static void meet(struct world *world, const char *object)
{
	char name[UNIT_NAME_MAX + 1];
	size_t free_place = 0;

	if (name_of_object(world->bus, object, name)) {
		expect(is_unit_name(name) && strlen(name) <= UNIT_NAME_MAX);
		expect(interface_of(name) != NULL);
	}
	while (free_place < UNITS_MAX && world->units[free_place])
		free_place++;
	if (free_place == UNITS_MAX || unit_table_find(world->table, object))
		return;
	expect(unit_table_enter(world->table, object, &world->units[free_place]) == 0);
	expect(unit_table_find(world->table, object) == world->units[free_place]);
}

/* NAME NAME, as a table wants them. */
static void rename_unit(struct world *world, struct known_unit *unit, char *names)
{
	size_t len = strlen(names);

	for (char *space = names; (space = strchr(space, ' '));)
		*space = '\0';
	names[len] = names[len + 1] = '\0';
	expect(unit_table_rename(world->table, unit, names) == 0);
	expect(strcmp(unit->shown.names, names) == 0);
}

static void place_unit(struct world *world, struct known_unit *unit, const char *cgroup)
{
	char *before = unit->shown.cgroup ? strdup(unit->shown.cgroup) : NULL;
	bool moves = is_expected_path(cgroup);

	expect(unit_table_place(world->table, unit, cgroup) == 0);
	expect(moves || before ? strcmp(unit->shown.cgroup, moves ? cgroup : before) == 0 : !unit->shown.cgroup);
	free(before);
}

/* One line, which has room for two bytes behind it. */
static void happen(struct world *world, char *line)
{
	unsigned number = UNITS_MAX;
	int len = 0;

	if (line[0] == 'o' && line[1] == ' ')
		meet(world, line + 2);
	if (line[0] == 'q' && line[1] == ' ')
		ask(world, line + 2);
	if (!strchr("npr", line[0]) || sscanf(line + 1, " %2u%n", &number, &len) < 1 || number >= UNITS_MAX ||
	    !world->units[number])
		return;

	char *rest = line + 1 + len + (line[1 + len] == ' ');

	if (line[0] == 'n')
		rename_unit(world, world->units[number], rest);
	if (line[0] == 'p')
		place_unit(world, world->units[number], rest);
	if (line[0] == 'r') {
		unit_table_remove(world->table, world->units[number]);
		world->units[number] = NULL;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const wanted[] = { "*.service", "a*", "mysql.slice" };
	struct unit_bus_options options = { .address = "unix:path=/nonexistent" };
	struct world world = { .bus = NULL };
	const struct unit_table *table; /* of the bus: not used */
	char *text = calloc(1, size + 3), *next;
	size_t count = 0;

	expect(text && unit_table_new(&world.table) == 0 && unit_bus_new(&options, &world.bus, &table) == 0 &&
	       unit_bus_want(world.bus, wanted, ARRAY_LEN(wanted)) == 0);
	if (size > 0)
		memcpy(text, data, size);
	for (char *line = text; line; line = next) {
		char *copy;

		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		copy = calloc(1, strlen(line) + 3);
		expect(copy != NULL);
		memcpy(copy, line, strlen(line));
		happen(&world, copy);
		free(copy);
	}
	for (size_t i = 0; i < UNITS_MAX; i++)
		count += world.units[i] != NULL;
	expect(world.table->objects.count == count);
	unit_bus_free(world.bus);
	unit_table_free(world.table);
	free(text);

	return 0;
}
