"""What the tools share: builds of this tree with Meson, ninja and Cython, found beside the Python that runs them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# An editable install has a finder in front of the path: processes that are started must pass it by as well.
_FINDER = """\
import sys
from importlib.machinery import PathFinder

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, path or [{folder!r}]) if name.partition(".")[0] == "dpfast" else None

sys.meta_path.insert(0, Finder)
"""


def call(*command: str | Path, folder: Path = ROOT) -> None:
    """Run a command of the build; RuntimeError with what it said, if it fails."""
    # The environment of this Python need not be the active one.
    tools = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    done = subprocess.run(command, cwd=folder, env=tools, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def put_first(folder: Path, more: str = "") -> None:
    """Let every Python that has a folder on its path take the package from there, and run `more` when it starts."""
    (folder / "sitecustomize.py").write_text(_FINDER.format(folder=str(folder)) + more)


def install(folder: Path, *options: str, source: Path = ROOT, buildtype: str = "plain") -> Path:
    """Configure, compile and install a tree in a folder, or what changed of it; return what is to be on the path."""
    compiled, site = folder / "compiled", folder / "site"
    shutil.rmtree(site, ignore_errors=True)
    if not (compiled / "build.ninja").exists():
        places = [f"-Dpython.{kind}libdir={site}" for kind in ("pure", "plat")]
        python = folder / "python.ini"
        folder.mkdir(parents=True, exist_ok=True)
        python.write_text(f"[binaries]\npython = '{sys.executable}'\n")
        call(
            "meson", "setup", compiled, source, f"--native-file={python}", f"--buildtype={buildtype}", *options, *places
        )
    call("meson", "compile", "-C", compiled)
    call("meson", "install", "-C", compiled, "--no-rebuild", "--quiet")
    return site
