"""Connects to PostgreSQL as a `postgresql://` URL says, and puts what goes wrong into words."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from dragoman.model.error import ConfigError
from dragoman.net.failover.search import HostSearch, HostSession
from dragoman.net.failover.search import PostgresUnreachable as PostgresUnreachable
from dragoman.net.failover.timelines import Timeline

SCHEMES = ("postgresql", "postgres")
# The oldest release of PostgreSQL that works.
OLDEST_SERVER = 14
# Seconds to connect to one host, unless the URL has `connect_timeout`.
CONNECT_SECONDS = 10.0
# Settings of every session, unless the URL has them: no timeout of the database or the role may end a statement that
# waits, and a commit is on disk when it is answered.
SESSION_SETTINGS = {
    "synchronous_commit": "on",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "transaction_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "jit": "off",
}
# Parameters of libpq that are about this side of the connection. A server would refuse them.
_CLIENT_PARAMETERS = {
    "connect_timeout",
    "gssencmode",
    "channel_binding",
    "load_balance_hosts",
    "require_auth",
    "sslcompression",
    "sslsni",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "fallback_application_name",
    "client_encoding",
}
_SECRETS = ("password", "sslpassword")
# The files of PostgreSQL's sources that open, write and extend the files of tables.
_FILE_SOURCES = ("md.c", "fd.c", "xlog.c", "slru.c")


class PostgresConnection(Protocol):
    """What is used of a connection of asyncpg."""

    async def fetch(self, query: str, *args: Any) -> list[Any]: ...
    async def fetchrow(self, query: str, *args: Any) -> Any: ...
    async def fetchval(self, query: str, *args: Any) -> Any: ...
    async def execute(self, query: str, *args: Any) -> str: ...
    async def prepare(self, query: str) -> Any: ...
    async def copy_records_to_table(self, table_name: str, *, records: Any, columns: list[str]) -> str: ...
    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...
    def add_termination_listener(self, callback: Callable[..., None]) -> None: ...
    def transaction(self) -> Any: ...
    def get_server_pid(self) -> int: ...
    def is_closed(self) -> bool: ...
    async def close(self) -> None: ...
    def terminate(self) -> None: ...


class PostgresAddress(NamedTuple):
    """A parsed URL: what the driver gets, the hosts to try in turn, and the URL without secrets for texts and logs.

    A host is a name and a port, a folder of Unix sockets and a port, or None: as the environment says.
    """

    dsn: str
    hosts: tuple[tuple[str, int] | None, ...]
    text: str
    parameters: Mapping[str, str]
    secrets: tuple[str, ...]

    def clean(self, text: str) -> str:
        """Remove passwords from a text."""
        for secret in self.secrets:
            text = text.replace(secret, "…")
        return text


def is_postgres_url(url: str) -> bool:
    """True when a URL is meant for PostgreSQL."""
    return url.partition("://")[0] in SCHEMES


def without_password(url: str) -> str:
    """The URL for texts and logs."""
    try:
        return parse_address(url).text
    except ConfigError:
        return f"{url.partition('://')[0]}://…"


@cache
def parse_address(url: str) -> PostgresAddress:
    """Parse a URL such as `postgresql://user@one,two:5433/name?sslmode=verify-full`.

    Raises:
        ConfigError: it cannot be used; the text never has a password.
    """
    example = "write postgresql://user@host/database, with special characters of a password as %XX"
    try:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise ConfigError(f"the URL of the database cannot be read: {example}") from None
    if parts.scheme not in SCHEMES:
        raise ConfigError(f"{parts.scheme or 'this'} is not the scheme of a PostgreSQL database: {example}")
    credentials, _, netloc = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    names = query.pop("host", "") or unquote(netloc)
    hosts = _parse_hosts(names, query.pop("port", ""), example)
    if parts.fragment or len(parts.path.strip("/").split("/")) > 1:
        raise ConfigError(f"the URL of the database has a part too many: {example}")
    if query.get("channel_binding") == "require":
        raise ConfigError(
            "channel_binding=require is not supported: use sslmode=verify-full instead, which protects as well"
        )
    secrets = (unquote(password), password, *(query.get(name, "") for name in _SECRETS))
    kept = {name: value for name, value in query.items() if name not in _CLIENT_PARAMETERS}
    kept.pop("target_session_attrs", None)
    text_query = urlencode({name: value for name, value in query.items() if name not in _SECRETS}, safe="/")
    text_netloc = f"{user}@{netloc}" if user else netloc
    return PostgresAddress(
        # The hosts are given to the driver one by one: each gets its time.
        urlunsplit(("postgresql", f"{credentials}@" if credentials else "", parts.path, urlencode(kept), "")),
        hosts,
        urlunsplit((parts.scheme, text_netloc, parts.path, text_query, "")),
        query,
        tuple({secret for secret in (*secrets, quote(unquote(password), safe="")) if secret}),
    )


def _parse_hosts(names: str, ports: str, example: str) -> tuple[tuple[str, int] | None, ...]:
    if not names:
        return (None,)
    port_list = ports.split(",")
    hosts: list[tuple[str, int]] = []
    try:
        for position, name in enumerate(names.split(",")):
            port = port_list[position if len(port_list) > 1 else 0] or "5432"
            host = name
            if name.startswith("["):
                host, _, end = name[1:].partition("]")
                port = end.removeprefix(":") or port
            elif not name.startswith("/") and name.count(":") == 1:
                host, _, end = name.partition(":")
                port = end or port
            hosts.append((host or "localhost", int(port)))
    except (ValueError, IndexError):
        raise ConfigError(f"a port in the URL of the database is not a number: {example}") from None
    return tuple(hosts)


async def connect(
    url: str, settings: Mapping[str, str] | None = None, *, seconds: float | None = None
) -> PostgresConnection:
    """Connect to the host that takes writes. `settings` are those of the session; those in the URL come first.

    All hosts are asked at once, and each gets `seconds` to answer. Of several that take writes, the one that was
    promoted last is used: the others were given up, and must not be written to. Connections of this process to them
    are ended.

    Raises:
        ConfigError: the URL, the name or the password is wrong, or a pooler shares sessions.
        PostgresUnreachable: no host takes writes now.
    """
    address = parse_address(url)
    seconds = seconds or _connect_seconds(address)
    opens = [partial(_open_session, address, host, seconds, settings or {}) for host in address.hosts]
    search = HostSearch(opens, seconds)
    connection = await search.find()
    if connection is not None:
        return connection
    for problem in search.problems.values():
        if isinstance(problem, ConfigError):
            raise problem
    problems = "; ".join(str(problem) for _, problem in sorted(search.problems.items()))
    raise PostgresUnreachable(f"PostgreSQL at {address.text} cannot be used now: {problems}")


async def _open_session(
    address: PostgresAddress, host: tuple[str, int] | None, seconds: float, settings: Mapping[str, str]
) -> HostSession:
    """Connect to one host, and prepare the session. Raises as `connect` does."""
    connection = await _connect_host(address, host, seconds)
    try:
        async with asyncio.timeout(seconds):
            await _prepare(connection, address, host, settings)
            return HostSession(_host_text(host), connection, await _timeline(connection))
    except BaseException as error:
        connection.terminate()
        if is_lost(error):
            raise PostgresUnreachable(f"{_host_text(host)} closed the connection") from None
        raise


async def _timeline(connection: PostgresConnection) -> Timeline | None:
    """The timeline that a server writes; None when it is a standby, or a service that does not tell."""
    import asyncpg

    try:
        row = await connection.fetchrow(
            "SELECT system_identifier, pg_walfile_name(pg_current_wal_lsn()) FROM pg_control_system()"
        )
    except asyncpg.PostgresError as error:
        if is_lost(error):
            raise
        return None
    system, file_name = row
    return Timeline(system, int(file_name[:8], 16))


async def _connect_host(address: PostgresAddress, host: tuple[str, int] | None, seconds: float) -> PostgresConnection:
    import asyncpg

    where = _host_text(host)
    options: dict[str, Any] = {} if host is None else {"host": host[0], "port": host[1]}
    if address.parameters.get("sslrootcert") == "system":
        options["ssl"] = ssl.create_default_context()
    try:
        driver: Any = asyncpg
        connection = await driver.connect(
            address.dsn,
            timeout=seconds,
            target_session_attrs=address.parameters.get("target_session_attrs", "read-write"),
            statement_cache_size=200,
            max_cached_statement_lifetime=0,
            max_cacheable_statement_size=0,
            connection_class=_connection_class(),
            **options,
        )
        return cast("PostgresConnection", connection)
    except TimeoutError:
        raise PostgresUnreachable(f"{where} does not answer within {seconds:g} s") from None
    except ConnectionRefusedError:
        raise PostgresUnreachable(f"{where} refuses connections: is PostgreSQL running there?") from None
    except socket.gaierror:
        raise PostgresUnreachable(f"{where} is not found: check the name of the host") from None
    except ssl.SSLError as error:
        raise ConfigError(
            f"PostgreSQL at {address.text}: TLS with {where} failed ({error.reason or error}): "
            "check sslmode and sslrootcert"
        ) from None
    except asyncpg.TargetServerAttributeNotMatched:
        raise PostgresUnreachable(f"{where} is a standby that takes no writes") from None
    except asyncpg.PostgresError as error:
        raise _refusal(address, where, error) from None
    except FileNotFoundError as error:
        if host is not None and host[0].startswith("/"):
            raise PostgresUnreachable(f"there is no socket for {where}: is PostgreSQL running there?") from None
        raise ConfigError(f"the URL {address.text} names a file that is not there: {error}") from None
    except (OSError, asyncpg.InternalClientError) as error:
        raise PostgresUnreachable(f"{where}: {address.clean(str(error)) or type(error).__name__}") from None
    except (ValueError, asyncpg.InterfaceError) as error:
        text = " ".join(address.clean(str(error)).split())  # the driver's hints are on lines of their own
        raise ConfigError(f"the URL {address.text} cannot be used: {text}") from None


def _refusal(address: PostgresAddress, where: str, error: Any) -> Exception:
    """The error for a server that has answered and refuses."""
    code, text = _sqlstate(error), address.clean(str(error))
    if code in ("28P01", "28000"):
        advice = "check user and password, and the server's pg_hba.conf"
        return ConfigError(f"PostgreSQL at {address.text} refuses the login: {text}: {advice}")
    if code == "3D000":
        return ConfigError(f"PostgreSQL at {address.text}: {text}: create it with `createdb`, or change the URL")
    if code == "42501":
        return ConfigError(f"PostgreSQL at {address.text}: {text}: grant this user the right to connect")
    if code[:2] in ("42", "22", "0A"):  # a parameter of the URL that is no setting of the server, or a wrong value
        return ConfigError(f"PostgreSQL at {address.text} refuses a parameter of the URL: {text}: correct or remove it")
    if code == "53300":
        return PostgresUnreachable(f"{where} has no free connection (max_connections)")
    return PostgresUnreachable(f"{where}: {text}")


async def _prepare(
    connection: PostgresConnection,
    address: PostgresAddress,
    host: tuple[str, int] | None,
    settings: Mapping[str, str],
) -> None:
    """Check what is at the other end, and set the settings of the session."""
    import asyncpg

    check = "SELECT pg_backend_pid(), current_setting('server_version_num')::int / 10000"
    try:
        process, version = await connection.fetchrow(check)
    except (asyncpg.DuplicatePreparedStatementError, asyncpg.InvalidSQLStatementNameError):
        raise _pooler_error(address) from None
    if version < OLDEST_SERVER:
        raise ConfigError(f"PostgreSQL at {address.text} is version {version}: Dragoman needs {OLDEST_SERVER} or newer")
    # A pooler makes up the process id that it gives to a client.
    if process != connection.get_server_pid() and await _shares_sessions(connection, process, address, host):
        raise _pooler_error(address)
    wanted = {**SESSION_SETTINGS, **settings}
    wanted = {name: value for name, value in wanted.items() if name not in address.parameters}
    # Some settings are newer than the oldest server.
    await connection.fetchval(
        "SELECT count(set_config(s.name, s.value, false)) FROM unnest($1::text[], $2::text[]) AS s (name, value) "
        "WHERE s.name IN (SELECT name FROM pg_settings) OR s.name LIKE '%.%'",
        list(wanted),
        list(wanted.values()),
    )


async def _shares_sessions(
    connection: PostgresConnection, process: int, address: PostgresAddress, host: tuple[str, int] | None
) -> bool:
    """True when a pooler gives the session of an idle client to another one.

    A second connection occupies a session with a transaction. If that is the first one's, or the first one then gets
    another, sessions are shared.
    """
    import asyncpg

    second = await _connect_host(address, host, CONNECT_SECONDS)
    try:
        async with second.transaction():
            other = await second.fetchval("SELECT pg_backend_pid()")
            again = await connection.fetchval("SELECT pg_backend_pid()")
    except (asyncpg.DuplicatePreparedStatementError, asyncpg.InvalidSQLStatementNameError):
        return True
    finally:
        second.terminate()
    return other == process or again != process


def _pooler_error(address: PostgresAddress) -> ConfigError:
    return ConfigError(
        f"{address.text} is a pooler that shares sessions between transactions: LISTEN, locks and prepared statements "
        "do not work there; use the address of PostgreSQL itself, or a pool in session mode"
    )


def _connect_seconds(address: PostgresAddress) -> float:
    text = address.parameters.get("connect_timeout", "")
    try:
        return float(text) if text and float(text) > 0 else CONNECT_SECONDS
    except ValueError:
        raise ConfigError(f"connect_timeout in {address.text} is not a number of seconds") from None


def _host_text(host: tuple[str, int] | None) -> str:
    return "the default host" if host is None else f"{host[0]}:{host[1]}"


@cache
def _connection_class() -> type:
    """The connection of asyncpg, which notices a host that is gone without a word: within half a minute."""
    import asyncpg

    base: Any = asyncpg.Connection

    class KeptAlive(base):
        def __init__(self, protocol: Any, transport: Any, *args: Any) -> None:
            base.__init__(self, protocol, transport, *args)
            plug = transport.get_extra_info("socket")
            if plug is not None and plug.family in (socket.AF_INET, socket.AF_INET6):
                _keep_alive(plug)

        @asynccontextmanager
        async def transaction(self, **options: Any) -> AsyncGenerator[None]:
            transaction = base.transaction(self, **options)
            await transaction.start()
            try:
                yield
            except asyncio.CancelledError:
                self.terminate()  # a server that is silent would not answer to a rollback either
                raise
            except BaseException:
                await transaction.rollback()
                raise
            await transaction.commit()

    return KeptAlive


def _keep_alive(plug: Any) -> None:
    plug.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 25_000}
    for name, value in options.items():
        if (option := getattr(socket, name, None)) is not None:
            plug.setsockopt(socket.IPPROTO_TCP, option, value)


# -- what an error means -----------------------------------------------------------------------------------------------


def is_lost(error: BaseException) -> bool:
    """True when a connection is lost, or its server cannot work now. The statement may have been applied."""
    import asyncpg

    if isinstance(error, OSError | TimeoutError | asyncpg.InternalClientError | PostgresUnreachable):
        return True
    code = _sqlstate(error)
    if not code:
        return isinstance(error, asyncpg.InterfaceError) and not isinstance(error, ValueError)
    # Connection exceptions, no resources, operator intervention, system errors, and a primary that became a standby.
    return (code[:2] in ("08", "53", "57", "58") and code != "57014") or code == "25006"


def is_refused(error: BaseException) -> bool:
    """True when a server that is there cannot write now: no room, no memory, a disk that can only be read.

    Nothing of the statement was applied, and its connection can be used on. The end of a server that cannot write its
    log (a panic) is no refusal: then the statement may have been applied.
    """
    report: Any = error
    code = _sqlstate(error)
    if not code or getattr(report, "severity_en", None) != "ERROR":
        return False
    # PostgreSQL reports a file that it may not write with the code of a missing right: only the place tells them apart.
    is_file = code == "42501" and getattr(report, "server_source_filename", None) in _FILE_SOURCES
    return is_file or code in ("53100", "53200", "53400", "58030")


def is_conflict(error: BaseException) -> bool:
    """True when a statement was rolled back because of others, and can be repeated: a deadlock, a lock not granted."""
    return _sqlstate(error) in ("40001", "40P01", "55P03", "57014")


def is_unstorable(error: BaseException) -> bool:
    """True when a value cannot be stored: nothing of the statement was applied."""
    return _sqlstate(error)[:2] in ("22", "23", "54")


def is_missing(error: BaseException) -> bool:
    """True when a table is not there."""
    return _sqlstate(error) == "42P01"


def is_forbidden(error: BaseException) -> bool:
    """True when the role of the connection lacks a right."""
    return _sqlstate(error) == "42501"


def _sqlstate(error: BaseException) -> str:
    return getattr(error, "sqlstate", None) or ""
