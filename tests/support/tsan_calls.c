/*
 * tsan_calls.c: with ThreadSanitizer, in place of two functions of the C library that gcc's runtime does not know:
 * else it takes a mutex that was locked so for unlocked, and a thread that was joined so for leaked.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

/* A tenth of a millisecond passes. */
static bool is_over(clockid_t clock, const struct timespec *until)
{
	struct timespec now;

	nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	clock_gettime(clock, &now);
	return now.tv_sec > until->tv_sec || (now.tv_sec == until->tv_sec && now.tv_nsec >= until->tv_nsec);
}

int pthread_mutex_clocklock(pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until)
{
	int r = pthread_mutex_trylock(mutex);

	while (r == EBUSY) {
		bool last = is_over(clock, until);

		r = pthread_mutex_trylock(mutex);
		if (r == EBUSY && last)
			return ETIMEDOUT;
	}
	return r;
}

int pthread_clockjoin_np(pthread_t thread, void **ret, clockid_t clock, const struct timespec *until)
{
	int r = pthread_tryjoin_np(thread, ret);

	while (r == EBUSY) {
		bool last = is_over(clock, until);

		r = pthread_tryjoin_np(thread, ret);
		if (r == EBUSY && last)
			return ETIMEDOUT;
	}
	return r;
}
