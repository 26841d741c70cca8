"""The unit: who runs, with what rights, and what systemd does when it does not."""

import grp
import os
import pwd
import re
import signal
import stat
import time

import service
from harness import check, equal, eventually, expect, run, within

CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE = 1 << 2, 1 << 19
CAP_PERFMON = 1 << 38
CAP_BPF = 1 << 39

IDLE = "vm-idle.service"


def process(field):
    with open(f"/proc/{service.pid()}/status") as lines:
        return next(line.split(":")[1].split() for line in lines if line.startswith(field + ":"))


@check("it runs as its own user")
def _():
    user = pwd.getpwnam("spikewatch").pw_uid
    equal(process("Uid"), [str(user)] * 4, "the user")
    equal(process("Gid"), [str(grp.getgrnam("spikewatch").gr_gid)] * 4, "the group")


@check("it has three capabilities and no others")
def _():
    for kind in "CapEff", "CapPrm", "CapBnd":
        equal(int(process(kind)[0], 16), CAP_DAC_READ_SEARCH | CAP_SYS_PTRACE | CAP_PERFMON | CAP_BPF, kind)


@check("it cannot get more rights, and is confined to system calls")
def _():
    equal(process("NoNewPrivs"), ["1"], "NoNewPrivs")
    equal(process("Seccomp"), ["2"], "Seccomp")


@check("its files are for its group and nobody else")
def _():
    user = pwd.getpwnam("spikewatch").pw_uid
    for path, mode in (("/run/spikewatch", 0o750), ("/run/spikewatch/ring", 0o640), ("/run/spikewatch/control", 0o660),
                       ("/var/lib/spikewatch", 0o750), ("/var/lib/spikewatch/incidents", 0o750)):
        found = os.stat(path)
        equal(oct(stat.S_IMODE(found.st_mode)), oct(mode), path)
        equal(found.st_uid, user, f"owner of {path}")


@check("systemd-analyze security gives at most 1.5")
def _():
    said = run("systemd-analyze", "security", "--no-pager", service.UNIT)
    exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", said)
    within(float(exposure[1]), 0.0, 1.5, "exposure")


@check("it feeds the watchdog")
def _():
    service.drop_in("WatchdogSec=5s")
    service.restart()
    pid, restarts = service.show("MainPID", "NRestarts")
    time.sleep(13)  # two periods and a half
    equal(service.show("MainPID", "NRestarts", "ActiveState"), [pid, restarts, "active"], "process, restarts, state")


@check("one that hangs is killed by the watchdog and started again, and its ring becomes an incident")
def _():
    service.start_idle(IDLE)  # without a sample there is nothing to recover
    service.until_watched(IDLE)
    eventually("history", lambda: service.status()["ring"]["history_ns"] > 1e9)
    journal, incidents, hung = service.Since(), service.NewIncidents(), service.pid()
    os.kill(hung, signal.SIGSTOP)
    eventually("another process", lambda: service.pid() not in (0, hung))
    service.until_answers()
    expect(any("atchdog" in entry["MESSAGE"] for entry in journal.entries()), "no word of the watchdog in the journal")
    incidents.wait(kind="recovered")
    service.stop_unit(IDLE)


@check("without the short watchdog again")
def _():
    service.drop_in("")
    service.restart()
    equal(service.show("WatchdogUSec"), "30s", "the watchdog")
