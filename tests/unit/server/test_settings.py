"""The settings: where they come from, which one counts, and what is wrong with the others."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from dragoman.engine.settings import EngineSettings
from dragoman.model.error import ConfigError
from dragoman.server.config.loader import find_config, load_settings
from dragoman.server.config.settings import SETTINGS, Limits, Settings


def load(
    folder: Path, config: Path | None = None, /, *, environ: dict[str, str] | None = None, **keywords: Any
) -> Settings:
    return load_settings(keywords, environ=environ or {}, config=config, cwd=folder)


def flags(folder: Path, **given: Any) -> Settings:
    return load_settings({}, environ={}, config=None, cwd=folder, flags=given)


def problem(folder: Path, config: Path | None = None, /, **given: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, config, **given)
    return str(caught.value)


def write(folder: Path, text: str, name: str = "dragoman.toml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_with_nothing_given_the_defaults_hold(tmp_path: Path):
    assert load(tmp_path) == Settings()
    assert Settings().limits == Limits(body=10_000_000)


def test_where_callers_are_known_there_is_a_rate_unless_another_is_set(tmp_path: Path):
    def rate(**given: Any) -> tuple[float, int]:
        limits = load(tmp_path, **given).limits
        return limits.rate, limits.burst

    assert rate() == (0, 0)
    assert rate(auth="cookie") == (100, 1000)
    assert rate(auth="cookie", limits={"rate": 0}) == (0, 0)
    assert rate(auth="cookie", limits={"rate": 7}) == (7, 0)
    assert rate(auth="cookie", limits={"burst": 7}) == (100, 7)
    assert rate(auth="cookie", environ={"DRAGOMAN_LIMITS_RATE": "0"}) == (0, 0)
    write(tmp_path, "[auth.basic]\n")
    assert rate() == (100, 1000)


def test_every_field_is_declared_as_a_setting():
    fields = {name for name in Settings.__struct_fields__ if name != "limits"}
    limits = {f"limits_{name}" for name in Limits.__struct_fields__}
    assert set(SETTINGS) == fields | limits


def test_every_default_passes_its_own_check():
    for setting in SETTINGS.values():
        if setting.default is not None:
            assert setting.parse(setting.default, False) == setting.default


def test_an_engine_without_settings_has_the_defaults_of_a_server():
    assert Settings().for_engine() == EngineSettings()


def test_every_help_text_is_one_line_and_every_flag_is_the_name():
    for name, info in SETTINGS.items():
        assert info.help.text
        assert "\n" not in info.help.text
        assert info.flag is None or info.flag.partition("/")[0] == f"--{name.replace('_', '-')}"


def test_a_keyword_counts_before_the_environment_and_that_before_the_file_and_that_before_PORT(tmp_path: Path):
    fallback = {"PORT": "1", "BIND_HOST": "10.0.0.1"}
    assert load(tmp_path, environ=fallback).port == 1
    assert load(tmp_path, environ=fallback).host == "10.0.0.1"
    write(tmp_path, '[serve]\nport = 2\nhost = "10.0.0.2"\n')
    assert load(tmp_path, environ=fallback).port == 2
    assert load(tmp_path, environ=fallback).host == "10.0.0.2"
    assert load(tmp_path, environ=fallback | {"DRAGOMAN_PORT": "3"}).port == 3
    assert load(tmp_path, environ=fallback | {"DRAGOMAN_PORT": "3"}, port=4).port == 4


def test_a_value_that_does_not_count_is_not_looked_at(tmp_path: Path):
    assert load(tmp_path, environ={"PORT": "tcp://10.0.0.1:80", "DRAGOMAN_PORT": "wrong"}, port=4).port == 4


def test_a_keyword_that_is_none_and_an_empty_variable_count_as_not_given(tmp_path: Path):
    assert load(tmp_path, environ={"DRAGOMAN_PORT": "", "PORT": "7"}, port=None, url=None).port == 7


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("HOST", "0.0.0.0", "0.0.0.0"),
        ("STORE", "memory:", "memory:"),
        ("URL", "https://agents.example.com/calc/", "https://agents.example.com/calc"),
        ("TRUST_PROXY", "10.0.0.0/8, ::1", (ip_network("10.0.0.0/8"), ip_network("::1"))),
        ("CARD_VERSION", "0.3", "0.3"),
        ("DEDUPE", "0", 0),
        ("DEV", "yes", True),
        ("DEV", "off", False),
        ("DRAIN", "2.5", 2.5),
        ("LOG", "json", "json"),
        ("LOG_LEVEL", "DEBUG", "debug"),
        ("BLOCKING", "False", False),
        ("BLOCKING", "0", False),
        ("HEARTBEAT", "0.5", 0.5),
        ("LONG_POLL", "0", 0),
        ("LIMITS_BODY", "1000", Limits(body=1000)),
    ],
)
def test_the_environment_is_read_by_each_settings_type(tmp_path: Path, name: str, text: str, value: object):
    settings = load(tmp_path, environ={f"DRAGOMAN_{name}": text})
    field = "limits" if name == "LIMITS_BODY" else name.lower()
    assert getattr(settings, field) == value


def test_flags_are_read_like_the_environment(tmp_path: Path):
    settings = flags(tmp_path, port="9", dev=True, trust_proxy=("10.0.0.0/8", "::1"), limits_body="5", log_level=None)
    assert (settings.port, settings.dev, settings.limits.body) == (9, True, 5)
    assert settings.trust_proxy == (ip_network("10.0.0.0/8"), ip_network("::1"))


def test_a_flag_counts_before_a_keyword(tmp_path: Path):
    settings = load_settings({"port": 1, "drain": 2}, environ={}, config=None, cwd=tmp_path, flags={"port": "3"})
    assert (settings.port, settings.drain) == (3, 2)


def test_development_turns_deduplication_off_unless_it_is_set(tmp_path: Path):
    assert load(tmp_path, dev=True).dedupe == 0
    assert load(tmp_path, dev=True, dedupe=5).dedupe == 5
    assert load(tmp_path, dev=True, environ={"DRAGOMAN_DEDUPE": "6"}).dedupe == 6
    assert load(tmp_path, dev=False).dedupe == 600


def test_limits_come_from_keyword_environment_and_table(tmp_path: Path):
    write(tmp_path, "[limits]\nbody = 1\n")
    assert load(tmp_path).limits.body == 1
    assert load(tmp_path, environ={"DRAGOMAN_LIMITS_BODY": "2"}).limits.body == 2
    assert load(tmp_path, environ={"DRAGOMAN_LIMITS_BODY": "2"}, limits={"body": 3}).limits.body == 3
    assert load(tmp_path, limits=Limits(body=4)).limits.body == 4
    assert load(tmp_path, limits=None).limits.body == 1


def test_the_named_file_counts_before_the_variable_and_that_before_the_one_in_the_folder(tmp_path: Path):
    write(tmp_path, "[serve]\nport = 1\n")
    write(tmp_path, "[serve]\nport = 2\n", "other/two.toml")
    write(tmp_path, "[serve]\nport = 3\n", "other/three.toml")
    variable = {"DRAGOMAN_CONFIG": "other/two.toml"}
    assert load(tmp_path).port == 1
    assert load(tmp_path, environ=variable).port == 2
    assert load(tmp_path, Path("other/three.toml"), environ=variable).port == 3
    assert load(tmp_path, tmp_path / "other" / "three.toml").port == 3


def test_a_named_file_that_is_missing_is_an_error(tmp_path: Path):
    assert problem(tmp_path, Path("other.toml")) == "other.toml: there is no such settings file"
    assert "gone.toml: there is no such" in problem(tmp_path, environ={"DRAGOMAN_CONFIG": "gone.toml"})


def test_a_store_in_a_file_is_relative_to_the_file(tmp_path: Path):
    path = write(tmp_path, '[serve]\nstore = "sqlite:///data/tasks.db"\n', "deep/dragoman.toml")
    assert load(tmp_path, path).store == f"sqlite:///{tmp_path / 'deep' / 'data' / 'tasks.db'}"
    path.write_text('[serve]\nstore = "sqlite:////data/tasks.db"\n')
    assert load(tmp_path, path).store == "sqlite:////data/tasks.db"
    path.write_text('[serve]\nstore = "memory:"\n')
    assert load(tmp_path, path).store == "memory:"


def test_a_store_from_elsewhere_stays_as_it_was_given(tmp_path: Path):
    assert load(tmp_path, store="sqlite:///data/tasks.db").store == "sqlite:///data/tasks.db"


def test_agents_and_remotes_are_kept_apart_from_the_settings(tmp_path: Path):
    write(tmp_path, '[agents.calc]\ntarget = "calc.py"\n[remotes.trip]\nurl = "http://trip"\n')
    assert load(tmp_path) == Settings()
    file = find_config(None, environ={}, cwd=tmp_path)
    assert file is not None
    assert file.path == tmp_path / "dragoman.toml"
    assert file.agents == {"calc": {"target": "calc.py"}}
    assert file.remotes == {"trip": {"url": "http://trip"}}


def test_without_a_file_there_is_none(tmp_path: Path):
    assert find_config(None, environ={}, cwd=tmp_path) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[serve]\nprot = 1", "dragoman.toml [serve]: there is no setting `prot`; did you mean `port`?"),
        ("[limits]\nbdy = 1", "dragoman.toml [limits]: there is no setting `bdy`; did you mean `body`?"),
        ("[serv]\nport = 1", "dragoman.toml: there is no table [serv]; did you mean `[serve]`?"),
        ("[agnets.calc]", "dragoman.toml: there is no table [agnets]; did you mean `[agents]`?"),
        ("[zzz]", "dragoman.toml: there is no table [zzz]; there are [serve], [limits], [agents], [remotes]"),
        ("port = 1", "dragoman.toml: `port` belongs under [serve]"),
        ("serve = 1", "dragoman.toml [serve]: must be a table, not 1"),
        ("[agents]\ncalc = 1", "dragoman.toml [agents.calc]: must be a table, not 1"),
        ("[serve]\nlimits_body = 1", "dragoman.toml [serve]: there is no setting `limits_body`; there are "),
        ("[serve]\nport = '80'", 'dragoman.toml [serve] port: must be a whole number from 0 to 65535, not "80"'),
        ("[serve]\nport = 80.0", "dragoman.toml [serve] port: must be a whole number from 0 to 65535, not 80.0"),
        ("[serve]\nport = true", "dragoman.toml [serve] port: must be a whole number from 0 to 65535, not true"),
        ("[serve]\ncard_version = 1.0", 'card_version: must be "both", "1.0", "0.3", not 1.0'),
        ("[serve]\ndrain = nan", "dragoman.toml [serve] drain: must be seconds, 0 or more, not NaN"),
        ("[serve]\ndev = 'yes'", 'dragoman.toml [serve] dev: must be true or false, not "yes"'),
        ("[serve]\nhost = ''", 'dragoman.toml [serve] host: must be text, not ""'),
        ("[serve]\nport = 1979-05-27", "port: must be a whole number from 0 to 65535, not"),
        ("[serve\n", "dragoman.toml: is not TOML: Expected"),
    ],
)
def test_an_error_in_a_file_names_the_table(tmp_path: Path, text: str, says: str):
    write(tmp_path, text)
    assert says in problem(tmp_path)


def test_a_file_that_cannot_be_read_is_an_error_with_its_name(tmp_path: Path):
    (tmp_path / "dragoman.toml").mkdir()
    assert problem(tmp_path).startswith("dragoman.toml: cannot be read: ")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    assert problem(tmp_path, Path("bytes.toml")).startswith("bytes.toml: is not TOML: ")


@pytest.mark.parametrize(
    ("variable", "text", "says"),
    [
        ("PORT", "80a", 'environment DRAGOMAN_PORT: must be a whole number from 0 to 65535, not "80a"'),
        ("PORT", "65536", 'environment DRAGOMAN_PORT: must be a whole number from 0 to 65535, not "65536"'),
        ("DEV", "maybe", 'environment DRAGOMAN_DEV: must be true or false, not "maybe"'),
        ("HEARTBEAT", "0", 'environment DRAGOMAN_HEARTBEAT: must be seconds, more than 0, not "0"'),
        ("DEDUPE", "-1", 'environment DRAGOMAN_DEDUPE: must be seconds, 0 or more, not "-1"'),
        ("DEDUPE", "inf", 'environment DRAGOMAN_DEDUPE: must be seconds, 0 or more, not "inf"'),
        ("LOG", "jsn", 'environment DRAGOMAN_LOG: must be "text", "json", not "jsn"; did you mean "json"?'),
        ("LIMITS_BODY", "0", 'environment DRAGOMAN_LIMITS_BODY: must be a whole number from 1, not "0"'),
        ("TRUST_PROXY", "10.1.2.3/8", "environment DRAGOMAN_TRUST_PROXY: must be networks like 10.0.0.0/8: 10.1.2.3/8"),
        ("STORE", "tasks.db", "environment DRAGOMAN_STORE tasks.db: must be `memory:`"),
        ("URL", "agents.example.com", "environment DRAGOMAN_URL: must be an address like https://"),
        ("URL", "http://host:port", "environment DRAGOMAN_URL: must be an address like https://"),
    ],
)
def test_an_error_in_the_environment_names_the_variable(tmp_path: Path, variable: str, text: str, says: str):
    assert says in problem(tmp_path, environ={f"DRAGOMAN_{variable}": text})


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        (
            "PROT",
            "1",
            "environment DRAGOMAN_PROT: there is no such setting, it is ignored; did you mean `DRAGOMAN_PORT`?",
        ),
        (
            "PROT",
            "",
            "environment DRAGOMAN_PROT: there is no such setting, it is ignored; did you mean `DRAGOMAN_PORT`?",
        ),
        (
            "LIMITS_BDY",
            "1",
            "DRAGOMAN_LIMITS_BDY: there is no such setting, it is ignored; did you mean `DRAGOMAN_LIMITS_BODY`?",
        ),
        ("XYZZY", "1", "environment DRAGOMAN_XYZZY: there is no such setting, it is ignored"),
        ("A\x1b]0;B\nC", "1", r"environment DRAGOMAN_A\x1b]0;B\nC: there is no such setting, it is ignored"),
    ],
)
def test_an_unknown_variable_is_a_warning_with_the_nearest_name_and_stops_nothing(
    tmp_path: Path, variable: str, value: str, says: str
):
    warned: list[str] = []
    environ = {f"DRAGOMAN_{variable}": value, "DRAGOMAN_DRAIN": "7"}
    found = load_settings({}, environ=environ, config=None, cwd=tmp_path, warn=warned.append)
    assert found == Settings(drain=7)
    assert len(warned) == 1
    assert warned[0].endswith(says)


def test_without_a_callback_warnings_go_to_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    assert load(tmp_path, environ={"DRAGOMAN_PROT": "1"}) == Settings()
    assert [(each.name, each.levelname) for each in caplog.records] == [("dragoman.settings", "WARNING")]
    assert "DRAGOMAN_PORT" in caplog.text


def test_variables_that_mean_something_else_are_left_alone(tmp_path: Path):
    others = {"DRAGOMAN_TOKEN": "t", "DRAGOMAN_AGENT": "a", "DRAGOMAN": "1", "PORTS": "1"}
    assert load(tmp_path, environ=others) == Settings()


def test_a_kubernetes_service_of_our_name_does_not_disturb(tmp_path: Path):
    links = {
        "DRAGOMAN_SERVICE_HOST": "10.0.0.1",
        "DRAGOMAN_SERVICE_PORT": "80",
        "DRAGOMAN_SERVICE_PORT_HTTP": "80",
        "DRAGOMAN_PORT": "tcp://10.0.0.1:80",
        "DRAGOMAN_PORT_80_TCP": "tcp://10.0.0.1:80",
        "DRAGOMAN_PORT_80_TCP_ADDR": "10.0.0.1",
        "DRAGOMAN_CALC_SERVICE_HOST": "10.0.0.2",
        "DRAGOMAN_CALC_PORT": "tcp://10.0.0.2:80",
    }
    assert load(tmp_path, environ=links) == Settings()


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({"prot": 1}, "keyword prot: there is no such setting; did you mean `port`?"),
        ({"limits_body": 1}, "keyword limits_body: there is no such setting; did you mean `limits`?"),
        ({"limits": {"bdy": 1}}, "keyword limits: there is no limit `bdy`; did you mean `body`?"),
        ({"limits": {"body": "1"}}, 'keyword limits["body"]: must be a whole number from 1, not "1"'),
        ({"limits": 5}, "keyword limits: must be a table, not 5"),
        ({"port": "8080"}, 'keyword port: must be a whole number from 0 to 65535, not "8080"'),
        ({"port": -1}, "keyword port: must be a whole number from 0 to 65535, not -1"),
        ({"drain": "1"}, 'keyword drain: must be seconds, 0 or more, not "1"'),
        ({"dev": 1}, "keyword dev: must be true or false, not 1"),
        ({"trust_proxy": 5}, "keyword trust_proxy: must be networks like 10.0.0.0/8, not 5"),
        ({"trust_proxy": [5]}, "keyword trust_proxy: must be networks like 10.0.0.0/8, not 5"),
        ({"store": Path("x")}, "keyword store: must be text, not"),
    ],
)
def test_an_error_in_a_keyword_names_the_keyword(tmp_path: Path, keywords: dict[str, Any], says: str):
    assert says in problem(tmp_path, **keywords)


def test_an_error_in_a_flag_names_it_as_it_is_typed(tmp_path: Path):
    with pytest.raises(ConfigError, match=r'^--log-level: must be .* not "inf"; did you mean "info"\?'):
        flags(tmp_path, log_level="inf")
    with pytest.raises(ConfigError, match=r"^--prot: there is no such setting; did you mean `--port`\?"):
        flags(tmp_path, prot="1")


@pytest.mark.parametrize("value", ["http://me:hunter2@host", "http://me:hunter2@host:x", "ftp://hunter2.example"])
def test_a_wrong_address_is_not_shown_with_its_password(tmp_path: Path, value: str):
    assert "hunter2" not in problem(tmp_path, url=value)


def test_settings_cannot_be_changed():
    with pytest.raises(AttributeError):
        Settings().port = 1  # pyright: ignore[reportAttributeAccessIssue]


SHARED = "postgresql://me@db/tasks"


def test_what_only_several_servers_have_needs_their_store(tmp_path: Path):
    loaded = load(tmp_path, store=SHARED, node="one", lease=4, limits={"runs": 0})
    assert (loaded.node, loaded.lease, loaded.limits.runs) == ("one", 4, 0)
    assert load(tmp_path, store=SHARED).limits.runs is None
    expected = (
        "only servers that share a store have a lease: use --store postgresql://user@host/database, or leave it out"
    )
    assert problem(tmp_path, lease=4) == f"keyword lease: {expected}"
    assert problem(tmp_path, environ={"DRAGOMAN_LIMITS_RUNS": "0"}).startswith("environment DRAGOMAN_LIMITS_RUNS: only")
    assert problem(tmp_path, store="memory:", node="one").startswith("keyword node: only servers that share a store")


@pytest.mark.parametrize(
    ("given", "host", "port"),
    [(50051, "", 50051), ("0", "", 0), ("0.0.0.0:50051", "0.0.0.0", 50051), ("[::1]:50051", "::1", 50051)],
)
def test_grpc_has_a_port_and_perhaps_a_host(tmp_path: Path, given: str | int, host: str, port: int):
    settings = load(tmp_path, grpc=given)
    assert settings.grpc == (host, port)
    assert load(tmp_path, environ={"DRAGOMAN_GRPC": str(settings.grpc)}).grpc == (host, port)


@pytest.mark.parametrize("given", ["", "x", "70000", ":50051", "http://127.0.0.1:50051", "127.0.0.1", True, -1])
def test_an_invalid_address_of_grpc_is_refused_with_a_valid_one(tmp_path: Path, given: Any):
    assert problem(tmp_path, grpc=given).startswith(
        "keyword grpc: must be a port, or an address like 127.0.0.1:50051, not "
    )


def test_grpc_and_http_have_ports_of_their_own(tmp_path: Path):
    assert problem(tmp_path, grpc=8080) == "keyword grpc: port 8080 is that of HTTP: use another one, as --grpc 50051"
    assert problem(tmp_path, grpc="127.0.0.1:9000", port=9000).startswith("keyword grpc: port 9000 is that of HTTP")
    assert load(tmp_path, grpc=0, port=0).grpc == ("", 0)
    assert load(tmp_path, grpc="127.0.0.2:8080").grpc == ("127.0.0.2", 8080)


def test_metrics_are_off_and_else_for_this_machine_unless_a_host_is_named(tmp_path: Path):
    assert load(tmp_path).metrics is None
    assert load(tmp_path, metrics=9464).metrics == ("127.0.0.1", 9464)
    assert load(tmp_path, metrics=9464, host="0.0.0.0").metrics == ("127.0.0.1", 9464)
    assert load(tmp_path, environ={"DRAGOMAN_METRICS": "0.0.0.0:9464"}).metrics == ("0.0.0.0", 9464)
    assert load(tmp_path, metrics="[::1]:0").metrics == ("::1", 0)
    assert problem(tmp_path, metrics="on") == (
        'keyword metrics: must be a port, or an address like 127.0.0.1:9464, not "on"'
    )


def test_metrics_have_a_port_of_their_own(tmp_path: Path):
    text = "keyword metrics: port 8080 is that of HTTP: use another one, as --metrics 9464"
    assert problem(tmp_path, metrics=8080) == text
    assert problem(tmp_path, metrics="0.0.0.0:8080") == text
    assert problem(tmp_path, metrics=8080, host="0.0.0.0") == text
    assert problem(tmp_path, metrics=50051, grpc=50051).startswith("keyword metrics: port 50051 is that of gRPC")
    assert load(tmp_path, metrics=0, port=0, grpc=0).metrics == ("127.0.0.1", 0)
    assert load(tmp_path, metrics="127.0.0.2:8080").metrics == ("127.0.0.2", 8080)


@pytest.mark.parametrize("given", ["agents.example:50051", "[::1]:50051", "https://agents.example/grpc"])
def test_the_public_address_of_grpc_is_what_callers_dial(tmp_path: Path, given: str):
    assert load(tmp_path, grpc=50051, grpc_url=given).grpc_url == given
    assert problem(tmp_path, grpc_url=given).endswith("gRPC is not served: add --grpc 50051, or leave this out")


@pytest.mark.parametrize("given", ["agents.example", "agents.example:0", "a:b:c", "me:secret@agents.example:1", 7])
def test_a_public_address_that_nobody_can_dial_is_refused(tmp_path: Path, given: Any):
    text = problem(tmp_path, grpc=50051, grpc_url=given)
    assert text.startswith("keyword grpc_url: must be an address like agents.example.com:50051, not ")
    assert "secret" not in text
