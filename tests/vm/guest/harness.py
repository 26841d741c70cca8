"""What a check is, and how its result is said: one line each.

    @check("the unit is active")
    def _():
        expect(unit.active(), "it is not")

A check fails by Failed, or by any other exception; the others go on, unless it is vital. Emulation is slow and uneven, so a check waits for a condition
(eventually) and never for a time, with a limit that only something broken reaches.
"""

import subprocess
import sys
import time
import traceback

CHECKS = []
LIMIT = 120  # seconds


class Failed(Exception):
    pass


def check(name, vital=False):
    def register(function):
        CHECKS.append((name, function, vital))
        return function

    return register


def expect(condition, why):
    if not condition:
        raise Failed(why)


def equal(got, wanted, what):
    expect(got == wanted, f"{what}: {got!r} instead of {wanted!r}")


def within(value, low, high, what):
    expect(low <= value <= high, f"{what}: {value} is not within {low} to {high}")


def eventually(what, ask, limit=LIMIT):
    """Asks until the answer is true, and returns it."""
    end = time.monotonic() + limit
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {limit} s")
        time.sleep(0.2)


def run(*command, fails=False, **options):
    """What a command prints. It must end with 0; with fails, it must not, and what it prints to standard error is included."""
    done = subprocess.run(command, text=True, errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT if fails else subprocess.PIPE, timeout=300, **options)
    expect((done.returncode != 0) == fails,
           f"{' '.join(command)}: exit code {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def excerpt():
    """What the system says of the service, for whoever reads a failure."""
    said = ""
    for command in (["systemctl", "status", "--no-pager", "--lines=0", "spikewatchd"],
                    ["journalctl", "--no-pager", "--output=short-precise", "--lines=25", "--unit=spikewatchd"]):
        said += subprocess.run(command, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    return "".join(f"    {line}\n" for line in said.splitlines())


def judge(name, function):
    start = time.monotonic()
    try:
        function()
        print(f"ok {name} ({time.monotonic() - start:.1f} s)", flush=True)
        return True
    except Failed as why:
        print(f"FAIL {name}: {why}")
    except Exception as error:
        print(f"FAIL {name}: {error!r}")
        print("".join(f"    {line}\n" for line in traceback.format_exc().splitlines()), end="")
    print(excerpt(), end="")
    sys.stdout.flush()
    return False


def judge_all():
    passed = failed = 0
    for name, function, vital in CHECKS:
        good = judge(name, function)
        passed, failed = passed + good, failed + (not good)
        if vital and not good:
            print("    Without that, nothing else is tried.")
            break
    print(f"end: {passed} passed, {failed} failed", flush=True)
