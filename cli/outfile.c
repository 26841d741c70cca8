/* outfile.c: a name of its own beside the file, so that what was there before is replaced by a whole one or stays. */
#include "outfile.h"

#include "options.h"
#include "output.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int complain(const struct outfile *out, const char *path, int error)
{
	fprintf(stderr, "%s: ", out->command);
	output_escaped(stderr, path);
	fprintf(stderr, ": %s\n", strerror(error ? error : EIO));
	return EXIT_TROUBLE;
}

/* A file that is there and is no plain one cannot be replaced, only written to. */
static bool replaceable(const char *path)
{
	struct stat st;

	return stat(path, &st) < 0 || S_ISREG(st.st_mode);
}

/* out->kept: the stream took everything. */
static int write_open(struct outfile *out, const char *path, const char *mode)
{
	FILE *file = fopen(path, mode);
	bool keep = false, failed;
	int code;

	if (!file)
		return complain(out, path, errno);
	code = out->write(out->ctx, file, &keep);
	errno = 0;
	failed = ferror(file) != 0;
	if (fclose(file) != 0 || failed)
		return complain(out, path, errno);
	out->kept = code == EXIT_OK || keep;
	return code;
}

int outfile_write(struct outfile *out)
{
	char temporary[PATH_MAX];
	int code, len;

	out->kept = false;
	if (strcmp(out->path, "-") == 0)
		return out->write(out->ctx, stdout, &out->kept);
	if (!replaceable(out->path))
		return write_open(out, out->path, "we");
	len = snprintf(temporary, sizeof(temporary), "%s.tmp-%d", out->path, (int)getpid());
	if (len < 0 || (size_t)len >= sizeof(temporary))
		return complain(out, out->path, ENAMETOOLONG);
	code = write_open(out, temporary, "wxe");
	if (out->kept && rename(temporary, out->path) == 0)
		return code;
	if (out->kept)
		code = complain(out, out->path, errno);
	out->kept = false;
	unlink(temporary);
	return code;
}
