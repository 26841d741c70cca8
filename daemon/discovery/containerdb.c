/* containerdb.c: where the databases are, and what is where within them. A container that is there has labels, though it may be none. */
#include "containerdb.h"

#include "belowroot.h"
#include "boltfile.h"
#include "scope.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define META "io.containerd.metadata.v1.bolt/meta.db"

static const char *const containerd[] = {
	"var/lib/containerd/" META,
	"var/lib/rancher/k3s/agent/containerd/" META,
	"var/lib/rancher/rke2/agent/containerd/" META,
	"var/lib/k0s/containerd/" META,
};

static const char podman[] = "var/lib/containers/storage/libpod/bolt_state.db";

/* ---- a file ---- */

static int read_at(void *ctx, uint64_t offset, void *buf, size_t len)
{
	char *to = buf;

	while (len > 0) {
		ssize_t got = pread(*(int *)ctx, to, len, (off_t)offset);

		if (got == 0)
			return -ENODATA;
		if (got < 0 && errno != EINTR)
			return -errno;
		if (got < 0)
			continue;
		to += got;
		offset += (uint64_t)got;
		len -= (size_t)got;
	}

	return 0;
}

/* A descriptor or -errno. */
static int open_file(int rootfd, const char *path)
{
	AUTO_CLOSE int fd = belowroot_open(rootfd, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
	struct stat status;

	if (fd < 0)
		return fd;
	if (fstat(fd, &status) < 0)
		return -errno;

	return S_ISREG(status.st_mode) ? TAKE_FD(fd) : -EINVAL;
}

/* ---- containerd ---- */

static int take_label(void *ctx, const char *key, size_t key_len, const char *value, size_t value_len)
{
	if (containerstate_is_label(key, key_len))
		labels_add(ctx, key, key_len, value, value_len);

	return 0;
}

static int ignore(void *ctx, const char *key, size_t key_len, const char *value, size_t value_len)
{
	(void)ctx;
	(void)key;
	(void)key_len;
	(void)value;
	(void)value_len;
	return 0;
}

/* v1/SPACE/containers/ID/labels. A container without any has no such bucket, but it has a time when it was made. */
static int take_labels(const struct boltfile_source *source, const char *space, const char *id, struct labels *labels)
{
	const char *const buckets[] = { "v1", space, "containers", id, "labels" };
	struct boltfile_path path = { .buckets = buckets, .count = ARRAY_LEN(buckets) };
	int r = boltfile_each(source, &path, NULL, take_label, labels);

	if (r != -ENOENT)
		return r;
	path.count--;

	return boltfile_each(source, &path, "createdat", ignore, NULL);
}

static int ask_containerd(int rootfd, const char *file, const char *const ids[3], struct containerstate_more *more)
{
	AUTO_CLOSE int fd = open_file(rootfd, file);
	const struct boltfile_source source = { .read = read_at, .ctx = &fd };
	struct labels of_pod = { .count = 0 }, own = { .count = 0 };
	int r = fd;

	if (r >= 0)
		r = ids[2] ? take_labels(&source, ids[0], ids[2], &of_pod) : 0;
	if (r >= 0)
		r = take_labels(&source, ids[0], ids[1], &own);
	if (r < 0)
		return r;
	labels_merge(&more->labels, &of_pod);
	labels_merge(&more->labels, &own);
	more->labelled = true;

	return 0;
}

int containerdb_containerd(int rootfd, const char *space, const char *id, const char *pod_id,
			   struct containerstate_more *more)
{
	const char *const ids[3] = { space, id, pod_id };
	int why = -ENOENT;

	for (size_t i = 0; i < ARRAY_LEN(containerd); i++) {
		int r = ask_containerd(rootfd, containerd[i], ids, more);

		if (r == 0)
			return 0;
		why = r == -ENOENT ? why : r;
	}

	return why;
}

/* ---- Podman ---- */

static int take_config(void *ctx, const char *key, size_t key_len, const char *value, size_t value_len)
{
	int r = containerstate_podman_labels(value, value_len, ctx);

	(void)key;
	(void)key_len;
	((struct containerstate_more *)ctx)->labelled = r == 0 || r == 1;

	return r < 0 ? r : 0;
}

/* ctr/ID has "config", a document. */
int containerdb_podman(int rootfd, const char *id, struct containerstate_more *more)
{
	AUTO_CLOSE int fd = open_file(rootfd, podman);
	const struct boltfile_source source = { .read = read_at, .ctx = &fd };
	const char *const buckets[] = { "ctr", id };
	const struct boltfile_path path = { .buckets = buckets, .count = ARRAY_LEN(buckets) };

	return fd < 0 ? fd : boltfile_each(&source, &path, "config", take_config, more);
}
