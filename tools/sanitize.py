"""Build dpfast with its kernels under AddressSanitizer and UndefinedBehaviorSanitizer, and run Python on that build.

    python tools/sanitize.py -m pytest -q tests/kernels tests/noise
    python tools/sanitize.py tools/fuzz.py --seconds 5

The build lives in a folder of its own, build/sanitized, and is brought up to date each time; it needs meson, ninja and
Cython beside the package's requirements, and gcc. Fails if the command does, or if any process left a report.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from building import ROOT, install, put_first

FOLDER = ROOT / "build" / "sanitized"
REPORTS = FOLDER / "reports"

# UBSan's own log_path ends at AddressSanitizer, whose function of the same name is found before its own.
SET_REPORTS = f"""
import ctypes
ctypes.CDLL("libubsan.so.1").__sanitizer_set_report_path({str(REPORTS / "ubsan").encode()!r})
"""


def environment(site: Path) -> dict[str, str]:
    """Return the environment in which Python runs on the build."""

    def library(name: str) -> str:
        found = subprocess.run(["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True)
        return found.stdout.strip()

    return {
        **os.environ,
        "PYTHONPATH": str(site),
        "PYTHONMALLOC": "malloc",  # each object in an allocation of its own, whose ends are guarded
        # C++ exceptions of other packages pass through AddressSanitizer, which finds their library only at the start.
        "LD_PRELOAD": f"{library('libasan.so')} {library('libstdc++.so.6')}",
        # Python leaks what it keeps to its end; an allocation too large is a MemoryError, as without sanitizers.
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=8192:"
        f"log_path={REPORTS / 'asan'}",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def read_reports() -> list[str]:
    """Return what sanitizers wrote, save for refused allocations."""
    texts = [path.read_text(errors="replace") for path in sorted(REPORTS.iterdir())]
    return [text for text in texts if "ERROR: " in text or "runtime error: " in text]


def main() -> int:
    """Build, run, report."""
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    site = install(FOLDER, "-Dsanitize=true")
    put_first(site, SET_REPORTS)
    shutil.rmtree(REPORTS, ignore_errors=True)
    REPORTS.mkdir(parents=True)
    status = subprocess.run([sys.executable, *sys.argv[1:]], env=environment(site), check=False).returncode
    reports = read_reports()
    for report in reports:
        print(report, file=sys.stderr)
    print(f"sanitizers: {len(reports)} reports", file=sys.stderr)
    return 1 if reports else status


if __name__ == "__main__":
    raise SystemExit(main())
