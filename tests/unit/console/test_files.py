"""The files of the console: which are served, as what, and to whom the page is shown."""

from __future__ import annotations

import gzip
import json
import re
from hashlib import sha256
from importlib.resources import files
from posixpath import normpath
from typing import Any

import pytest

from dragoman.console.files import PAGE, StaticFile, prefers_html, static_files
from dragoman.transports.http import Request

CHROMIUM = (
    "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,"
    "application/signed-exchange;v=b3;q=0.7"
)
FIREFOX = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def request(**headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/", "headers": raw}

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    return Request(scope, receive, [])


@pytest.mark.parametrize(
    "accept", [CHROMIUM, FIREFOX, "text/html", "TEXT/HTML;q=0.5", "application/json;q=0.1,text/html"]
)
def test_browsers_prefer_the_page(accept: str) -> None:
    assert prefers_html(accept)


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "text/*",
        "application/json",
        "application/json, text/plain, */*",
        "application/json, text/html",
        "application/a2a+json, text/html;q=0.9",
        "text/event-stream, text/html",
        "text/html;q=0",
        "text/html;q=none",
        "text/htmlx",
        ",;,q=",
    ],
)
def test_programs_do_not(accept: str) -> None:
    assert not prefers_html(accept)


def test_every_file_of_the_folder_is_served_with_its_type_and_no_other_is() -> None:
    served = static_files()
    types = {path.rpartition(".")[2]: file.content_type for path, file in served.items()}
    assert types["js"] == b"text/javascript; charset=utf-8"
    assert types["css"] == b"text/css; charset=utf-8"
    assert types["svg"] == b"image/svg+xml"
    assert set(types) <= {"html", "js", "css", "svg", "json", "txt", "md"}
    folder = files("dragoman.console") / "static"
    for path, file in served.items():
        assert folder.joinpath(*path.split("/")).read_bytes() == file.body
        assert ".." not in path


def test_the_page_has_no_inline_code_and_names_nothing_of_another_origin() -> None:
    page = static_files()[PAGE].body.decode()
    assert "Dragoman" in re.findall("<title>(.*)</title>", page)[0]
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+\s*=|\sstyle=|https?://", page)


@pytest.mark.parametrize("sent", ['"tag"', 'W/"tag"', '"other", "tag"', "*"])
def test_an_unchanged_file_is_not_sent_again(sent: str) -> None:
    response = StaticFile(b"body", b"text/css; charset=utf-8", '"tag"').respond(request(if_none_match=sent))
    assert (response.status, response.body) == (304, b"")
    assert (b"etag", b'"tag"') in response.headers
    assert (b"cache-control", b"no-cache") in response.headers


def test_a_changed_file_is_sent() -> None:
    file = StaticFile(b"body", b"text/css; charset=utf-8", '"tag"')
    for sent in ('"older"', "", "tag"):
        assert file.respond(request(if_none_match=sent)).status == 200


def test_files_are_compressed_for_clients_that_accept_gzip() -> None:
    file = static_files()["app.js"]
    response = file.respond(request(accept_encoding="gzip, deflate, br"))
    assert (b"content-encoding", b"gzip") in response.headers and (b"vary", b"accept-encoding") in response.headers
    assert gzip.decompress(response.body) == file.body
    plain = file.respond(request())
    assert plain.body == file.body and b"content-encoding" not in dict(plain.headers)


def test_the_libraries_are_those_that_the_manifest_names_with_their_licenses() -> None:
    folder = files("dragoman.console") / "static" / "vendor"
    manifest = json.loads((folder / "vendor.json").read_text())
    licenses = (folder / "LICENSES.txt").read_text()
    named = {"vendor.json", "LICENSES.txt"}
    for package, entry in manifest.items():
        assert f"{package} {entry['version']}\n" in licenses
        for name, digests in entry["files"].items():
            named.add(name)
            assert sha256((folder / name).read_bytes()).hexdigest() == digests["sha256"], f"{name}: run `make vendor`"
    assert {entry.name for entry in folder.iterdir()} == named


def test_no_code_of_the_page_makes_html_or_code_out_of_texts() -> None:
    own = {path: file.body.decode() for path, file in static_files().items() if path.endswith(".js")}
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|\beval\(|new Function|srcdoc"
    )
    found = {path: forbidden.findall(code) for path, code in own.items() if not path.startswith("vendor/")}
    assert not any(found.values()), found


def reached(path: str, modules: set[str]) -> set[str]:
    """A module, and all that it imports, at any depth."""
    if path not in modules:
        modules.add(path)
        for name in re.findall(r'(?:from|import)\s*"(\.[^"]+)"', static_files()[path].body.decode()):
            reached(normpath(f"{path}/../{name}"), modules)
    return modules


def test_the_page_asks_for_all_modules_at_once_and_not_one_after_the_other() -> None:
    page = static_files()[PAGE].body.decode()
    asked = re.findall(r'<link rel="modulepreload" href="console/([^"]+)">', page)
    assert len(asked) > 40 and sorted({*asked, "app.js"}) == sorted(reached("app.js", set()))


def test_a_browser_loads_less_than_250_kb_in_all() -> None:
    assert sum(len(file.compressed or file.body) for file in static_files().values()) < 250_000
