"""Stop and start: what is open is sealed, what must be remembered is."""

import service
from harness import check, equal, eventually, expect, run, within

BURN = "vm-burn.service"


@check("a clean stop seals an open incident with what there is")
def _():
    service.fresh(incidents={**service.INCIDENT, "after": "1h"})
    incidents = service.NewIncidents()
    service.start_burner(BURN)
    eventually("an incident is open", lambda: service.status()["incidents"]["open"] > 0)
    run("systemctl", "stop", service.UNIT)
    caught = incidents.wait(rule_name="vm-cpu", unit=BURN)
    expect(caught["coverage"]["samples"] > 0, "it has no samples")
    expect(caught["coverage"]["got_to_ns"] < caught["coverage"]["want_after_ns"], "it claims the whole hour")
    equal(service.unfinished(), [], "unfinished incidents")
    equal(service.show("Result", "ExecMainStatus"), ["success", "0"], "result, exit status")


@check("the same rule does not fire again within its cooldown after a restart")
def _():
    service.configure()
    service.restart()
    judged = eventually("it judges", lambda: (service.row(BURN, "vm-cpu") or {}).get("candidate") and service.row(BURN, "vm-cpu"))
    equal((judged["phase"], judged["reason"], judged["fired"]), ("cooldown", "cooldown", 1), "phase, reason, fired")
    within(judged["cooldown_left_ns"], 50 * 60e9, 60 * 60e9, "cooldown left")
    equal(service.status()["incidents"]["opened"], 0, "incidents")


@check("a stop and a start say so in the journal")
def _():
    journal = service.Since()
    service.restart()
    journal.wait("STOPPED")
    journal.wait("STARTED")
    service.stop_unit(BURN)
