/*
 * Whatever is read of a container is short, terminated, printable on one line, and packs to the
 * same. The first byte says what the rest is.
 */
#include "lib/cgroup/container.h"
#include "lib/model/target.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *text, size_t room)
{
	size_t len = strnlen(text, room);

	if (len == room)
		abort();
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
			abort();
}

static void check(const struct container *container)
{
	char packed[CONTAINER_PACKED_MAX], title[CONTAINER_TITLE_MAX];
	struct container back;

	check_text(container->name, sizeof(container->name));
	check_text(container->space, sizeof(container->space));
	check_text(container->pod, sizeof(container->pod));
	check_text(container->image, sizeof(container->image));
	container_title(container, title, sizeof(title));
	check_text(title, sizeof(title));
	container_matches(container, "image:*[a-z]*");
	container_pack(container, packed, sizeof(packed));
	if (container->id[0] != '\0' &&
	    (!container_unpack(packed, &back) || strcmp(back.name, container->name) != 0 ||
	     strcmp(back.pod, container->pod) != 0 || strcmp(back.image, container->image) != 0))
		abort();
}

/* Keys that can be keys of anything, sorted; values without control characters; within bounds. */
static void check_labels(const struct container_state_more *more)
{
	const struct labels *labels = &more->labels;
	const char *before = NULL;
	unsigned count = 0;

	if (labels->len > LABELS_BYTES_MAX || labels->count > LABELS_MAX)
		abort();
	for (const char *key = labels_next(labels, NULL); key != NULL; key = labels_next(labels, key)) {
		size_t len = strlen(key);

		check_text(key, LABELS_KEY_MAX + 1);
		check_text(labels_value(key), LABELS_BYTES_MAX);
		if (len == 0 || strchr(key, ' ') != NULL || (before != NULL && strcmp(before, key) >= 0) ||
		    !container_state_is_label(key, len))
			abort();
		before = key;
		count++;
	}
	if (count != labels->count)
		abort();
	check_text(more->pod_id, sizeof(more->pod_id));
}

static void read_list(const char *text, size_t len, struct container *container)
{
	struct container_state_list *list;

	if (container_state_list_new(text, len, &list) < 0)
		return;

	container_state_list_find(list, container);
	container_state_list_free(list);
}

static void read_path(const char *text)
{
	struct container_path found;

	if (!container_path_parse(text, &found))
		return;
	if (found.len > strlen(text) || found.id[0] == '\0' || strlen(found.pod_uid) > CONTAINER_PATH_POD_UID ||
	    strlen(found.space) > CONTAINER_SPACE_MAX)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char id[] = "a329033bf6421fca0d2170d9c2244b783c2a10dcccb5b2f8104a6f9e71af977f";
	struct container container = { .runtime = CONTAINER_UNKNOWN };
	struct container_state_more more = { .labelled = false };

	if (size == 0)
		return 0;

	char *text = malloc(size);

	if (text == NULL)
		abort();
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	memcpy(container.id, id, sizeof(id));
	if (data[0] == 'p')
		read_path(text);
	else if (data[0] == 'd')
		container_state_docker(text, size - 1, &container, &more);
	else if (data[0] == 'o')
		container_state_oci(text, size - 1, &container, &more);
	else if (data[0] == 'b')
		container_state_podman_labels(text, size - 1, &more);
	else if (data[0] == 'l')
		read_list(text, size - 1, &container);
	else if (data[0] == 'k')
		container_state_log_link(text, &container);
	else if (data[0] == 'g')
		container_state_log_directory(text, "uid", &container);
	else
		container_unpack(text, &container);
	check(&container);
	check_labels(&more);
	free(text);

	return 0;
}
