/*
 * containerstate.c: a key of a document, a field of a container: a table each. The first row that is there counts, and what is known already stays.
 *
 * Docker's labels and the annotations of CRI-O have the same keys for what the kubelet told them.
 *
 * Labels: Docker has them as an object; CRI-O has what the kubelet called labels as a document within an annotation. Of a pod's container these are
 * the kubelet's own: what a person gave is with the sandbox. containerd's OCI document has none (containerdb.h).
 */
#include "containerstate.h"
#include "json.h"
#include "scope.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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

static void release_document(struct json_document **document)
{
	json_document_free(*document);
}

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
static bool fill(char *field, size_t room, const struct json_node *node)
{
	if (!node || node->text_len == 0 || field[0] != '\0')
		return false;

	container_text(field, room, node->text, node->text_len);

	return true;
}

static bool take_members(const struct json_node *object, const struct mapping *table, size_t count,
			 struct container *ret)
{
	bool any = false;

	for (size_t i = 0; i < count; i++)
		any |= fill((char *)ret + table[i].offset, table[i].room, text_member(object, table[i].key));
	for (size_t i = 0; i < ARRAY_LEN(sandboxes); i++) {
		const struct json_node *type = text_member(object, sandboxes[i].key);

		if (type && strcmp(type->text, sandboxes[i].value) == 0)
			any = ret->sandbox = true;
	}

	return any;
}

/* ---- labels ---- */

static bool begins(const char *text, size_t len, const char *with)
{
	size_t cut = strlen(with);

	return len >= cut && memcmp(text, with, cut) == 0;
}

bool containerstate_is_label(const char *key, size_t len)
{
	for (size_t i = 0; i < ARRAY_LEN(internal); i++)
		if (begins(key, len, internal[i]))
			return false;

	return true;
}

static void take_pod_id(const struct json_node *object, struct containerstate_more *more)
{
	for (size_t i = 0; i < ARRAY_LEN(pod_ids); i++)
		fill(more->pod_id, sizeof more->pod_id, text_member(object, pod_ids[i]));
}

/* annotated: the kubelet put annotations among them. */
static void take_labels(const struct json_node *object, bool annotated, struct containerstate_more *more)
{
	const struct json_node *node = object && object->type == JSON_OBJECT ? object->first : NULL;

	for (; node; node = node->next)
		if (node->type == JSON_STRING && containerstate_is_label(node->key, node->key_len) &&
		    !(annotated && begins(node->key, node->key_len, ANNOTATION)))
			labels_add(&more->labels, node->key, node->key_len, node->text, node->text_len);
	more->labelled = true;
}

/* A document whose outermost object, or a member of it, is labels. 0; 1: it has none; -EBADMSG; -ENOMEM. */
static int take_labels_within(const char *text, size_t len, const char *member, struct containerstate_more *more)
{
	AUTO(release_document) struct json_document *document = NULL;
	int r = parse(text, len, CONTAINERSTATE_BYTES_MAX, &document);

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

int containerstate_podman_labels(const char *text, size_t len, struct containerstate_more *more)
{
	return take_labels_within(text, len, "labels", more);
}

/* ---- documents ---- */

/* Docker's labels. A container without any has the object all the same, or null. */
static void take_docker_labels(const struct json_node *config, struct containerstate_more *more)
{
	const struct json_node *object = config ? json_member(config, "Labels") : NULL;

	if (!config || config->type != JSON_OBJECT)
		return;
	take_labels(object, text_member(object, "io.kubernetes.docker.type") != NULL, more);
	take_pod_id(object, more);
}

int containerstate_docker(const char *text, size_t len, struct container *ret, struct containerstate_more *more)
{
	AUTO(release_document) struct json_document *document = NULL;
	int r = parse(text, len, CONTAINERSTATE_BYTES_MAX, &document);

	if (r < 0)
		return r;

	const struct json_node *root = json_root(document), *name = text_member(root, "Name");
	const struct json_node *config = json_member(root, "Config");
	bool any = take_members(config ? json_member(config, "Labels") : NULL, names_in_labels,
				ARRAY_LEN(names_in_labels), ret);

	any |= fill(ret->image, sizeof ret->image, text_member(config, "Image"));
	if (name && ret->name[0] == '\0') {
		size_t slash = name->text[0] == '/';

		container_text(ret->name, sizeof ret->name, name->text + slash, name->text_len - slash);
		any |= ret->name[0] != '\0';
	}
	if (more)
		take_docker_labels(config, more);

	return any ? 0 : 1;
}

int containerstate_oci(const char *text, size_t len, struct container *ret, struct containerstate_more *more)
{
	AUTO(release_document) struct json_document *document = NULL;
	int r = parse(text, len, CONTAINERSTATE_BYTES_MAX, &document);

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

struct containerstate_list {
	size_t count;
	struct row rows[]; /* by id */
};

/* The runtime's own part of an item, a document within the document. */
static int take_metadata(const struct json_node *metadata, struct row *ret)
{
	AUTO(release_document) struct json_document *document = NULL;
	int r = metadata ? parse(metadata->text, metadata->text_len, CONTAINERSTATE_BYTES_MAX, &document) : 0;

	if (r < 0 || !document)
		return r == -ENOMEM ? r : 0;

	fill(ret->image, sizeof ret->image, text_member(json_root(document), "image-name"));
	fill(ret->name, sizeof ret->name, text_member(json_root(document), "name"));

	return 0;
}

/* 0; 1: it is no container; -ENOMEM. */
static int take_item(const struct json_node *item, struct row *ret)
{
	const struct json_node *id = text_member(item, "id"), *names = json_member(item, "names");
	const struct json_node *name = names && names->type == JSON_ARRAY ? names->first : NULL;

	*ret = (struct row){ .id = "" };
	if (!fill(ret->id, sizeof ret->id, id))
		return 1;

	fill(ret->name, sizeof ret->name, name && name->type == JSON_STRING ? name : NULL);

	return take_metadata(text_member(item, "metadata"), ret);
}

static int by_id(const void *a, const void *b)
{
	return strcmp(((const struct row *)a)->id, ((const struct row *)b)->id);
}

int containerstate_list_new(const char *text, size_t len, struct containerstate_list **ret)
{
	AUTO(release_document) struct json_document *document = NULL;
	size_t items = 0;
	int r = parse(text, len, CONTAINERSTATE_LIST_BYTES_MAX, &document);

	if (r < 0)
		return r;
	if (json_root(document)->type != JSON_ARRAY)
		return -EBADMSG;

	for (const struct json_node *item = json_root(document)->first; item; item = item->next)
		items++;
	if (items > CONTAINERSTATE_LIST_MAX)
		items = CONTAINERSTATE_LIST_MAX;

	AUTO_FREE struct containerstate_list *list = malloc(sizeof(*list) + items * sizeof(list->rows[0]));

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

void containerstate_list_free(struct containerstate_list *list)
{
	free(list);
}

static bool fill_text(char *field, size_t room, const char *text)
{
	if (*text == '\0' || *field != '\0')
		return false;

	container_text(field, room, text, strlen(text));

	return true;
}

int containerstate_list_find(const struct containerstate_list *list, struct container *ret)
{
	struct row key;

	memcpy(key.id, ret->id, sizeof key.id);

	const struct row *row = bsearch(&key, list->rows, list->count, sizeof(list->rows[0]), by_id);
	bool any = row && fill_text(ret->name, sizeof ret->name, row->name);

	return row && (fill_text(ret->image, sizeof ret->image, row->image) || any) ? 0 : 1;
}

/* ---- names of files ---- */

static void fill_part(char *field, size_t room, const char *from, const char *to)
{
	if (field[0] == '\0')
		container_text(field, room, from, (size_t)(to - from));
}

/* Names of pods and containers hold no underscore, and ids no dash. */
bool containerstate_log_link(const char *name, struct container *ret)
{
	static const char suffix[] = ".log";
	size_t len = strlen(name), cut = sizeof suffix - 1, id = strlen(ret->id);
	const char *pod_end = strchr(name, '_'), *space_end = pod_end ? strchr(pod_end + 1, '_') : NULL;

	if (!space_end || id == 0 || len < cut + id + 1 || strcmp(name + len - cut, suffix) != 0)
		return false;

	const char *dash = name + len - cut - id - 1;

	if (dash <= space_end + 1 || *dash != '-' || memcmp(dash + 1, ret->id, id) != 0)
		return false;

	fill_part(ret->pod, sizeof ret->pod, name, pod_end);
	fill_part(ret->space, sizeof ret->space, pod_end + 1, space_end);
	fill_part(ret->name, sizeof ret->name, space_end + 1, dash);

	return true;
}

bool containerstate_log_directory(const char *name, const char *pod_uid, struct container *ret)
{
	const char *space_end = strchr(name, '_'), *pod_end = strrchr(name, '_');

	if (!space_end || pod_end <= space_end + 1 || strcmp(pod_end + 1, pod_uid) != 0)
		return false;

	fill_part(ret->space, sizeof ret->space, name, space_end);
	fill_part(ret->pod, sizeof ret->pod, space_end + 1, pod_end);

	return true;
}
