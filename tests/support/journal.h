/*
 * journal.h: a journal for tests: a socket that takes entries as systemd's does, and what one of
 * them holds. One at a time, within a test that has caught the log (scene_log_catch).
 */
#ifndef SPIKEWATCH_TESTS_JOURNAL_H
#define SPIKEWATCH_TESTS_JOURNAL_H

#include "daemon/engine/base/log.h"

#include <check.h>
#include <endian.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define JOURNAL_FIELDS 20

struct journal_field {
	char name[32], value[4096]; /* terminated, whatever is in it */
	size_t len;
};

struct journal {
	char directory[32], path[48];
	int fd;
	struct journal_field fields[JOURNAL_FIELDS]; /* of the entry that was read last */
	size_t count;
};

/* The socket, again or for the first time. */
static inline void journal_listen(struct journal *journal)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", journal->path);
	journal->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_ge(journal->fd, 0);
	ck_assert_int_eq(bind(journal->fd, (struct sockaddr *)&address, sizeof(address)), 0);
}

/* Entries come here from now on, until log_open. The path is static: one journal at a time. */
static inline struct journal journal_open(void)
{
	static struct journal journal;

	journal = (struct journal){ .directory = "/tmp/check_journal.XXXXXX" };
	ck_assert_ptr_nonnull(mkdtemp(journal.directory));
	snprintf(journal.path, sizeof(journal.path), "%s/socket", journal.directory);
	journal_listen(&journal);
	log_open("scene", &(struct log_options){ .journal = journal.path });

	return journal;
}

/* Lines go to standard error again. */
static inline void journal_close(struct journal *journal)
{
	log_open("scene", NULL);
	close(journal->fd);
	unlink(journal->path);
	rmdir(journal->directory);
}

static inline const char *journal_parse_value(const char *at, const char *end, struct journal_field *field)
{
	if (*at++ == '=') {
		const char *stop = memchr(at, '\n', (size_t)(end - at));

		ck_assert_ptr_nonnull(stop);
		field->len = (size_t)(stop - at);
	} else {
		uint64_t len;

		ck_assert(end - at >= (ptrdiff_t)sizeof(len));
		memcpy(&len, at, sizeof(len));
		at += sizeof(len);
		field->len = (size_t)le64toh(len);
		ck_assert(field->len < (size_t)(end - at));
		ck_assert_int_eq(at[field->len], '\n');
	}
	ck_assert_uint_lt(field->len, sizeof(field->value));
	memcpy(field->value, at, field->len);

	return at + field->len + 1;
}

/* Reads the next entry. False: there is none. */
static inline bool journal_next(struct journal *journal)
{
	static char datagram[1 << 16];
	ssize_t len = recv(journal->fd, datagram, sizeof(datagram), 0);
	const char *at = datagram, *end = datagram + len;

	memset(journal->fields, 0, sizeof(journal->fields));
	journal->count = 0;
	while (len > 0 && at < end) {
		struct journal_field *field = &journal->fields[journal->count++];
		size_t name = 0;

		ck_assert_uint_lt(journal->count, JOURNAL_FIELDS);
		while (at + name < end && at[name] != '=' && at[name] != '\n')
			name++;
		ck_assert(name < sizeof(field->name));
		memcpy(field->name, at, name);
		at = journal_parse_value(at + name, end, field);
	}

	return len > 0;
}

/* The only field of that name; NULL: there is none. */
static inline const struct journal_field *journal_field(const struct journal *journal, const char *name)
{
	const struct journal_field *found = NULL;

	for (size_t i = 0; i < journal->count; i++) {
		if (strcmp(journal->fields[i].name, name) != 0)
			continue;
		ck_assert_msg(!found, "%s twice", name);
		found = &journal->fields[i];
	}

	return found;
}

/* value: NULL: there must be no such field. */
static inline void journal_expect(const struct journal *journal, const char *name, const char *value)
{
	const struct journal_field *field = journal_field(journal, name);

	if (!value) {
		ck_assert_msg(!field, "%s is there", name);
		return;
	}
	ck_assert_msg(field != NULL, "no %s", name);
	ck_assert_str_eq(field->value, value);
}

#endif
