/* main.c: spikewatchd: parse, load the configuration, run. */
#include "configfile.h"
#include "daemon.h"
#include "log.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#define DEFAULT_CONFIG "/etc/spikewatch/spikewatch.json"
#define DEFAULT_DROPINS "/etc/spikewatch/spikewatch.d"

struct request {
	struct configfile file;
	bool check, verbose;
};

static void print_help(void)
{
	printf("usage: spikewatchd [-c FILE] [--check [FILE]] [-v]\n"
	       "Samples processes and cgroups, and keeps what happened around a spike.\n\n"
	       "  -c, --config FILE    configuration (%s,\n"
	       "                       then *.json of %s)\n"
	       "      --check [FILE]   only check the configuration\n"
	       "      --proc-root DIR  where the host's /proc is, for a daemon in a container\n"
	       "      --cgroup-root DIR  where the host's cgroup tree is\n"
	       "  -v, --verbose        say more\n"
	       "      --version\n\n"
	       "example: spikewatchd --check conf/spikewatch.json\n"
	       "exit: 0 stopped cleanly, 64 wrong usage, 78 bad configuration, 1 anything else\n",
	       DEFAULT_CONFIG, DEFAULT_DROPINS);
}

enum { OPTION_CHECK = 256, OPTION_PROC_ROOT, OPTION_CGROUP_ROOT, OPTION_VERSION };

static const struct option options[] = {
	{ "config", required_argument, NULL, 'c' },
	{ "check", optional_argument, NULL, OPTION_CHECK },
	{ "proc-root", required_argument, NULL, OPTION_PROC_ROOT },
	{ "cgroup-root", required_argument, NULL, OPTION_CGROUP_ROOT },
	{ "verbose", no_argument, NULL, 'v' },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, OPTION_VERSION },
	{ NULL, 0, NULL, 0 },
};

/* A file that was named stands alone; the default one has drop-ins. */
static void name_file(struct request *request, const char *file)
{
	request->file.path = file;
	request->file.dropins = NULL;
}

/* -1: go on; else the exit code. */
static int parse(int argc, char **argv, struct request *request)
{
	int option;

	while ((option = getopt_long(argc, argv, "c:vh", options, NULL)) != -1) {
		switch (option) {
		case 'c':
			name_file(request, optarg);
			break;
		case OPTION_CHECK:
			request->check = true;
			if (optarg)
				name_file(request, optarg);
			break;
		case OPTION_PROC_ROOT:
			request->file.proc_root = optarg;
			break;
		case OPTION_CGROUP_ROOT:
			request->file.cgroup_root = optarg;
			break;
		case 'v':
			request->verbose = true;
			break;
		case 'h':
			print_help();
			return 0;
		case OPTION_VERSION:
			printf("spikewatchd %s\n", SPIKEWATCH_VERSION);
			return 0;
		default:
			fprintf(stderr, "spikewatchd: see spikewatchd --help\n");
			return EX_USAGE;
		}
	}

	if (request->check && optind == argc - 1)
		name_file(request, argv[optind++]);
	if (optind < argc) {
		fprintf(stderr, "spikewatchd: unexpected argument %s; see spikewatchd --help\n", argv[optind]);
		return EX_USAGE;
	}

	return -1;
}

int main(int argc, char **argv)
{
	struct request request = { .file = { .path = DEFAULT_CONFIG, .dropins = DEFAULT_DROPINS } };
	char message[CONFIGFILE_MESSAGE_MAX];
	struct config *config;
	int code = parse(argc, argv, &request), r;

	if (code >= 0)
		return code;

	log_open("spikewatchd", request.verbose);
	r = configfile_load(&request.file, &config, message);
	if (r < 0) {
		log_line(LOG_ERR, "%s", message);
		return r == -EINVAL ? EX_CONFIG : EXIT_FAILURE;
	}
	if (!request.check)
		return daemon_run(&request.file, config) < 0 ? EXIT_FAILURE : 0;

	printf("%s: good: %zu target entries, %zu rules\n", request.file.path, config->target_count,
	       config->rule_count);
	config_free(config);

	return 0;
}
