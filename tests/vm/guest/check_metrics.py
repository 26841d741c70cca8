"""Sockets that systemd holds: metrics for a service that has no network, and requests."""

import os
import re
import urllib.request

import service
from harness import check, equal, eventually, expect, run

METRICS, CONTROL = "spikewatchd-metrics.socket", "spikewatchd.socket"


def address():
    return re.search(r"(\S+) \(Stream\)", service.show("Listen", unit=METRICS))[1]


def scrape():
    with urllib.request.urlopen(f"http://{address()}/metrics", timeout=60) as answer:
        return answer.status, answer.headers["Content-Type"], answer.read().decode()


@check("the service has no network")
def _():
    service.fresh()
    expect(os.readlink(f"/proc/{service.pid()}/ns/net") != os.readlink("/proc/self/ns/net"), "it has that of the machine")


@check("with its socket enabled, metrics are answered over loopback")
def _():
    run("systemctl", "enable", METRICS)
    run("systemctl", "stop", service.UNIT)
    run("systemctl", "start", METRICS, service.UNIT)
    service.until_answers()
    status, kind, text = scrape()
    equal(status, 200, "status")
    expect(re.search(r"^spikewatch_\w+(\{.*\})? [0-9.e+-]+$", text, re.M), f"no figure in: {text[:200]}")


@check("metrics are answered after a restart, by the same socket")
def _():
    service.restart()
    equal(scrape()[0], 200, "status")


@check("a request at the control socket starts a daemon that is not running")
def _():
    run("systemctl", "enable", CONTROL)
    run("systemctl", "stop", service.UNIT)
    run("systemctl", "start", CONTROL)
    expect(not service.active(), "it is running already")
    eventually("an answer", service.answers)
    expect(service.active(), "it is not active")


@check("without the sockets again")
def _():
    run("systemctl", "disable", "--now", METRICS, CONTROL)
    service.restart()
