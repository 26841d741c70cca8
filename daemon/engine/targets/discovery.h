/*
 * discovery.h: what discovery's files share: its thread, its scans, and what it hears between them.
 * All under the fair mutex.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_TARGETS_DISCOVERY_H
#define SPIKEWATCH_DAEMON_ENGINE_TARGETS_DISCOVERY_H

#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/engine/targets/baseline.h"
#include "daemon/engine/targets/cgroup_watch.h"
#include "daemon/engine/targets/fair_mutex.h"
#include "daemon/engine/targets/matcher.h"
#include "daemon/engine/targets/process_news.h"
#include "daemon/engine/targets/target_table.h"
#include "daemon/engine/targets/unit_bus.h"
#include "lib/base/base.h"
#include "lib/cgroup/cgroup_limits.h"
#include "lib/config/config.h"
#include "lib/model/pacing.h"
#include "lib/proc/procfs.h"
#include "lib/source/source.h"

#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/*
 * discovery.h: the thread that finds targets: at every rescan it walks /proc and the cgroup tree,
 * matches what it meets against the configuration (match.h) and keeps the target table. It also
 * reads effective limits again, and keeps the baselines against which captures are compared
 * (baseline.h).
 *
 * Between scans it hears of processes from the kernel (process_listener.h), where that is allowed,
 * and looks at just those: from an exec to the target it mostly takes some milliseconds. Scans are
 * the safety net, and what there is where nothing can be heard.
 *
 * A scan looks only at processes that have run since the one before, where entries go by what
 * changes no other way (not by cgroup), and where the CPU clocks of processes can be asked. And
 * where it could find only what is heard of anyway (entries by name, program, pid or path of a
 * cgroup; nothing was lost), scans are so far apart that they take no more than a five-hundredth of
 * a core, but no more than ten rescan intervals.
 *
 * Scans never cost more than a fiftieth of a core: on a host with very many processes the interval
 * stretches. Nor do looks between scans, but for a burst: processes that come faster are looked at
 * late, and after a second of that those that wait are left to a scan.
 *
 * Questions of other threads, a reload too, are answered between two processes of a running scan,
 * and while files of a process are read: such a read may hang in the kernel.
 */

struct discovery;

struct discovery_options {
	struct target_table_options target_table;
	struct baseline *baseline; /* kept up to date by the scans; must outlive the thread */
	thread_selection_take
		*follow; /* is told which processes are watched, by the thread that scans; NULL: nobody asks */
	void *follow_ctx;
	struct process_listener_options listen;
	const char *unit_bus; /* where systemd is spoken to directly; NULL: where it is on this machine */
};

struct discovery_state {
	struct target_table_counts target_table;
	uint64_t scans;
	uint64_t scan_interval_ns; /* from the end of a scan to the next, as things stand */
	uint64_t last_scan_ns;     /* how long the last one took */
	uint64_t processes;        /* on the host, as of the last scan */
	uint64_t unchanged;        /* of them had not run since the scan before, and were not looked at again */
	int32_t reading;           /* the process whose files are being read now, which may hang; 0: none */
	uint64_t unreadable;       /* of them hidden from us (hidepid, another user's) in the last scan */
	bool listened;             /* the thread knows its source; the rest of this is of no worth before */
	enum process_listener_source source;          /* of news between scans */
	bool exit_totals;                             /* with all that a process used when it ended */
	char source_why[PROCESS_LISTENER_REASON_MAX]; /* why the source is not a better one, for people; "" */
	uint64_t events;                              /* heard */
	uint64_t overruns;      /* times that the kernel had no room for some: each is followed by a scan */
	uint64_t cgroups_heard; /* of that came */
	uint64_t looks;         /* at a single process for what was heard of it */
	uint64_t missed; /* processes that came and went before they were looked at; of some there was an exit record */
	uint64_t dropped;  /* processes that were forgotten before they were looked at */
	uint64_t credited; /* of the missed: counted in a group, by their exit records */
	uint64_t
		late; /* looked at later than they were heard of, or left to a scan, because looking had taken its share of a core */
	uint64_t storms;   /* seconds after which those that were still waiting were left to a scan */
	bool held_off;     /* somebody is waiting */
	bool units_wanted; /* an entry selects units */
	struct unit_bus_state units;
	uint64_t
		unlabelled; /* containers that are of no entry with labels, because theirs cannot be read; 0 without such an entry */
	const char *unlabelled_why; /* of one of them, for people; static text */
	int error; /* -errno: the last scan was not finished: it may have missed new ones, and let nobody go */
};

/* A unit, for whoever tells of it. */
struct unit_report {
	char name[UNIT_NAME_MAX + 1];
	char cgroup[512]; /* cut */
	struct unit_facts facts;
};

struct unit_visitor {
	void (*unit)(void *ctx, const struct unit_report *unit);
	/* There is none of this name, and nothing else that its entry selects. */
	void (*missing)(void *ctx, const char *name, const char *why);
	void *ctx;
};

/* Compiles the configuration's selectors. 0; -ENOMEM; -errno. */
int discovery_new(const struct discovery_options *options, struct discovery **ret);

/*
 * One scan in the calling thread. Not while the thread runs. 0, also when it ran out of descriptors
 * (discovery_state.error); -ENOMEM; -errno: the proc root cannot be read.
 */
int discovery_scan(struct discovery *discovery);

/*
 * The whole configuration is replaced, also while the thread runs. Targets of entries that config
 * has too (config_target_same) stay what they are: id, samples, no gap. Those of the others leave,
 * groups with their members; new groups are there at once, other new targets after the next scan,
 * for which the thread is woken (without the thread: the caller scans). Limits are read again by
 * it. Above a max_targets that became smaller nobody is sent away, and nobody new is watched.
 * proc_root and cgroup_root are not looked at.
 *
 * 0: nothing here refers to the old configuration any more. -ENOMEM, -errno: nothing has changed.
 * One thread at a time.
 */
int discovery_reload(struct discovery *discovery, const struct config *config);

/*
 * When its thread last showed a sign of life: at most a second ago while it waits, and at every
 * process and cgroup that a scan meets. Before discovery_start and after discovery_stop it stands
 * still. Any thread, never waits.
 */
mono_t discovery_pulse(const struct discovery *discovery);

/*
 * Starts the thread, which begins with a scan, then listens, if that is wanted and possible. 0 or
 * -errno.
 */
int discovery_seek(struct discovery *discovery);

/*
 * Listens from now on, if that is wanted and possible, and starts the thread, which begins with a
 * scan; unless it runs. 0 or -errno.
 */
int discovery_start(struct discovery *discovery);

/*
 * Of the first scan of the thread. A descriptor, discovery's own, which is readable when that is
 * through; how it went: 0; -ENOMEM, -errno: as discovery_scan; DISCOVERY_SCANNING: it is not
 * through, or was not begun. Any thread, never waits.
 */
enum { DISCOVERY_SCANNING = 1 };
int discovery_first_fd(const struct discovery *discovery);
int discovery_first(const struct discovery *discovery);

/* The process whose files are being read now, which may hang; 0: none. Any thread, never waits. */
int32_t discovery_reading(const struct discovery *discovery);

/*
 * Stops it and waits for it; if it hangs in a read of /proc for seconds, no longer. Harmless if it
 * is not running. True: it has ended. False: it hangs, and may wake at any time: all that was given
 * to discovery_new, and the configuration, must be left as they are until the end of the process,
 * or until this, called again, says that it has ended; which it then does without waiting.
 */
bool discovery_stop(struct discovery *discovery);

/*
 * Neither its thread nor the sampler's may run. Stops it, and frees nothing if that gives false.
 * NULL is fine.
 */
void discovery_free(struct discovery *discovery);

/*
 * The processes of a target, at most cap pids, those that the target table knows: the process
 * itself, or the members of a group. For a cgroup 0 (ask its cgroup.procs). Any thread.
 */
size_t discovery_pids(struct discovery *discovery, uint32_t target_id, int32_t *pids, size_t cap);

/* The effective limits of a target as last read. False: it is gone. Any thread. */
bool discovery_limits(struct discovery *discovery, uint32_t target_id, struct cgroup_limits *ret);

/* baseline_copy and baseline_copy_busy for other threads. */
void discovery_baselines(struct discovery *discovery, int32_t pid, struct thread_baseline *ret_threads,
			 struct maps_snapshot **ret_maps);
int discovery_busy(struct discovery *discovery, struct busy_snapshot *ret);

/*
 * What systemd says of the unit that this cgroup is of. False: nothing, or nobody asked, because no
 * entry selects it. Any thread.
 */
bool discovery_unit(struct discovery *discovery, const char *cgroup, struct unit_report *ret);

/*
 * All units that are known. What is visited must not be kept, and visitors must not ask discovery.
 * Any thread.
 */
void discovery_visit_units(struct discovery *discovery, const struct unit_visitor *visitor);

/* Any thread. */
void discovery_state(struct discovery *discovery, struct discovery_state *ret);

/*
 * A scan may take one part in so many of a core, and what is looked at between scans as well. CPU
 * time counts: on a busy machine it lasts longer.
 */
#define DISCOVERY_SHARE 50u

/* While there is somebody to hear from. */
struct discovery_news {
	struct process_listener *listener;
	struct recent_pids *recent_pids;
	struct process_facts process_facts;
	struct procevent events[4 * PROCESS_LISTENER_BATCH];
	bool hearing; /* it is not heard while it is heard */
	bool more;    /* the last look found something */
	mono_t heard; /* when it was looked last */
	struct rate_limit rate_limit;
	struct token_bucket token_bucket;
	uint64_t charged_ns;      /* CPU time of the thread up to which it was taken of that, in the running look */
	mono_t behind_since;      /* since when somebody has been waiting for it: while state.held_off */
	uint64_t missed, dropped; /* by listeners before this one */
};

struct discovery {
	struct discovery_options options;
	const struct config *config;
	struct target_table *target_table;
	struct matcher *matcher;
	struct thread_selection *thread_selection; /* NULL: nobody asks */
	struct discovery_news *news;               /* NULL: rescans only */
	struct cgroup_watch *cgroups;              /* NULL: not asked for, or not possible */
	struct unit_bus *units;                    /* NULL: not asked for yet, or not possible */
	bool units_due;                            /* other units are selected */
	struct rate_limit units_rest;
	mono_t units_heard;          /* when it was looked last */
	struct condition units_lack; /* a bus to hear them from */
	uint64_t scan;
	uint64_t processes, unreadable, unchanged; /* in the running scan */
	struct process_cache *process_cache;
	mono_t limits_read;
	uint64_t limits_cpu_ns; /* what that took */
	mono_t scan_began;      /* the last whole one */
	mono_t scan_ended;      /* the last one */
	uint64_t found_before;  /* targets, when it began: those that came since are waiting for the next */
	bool limits_due;        /* whenever they were read */
	bool rescan;            /* the configuration is another one: what runs is given up, what is due is due now */
	bool again;             /* something was missed: the next scan is due as soon as one may be */
	struct rate_limit cgroups_rest;
	mono_t heard;       /* when anything was listened to last */
	bool cgroups_tried; /* whether they were wanted when that was tried last */
	bool tuned,
		tuned_in; /* it was tried once; whether news were wanted then: what was refused is not tried again */
	struct discovery_state state;
	uint64_t scan_cpu_ns; /* what the last scan took, however long it waited for a CPU */
	_Atomic uint64_t pulse_ns;
	struct fair_mutex turn;
	int wake_fd;
	int first_fd;      /* see discovery_first_fd */
	_Atomic int first; /* see discovery_first */
	pthread_t thread;
	_Atomic int32_t reading; /* the process whose files are being read without the fair mutex; 0: none */
	bool running;
	_Atomic bool stop; /* set without the fair mutex, which a thread that hangs may hold */
	bool abandoned;    /* it did not come back from a read when it was to stop: it is left everything that it has */
};

/* ---- discovery.c ---- */

/* It lives: see discovery_pulse. Returns now. */
mono_t discovery_show_life(struct discovery *discovery);

/* Where foreign files are read, by the thread that holds the fair mutex: without it. */
struct unlocked_section discovery_outside(const struct discovery *discovery);

/* Reads effective limits anew, if that is due: they may take as much as a scan. It steps aside. */
void discovery_refresh_limits(struct discovery *discovery, mono_t now);

/* Hands a cgroup to the entries that select it by its path. 0; -ENOMEM. */
int discovery_sight_cgroup(struct discovery *discovery, const char *path);

/* ---- discovery_match.c ---- */

struct discovery_meeting {
	/*
	 * it was heard to begin, execute or change its name: it leaves what it is of no more, and
	 * is a new target if it is called something else
	 */
	bool changed;
	bool whole;     /* it has just begun: see target_table_sighting */
	bool watched;   /* out: it is of some entry */
	bool ended;     /* out: it has, before all of that was opened */
	size_t targets; /* out: it should be so many itself */
};

/*
 * Hands a process, of which all is known that the matcher needs, to every entry that it matches.
 * One that joins an entry leaves those that it is of no more; others are left to the sweep. 0;
 * -ENOMEM, or out of descriptors.
 */
int discovery_match(struct discovery *discovery, struct process_facts *process_facts,
		    struct discovery_meeting *meeting);

/* ---- discovery_ends.c ---- */

/* A process ended: PROCEVENT_EXIT or PROCEVENT_TOTALS. */
void discovery_take_end(struct discovery *discovery, const struct procevent *end, mono_t now);

/* ---- discovery_news.c ---- */

/* Begins or ceases to listen, as the configuration wants it. For the thread. */
void discovery_tune_in(struct discovery *discovery);
void discovery_tune_out(struct discovery *discovery);

/*
 * Takes in what there is to be heard, unless it is resting from that. In passing: not if that was
 * done just now.
 */
void discovery_hear(struct discovery *discovery, mono_t now);
void discovery_overhear(struct discovery *discovery, mono_t now);

/*
 * What is to be polled until when: fds has room for DISCOVERY_FDS, *until is lessened. The number
 * of fds.
 */
#define DISCOVERY_FDS 4
size_t discovery_await(const struct discovery *discovery, mono_t now, struct pollfd *fds, mono_t *until);

/* Fills in what discovery_state says of it. */
void discovery_news_state(const struct discovery *discovery, struct discovery_state *ret);

/* ---- discovery_units.c: what systemd says of units ---- */

/*
 * Asks for other units, if others are selected now. For the thread, after a scan: what it found
 * need not be said to be missing.
 */
void discovery_ask_for_units(struct discovery *discovery);

/* Takes in what there is to be heard of them. */
void discovery_hear_units(struct discovery *discovery, mono_t now);

/* As discovery_await, of one descriptor. */
size_t discovery_await_units(const struct discovery *discovery, mono_t now, struct pollfd *ret, mono_t *until);

#endif
