/*
 * reporthtml.c: files are read one after the other; the data come after them, because they say which of them are not there.
 */
#include "reporthtml.h"

#include "dirlist.h"
#include "htmltext.h"
#include "incidentload.h"
#include "reportfile.h"
#include "reportpage.h"
#include "scope.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The files of an incident. */
struct files {
	int dirfd;
	uint64_t limit_bytes;
	char name[REPORTDATA_ABSENT_MAX][MANIFEST_NAME_MAX + 1];
	size_t count;
	struct reportdata_files said;
};

/* Why it is not in the page. More than there is room for are not said: an incident has no so many files. */
static void leave_out(struct files *files, const char *name, uint64_t bytes, const char *why)
{
	struct reportdata_files *said = &files->said;
	struct reportdata_absent *absent = &said->absent[said->absent_count];

	if (said->absent_count == REPORTDATA_ABSENT_MAX)
		return;
	incident_text(absent->name, sizeof(absent->name), name);
	incident_text(absent->why, sizeof(absent->why), why);
	absent->bytes = bytes;
	said->absent_count++;
}

static int look_at(void *ctx, const char *name)
{
	struct files *files = ctx;
	struct stat st;

	if (fstatat(files->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		leave_out(files, name, 0, strerror(errno));
	else if (!S_ISREG(st.st_mode))
		leave_out(files, name, 0, "not a plain file");
	else if (!manifest_name_ok(name))
		leave_out(files, name, (uint64_t)st.st_size, "no file of an incident has such a name");
	else if ((uint64_t)st.st_size > files->limit_bytes)
		leave_out(files, name, (uint64_t)st.st_size, "too large for a page");
	else if (files->count == REPORTDATA_ABSENT_MAX)
		leave_out(files, name, (uint64_t)st.st_size, "there are too many files");
	else
		incident_text(files->name[files->count++], sizeof(files->name[0]), name);
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* ---- the page ---- */

/* A file that cannot be read is left out: what follows is still worth having. */
static int put_file(struct files *files, const char *name, const struct sink *sink, uint64_t *count)
{
	AUTO(buffer_release) struct buffer bytes = { .max = files->limit_bytes };
	int rc = incidentload_whole(files->dirfd, name, &bytes);

	if (rc == -ENOMEM)
		return rc;
	if (rc < 0) {
		leave_out(files, name, 0, strerror(-rc));
		return 0;
	}
	++*count;
	return reportfile_put(sink, name, bytes.data ? bytes.data : "", bytes.len);
}

static int put_files(struct files *files, const char *id, const struct sink *sink)
{
	uint64_t count = 0;
	int rc = reportfile_begin(sink, id);

	for (size_t i = 0; rc == 0 && i < files->count; i++)
		rc = put_file(files, files->name[i], sink, &count);
	return rc == 0 ? reportfile_end(sink, count) : rc;
}

static int put_text(const struct sink *sink, const char *text)
{
	return sink_write(sink, text, strlen(text));
}

static int put_data(const struct view *view, struct files *files, const struct sink *sink)
{
	int rc = put_files(files, view->incident.id, sink);

	if (rc == 0)
		rc = put_text(sink, "<script type=\"application/json\" id=\"report-data\">\n");
	if (rc == 0)
		rc = reportdata_write(view, files->dirfd, &files->said, sink);
	return rc == 0 ? put_text(sink, "</script>\n") : rc;
}

static int put_page(const struct view *view, struct files *files, const struct sink *sink)
{
	const char *id = view->incident.id[0] ? view->incident.id : "an incident without a name";
	AUTO_FREE char *words = NULL;
	int rc = reportdata_words(view, &words);

	if (rc == 0)
		rc = reportpage_write(REPORTPAGE_TITLE, sink);
	if (rc == 0)
		rc = htmltext_write(sink, id, strlen(id));
	if (rc == 0)
		rc = reportpage_write(REPORTPAGE_STORY, sink);
	if (rc == 0)
		rc = htmltext_write(sink, words, strlen(words));
	if (rc == 0)
		rc = reportpage_write(REPORTPAGE_DATA, sink);
	if (rc == 0)
		rc = put_data(view, files, sink);
	return rc == 0 ? reportpage_write(REPORTPAGE_END, sink) : rc;
}

int reporthtml_write(const struct view *view, int incidentfd, uint64_t file_bytes_max, const struct sink *sink,
		     struct reportdata_files *ret)
{
	AUTO_FREE struct files *files = calloc(1, sizeof(*files));
	int rc;

	if (!files)
		return -ENOMEM;
	files->dirfd = incidentfd;
	files->limit_bytes = file_bytes_max;
	rc = dirlist_each(incidentfd, look_at, files);
	qsort(files->name, files->count, sizeof(files->name[0]), by_name);
	if (rc == 0)
		rc = put_page(view, files, sink);
	*ret = files->said;
	return rc;
}
