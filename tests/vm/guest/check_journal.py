"""The journal as somebody searches it."""

import service
from harness import check, equal, eventually, expect, run

BURN = "vm-burn.service"
journal = caught = None


def fields(message, **matches):
    return journal.wait(message, **matches)


@check("what a rule did is found by the fields of its entries")
def _():
    global journal, caught
    journal, incidents = service.Since(), service.NewIncidents()
    service.fresh()
    service.start_burner(BURN)
    caught = incidents.wait(rule_name="vm-cpu", unit=BURN)
    fired = fields("RULE_FIRED", SPIKEWATCH_RULE="vm-cpu", SPIKEWATCH_TARGET=service.target_name(BURN))
    equal(fired["PRIORITY"], "5", "priority of RULE_FIRED")
    fields("INCIDENT_SEALED", SPIKEWATCH_RULE="vm-cpu", SPIKEWATCH_INCIDENT=caught["id"])
    service.stop_unit(BURN)


@check("journalctl -x explains an entry")
def _():
    said = run("journalctl", "--no-pager", "-x", "--lines=20", f"--unit={service.UNIT}",
               f"MESSAGE_ID={service.MESSAGES['RULE_FIRED']}")
    expect("\n-- " in "\n" + said.replace("░░ ", "-- "), f"no text of the catalog: {said}")


@check("each kind of entry is in the catalog")
def _():
    ids = run("journalctl", "--list-catalog", "--no-pager").lower()
    missing = [name for name, number in service.MESSAGES.items() if number not in ids]
    equal(missing, [], "kinds without text")


@check("errors and warnings have their priority")
def _():
    service.CONFIG.write_text("{ oops }")
    run("systemctl", "reload", service.UNIT, fails=True)
    equal(fields("RELOAD_REFUSED")["PRIORITY"], "3", "priority of RELOAD_REFUSED")
    service.configure()
    run("systemctl", "reload", service.UNIT)
