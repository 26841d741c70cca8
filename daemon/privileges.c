/*
 * privileges.c: a table of capabilities, each with what it is for.
 *
 * Memory is locked only where that cannot backfire: with a limited RLIMIT_MEMLOCK every later allocation beyond it would fail, so then
 * only the ring is locked (session.c). MCL_ONFAULT locks what is touched, as it is touched: the process does not grow by it.
 */
#include "privileges.h"

#include "log.h"
#include "scope.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

struct need {
	unsigned capability;
	bool (*wanted)(const struct config *config); /* NULL: always */
	struct privileges_lack lack;
};

static bool resets_peaks(const struct config *config)
{
	return config->sampling.reset_peaks;
}

static const struct need needs[] = {
	{ CAP_SYS_PTRACE,
	  NULL,
	  { "CAP_SYS_PTRACE", "open files, memory maps and executables of other users' processes" } },
	{ CAP_DAC_READ_SEARCH, NULL, { "CAP_DAC_READ_SEARCH", "pid files and cgroups that only others may read" } },
	{ CAP_DAC_OVERRIDE, resets_peaks, { "CAP_DAC_OVERRIDE", "sampling.reset_peaks on other users' processes" } },
};

static const struct privileges_lack memory_lock = {
	"LimitMEMLOCK=infinity or CAP_IPC_LOCK",
	"keeping all of spikewatchd in memory when the machine swaps (the ring is locked on its own)",
};

/* Bit n: capability n is in effect. All set if the kernel does not say. */
static uint64_t capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };

	if (syscall(SYS_capget, &header, data) < 0)
		return UINT64_MAX;

	return (uint64_t)data[1].effective << 32 | data[0].effective;
}

/* 0, or -EPERM: the limit would turn against us. */
static int lock_memory(uint64_t held)
{
	struct rlimit limit;

	if (!(held & (1ull << CAP_IPC_LOCK)) &&
	    (getrlimit(RLIMIT_MEMLOCK, &limit) < 0 || limit.rlim_cur != RLIM_INFINITY))
		return -EPERM;

	return mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) < 0 ? -errno : 0;
}

static bool is_among(const struct privileges *privileges, const struct privileges_lack *lack)
{
	for (size_t i = 0; i < privileges->count; i++)
		if (strcmp(privileges->lacks[i].needs, lack->needs) == 0)
			return true;

	return false;
}

static void add(struct privileges *privileges, const struct privileges *before, const struct privileges_lack *lack)
{
	privileges->lacks[privileges->count++] = *lack;
	if (!is_among(before, lack))
		log_about(LOG_NOTICE, &(struct log_about){ .message = MESSAGE_FEATURE_OFF }, "without %s: no %s",
			  lack->needs, lack->off);
}

void privileges_look(const struct config *config, struct privileges *ret)
{
	struct privileges found = { .count = 0 };
	uint64_t held = capabilities();

	_Static_assert(ARRAY_LEN(needs) + 1 <= PRIVILEGES_LACKS_MAX, "room for every lack");
	for (size_t i = 0; i < ARRAY_LEN(needs); i++)
		if (!(held & (1ull << needs[i].capability)) && (!needs[i].wanted || needs[i].wanted(config)))
			add(&found, ret, &needs[i].lack);
	if (config->ring.lock && lock_memory(held) < 0)
		add(&found, ret, &memory_lock);

	*ret = found;
}
