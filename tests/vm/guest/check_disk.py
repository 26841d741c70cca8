"""A state directory that is full, or cannot be written."""

import errno

import service
from harness import Failed, check, equal, eventually, run

FILL = service.STATE / "fill"
journal = before = None


def ask():
    """Asks for an incident. Refused at once, or given up when it is written: both are good; that nothing is left is what counts."""
    try:
        return run("spikewatch", "trigger")
    except Failed:
        return None


def nothing_is_left():
    eventually("no incident is open", lambda: service.status()["incidents"]["open"] == 0)
    equal((service.incident_names(), service.unfinished()), (before, []), "incidents, unfinished ones")


def one_more():
    incidents = service.NewIncidents()
    eventually("a request is granted", ask)
    incidents.wait(kind="manual")


@check("a small file system of its own for incidents")
def _():
    global before
    run("systemctl", "stop", service.UNIT)
    run("mount", "-t", "tmpfs", "-o", "size=48M,mode=0750,uid=spikewatch,gid=spikewatch", "tmpfs", str(service.STATE))
    service.fresh()
    one_more()
    before = service.incident_names()


@check("full to the brim: it says so, goes on, and leaves nothing half done")
def _():
    global journal
    journal = service.Since()
    pid = service.pid()
    run("sh", "-c", f"cat /dev/zero >{FILL} 2>/dev/null || true")
    ask()
    journal.wait("DISK_SHORT", SPIKEWATCH_STATE="begin")
    equal((service.active(), service.pid()), (True, pid), "active, process")
    nothing_is_left()


@check("room again: it works again, and says so")
def _():
    FILL.unlink()
    one_more()
    journal.wait("DISK_SHORT", SPIKEWATCH_STATE="end")


@check("read-only: it says so, goes on, and leaves nothing half done")
def _():
    global journal, before
    before, journal = service.incident_names(), service.Since()
    pid = service.pid()
    run("mount", "-o", "remount,ro", str(service.STATE))
    ask()
    equal(journal.wait("INCIDENT_FAILED", SPIKEWATCH_STATE="begin")["ERRNO"], str(errno.EROFS), "the error")
    equal((service.active(), service.pid()), (True, pid), "active, process")
    nothing_is_left()


@check("writable again: it works again, and says so")
def _():
    run("mount", "-o", "remount,rw", str(service.STATE))
    one_more()
    journal.wait("INCIDENT_FAILED", SPIKEWATCH_STATE="end")


@check("back to the old file system")
def _():
    run("systemctl", "stop", service.UNIT)
    run("umount", str(service.STATE))
    service.fresh()
