"""Loads the target of `dragoman serve`: imports a module or file and finds the object to serve."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dragoman.model.error import ConfigError
from dragoman.server.agent.frameworks import agent_of, extra_of, framework_of

if TYPE_CHECKING:
    from types import ModuleType

    from dragoman.server.listen.serve import Servable

_is_importing: ContextVar[bool] = ContextVar("is_importing", default=False)

_USUAL_NAMES = ("agent", "app", "server", "root_agent", "graph")


def load_target(text: str, *, cwd: Path) -> Any:
    """Load the object of `module:name`, `module`, `file.py:name` or `file.py`.

    `cwd`, and the folder of a file, are added to `sys.path` and stay there: agents import their siblings when they run.

    Raises:
        ConfigError: there is no such module, file or name, its import fails, or it has not exactly one object to serve.
    """
    place, name = _split(text)
    _make_importable(cwd)
    with _importing():
        module = _import_file(place, cwd) if place.endswith(".py") else _import_module(place, cwd)
    return _get_named(module, name, place) if name else _find_only(module, place)


def _split(text: str) -> tuple[str, str]:
    place, colon, name = text.rpartition(":") if not text.endswith(".py") else (text, "", "")
    if not colon:
        place, name = text, ""
    if not place or (colon and not name):
        raise ConfigError(f"target `{text}`: write `module:name` or `file.py`")
    return place, name


def locate_target(text: str, *, cwd: Path) -> Path | None:
    """Return the folder with the code of a target, without importing it; None when it cannot be found."""
    try:
        place, _ = _split(text)
    except ConfigError:
        return None
    if place.endswith(".py"):
        return (cwd / Path(place).expanduser()).resolve().parent
    spec = importlib.machinery.PathFinder.find_spec(place.partition(".")[0], [str(cwd), *sys.path])
    if spec is None or not spec.has_location or spec.origin is None:
        return cwd
    return Path(spec.origin).resolve().parent


def is_importing() -> bool:
    """True while `load_target` imports a user's module."""
    return _is_importing.get()


@contextmanager
def _importing() -> Generator[None]:
    token = _is_importing.set(True)
    try:
        yield
    finally:
        _is_importing.reset(token)


def as_servable(obj: Any) -> Servable:
    """Return an Agent or a Server as it is; wrap a function in an Agent with that one skill.

    An agent of a supported framework is wrapped too.

    Raises:
        ConfigError: it is none of these, or the function cannot be a skill.
    """
    if _is_servable(obj):
        return cast("Servable", obj)
    if inspect.isfunction(obj) or inspect.ismethod(obj):
        return _agent_of_function(obj)
    framework = framework_of(obj)
    if framework is not None:
        return agent_of(obj, framework)
    what = f"the class `{obj.__name__}`" if isinstance(obj, type) else f"an object of type `{type(obj).__name__}`"
    raise ConfigError(f"{what} cannot be served: an Agent, a Server, a function or an agent of a framework can")


def _is_servable(obj: object) -> bool:
    # Looked up on the class: mocks and proxies have any attribute and are not meant.
    return callable(getattr(type(obj), "app_for", None)) and isinstance(getattr(obj, "name", None), str)


def _agent_of_function(function: Any) -> Servable:
    from dragoman.server.agent.agent import Agent

    name: str = function.__name__
    if not name.isidentifier():
        raise ConfigError("a lambda cannot be served because it has no name: write a function with `def`")
    lines = (inspect.getdoc(function) or "").splitlines()
    agent = Agent(name, description=lines[0] if lines else name.replace("_", " "))
    agent.skill(function)
    return agent


def _make_importable(folder: Path) -> None:
    path = str(folder.absolute())
    if path not in sys.path:
        sys.path.insert(0, path)
    importlib.invalidate_caches()


def _import_module(name: str, cwd: Path) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        file = cwd / f"{name}.py"
        hint = f"; did you mean `{name}.py`?" if file.is_file() else ": write `module:name` or `file.py`"
        raise ConfigError(f"`{name}` is not a module name{hint}")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(_no_such_module(name, error.name, cwd)) from None
        raise _failed_import(error, name, cwd) from error
    except (Exception, SystemExit) as error:
        raise _failed_import(error, name, cwd) from error


def _import_file(text: str, cwd: Path) -> ModuleType:
    path = (cwd / Path(text).expanduser()).absolute()
    if not path.is_file():
        folder = path.parent
        files = [file.name for file in folder.glob("*.py")] if folder.is_dir() else []
        near = get_close_matches(path.name, files, n=1)
        hint = f"; did you mean `{Path(text).with_name(near[0])}`?" if near else f" in {folder}"
        raise ConfigError(f"there is no file `{text}`{hint}")
    _make_importable(path.parent)
    name = _module_name(path)
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _failed_import(error, text, cwd) from error
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _module_name(path: Path) -> str:
    """Return the file's stem, with a number appended while another module has that name."""
    name, count = path.stem, 1
    while name in sys.modules and getattr(sys.modules[name], "__file__", None) != str(path):
        count += 1
        name = f"{path.stem}_{count}"
    return name


def _no_such_module(name: str, missing: str, cwd: Path) -> str:
    parent, _, last = missing.rpartition(".")
    # A package that is installed may be anywhere.
    package = getattr(sys.modules.get(parent), "__path__", ()) if parent else ()
    folders = [cwd.joinpath(*parent.split(".")) if parent else cwd, *map(Path, package)]
    near = get_close_matches(last, [each for folder in folders for each in _modules_in(folder)], n=1)
    if near:
        right = f"{parent}.{near[0]}" if parent else near[0]
        return f"there is no module `{name}`; did you mean `{right}`?"
    file = get_close_matches(name, [each.name for each in cwd.glob("*.py")], n=1)
    if file:
        return f"there is no file `{name}`; did you mean `{file[0]}`?"
    return f"there is no module `{name}`, neither in {folders[0]} nor installed"


def _modules_in(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    files = [path.stem for path in folder.glob("*.py") if path.stem != "__init__"]
    return files + [path.parent.name for path in folder.glob("*/__init__.py")]


def _failed_import(error: BaseException, target: str, cwd: Path) -> ConfigError:
    """Build the one-line error of a failed import, which names the line of the user's code."""
    where = _where(error, cwd) or target
    if isinstance(error, ConfigError):
        return ConfigError(f"{where}: {error}")
    if isinstance(error, SystemExit):
        guard = 'put code that must not run on import under `if __name__ == "__main__":`'
        return ConfigError(f"{where}: exits Python when it is imported: {guard}")
    if isinstance(error, ModuleNotFoundError) and error.name:
        return ConfigError(f"{where}: imports `{error.name}`, which is not installed{_install_hint(error.name, cwd)}")
    text = " ".join((error.msg if isinstance(error, SyntaxError) else str(error)).split())
    return ConfigError(f"{where}: {type(error).__name__}{': ' if text else ''}{text}")


def _install_hint(module: str, cwd: Path) -> str:
    # Only a slip of the fingers: what is not installed is more often a package than a file of this folder.
    near = get_close_matches(module, _modules_in(cwd), n=1, cutoff=0.8)
    if near:
        return f"; did you mean `{near[0]}`?"
    from dragoman.installation import install_line, package_line

    extra = extra_of(module)
    if extra is not None:
        # A module's name is not always its package's: `agents` is installed by `openai-agents`.
        return f": {install_line(extra)}"
    return f": {package_line(module)}" if "." not in module and module != "google" else ""


def _where(error: BaseException, cwd: Path) -> str | None:
    """Return `file:line` of the innermost frame of the user's code, else of the innermost outside the import system."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_short(error.filename, cwd)}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_import_system(frame.filename)]
    own = [frame for frame in frames if _is_own(frame.filename, cwd)]
    chosen = (own or frames)[-1:]
    return f"{_short(chosen[0].filename, cwd)}:{chosen[0].lineno}" if chosen else None


def _is_import_system(filename: str) -> bool:
    return filename.startswith("<frozen ") or filename in (__file__, importlib.__file__)


def _is_own(filename: str, cwd: Path) -> bool:
    path = Path(filename)
    return path.is_relative_to(cwd.absolute()) and "site-packages" not in path.parts


def _short(filename: str, cwd: Path) -> str:
    path = Path(filename)
    return str(path.relative_to(cwd.absolute())) if path.is_relative_to(cwd.absolute()) else filename


def _get_named(module: ModuleType, name: str, place: str) -> Any:
    obj: Any = module
    for part in name.split("."):
        if not hasattr(obj, part):
            near = get_close_matches(part, [name for name in dir(obj) if not name.startswith("_")], n=1)
            hint = f"; did you mean `{near[0]}`?" if near else _suggestion(module, place)
            raise ConfigError(f"`{place}` has no `{part}`{hint}")
        obj = getattr(obj, part)
    return obj


def _find_only(module: ModuleType, place: str) -> Any:
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    servable = _unique_objects({name: value for name, value in public.items() if _is_servable(value)})
    if not servable:
        servable = _unique_objects({name: value for name, value in public.items() if _is_framework_object(value)})
    if len(servable) == 1:
        return next(iter(servable.values()))
    usual = [name for name in servable if name in _USUAL_NAMES]
    if len(usual) == 1:
        return servable[usual[0]]
    if servable:
        names = ", ".join(f"`{name}`" for name in servable)
        one = next(iter(usual or servable))
        raise ConfigError(f"`{place}` has several things to serve ({names}): choose one, as in `{place}:{one}`")
    raise ConfigError(f"`{place}` has nothing to serve{_suggestion(module, place)}")


def _unique_objects(named: dict[str, Any]) -> dict[str, Any]:
    """Drop second names of the same object; the usual names win."""
    by_identity: dict[int, str] = {}
    for name in sorted(named, key=lambda name: name not in _USUAL_NAMES):
        by_identity.setdefault(id(named[name]), name)
    return {name: value for name, value in named.items() if by_identity[id(value)] == name}


def _is_framework_object(value: Any) -> bool:
    return not isinstance(value, type) and framework_of(value) is not None


def _suggestion(module: ModuleType, place: str) -> str:
    """Return the end of an error that says what could be served instead."""
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    for name, value in public.items():
        if _is_servable(value):
            return f"; there is `{place}:{name}`"
    for name, value in public.items():
        if inspect.isfunction(value) and value.__module__ == module.__name__:
            return f": name a function of it, as in `{place}:{name}`"
    stem = module.__name__.rpartition(".")[2]
    return f': write `agent = Agent("{stem}", description="…")` in it and mark functions with `@agent.skill`'
