"""Services with limits of their own, caught at the right share of them, whichever hierarchy holds the limits."""

import service
from harness import check, equal, eventually, within

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


def value(rule_name, unit):
    """Of the firing of this rule, in an incident of its own or merged into another one of the same target."""
    return service.firings(incidents.wait(rule_name=rule_name, unit=unit))[rule_name]


@check("two services with limits, one that burns and one that allocates")
def _():
    global incidents
    service.fresh(*RULES)
    incidents = service.NewIncidents()
    service.start_unit(BURN, "while :; do :; done", CPUQuota="20%")
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


def share():
    """What the service takes of its quota, in the last window that was judged; 0 before."""
    judged = service.row(BURN, "vm-cpu")
    return judged["value"] or 0 if judged else 0


# An emulated machine that is short of CPUs lets a service overdraw its quota for a moment, which may be the one in which it is caught.
@check("the one that burns is caught at all of its quota")
def _():
    within(value("vm-cpu", BURN), 80, 250, "percent of the quota")
    eventually("a window in which it takes its quota", lambda: 85 <= share() <= 115)
    caught = incidents.wait(rule_name="vm-cpu", unit=BURN)
    equal(caught["limits"]["cpu_ns_per_second"], QUOTA_NS, "the limit it is a share of")


@check("that it is throttled is caught")
def _():
    within(value("vm-throttled", BURN), 50, 100, "percent of the periods")


@check("the one that allocates is caught before it reaches its limit")
def _():
    within(value("vm-memory", GROW), 75, 100, "percent of the limit")
    caught = incidents.wait(rule_name="vm-memory", unit=GROW)
    equal(caught["limits"]["memory_bytes"], LIMIT_BYTES, "the limit it is a share of")


@check("its neighbours are not caught")
def _():
    equal(incidents.all(rule_name="vm-memory", unit=BURN), [], "incidents for memory of the one that burns")
    equal(incidents.all(rule_name="vm-cpu", unit=GROW), [], "incidents for CPU of the one that allocates")


# With cgroup v1, systemd has its own hierarchy beside, which is v2: pressure is accounted for there.
@check("pressure is caught")
def _():
    within(value("vm-pressure", BURN), 30, 100, "percent of the time")


@check("they end")
def _():
    for unit in BURN, GROW:
        service.stop_unit(unit)
        eventually("the target is gone", lambda: not service.target(unit))
