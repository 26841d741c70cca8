/* targetlabels.c: the image is no label: with a new one all series would begin anew. */
#include "targetlabels.h"

#include "container.h"
#include "scope.h"

#define OTHER "other"
#define BLOCK_MAX 6

int targetlabels_put(const struct target *target, struct buffer *text)
{
	struct openmetrics_label labels[BLOCK_MAX] = {
		{ "target", target->name },
		{ "entry", target->entry },
		{ "kind", target_kind_name(target->kind) },
	};
	char name[CONTAINER_TEXT_MAX + 1];
	struct container container;
	size_t count = 3;

	if (container_unpack(target->container, &container)) {
		container_short(&container, name, sizeof name);
		labels[count++] = (struct openmetrics_label){ "container", name };
		if (container.pod[0] != '\0') {
			labels[count++] = (struct openmetrics_label){ "namespace", container.space };
			labels[count++] = (struct openmetrics_label){ "pod", container.pod };
		}
	}

	return openmetrics_block(labels, count, text);
}

int targetlabels_put_labels(const struct labels *labels, const struct labelnames *names, struct buffer *text)
{
	struct openmetrics_label found[CONFIG_LABELS_MAX];
	size_t count = 0;

	for (size_t i = 0; i < names->count; i++) {
		const char *value = labels_get(labels, names->keys[i]);

		if (value)
			found[count++] = (struct openmetrics_label){ names->names[i], value };
	}
	if (count == 0)
		return 0;

	int r = buffer_append(text, ",", 1);

	return r < 0 ? r : openmetrics_block(found, count, text);
}

int targetlabels_put_sum(const char *entry, struct buffer *text)
{
	const struct openmetrics_label labels[] = { { "target", OTHER }, { "entry", entry }, { "kind", OTHER } };

	return openmetrics_block(labels, ARRAY_LEN(labels), text);
}
