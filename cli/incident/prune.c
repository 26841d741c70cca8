/*
 * prune.c: spikewatch prune: the daemon's retention, asked for by hand. What is chosen and how it is removed is retention.c and spool.c.
 *
 * A trial looks at the directory through the same list and the same choice, but through a descriptor of its own: opening a spool seals or
 * removes what dead writers have left.
 */
#include "commands.h"
#include "incidentload.h"
#include "incidentpick.h"
#include "json.h"
#include "jsonmember.h"
#include "options.h"
#include "output.h"
#include "retention.h"
#include "scope.h"
#include "spool.h"
#include "units.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* What has gone, or would go. */
struct pruning {
	bool dry;
	struct json_writer *json; /* NULL: text */
	size_t count;
	uint64_t bytes;
};

static int complain(const char *what, int error)
{
	fprintf(stderr, "spikewatch prune: ");
	output_escaped(stderr, what);
	fprintf(stderr, ": %s\n", strerror(-error));
	return EXIT_TROUBLE;
}

static void release_spool(struct spool **spool)
{
	spool_free(*spool);
}

/* For spool_enforce. */
static void on_removed(void *ctx, const struct retention_entry *entry, enum retention_reason why)
{
	struct pruning *pruning = ctx;
	char size[UNITS_TEXT_MAX];

	pruning->count++;
	pruning->bytes += entry->bytes;
	if (!pruning->json) {
		printf("%s  %9s  %-5s  %s\n", pruning->dry ? "would remove" : "removed",
		       units_format_bytes(size, sizeof(size), entry->bytes), retention_reason_name(why), entry->name);
		return;
	}
	json_begin_object(pruning->json);
	jsonmember_text(pruning->json, "id", entry->name);
	json_key(pruning->json, "bytes");
	json_u64(pruning->json, entry->bytes);
	json_key(pruning->json, "severity");
	json_double(pruning->json, entry->severity);
	jsonmember_text(pruning->json, "reason", retention_reason_name(why));
	json_end_object(pruning->json);
}

/* 0 or -errno. */
static int try(const char *directory, const struct retention_limits *limits, wall_t now, struct pruning *pruning)
{
	AUTO_CLOSE int dirfd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO_FREE struct retention_entry *entries = NULL;
	AUTO_FREE enum retention_reason *reasons = NULL;
	size_t count;
	int rc = dirfd >= 0 ? spool_list_at(dirfd, &entries, &count) : -errno;

	if (rc < 0 || count == 0)
		return rc;
	reasons = calloc(count, sizeof(*reasons));
	if (!reasons)
		return -ENOMEM;
	retention_choose(limits, now, UINT64_MAX, entries, reasons, count);
	for (size_t i = 0; i < count; i++)
		if (reasons[i] != RETENTION_KEEP)
			on_removed(pruning, &entries[i], reasons[i]);
	return 0;
}

/* A directory that is not there is not made. 0 or -errno: the first failure, after all that could be removed is gone. */
static int prune(const char *directory, const struct retention_limits *limits, wall_t now, struct pruning *pruning)
{
	AUTO(release_spool) struct spool *spool = NULL;
	struct stat st;
	size_t before;
	int rc;

	if (stat(directory, &st) < 0)
		return -errno;
	rc = spool_open(directory, limits, &spool, NULL);
	if (rc < 0)
		return rc;
	/* The spool looks at SPOOL_ENTRIES_MAX incidents at a time. */
	do {
		before = pruning->count;
		rc = spool_enforce(spool, now, on_removed, pruning);
	} while (rc == 0 && pruning->count > before);
	return rc;
}

/* Whether there are incidents that nobody could judge, which is said. */
static bool is_hidden(const char *directory)
{
	AUTO(incidentload_names_release) struct incidentload_names names = { 0 };
	AUTO_CLOSE int dirfd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return dirfd >= 0 && incidentload_list(dirfd, &names) == 0 &&
	       incidentpick_hidden("spikewatch prune", dirfd, &names) > 0;
}

static void conclude(const struct pruning *pruning, const char *directory)
{
	char size[UNITS_TEXT_MAX];

	if (pruning->count == 0) {
		printf("Nothing in ");
		output_escaped(stdout, directory);
		printf(" is beyond these limits.\n");
		return;
	}
	printf("%s %zu incident%s, %s.\n", pruning->dry ? "Would remove" : "Removed", pruning->count,
	       pruning->count == 1 ? "" : "s", units_format_bytes(size, sizeof(size), pruning->bytes));
}

static int run(const char *option, const struct retention_limits *limits, bool dry, bool json)
{
	AUTO(output_json_release) struct json_writer *writer = NULL;
	struct pruning pruning = { .dry = dry };
	char directory[INCIDENTLOAD_PATH_MAX];
	wall_t now = { (uint64_t)time(NULL) * NS_PER_S };
	int rc = incidentpick_directory("spikewatch prune", option, directory, sizeof(directory));

	if (rc < 0)
		return EXIT_TROUBLE;
	if (json) {
		if (output_json_new(&writer) < 0)
			return output_no_memory();
		pruning.json = writer;
		json_begin_array(writer);
	}
	rc = dry ? try(directory, limits, now, &pruning) : prune(directory, limits, now, &pruning);
	if (json)
		json_end_array(writer);
	/* A directory that nobody named and that is not there yet holds nothing to remove. */
	if (rc < 0 && (rc != -ENOENT || option))
		return complain(directory, rc);
	if (is_hidden(directory))
		return EXIT_TROUBLE;
	if (!json)
		conclude(&pruning, directory);
	return EXIT_OK;
}

static int refuse(const char *why)
{
	fprintf(stderr, "spikewatch prune: %s\nTry 'spikewatch prune --help'.\n", why);
	return EXIT_USAGE;
}

int prune_command(int argc, char **argv)
{
	const char *directory = NULL;
	uint64_t older_ns = 0, keep = 0, max_bytes = 0;
	bool dry = false, json = false;
	const struct option_spec options[] = {
		{ 0, "older-than", OPTION_DURATION, "TIME", "remove what fired longer ago: 30d", &older_ns },
		{ 0, "keep", OPTION_NUMBER, "COUNT", "keep at most so many", &keep },
		{ 0, "max-size", OPTION_SIZE, "SIZE", "keep at most so many bytes of disk: 1GiB", &max_bytes },
		{ 0, "dry-run", OPTION_FLAG, NULL, "remove nothing, say what would go", &dry },
		{ 'd', "directory", OPTION_TEXT, "DIR", "where incidents are; see spikewatch list --help", &directory },
		{ 0, "json", OPTION_FLAG, NULL, "what was removed as a JSON array", &json },
	};
	const struct options_usage usage = {
		.command = "spikewatch prune",
		.summary = "Removes incidents, by the same rules as the daemon.",
		.description =
			"What is too old goes first. For number and size the mildest go, not the oldest: severity\n"
			"is in incident.json; of equals the oldest. What is being written is never touched.",
		.example = "spikewatch prune --older-than 30d --max-size 1GiB --dry-run",
		.exits = "0 done (perhaps nothing to do), 1 something could not be removed or read, 2 wrong usage",
		.options = options,
		.option_count = ARRAY_LEN(options),
	};
	struct retention_limits limits;
	int first, code = options_start(&usage, argc, argv, &first);

	if (code >= 0)
		return code;
	if (older_ns == 0 && keep == 0 && max_bytes == 0)
		return refuse("nothing is asked for: --older-than, --keep or --max-size, of more than 0");
	if (keep > UINT32_MAX)
		return refuse("--keep: too many");
	limits = (struct retention_limits){ .max_age_ns = older_ns,
					    .max_count = (uint32_t)keep,
					    .max_bytes = max_bytes };
	return run(directory, &limits, dry, json);
}
