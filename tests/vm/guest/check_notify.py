"""Being told of an incident by the shipped service, which has no network: a helper of systemd posts it, another one mails it."""

import http.server
import json
import os
import pathlib
import threading

import service
from harness import check, equal, eventually, expect, run

BURNER = "vm-burn.service"
ADDRESS = pathlib.Path("/etc/spikewatch/webhook.curl")
SENDMAIL = pathlib.Path("/usr/sbin/sendmail")
MAIL = service.STATE / "mail.txt"
WAYS = [{"name": "webhook", "socket": "/run/spikewatch-webhook", "retry": "1s"},
        {"name": "mail", "socket": "/run/spikewatch-mail", "retry": "1s",
         "input": "To: root\nSubject: [spikewatch] {headline}\n\nspikewatch show {incident}\n"}]
posted = []


class Server(http.server.BaseHTTPRequestHandler):
    """Refuses the first."""

    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"]))
        posted.append(text)
        self.send_response(503 if len(posted) == 1 else 200)
        self.end_headers()

    def log_message(self, *_):
        pass


@check("the helpers of the package are there, and off")
def _():
    for name in "webhook", "mail":
        equal(service.show("ActiveState", unit=f"spikewatch-{name}.socket"), "inactive", name)


@check("an incident is posted, once more when the server refuses it, and mailed")
def _():
    server = http.server.HTTPServer(("127.0.0.1", 8099), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    ADDRESS.write_text('url = "http://127.0.0.1:8099/hook"\n')
    os.chmod(ADDRESS, 0o600)
    SENDMAIL.write_text(f"#!/bin/sh\ncat >{MAIL}\n")
    os.chmod(SENDMAIL, 0o755)
    run("systemctl", "start", "spikewatch-webhook.socket", "spikewatch-mail.socket")
    service.fresh(service.cpu_rule(percent="50%"), notify=WAYS)
    incidents = service.NewIncidents()
    service.start_burner()
    made = incidents.wait(rule_name="vm-cpu")
    eventually("it is posted", lambda: len(posted) >= 2)
    equal(posted[0], posted[1], "the second try")
    told = json.loads(posted[1])
    equal([told["incident"], told["rule"], told["target"]], [made["id"], "vm-cpu", service.target_name(BURNER)], "what is told")
    text = eventually("it is mailed", lambda: MAIL.exists() and MAIL.read_text())
    expect("Subject: [spikewatch] " in text and made["id"] in text, text)
    server.shutdown()
    server.server_close()


@check("a server that is away is said in status and in the journal")
def _():
    journal = service.Since()
    service.fresh(service.cpu_rule(percent="50%"), notify=[{**WAYS[0], "tries": 2}])
    journal.wait("NOTIFY_FAILED")
    expect("notif" in run("spikewatch", "status", "--brief"), "status does not say it")
    service.stop_unit(BURNER)
    run("systemctl", "stop", "spikewatch-webhook.socket", "spikewatch-mail.socket")
    for path in ADDRESS, SENDMAIL, MAIL:
        path.unlink()
