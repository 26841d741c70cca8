/*
 * options.c: a table over getopt_long(3), which knows GNU command lines. The messages are not
 * getopt's, because they suggest the option that may have been meant. Values are checked for their
 * kind here, and for their meaning by the command.
 */
#include "cli/base/options.h"

#include "cli/base/output.h"
#include "lib/base/units.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <string.h>

#define OPTIONS_MAX 40

enum { OPTIONS_HELP = 1 };

#define HELP 255       /* what getopt_long says for --help; above every letter */
#define INDEX_BASE 256 /* and for the other long options: this plus their index */
#define WORD_MAX 32    /* longer words are not compared */
#define HELP_INDENT 30
#define ERROR_CAP 512

/* Edits (insert, delete, replace) that turn a into b. Quadratic, of words shorter than WORD_MAX. */
static size_t edit_distance(const char *a, const char *b)
{
	size_t row[WORD_MAX + 1], len = strlen(b);

	for (size_t j = 0; j <= len; j++)
		row[j] = j;
	for (size_t i = 0; a[i]; i++) {
		size_t corner = row[0];

		row[0] = i + 1;
		for (size_t j = 0; j < len; j++) {
			size_t best = corner + (a[i] != b[j]);

			corner = row[j + 1];
			if (corner + 1 < best)
				best = corner + 1;
			if (row[j] + 1 < best)
				best = row[j] + 1;
			row[j + 1] = best;
		}
	}
	return row[len];
}

const char *options_nearest(const char *word, const char *const *names, size_t count)
{
	size_t len = strlen(word), nearest = len / 3 + 2;
	const char *found = NULL;

	if (len == 0 || len >= WORD_MAX)
		return NULL;
	for (size_t i = 0; i < count; i++) {
		size_t edits;

		if (strncmp(word, names[i], len) == 0)
			return names[i];
		if (strlen(names[i]) > WORD_MAX)
			continue;
		edits = edit_distance(word, names[i]);
		/* Not a word that would be replaced as a whole. */
		if (edits < nearest && edits < strlen(names[i])) {
			nearest = edits;
			found = names[i];
		}
	}
	return found;
}

__attribute__((format(printf, 3, 4))) static int fail_parse(char *error, size_t cap, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(error, cap, format, args);
	va_end(args);
	return -EINVAL;
}

/* "10": a whole number without unit. */
static bool read_seconds(const char *text, uint64_t *ret_ns)
{
	uint64_t seconds;

	return units_count(text, strlen(text), &seconds) == 0 &&
	       !__builtin_mul_overflow(seconds, (uint64_t)1000000000, ret_ns);
}

static int set_value(const struct option_spec *option, const char *text, char *error, size_t cap)
{
	uint64_t number = 0;

	switch (option->kind) {
	case OPTION_FLAG:
		*(bool *)option->value = true;
		return 0;
	case OPTION_TEXT:
		*(const char **)option->value = text;
		return 0;
	case OPTION_NUMBER:
		if (units_count(text, strlen(text), &number) < 0)
			return fail_parse(error, cap, "--%s: \"%s\" is not a whole number", option->name, text);
		break;
	case OPTION_DURATION:
		if (read_seconds(text, &number))
			break;
		if (units_duration(text, strlen(text), &number) < 0)
			return fail_parse(error, cap,
					  "--%s: \"%s\" is not a time such as 10ms, 1.5s, 2min or 10 (seconds)",
					  option->name, text);
		break;
	case OPTION_SIZE:
		if (units_bytes(text, strlen(text), &number) < 0)
			return fail_parse(error, cap, "--%s: \"%s\" is not a size such as 64K, 512MiB or 2G",
					  option->name, text);
		break;
	}
	*(uint64_t *)option->value = number;
	return 0;
}

/* The arguments of getopt_long. */
struct getopt_table {
	char letters[2 * OPTIONS_MAX + 4];
	struct option names[OPTIONS_MAX + 2];
};

static void make_table(const struct options_usage *usage, struct getopt_table *ret)
{
	size_t at = 0, i;

	assert(usage->option_count <= OPTIONS_MAX);

	if (usage->stops_at_operand)
		ret->letters[at++] = '+';
	ret->letters[at++] = ':';
	ret->letters[at++] = 'h';
	for (i = 0; i < usage->option_count; i++) {
		const struct option_spec *option = &usage->options[i];
		bool argument = option->kind != OPTION_FLAG;

		if (option->letter) {
			ret->letters[at++] = option->letter;
			if (argument)
				ret->letters[at++] = ':';
		}
		ret->names[i] = (struct option){ option->name, argument ? required_argument : no_argument, NULL,
						 INDEX_BASE + (int)i };
	}
	ret->letters[at] = '\0';
	ret->names[i++] = (struct option){ "help", no_argument, NULL, HELP };
	ret->names[i] = (struct option){ 0 };
}

static const struct option_spec *find_option(const struct options_usage *usage, int code)
{
	if (code >= INDEX_BASE)
		return &usage->options[code - INDEX_BASE];
	for (size_t i = 0; i < usage->option_count; i++) {
		if (usage->options[i].letter && usage->options[i].letter == code)
			return &usage->options[i];
	}
	return NULL;
}

/* word: what follows "--"; "=value" is ignored. */
static const char *nearest_option(const struct options_usage *usage, const char *word)
{
	const char *names[OPTIONS_MAX + 1];
	char name[WORD_MAX];
	size_t len = strcspn(word, "="), i;

	if (len >= sizeof(name))
		return NULL;
	memcpy(name, word, len);
	name[len] = '\0';
	for (i = 0; i < usage->option_count; i++)
		names[i] = usage->options[i].name;
	names[i++] = "help";
	return options_nearest(name, names, i);
}

/* getopt_long said '?' of argv[optind - 1] (a long option) or of the letter optopt. */
static int unknown_option(const struct options_usage *usage, const char *word, char *error, size_t cap)
{
	const struct option_spec *option = find_option(usage, optopt);
	const char *nearest;

	if (option || optopt == HELP)
		return fail_parse(error, cap, "--%s takes no value", option ? option->name : "help");
	if (optopt != 0)
		return fail_parse(error, cap, "there is no option -%c", optopt);
	nearest = nearest_option(usage, word + 2);
	if (!nearest)
		return fail_parse(error, cap, "there is no option %s", word);
	return fail_parse(error, cap, "there is no option %s; did you mean --%s?", word, nearest);
}

static int check_operands(const struct options_usage *usage, int given, char **operands, char *error, size_t cap)
{
	if (given < usage->operands_min)
		return fail_parse(error, cap, "%s is missing", usage->operands);
	if (usage->operands_max >= 0 && given > usage->operands_max)
		return fail_parse(error, cap, "\"%s\" is one argument too many", operands[usage->operands_max]);
	return 0;
}

/*
 * 0 and *ret_first; OPTIONS_HELP: --help was given; -EINVAL: error (cap bytes) says what is wrong,
 * and which option may have been meant.
 */
static int options_parse(const struct options_usage *usage, int argc, char **argv, int *ret_first, char *error,
			 size_t cap)
{
	struct getopt_table table;
	int code, rc;

	make_table(usage, &table);
	opterr = 0;
	optind = 0; /* GNU: starts again, and reads '+' again */
	while ((code = getopt_long(argc, argv, table.letters, table.names, NULL)) != -1) {
		if (code == HELP || code == 'h')
			return OPTIONS_HELP;
		if (code == '?')
			return unknown_option(usage, argv[optind - 1], error, cap);
		if (code == ':') {
			const struct option_spec *option = find_option(usage, optopt);

			return fail_parse(error, cap, "--%s needs a value: %s", option->name, option->argument);
		}
		rc = set_value(find_option(usage, code), optarg, error, cap);
		if (rc < 0)
			return rc;
	}

	rc = check_operands(usage, argc - optind, argv + optind, error, cap);
	if (rc < 0)
		return rc;
	*ret_first = optind;
	return 0;
}

static void help_option(FILE *file, char letter, const char *name, const char *argument, const char *help)
{
	char left[80], dash[8] = "    ";

	if (letter)
		snprintf(dash, sizeof(dash), "-%c, ", letter);
	snprintf(left, sizeof(left), "  %s--%s%s%s", dash, name, argument ? " " : "", argument ? argument : "");
	/* Long ones have a line of their own, so that the texts stay in one column. */
	if (strlen(left) >= HELP_INDENT)
		fprintf(file, "%s\n%*s%s\n", left, HELP_INDENT, "", help);
	else
		fprintf(file, "%-*s%s\n", HELP_INDENT, left, help);
}

/* Each line of text, indented. */
static void help_lines(FILE *file, const char *title, const char *text)
{
	fprintf(file, "\n%s\n", title);
	while (*text) {
		size_t len = strcspn(text, "\n");

		fprintf(file, "  %.*s\n", (int)len, text);
		text += len + (text[len] == '\n');
	}
}

static void options_help(const struct options_usage *usage, FILE *file)
{
	fprintf(file, "Usage: %s [OPTION...]%s%s\n", usage->command, usage->operands ? " " : "",
		usage->operands ? usage->operands : "");
	fprintf(file, "%s\n", usage->summary);
	if (usage->description)
		fprintf(file, "\n%s\n", usage->description);
	fputc('\n', file);
	for (size_t i = 0; i < usage->option_count; i++) {
		const struct option_spec *option = &usage->options[i];

		help_option(file, option->letter, option->name, option->argument, option->help);
	}
	help_option(file, 'h', "help", NULL, "show this");
	if (usage->example)
		help_lines(file, "Example:", usage->example);
	if (usage->exits)
		help_lines(file, "Exit code:", usage->exits);
}

int options_wrong(const char *command, const char *why)
{
	output_complain(command, why, NULL);
	fprintf(stderr, "Try '%s --help'.\n", command);
	return EXIT_USAGE;
}

int options_start(const struct options_usage *usage, int argc, char **argv, int *ret_first)
{
	char error[ERROR_CAP];
	int rc = options_parse(usage, argc, argv, ret_first, error, sizeof(error));

	if (rc == 0)
		return -1;
	if (rc == OPTIONS_HELP) {
		options_help(usage, stdout);
		return EXIT_OK;
	}
	return options_wrong(usage->command, error);
}
