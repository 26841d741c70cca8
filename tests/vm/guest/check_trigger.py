"""Incidents that somebody asks for."""

import signal

import service
from harness import check, expect, run

IDLE = "vm-idle.service"


@check("spikewatch trigger makes one")
def _():
    service.start_idle(IDLE)
    service.fresh()
    service.until_watched(IDLE)
    incidents = service.NewIncidents()
    said = run("spikewatch", "trigger")
    made = incidents.wait(kind="manual")
    expect(made["coverage"]["samples"] > 0, "it has no samples")
    # The number at the end of the name is chosen when it is sealed.
    expect(made["id"].rsplit("-", 1)[0] in said, f"its name is not in what the command said: {said}")


@check("SIGUSR1 makes one")
def _():
    incidents = service.NewIncidents()
    service.send(signal.SIGUSR1)
    incidents.wait(kind="manual")


@check("both are seen by list and show")
def _():
    service.stop_unit(IDLE)
    last = max(service.incident_names())
    expect(last in run("spikewatch", "list"), "not in the list")
    expect("manual" in run("spikewatch", "show", "--json", last), "not shown as manual")
