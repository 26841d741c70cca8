"""Services with limits of their own, caught at the right share of them, whichever hierarchy holds the limits."""

import service
from harness import check, equal, eventually, expect, run, within

BURN, GROW = "vm-burn.service", "vm-grow.service"
QUOTA_NS, LIMIT_BYTES = 200_000_000, 64 << 20
RULES = [
    service.cpu_rule(),
    service.rule("vm-throttled", "throttled", percent="50%"),
    service.rule("vm-pressure", "cpu_pressure", percent="30%"),
    service.rule("vm-memory", "memory", percent="75%"),
]
incidents = None


def read(path):
    with open(path) as text:
        return text.read().strip()


@check("two services with limits, one that burns and one that allocates")
def _():
    global incidents
    # Each rule by itself, without a merge: an incident lasts no longer than it takes.
    service.fresh(*RULES, incidents={**service.INCIDENT, "after": "0s"})
    incidents = service.NewIncidents()
    service.start_burner(BURN)
    grow = 'python3 -c "import time; b = b\\\\"x\\\\" * (48 << 20); time.sleep(9999)"'
    service.start_unit(GROW, grow, MemoryMax="64M")


@check("the kernel has the limits where this hierarchy keeps them")
def _():
    if service.V1:
        equal(read(f"/sys/fs/cgroup/cpu/system.slice/{BURN}/cpu.cfs_quota_us"), "20000", "the quota")
        equal(read(f"/sys/fs/cgroup/memory/system.slice/{GROW}/memory.limit_in_bytes"), str(LIMIT_BYTES), "the limit")
    else:
        equal(read(f"/sys/fs/cgroup/system.slice/{BURN}/cpu.max"), "20000 100000", "the quota")
        equal(read(f"/sys/fs/cgroup/system.slice/{GROW}/memory.max"), str(LIMIT_BYTES), "the limit")


@check("the one that burns is caught at all of its quota")
def _():
    caught = incidents.wait(rule_name="vm-cpu", unit=BURN)
    within(caught["rule"]["value"], 85, 115, "percent of the quota")
    equal(caught["limits"]["cpu_ns_per_second"], QUOTA_NS, "the limit it is a share of")


@check("that it is throttled is caught")
def _():
    caught = incidents.wait(rule_name="vm-throttled", unit=BURN)
    within(caught["rule"]["value"], 50, 100, "percent of the periods")


@check("the one that allocates is caught before it reaches its limit")
def _():
    caught = incidents.wait(rule_name="vm-memory", unit=GROW)
    within(caught["rule"]["value"], 75, 100, "percent of the limit")
    equal(caught["limits"]["memory_bytes"], LIMIT_BYTES, "the limit it is a share of")


@check("its neighbours are not caught")
def _():
    equal(incidents.all(rule_name="vm-memory", unit=BURN), [], "incidents for memory of the one that burns")
    equal(incidents.all(rule_name="vm-cpu", unit=GROW), [], "incidents for CPU of the one that allocates")


@check("pressure is caught where the kernel accounts for it, and unavailable where it does not")
def _():
    if service.V1:
        judged = eventually("a judgement", lambda: service.row(BURN, "vm-pressure"))
        equal((judged["available"], judged["reason"]), (False, "unavailable"), "available, reason")
    else:
        within(incidents.wait(rule_name="vm-pressure", unit=BURN)["rule"]["value"], 30, 100, "percent of the time")


@check("they end")
def _():
    for unit in BURN, GROW:
        service.stop_unit(unit)
        eventually("the target is gone", lambda: not service.target(unit))
