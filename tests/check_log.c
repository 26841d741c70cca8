/* check_log.c: entries as a journal receives them, lines as a terminal shows them; and that nobody who does not read holds the daemon up. */
#include "log.h"
#include "scene.h"

#include <endian.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>

Suite *log_suite(void);

#define HOSTILE "x\nPRIORITY=0\nFORGED=1\n\x1b[2J\xc2\x9b\xff"

static char directory[64], path[108];
static struct scene_log log_file;
static int journal;

/* What a datagram holds, as a journal reads it. */
struct field {
	char name[32], value[4096];
	size_t len;
};

#define FIELDS 20

struct entry {
	struct field fields[FIELDS];
	size_t count;
};

static void setup(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	log_file = scene_log_catch();
	scene_directory(directory);
	snprintf(path, sizeof(path), "%s/socket", directory);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	journal = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_ge(journal, 0);
	ck_assert_int_eq(bind(journal, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(log_connect(path), 0);
}

static void teardown(void)
{
	log_open("scene", false);
	close(journal);
	scene_remove(directory);
	scene_log_release(&log_file);
}

static const char *parse_value(const char *at, const char *end, struct field *field)
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

/* The next entry in the socket; false: there is none. */
static bool next_entry(struct entry *ret)
{
	static char datagram[1 << 16];
	ssize_t len = recv(journal, datagram, sizeof(datagram), 0);
	const char *at = datagram, *end = datagram + len;

	*ret = (struct entry){ 0 };
	while (len > 0 && at < end) {
		ck_assert_uint_lt(ret->count, FIELDS);

		struct field *field = &ret->fields[ret->count++];
		size_t name = 0;

		while (at + name < end && at[name] != '=' && at[name] != '\n')
			name++;
		ck_assert(name < sizeof(field->name));
		memcpy(field->name, at, name);
		at = parse_value(at + name, end, field);
	}

	return len > 0;
}

/* The only field of that name; NULL: there is none. */
static const struct field *field_of(const struct entry *entry, const char *name)
{
	const struct field *found = NULL;

	for (size_t i = 0; i < entry->count; i++) {
		if (strcmp(entry->fields[i].name, name) != 0)
			continue;
		ck_assert_msg(!found, "%s twice", name);
		found = &entry->fields[i];
	}

	return found;
}

static void expect(const struct entry *entry, const char *name, const char *value)
{
	const struct field *field = field_of(entry, name);

	ck_assert_msg(field != NULL, "no %s", name);
	ck_assert_str_eq(field->value, value);
}

START_TEST(an_entry_carries_its_fields)
{
	double rate = 0.9876, value = 93.6;
	struct log_about about = {
		.message = MESSAGE_CAPTURE_RATE_LOW,
		.state = "end",
		.rule = "cpu-hot",
		.target = "web/1",
		.incident = "20261120T121707.646Z-web-cpu-hot",
		.metric = "cpu",
		.thread = "sampler",
		.value = &value,
		.capture_rate = &rate,
		.count = 3,
		.lasted_ns = 2 * NS_PER_S,
		.error = -ENOSPC,
	};
	struct entry entry;

	log_about(LOG_WARNING, &about, "so %s", "it is");
	ck_assert(next_entry(&entry));
	expect(&entry, "MESSAGE", "so it is");
	expect(&entry, "PRIORITY", "4");
	expect(&entry, "SYSLOG_IDENTIFIER", "scene");
	expect(&entry, "MESSAGE_ID", message_id(MESSAGE_CAPTURE_RATE_LOW));
	expect(&entry, "SPIKEWATCH_STATE", "end");
	expect(&entry, "SPIKEWATCH_RULE", "cpu-hot");
	expect(&entry, "SPIKEWATCH_TARGET", "web/1");
	expect(&entry, "SPIKEWATCH_INCIDENT", "20261120T121707.646Z-web-cpu-hot");
	expect(&entry, "SPIKEWATCH_METRIC", "cpu");
	expect(&entry, "SPIKEWATCH_THREAD", "sampler");
	expect(&entry, "SPIKEWATCH_VALUE", "93.6");
	expect(&entry, "CAPTURE_RATE", "0.9876");
	expect(&entry, "SPIKEWATCH_COUNT", "3");
	expect(&entry, "SPIKEWATCH_LASTED_USEC", "2000000");
	expect(&entry, "ERRNO", "28");
	ck_assert_uint_eq(entry.count, 15);
	ck_assert(!next_entry(&entry));
}
END_TEST

START_TEST(what_is_not_known_is_no_field)
{
	struct entry entry;

	log_about(LOG_INFO, &(struct log_about){ .rule = "r" }, "line");
	ck_assert(next_entry(&entry));
	ck_assert_uint_eq(entry.count, 4);
	log_line(LOG_INFO, "line");
	ck_assert(next_entry(&entry));
	ck_assert_uint_eq(entry.count, 3);
	log_line(LOG_DEBUG, "line");
	ck_assert(!next_entry(&entry));
}
END_TEST

START_TEST(a_hostile_name_forges_no_field)
{
	struct log_about about = { .message = MESSAGE_TARGET_FOUND, .target = HOSTILE, .rule = "r" };
	struct entry entry;

	log_about(LOG_INFO, &about, "target %s found", HOSTILE);
	ck_assert(next_entry(&entry));
	ck_assert_uint_eq(entry.count, 6);
	ck_assert_ptr_null(field_of(&entry, "FORGED"));
	expect(&entry, "PRIORITY", "6");
	expect(&entry, "SPIKEWATCH_TARGET", HOSTILE);
	expect(&entry, "MESSAGE", "target x\\x0aPRIORITY=0\\x0aFORGED=1\\x0a\\x1b[2J\\xc2\\x9b\\xff found");
}
END_TEST

START_TEST(a_hostile_name_forges_no_line)
{
	log_open("scene", false);
	log_line(LOG_WARNING, "target %s found", HOSTILE);

	char *text = scene_log_text(&log_file);

	ck_assert_str_eq(text,
			 "scene: warning: target x\\x0aPRIORITY=0\\x0aFORGED=1\\x0a\\x1b[2J\\xc2\\x9b\\xff found\n");
	free(text);
}
END_TEST

START_TEST(names_of_units_and_of_people_are_left_as_they_are)
{
	struct entry entry;

	log_line(LOG_INFO, "dev-disk-by\\x2duuid.service, caf\xc3\xa9");
	ck_assert(next_entry(&entry));
	expect(&entry, "MESSAGE", "dev-disk-by\\x2duuid.service, caf\xc3\xa9");
}
END_TEST

START_TEST(a_long_line_is_cut_at_a_character)
{
	char line[3000];
	struct entry entry;

	for (size_t shift = 0; shift < 3; shift++) { /* the border falls on each byte of the character */
		memset(line, 'a', shift);
		for (size_t i = shift; i + 3 < sizeof(line); i += 3)
			memcpy(line + i, "\xe2\x82\xac", 4);
		log_line(LOG_INFO, "%s", line);
		ck_assert(next_entry(&entry));

		const struct field *message = field_of(&entry, "MESSAGE");

		ck_assert_uint_ge(message->len, LOG_LINE_MAX - 8);
		ck_assert_uint_lt(message->len, LOG_LINE_MAX);
		ck_assert_str_eq(message->value + message->len - 6, "\xe2\x82\xac...");
		ck_assert_mem_eq(message->value, line, message->len - 3);
	}
}
END_TEST

START_TEST(the_longest_line_of_a_stranger_is_bounded_too)
{
	char name[4096];
	struct log_about about = { .target = name };
	struct entry entry;

	memset(name, 0x1b, sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	log_about(LOG_INFO, &about, "%s", name);
	ck_assert(next_entry(&entry));
	ck_assert_uint_le(field_of(&entry, "MESSAGE")->len, 3584);
	ck_assert_uint_le(field_of(&entry, "SPIKEWATCH_TARGET")->len, 1024);
}
END_TEST

START_TEST(a_journal_that_does_not_read_loses_entries_and_hears_how_many)
{
	const uint64_t sent = 3000,
		       before = log_lost(); /* more than net.unix.max_dgram_qlen and the send buffer hold */
	uint64_t got = 0, lost;
	char count[32];
	struct entry entry;

	for (uint64_t i = 0; i < sent; i++)
		log_line(LOG_INFO, "line %llu", (unsigned long long)i);
	lost = log_lost() - before;
	ck_assert_uint_gt(lost, 0);
	while (next_entry(&entry))
		got++;
	ck_assert_uint_eq(got + lost, sent);

	log_line(LOG_INFO, "the next");
	ck_assert(next_entry(&entry));
	expect(&entry, "MESSAGE_ID", message_id(MESSAGE_ENTRIES_LOST));
	snprintf(count, sizeof(count), "%llu", (unsigned long long)lost);
	expect(&entry, "SPIKEWATCH_COUNT", count);
	ck_assert(next_entry(&entry));
	expect(&entry, "MESSAGE", "the next");
	log_line(LOG_INFO, "and the next");
	ck_assert(next_entry(&entry));
	expect(&entry, "MESSAGE", "and the next");
}
END_TEST

START_TEST(a_journal_that_comes_back_is_found_again)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct entry entry;

	close(journal);
	log_line(LOG_INFO, "nobody listens");
	unlink(path);
	log_line(LOG_INFO, "nobody is there");

	char *text = scene_log_text(&log_file); /* systemd reads it, if it still does */

	ck_assert_str_eq(text, "<6>nobody listens\n<6>nobody is there\n");
	free(text);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	journal = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_eq(bind(journal, (struct sockaddr *)&address, sizeof(address)), 0);
	log_line(LOG_INFO, "again");
	ck_assert(next_entry(&entry));
	expect(&entry, "MESSAGE", "again");
}
END_TEST

/* Makes standard error a pipe; its other end in *ret. */
static void to_pipe(int *ret)
{
	int ends[2];

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
	close(ends[1]);
	*ret = ends[0];
}

START_TEST(a_pipe_that_is_not_read_loses_lines_and_hears_how_many)
{
	const uint64_t before = log_lost();
	char text[1 << 17] = "", expected[128];
	int fd;

	log_open("scene", false);
	to_pipe(&fd);
	for (int i = 0; i < 5000; i++)
		log_line(LOG_INFO, "a line that is long enough to fill a pipe with some of its kind");
	ck_assert_uint_gt(log_lost(), before);
	ck_assert_int_gt(read(fd, text, sizeof(text) - 1), 0);
	log_line(LOG_INFO, "the next");
	memset(text, 0, sizeof(text));
	ck_assert_int_gt(read(fd, text, sizeof(text) - 1), 0);
	snprintf(expected, sizeof(expected),
		 "scene: warning: %llu entries were lost: nobody took them\nscene: the next\n",
		 (unsigned long long)(log_lost() - before));
	ck_assert_str_eq(text, expected);
	close(fd);
}
END_TEST

START_TEST(a_command_waits_for_its_reader)
{
	const int lines = 3000;
	char text[4096];
	int fd, seen = 0;
	ssize_t got;

	log_open("scene", false);
	log_may_block();
	to_pipe(&fd);

	pid_t pid = fork();

	if (pid == 0) {
		close(fd);
		for (int i = 0; i < lines; i++)
			log_line(LOG_INFO, "a line that is long enough to fill a pipe with some of its kind");
		_exit(0);
	}
	dup2(log_file.file, STDERR_FILENO);
	while ((got = read(fd, text, sizeof(text))) > 0)
		for (ssize_t i = 0; i < got; i++)
			seen += text[i] == '\n';
	close(fd);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	ck_assert_int_eq(seen, lines);
}
END_TEST

Suite *log_suite(void)
{
	Suite *suite = suite_create("log");
	TCase *tcase = tcase_create("journal");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, an_entry_carries_its_fields);
	tcase_add_test(tcase, what_is_not_known_is_no_field);
	tcase_add_test(tcase, a_hostile_name_forges_no_field);
	tcase_add_test(tcase, a_hostile_name_forges_no_line);
	tcase_add_test(tcase, names_of_units_and_of_people_are_left_as_they_are);
	tcase_add_test(tcase, a_long_line_is_cut_at_a_character);
	tcase_add_test(tcase, the_longest_line_of_a_stranger_is_bounded_too);
	tcase_add_test(tcase, a_journal_that_does_not_read_loses_entries_and_hears_how_many);
	tcase_add_test(tcase, a_journal_that_comes_back_is_found_again);
	tcase_add_test(tcase, a_pipe_that_is_not_read_loses_lines_and_hears_how_many);
	tcase_add_test(tcase, a_command_waits_for_its_reader);
	suite_add_tcase(suite, tcase);

	return suite;
}
