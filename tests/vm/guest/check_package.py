"""Upgrade, removal, purge."""

import os
import pathlib

import service
from check_install import FILES_BEFORE, files
from harness import check, equal, expect, run

kept = None


def contents():
    """Configuration and incidents."""
    places = [pathlib.Path("/etc/spikewatch"), service.INCIDENTS]
    return {str(path): path.read_bytes() for place in places for path in place.rglob("*") if path.is_file()}


@check("an upgrade restarts the service, with configuration and incidents as they were")
def _():
    global kept
    service.fresh()
    incidents = service.NewIncidents()
    run("spikewatch", "trigger")
    incidents.wait(kind="manual")
    kept, pid = contents(), service.pid()
    run("dpkg", "-i", "/vm/next.deb")
    service.until_answers()
    expect(service.pid() != pid, "it was not restarted")
    now = contents()
    equal([path for path, text in kept.items() if now.get(path) != text], [], "files that changed or are gone")


def running():
    """Command lines of processes that run a program of the package, removed or not."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if "/spikewatch" in os.readlink(process / "exe"):
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            pass  # a kernel thread, or ended
    return found


@check("removal stops the service and keeps configuration and incidents")
def _():
    run("dpkg", "--remove", "spikewatch")
    equal(service.show("ActiveState"), "inactive", "state")
    expect(not os.path.exists("/usr/bin/spikewatchd"), "the program is still there")
    equal(running(), [], "processes of it that run")
    equal([path for path in kept if not os.path.exists(path)], [], "files that are gone")


@check("purge leaves nothing")
def _():
    run("dpkg", "--purge", "spikewatch")
    with open(FILES_BEFORE) as before:
        equal(sorted(set(files()) - set(before.read().splitlines())), [], "files that were not there before")
    expect(not os.path.exists("/run/spikewatch"), "/run/spikewatch is still there")
