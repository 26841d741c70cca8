"""Units by what systemd says of them: templates, aliases, cgroups that are not named after them, restarts, and a bus that goes and comes."""

import json
import os
import signal

import service
from harness import check, equal, eventually, expect, run

ONE, TWO, THREE = (f"system-vm.slice/vm@{name}.service" for name in ("one", "two", "three"))
REAL, ALIAS, GHOST, CPU = "vm-real.service", "vm-alias.service", "vm-ghost.service", "cpu.service"
SLEEP = "[Service]\nExecStart=/bin/sleep 9999\nCPUAccounting=yes\nMemoryAccounting=yes\n"
journal = None


def configure():
    targets = [{"name": "instances", "unit": "vm@*.service"}, {"name": "alias", "unit": ALIAS},
               {"name": "ghost", "unit": GHOST}, {"name": "cpu", "unit": CPU},
               {"name": "sleepers", "unit": ALIAS, "per": "process"}]
    rules = [{"name": "vm-memory", "metric": "memory_bytes", "above": "900MiB", "window": "2s"}]
    sampling = {**service.SAMPLING, "rescan_interval": "60s"}  # what is found meanwhile was told
    service.CONFIG.write_text(json.dumps({"sampling": sampling, "incidents": service.INCIDENT, "ring": service.RING,
                                          "targets": targets, "rules": rules}))


def entry_of(unit):
    found = service.target(unit)
    return found and found["entry"]


def until_entry(unit, entry):
    eventually(f"{unit} is a target of {entry}", lambda: entry_of(unit) == entry)


def sleepers():
    return [found["pid"] for found in service.status()["targets"] if found["entry"] == "sleepers"]


@check("units that run are targets: an instance by a glob, and one by its alias")
def _():
    global journal
    (service.UNITS / "vm@.service").write_text(SLEEP)
    (service.UNITS / REAL).write_text(SLEEP + "Restart=always\nRestartSec=100ms\n")
    (service.UNITS / CPU).write_text(SLEEP)
    (service.UNITS / ALIAS).symlink_to(service.UNITS / REAL)
    run("systemctl", "daemon-reload")
    run("systemctl", "start", "vm@one.service", REAL)
    run("systemctl", "stop", service.UNIT)
    journal = service.Since()
    configure()
    service.restart()
    until_entry(ONE, "instances")
    until_entry(REAL, "alias")
    eventually("its process is one", lambda: sleepers() == [int(service.show("MainPID", unit=REAL))])


@check("the bus is heard by the service with all that it is denied")
def _():
    found = eventually("systemd is asked", lambda: service.status().get("units", {}).get("source") == "systemd" and service.status())
    equal([(each["name"], each["why"]) for each in found["units"]["missing"]], [(GHOST, "there is no such unit")], "missing")
    real = next(each for each in found["units"]["list"] if each["name"] == REAL)
    equal(real["cgroup"], f"/system.slice/{REAL}", "its cgroup")
    equal(real["main_pid"], int(service.show("MainPID", unit=REAL)), "its process")
    equal(real["invocation_id"], service.show("InvocationID", unit=REAL), "its start")


@check("a unit that does not exist is said once")
def _():
    entry = journal.wait("UNIT_MISSING", SPIKEWATCH_STATE="begin")
    expect(GHOST in entry["MESSAGE"], entry["MESSAGE"])
    run("systemctl", "reload", service.UNIT)
    run("systemctl", "daemon-reload")
    service.status()
    equal(len(journal.entries("UNIT_MISSING")), 1, "entries")


@check("units that start while it runs are targets without a scan, also where the cgroup has another name")
def _():
    scans = service.status()["discovery"]["scans"]
    run("systemctl", "start", "vm@two.service", CPU)
    until_entry(TWO, "instances")
    until_entry("_" + CPU, "cpu")
    expect(service.status()["discovery"]["scans"] <= scans + 2, "it was found by scans")


@check("the unit that did not exist is watched when it is there, and said")
def _():
    service.start_unit(GHOST, "exec sleep 9999")
    until_entry(GHOST, "ghost")
    journal.wait("UNIT_MISSING", SPIKEWATCH_STATE="end")


@check("a restart is followed")
def _():
    before = int(service.show("MainPID", unit=REAL))
    restarts = service.status()["units"]["restarts"]
    os.kill(before, signal.SIGKILL)
    eventually("it runs again", lambda: int(service.show("MainPID", unit=REAL)) not in (0, before))
    eventually("it was noticed", lambda: service.status()["units"]["restarts"] > restarts)
    until_entry(REAL, "alias")
    eventually("its process is another", lambda: sleepers() == [int(service.show("MainPID", unit=REAL))])
    real = next(each for each in service.status()["units"]["list"] if each["name"] == REAL)
    equal(real["restarts"], 1, "restarts by systemd")


def stop_and_start():
    run("systemctl", "stop", REAL)
    eventually("it is no target", lambda: not entry_of(REAL))
    run("systemctl", "start", REAL)
    until_entry(REAL, "alias")


@check("after systemd has executed itself anew, units are still heard of")
def _():
    run("systemctl", "daemon-reexec")
    stop_and_start()
    run("systemctl", "start", "vm@three.service")
    until_entry(THREE, "instances")


@check("after the bus was restarted, too, and the journal is not full of it")
def _():
    connects = service.status()["units"]["connects"]
    run("systemctl", "restart", "dbus")
    eventually("there is another connection", lambda: service.status()["units"]["connects"] > connects)
    eventually("it is in use", lambda: service.status()["units"]["source"] == "systemd")
    stop_and_start()
    said = [entry["MESSAGE"] for entry in journal.entries() if "units are known" in entry["MESSAGE"]]
    expect(len(said) <= 4, f"{len(said)} entries: {said}")


@check("the units are gone again")
def _():
    for unit in "vm@one.service", "vm@two.service", "vm@three.service", REAL, GHOST, CPU:
        run("systemctl", "stop", unit)
    for name in "vm@.service", REAL, GHOST, CPU, ALIAS:
        (service.UNITS / name).unlink(missing_ok=True)
    run("systemctl", "daemon-reload")
    service.fresh()
