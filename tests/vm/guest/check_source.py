"""CPU time from the scheduler: on this kernel the BPF program loads, counts, and agrees with the clocks of the processes."""

import json
import os
import pathlib

import service
from harness import check, eventually, expect, run

BURNER = "vm-burn.service"
SOURCE = {**service.SAMPLING, "source": "kernel"}


# Totals are compared with clocks while a process rests.
RESTING = "vm-rest.service"
PROCESSES = {"sampling": SOURCE, "incidents": service.INCIDENT, "ring": service.RING, "rules": [],
             "targets": [{"name": "resting", "comm": "python3", "per": "process"},
                         {"name": "rest-unit", "unit": RESTING}, {"name": "above", "cgroup": "/system.slice"}]}
CPU1 = pathlib.Path("/sys/devices/system/cpu/cpu1/online")


def cpu_time():
    return service.status()["cpu_time"]


def compared(processes=10, cgroups=3):
    """The state, when totals were compared with clocks and files often enough, or when the source was given up."""
    state = cpu_time()
    done = state["compared"] >= processes and state["cgroups_compared"] >= cgroups
    return state if state["source"] != "kernel" or state["cgroups_given_up"] > 0 or done else None


def agrees(state):
    expect(state["source"] == "kernel", f"it is not used: {state}")
    expect(state["detached"] == 0 and state["refused"] == 0, f"{state}")
    expect(state["cgroups"] == 2 and state["cgroups_given_up"] == 0, f"of cgroups it does not agree with files: {state}")


@check(f"on Linux {os.uname().release} CPU time comes from the scheduler, and agrees with clocks and the files of cgroups")
def _():
    service.start_transient(RESTING, "exec python3 -c \"import time\nwhile True: time.sleep(0.2), sum(range(50000))\"")
    service.fresh(sampling=SOURCE)
    service.CONFIG.write_text(json.dumps(PROCESSES))
    service.restart()
    agrees(eventually("ten comparisons with clocks, and three with files", compared))


@check("a CPU that goes and comes back takes nothing along")
def _():
    CPU1.write_text("0")
    before = cpu_time()
    agrees(eventually("comparisons without the CPU", lambda: compared(before["compared"] + 5, before["cgroups_compared"] + 2)))
    CPU1.write_text("1")
    before = cpu_time()
    agrees(eventually("comparisons with it", lambda: compared(before["compared"] + 5, before["cgroups_compared"] + 2)))
    service.stop_unit(RESTING)


@check("a spike is caught with it")
def _():
    incidents = service.NewIncidents()
    service.fresh(service.cpu_rule(percent="30%"), sampling=SOURCE)
    service.start_burner()
    made = incidents.wait(rule_name="vm-cpu")
    expect(cpu_time()["source"] == "kernel", f"it is not used: {cpu_time()}")
    cores = made["peaks"]["cpu_cores"]
    expect(0.1 <= cores <= 0.35, f"under a quota of a fifth of a core it took {cores} cores")
    service.stop_unit(BURNER)


@check("nothing of it stays in the kernel when the daemon ends")
def _():
    run("systemctl", "stop", service.UNIT)
    expect(not os.path.exists("/sys/fs/bpf") or not os.listdir("/sys/fs/bpf"), "something is pinned")
    run("systemctl", "start", service.UNIT)
    service.until_answers()
