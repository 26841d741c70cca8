/*
 * containerpath.c: the path is walked from the root, component by component; each is held against a table, and the last that fits is the innermost
 * container. What follows it are cgroups that the container made for itself.
 *
 *	/docker/<id>                                                     cgroupfs
 *	/system.slice/docker-<id>.scope                                  systemd
 *	/kubepods/burstable/pod<uid>/<id>                                Kubernetes, cgroupfs
 *	/kubepods.slice/.../kubepods-burstable-pod<uid>.slice/cri-containerd-<id>.scope
 *	/system.slice/containerd.service/kubepods-pod<uid>.slice:cri-containerd:<id>      its drivers disagree
 *	/machine.slice/libpod-<id>.scope/container                       Podman
 *	/system.slice/web.service/libpod-payload-<id>                    Podman with --cgroups=split
 *	/machine.slice/systemd-nspawn@web.service/payload                systemd-nspawn
 *	/lxc.payload.web                                                 LXC, LXD, Incus
 *	/default/web                                                     containerd's own clients
 *
 * Whoever may make cgroups may give them such names, and those of containers that exist. So what is made inside of another container, or below a user's
 * own systemd, is one, but a foreign one: it is not given the names that the machine's runtimes have for its id.
 *
 * An id is 64 hexadecimal digits and nothing else: libpod-conmon-<id>.scope is a monitor by that. 64 digits alone are a container too, whoever
 * made it: a custom parent (docker run --cgroup-parent) leaves no other trace.
 */
#include "containerpath.h"
#include "scope.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define ID_DIGITS 64
#define COMPONENT_MAX 255 /* NAME_MAX */

/* What is between prefix and suffix. */
enum middle {
	ID,
	NAME,
	UNIT_NAME, /* a name as systemd writes it into the name of a unit: \x2d is a dash */
	SPACE_AND_NAME,
};

struct form {
	const char *prefix, *suffix;
	const char *parent; /* the component before; NULL: any */
	enum middle middle;
	enum container_runtime runtime;
	bool none, unsure;
};

/* The first that fits counts. */
static const struct form forms[] = {
	{ "docker-", ".scope", NULL, ID, CONTAINER_DOCKER, false, false },
	{ "cri-containerd-", ".scope", NULL, ID, CONTAINER_CONTAINERD, false, false },
	{ "nerdctl-", ".scope", NULL, ID, CONTAINER_CONTAINERD, false, false },
	{ "crio-", ".scope", NULL, ID, CONTAINER_CRIO, false, false },
	{ "crio-", "", NULL, ID, CONTAINER_CRIO, false, false },
	{ "libpod-", ".scope", NULL, ID, CONTAINER_PODMAN, false, false },
	{ "libpod-payload-", "", NULL, ID, CONTAINER_PODMAN, false, false },
	{ "libpod-", "", NULL, ID, CONTAINER_PODMAN, false, false },
	{ "", "", "docker", ID, CONTAINER_DOCKER, false, false },
	{ "", "", NULL, ID, CONTAINER_UNKNOWN, false, false },
	{ "systemd-nspawn@", ".service", NULL, UNIT_NAME, CONTAINER_NSPAWN, false, false },
	{ "machine-qemu\\x2d", ".scope", "machine.slice", UNIT_NAME, CONTAINER_UNKNOWN, true, false },
	{ "machine-lxc\\x2d", ".scope", "machine.slice", UNIT_NAME, CONTAINER_LXC, false, false },
	{ "machine-", ".scope", "machine.slice", UNIT_NAME, CONTAINER_NSPAWN, false, false },
	{ "lxc.monitor", "", NULL, NAME, CONTAINER_UNKNOWN, true, false },
	{ "lxc.payload.", "", NULL, NAME, CONTAINER_LXC, false, false },
	{ "", "", "lxc.payload", NAME, CONTAINER_LXC, false, false },
	{ "", "", "lxc", NAME, CONTAINER_LXC, false, false },
	{ "", ".scope", "system.slice", SPACE_AND_NAME, CONTAINER_CONTAINERD, false, true },
};

/* ---- pieces ---- */

static bool has_prefix(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_id(const char *text, size_t len)
{
	if (len != ID_DIGITS)
		return false;
	for (size_t i = 0; i < len; i++)
		if (!isdigit((unsigned char)text[i]) && (text[i] < 'a' || text[i] > 'f'))
			return false;

	return true;
}

/* What containerd allows in names of containers and namespaces. */
static bool is_name(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)text[i]) && strchr("_.-", text[i]) == NULL)
			return false;

	return len > 0 && isalnum((unsigned char)text[0]);
}

/* systemd's own. */
static bool is_unit(const char *component)
{
	const char *dot = strrchr(component, '.');

	return dot && (strcmp(dot, ".slice") == 0 || strcmp(dot, ".service") == 0 || strcmp(dot, ".scope") == 0 ||
		       strcmp(dot, ".mount") == 0 || strcmp(dot, ".socket") == 0 || strcmp(dot, ".swap") == 0);
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';

	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* As systemd.unit(5) says: \xNN is a byte, a dash was a slash, which no machine's name has. A name cannot hold a NUL or a slash. */
static bool unescape(const char *text, size_t len, char *ret, size_t cap)
{
	size_t used = 0;

	for (size_t i = 0; i < len; i++) {
		char byte = text[i];

		if (byte == '\\') {
			int high = i + 3 < len && text[i + 1] == 'x' ? hex_digit(text[i + 2]) : -1;
			int low = high >= 0 ? hex_digit(text[i + 3]) : -1;

			if (low < 0)
				return false;
			byte = (char)(high << 4 | low);
			i += 3;
		}
		if (byte == '\0' || byte == '/' || used + 1 >= cap)
			return false;
		ret[used++] = byte;
	}
	ret[used] = '\0';

	return used > 0;
}

static void copy(char *ret, const char *text, size_t len)
{
	memcpy(ret, text, len);
	ret[len] = '\0';
}

/* "pod<uid>", or "kubepods-burstable-pod<uid>.slice", in which systemd's dashes are underscores: a UID, or the 32 digits of a static pod. */
static bool take_pod(const char *component, size_t len, char ret[CONTAINERPATH_POD_UID + 1])
{
	static const char suffix[] = ".slice";
	size_t cut = sizeof suffix - 1, start = 0;
	char uid[CONTAINERPATH_POD_UID + 1];

	if (len > cut && memcmp(component + len - cut, suffix, cut) == 0) {
		len -= cut;
		for (size_t i = 0; i + 4 <= len; i++)
			if (memcmp(component + i, "-pod", 4) == 0)
				start = i + 1;
		if (start == 0)
			return false;
	}
	if (len < start + 3 || memcmp(component + start, "pod", 3) != 0)
		return false;
	start += 3;
	len -= start;
	if (len != 32 && len != CONTAINERPATH_POD_UID)
		return false;
	for (size_t i = 0; i < len; i++) {
		char c = component[start + i] == '_' ? '-' : component[start + i];

		if (hex_digit(c) < 0 && c != '-')
			return false;
		uid[i] = c;
	}
	copy(ret, uid, len);

	return true;
}

/* "user@1000.service": below it everything is named by that user. Root's own is the machine's. */
static bool is_of_user(const char *component)
{
	static const char prefix[] = "user@";

	return has_prefix(component, prefix) && strcmp(component, "user@0.service") != 0 &&
	       strcmp(component + strcspn(component, "."), ".service") == 0;
}

/* ---- one component ---- */

/* The namespace and the name that containerd's clients join with a dash: namespaces with a dash are not told from names. */
static bool take_space_and_name(const char *text, size_t len, struct containerpath *found)
{
	const char *dash = memchr(text, '-', len);
	size_t space = dash ? (size_t)(dash - text) : 0;

	if (!dash || space > CONTAINER_SPACE_MAX || !is_name(text, space) || !is_name(dash + 1, len - space - 1))
		return false;

	copy(found->space, text, space);
	copy(found->id, dash + 1, len - space - 1);

	return true;
}

static bool take_middle(enum middle middle, const char *text, size_t len, struct containerpath *found)
{
	switch (middle) {
	case ID:
		if (!is_id(text, len))
			return false;
		break;
	case NAME:
		break;
	case UNIT_NAME:
		return unescape(text, len, found->id, sizeof found->id);
	case SPACE_AND_NAME:
		return take_space_and_name(text, len, found);
	}
	copy(found->id, text, len);

	return len > 0;
}

/* NULL: none. */
static const struct form *fitting(const char *parent, const char *component, struct containerpath *found)
{
	size_t len = strlen(component);

	for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
		const struct form *form = &forms[i];
		size_t before = strlen(form->prefix), after = strlen(form->suffix);

		if ((form->parent && strcmp(form->parent, parent) != 0) || len < before + after ||
		    !has_prefix(component, form->prefix) || strcmp(component + len - after, form->suffix) != 0)
			continue;
		if (take_middle(form->middle, component + before, len - before - after, found))
			return form;
	}

	return NULL;
}

/* The walk: what is known so far. */
struct walk {
	struct containerpath found; /* the innermost container */
	bool any;
	bool of_user; /* what follows is named by a user */
	char parent[COMPONENT_MAX + 1];
	char pod_uid[CONTAINERPATH_POD_UID + 1]; /* met since then */
	unsigned depth;
};

/* What may be none does not count. */
static bool is_inside(const struct walk *walk, const struct containerpath *found)
{
	return !walk->found.unsure && strcmp(walk->found.id, found->id) != 0;
}

static void settle(struct walk *walk, const struct form *form, struct containerpath *found, size_t end)
{
	found->runtime = form->runtime;
	found->unsure = form->unsure;
	found->len = end;
	found->foreign = walk->of_user || (walk->any && (walk->found.foreign || is_inside(walk, found)));
	memcpy(found->pod_uid, walk->pod_uid, sizeof found->pod_uid);
	walk->pod_uid[0] = '\0';
	walk->any = true;
	walk->found = *found;
}

/* "<slice>:<prefix>:<id>", which is "<slice>/<prefix>-<id>.scope" where the drivers agree. True: it was one. */
static bool take_colons(struct walk *walk, const char *component, size_t end)
{
	const char *first = strchr(component, ':'), *second = first ? strchr(first + 1, ':') : NULL;
	char scope[COMPONENT_MAX + 16];
	struct containerpath found = { 0 };

	if (!second)
		return false;

	take_pod(component, (size_t)(first - component), walk->pod_uid);
	snprintf(scope, sizeof scope, "%.*s-%s.scope", (int)(second - first - 1), first + 1, second + 1);

	const struct form *form = fitting("", scope, &found);

	if (form)
		settle(walk, form, &found, end);

	return form != NULL;
}

/* "/<namespace>/<name>": what containerd's clients use if nobody says otherwise, and anybody else may too. */
static void take_plain(struct walk *walk, const char *component, size_t end)
{
	size_t space = strlen(walk->parent), len = strlen(component);
	struct containerpath found = { .runtime = CONTAINER_CONTAINERD, .unsure = true };
	static const struct form plain = { .runtime = CONTAINER_CONTAINERD, .unsure = true };

	if (walk->depth != 2 || walk->any || space > CONTAINER_SPACE_MAX || !is_name(walk->parent, space) ||
	    !is_name(component, len) || is_unit(walk->parent) || is_unit(component))
		return;
	copy(found.space, walk->parent, space);
	copy(found.id, component, len);
	settle(walk, &plain, &found, end);
}

static void take_component(struct walk *walk, const char *component, size_t end)
{
	struct containerpath found = { 0 };

	walk->depth++;
	walk->of_user |= is_of_user(component);
	if (!take_pod(component, strlen(component), walk->pod_uid) && !take_colons(walk, component, end)) {
		const struct form *form = fitting(walk->parent, component, &found);

		if (form && !form->none)
			settle(walk, form, &found, end);
		else if (!form)
			take_plain(walk, component, end);
	}
	copy(walk->parent, component, strlen(component));
}

bool containerpath_parse(const char *path, struct containerpath *ret)
{
	struct walk walk = { .any = false };
	char component[COMPONENT_MAX + 1];
	size_t at = 0;

	while (path[at] != '\0') {
		size_t len = strcspn(path + at, "/");

		if (len > COMPONENT_MAX)
			return false; /* no file system has such names */
		if (len > 0) {
			copy(component, path + at, len);
			take_component(&walk, component, at + len);
		}
		at += len + (path[at + len] == '/');
	}
	if (walk.any)
		*ret = walk.found;

	return walk.any;
}
