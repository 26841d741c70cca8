/*
 * workload_arrival.c: processes that come and go, and know what they used. A report is 16 bytes
 * appended to FILE: pid and CPU time in ns, both as 64 bits.
 *
 * usage: workload_arrival burn CPU_US FILE
 *                             uses so much CPU time, reports, exits
 *                         storm COUNT CPU_US FILE PROGRAM
 *                             runs "PROGRAM burn CPU_US FILE" COUNT times, one after the other;
 *                             then prints a line: how many, and the CPU time of all of them to
 *                             their very end, in ns
 *                         forks COUNT CPU_US
 *                             forks COUNT children, one after the other, which execute nothing,
 *                             use so much and end; then the same line, with its own CPU time
 *                         spins COUNT US
 *                             the same, but a child ends after that time by the wall clock: its
 *                             CPU clock is never read
 *                         stops FILE
 *                             stops itself, reports, exits
 *                         turns CPU_US FILE PROGRAM
 *                             stops; uses CPU time; executes "PROGRAM rests CPU_US FILE"
 *                         renames CPU_US FILE NAME
 *                             stops; uses CPU time; changes its name and goes on as rests
 *                         rests CPU_US FILE
 *                             uses CPU time; reports; stops; and so on
 */
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static uint64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);

	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void burn(const char *us)
{
	uint64_t until = cpu_ns() + strtoull(us, NULL, 10) * 1000;

	while (cpu_ns() < until)
		continue;
}

static void say(const char *file)
{
	int fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
	uint64_t words[2] = { (uint64_t)getpid(), cpu_ns() };

	if (fd < 0 || write(fd, words, sizeof(words)) != sizeof(words))
		exit(1);
	close(fd);
}

static void burn_and_stop(const char *us, const char *file)
{
	for (;;) {
		burn(us);
		say(file);
		raise(SIGSTOP);
	}
}

static uint64_t ns_of(const struct timeval *time)
{
	return (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_usec * 1000;
}

static void storm(char **arguments)
{
	char burns[] = "burn";
	char *child[] = { arguments[3], burns, arguments[1], arguments[2], NULL };
	unsigned long count = strtoul(arguments[0], NULL, 10), done = 0;
	uint64_t used_ns = 0;

	for (unsigned long i = 0; i < count; i++) {
		struct rusage usage;
		pid_t pid;

		if (posix_spawn(&pid, child[0], NULL, NULL, child, environ) != 0 || wait4(pid, NULL, 0, &usage) != pid)
			break;
		used_ns += ns_of(&usage.ru_utime) + ns_of(&usage.ru_stime);
		done++;
	}
	printf("%lu %llu\n", done, (unsigned long long)used_ns);
}

static uint64_t used_by(int who)
{
	struct rusage usage;

	getrusage(who, &usage);

	return ns_of(&usage.ru_utime) + ns_of(&usage.ru_stime);
}

static void spin(const char *us)
{
	struct timespec now;
	uint64_t until = 0, ns;

	do {
		clock_gettime(CLOCK_MONOTONIC, &now);
		ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
		until = until ? until : ns + strtoull(us, NULL, 10) * 1000;
	} while (ns < until);
}

static void forks(char **arguments, void (*use)(const char *us))
{
	unsigned long count = strtoul(arguments[0], NULL, 10), done = 0;

	for (; done < count; done++) {
		pid_t pid = fork();

		if (pid == 0) {
			use(arguments[1]);
			_exit(0);
		}
		if (pid < 0 || waitpid(pid, NULL, 0) != pid)
			break;
	}
	printf("%lu %llu\n", done, (unsigned long long)(used_by(RUSAGE_SELF) + used_by(RUSAGE_CHILDREN)));
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	char **given = argv + 2;
	char rests[] = "rests";

	if (strcmp(what, "burn") == 0 && argc == 4) {
		burn(given[0]);
		say(given[1]);
	} else if (strcmp(what, "storm") == 0 && argc == 6) {
		storm(given);
	} else if (strcmp(what, "forks") == 0 && argc == 4) {
		forks(given, burn);
	} else if (strcmp(what, "spins") == 0 && argc == 4) {
		forks(given, spin);
	} else if (strcmp(what, "stops") == 0 && argc == 3) {
		raise(SIGSTOP);
		say(given[0]);
	} else if (strcmp(what, "turns") == 0 && argc == 5) {
		raise(SIGSTOP);
		burn(given[0]);
		execv(given[2], (char *[]){ given[2], rests, given[0], given[1], NULL });
		return 1;
	} else if (strcmp(what, "renames") == 0 && argc == 5) {
		raise(SIGSTOP);
		burn(given[0]);
		prctl(PR_SET_NAME, given[2]);
		burn_and_stop(given[0], given[1]);
	} else if (strcmp(what, "rests") == 0 && argc == 4) {
		burn_and_stop(given[0], given[1]);
	} else {
		return 2;
	}

	return 0;
}
