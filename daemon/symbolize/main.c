/*
 * main.c: spikewatch-symbolize, which spikewatchd starts for each incident that has stacks. Not
 * meant to be run by hand: see usage.
 *
 * It reads untrusted files with large libraries, and being killed by one does no harm: what it
 * needs is handed over as open descriptors, it gives up everything else before it parses the first
 * byte, and its parent waits for a limited time.
 *
 * 	take what is handed over ─▶ copy the vDSO, start the debug file process ─▶ enter the sandbox
 * 	─▶ parse ─▶ symbolize_run ─▶ write
 *
 * With --rest it is started before all samples are there. It reads what the first ones need, which is
 * nearly all that takes long, and waits for the whole stack file, the outputs and what files are new.
 * Then it does for the whole file what it would have done without that, with the binaries read already.
 * What comes while it still reads is not kept waiting. If reading failed or took very much memory it ends,
 * and another one has to be started.
 */
#include "daemon/engine/base/sandbox.h"
#include "daemon/symbolize/symbolize.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/base/text.h"
#include "lib/proc/perf.h"
#include "lib/profile/profile.h"
#include "lib/profile/stack_file.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Beside 0 and death by a signal. */
enum {
	EXIT_STACK_FILE = 1, /* standard input is no stack file, or memory was short */
	EXIT_OUTPUT = 2,     /* something could not be written */
	EXIT_SANDBOX = 3,    /* the sandbox could not be entered: nothing was read */
	EXIT_REST = 4,       /* with --rest: it did not come, or is not waited for; nothing was written */
	EXIT_USAGE = 64,
};

static const char usage[] =
	"usage: spikewatch-symbolize [OPTIONS] < STACKFILE > COUNTS\n"
	"Started by spikewatchd: gives names to the stacks of an incident. Descriptors must be open and allow "
	"writing.\n"
	"  --pprof=FD, --folded=FD, --functions=FD   where to write the profile of CPU time, in each of its forms\n"
	"  --memory-pprof=FD, --memory-folded=FD, --memory-functions=FD   and that of memory. Any may be left out; of "
	"a\n"
	"                         profile without samples nothing is written\n"
	"  --spike-from=NS        begin of the spike, CLOCK_MONOTONIC (default: when the rule fired)\n"
	"  --raw                  read no binaries: addresses count for the files they are in\n"
	"  --debug-files=DIR      separate debug files by build id (default: " DEBUG_FILES_DIRECTORY "; \"\": none)\n"
	"  --memory=BYTES         address space (default: 2 GiB)\n"
	"  --cpu=SECONDS          CPU time, then it is killed (default: 30)\n"
	"  --wall=SECONDS         time, then it is killed (default: 60)\n"
	"  --kill                 be killed, too, by a system call that is not allowed\n"
	"  --rest=FD              before all others: the stack file is the first part, the whole one and the outputs\n"
	"                         come through this socket\n"
	"Exit codes: 1 no stackfile, 2 output failed, 3 no sandbox, 4 no rest, 64 usage.\n";

#define FORMS 3
#define OUTPUTS (SYMBOLIZE_PROFILES * FORMS)

/*
 * Descriptors can only be closed or received. As many as a parent hands over: the limit is on their
 * numbers.
 */
#define DESCRIPTORS_MAX 4096

/* The first run gets no more CPU time, and the second has all of its own still. */
#define FIRST_CPU_SECONDS 5

/* What may be allocated while it waits: half a dozen programs with all their debug information take 50 MB. */
#define WAITING_BYTES_MAX ((size_t)128 << 20)

struct setup {
	int outputs[OUTPUTS]; /* in the order of enum stack_profile_quantity, of each in that of `forms` */
	uint64_t spike_from_ns, memory_bytes, cpu_seconds, wall_seconds;
	const char *debug_files;
	bool raw;
	enum sandbox_refusal refusal;
	int debug_socket;              /* of debug_files_start; -1 */
	int rest;                      /* the socket; -1: all is there */
	int received[DESCRIPTORS_MAX]; /* through it, by the number in the stack file; -1: not */
};

static int (*const forms[FORMS])(const struct stack_profile *, const struct sink *) = {
	stack_profile_write_pprof,
	stack_profile_write_folded,
	stack_profile_write_functions,
};

static const struct option options[] = {
	{ "pprof", required_argument, NULL, 0 },
	{ "folded", required_argument, NULL, 1 },
	{ "functions", required_argument, NULL, 2 },
	{ "memory-pprof", required_argument, NULL, FORMS },
	{ "memory-folded", required_argument, NULL, FORMS + 1 },
	{ "memory-functions", required_argument, NULL, FORMS + 2 },
	{ "spike-from", required_argument, NULL, 's' },
	{ "raw", no_argument, NULL, 'r' },
	{ "debug-files", required_argument, NULL, 'd' },
	{ "memory", required_argument, NULL, 'm' },
	{ "cpu", required_argument, NULL, 'c' },
	{ "wall", required_argument, NULL, 'w' },
	{ "kill", no_argument, NULL, 'k' },
	{ "rest", required_argument, NULL, 'e' },
	{ 0 },
};

static bool parse_number(const char *text, uint64_t max, uint64_t *ret)
{
	const char *end = text + strlen(text);
	uint64_t value;

	if (text_parse_u64(text, end, &value) != end || value > max)
		return false;
	*ret = value;
	return true;
}

static bool parse_descriptor(const char *text, int *ret)
{
	uint64_t value;

	if (!parse_number(text, INT32_MAX, &value) || fcntl((int)value, F_GETFD) < 0)
		return false;
	*ret = (int)value;
	return true;
}

static bool set_option(struct setup *setup, int option)
{
	uint64_t number;

	if (option < OUTPUTS && setup->rest >= 0) {
		if (!parse_number(optarg, DESCRIPTORS_MAX - 1, &number))
			return false;
		setup->outputs[option] = (int)number;
		return true;
	}
	if (option < OUTPUTS)
		return parse_descriptor(optarg, &setup->outputs[option]);
	switch (option) {
	case 's':
		return parse_number(optarg, UINT64_MAX, &setup->spike_from_ns);
	case 'r':
		setup->raw = true;
		return true;
	case 'd':
		setup->debug_files = optarg;
		return true;
	case 'm':
		return parse_number(optarg, UINT64_MAX, &setup->memory_bytes);
	case 'c':
		return parse_number(optarg, 86400, &setup->cpu_seconds);
	case 'w':
		return parse_number(optarg, 86400, &setup->wall_seconds);
	case 'k':
		setup->refusal = SANDBOX_KILLS;
		return true;
	case 'e':
		return parse_descriptor(optarg, &setup->rest);
	default:
		return false;
	}
}

static int report_error(const char *what, int r)
{
	fprintf(stderr, "spikewatch-symbolize: %s: %s\n", what, strerror(-r));
	return r;
}

/* Where our own vDSO is, by the kernel's table. */
static bool find_vdso(uint64_t *ret_start, uint64_t *ret_end)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	bool found = false;

	while (maps != NULL && !found && fgets(line, sizeof(line), maps) != NULL)
		found = strstr(line, "[vdso]") != NULL && sscanf(line, "%" SCNx64 "-%" SCNx64, ret_start, ret_end) == 2;
	if (maps != NULL)
		fclose(maps);
	return found;
}

/* A copy of the vDSO as a file, because that is what can be read; -1: without. */
static int copy_vdso(void)
{
	uint64_t start, end;
	AUTO_CLOSE int fd = memfd_create("vdso", MFD_CLOEXEC);

	if (fd < 0 || !find_vdso(&start, &end) || sink_write_all(fd, (const void *)(uintptr_t)start, end - start) < 0)
		return -1;
	return TAKE_FD(fd);
}

/*
 * The OOM killer takes this process, and not the recorder, whose protection it has inherited; and
 * the recorded processes get the CPU first.
 */
static void stand_back(void)
{
	AUTO_CLOSE int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd >= 0)
		(void)sink_write_all(fd, "1000", 4);
	(void)setpriority(PRIO_PROCESS, 0, 10);
}

static int ask_debug_file(void *ctx, const uint8_t *build_id, size_t len)
{
	const struct setup *setup = ctx;

	return debug_files_ask(setup->debug_socket, build_id, len);
}

static int write_counts(const struct symbolize_counts *counts)
{
	const int out = STDOUT_FILENO;
	char text[4096];
	size_t used = 0;

#define SYMBOLIZE_LINE(name) \
	used += (size_t)snprintf(text + used, sizeof(text) - used, #name "\t%" PRIu64 "\n", counts->name);
	SYMBOLIZE_COUNTS(SYMBOLIZE_LINE)
#undef SYMBOLIZE_LINE
	return sink_write_all(out, text, used);
}

static int write_all(const struct setup *setup, struct stack_profile *profiles[SYMBOLIZE_PROFILES],
		     const struct symbolize_counts *counts)
{
	const uint64_t samples[SYMBOLIZE_PROFILES] = { counts->samples, counts->samples_of_faults };
	int r = 0;

	for (size_t i = 0; i < OUTPUTS && r == 0; i++) {
		struct sink sink = sink_fd(&setup->outputs[i]);

		if (setup->outputs[i] >= 0 && samples[i / FORMS] > 0)
			r = forms[i % FORMS](profiles[i / FORMS], &sink);
	}

	return r == 0 ? write_counts(counts) : r;
}

/* A file as memory; NULL: it is none, or empty. */
static void *map_input(int fd, size_t *ret_len)
{
	struct stat st;
	void *data;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size <= 0)
		return NULL;
	data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	*ret_len = (size_t)st.st_size;
	return data != MAP_FAILED ? data : NULL;
}

/* ---- the rest ---- */

union received {
	struct cmsghdr head;
	char room[CMSG_SPACE(STACK_FILE_DESCRIPTORS_AT_ONCE * sizeof(int))];
};

/* Whether it has come, or will not come any more. */
static bool has_rest(const struct setup *setup)
{
	char byte;
	struct iovec bytes = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr message = { .msg_iov = &bytes, .msg_iovlen = 1 };

	return recvmsg(setup->rest, &message, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

/* Whether there is no more time for the first run. */
static bool is_enough(void *ctx)
{
	struct timespec used;

	return has_rest(ctx) ||
	       (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) == 0 && used.tv_sec >= FIRST_CPU_SECONDS);
}

/* Waits for a message. 0; -EPIPE: none comes; -EBADMSG: not as stack_file.h says. */
static int receive_descriptors(struct setup *setup)
{
	int numbers[STACK_FILE_DESCRIPTORS_AT_ONCE], fd;
	union received control = { .room = { 0 } };
	struct iovec bytes = { .iov_base = numbers, .iov_len = sizeof(numbers) };
	struct msghdr message = {
		.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof(control.room)
	};
	ssize_t len = recvmsg(setup->rest, &message, MSG_CMSG_CLOEXEC);

	if (len <= 0)
		return -EPIPE;
	if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || message.msg_controllen < sizeof(control.head) ||
	    control.head.cmsg_type != SCM_RIGHTS || control.head.cmsg_len != CMSG_LEN((size_t)len))
		return -EBADMSG;
	for (size_t i = 0; i < (size_t)len / sizeof(fd); i++) {
		if (numbers[i] < 0 || numbers[i] >= DESCRIPTORS_MAX)
			return -EBADMSG;
		memcpy(&fd, CMSG_DATA(&control.head) + i * sizeof(fd), sizeof(fd));
		setup->received[numbers[i]] = fd;
	}
	return 0;
}

/* All of it, and the outputs. Sets *ret_input to the whole stack file. */
static int receive_rest(struct setup *setup, int *ret_input)
{
	int r = 0;

	while (r == 0 && setup->received[STDIN_FILENO] < 0)
		r = receive_descriptors(setup);
	for (size_t i = 0; i < OUTPUTS && r == 0; i++) {
		if (setup->outputs[i] < 0)
			continue;
		setup->outputs[i] = setup->received[setup->outputs[i]];
		if (setup->outputs[i] < 0)
			r = -EBADMSG;
	}
	*ret_input = setup->received[STDIN_FILENO];
	return r;
}

/* ---- runs ---- */

static int run_on(int input, const struct symbolize_options *how, struct stack_profile *profiles[SYMBOLIZE_PROFILES],
		  struct symbolize_counts *counts)
{
	struct stack_file file;
	size_t len;
	void *data = map_input(input, &len);
	int r = data != NULL ? stack_file_parse(data, len, &file) : -EBADMSG;

	if (r == 0)
		r = symbolize_run(&file, how, profiles, counts);
	if (how->is_first && data != NULL)
		munmap(data, len);
	return r < 0 ? report_error("the stackfile", r) : 0;
}

/* Reads what the first part needs, then waits for the whole. 0, or an exit code. */
static int read_ahead(struct setup *setup, struct symbolize_options *how, int *input)
{
	struct mallinfo2 memory;
	int r;

	how->is_first = true;
	how->is_enough = is_enough;
	r = run_on(*input, how, NULL, NULL);
	if (r < 0)
		return EXIT_REST;
	close(*input);
	malloc_trim(0);
	memory = mallinfo2();
	if (memory.uordblks + memory.hblkhd > WAITING_BYTES_MAX && !has_rest(setup))
		return EXIT_REST;
	if (receive_rest(setup, input) < 0)
		return EXIT_REST;
	how->is_first = false;
	how->received = setup->received;
	how->received_count = DESCRIPTORS_MAX;
	return 0;
}

static int symbolize_input(struct setup *setup, int vdso)
{
	struct modules *kept = NULL;
	struct symbolize_options how = {
		.spike_from_ns = setup->spike_from_ns,
		.raw = setup->raw,
		.vdso = vdso,
		.debug_file = setup->debug_socket >= 0 ? ask_debug_file : NULL,
		.ctx = setup,
		.kept = setup->rest >= 0 ? &kept : NULL,
	};
	struct symbolize_counts counts;
	struct stack_profile *profiles[SYMBOLIZE_PROFILES] = { NULL };
	int input = STDIN_FILENO, r = setup->rest >= 0 ? read_ahead(setup, &how, &input) : 0;

	if (r != 0)
		return r;
	if (run_on(input, &how, profiles, &counts) < 0)
		return EXIT_STACK_FILE;
	r = write_all(setup, profiles, &counts);
	for (size_t i = 0; i < SYMBOLIZE_PROFILES; i++)
		stack_profile_free(profiles[i]);
	if (r < 0) {
		report_error("writing", r);
		return EXIT_OUTPUT;
	}

	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	struct setup setup = {
		.outputs = { -1, -1, -1, -1, -1, -1 },
		.memory_bytes = 2ull << 30,
		.cpu_seconds = 30,
		.wall_seconds = 60,
		.debug_files = DEBUG_FILES_DIRECTORY,
		.debug_socket = -1,
		.rest = -1,
	};
	bool good = true;
	int option;

	for (size_t i = 0; i < ARRAY_LEN(setup.received); i++)
		setup.received[i] = -1;
	while (good && (option = getopt_long(argc, argv, "", options, NULL)) != -1)
		good = set_option(&setup, option);
	if (!good || optind < argc) {
		fputs(usage, stderr);
		return EXIT_USAGE;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	stand_back();

	int vdso = setup.raw ? -1 : copy_vdso();

	if (!setup.raw && setup.debug_files[0] != '\0')
		(void)debug_files_start(setup.debug_files, &setup.debug_socket);

	struct sandbox_limits limits = {
		.address_space_bytes = setup.memory_bytes,
		.cpu_seconds = (unsigned)setup.cpu_seconds +
			       (setup.rest >= 0 && setup.cpu_seconds > 0 ? FIRST_CPU_SECONDS : 0),
		.wall_seconds = (unsigned)setup.wall_seconds,
		.file_bytes = 256u << 20,
		.files = DESCRIPTORS_MAX,
	};
	int r = sandbox_enter(&limits, setup.refusal);

	if (r < 0) {
		report_error("the sandbox", r);
		return EXIT_SANDBOX;
	}

	return symbolize_input(&setup, vdso);
}
