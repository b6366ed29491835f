"""`intrigue doctor`."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import tyro

from intrigue.cli.options import Json, Switch, run_command


def doctor(
    json_output: Json = False,
    no_test: Annotated[Switch, tyro.conf.arg(help="do not run the self-test")] = False,
) -> int:
    """What is installed, what is missing and the command that adds it, and a self-test of about half a minute.

    The self-test computes a nuclear norm against an exact SVD, trains a tiny run twice (once stopped and resumed half
    way) and compares the digests. Exit code 3 if anything fails.

    Examples:
      intrigue doctor
      intrigue doctor --no-test --json
    """
    from intrigue.cli.diagnosis import inspect_installation, self_test

    findings = inspect_installation()
    checks = [] if no_test else list(self_test(lambda text: sys.stderr.write(f"{text}\n")))
    if json_output:
        fields = {"installed": findings, "checks": [check._asdict() for check in checks]}
        sys.stdout.write(json.dumps(fields, indent=2) + "\n")
    else:
        for name, finding in findings.items():
            sys.stdout.write(f"{name:<20} {finding}\n")
        for check in checks:
            sys.stdout.write(f"{'ok' if check.ok else 'FAILED':<7}{check.name}: {check.detail}\n")
    return 0 if all(check.ok for check in checks) else 3


def main(argv: list[str]) -> int:
    """Entry point."""
    return run_command(doctor, "doctor", argv)
