/*
 * labelnames.h: what labels of containers are called in metrics: as kube-state-metrics calls those of pods, so that both can be joined. Pure.
 */
#ifndef SPIKEWATCH_LABELNAMES_H
#define SPIKEWATCH_LABELNAMES_H

#include "config.h"
#include "labels.h"

/* "label_", a key in which an underscore stands before every second byte at most, and "_conflict16". */
#define LABELNAMES_ROOM (6 + 2 * LABELS_KEY_MAX + 11 + 1)

struct labelnames {
	const char *const *keys;
	size_t count;
	char names[CONFIG_LABELS_MAX][LABELNAMES_ROOM];
};

/*
 * "app.kubernetes.io/partOf" is label_app_kubernetes_io_part_of: what is no letter or digit becomes "_", and one comes before a capital that follows a
 * small letter or a digit. Those that would be called the same are label_x_conflict1, label_x_conflict2, in the order of the keys. At most CONFIG_LABELS_MAX
 * keys, which must outlive *ret.
 */
void labelnames_make(const char *const *keys, size_t count, struct labelnames *ret);

#endif
