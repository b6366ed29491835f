"""Runs the blocks of one page, given as JSON on stdin, in the working folder: the program behind `test_page_runs`.

Python blocks share one namespace, bash blocks share the folder; all run in page order. Ends with code 1 at the first
block that fails, having said which.
"""

from __future__ import annotations

import json
import subprocess
import sys
import traceback

NAMESPACE = {"__name__": "__main__"}


def run_python(text: str, page: str, line: int) -> bool:
    """Whether the block ran; empty lines in front make a traceback's numbers those of the page."""
    try:
        exec(compile("\n" * (line - 1) + text, page, "exec"), NAMESPACE)
    except BaseException:
        traceback.print_exc()
        return False
    return True


def run_bash(text: str) -> bool:
    """Whether every command of the block ended well."""
    return subprocess.run(["bash", "-e", "-c", text], check=False).returncode == 0


def main() -> int:
    """Run all blocks on stdin."""
    for page, line, language, text in json.load(sys.stdin):
        print(f"--- {page}, line {line}, {language}", flush=True)
        good = run_bash(text) if language == "bash" else run_python(text, page, line)
        sys.stdout.flush()
        if not good:
            print(f"FAILED: the {language} block at {page}, line {line}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
