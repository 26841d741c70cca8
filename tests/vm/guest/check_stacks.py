"""Call stacks: by the unit as it is shipped, once the kernel allows them; until then refused, and said."""

import service
from harness import check, expect, run

BURNER = "vm-burn.service"


def journal_says_why():
    return run("journalctl", "-u", "spikewatchd", "-o", "cat", "--no-pager").count("no stacks: ")


@check("where the kernel allows nobody there are none, and journal and status say why")
def _():
    run("sysctl", "kernel.perf_event_paranoid=3")
    before = journal_says_why()
    service.fresh(stacks="dwarf")
    stacks = service.status()["stacks"]
    expect(not stacks["recorded"] and "perf_event" in stacks["why"], f"stacks: {stacks}")
    expect(journal_says_why() == before + 1, "the journal does not say it once")


@check("where the capability is enough an incident has them, by default")
def _():
    run("sysctl", "kernel.perf_event_paranoid=2")
    service.fresh()
    stacks = service.status()["stacks"]
    expect(stacks["recorded"] and stacks["everybody"] and stacks["dwarf"] and stacks["page_faults"], f"stacks: {stacks}")
    service.start_burner()
    service.until_watched(BURNER)
    incidents = service.NewIncidents()
    run("spikewatch", "trigger")
    made = incidents.wait(kind="manual")
    captures = {capture["name"]: capture for capture in made["captures"]}
    expect(captures["functions"]["status"] == "ok", f"captures: {captures}")
    shown = run("spikewatch", "show", "--full", made["id"])
    expect("Hottest functions" in shown, "not shown")
    service.stop_unit(BURNER)


@check("what they do not need is off: a mode, and no rings")
def _():
    service.fresh(stacks="off")
    stacks = service.status()["stacks"]
    expect(not stacks["recorded"] and stacks["why"] == "", f"stacks: {stacks}")
