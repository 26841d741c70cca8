/* replay.c: spikewatch replay: what is wanted, checked before anything is read. */
#include "commands.h"

#include "cglimits.h"
#include "configfile.h"
#include "incidentload.h"
#include "options.h"
#include "output.h"
#include "paths.h"
#include "rerun.h"
#include "scope.h"
#include "units.h"
#include "whatif.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_CONFIG "/etc/spikewatch/spikewatch.json"
#define DEFAULT_DROPINS "/etc/spikewatch/spikewatch.d"

#define RATES_MAX 8

struct replay {
	/* The command line. */
	const char *config_path, *whatif_text, *suggest_text, *as, *directory;
	uint64_t cpus, memory_bytes;
	bool json, summary;
	char **sources; /* operands */
	size_t source_count;
	/* What is made of it. */
	struct config *config;
	struct whatif whatif;
	struct metric_machine machine;
	double rates[RATES_MAX];
	size_t rate_count;
	char incidents[INCIDENTLOAD_PATH_MAX];
	char ring[PATHS_MAX]; /* if there are no operands */
};

/* Says so. Returns -EINVAL. */
static int complain(const char *message)
{
	fputs("spikewatch replay: ", stderr);
	output_escaped(stderr, message);
	fputc('\n', stderr);
	return -EINVAL;
}

/* "1" or "0.5,2,10". */
static int parse_rates(struct replay *replay)
{
	const char *at = replay->suggest_text;

	while (at) {
		size_t len = strcspn(at, ",");

		if (replay->rate_count == RATES_MAX || units_number(at, len, &replay->rates[replay->rate_count]) < 0)
			return complain("--suggest: expected up to eight numbers of firings a day, such as 1 or "
					"0.5,2,10");
		replay->rate_count++;
		at = at[len] ? at + len + 1 : NULL;
	}
	return 0;
}

static int check_as(struct replay *replay)
{
	char message[200];

	if (!replay->as)
		return 0;
	for (size_t i = 0; i < replay->config->target_count; i++)
		if (strcmp(replay->config->targets[i].name, replay->as) == 0)
			return 0;
	snprintf(message, sizeof(message), "--as %.64s: the configuration has no target of this name; there is %.64s",
		 replay->as, replay->config->targets[0].name);
	return complain(message);
}

static int load_config(struct replay *replay)
{
	const struct configfile file = {
		.path = replay->config_path ? replay->config_path : DEFAULT_CONFIG,
		.dropins = replay->config_path ? NULL : DEFAULT_DROPINS,
	};
	char message[CONFIGFILE_MESSAGE_MAX];
	int r = configfile_load(&file, &replay->config, message);

	if (r == -EINVAL) {
		int code = complain(message);

		if (access(file.path, F_OK) < 0 && !replay->config_path)
			fputs("-c FILE says whose rules: those of the daemon that recorded, for instance.\n", stderr);
		return code;
	}
	if (r == 0 && replay->config->rule_count == 0) {
		snprintf(message, sizeof(message), "%.500s: there are no rules in it", file.path);
		return complain(message);
	}
	return r;
}

/* Which CPUs and memory percentages of the machine are of, where the sources do not say. */
static int find_machine(struct replay *replay)
{
	AUTO_CLOSE int procfd = open(replay->config->proc_root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = procfd < 0 ? -errno : cglimits_machine(procfd, "", &replay->machine);

	if (replay->cpus > 0)
		replay->machine.cores = (double)replay->cpus;
	if (replay->memory_bytes > 0)
		replay->machine.memory_bytes = replay->memory_bytes;
	if (r < 0 && (replay->cpus == 0 || replay->memory_bytes == 0))
		return complain("this machine's CPUs and memory cannot be read: expected --cpus and --memory");
	return 0;
}

static int read_whatif(struct replay *replay)
{
	char message[WHATIF_MESSAGE_MAX], line[WHATIF_MESSAGE_MAX + 16];
	int r;

	if (!replay->whatif_text)
		return 0;
	r = whatif_parse(&replay->whatif, replay->config, replay->whatif_text, message);
	if (r != -EINVAL)
		return r;
	snprintf(line, sizeof(line), "--what-if: %s", message);
	return complain(line);
}

/* Where the daemon of this configuration has its files. */
static int find_files(struct replay *replay)
{
	const char *directory = replay->directory;
	char *operand = replay->ring;
	struct paths paths;

	if (!directory && *replay->config->incidents.directory)
		directory = replay->config->incidents.directory;
	if (incidentload_directory(directory, replay->incidents, sizeof(replay->incidents)) < 0)
		snprintf(replay->incidents, sizeof(replay->incidents), ".");
	if (replay->source_count > 0)
		return 0;
	if (paths_choose(replay->config, &paths) < 0)
		return complain("where the daemon's ring is cannot be told: expected a source");
	snprintf(operand, sizeof(replay->ring), "%s", paths.ring);
	return 0;
}

/* 0; -ENOMEM; -EINVAL: it was said. */
static int prepare(struct replay *replay)
{
	int r = parse_rates(replay);

	if (r == 0)
		r = load_config(replay);
	if (r == 0)
		r = check_as(replay);
	if (r == 0)
		r = find_machine(replay);
	if (r == 0)
		r = read_whatif(replay);
	return r == 0 ? find_files(replay) : r;
}

static int replay_all(struct replay *replay)
{
	char *ring = replay->ring;
	int r = prepare(replay);
	const struct rerun_request request = {
		.config = replay->config,
		.whatif = &replay->whatif,
		.as = replay->as,
		.directory = replay->incidents,
		.machine = replay->machine,
		.cores_are_told = replay->cpus > 0,
		.memory_is_told = replay->memory_bytes > 0,
		.sources = replay->source_count > 0 ? replay->sources : &ring,
		.source_count = replay->source_count > 0 ? replay->source_count : 1,
		.rates = replay->rates,
		.rate_count = replay->rate_count,
		.json = replay->json,
		.summary = replay->summary,
	};

	if (r == -ENOMEM)
		return output_no_memory();
	return r < 0 ? EXIT_USAGE : rerun_all(&request);
}

static void replay_release(struct replay *replay)
{
	whatif_release(&replay->whatif);
	config_free(replay->config);
}

int replay_command(int argc, char **argv)
{
	AUTO(replay_release) struct replay replay = { 0 };
	const struct option_spec options[] = {
		{ 'c', "config", OPTION_TEXT, "FILE", "whose rules (" DEFAULT_CONFIG ")", &replay.config_path },
		{ 'w', "what-if", OPTION_TEXT, "CHANGE", "RULE.KEY=VALUE,VALUE,...: what would have fired then",
		  &replay.whatif_text },
		{ 0, "suggest", OPTION_TEXT, "N[,N...]", "thresholds that fire N times a day", &replay.suggest_text },
		{ 0, "as", OPTION_TEXT, "ENTRY", "what targets are that no entry selects", &replay.as },
		{ 'd', "directory", OPTION_TEXT, "DIR", "where incidents are, for names", &replay.directory },
		{ 0, "cpus", OPTION_NUMBER, "N", "of the machine recorded (this one's)", &replay.cpus },
		{ 0, "memory", OPTION_SIZE, "SIZE", "of the machine recorded (this one's)", &replay.memory_bytes },
		{ 's', "summary", OPTION_FLAG, NULL, "no list of firings", &replay.summary },
		{ 0, "json", OPTION_FLAG, NULL, "all of it as one JSON object", &replay.json },
	};
	const struct options_usage usage = {
		.command = "spikewatch replay",
		.operands = "[SOURCE...]",
		.summary = "Runs rules over what was recorded: what fires, and what nearly did.",
		.description = "SOURCE: a recording, - for standard input, an incident's name or directory, a ring's\n"
			       "file. None: the ring of the daemon that runs with this configuration.",
		.example = "spikewatch replay -c my.json last --what-if 'hot.percent=60,70,80'",
		.exits = "0 replayed, 1 a source is damaged or failed, 2 wrong usage or none of ours",
		.options = options,
		.option_count = ARRAY_LEN(options),
		.operands_max = -1,
	};
	int first = 0, code = options_start(&usage, argc, argv, &first);

	if (code >= 0)
		return code;
	replay.sources = argv + first;
	replay.source_count = (size_t)(argc - first);
	return replay_all(&replay);
}
