"""Units that come and go while it runs."""

import service
from harness import check, eventually

UNIT = "vm-late.service"


@check("a unit that is started later is found")
def _():
    service.fresh()
    journal = service.Since()
    service.start_idle(UNIT)
    service.until_watched(UNIT)
    journal.wait("TARGET_FOUND", SPIKEWATCH_TARGET=service.target_name(UNIT))


@check("it is gone after its end")
def _():
    journal = service.Since()
    service.stop_unit(UNIT)
    eventually("it is no target", lambda: not service.target(UNIT))
    journal.wait("TARGET_GONE", SPIKEWATCH_TARGET=service.target_name(UNIT))
