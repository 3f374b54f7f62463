"""Every example in the documentation works: README.md and docs/ are carried out, page by page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest
from docs import examples, model_api
from postgres_server import URL_VARIABLE, programs_path
from support.otlp_collector import OtlpCollector, trees
from warm_start import write_command

from dragoman.testing import served

ROOT: Path = examples.ROOT
PAGES: list[Path] = examples.PAGES
LANGUAGES = {"python", "sh", "json", "text", "toml", "nginx", "ini", "sql", "yaml", ""}
# Blocks of all pages together that say `no-run`: four install something, one needs systemd, one is a chat without end,
# and two need a2a-sdk, where tests/interop runs them.
SHOWN_ONLY = 8


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.filterwarnings("ignore:SequentialAgent is deprecated:DeprecationWarning")  # what the page on ADK says, too
@pytest.mark.timeout(240)  # a page may start a dozen programs, one after the other
@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_does_what_it_shows(
    page: Path, tmp_path: Path, warm_path: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("the pages are written for curl, which is not here")
    with model_for(page) as url, database_for(page, request) as places, collector_for(page) as collector:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", model_api.KEY)
        # The page on several nodes waits for a takeover: that of nodes with a short lease.
        environment = {"DRAGOMAN_LEASE": "1.5"} if places else {}
        environment["OTEL_SDK_DISABLED"] = (
            "false"  # tests of frameworks disable it in their process, and so in this one
        )
        if collector is not None:
            # The page ends its servers soon. Programs that print their spans among other things are as they are.
            soon = "OTEL_BSP_SCHEDULE_DELAY=50 OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:"
            port = collector.url.rpartition(":")[2]
            places = {"OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318": f"{soon}{port}"}
        environment["PYTEST_ADDOPTS"] = "-p no:langsmith_plugin"  # as here: see pyproject.toml
        if "pytest-asyncio" not in page.read_text(encoding="utf-8"):
            environment["PYTEST_ADDOPTS"] += " -p no:asyncio"  # its readers have only installed what it says
        path = f"{warm_path}{os.pathsep}{examples.environment()['PATH']}"
        examples.Reader(tmp_path, places, {"PATH": path, **environment}).read(page)
        if collector is not None:
            (tree,) = trees(collector.spans)
            assert tree.outline() == TREE


def test_every_nginx_block_forwards_the_host_with_its_port() -> None:
    # The card names the address that callers used: `$host` would lose the port.
    headers = [
        line
        for page in PAGES
        for block in re.findall(r"^```nginx\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        for line in re.findall(r"proxy_set_header (?:Host|X-Forwarded-Host) (\S+);", block)
    ]
    assert headers == ["$http_host"] * 4


@pytest.fixture(scope="session")
def warm_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a `dragoman` that need not import everything each time, for the PATH of shells."""
    folder = tmp_path_factory.mktemp("bin")
    write_command(folder)
    return str(folder)


def model_for(page: Path) -> AbstractContextManager[str]:
    """A model for the page that talks with one; the others have none to talk with."""
    return served(model_api.model_api) if page.name == "models.md" else nullcontext("http://127.0.0.1:1")


# What the page on observing says that a collector has.
TREE = """\
CLIENT SendStreamingMessage @dragoman
  SERVER SendStreamingMessage @shop
    INTERNAL invoke_agent shop @shop"""


def collector_for(page: Path) -> AbstractContextManager[OtlpCollector | None]:
    """A collector of OpenTelemetry for the page that says how to use one."""
    return OtlpCollector() if page.name == "observing.md" else nullcontext()


@contextmanager
def database_for(page: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """A PostgreSQL for the page that creates a database; the others have none. Yields what its address stands for."""
    if name(page) != "docs/guides/scaling.md":  # no other: pages that run side by side would drop it for each other
        yield {}
        return
    if URL_VARIABLE in os.environ:
        pytest.skip("the page creates the database and the role `dragoman`, which a server of yours may have")
    request.getfixturevalue("monkeypatch").setenv("PATH", programs_path())
    for program in ("psql", "pg_dump"):
        if shutil.which(program) is None:
            pytest.skip(f"the page is written for {program}, which is not here")
    server: str = request.getfixturevalue("postgres_url").rpartition("/")[0]
    drop = [f"DROP DATABASE IF EXISTS {database} WITH (FORCE)" for database in ("dragoman", "restored")]
    drop += ["DROP ROLE IF EXISTS dragoman"]
    command = ["psql", "-q", f"{server}/postgres", *(word for statement in drop for word in ("-c", statement))]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    yield {
        "postgresql://postgres@127.0.0.1:5432": server,
        "127.0.0.1:5432": server.rpartition("@")[2],
        # A server on a file has no lease, long or short.
        "dragoman serve hello.py --port 8080 --store sqlite": (
            "DRAGOMAN_LEASE= dragoman serve hello.py --port 8080 --store sqlite"
        ),
    }
    subprocess.run(command, check=True, capture_output=True, timeout=30)


# -- that nothing escapes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_says_what_it_is(page: Path) -> None:
    wrong: list[str] = []
    before = None
    blocks = examples.blocks_of(page)
    commands = "".join(block.text for block in blocks if block.language == "sh" and block.runs)
    for block in blocks:
        if "saved" in block.words and not (block.title and block.title in commands):
            wrong.append(f"{block.place}: is saved, and no command uses it")
        if block.language not in LANGUAGES:
            wrong.append(f"{block.place}: what is `{block.language}`?")
        if block.is_output and not (before is not None and block.follows and before.runs):
            wrong.append(f"{block.place}: shows the output of nothing that ran")
        before = block
    assert not wrong, "\n".join(wrong)


def test_few_blocks_are_only_shown() -> None:
    blocks = [block for page in PAGES for block in examples.blocks_of(page) if "no-run" in block.words]
    # A walk is followed by tests/architecture/test_walks.py.
    shown = [block.place for block in blocks if not any(word.startswith("walk=") for word in block.words)]
    assert len(shown) <= SHOWN_ONLY, shown


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    broken: list[str] = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        found = (page.parent / file).resolve() if file else page
        if not found.exists() or (anchor and anchor not in anchors(found)):
            broken.append(target)
    assert not broken


def test_every_page_is_reached_from_the_readme() -> None:
    reached, ahead = set[Path](), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        reached.add(page)
        targets = re.findall(r"\]\(([^)\s#]+\.md)", page.read_text(encoding="utf-8"))
        found = {(page.parent / target).resolve() for target in targets if "://" not in target}
        ahead += [each for each in found if each not in reached and each not in ahead]
    assert not [name(page) for page in PAGES if page not in reached]


def test_the_readme_links_to_every_page_for_those_who_come_from_something_else() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = [page for page in PAGES if page.parent.name == "coming-from"]
    assert len(pages) == 8
    assert not [name(page) for page in pages if f"]({name(page)})" not in readme]


# -- the reader itself ---------------------------------------------------------------------------------------------


def read(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    examples.Reader(tmp_path).read(page)


@pytest.mark.parametrize(
    "text",
    [
        "```python\nprint(1 + 1)\n```\n```text\n3\n```\n",
        '```python\nprint(\'{"a": 1, "b": 2}\')\n```\n\n```json\n{"a": 2}\n```\n',
        '```python\nprint("[1, 2]")\n```\n\n```json\n[1]\n```\n',
        "```sh\necho one; echo two\n```\n```text\none\n```\n",
        "```sh\nfalse\n```\n",
        "```sh\nexit 0 | false\n```\n",
    ],
)
def test_a_page_that_shows_something_else_than_happens_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(examples.Mismatch):
        read(tmp_path, text)


def test_an_example_that_raises_is_refused_with_the_line_of_the_page(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        read(tmp_path, "# Title\n\n```python\n1 / 0\n```\n")
    assert (Path(caught.traceback[-1].path).name, caught.traceback[-1].lineno + 1) == ("page.md", 4)


def test_blocks_share_what_they_define_and_save(tmp_path: Path) -> None:
    read(
        tmp_path,
        '```python title="one.py"\nvalue = 1\n```\n'
        "```python\nimport asyncio\nimport one\nawait asyncio.sleep(0)\nprint(value, one.value)\n```\n"
        "```text\n1 1\n```\n"
        "```sh\npython -c 'import one; print(one.value)'\n```\n```text\n1\n```\n",
    )
    assert "one" not in sys.modules


def test_an_id_stands_for_the_one_that_was_printed(tmp_path: Path) -> None:
    shown, real = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
    once = f"```sh\necho id {real} {real}\n```\n```text\nid {shown} {shown}\n```\n"
    read(tmp_path, once + f"```sh\necho {shown}\n```\n```text\n{shown}\n```\n")
    with pytest.raises(examples.Mismatch):
        read(tmp_path, once + f"```sh\necho {real.replace('2', '3')}\n```\n```text\n{shown}\n```\n")


def test_dots_stand_for_anything_and_times_are_alike(tmp_path: Path) -> None:
    printed = 'printf \'{"at": "2026-11-15T10:00:00.000Z", "items": [1, 2, 3], "text": "abc"}\''
    shown = '{"at": "2000-01-01T00:00:00.000Z", "items": [1, "…"], "text": "a…"}'
    read(tmp_path, f"```sh\n{printed}\n```\n```json\n{shown}\n```\n")
    read(tmp_path, "```sh\nseq 5\n```\n```text\n1\n…\n4\n5\n```\n")
