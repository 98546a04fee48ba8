"""A pytest plugin: gates a test on a capability of the host; see capgate's docs/capabilities.md.

Put this file where Python finds it, load it with `pytest -p capgate_capability`, and mark the test:

    @pytest.mark.capability("docker")
    def test_images():
        ...

When the capability is declared absent the test is skipped, and listed. When nobody can tell it fails.
"""

import os
import subprocess

import pytest

ABSENT = 75


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "capability(name): the test needs this of the host, and is skipped where it is declared absent"
    )


def pytest_runtest_setup(item):
    for marker in item.iter_markers("capability"):
        if len(marker.args) != 1 or marker.kwargs:
            pytest.fail("the marker capability takes one name", pytrace=False)
        unit = item.nodeid.split("[")[0]
        command = [os.environ.get("CAPGATE", "capgate"), "capability", "require", marker.args[0], "--unit", unit]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode == ABSENT:
            pytest.skip(done.stdout.strip())
        if done.returncode != 0:
            pytest.fail(done.stderr.strip(), pytrace=False)
