"""The package on a machine that has never seen it."""

import json
import service
from harness import check, equal, eventually, expect, run

FILES_BEFORE = "/run/vm-files-before"


def files():
    """Everything on the root file system but what any machine writes by itself."""
    passed_over = ["/vm", "/var/log", "/var/cache", "/var/tmp", "/tmp", "/var/lib/systemd", "/var/lib/dpkg", "/var/lib/apt"]
    prune = " -o ".join(f"-path {path}" for path in passed_over).split()
    return sorted(run("find", "/", "-xdev", "(", *prune, ")", "-prune", "-o", "-print").splitlines())


@check("this machine has the cgroups that it is there for")
def _():
    with open("/proc/cmdline") as line:
        equal(service.V1, "unified_cgroup_hierarchy=0" in line.read(), "cgroup v1")


@check("the package installs", vital=True)
def _():
    with open(FILES_BEFORE, "w") as out:
        out.write("\n".join(files()))
    run("dpkg", "-i", "/vm/spikewatch.deb")


@check("the service is enabled and active after that, with the configuration as shipped")
def _():
    equal(run("systemctl", "is-enabled", service.UNIT).strip(), "enabled", "the unit")
    service.until_answers()


@check("as shipped it watches the services of this machine")
def _():
    eventually("systemd-journald.service is a target", lambda: service.target("systemd-journald.service"))


@check("as shipped it has nothing to complain about but its speed")
def _():
    slow = {service.MESSAGES[kind] for kind in ("CAPTURE_RATE_LOW", "SLEEP_ERROR_HIGH", "COLLECTION_SLOW", "BUDGET_EXCEEDED", "PRIORITY_WITHDRAWN",
                                               "RULES_BEHIND")}
    lines = run("journalctl", "--output=json", f"--unit={service.UNIT}", "--priority=warning").splitlines()
    said = [json.loads(line) for line in lines]
    wrong = [entry["MESSAGE"] for entry in said if entry.get("MESSAGE_ID") not in slow]
    expect(not wrong, f"it said: {wrong}")


@check("a configuration of one's own goes into spikewatch.d")
def _():
    # The shipped file is left with nothing, so that its rules do not fire beside those of the checks.
    service.SHIPPED.write_text("{}\n")
    service.fresh()
    equal(service.status()["daemon"]["interval_ns"], 20_000_000, "the interval")
