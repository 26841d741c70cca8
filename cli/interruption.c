/* interruption.c: what a handler may touch, and nothing else. */
#include "interruption.h"

#include "scope.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted, to_pass_on;

static void on_signal(int number, siginfo_t *info, void *context)
{
	(void)context;
	if (interrupted && number == SIGINT)
		_exit(128 + number);
	interrupted = number;
	if (info->si_code != SI_KERNEL)
		to_pass_on = number;
}

void interruption_catch(void)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO }, before;

	for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
		if (sigaction(numbers[i], NULL, &before) == 0 && (numbers[i] != SIGHUP || before.sa_handler != SIG_IGN))
			sigaction(numbers[i], &action, NULL);
}

int interruption_signal(void)
{
	return interrupted;
}

int interruption_to_pass_on(void)
{
	return to_pass_on;
}
