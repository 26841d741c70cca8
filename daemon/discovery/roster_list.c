/* roster_list.c: nothing of the list in force is touched, but for the holders of what both have. */
#include "roster_list.h"

#include "roster_limits.h"
#include "roster_target.h"

#include <errno.h>
#include <stdlib.h>

static int make_group(const struct roster_options *options, struct roster_entry *entry, uint32_t id)
{
	struct roster_target *group = roster_target_new(entry, &(struct target){ .id = id,
										 .kind = TARGET_GROUP,
										 .name = entry->name,
										 .key = entry->name,
										 .comm = "",
										 .cmdline = "",
										 .cgroup = "" });
	int r;

	if (!group)
		return -ENOMEM;

	r = source_entry_group(&group->sampled, &group->sampled.entry);
	if (r == 0)
		r = sampler_target_describe(&group->sampled, &group->what);
	if (r < 0) {
		roster_target_free(group);
		return r;
	}
	roster_limits_settle(options, group);
	group->unlent = true;
	entry->group = group;

	return 0;
}

/* The entry of the configuration in force that is the same; NULL: there is none. */
static struct roster_entry *find_same(const struct roster_options *options, const struct roster_list *before,
				      const struct config_target *wanted)
{
	for (size_t i = 0; i < before->count; i++)
		if (config_target_same(&options->config->targets[i], wanted))
			return before->entries[i];

	return NULL;
}

static int make_entry(const struct roster_options *options, const struct config_target *wanted,
		      struct roster_numbers *numbers, struct roster_entry **ret)
{
	*ret = roster_entry_new(wanted->name, ++numbers->entry);
	if (!*ret)
		return -ENOMEM;

	(*ret)->planned = true;

	return wanted->per == CONFIG_PER_GROUP ? make_group(options, *ret, ++numbers->target) : 0;
}

int roster_list_make(const struct roster_options *options, const struct roster_list *before,
		     const struct config *config, struct roster_numbers *numbers, struct roster_list *ret)
{
	struct roster_list list = {
		.entries = calloc(config->target_count, sizeof(struct roster_entry *)),
		.count = config->target_count,
	};
	int r = list.entries ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < list.count; i++) {
		struct roster_entry *same = find_same(options, before, &config->targets[i]);

		if (same)
			list.entries[i] = roster_entry_hold(same);
		else
			r = make_entry(options, &config->targets[i], numbers, &list.entries[i]);
	}
	if (r < 0) {
		roster_list_release(&list);
		return r;
	}
	*ret = list;

	return 0;
}

void roster_list_release(struct roster_list *list)
{
	for (size_t i = 0; list->entries && i < list->count; i++) {
		struct roster_entry *entry = list->entries[i];

		if (entry && entry->planned && entry->group)
			roster_target_free(entry->group);
		roster_entry_drop(entry);
	}
	free(list->entries);
}
