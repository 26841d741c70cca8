"""What the daemon takes after a long day, against what it took in the morning.

The same process is measured after one round of everything that makes it take memory, and after ten: reloads, targets that come and
go, incidents. Allowed: 1 MiB more memory of its own (the ring is a file, of fixed size), which is the allocator's slack, and not one
descriptor.
"""

import os
import time

import service
from harness import check, eventually, expect, run

ROUNDS = 10
SLACK_KIB = 1024
UNIT = "vm-round.service"


def memory_kib():
    with open(f"/proc/{service.pid()}/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def descriptors():
    return len(os.listdir(f"/proc/{service.pid()}/fd"))


def same_for_a_while():
    """How many descriptors there are, once that has not changed for three seconds; None if it does."""
    before = descriptors()
    for _ in range(6):
        time.sleep(0.5)
        if descriptors() != before:
            return None
    return before


def settled():
    """What it takes when nothing is going on."""
    eventually("the target is gone", lambda: not service.target(UNIT))
    eventually("no incident is open", lambda: service.status()["incidents"]["open"] == 0 and not service.unfinished())
    fds = eventually("descriptors stay the same", same_for_a_while)
    return memory_kib(), fds


def round_of(number):
    service.start_idle(UNIT)
    service.until_watched(UNIT)
    service.configure(service.cpu_rule(percent=f"{70 + number % 2}%"))
    run("systemctl", "reload", service.UNIT)
    run("spikewatch", "trigger")
    service.stop_unit(UNIT)


@check(f"memory and descriptors do not grow in {ROUNDS} rounds of units, reloads and incidents")
def _():
    service.fresh()
    round_of(0)
    memory, fds = settled()
    for number in range(1, ROUNDS):
        round_of(number)
    memory_after, fds_after = settled()
    print(f"    {memory} KiB, {fds} descriptors; then {memory_after} KiB, {fds_after} descriptors")
    expect(fds_after <= fds, f"descriptors: {fds_after}, {fds} before")
    expect(memory_after <= memory + SLACK_KIB, f"memory: {memory_after} KiB, {memory} KiB before")
