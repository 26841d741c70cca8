/* roster_entry.c: holders are the list of entries in force and every target. All under the roster's owner: no atomics. */
#include "roster_entry.h"

#include <stdlib.h>
#include <string.h>

struct roster_entry *roster_entry_new(const char *name, uint32_t number)
{
	struct roster_entry *entry = calloc(1, sizeof *entry);

	if (!entry)
		return NULL;

	entry->number = number;
	entry->holders = 1;
	entry->name = strdup(name);
	if (entry->name)
		return entry;

	free(entry);

	return NULL;
}

struct roster_entry *roster_entry_hold(struct roster_entry *entry)
{
	entry->holders++;

	return entry;
}

void roster_entry_drop(struct roster_entry *entry)
{
	if (!entry || --entry->holders > 0)
		return;

	free(entry->name);
	free(entry);
}
