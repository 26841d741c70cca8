/*
 * config_target.c: an entry has a name, exactly one selector, and says what a match becomes. A pattern that can
 * never match is refused here, where the mistake can be shown: whoever waits for a target that never comes sees
 * nothing at all.
 */
#include "config_target.h"

#include "clock.h"
#include "config_labels.h"
#include "config_regex.h"
#include "config_run.h"
#include "scope.h"
#include "units.h"
#include "textregex.h"

#include <errno.h>
#include <limits.h>
#include <regex.h>
#include <stdio.h>
#include <string.h>

/* PID_MAX_LIMIT of 64-bit kernels, include/linux/threads.h. */
#define PID_LIMIT 4194304
/* TASK_COMM_LEN less its NUL: the kernel cuts longer names. */
#define COMM_MAX 15
/* What people write by hand. */
#define REGEX_MAX 1024

// clang-format off
const struct config_field config_target_fields[] = {
	CONFIG_OTHER("", "name"),
	CONFIG_OTHER("", "per"),
	CONFIG_OTHER("", "pid"),
	CONFIG_OTHER("", "pidfile"),
	CONFIG_OTHER("", "comm"),
	CONFIG_OTHER("", "exe"),
	CONFIG_OTHER("", "cmdline"),
	CONFIG_OTHER("", "cgroup"),
	CONFIG_OTHER("", "unit"),
	CONFIG_OTHER("", "containers"),
	CONFIG_OTHER("", "labels"),
	CONFIG_OTHER("", "run"),
	/* Sooner, and nothing has moved; later than ten minutes, it is another story. */
	CONFIG_RANGE("", "again", DURATION, struct config_target, again_ns, 0, 100 * NS_PER_MS, 600 * NS_PER_S, .zero = true),
	CONFIG_ROW("", "tree", BOOL, struct config_target, tree),
};
// clang-format on
const size_t config_target_field_count = ARRAY_LEN(config_target_fields);

static const char *const selectors = "pid, pidfile, comm, exe, cmdline, cgroup, unit, containers";

static int check_regex(const struct config_scope *scope, const struct json_node *node)
{
	regex_t regex;
	char why[128];
	int r;

	if (!config_regex_is_cheap(node->text))
		return config_refuse_value(scope, node,
					   "would take too long to compile, or to match: expected fewer repetitions "
					   "within repetitions, and no \\1");
	if (!textregex_is_balanced(node->text))
		return config_refuse_value(scope, node, "expected a ( for each ), or \\)");
	r = regcomp(&regex, node->text, REG_EXTENDED | REG_NOSUB);
	if (r == 0) {
		regfree(&regex);
		return 0;
	}
	regerror(r, &regex, why, sizeof(why));
	return config_refuse_value(scope, node, "expected a POSIX extended regular expression: %s", why);
}

static int check_pattern(const struct config_scope *scope, const struct json_node *node, enum config_selector selector)
{
	char shown[CONFIG_SHOWN];

	config_found(node, shown);
	if (selector == CONFIG_COMM && node->text_len > COMM_MAX)
		return config_refuse_value(
			scope, node, "no process has this name: the kernel cuts names to %d bytes: expected \"%.*s\"",
			COMM_MAX, COMM_MAX, shown + 1);
	if ((selector == CONFIG_PIDFILE || selector == CONFIG_EXE || selector == CONFIG_CGROUP) && node->text[0] != '/')
		return config_refuse_value(scope, node, "expected a path that begins with /, found %s", shown);
	if (selector == CONFIG_UNIT && strpbrk(node->text, ".*") == NULL)
		return config_refuse_value(scope, node,
					   "expected a unit name with its suffix, such as \"nginx.service\", found %s",
					   shown);
	if (selector == CONFIG_UNIT && strchr(node->text, '/') != NULL)
		return config_refuse_value(scope, node, "expected a unit name, not a path, found %s", shown);
	if (selector == CONFIG_EXE || selector == CONFIG_CGROUP || selector == CONFIG_UNIT ||
	    selector == CONFIG_CONTAINERS)
		return config_check_glob(scope, node);
	if (selector == CONFIG_CMDLINE)
		return check_regex(scope, node);
	return 0;
}

static int read_pid(const struct config_scope *scope, const struct json_node *node, int32_t *ret)
{
	uint64_t pid = 0;
	char shown[CONFIG_SHOWN];

	if (node->type != JSON_NUMBER || units_count(node->text, node->text_len, &pid) < 0 || pid < 1 ||
	    pid > PID_LIMIT)
		return config_refuse_value(scope, node, "expected a process id, 1 to %d without quotes, found %s",
					   PID_LIMIT, config_found(node, shown));
	*ret = (int32_t)pid;
	return 0;
}

static int read_selector(const struct config_scope *scope, const struct json_node *entry, struct config_target *ret)
{
	const struct json_node *found = NULL;
	int r;

	for (enum config_selector i = CONFIG_PID; i <= CONFIG_CONTAINERS; i++) {
		const struct json_node *node = json_member(entry, config_selector_name(i));

		if (node == NULL)
			continue;
		if (found != NULL)
			return config_refuse_value(scope, node,
						   "a second selector beside \"%s\": expected exactly one of %s",
						   found->key, selectors);
		found = node;
		ret->selector = i;
	}
	if (found == NULL)
		return config_refuse(scope, entry->place, NULL, "selects nothing: expected exactly one of %s",
				     selectors);
	if (ret->selector == CONFIG_PID)
		return read_pid(scope, found, &ret->pid);
	r = config_read_text(scope, found, ret->selector == CONFIG_CMDLINE ? REGEX_MAX : PATH_MAX - 1, &ret->pattern);
	return r < 0 ? r : check_pattern(scope, found, ret->selector);
}

static int read_per(const struct config_scope *scope, const struct json_node *entry, struct config_target *ret)
{
	static const char *const choices[] = { "process", "group", "cgroup", NULL };
	const struct json_node *node = json_member(entry, "per");
	bool by_cgroup = ret->selector >= CONFIG_CGROUP;
	unsigned choice = by_cgroup ? CONFIG_PER_CGROUP : CONFIG_PER_PROCESS;
	int r = node != NULL ? config_read_choice(scope, node, choices, &choice) : 0;

	if (r < 0)
		return r;
	ret->per = (enum config_per)choice;
	return 0;
}

/* A cgroup holds the descendants of its processes, unless they were moved, which is then what was wanted. */
static int check_tree(const struct config_scope *scope, const struct json_node *entry,
		      const struct config_target *target)
{
	const struct json_node *node = json_member(entry, "tree");

	if (!target->tree)
		return 0;
	if (target->selector > CONFIG_CMDLINE)
		return config_refuse_value(scope, node,
					   "a cgroup has its processes' descendants in it: expected true only with %s",
					   "pid, pidfile, comm, exe or cmdline");
	if (target->per == CONFIG_PER_CGROUP)
		return config_refuse_value(
			scope, node,
			"a tree is of processes, not of cgroups: expected \"per\": \"process\" or \"group\" with it");
	return 0;
}

int config_target_read(const struct config_scope *scope, const struct json_node *node, struct config_target *ret)
{
	const struct json_node *name = json_member(node, "name");
	const struct json_node *run = json_member(node, "run"), *labels = json_member(node, "labels");
	int r = config_field_apply(scope, config_target_fields, config_target_field_count, "", node, ret, NULL);

	if (r < 0)
		return r;
	if (name == NULL)
		return config_refuse(scope, node->place, NULL, "has no name: expected a member \"name\"");
	r = config_read_name(scope, name, &ret->name);
	if (r == 0)
		r = read_selector(scope, node, ret);
	if (r == 0)
		r = read_per(scope, node, ret);
	if (r == 0 && labels != NULL)
		r = config_labels_read(scope, labels, ret);
	if (r == 0)
		r = check_tree(scope, node, ret);
	return r == 0 && run != NULL ? config_run_read(scope, run, ret) : r;
}
