/*
 * fuzz_control.c: both sides of the control socket. The first byte chooses: 'd': the rest is what a
 * client sends, in two pieces, to the daemon; 'c': it is what a daemon answers to `spikewatch
 * status`, and what is printed of it can do nothing to a terminal.
 */
#include "cli/commands/status.c"
#include "daemon/service/control.c"

#include <assert.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- the daemon's side ---- */

static int take_request(void *ctx, const char *request, struct buffer *ret, struct control_rest *rest)
{
	(void)ctx;
	(void)rest;
	assert(strlen(request) < CONTROL_REQUEST_MAX && strchr(request, '\n') == NULL);
	/* What the known requests do is the evaluator's and has tests of its own. */
	if (strncmp(request, "status", 6) == 0 || strncmp(request, "trigger", 7) == 0 ||
	    strncmp(request, "reload", 6) == 0)
		return 0;
	return answer_request(NULL, request, ret, rest);
}

static void check_json(const struct buffer *answer)
{
	static const struct json_limits bounds = { .size_bytes = 1u << 20, .depth = 8, .nodes = 1024 };
	struct json_document *document;
	struct json_error error;

	if (answer->len == 0)
		return;
	assert(json_parse(answer->data, answer->len, &bounds, &document, &error) == 0);
	json_document_free(document);
}

static void fuzz_daemon(const uint8_t *data, size_t size)
{
	static struct control_socket listener;
	struct control_client *client = &listener.clients[0];
	size_t half = size / 2;
	int pair[2];

	if (listener.options.event == NULL) {
		assert(sd_event_new(&listener.options.event) >= 0);
		listener.options.answer = take_request;
		listener.options.request_timeout_ns = listener.options.piece_timeout_ns = NS_PER_S;
		for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++)
			listener.clients[i].fd = -1;
	}
	assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
	client->listener = &listener;
	client->fd = pair[0];
	assert(serve_client(&listener, client) >= 0);
	assert(send(pair[1], data, half, MSG_NOSIGNAL) == (ssize_t)half || half == 0);
	if (half > 0)
		on_client(NULL, client->fd, EPOLLIN, client);
	if (client->fd >= 0 && client->piece.len == 0) {
		(void)send(pair[1], data + half, size - half, MSG_NOSIGNAL);
		on_client(NULL, client->fd, EPOLLIN, client);
	}
	if (client->fd >= 0) {
		check_json(&client->piece);
		drop_client(client);
	}
	close(pair[1]);
}

/* ---- the client's side ---- */

/* No control character, C1 of UTF-8 included. */
static void check_printed(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i], next = i + 1 < len ? (unsigned char)text[i + 1] : 0;

		assert(c == '\n' || c == '\t' || (c >= ' ' && c != 0x7f));
		assert(c != 0xc2 || next < 0x80 || next > 0x9f);
	}
}

static void fuzz_client(const char *text, size_t len)
{
	static FILE *shown;
	struct json_document *document;
	struct json_error error;
	struct request request = { 0 };
	static const struct json_limits bounds = { .size_bytes = 1u << 20, .depth = 8, .nodes = 1u << 16 };

	if (json_parse(text, len, &bounds, &document, &error) < 0)
		return;
	if (json_root(document)->type == JSON_OBJECT) {
		char *printed = NULL;
		size_t printed_len = 0;
		FILE *before = stdout;

		shown = open_memstream(&printed, &printed_len);
		stdout = shown;
		(void)print(json_root(document), &request);
		stdout = before;
		fclose(shown);
		check_printed(printed, printed_len);
		free(printed);
	}
	json_document_free(document);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > 1 && data[0] == 'd')
		fuzz_daemon(data + 1, size - 1);
	else if (size > 1 && data[0] == 'c')
		fuzz_client((const char *)data + 1, size - 1);
	return 0;
}
