"""What a user types after `serve`, and what it turns into."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.installation import package_line
from dragoman.model.error import ConfigError
from dragoman.server.agent.agent import Agent
from dragoman.server.agent.target import as_servable, load_target

AGENT = """
from dragoman import Agent

agent = Agent("calc", description="Adds numbers")

@agent.skill
def add(a: int, b: int) -> int:
    return a + b
"""


@pytest.fixture(autouse=True)
def _imports_are_undone() -> Iterator[None]:
    modules, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if not name.startswith("dragoman"):
            del sys.modules[name]


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def problem(target: str, folder: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_target(target, cwd=folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("target", ["calc1", "calc1:agent", "calc1.py", "calc1.py:agent", "./calc1.py"])
def test_a_module_or_a_file_names_its_agent(tmp_path: Path, target: str):
    write(tmp_path, {"calc1.py": AGENT})
    assert load_target(target, cwd=tmp_path).name == "calc"


MINE = AGENT.replace("agent = ", "mine = agent = ")


@pytest.mark.parametrize(
    ("file", "text", "target"),
    [
        ("pkg3/inner.py", f"{AGENT}\nclass Holder:\n    held = agent\n", "pkg3.inner:Holder.held"),
        ("my-agent.py", AGENT, "my-agent.py"),
        ("many7.py", f"{AGENT}\nsecond = Agent('second', description='x')\nalias = agent\n", "many7.py"),
        ("twice8.py", f"{MINE}\ncalc = mine\n", "twice8.py"),
        ("hidden10.py", f"{MINE}\n_private = Agent('private')\n", "hidden10"),
    ],
    ids=["in an object", "no identifier", "the usual name of several", "two names of one", "a name with an underscore"],
)
def test_the_agent_that_is_meant_is_found(tmp_path: Path, file: str, text: str, target: str):
    write(tmp_path, {file: text})
    assert load_target(target, cwd=tmp_path).name == "calc"


def test_an_absolute_file_will_do(tmp_path: Path):
    write(tmp_path, {"calc2.py": AGENT})
    assert load_target(f"{tmp_path / 'calc2.py'}:agent", cwd=tmp_path / "elsewhere").name == "calc"


def test_a_file_is_imported_once(tmp_path: Path):
    write(tmp_path, {"calc4.py": AGENT})
    assert load_target("calc4.py", cwd=tmp_path) is load_target("calc4.py", cwd=tmp_path)
    assert load_target("calc4", cwd=tmp_path) is load_target("calc4.py", cwd=tmp_path)


def test_two_files_of_one_name_are_two_modules(tmp_path: Path):
    write(tmp_path, {"a/app5.py": AGENT, "b/app5.py": AGENT.replace("calc", "other")})
    assert load_target("a/app5.py", cwd=tmp_path).name == "calc"
    assert load_target("b/app5.py", cwd=tmp_path).name == "other"


def test_siblings_of_a_file_can_be_imported_also_later(tmp_path: Path):
    late = "def late():\n    import helper6\n    return helper6.VALUE\n"
    write(tmp_path, {"deep/calc6.py": f"import early6\n{late}", "deep/early6.py": "", "deep/helper6.py": "VALUE = 6"})
    assert load_target("deep/calc6.py:late", cwd=tmp_path)() == 6


def test_of_several_agents_without_a_usual_name_the_user_says_which(tmp_path: Path):
    write(tmp_path, {"many9.py": "from dragoman import Agent\none = Agent('one')\ntwo = Agent('two')\n"})
    says = "`many9.py` has several things to serve (`one`, `two`): choose one, as in `many9.py:one`"
    assert problem("many9.py", tmp_path) == says


@pytest.mark.parametrize("target", ["", ":", ":agent", "calc:", "calc.py:"])
def test_half_a_target_is_refused_with_how_to_write_one(tmp_path: Path, target: str):
    assert "write `module:name` or `file.py`" in problem(target, tmp_path)


def test_a_missing_module_is_an_error_with_the_nearest_name(tmp_path: Path):
    write(tmp_path, {"calculator.py": AGENT, "pkg11/__init__.py": "", "pkg11/inner.py": AGENT})
    assert problem("calcolator", tmp_path) == "there is no module `calcolator`; did you mean `calculator`?"
    assert problem("pkg12:agent", tmp_path) == "there is no module `pkg12`; did you mean `pkg11`?"
    assert problem("pkg11.iner", tmp_path) == "there is no module `pkg11.iner`; did you mean `pkg11.inner`?"
    says = f"there is no module `qqqqqq`, neither in {tmp_path} nor installed"
    assert problem("qqqqqq:agent", tmp_path) == says


def test_a_path_without_its_ending_is_an_error_with_the_whole_path(tmp_path: Path):
    write(tmp_path, {"sub/calc13.py": AGENT})
    assert problem("sub/calc13", tmp_path) == "`sub/calc13` is not a module name; did you mean `sub/calc13.py`?"
    assert problem("sub/other", tmp_path) == "`sub/other` is not a module name: write `module:name` or `file.py`"


def test_a_missing_file_is_an_error_with_the_nearest_name(tmp_path: Path):
    write(tmp_path, {"sub/calc14.py": AGENT})
    assert problem("sub/clac14.py", tmp_path) == "there is no file `sub/clac14.py`; did you mean `sub/calc14.py`?"
    assert problem("calc14.py", tmp_path) == f"there is no file `calc14.py` in {tmp_path}"
    assert problem("nowhere/x.py:agent", tmp_path) == f"there is no file `nowhere/x.py` in {tmp_path / 'nowhere'}"


def test_a_missing_attribute_is_an_error_with_the_nearest_name(tmp_path: Path):
    write(tmp_path, {"calc15.py": AGENT})
    assert problem("calc15:agnet", tmp_path) == "`calc15` has no `agnet`; did you mean `agent`?"
    assert problem("calc15.py:zzz", tmp_path) == "`calc15.py` has no `zzz`; there is `calc15.py:agent`"


def test_a_file_with_nothing_to_serve_is_refused_with_what_to_write(tmp_path: Path):
    write(
        tmp_path, {"empty16.py": "VALUE = 1", "functions16.py": "from json import dumps\ndef add(a: int) -> int: ..."}
    )
    says = '`empty16.py` has nothing to serve: write `agent = Agent("empty16", description="…")` in it and mark'
    assert problem("empty16.py", tmp_path).startswith(says)
    says = "`functions16` has nothing to serve: name a function of it, as in `functions16:add`"
    assert problem("functions16", tmp_path) == says


@pytest.mark.parametrize("target", ["needs17", "needs17.py"])
def test_what_the_users_module_needs_is_not_mistaken_for_the_module(tmp_path: Path, target: str):
    write(tmp_path, {"needs17.py": "import json\nimport no_such_package_17\n"})
    says = f"needs17.py:2: imports `no_such_package_17`, which is not installed: {package_line('no_such_package_17')}"
    assert problem(target, tmp_path) == says


def test_a_misspelt_import_of_a_sibling_is_an_error_with_its_name(tmp_path: Path):
    write(tmp_path, {"main18.py": "import helpr18\n", "helper18.py": ""})
    says = "main18.py:1: imports `helpr18`, which is not installed; did you mean `helper18`?"
    assert problem("main18.py", tmp_path) == says


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\ny = x / 0\n", "broken19.py:2: ZeroDivisionError: division by zero"),
        ("import json\njson.loads('{')\n", "broken19.py:2: JSONDecodeError: Expecting property name"),
        ("def broken(:\n", "broken19.py:1: SyntaxError: invalid syntax"),
        ("raise ValueError('two\\nlines')\n", "broken19.py:1: ValueError: two lines"),
        ("raise KeyError\n", "broken19.py:1: KeyError"),
        ("from json import nothing19\n", "broken19.py:1: ImportError: cannot import name 'nothing19'"),
        ("import sys\nsys.exit(1)\n", "broken19.py:2: exits Python when it is imported: put code that must not run"),
        (
            "from dragoman import Agent\nagent = Agent('x')\n@agent.skill\ndef f(a):\n    pass\n",
            "broken19.py:3: skill `f`: parameter `a` has no type",
        ),
        (
            "from dragoman import Agent\nagent = Agent('x')\nagent.serve()\n",
            'broken19.py:3: serve() runs when this file is imported: put it under `if __name__ == "__main__":`',
        ),
    ],
)
@pytest.mark.parametrize("target", ["broken19", "broken19.py"])
def test_an_import_that_raises_is_one_line_with_the_place(tmp_path: Path, text: str, says: str, target: str):
    write(tmp_path, {"broken19.py": text})
    assert problem(target, tmp_path).startswith(says)


def test_a_failed_import_is_tried_again(tmp_path: Path):
    write(tmp_path, {"again20.py": "1 / 0"})
    problem("again20.py", tmp_path)
    write(tmp_path, {"again20.py": f"{AGENT}# other length, so that no stale bytecode counts"})
    assert load_target("again20.py", cwd=tmp_path).name == "calc"


def test_an_agent_is_served_as_it_is():
    agent = Agent("calc", description="Adds numbers")
    assert as_servable(agent) is agent


def test_a_function_becomes_an_agent_with_that_one_skill():
    def add_numbers(a: int, b: int) -> int:
        """Add two numbers.

        At length.
        """
        return a + b

    agent: Any = as_servable(add_numbers)
    assert isinstance(agent, Agent)
    assert (agent.name, agent.description) == ("add_numbers", "Add two numbers.")
    assert [skill.id for skill in agent.skills] == ["add_numbers"]


def test_a_function_without_a_docstring_is_described_by_its_name():
    async def tell_story(topic: str) -> str:
        return topic

    agent: Any = as_servable(tell_story)
    assert agent.description == "tell story"


@pytest.mark.parametrize(
    ("obj", "says"),
    [
        (Agent, "the class `Agent` cannot be served: an Agent, a Server, a function or an agent of a framework can"),
        (42, "an object of type `int` cannot be served: an Agent, a Server, a function or an agent of a framework can"),
        (lambda text: text, "a lambda cannot be served because it has no name: write a function with `def`"),
    ],
)
def test_anything_else_is_refused_with_what_can_be_served(obj: object, says: str):
    with pytest.raises(ConfigError) as caught:
        as_servable(obj)
    assert str(caught.value) == says


def test_an_mcp_server_is_served_as_an_agent_with_its_tools(tmp_path: Path):
    text = 'from mcp.server import MCPServer\nserver = MCPServer("kitchen")\n@server.tool()\ndef boil() -> str: ...\n'
    write(tmp_path, {"mine24.py": text})
    agent = as_servable(load_target("mine24.py", cwd=tmp_path))
    assert isinstance(agent, Agent)
    assert agent.name == "kitchen"
    assert agent.tools is not None
