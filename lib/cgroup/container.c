/*
 * container.c: names of containers, from the documents of runtimes and from paths of cgroups.
 *
 * Documents: a table of keys of a document, and one of fields of a container. The first row that
 * matches counts, and a field that is known stays. Docker's labels and the annotations of CRI-O
 * have the same keys for what comes from the kubelet. Labels: Docker has them as an object; CRI-O
 * has what the kubelet called labels as a document within an annotation. Of a pod's container these
 * are the kubelet's own: those a person gave are with the sandbox. containerd's OCI document has
 * none (container_db.h).
 *
 * Paths are walked from the root, component by component; each is compared with a table, and the
 * last that matches is the innermost container. What follows it are cgroups that the container made
 * itself.
 *
 *	/docker/<id>                                                     cgroup files
 *	/system.slice/docker-<id>.scope                                  systemd
 *	/kubepods/burstable/pod<uid>/<id>                                Kubernetes, cgroup files
 *	/kubepods.slice/.../kubepods-burstable-pod<uid>.slice/cri-containerd-<id>.scope
 *	/system.slice/containerd.service/kubepods-pod<uid>.slice:cri-containerd:<id>
 *	                                                                 its drivers disagree
 *	/machine.slice/libpod-<id>.scope/container                       Podman
 *	/system.slice/web.service/libpod-payload-<id>                    Podman with --cgroups=split
 *	/machine.slice/systemd-nspawn@web.service/payload                systemd-nspawn
 *	/lxc.payload.web                                                 LXC, LXD, Incus
 *	/default/web                                                     containerd's own clients
 *
 * A process that may make cgroups may give them such names, and those of containers that exist. So
 * a container inside of another one, or below a user's own systemd, is a foreign one: it is not
 * given the names that the machine's runtimes have for its id.
 *
 * An id is 64 hexadecimal digits and nothing else, so libpod-conmon-<id>.scope is a monitor. 64
 * digits alone are a container too, of any runtime: a custom parent (docker run --cgroup-parent)
 * leaves no other trace.
 */
#include "lib/cgroup/container.h"

#include "lib/base/base.h"
#include "lib/base/json.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

static bool begins(const char *text, size_t len, const char *with)
{
	size_t cut = strlen(with);

	return len >= cut && memcmp(text, with, cut) == 0;
}

static bool is_id(const char *text, size_t len)
{
	return len == ID_DIGITS && strspn(text, "0123456789abcdef") >= len;
}

/* What containerd allows in names of containers and namespaces. */
static bool is_name(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)text[i]) && strchr("_.-", text[i]) == NULL)
			return false;
	return len > 0 && isalnum((unsigned char)text[0]);
}

static bool is_unit(const char *component)
{
	static const char *const kinds[] = { ".slice", ".service", ".scope", ".mount", ".socket", ".swap" };
	const char *dot = strrchr(component, '.');

	for (size_t i = 0; dot && i < ARRAY_LEN(kinds); i++)
		if (strcmp(dot, kinds[i]) == 0)
			return true;
	return false;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/*
 * As systemd.unit(5) says: \xNN is a byte, a dash was a slash, which no machine's name has. A name
 * cannot hold a NUL or a slash.
 */
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

/*
 * "pod<uid>", or "kubepods-burstable-pod<uid>.slice", in which systemd's dashes are underscores: a
 * UID, or the 32 digits of a static pod.
 */
static bool take_pod(const char *component, size_t len, char ret[CONTAINER_PATH_POD_UID + 1])
{
	static const char suffix[] = ".slice";
	size_t cut = sizeof suffix - 1, start = 0;
	char uid[CONTAINER_PATH_POD_UID + 1];

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
	if (len != 32 && len != CONTAINER_PATH_POD_UID)
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
	return strncmp(component, "user@", 5) == 0 && strcmp(component, "user@0.service") != 0 &&
	       strcmp(component + strcspn(component, "."), ".service") == 0;
}

/* ---- one component ---- */

/*
 * The namespace and the name that containerd's clients join with a dash: namespaces with a dash are
 * not told from names.
 */
static bool take_space_and_name(const char *text, size_t len, struct container_path *found)
{
	const char *dash = memchr(text, '-', len);
	size_t space = dash ? (size_t)(dash - text) : 0;

	if (!dash || space > CONTAINER_SPACE_MAX || !is_name(text, space) || !is_name(dash + 1, len - space - 1))
		return false;

	copy(found->space, text, space);
	copy(found->id, dash + 1, len - space - 1);
	return true;
}

static bool take_middle(enum middle middle, const char *text, size_t len, struct container_path *found)
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
static const struct form *fitting(const char *parent, const char *component, struct container_path *found)
{
	size_t len = strlen(component);

	for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
		const struct form *form = &forms[i];
		size_t before = strlen(form->prefix), after = strlen(form->suffix);

		if ((form->parent && strcmp(form->parent, parent) != 0) || len < before + after ||
		    !begins(component, len, form->prefix) || strcmp(component + len - after, form->suffix) != 0)
			continue;
		if (take_middle(form->middle, component + before, len - before - after, found))
			return form;
	}
	return NULL;
}

/* The walk: what is known so far. */
struct walk {
	struct container_path found; /* the innermost container */
	bool any;
	bool of_user; /* what follows is named by a user */
	char parent[COMPONENT_MAX + 1];
	char pod_uid[CONTAINER_PATH_POD_UID + 1]; /* met since then */
	unsigned depth;
};

/* What may be none does not count. */
static bool is_inside(const struct walk *walk, const struct container_path *found)
{
	return !walk->found.unsure && strcmp(walk->found.id, found->id) != 0;
}

static void settle(struct walk *walk, const struct form *form, struct container_path *found, size_t end)
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

/*
 * "<slice>:<prefix>:<id>", which is "<slice>/<prefix>-<id>.scope" where the drivers agree. True: it
 * was one.
 */
static bool take_colons(struct walk *walk, const char *component, size_t end)
{
	const char *first = strchr(component, ':'), *second = first ? strchr(first + 1, ':') : NULL;
	char scope[COMPONENT_MAX + 16];
	struct container_path found = { 0 };

	if (!second)
		return false;

	take_pod(component, (size_t)(first - component), walk->pod_uid);
	snprintf(scope, sizeof scope, "%.*s-%s.scope", (int)(second - first - 1), first + 1, second + 1);

	const struct form *form = fitting("", scope, &found);

	if (form)
		settle(walk, form, &found, end);
	return form != NULL;
}

/* "/<namespace>/<name>": the default of containerd's clients, but any process may make it. */
static void take_plain(struct walk *walk, const char *component, size_t end)
{
	size_t space = strlen(walk->parent), len = strlen(component);
	struct container_path found = { 0 };
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
	struct container_path found = { 0 };

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

bool container_path_parse(const char *path, struct container_path *ret)
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

/* An OCI document goes some ten deep (seccomp, hooks); a list of many containers has many nodes. */
#define DEPTH_MAX 32
#define NODES_MAX 262144

struct mapping {
	const char *key;
	size_t offset, room;
};

/* clang-format off */
#define TO(k, m) { k, offsetof(struct container, m), sizeof(((struct container *)NULL)->m) }

static const struct mapping names_in_labels[] = {
	TO("io.kubernetes.container.name", name),
	TO("io.kubernetes.pod.name",       pod),
	TO("io.kubernetes.pod.namespace",  space),
};

static const struct mapping annotations[] = {
	TO("io.kubernetes.cri.container-name",    name),
	TO("io.kubernetes.cri.sandbox-name",      pod),
	TO("io.kubernetes.cri.sandbox-namespace", space),
	TO("io.kubernetes.cri.image-name",        image),
	TO("io.kubernetes.container.name",        name),
	TO("io.kubernetes.pod.name",              pod),
	TO("io.kubernetes.pod.namespace",         space),
	TO("io.kubernetes.cri-o.KubeName",        pod),
	TO("io.kubernetes.cri-o.Namespace",       space),
	TO("io.kubernetes.cri-o.ImageName",       image),
	TO("nerdctl/name",                        name),
};
/* clang-format on */

/* What says that it is a sandbox, and how. */
static const struct {
	const char *key, *value;
} sandboxes[] = {
	{ "io.kubernetes.docker.type", "podsandbox" },
	{ "io.kubernetes.cri.container-type", "sandbox" },
	{ "io.kubernetes.cri-o.ContainerType", "sandbox" },
};

/* Labels that runtimes, and those above them, write for themselves. */
static const char *const internal[] = {
	"io.kubernetes.", "io.cri-containerd.", "io.containerd.", "containerd.io/", "nerdctl/",
};

/* Beside them, with what the kubelet runs by Docker: annotations, which need not be short. */
#define ANNOTATION "annotation."

static const char *const pod_ids[] = {
	"io.kubernetes.sandbox.id",
	"io.kubernetes.cri.sandbox-id",
	"io.kubernetes.cri-o.SandboxID",
};

static const struct {
	const char *value;
	enum container_runtime runtime;
} managers[] = {
	{ "libpod", CONTAINER_PODMAN },
	{ "cri-o", CONTAINER_CRIO },
};

/* ---- pieces ---- */

static int parse(const char *text, size_t len, size_t max, struct json_document **ret)
{
	const struct json_limits limits = { .size_bytes = max, .depth = DEPTH_MAX, .nodes = NODES_MAX };
	int r = json_parse(text, len, &limits, ret, NULL);

	return r < 0 && r != -ENOMEM ? -EBADMSG : r;
}

/* NULL: it is no text. */
static const struct json_node *text_member(const struct json_node *object, const char *key)
{
	const struct json_node *node = object ? json_member(object, key) : NULL;

	return node && node->type == JSON_STRING ? node : NULL;
}

/* Whether something came into a field that was empty. */
static bool fill(char *field, size_t room, const char *text, size_t len)
{
	if (len == 0 || field[0] != '\0')
		return false;
	container_text(field, room, text, len);
	return true;
}

static bool fill_from(char *field, size_t room, const struct json_node *node)
{
	return node && fill(field, room, node->text, node->text_len);
}

static bool take_members(const struct json_node *object, const struct mapping *table, size_t count,
			 struct container *ret)
{
	bool any = false;

	for (size_t i = 0; i < count; i++)
		any |= fill_from((char *)ret + table[i].offset, table[i].room, text_member(object, table[i].key));
	for (size_t i = 0; i < ARRAY_LEN(sandboxes); i++) {
		const struct json_node *type = text_member(object, sandboxes[i].key);

		if (type && strcmp(type->text, sandboxes[i].value) == 0)
			any = ret->sandbox = true;
	}
	return any;
}

/* ---- labels ---- */

bool container_state_is_label(const char *key, size_t len)
{
	for (size_t i = 0; i < ARRAY_LEN(internal); i++)
		if (begins(key, len, internal[i]))
			return false;
	return true;
}

static void take_pod_id(const struct json_node *object, struct container_state_more *more)
{
	for (size_t i = 0; i < ARRAY_LEN(pod_ids); i++)
		fill_from(more->pod_id, sizeof more->pod_id, text_member(object, pod_ids[i]));
}

/* annotated: the kubelet put annotations among them. */
static void take_labels(const struct json_node *object, bool annotated, struct container_state_more *more)
{
	const struct json_node *node = object && object->type == JSON_OBJECT ? object->first : NULL;

	for (; node; node = node->next)
		if (node->type == JSON_STRING && container_state_is_label(node->key, node->key_len) &&
		    !(annotated && begins(node->key, node->key_len, ANNOTATION)))
			labels_add(&more->labels, node->key, node->key_len, node->text, node->text_len);
	more->labelled = true;
}

/*
 * A document whose outermost object, or a member of it, is labels. 0; 1: it has none; -EBADMSG;
 * -ENOMEM.
 */
static int take_labels_within(const char *text, size_t len, const char *member, struct container_state_more *more)
{
	AUTO(json_document_freep) struct json_document *document = NULL;
	int r = parse(text, len, CONTAINER_STATE_BYTES_MAX, &document);

	if (r < 0)
		return r;

	const struct json_node *object = json_root(document);

	if (member && object)
		object = json_member(object, member);
	if (!object || object->type != JSON_OBJECT)
		return 1;
	take_labels(object, false, more);
	return 0;
}

int container_state_podman_labels(const char *text, size_t len, struct container_state_more *more)
{
	return take_labels_within(text, len, "labels", more);
}

/* ---- documents ---- */

/* Docker's labels. A container without any has the object all the same, or null. */
static void take_docker_labels(const struct json_node *config, struct container_state_more *more)
{
	const struct json_node *object = config ? json_member(config, "Labels") : NULL;

	if (!config || config->type != JSON_OBJECT)
		return;
	take_labels(object, text_member(object, "io.kubernetes.docker.type") != NULL, more);
	take_pod_id(object, more);
}

int container_state_docker(const char *text, size_t len, struct container *ret, struct container_state_more *more)
{
	AUTO(json_document_freep) struct json_document *document = NULL;
	int r = parse(text, len, CONTAINER_STATE_BYTES_MAX, &document);

	if (r < 0)
		return r;

	const struct json_node *root = json_root(document), *name = text_member(root, "Name");
	const struct json_node *config = json_member(root, "Config");
	bool any = take_members(config ? json_member(config, "Labels") : NULL, names_in_labels,
				ARRAY_LEN(names_in_labels), ret);

	any |= fill_from(ret->image, sizeof ret->image, text_member(config, "Image"));
	if (name) {
		size_t slash = name->text[0] == '/';

		any |= fill(ret->name, sizeof ret->name, name->text + slash, name->text_len - slash) &&
		       ret->name[0] != '\0';
	}
	if (more)
		take_docker_labels(config, more);
	return any ? 0 : 1;
}

int container_state_oci(const char *text, size_t len, struct container *ret, struct container_state_more *more)
{
	AUTO(json_document_freep) struct json_document *document = NULL;
	int r = parse(text, len, CONTAINER_STATE_BYTES_MAX, &document);

	if (r < 0)
		return r;

	const struct json_node *object = json_member(json_root(document), "annotations");
	const struct json_node *manager = text_member(object, "io.container.manager");
	bool any = take_members(object, annotations, ARRAY_LEN(annotations), ret);

	for (size_t i = 0; manager && i < ARRAY_LEN(managers); i++)
		if (ret->runtime == CONTAINER_UNKNOWN && strcmp(manager->text, managers[i].value) == 0)
			ret->runtime = managers[i].runtime;
	if (!more)
		return any ? 0 : 1;

	const struct json_node *within = text_member(object, "io.kubernetes.cri-o.Labels");

	take_pod_id(object, more);
	r = within ? take_labels_within(within->text, within->text_len, NULL, more) : 0;
	return r == -ENOMEM ? r : any ? 0 : 1;
}

/* ---- a list ---- */

/* 64 digits or, as long as it fits, whatever a runtime calls it. */
struct row {
	char id[CONTAINER_TEXT_MAX + 1];
	char name[CONTAINER_TEXT_MAX + 1];
	char image[CONTAINER_TEXT_MAX + 1];
};

struct container_state_list {
	size_t count;
	struct row rows[]; /* by id */
};

/* The runtime's own part of an item, a document within the document. */
static int take_metadata(const struct json_node *metadata, struct row *ret)
{
	AUTO(json_document_freep) struct json_document *document = NULL;
	int r = metadata ? parse(metadata->text, metadata->text_len, CONTAINER_STATE_BYTES_MAX, &document) : 0;

	if (r < 0 || !document)
		return r == -ENOMEM ? r : 0;

	fill_from(ret->image, sizeof ret->image, text_member(json_root(document), "image-name"));
	fill_from(ret->name, sizeof ret->name, text_member(json_root(document), "name"));
	return 0;
}

/* 0; 1: it is no container; -ENOMEM. */
static int take_item(const struct json_node *item, struct row *ret)
{
	const struct json_node *id = text_member(item, "id"), *names = json_member(item, "names");
	const struct json_node *name = names && names->type == JSON_ARRAY ? names->first : NULL;

	*ret = (struct row){ .id = "" };
	if (!fill_from(ret->id, sizeof ret->id, id))
		return 1;

	fill_from(ret->name, sizeof ret->name, name && name->type == JSON_STRING ? name : NULL);
	return take_metadata(text_member(item, "metadata"), ret);
}

static int by_id(const void *a, const void *b)
{
	return strcmp(((const struct row *)a)->id, ((const struct row *)b)->id);
}

int container_state_list_new(const char *text, size_t len, struct container_state_list **ret)
{
	AUTO(json_document_freep) struct json_document *document = NULL;
	size_t items = 0;
	int r = parse(text, len, CONTAINER_STATE_LIST_BYTES_MAX, &document);

	if (r < 0)
		return r;
	if (json_root(document)->type != JSON_ARRAY)
		return -EBADMSG;

	for (const struct json_node *item = json_root(document)->first; item; item = item->next)
		items++;
	if (items > CONTAINER_STATE_LIST_MAX)
		items = CONTAINER_STATE_LIST_MAX;

	AUTO_FREE struct container_state_list *list = malloc(sizeof(*list) + items * sizeof(list->rows[0]));

	if (!list)
		return -ENOMEM;

	list->count = 0;
	for (const struct json_node *item = json_root(document)->first; item && list->count < items;
	     item = item->next) {
		r = take_item(item, &list->rows[list->count]);
		if (r < 0)
			return r;
		list->count += r == 0;
	}
	qsort(list->rows, list->count, sizeof(list->rows[0]), by_id);
	*ret = TAKE(list);
	return 0;
}

void container_state_list_free(struct container_state_list *list)
{
	free(list);
}

int container_state_list_find(const struct container_state_list *list, struct container *ret)
{
	struct row key;

	memcpy(key.id, ret->id, sizeof key.id);

	const struct row *row = bsearch(&key, list->rows, list->count, sizeof(list->rows[0]), by_id);
	bool any = row && fill(ret->name, sizeof ret->name, row->name, strlen(row->name));

	return row && (fill(ret->image, sizeof ret->image, row->image, strlen(row->image)) || any) ? 0 : 1;
}

/* ---- names of files ---- */

/* Names of pods and containers hold no underscore, and ids no dash. */
bool container_state_log_link(const char *name, struct container *ret)
{
	static const char suffix[] = ".log";
	size_t len = strlen(name), cut = sizeof suffix - 1, id = strlen(ret->id);
	const char *pod_end = strchr(name, '_'), *space_end = pod_end ? strchr(pod_end + 1, '_') : NULL;

	if (!space_end || id == 0 || len < cut + id + 1 || strcmp(name + len - cut, suffix) != 0)
		return false;

	const char *dash = name + len - cut - id - 1;

	if (dash <= space_end + 1 || *dash != '-' || memcmp(dash + 1, ret->id, id) != 0)
		return false;

	fill(ret->pod, sizeof ret->pod, name, (size_t)(pod_end - name));
	fill(ret->space, sizeof ret->space, pod_end + 1, (size_t)(space_end - pod_end - 1));
	fill(ret->name, sizeof ret->name, space_end + 1, (size_t)(dash - space_end - 1));
	return true;
}

bool container_state_log_directory(const char *name, const char *pod_uid, struct container *ret)
{
	const char *space_end = strchr(name, '_'), *pod_end = strrchr(name, '_');

	if (!space_end || pod_end <= space_end + 1 || strcmp(pod_end + 1, pod_uid) != 0)
		return false;

	fill(ret->space, sizeof ret->space, name, (size_t)(space_end - name));
	fill(ret->pod, sizeof ret->pod, space_end + 1, (size_t)(pod_end - space_end - 1));
	return true;
}
