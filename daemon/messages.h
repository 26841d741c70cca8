/*
 * messages.h: the kinds of entries that the daemon writes to the journal, each with the id under which systemd/spikewatch.catalog
 * explains it (journalctl -x). An id never changes and is never used again: people have rules on it.
 *
 * A condition has one kind: its entries say in SPIKEWATCH_STATE whether it begins, changes or ends.
 */
#ifndef SPIKEWATCH_MESSAGES_H
#define SPIKEWATCH_MESSAGES_H

// clang-format off
#define MESSAGES(X) \
	X(STARTED, "e1e9b356e26849b6a86582a81bcff574")                  /* the service records and judges */ \
	X(STOPPED, "eaa4d2444390444a9d0eb84c862ee5f2")                  /* clean stop */ \
	X(RELOADED, "35f7cf240a034610be034b2d2790718a")                 /* a new configuration is in force */ \
	X(RELOAD_REFUSED, "cf0acca8884f43768b789ea14726a22c")           /* a bad one is not; the old one stays */ \
	X(TARGET_FOUND, "06eae8e084904cae9439bbb2aeac7c82")             /* a process or cgroup is watched from now on */ \
	X(TARGET_GONE, "cac62ec6aba74f1ab4a13ece6e0f757c")              /* it vanished, or is not watched any more */ \
	X(RULE_FIRED, "c39b89b6163b43c49ba413fae874e617") \
	X(INCIDENT_SEALED, "1ffa0fd5c19a4fc8a7bad1e7d5dbd499") \
	X(INCIDENT_FAILED, "8f01e14cfce948d4ba08ad751ccc551e")          /* could not be opened, or written */ \
	X(INCIDENT_REMOVED, "666266d753484601bf9d1f57aee58579")         /* made room, by the limits of retention */ \
	X(CAPTURE_RATE_LOW, "5c50487ead97441e8c2de23c79f4b594") \
	X(SLEEP_ERROR_HIGH, "89ebecb51f3d4461a7abe3490aa864f3") \
	X(COLLECTION_SLOW, "07e75758108a4549914f7a4c929362c4") \
	X(BACKOFF, "bb47a76b87714fa1a68399177e4b5ad5")                  /* a blocking reader holds the sampler up */ \
	X(BUDGET_EXCEEDED, "09f1b420623544f58d8bc6578fb78630")          /* sampling more slowly than configured */ \
	X(RING_RECOVERED, "198b8266c4dc475389fd593effdccc8c")           /* of a daemon that was killed */ \
	X(RULES_BEHIND, "ea965d5d40444055a7198ca0046b343d")             /* the rules were overtaken by the sampler */ \
	X(TARGETS_UNWATCHED, "045457b1d9b34131b5f081e86642cda7")        /* some that match cannot be watched */ \
	X(DESCRIPTORS_SHORT, "4205f0d1e50e4a3297c315aeaafa3297")        /* some processes are read without descriptors of their own */ \
	X(FEATURE_OFF, "edbd290e20614bb9a01a216a70f13f76")              /* a capability, a limit or the kernel does not allow it */ \
	X(DISK_SHORT, "6a89ccea70c446c5810b17dff27b91d3")               /* no room for incidents, or no directory */ \
	X(STATE_NOT_SAVED, "8ad58070e9e4403aa13e9b7ee68fd9c2")          /* cooldowns will not survive a restart */ \
	X(CLOCK_STEPPED, "05af3e6a12fe44a884135ed41d720968") \
	X(SUSPENDED, "fd39049d8c9c4e5db27f2c62893d92cc")                /* the machine slept */ \
	X(THREAD_STUCK, "01e5e25c0cef436fb85934a314888efb")             /* a thread gives no sign of life */ \
	X(ENTRIES_LOST, "92f70f0630b748cb9e6e22811cf4e6d4")             /* the journal did not take some */ \
	X(UNIT_MISSING, "3c151f8177fd4bd5b09ad8447be79ca8")             /* one that is selected by its name does not exist */
// clang-format on

enum message {
	MESSAGE_NONE,
#define X(name, id) MESSAGE_##name,
	MESSAGES(X)
#undef X
		MESSAGE_KINDS
};

/* The id as 32 hexadecimal digits; "" of MESSAGE_NONE. Static text. */
const char *message_id(enum message message);

#endif
