"""The console's modules that need no browser: Markdown and the assembly of tasks, run by node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import dragoman

STATIC = Path(dragoman.__file__).parent / "console" / "static"
NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="node runs the console's modules, and it is not installed")


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The modules in a folder that tells node that they are modules."""
    folder = tmp_path_factory.mktemp("console")
    shutil.copytree(STATIC / "lib", folder / "lib")
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def run(modules: Path, code: str, value: Any = None) -> Any:
    """Run code with the modules `markdown` and `conversation`, and with `value`; returns what its `result` is."""
    script = f"""
        import * as markdown from "./lib/markdown.js";
        import * as conversation from "./lib/conversation.js";
        const value = {json.dumps(value)};
        {code}
        console.log(JSON.stringify(result));
    """
    assert NODE is not None
    process = subprocess.run(
        [NODE, "--input-type=module", "-e", script],
        cwd=modules,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def parse(modules: Path, text: str) -> Any:
    """The tree of a text, without what only the drawing of code needs."""
    code = """
        const hidden = new Set(["whole", "fence", "indent", "closed", "continued"]);
        const show = (key, inner) => (hidden.has(key) ? undefined : inner);
        const result = JSON.parse(JSON.stringify(markdown.parseMarkdown(value), show));
    """
    return run(modules, code, text)


def inlines(modules: Path, text: str) -> Any:
    (paragraph,) = parse(modules, text)
    return paragraph["inlines"]


def link(href: str, *children: Any) -> dict[str, Any]:
    return {"type": "link", "href": href, "children": list(children)}


def test_blocks_are_recognized(modules: Path):
    text = "# A\n\npara\n\n> quote\n\n- a\n- b\n  1. c\n\n```py\nx < 1\n```\n\n| h |\n|--:|\n| 1 |\n\n---\n"
    blocks = parse(modules, text)

    assert [block["type"] for block in blocks] == ["heading", "paragraph", "quote", "list", "code", "table", "rule"]
    assert blocks[3]["items"][1]["blocks"][1]["ordered"] is True
    assert (blocks[4]["language"], blocks[4]["text"]) == ("py", "x < 1")
    assert (blocks[5]["align"], blocks[5]["rows"]) == (["right"], [[["1"]]])


def test_emphasis_nests_and_leaves_words_with_underscores_alone(modules: Path):
    strong = {"type": "strong", "children": ["b", {"type": "em", "children": ["c"]}]}
    assert inlines(modules, "a **b*c*** snake_case ~~d~~ `e*`") == [
        "a ", strong, " snake_case ", {"type": "del", "children": ["d"]}, " ", {"type": "code", "text": "e*"}
    ]  # fmt: skip


def test_html_stays_text(modules: Path):
    assert inlines(modules, "<script>alert(1)</script> &lt;b&gt;") == ["<script>alert(1)</script> <b>"]


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:text/html,x", "vbscript:x", "/relative", "blob:x"]
)
def test_only_harmless_addresses_are_links(modules: Path, address: str):
    assert inlines(modules, f"[x]({address}) <{address}>") == [f"[x]({address}) <{address}>"]


def test_links_images_and_bare_addresses_lead_to_where_they_say(modules: Path):
    text = "[a](https://x.example/b) ![i](https://y.example/) (https://z.example/c_d)."
    assert inlines(modules, text) == [
        link("https://x.example/b", "a"), " ", link("https://y.example/", "i"), " (",
        link("https://z.example/c_d", "https://z.example/c_d"), ").",
    ]  # fmt: skip


def test_a_text_that_grows_becomes_the_same_tree_as_the_whole(modules: Path):
    text = (
        "# A\n\npara **b**\nmore\n===\n\n- x\n- y\n\n  z\n\n```js\ncode\n```\n> q\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    )
    code = """
        const hide = (key, inner) => (key === "whole" ? undefined : inner);
        const show = (document) => JSON.stringify([...document.done, ...document.open], hide);
        const grown = new markdown.MarkdownText();
        for (let end = 1; end <= value.length; end += 1) grown.update(value.slice(0, end));
        const whole = new markdown.MarkdownText();
        whole.update(value);
        const result = [show(grown) === show(whole), grown.done.length > 4];
    """
    assert run(modules, code, text) == [True, True]


def test_finished_blocks_are_kept_as_they_are(modules: Path):
    code = """
        const document = new markdown.MarkdownText();
        document.update("one\\n\\ntwo\\n\\nthree");
        const [first] = document.done;
        document.update("one\\n\\ntwo\\n\\nthree and more\\n\\nfour");
        const result = document.done[0] === first;
    """
    assert run(modules, code) is True


def test_hostile_texts_take_linear_time(modules: Path):
    words = ["- ", "![", "*a ", "a* ", "[a](", "[a](<b", "http://(", "**a", "\n|", "1. "]
    code = """
        const time = (text) => {
            const start = process.cpuUsage().user;
            new markdown.MarkdownText().update(text);
            return process.cpuUsage().user - start;
        };
        for (const piece of value) time(piece.repeat(1000)); // compiled by now
        const result = value.filter((piece) => time(piece.repeat(Math.ceil(1e5 / piece.length))) > 1e6);
    """
    assert run(modules, code, [*"[*>`<_~|", *words]) == []


def test_a_long_line_is_parsed_in_steps(modules: Path):
    code = """
        const document = new markdown.MarkdownText();
        const isDone = document.update("x".repeat(1e6), 0);
        const result = [isDone, document.parsed < 10000];
    """
    assert run(modules, code) == [False, True]


def test_long_code_is_copied_as_a_whole(modules: Path):
    code = """
        const lines = Array.from({ length: 3000 }, (_, index) => `line ${index}`).join("\\n");
        const blocks = markdown.parseMarkdown("```\\n" + lines + "\\n```\\n\\nend\\n\\n");
        const result = [blocks.length > 2, markdown.codeText(blocks[0]) === lines];
    """
    assert run(modules, code) == [True, True]


# -- tasks ---------------------------------------------------------------------------------------------------------

ASSEMBLE = """
    const turn = conversation.Turn.of({ messageId: "m1", role: "ROLE_USER", parts: [{ text: "hello" }] });
    for (const event of value) turn.apply(event);
    const result = { ...turn, artifacts: [...turn.artifacts.values()] };
"""


def artifact(text: str, **others: Any) -> dict[str, Any]:
    return {"artifactUpdate": {"taskId": "t", "artifact": {"artifactId": "a", "parts": [{"text": text}]}, **others}}


def status(state: str, text: str | None = None, metadata: dict[str, Any] | None = None) -> dict[str, Any]:
    message = {"messageId": f"s-{text}", "role": "ROLE_AGENT", "parts": [{"text": text}], "metadata": metadata or {}}
    status = {"state": f"TASK_STATE_{state}", **({} if text is None else {"message": message})}
    return {"statusUpdate": {"taskId": "t", "contextId": "c", "status": status}}


def test_chunks_are_appended_and_replaced(modules: Path):
    appended = run(modules, ASSEMBLE, [artifact("a"), artifact("b", append=True), artifact("c", append=True)])
    replaced = run(modules, ASSEMBLE, [artifact("a"), artifact("b", lastChunk=True)])

    assert appended["artifacts"][0]["parts"] == [{"text": "abc"}]
    assert replaced["artifacts"][0]["parts"] == [{"text": "b"}]
    assert replaced["artifacts"][0]["complete"] is True


def test_parts_that_are_more_than_text_stay_apart(modules: Path):
    number = {"artifactId": "a", "parts": [{"text": "1", "mediaType": "application/json"}]}
    events = [artifact("a"), {"artifactUpdate": {"taskId": "t", "artifact": number, "append": True}}]

    assert len(run(modules, ASSEMBLE, events)["artifacts"][0]["parts"]) == 2


def test_progress_is_shown_while_the_agent_works_and_is_no_message(modules: Path):
    progress = status("WORKING", "half", {"dragoman/progress": {"done": 1, "total": 2}})
    working = run(modules, ASSEMBLE, [progress])
    done = run(modules, ASSEMBLE, [progress, status("COMPLETED")])

    assert working["progress"] == {"text": "half", "done": 1, "total": 2}
    assert (done["progress"], len(done["messages"])) == (None, 1)


def test_a_question_stays_in_the_conversation_once_it_is_answered(modules: Path):
    turn = run(modules, ASSEMBLE, [status("INPUT_REQUIRED", "How many?"), status("WORKING")])

    assert [message["parts"][0]["text"] for message in turn["messages"]] == ["hello", "How many?"]


def test_the_history_of_the_server_does_not_repeat_what_was_sent(modules: Path):
    sent = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    task = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}, "history": [sent]}

    assert len(run(modules, ASSEMBLE, [{"task": task}])["messages"]) == 1
