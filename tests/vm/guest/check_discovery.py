"""Units that come and go while it runs."""

import service
from harness import check, eventually, expect, run

UNIT = "vm-late.service"


@check("a unit that is started later is found")
def _():
    service.fresh()
    journal = service.Since()
    run("systemd-run", f"--unit={UNIT}", "sleep", "9999")
    eventually("it is a target", lambda: service.target(UNIT))
    journal.wait("TARGET_FOUND", SPIKEWATCH_TARGET=service.target_name(UNIT))


@check("it is gone after its end")
def _():
    journal = service.Since()
    run("systemctl", "stop", UNIT)
    eventually("it is no target", lambda: not service.target(UNIT))
    journal.wait("TARGET_GONE", SPIKEWATCH_TARGET=service.target_name(UNIT))
