"""Call stacks: refused by the unit as it is shipped, recorded with the drop-in that the documents show."""

import gzip
import pathlib
import re

import service
from harness import check, expect, run

DOCUMENT = "/usr/share/doc/spikewatch/configuration.md"
MODE = {"mode": "frame-pointers"}
BURNER = "vm-burn.service"


def drop_in_of_the_document():
    packed = pathlib.Path(DOCUMENT + ".gz")
    text = gzip.open(packed, "rt").read() if packed.exists() else pathlib.Path(DOCUMENT).read_text()
    return re.search(r"```ini\n(\[Service\]\n[^`]*PERFMON[^`]*)```", text).group(1)


@check("without the capability there are none, and status says why")
def _():
    service.fresh(stacks=MODE)
    stacks = service.status()["stacks"]
    expect(not stacks["recorded"] and "perf_event" in stacks["why"], f"stacks: {stacks}")


@check("with the drop-in of the documents an incident has them")
def _():
    run("sysctl", "kernel.perf_event_paranoid=2")
    service.drop_in(drop_in_of_the_document())
    service.fresh(stacks=MODE)
    stacks = service.status()["stacks"]
    expect(stacks["recorded"], f"stacks: {stacks}")
    service.start_burner()
    service.until_watched(BURNER)
    incidents = service.NewIncidents()
    run("spikewatch", "trigger")
    made = incidents.wait(kind="manual")
    captures = {capture["name"]: capture for capture in made["captures"]}
    expect(captures["functions"]["status"] == "ok", f"captures: {captures}")
    shown = run("spikewatch", "show", made["id"])
    expect("Hottest functions" in shown, "not shown")
    service.stop_unit(BURNER)
    service.drop_in("")
