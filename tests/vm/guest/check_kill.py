"""A daemon that is killed."""

import os
import signal
import time

import service
from harness import check, equal, eventually, expect, run, within

IDLE = "vm-idle.service"
killed_at = incidents = incident = journal = None


@check("one that is killed is started again")
def _():
    global killed_at, incidents, journal
    service.start_idle(IDLE)
    service.fresh()
    service.until_watched(IDLE)
    # Two seconds of history, so that there is something to save.
    eventually("history", lambda: service.status()["ring"]["history_ns"] > 2e9)
    journal, incidents, killed = service.Since(), service.NewIncidents(), service.pid()
    killed_at = time.time()
    os.kill(killed, signal.SIGKILL)
    eventually("another process", lambda: service.pid() not in (0, killed))
    service.until_answers()


@check("what it had recorded is an incident, up to the moment of the kill")
def _():
    global incident
    incident = incidents.wait(kind="recovered")
    last = (incident["time"]["wall_ns"] + incident["coverage"]["got_to_ns"]) / 1e9
    within(killed_at - last, -1, 3, "seconds between the last sample and the kill")
    expect(incident["coverage"]["samples"] > 0, "it has no samples")


@check("the journal says so")
def _():
    entry = journal.wait("RING_RECOVERED")
    equal(entry.get("SPIKEWATCH_INCIDENT"), incident["id"], "the incident it names")
    service.stop_unit(IDLE)
