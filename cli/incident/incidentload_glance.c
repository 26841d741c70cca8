/* incidentload_glance.c: incident.json, and what can be said of the other files without reading them. */
#include "incident_json.h"
#include "incidentload.h"
#include "manifest.h"
#include "scope.h"
#include "text.h"
#include "unsealed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The first complaint is kept: what follows is often its consequence. */
static void damaged(struct incidentload_glance *glance, const char *what, const char *name)
{
	char shown[100];

	if (glance->damaged)
		return;
	text_escape(shown, sizeof(shown), name, strlen(name));
	glance->damaged = true;
	snprintf(glance->why, sizeof(glance->why), "%s %s", shown, what);
}

static int read_manifest(int incidentfd, struct manifest *ret)
{
	AUTO(buffer_release) struct buffer text = { .max = INCIDENTLOAD_CAPTURE_MAX };
	int rc = incidentload_capture(incidentfd, MANIFEST_NAME, &text);

	if (rc < 0)
		return rc;
	return manifest_parse(text.data ? text.data : "", text.len, ret);
}

static void glance_files(int incidentfd, struct incidentload_glance *glance)
{
	struct manifest manifest;
	int rc = read_manifest(incidentfd, &manifest);

	if (rc < 0) {
		damaged(glance, rc == -ENOENT ? "is missing" : "is damaged", MANIFEST_NAME);
		return;
	}
	for (size_t i = 0; i < manifest.count; i++) {
		const struct manifest_entry *entry = &manifest.entries[i];
		struct stat st;

		if (fstatat(incidentfd, entry->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			damaged(glance, "is missing", entry->name);
		else if (!S_ISREG(st.st_mode))
			damaged(glance, "is no plain file", entry->name);
		else if ((uint64_t)st.st_size != entry->size_bytes)
			damaged(glance, "has another size than when it was written", entry->name);
		glance->bytes += entry->size_bytes;
	}
}

/* What it has so far. */
static void glance_open(struct incident *incident, struct incidentload_glance *glance)
{
	size_t kept = 0;

	for (size_t i = 0; i < incident->capture_count; i++) {
		if (strcmp(incident->captures[i].name, "samples") == 0)
			continue;
		incident->captures[kept] = incident->captures[i];
		glance->bytes += incident->captures[kept++].bytes;
	}
	incident->capture_count = kept;
}

void incidentload_glance(int incidentfd, struct incident *ret_incident, struct incidentload_glance *ret)
{
	int rc;

	*ret = (struct incidentload_glance){ 0 };
	rc = incident_json_read(incidentfd, ret_incident);
	ret->readable = rc == 0;
	if (rc < 0) {
		incident_init(ret_incident, "");
		damaged(ret,
			rc == -ENOENT    ? "is missing"
			: rc == -EBADMSG ? "is damaged"
					 : strerror(-rc),
			INCIDENT_FILE);
	}
	ret->open = ret->readable && unsealed_is_written(incidentfd);
	if (ret->open)
		glance_open(ret_incident, ret);
	else
		glance_files(incidentfd, ret);
}
