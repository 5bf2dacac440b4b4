"""The versions that are installed: the lowest allowed ones, and those that CI pins."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]


def declared() -> list[Requirement]:
    """List what a person who works on ster installs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *extras["dev"], *extras["docs"]]
    return [Requirement(line) for line in lines]


def floor(requirement: Requirement) -> Version:
    """Return the lowest version that is allowed."""
    (lowest,) = (s.version for s in requirement.specifier if s.operator == ">=")
    return Version(lowest)


def pins(name: str) -> dict[str, Version]:
    """Read a file of constraints."""
    text = (ROOT / ".ci" / name).read_text()
    found = re.findall(r"^([\w.-]+)==(\S+)$", text, re.MULTILINE)
    return {canonicalize_name(package): Version(pin) for package, pin in found}


@pytest.mark.parametrize("requirement", declared(), ids=str)
def test_ci_tests_the_lowest_version_that_is_allowed(requirement):
    found = pins("lowest.txt")[canonicalize_name(requirement.name)]
    precise = len(str(floor(requirement)).split("."))
    assert found.release[:precise] == floor(requirement).release
    assert not any(found.release[precise:]) or requirement.name.startswith("types-")


@pytest.mark.parametrize("requirement", declared(), ids=str)
def test_ci_pins_what_the_project_asks_for(requirement):
    found = pins("constraints.txt")[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(found)


def test_the_mlx_that_attends_wrongly_on_metal_is_not_installed():
    """Of 0.32.2, whose kernel for many keys forgets which text they belong to."""
    on_metal = [
        each for each in declared() if each.name == "mlx" and "darwin" in str(each)
    ]
    assert on_metal
    assert not any(each.specifier.contains("0.32.2") for each in on_metal)


@pytest.mark.parametrize("name", ["constraints.txt", "lowest.txt"])
def test_the_parts_of_mlx_are_of_one_version(name):
    found = pins(name)
    assert found["mlx"] == found["mlx-cpu"] == found["mlx-metal"]


def test_what_ci_pins_runs_on_every_python_that_the_project_allows():
    # Of Debian 12 it is 3.11.2: a pin that needs 3.11.5 leaves its users without tests.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    first = Version(project["requires-python"].removeprefix(">="))
    installed: dict[str, Distribution] = {
        canonicalize_name(each.metadata["Name"]): each for each in distributions()
    }
    checked = 0
    for name, pin in pins("constraints.txt").items():
        # With `CONSTRAINTS=` the newest versions are there, which are not the pinned.
        if name in installed and Version(installed[name].version) == pin:
            needed = installed[name].metadata["Requires-Python"] or ""
            assert SpecifierSet(needed).contains(first), f"{name} needs {needed}"
            checked += 1
    assert checked
