"""What README and documentation show runs, and prints what they say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt

import ster
from assets import reference
from ster.cli import run
from tests.page_checks import CHECKS
from tests.pages import (
    ROOT,
    TRAINED,
    Block,
    blocks,
    check,
    name_of,
    needs_trained_model,
    not_skipped,
    pages,
    run_page,
    run_shell,
)
from tests.real.kept import kept_smollm2

PAGES = {name_of(page): page for page in pages()}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_runs_from_top_to_bottom(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    page = PAGES[name]
    monkeypatch.chdir(tmp_path)
    mpl.use("Agg")
    Path("assets").symlink_to(ROOT / "assets")
    if needs_trained_model(page):
        Path(TRAINED).parent.mkdir()
        Path(TRAINED).symlink_to(kept_smollm2("f32"))
    try:
        CHECKS.get(name, dict)(run_page(page))
    finally:
        plt.close("all")


def test_every_block_is_one_that_runs_or_says_why_not():
    # A fence that the runner does not know would never be run.
    known = {"sh", "python", "text", "json", "pycon", "bibtex"}
    for name, page in PAGES.items():
        fences = re.findall(r"^```(.*)$", page.read_text(encoding="utf-8"), re.M)
        opened = fences[::2]
        assert set(opened) <= known, name
        assert set(fences[1::2]) <= {""}, name
        runnable = [each for each in opened if each in ("sh", "python")]
        assert len(blocks(page)) == len(runnable), name


def test_commands_that_are_not_run_have_flags_that_ster_knows():
    skipped = [
        line
        for page in PAGES.values()
        for block in blocks(page)
        if block.language == "sh" and not not_skipped(block)
        for line in block.code.splitlines()
        if line.startswith("ster ")
    ]
    assert len(skipped) >= 4
    for line in skipped:
        _, *words = shlex.split(line)
        # Flags are looked up before help is printed.
        assert run([*words, "--help"]) == 0, line


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_files(name: str):
    text = PAGES[name].read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not target.startswith("http"):
            assert (PAGES[name].parent / target).exists(), target


def shell(code: str, *, expected: str | None = None, note: str = "") -> Block:
    return Block(
        where="a page",
        line=1,
        language="sh",
        code=code,
        note=note,
        expected=expected,
    )


def test_what_a_block_prints_is_compared():
    block = shell("echo 1 2 3", expected="1 2\n")
    with pytest.raises(AssertionError, match="a page:1 printed\n1 2 3"):
        check(block, run_shell(block))


@pytest.mark.parametrize("block", [shell("false"), shell("true", note="refused")])
def test_a_block_that_fails_or_is_not_refused_is_a_failure(block: Block):
    with pytest.raises(AssertionError, match="a page:1"):
        run_shell(block)


def test_checks_are_those_of_pages():
    assert {*CHECKS} <= {*PAGES}


def test_the_site_leads_to_every_page():
    listed = re.findall(
        r"^ +- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M
    )
    there = (ROOT / "docs").rglob("*.md")
    assert sorted(listed) == sorted(
        page.relative_to(ROOT / "docs").as_posix() for page in there
    )


def test_the_index_leads_to_every_page():
    index = ROOT / "docs" / "index.md"
    targets = re.findall(r"\]\(([^)#\s]+\.md)", index.read_text(encoding="utf-8"))
    there = {*(ROOT / "docs").rglob("*.md")} - {index}
    assert {index.parent / target for target in targets} == there


def test_the_variables_of_ster_are_those_of_the_page():
    named = re.compile(r"\bSTER_[A-Z]+\b")
    page = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    sources = (ROOT / "ster").rglob("*.py")
    read = {name for each in sources for name in named.findall(each.read_text("utf-8"))}
    assert {*named.findall(page)} == read


def test_make_run_ends_as_the_readme_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = makefile.split("\nrun:")[1].split("\n\n")[0]
    lines = re.findall(r"^\t@\$\(BIN\)/(.*)$", recipe, re.M)
    assert len(lines) == 3
    monkeypatch.chdir(tmp_path)
    Path("assets").symlink_to(ROOT / "assets")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    expected = readme.split("`make run` ends with\n\n```text\n")[1].split("```")[0]
    printed = run_shell(shell("\n".join(lines)))
    check(shell("", expected=expected), printed.removeprefix("build/toy\n"))


def test_the_citation_names_the_version_of_today():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    fields = dict(re.findall(r"^([\w-]+): *(.*)$", text, re.M))
    assert fields["version"] == ster.__version__
    assert fields["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "license"} <= {*fields}
    assert "  - name: ster developers" in text


@pytest.mark.parametrize("name", reference.PAGES)
def test_the_reference_is_that_of_today(name: str):
    text = (reference.FOLDER / name).read_text(encoding="utf-8")
    assert text == reference.PAGES[name](), "run: make reference"
