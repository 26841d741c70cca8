"""What the daemon takes after a long day, against what it took in the morning.

The same process is measured after one round of everything that makes it take memory, and after twenty: reloads, targets that come and
go, incidents. Allowed: 2 MiB more memory, which is the allocator's slack, and not one descriptor.
"""

import os
import time

import service
from harness import check, equal, eventually, expect, run

ROUNDS = 20
SLACK_KIB = 2048
RING = {"size": "1MiB"}
UNIT = "vm-round.service"


def resident_kib():
    with open(f"/proc/{service.pid()}/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def descriptors():
    return len(os.listdir(f"/proc/{service.pid()}/fd"))


def settled():
    """What it takes when nothing is going on."""
    eventually("no incident is open", lambda: service.status()["incidents"]["open"] == 0)
    eventually("the target is gone", lambda: not service.target(UNIT))
    time.sleep(2)
    return resident_kib(), descriptors()


def round_of(number):
    service.start_idle(UNIT)
    service.until_watched(UNIT)
    service.configure(service.cpu_rule(percent=f"{70 + number % 2}%"), ring=RING)
    run("systemctl", "reload", service.UNIT)
    run("spikewatch", "trigger")
    service.stop_unit(UNIT)


@check(f"memory and descriptors do not grow in {ROUNDS} rounds of units, reloads and incidents")
def _():
    # A ring that is full: its pages are memory of the process as they are first written.
    service.fresh(ring=RING)
    round_of(0)
    memory, fds = settled()
    for number in range(1, ROUNDS):
        round_of(number)
    memory_after, fds_after = settled()
    print(f"    {memory} KiB, {fds} descriptors; then {memory_after} KiB, {fds_after} descriptors")
    equal(fds_after, fds, "descriptors")
    expect(memory_after <= memory + SLACK_KIB, f"memory: {memory_after} KiB, {memory} KiB before")
