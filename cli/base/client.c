/*
 * client.c: connect, send a line, read to the end, parse.
 */
#include "cli/base/client.h"

#include "cli/base/options.h"
#include "cli/base/output.h"
#include "daemon/engine/base/paths.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/config/config.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>

const char *answer_text(const struct json_node *node, const char *key)
{
	const struct json_node *found = answer_member(node, key);

	return found && found->type == JSON_STRING ? found->text : "";
}

uint64_t answer_whole(const struct json_node *node, const char *key)
{
	double number = answer_number(node, key, 0);

	return number > 0 && number < 1e19 ? (uint64_t)number : 0;
}

/* The daemon answers with at most 64 MiB, in pieces, each within two seconds. */
#define ANSWER_MAX (65u << 20)
#define PATIENCE_S 5u

/* A rule on a target takes about 40 nodes of some 200 bytes each in the answer. */
static const struct json_limits limits = { .size_bytes = ANSWER_MAX, .depth = 8, .nodes = 8u << 20 };

static int connect_to(const char *path, unsigned patience_s, int *ret)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval patience = { .tv_sec = patience_s };
	AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, strlen(path));
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0 ||
	    connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;

	*ret = TAKE_FD(fd);
	return 0;
}

static int receive(int fd, struct buffer *ret)
{
	char piece[16384];
	ssize_t got;
	int rc;

	while ((got = recv(fd, piece, sizeof(piece), 0)) != 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		rc = buffer_append(ret, piece, (size_t)got);
		if (rc < 0)
			return rc;
	}
	/* No answer: too many clients, or it is about to stop. */
	return ret->len > 0 ? 0 : -EBUSY;
}

static int ask_at(const char *path, const struct ask *ask, struct buffer *ret)
{
	struct iovec line[] = {
		{ (char *)(uintptr_t)ask->request, strlen(ask->request) },
		{ (char *)(uintptr_t) "\n", 1 },
	};
	struct msghdr message = { .msg_iov = line, .msg_iovlen = ARRAY_LEN(line) };
	AUTO_CLOSE int fd = -1;
	int rc = connect_to(path, ask->patience_s ? ask->patience_s : PATIENCE_S, &fd);

	if (rc < 0)
		return rc;
	if (sendmsg(fd, &message, MSG_NOSIGNAL) < 0 && errno != EPIPE)
		return -errno;
	return receive(fd, ret);
}

static void print_no_answer(const char *command, const char *path, int rc)
{
	fprintf(stderr, "%s: no daemon answers at ", command);
	output_escaped(stderr, path);
	fprintf(stderr, ": %s\n", strerror(-rc));
}

static const char *advice_for(int rc)
{
	if (rc == -EACCES)
		return "Only root and members of its group may ask: try sudo.\n";
	if (rc == -EBUSY || rc == -ETIMEDOUT)
		return "It has too many clients, or is too busy: try again.\n";

	return "Start one with systemctl start spikewatchd, or spikewatchd -c FILE. If its\n"
	       "configuration sets ring.path: --socket PATH, the file control beside the ring.\n";
}

/* The caller's own daemon first, then the system's. Prints which were tried if none answers. */
static int ask_any(const struct ask *ask, struct buffer *ret)
{
	static const struct config nothing = {
		.ring.path = "", .incidents.directory = "", .state_file = "", .history.directory = ""
	};
	const char *tried[2];
	struct paths paths;
	size_t count = 0;
	int errors[2];

	if (ask->socket)
		tried[count++] = ask->socket;
	else if (paths_choose(&nothing, &paths) == 0)
		tried[count++] = paths.control;
	if (!ask->socket && (count == 0 || strcmp(paths.control, PATHS_SYSTEM_CONTROL) != 0))
		tried[count++] = PATHS_SYSTEM_CONTROL;

	for (size_t i = 0; i < count; i++) {
		errors[i] = ask_at(tried[i], ask, ret);
		if (errors[i] == 0)
			return 0;
		buffer_release(ret);
	}
	for (size_t i = 0; i < count; i++)
		print_no_answer(ask->command, tried[i], errors[i]);
	fputs(advice_for(errors[count - 1]), stderr);
	return -ENOENT;
}

int ask_daemon(const struct ask *ask, struct json_document **ret)
{
	AUTO(buffer_release) struct buffer answer = { .max = ANSWER_MAX };
	AUTO(json_document_freep) struct json_document *document = NULL;
	struct json_error error;
	int rc = ask_any(ask, &answer);

	if (rc < 0)
		return EXIT_TROUBLE;
	rc = json_parse(answer.data, answer.len, &limits, &document, &error);
	if (rc == -ENOMEM)
		return output_no_memory();
	if (rc < 0) {
		fprintf(stderr, "%s: the answer is not JSON: %u:%u: %s\n", ask->command, error.place.line,
			error.place.column, error.message);
		return EXIT_TROUBLE;
	}
	if (json_root(document)->type != JSON_OBJECT) {
		fprintf(stderr, "%s: the answer is not an object: this is not a spikewatchd.\n", ask->command);
		return EXIT_TROUBLE;
	}
	*ret = TAKE(document);
	return EXIT_OK;
}
