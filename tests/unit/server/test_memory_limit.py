"""What memory there is: the least of what the cgroup, the process and the machine allow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.server.config.memory_limit import LARGEST_REQUEST, REQUEST_SHARE, available_memory, memory_for
from dragoman.server.config.settings import Limits

MB = 1_000_000
BODY = 1 * MB


def machine(root: Path, cgroup: str, **files: str) -> Path:
    """A file system like Linux's, with this cgroup and these limits."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    (root / "proc/self/statm").write_text("0 0 0 0 0 0 0")
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def test_the_limit_of_a_container_counts(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/\n", **{"memory.max": "300000000", "memory.high": "max"})
    assert available_memory(root) == 300 * MB
    assert memory_for(Limits(body=BODY), root) == (100 * MB, 50 * MB)


def test_the_least_limit_of_all_groups_around_counts(tmp_path: Path) -> None:
    files = {"a/memory.max": "200000000", "a/b/memory.max": "max", "a/b/memory.high": "250000000"}
    assert available_memory(machine(tmp_path, "0::/a/b\n", **files)) == 200 * MB


def test_the_first_version_of_cgroups_counts_too(tmp_path: Path) -> None:
    files = {"memory/docker/x/memory.limit_in_bytes": "150000000", "memory/memory.limit_in_bytes": str(2**63 - 4096)}
    cgroup = "4:cpu,cpuacct:/docker/x\n3:memory:/docker/x\n1:name=systemd:/docker/x\n"
    assert available_memory(machine(tmp_path, cgroup, **files)) == 150 * MB


def test_a_group_that_is_named_by_its_place_outside_is_found_at_the_top(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/kubepods/pod1/x\n", **{"memory.max": "120000000"})
    assert available_memory(root) == 120 * MB


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS")
def test_the_limit_of_the_process_counts(tmp_path: Path) -> None:
    import resource

    root = machine(tmp_path, "0::/\n")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2**45, before[1]))
    try:
        without = available_memory(root)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert without is not None
    assert without < 2**45  # there is no machine of that size, so the machine's own memory counts
    assert without == available_memory(root)


def test_what_the_process_has_already_is_not_there_any_more() -> None:
    left, whole = available_memory(), available_memory(Path("/nowhere"))
    if left is not None and whole is not None:
        assert left < whole


def test_what_is_set_counts_and_one_request_always_fits(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/\n", **{"memory.max": "3000000"})
    assert memory_for(Limits(body=BODY), root) == (LARGEST_REQUEST * BODY, LARGEST_REQUEST * BODY)
    assert memory_for(Limits(body=BODY, memory=5 * MB), root) == (5 * MB, LARGEST_REQUEST * BODY)
    assert memory_for(Limits(body=BODY, memory=5 * MB, caller_memory=MB), root) == (5 * MB, MB)
    assert REQUEST_SHARE > 1


@pytest.mark.skipif(sys.platform != "linux", reason="about glibc")
def test_large_blocks_that_are_free_are_given_back() -> None:
    script = (
        "from pathlib import Path\n"
        "from dragoman.server.config.memory_limit import return_memory\n"
        "def resident(): return int(Path('/proc/self/statm').read_text().split()[1]) * 4096\n"
        "return_memory()\n"
        "before = resident()\n"
        "for size in (20, 9, 9):\n"  # the first makes glibc keep the others
        "    blocks = [bytearray(size * 1_000_000) for _ in range(8)]\n"
        "    kept = [bytearray(100_000) for _ in range(8)]\n"
        "    del blocks\n"
        "print(resident() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert int(done.stdout) < 20 * MB
