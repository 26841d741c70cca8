/* container_labels.h: labels in a cache, as if they had been read from a runtime's files. */
#ifndef SPIKEWATCH_TESTS_SUPPORT_CONTAINER_LABELS_H
#define SPIKEWATCH_TESTS_SUPPORT_CONTAINER_LABELS_H

#include "daemon/engine/targets/containers.h"

/* Sets the labels of the container at path. In check_containers.c, which includes containers.c. */
void container_labels_put(struct label_cache *cache, const char *path, const struct labels *labels);

#endif
