/* slow_disk.h: what a test and the program on the slow disk share. */
#ifndef SPIKEWATCH_TESTS_SLOW_DISK_H
#define SPIKEWATCH_TESTS_SLOW_DISK_H

struct slow_disk {
	_Atomic int closed;        /* nothing passes */
	_Atomic int log_is_fast;   /* standard error passes nevertheless */
	_Atomic unsigned delay_ms; /* of each that passes */
	_Atomic unsigned waiting;  /* calls that have begun and not passed */
	_Atomic unsigned passed;
	_Atomic int files_closed; /* reads of files of cgroups and of other processes do not pass */
	_Atomic int files_waiting;
};

#endif
