"""The service as these checks see it: its configuration, its process, what it says, what it wrote."""

import json
import os
import pathlib
import re
import signal
import time

from harness import eventually, expect, run

UNIT = "spikewatchd.service"
SHIPPED = pathlib.Path("/etc/spikewatch/spikewatch.json")
CONFIG = pathlib.Path("/etc/spikewatch/spikewatch.d/50-vm.json")
STATE = pathlib.Path("/var/lib/spikewatch")
INCIDENTS = STATE / "incidents"
UNITS = pathlib.Path("/run/systemd/system")  # gone with the machine, and not among the files of a package

MESSAGES = dict(re.findall(r'X\((\w+), "(\w{32})"\)', pathlib.Path("/vm/messages.h").read_text()))
V1 = not os.path.exists("/sys/fs/cgroup/cgroup.controllers")

# Slower than the default, since all of this machine is emulated, and with short incidents.
SAMPLING = {"interval": "20ms", "cgroup_interval": "100ms", "rescan_interval": "500ms", "cpu_budget": "100%"}
INCIDENT = {"before": "5s", "after": "1s", "min_free": "8MiB"}
RING = {"size": "16MiB"}


def rule(name, metric, **more):
    """Judged over the units vm-*.service; two windows go by before the first judgement, so that what is judged is under way."""
    return {"name": name, "targets": ["vm"], "metric": metric, "window": "2s", "warmup": 2, "history": 2, "cooldown": "1h", **more}


def cpu_rule(**more):
    return rule("vm-cpu", "cpu", **{"percent": "80%", **more})


def config_text(rules, **sections):
    document = {"sampling": SAMPLING, "incidents": INCIDENT, "ring": RING, **sections,
                "targets": [{"name": "vm", "unit": "vm-*.service"}], "rules": rules}
    return json.dumps(document, indent="\t")


def configure(*rules, **sections):
    CONFIG.write_text(config_text(list(rules) or [cpu_rule()], **sections))


# ---- the process ----


def show(*properties, unit=UNIT):
    """Properties of the unit, as texts; of one property, its text."""
    lines = run("systemctl", "show", unit, *(f"--property={name}" for name in properties)).splitlines()
    values = dict(line.split("=", 1) for line in lines)
    return values[properties[0]] if len(properties) == 1 else [values[name] for name in properties]


def pid():
    return int(show("MainPID"))


def send(number):
    os.kill(pid(), number)


def active():
    return show("ActiveState") == "active"


def answers():
    try:
        return status()
    except Exception:
        return None


def until_answers():
    return eventually("the daemon answers", lambda: active() and answers())


def restart():
    """Anew, however often it was started lately."""
    run("systemctl", "reset-failed", UNIT)
    run("systemctl", "restart", UNIT)
    until_answers()


def fresh(*rules, **sections):
    """A daemon with this configuration that remembers nothing."""
    run("systemctl", "stop", UNIT)
    (STATE / "state.json").unlink(missing_ok=True)
    configure(*rules, **sections)
    restart()


def drop_in(text):
    """A drop-in for the unit; an empty one takes it away."""
    directory = UNITS / f"{UNIT}.d"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "vm.conf").write_text(f"[Service]\n{text}\n")
    run("systemctl", "daemon-reload")


# ---- what it says ----


def status():
    return json.loads(run("spikewatch", "status", "--json"))


def target_name(unit):
    return f"/system.slice/{unit}"


def target(unit, document=None):
    """The target that the cgroup of the unit is, in a status document; None if it is not there."""
    for found in (document or status())["targets"]:
        if found["name"] == target_name(unit):
            return found
    return None


def row(unit, rule_name, document=None):
    """The rule on the target; None if either is not there or has not judged yet."""
    found = target(unit, document)
    for judged in found["rules"] if found else []:
        if judged["rule"] == rule_name and "reason" in judged:
            return judged
    return None


class Since:
    """The journal of the service from the moment on at which this is made."""

    def __init__(self):
        self.time = time.time()

    def entries(self, message=None, **fields):
        matches = [f"{name}={value}" for name, value in fields.items()]
        if message:
            matches.append(f"MESSAGE_ID={MESSAGES[message]}")
        lines = run("journalctl", "--output=json", "--all", "--no-pager", f"--since=@{int(self.time)}", f"--unit={UNIT}", *matches)
        found = [json.loads(line) for line in lines.splitlines()]
        return [entry for entry in found if int(entry["__REALTIME_TIMESTAMP"]) >= self.time * 1e6]

    def wait(self, message, limit=120, **fields):
        """The first entry of this kind with these fields."""
        return eventually(f"an entry {message} {fields or ''}", lambda: self.entries(message, **fields), limit)[0]


# ---- what it wrote ----


def incident_names():
    names = {path.name for path in INCIDENTS.iterdir()} if INCIDENTS.exists() else set()
    return {name for name in names if not name.endswith(".tmp") and not name.startswith(".")}


def unfinished():
    return [path.name for path in INCIDENTS.glob("*.tmp")]


def read_incident(name):
    return json.loads((INCIDENTS / name / "incident.json").read_text())


def firings(incident):
    """Values by the names of the rules that fired: the one that opened it, and those that were merged into it."""
    opened = incident["rule"]
    return {opened["name"]: opened["value"], **{merged["rule"]: merged["value"] for merged in incident["merged"]}}


class NewIncidents:
    """Incidents that are sealed from now on."""

    def __init__(self):
        self.before = incident_names()

    def all(self, kind="rule", rule_name=None, unit=None):
        found = [read_incident(name) for name in sorted(incident_names() - self.before)]
        return [each for each in found
                if each["kind"] == kind and (not rule_name or rule_name in firings(each))
                and (not unit or each["target"]["name"] == target_name(unit))]

    def wait(self, kind="rule", rule_name=None, unit=None):
        found = eventually(f"an incident, {kind} {rule_name or ''} {unit or ''}", lambda: self.all(kind, rule_name, unit))[0]
        run("spikewatch", "verify", "-q", str(INCIDENTS / found["id"]))
        return found


# ---- what is watched ----


def start_unit(name, command, **properties):
    """A service that runs this command in sh. Its file is in /run."""
    lines = "\n".join(f"{key}={value}" for key, value in properties.items())
    (UNITS / name).write_text(f"[Service]\nExecStart=/bin/sh -c '{command}'\n{lines}\n")
    run("systemctl", "daemon-reload")
    run("systemctl", "start", name)


def start_transient(name, command, **properties):
    """The same without a file, which spares the seconds that systemd takes to read all units again."""
    run("systemd-run", "--quiet", f"--unit={name}", *(f"--property={key}={value}" for key, value in properties.items()),
        "/bin/sh", "-c", command)


def start_burner(name="vm-burn.service"):
    start_transient(name, "while :; do :; done", CPUQuota="20%")


def start_idle(name="vm-idle.service"):
    start_transient(name, "exec sleep 9999")


def until_watched(name):
    eventually(f"{name} is a target", lambda: target(name))


def stop_unit(name):
    run("systemctl", "stop", name)
    (UNITS / name).unlink(missing_ok=True)
