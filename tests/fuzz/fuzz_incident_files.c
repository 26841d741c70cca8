/*
 * fuzz_incident_files.c: any bytes as the files of an incident that was sent to us, as `spikewatch
 * show` loads them: what is printed of it can do nothing to a terminal. An input is one file after
 * the other: a letter that says which, its length in two bytes, and its bytes.
 */
#include "cli/incident/view.h"

#include "lib/base/base.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct {
	char letter;
	const char *name;
} files[] = {
	{ 'i', "incident.json" },     { 'M', "MANIFEST" },   { 's', "samples.tsv" },   { 't', "threads.tsv" },
	{ 'T', "threads.again.tsv" }, { 'm', "smaps.tsv" },  { 'f', "functions.tsv" }, { 'F', "memory-functions.tsv" },
	{ 'S', "status.txt" },        { 'l', "limits.txt" }, { 'c', "cgroup.txt" },    { 'y', "system.txt" },
	{ 'r', "run-core.txt" },
};

static char directory[64];

static void remove_directory(void)
{
	rmdir(directory);
}

static int make_directory(void)
{
	static int fd = -1;

	if (fd >= 0)
		return fd;
	snprintf(directory, sizeof(directory), "%s/fuzz_incident.XXXXXX",
		 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	if (mkdtemp(directory) == NULL || (fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		exit(1);
	atexit(remove_directory);
	return fd;
}

static const char *name_of(uint8_t letter)
{
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		if (files[i].letter == (char)letter)
			return files[i].name;
	return NULL;
}

static void write_file(int dirfd, const char *name, const uint8_t *data, size_t len)
{
	int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, data, len) != (ssize_t)len)
		exit(1);
	close(fd);
}

/* No control character, C1 of UTF-8 included. */
static void check_printed(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i], next = i + 1 < len ? (unsigned char)text[i + 1] : 0;

		assert(c == '\n' || c == '\t' || (c >= ' ' && c != 0x7f));
		assert(c != 0xc2 || next < 0x80 || next > 0x9f);
	}
}

static void show(int dirfd)
{
	static struct view view;
	struct plot_style style = { .width = 80 };
	char *printed = NULL;
	size_t len = 0;
	FILE *file = open_memstream(&printed, &len);

	memset(&view, 0, sizeof(view));
	if (file == NULL)
		exit(1);
	if (view_load(dirfd, &view) == 0)
		(void)view_text(&view, dirfd, &style, file);
	incident_samples_release(&view.samples);
	fclose(file);
	check_printed(printed, len);
	free(printed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int dirfd = make_directory();

	for (size_t at = 0; at + 3 <= size;) {
		size_t len = data[at + 1] | (size_t)data[at + 2] << 8;
		const char *name = name_of(data[at]);

		at += 3;
		if (len > size - at)
			len = size - at;
		if (name != NULL)
			write_file(dirfd, name, data + at, len);
		at += len;
	}
	show(dirfd);
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		unlinkat(dirfd, files[i].name, 0);
	return 0;
}
