/*
 * fuzz_main.c: runs a fuzz entry over files and directories, as an ordinary test. Each file is
 * given whole and, for its first 4 KiB, cut at every length, each time in a piece of memory of just
 * that size, so that a sanitizer sees a read beyond it.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CUTS_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned long inputs;

static void run(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size > 0 ? size : 1);

	if (copy == NULL)
		abort();
	if (size > 0)
		memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
	inputs++;
}

static int run_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	struct stat st;
	int r = -1;

	if (file == NULL)
		return -1;
	if (fstat(fileno(file), &st) == 0) {
		size_t size = (size_t)st.st_size;
		uint8_t *data = malloc(size + 1);

		if (data != NULL && fread(data, 1, size, file) == size) {
			run(data, size);
			for (size_t cut = 0; cut < size && cut < CUTS_MAX; cut++)
				run(data, cut);
			r = 0;
		}
		free(data);
	}
	fclose(file);
	return r;
}

static int run_directory(DIR *dir, const char *path)
{
	for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
		char name[4096];

		if (entry->d_name[0] == '.')
			continue;
		if (snprintf(name, sizeof(name), "%s/%s", path, entry->d_name) >= (int)sizeof(name) ||
		    run_file(name) < 0)
			return -1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	const char *slash = strrchr(argv[0], '/');

	for (int i = 1; i < argc; i++) {
		DIR *dir = opendir(argv[i]);
		int r = dir != NULL ? run_directory(dir, argv[i]) : run_file(argv[i]);

		if (dir != NULL)
			closedir(dir);
		if (r < 0) {
			fprintf(stderr, "%s: %s: %s\n", argv[0], argv[i], strerror(errno));
			return EXIT_FAILURE;
		}
	}

	printf("%s: %lu inputs\n", slash != NULL ? slash + 1 : argv[0], inputs);
	return EXIT_SUCCESS;
}
