"""Locks of ledger files, where the system has those of POSIX and where it has not."""

import os
import subprocess
import sys

import pytest

from dpfast import Ledger, Privacy
from dpfast._documents import read_document
from dpfast.ledger import locks

BUDGET = Privacy(1.0, 1e-6)


def test_without_posix_locks_a_well_kept_library_locks(tmp_path, monkeypatch):
    portalocker = pytest.importorskip("portalocker")
    monkeypatch.setattr(locks, "_fcntl", None)
    calls, lock, unlock = [], portalocker.lock, portalocker.unlock

    def noted_lock(file, flags):
        calls.append(flags)
        lock(file, flags)

    def noted_unlock(file):
        calls.append("unlocked")
        unlock(file)

    monkeypatch.setattr(portalocker, "lock", noted_lock)
    monkeypatch.setattr(portalocker, "unlock", noted_unlock)
    ledger = Ledger(BUDGET, tmp_path / "ledger.json")
    ledger.reserve(Privacy(0.5))
    assert calls == [portalocker.LockFlags.EXCLUSIVE, "unlocked"] * 2
    assert ledger.remaining.epsilon == 0.5


def test_locks_of_the_library_exclude(tmp_path, monkeypatch):
    pytest.importorskip("portalocker")
    monkeypatch.setattr(locks, "_fcntl", None)
    with open(tmp_path / "lock", "ab", buffering=0) as file, open(tmp_path / "lock", "ab", buffering=0) as other:
        locks.lock(file)
        import fcntl

        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        locks.unlock(file)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_without_any_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "_fcntl", None)
    monkeypatch.setitem(sys.modules, "portalocker", None)
    with pytest.raises(ImportError, match="pip install portalocker"):
        Ledger(BUDGET, tmp_path / "ledger.json")
    assert not (tmp_path / "ledger.json").exists()


@pytest.mark.slow
def test_a_ledger_file_needs_nothing_that_only_posix_has(tmp_path):
    """As on Windows: without fcntl, O_DIRECTORY, O_CLOEXEC, fchmod and uname."""
    pytest.importorskip("portalocker")
    path = tmp_path / "ledger.json"
    code = f"""
import os, sys
import dpfast.kernels.transaction, dpfast.privacy, portalocker
for name in ("O_DIRECTORY", "O_CLOEXEC", "fchmod", "uname"):
    delattr(os, name)
sys.modules["fcntl"] = None
from dpfast import Ledger, Privacy
ledger = Ledger(Privacy(1.0, 1e-6), {str(path)!r})
with ledger.reserve(Privacy(0.25)) as held:
    held.forfeit()
print(ledger.spent.epsilon)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0.25\n"
    assert len(read_document(str(path), "dpfast ledger", 2)["entries"]) == 1


def test_a_folder_that_cannot_be_opened_is_not_flushed(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "O_DIRECTORY")
    monkeypatch.delattr(os, "fchmod")
    Ledger(BUDGET, tmp_path / "ledger.json").reserve(Privacy(0.5))
    assert Ledger(BUDGET, tmp_path / "ledger.json").remaining.epsilon == 0.5
