"""Runs the checks, theme by theme, in this order: each may rely on the service running as those before left it."""

import importlib
import pathlib

import harness

THEMES = """install unit limits discovery units reload restart kill trigger disk journal metrics notify stacks source growth package""".split()

# What the host's script has put on the kernel's command line: vm.checks=a,b; nothing: all of them.
words = dict(word.partition("=")[::2] for word in pathlib.Path("/proc/cmdline").read_text().split())
only = [theme for theme in words.get("vm.checks", "").split(",") if theme]
for theme in THEMES:
    if not only or theme in only or theme == "install":
        importlib.import_module(f"check_{theme}")
harness.judge_all()
