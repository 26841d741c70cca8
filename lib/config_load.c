/*
 * config_load.c: files in, sources out. A file is looked at before it is read: only regular files (a FIFO would
 * wait for ever), and none larger than a configuration can be, whatever its size says while it is read. Symbolic
 * links are followed: configurations are mounted as such.
 */
#include "config.h"

#include "scope.h"
#include "sink.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* What json_parse takes. */
#define FILE_MAX (1024 * 1024)
/* Drop-ins: more than a few is a mistake, thousands are a directory of something else. */
#define FILES_MAX 256

/* The files read so far. */
struct files {
	struct config_source source[FILES_MAX + 1];
	struct buffer text[FILES_MAX + 1];
	char *name[FILES_MAX + 1];
	size_t count;
	struct config_error *err;
};

static void files_free(struct files **files)
{
	for (size_t i = 0; *files != NULL && i <= FILES_MAX; i++) {
		buffer_release(&(*files)->text[i]);
		free((*files)->name[i]);
	}
	free(*files);
}

/* Refuses a file as a whole. */
__attribute__((format(printf, 3, 4))) static int refuse(const struct files *files, const char *name, const char *format,
							...)
{
	va_list args;

	*files->err = (struct config_error){ 0 };
	snprintf(files->err->file, sizeof(files->err->file), "%s", name);
	va_start(args, format);
	vsnprintf(files->err->message, sizeof(files->err->message), format, args);
	va_end(args);
	return -EINVAL;
}

static int check_kind(const struct files *files, const char *name, const struct stat *status)
{
	if (S_ISDIR(status->st_mode))
		return refuse(files, name, "is a directory: expected a file");
	if (!S_ISREG(status->st_mode))
		return refuse(files, name, "is no regular file: expected a file");
	if (status->st_size > FILE_MAX)
		return refuse(files, name, "too large: %lld bytes, expected at most %d", (long long)status->st_size,
			      FILE_MAX);
	return 0;
}

static int read_text(const struct files *files, const char *name, struct buffer *text)
{
	AUTO_CLOSE int fd = open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	char block[16384];
	struct stat status;
	ssize_t n;
	int r;

	if (fd < 0 || fstat(fd, &status) < 0)
		return refuse(files, name, "cannot be opened: %s", strerrordesc_np(errno));
	r = check_kind(files, name, &status);
	if (r < 0)
		return r;
	while ((n = read(fd, block, sizeof(block))) > 0) {
		r = buffer_append(text, block, (size_t)n);
		if (r == -EFBIG)
			return refuse(files, name, "too large: expected at most %d bytes", FILE_MAX);
		if (r < 0)
			return r;
	}
	return n < 0 ? refuse(files, name, "cannot be read: %s", strerrordesc_np(errno)) : 0;
}

/* Reads prefix followed by name. */
static int add(struct files *files, const char *prefix, const char *name)
{
	struct buffer *text = &files->text[files->count];
	char *path = NULL;
	int r;

	if (files->count > FILES_MAX)
		return refuse(files, prefix, "too many files: expected at most %d", FILES_MAX);
	if (asprintf(&path, "%s%s%s", prefix, prefix[0] != '\0' ? "/" : "", name) < 0)
		return -ENOMEM;
	files->name[files->count] = path;
	text->max = FILE_MAX;
	r = read_text(files, path, text);
	if (r == 0)
		files->source[files->count++] = (struct config_source){ path, text->data, text->len };
	return r;
}

static int is_dropin(const struct dirent *entry)
{
	size_t len = strlen(entry->d_name);

	return entry->d_name[0] != '.' && len > strlen(".json") &&
	       strcmp(entry->d_name + len - strlen(".json"), ".json") == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int add_dropins(struct files *files, const char *dir)
{
	struct dirent **entries = NULL;
	int count = scandir(dir, &entries, is_dropin, by_name);
	int r = 0;

	if (count < 0 && errno == ENOENT)
		return 0;
	if (count < 0)
		return errno == ENOMEM ? -ENOMEM : refuse(files, dir, "cannot be listed: %s", strerrordesc_np(errno));
	for (int i = 0; i < count; i++) {
		if (r == 0)
			r = add(files, dir, entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
	return r;
}

int config_load(const char *file, const char *dropin_dir, struct config **ret, struct config_error *err)
{
	AUTO(files_free) struct files *files = calloc(1, sizeof(*files));
	struct config_error ignored;
	int r;

	if (files == NULL)
		return -ENOMEM;
	files->err = err != NULL ? err : &ignored;
	r = add(files, "", file);
	if (r == 0 && dropin_dir != NULL)
		r = add_dropins(files, dropin_dir);
	return r < 0 ? r : config_parse(files->source, files->count, ret, files->err);
}
