"""A changed configuration under a daemon that goes on."""

import re
import signal

import service
from harness import check, equal, eventually, expect, run, within

BURN = "vm-burn.service"
KEPT = service.cpu_rule()


def changing(percent):
    return service.rule("vm-changing", "cpu_cores", above=percent)


def reasons(rule_name):
    return service.row(BURN, rule_name)["reasons"]


def threshold():
    judged = service.row(BURN, "vm-changing")
    return judged and judged["percent"]


def reload_by_systemctl():
    run("systemctl", "reload", service.UNIT)


def reload_by_signal():
    service.send(signal.SIGHUP)


def refuse(text, reload, journal):
    """Has this configuration refused; returns the message."""
    service.CONFIG.write_text(text)
    reload()
    return journal.wait("RELOAD_REFUSED")["MESSAGE"]


@check("a rule has fired and is in its cooldown")
def _():
    service.fresh(KEPT, changing(8))
    service.start_burner(BURN)
    eventually("it fired", lambda: (service.row(BURN, "vm-cpu") or {}).get("fired") == 1)
    eventually("the other one judges", lambda: reasons("vm-changing").get("within-bounds"))


@check("systemctl reload changes a rule, and the process stays")
def _():
    pid, journal = service.pid(), service.Since()
    service.configure(KEPT, changing(7))
    reload_by_systemctl()
    equal(eventually("the rule changed", lambda: threshold() == 7), True, "the rule")
    equal(service.pid(), pid, "the process")
    journal.wait("RELOADED")


@check("SIGHUP does the same")
def _():
    pid, journal = service.pid(), service.Since()
    service.configure(KEPT, changing(6))
    reload_by_signal()
    eventually("the rule changed", lambda: threshold() == 6)
    equal(service.pid(), pid, "the process")
    journal.wait("RELOADED")


@check("a rule that did not change goes on: its cooldown, its count, its history")
def _():
    before = service.row(BURN, "vm-cpu")
    service.configure(KEPT, changing(5))
    reload_by_systemctl()
    after = service.row(BURN, "vm-cpu")
    equal((after["fired"], after["phase"]), (1, before["phase"]), "fired, phase")
    within(after["cooldown_left_ns"], 1, before["cooldown_left_ns"], "cooldown left")
    eventually("it judges", lambda: sum(reasons("vm-cpu").values()) > sum(before["reasons"].values()))
    equal(reasons("vm-cpu").get("warming-up"), before["reasons"].get("warming-up"), "windows of warm-up")


@check("the ring goes on without a gap")
def _():
    before = service.status()
    service.configure(KEPT, changing(4))
    reload_by_systemctl()
    after = eventually("ticks go on", lambda: (lambda now: now["ring"]["ticks"] > before["ring"]["ticks"] and now)(service.status()))
    expect(after["ring"]["history_ns"] > before["ring"]["history_ns"], "the history was cut")
    expect(after["daemon"]["uptime_ns"] > before["daemon"]["uptime_ns"], "the daemon began anew")
    equal(after["incidents"]["opened"], before["incidents"]["opened"], "incidents")


@check("what a reload adds is watched and judged")
def _():
    added = service.rule("vm-added", "cpu", percent="50%")
    incidents = service.NewIncidents()
    service.configure(KEPT, changing(4), added)
    reload_by_systemctl()
    incidents.wait(rule_name="vm-added", unit=BURN)


@check("a broken file makes systemctl reload fail, and the journal says where it is broken")
def _():
    pid, journal = service.pid(), service.Since()
    said = refuse('{\n\t"rules": [ oops ]\n}\n', lambda: run("systemctl", "reload", service.UNIT, fails=True), journal)
    expect(re.search(r"50-vm\.json:2:1[0-9]: ", said), f"no place in: {said}")
    equal((service.active(), service.pid(), threshold()), (True, pid, 4), "active, process, rule")


@check("a change that only a restart can make does, too")
def _():
    journal = service.Since()
    text = service.config_text([KEPT, changing(3)], ring={"size": "32MiB"})
    said = refuse(text, lambda: run("systemctl", "reload", service.UNIT, fails=True), journal)
    expect(re.search(r"ring\.size: .*16 MiB in force, 32 MiB wanted.*restart", said), f"not its key and remedy: {said}")
    equal((service.active(), threshold()), (True, 4), "active, rule")


@check("SIGHUP with a broken file: it says so and goes on")
def _():
    pid, journal = service.pid(), service.Since()
    said = refuse('{ "sampling": { "interval": 10 } }', reload_by_signal, journal)
    expect(re.search(r"50-vm\.json:1:\d+: sampling\.interval", said), f"no place in: {said}")
    equal((service.active(), service.pid(), threshold()), (True, pid, 4), "active, process, rule")


@check("the file put right, a reload works again")
def _():
    service.configure(KEPT, changing(3))
    reload_by_systemctl()
    eventually("the rule changed", lambda: threshold() == 3)
    service.stop_unit(BURN)
