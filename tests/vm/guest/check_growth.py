"""What the daemon takes after a long day, against what it took in the morning.

The same process is measured after a few rounds of everything that makes it take memory, and after five more: reloads, targets that
come and go, incidents. Allowed: 2 MiB more memory of its own (the ring is a file, of fixed size), which is the allocator's slack,
and not one descriptor. The first reload alone takes 700 KiB, because two configurations are there for a moment.
"""

import os
import pathlib
import time

import service
from harness import LIMIT, check, eventually, expect, run

WARM_UP = 2
ROUNDS = 5
SLACK_KIB = 2048
UNIT = "vm-round.service"


def memory_kib():
    with open(f"/proc/{service.pid()}/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def descriptors():
    """What each is open on. One may be closed while this looks."""
    found = []
    for link in pathlib.Path(f"/proc/{service.pid()}/fd").iterdir():
        try:
            found.append(os.readlink(link))
        except FileNotFoundError:
            pass
    return found


def settled():
    """When nothing is going on, and nothing is open any more of what is gone."""
    eventually("the target is gone", lambda: not service.target(UNIT))
    eventually("no incident is open", lambda: service.status()["incidents"]["open"] == 0 and not service.unfinished())
    eventually("nothing of the unit is open", lambda: not any(UNIT in name for name in descriptors()))


def falls_to(what, ask, most):
    """What an incident took is given back a moment after it is sealed."""
    lowest = ask()
    end = time.monotonic() + LIMIT
    while lowest > most and time.monotonic() < end:
        time.sleep(0.2)
        lowest = min(lowest, ask())
    expect(lowest <= most, f"{what}: {lowest} at the least, {most} allowed")
    return lowest


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
    for number in range(WARM_UP):
        round_of(number)
    settled()
    memory, fds = memory_kib(), len(descriptors())
    for number in range(ROUNDS):
        round_of(number)
    settled()
    fds_after = falls_to("descriptors", lambda: len(descriptors()), fds)
    memory_after = falls_to("KiB of memory", memory_kib, memory + SLACK_KIB)
    print(f"    {memory} KiB, {fds} descriptors; then {memory_after} KiB, {fds_after} descriptors")
