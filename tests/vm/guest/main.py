"""Runs the checks, theme by theme, in this order: each may rely on the service running as those before left it."""

import importlib
import pathlib

import harness

THEMES = """install unit limits discovery reload restart kill trigger disk journal metrics stacks growth package""".split()

here = pathlib.Path(__file__).parent
only = (here / "only").read_text().strip()
for theme in THEMES:
    if not only or theme in only.split(",") or theme == "install":
        importlib.import_module(f"check_{theme}")
harness.judge_all()
