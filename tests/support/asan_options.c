/*
 * asan_options.c: linked into spikewatch-symbolize when it is built with AddressSanitizer. Leaks are
 * searched for by a thread that traces the others, which the sandbox forbids.
 */
const char *__asan_default_options(void);

const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}
