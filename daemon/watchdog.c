/* watchdog.c: compares times; the sending is systemd's protocol. */
#include "watchdog.h"

#include <systemd/sd-daemon.h>

void watchdog_init(struct watchdog *watchdog)
{
	uint64_t usec = 0;

	*watchdog = (struct watchdog){ 0 };
	/* A quarter of what systemd allows: one word that is late is made up for by the next. */
	if (sd_watchdog_enabled(0, &usec) > 0)
		watchdog->period_ns = usec * NS_PER_US / 4;
}

uint64_t watchdog_silence(const struct watchdog_sign *sign, mono_t now)
{
	int64_t age = mono_diff(now, sign->at); /* negative: the thread was quicker than who asks */
	uint64_t patience_ns = sign->patience_ns ? sign->patience_ns : WATCHDOG_PATIENCE_NS;

	return age > (int64_t)patience_ns ? (uint64_t)age : 0;
}

bool watchdog_feed(struct watchdog *watchdog, const struct watchdog_sign *signs, size_t count, mono_t now)
{
	if (!watchdog->period_ns || mono_diff(now, watchdog->fed) < (int64_t)watchdog->period_ns)
		return false;

	for (size_t i = 0; i < count; i++)
		if (watchdog_silence(&signs[i], now))
			return false;

	watchdog->fed = now;

	return sd_notify(0, "WATCHDOG=1") > 0;
}
