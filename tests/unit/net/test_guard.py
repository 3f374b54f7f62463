"""Where strangers may have requests sent to."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.model.error import ConfigError, DragomanError
from dragoman.net.guard import AddressForbidden, AddressGuard

GUARD = AddressGuard()
OPEN = AddressGuard(["0.0.0.0/0", "::/0"])

# Written out once more, from the registries of IANA: the tables of the code are what is to be checked.
CLOSED_4 = [
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",
    "240.0.0.0/4", "255.255.255.255/32", "168.63.129.16/32",
]  # fmt: skip
CLOSED_6 = [
    "::/8", "100::/64", "64:ff9b:1::/48", "2001::/32", "2001:2::/48", "2001:10::/28", "2001:db8::/32", "2002::/16",
    "3fff::/20", "4000::/3", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
]  # fmt: skip
# Addresses of metadata services, in whatever network they are.
METADATA = ["169.254.169.254", "169.254.170.2", "168.63.129.16", "100.100.100.200", "fd00:ec2::254"]
# What the regional registries give out.
GIVEN_OUT = ["2001:200::/23", "2400::/12", "2600::/12", "2800::/12", "2a00::/12", "2c00::/12"]


def within(*networks: str) -> st.SearchStrategy[int]:
    """The numbers of addresses in those networks, their first and last ones more often than chance has it."""
    spans = [(int(net[0]), int(net[-1])) for net in map(ip_network, networks)]
    return st.sampled_from(spans).flatmap(lambda span: st.integers(*span) | st.sampled_from(span))


def refused(url: str, guard: AddressGuard = GUARD) -> AddressForbidden:
    with pytest.raises(AddressForbidden) as caught:
        guard.check_url(url)
    assert caught.value.reason == "FORBIDDEN_ADDRESS"
    return caught.value


# -- forms of SSRF ---------------------------------------------------------------------------------------------------

ATTACKS = {
    "a zone": "http://[fe80::1%25eth0]/",
    "a zone on a public address": "http://[2600::1%25eth0]/",
    "metadata by name": "http://metadata.google.internal/computeMetadata/v1/",
    "metadata by short name": "http://metadata/",
    "metadata by another name": "http://metadata.goog/",
    "metadata by an old name": "http://instance-data/latest",
    "three numbers": "http://127.0.1/",
    "zero": "http://0/",
    "nothing but 0x": "http://0x/",
    "full-width dots": "http://127\uff0e0\uff0e0\uff0e1/",
    "circled digits": "http://①②⑦.⓪.⓪.①/",
    "circled letters": "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/",
    "localhost": "http://localhost:6379/",
    "LOCALHOST": "http://LocalHost/",
    "localhost with dots": "http://localhost../",
    "below localhost": "http://a.b.localhost/",
    "localdomain": "http://localhost.localdomain/",
    "local": "http://printer.local/",
    "internal": "http://db.prod.internal./",
    "a cluster": "http://kubernetes.default.svc.cluster.local/",
    "file": "file:///etc/passwd",
    "gopher": "gopher://127.0.0.1:6379/_INFO",
    "ftp": "ftp://8.8.8.8/",
    "a script": "javascript:alert(1)",
    "no scheme": "//8.8.8.8/",
    "a relative one": "/hook",
    "nothing": "",
    "no host": "http:///hook",
    "no slashes": "http:127.0.0.1/",
    "a port alone": "http://:80/",
    "userinfo": "http://example.com@127.0.0.1/",
    "userinfo before a public host": "http://user:secret@example.com/",
    "empty userinfo": "http://@example.com/",
    "a backslash": "http://example.com\\@127.0.0.1/",
    "a backslash in the path": "http://example.com/\\@127.0.0.1",
    "a tab": "http://127.0.\t0.1/",
    "a line break": "http://example.com/\r\nHost: localhost",
    "a space": "http://127.0.0.1 .example.com/",
    "a zero byte": "http://127.0.0.1\0.example.com/",
    "an escaped digit": "http://%31%32%37.0.0.1/",
    "an escaped dot": "http://127%2e0%2e0%2e1/",
    "port zero": "http://8.8.8.8:0/",
    "a port too far": "http://8.8.8.8:65536/",
    "a port below": "http://8.8.8.8:-1/",
    "a port that is none": "http://8.8.8.8:http/",
    "a bracket open": "http://[::1/",
    "a bracket too many": "http://[[::1]]/",
    "five numbers": "http://8.8.8.8.8/",
    "a number too large": "http://8.8.8.256/",
    "no octal number": "http://08.8.8.8/",
    "an empty label": "http://a..example.com/",
    "a soft hyphen": "http://local\u00adhost/",
    "a label that ends in a dash": "http://a-.example.com/",
    "a name too long": f"http://{'a.' * 130}com/",
}  # fmt: skip


@pytest.mark.parametrize("url", ATTACKS.values(), ids=ATTACKS)
def test_a_url_that_leads_inside_or_nowhere_is_refused(url: str) -> None:
    assert isinstance(refused(url), DragomanError)


@pytest.mark.parametrize(
    "url",
    [
        "http://8.8.8.8/", "https://example.com/hook?a=b#c", "HTTPS://EXAMPLE.COM:8443/", "http://example.com./",
        "http://[2600::1]:1/", "http://[64:ff9b::8.8.8.8]/", "https://bücher.example/", "https://xn--bcher-kva.example/",
        "http://a_b.example.com:65535/", "http://127.0.0.1.nip.io/", "http://internal.example.com/",
        "http://notlocalhost/", "http://metadata.example.com/", "http://11.0.0.1/", "http://172.32.0.1/",
        "https://example.com/a@b", "https://example.com/?to=http://127.0.0.1/",
    ],
)  # fmt: skip
def test_a_url_of_the_public_internet_passes(url: str) -> None:
    assert GUARD.check_url(url) is None


@pytest.mark.parametrize("url", ["http://134744072/", "http://0x08.8.8.8/", "http://8.8.2056/", "http://8.8.8.8./"])
def test_a_public_address_in_an_odd_spelling_is_refused_with_the_usual_one(url: str) -> None:
    assert "write 8.8.8.8" in str(refused(url))


# -- what is said ----------------------------------------------------------------------------------------------------


def test_a_refusal_names_the_host_and_the_setting() -> None:
    error = refused("http://2130706433:9000/hook")
    assert str(error) == (
        "2130706433 is a loopback address: no request goes there unless it is allowed with --push-allow 127.0.0.1"
    )
    assert (error.host, error.address) == ("2130706433", "127.0.0.1")


def test_a_refusal_names_the_setting_of_its_caller() -> None:
    assert "with --allow localhost" in str(refused("http://localhost/", AddressGuard(setting="--allow")))


def test_a_refusal_does_not_tell_the_address_behind_a_name() -> None:
    with pytest.raises(
        AddressForbidden, match=r"^hooks\.example is a private address: .*--push-allow hooks\.example$"
    ) as caught:
        GUARD.check_address("10.20.30.40", "hooks.example", 443)
    assert "10.20.30.40" not in str(caught.value)
    assert caught.value.address == "10.20.30.40"


@pytest.mark.parametrize(
    "url",
    ["ftp://user:hush@example.com/?key=hush", "http://user:hush@h/", "http://user:hush@[::1/", "ftp:user:hush@h?hush"],
)
def test_a_refusal_holds_no_secret_of_the_url(url: str) -> None:
    assert "hush" not in str(refused(url))


def test_a_refusal_is_one_short_line() -> None:
    message = str(refused("http://" + "a\r\n\x1b[31m" * 1000))
    assert message.isprintable()
    assert len(message) < 300


# -- addresses -------------------------------------------------------------------------------------------------------


def spellings(address: IPv4Address) -> list[str]:
    """An IPv4 address as URLs may have it, inside IPv6 as well."""
    value = int(address)
    a, b, c, d = address.packed
    wide = str(address).translate({ord("0") + n: ord("\uff10") + n for n in range(10)})
    return [
        str(address), f"{address}.", wide, wide.replace(".", "。"), str(value), f"0{value:o}", f"{value:#x}",
        f"{value:#X}".replace("0X", "0x"), f"{a}.{value & 0xFFFFFF}", f"{a}.{b}.{value & 0xFFFF}",
        f"0{a:o}.0{b:o}.0{c:o}.0{d:o}", f"{a:#x}.{b:#x}.{c:#x}.{d:#x}", f"{a:#x}.0{b:o}.{value & 0xFFFF}",
        f"[::ffff:{address}]", f"[::FFFF:{a:02x}{b:02x}:{c:02x}{d:02x}]", f"[::{address}]", f"[::ffff:0:{address}]",
        f"[64:ff9b::{address}]", f"[64:ff9b:1::{address}]", f"[2002:{a:02x}{b:02x}:{c:02x}{d:02x}::1]",
        f"[{IPv6Address(0x20010000 << 96 | value ^ 0xFFFFFFFF)}]", f"[{IPv6Address(0xFFFF << 32 | value).exploded}]",
    ]  # fmt: skip


def check_ipv4(address: IPv4Address) -> None:
    """An address is refused in every spelling."""
    for host in spellings(address):
        assert "--push-allow" in str(refused(f"http://{host}/")), host
        with pytest.raises(AddressForbidden):
            GUARD.check_address(host.strip("[]"), "hooks.example", 80)


def check_ipv6(address: IPv6Address) -> None:
    """An address is refused in every spelling."""
    for text in (str(address), str(address).upper(), address.exploded):
        assert "--push-allow" in str(refused(f"http://[{text}]/"))
        with pytest.raises(AddressForbidden, match="--push-allow"):
            GUARD.check_address(text, "hooks.example", 80)


@pytest.mark.parametrize("network", [*CLOSED_4, *CLOSED_6, *METADATA])
def test_a_closed_network_is_refused_from_its_first_to_its_last_address(network: str) -> None:
    for address in {ip_network(network)[0], ip_network(network)[-1]}:
        if isinstance(address, IPv4Address):
            check_ipv4(address)
        else:
            check_ipv6(address)


@given(within(*CLOSED_4).map(IPv4Address))
def test_every_ipv4_address_inside_is_refused_in_every_spelling(address: IPv4Address) -> None:
    check_ipv4(address)


@given(within(*CLOSED_6).map(IPv6Address))
def test_every_ipv6_address_inside_is_refused_in_every_spelling(address: IPv6Address) -> None:
    check_ipv6(address)


@given(st.integers(0, 2**32 - 1).map(IPv4Address), st.integers(1, 65535))
def test_every_ipv4_address_that_is_not_inside_passes(address: IPv4Address, port: int) -> None:
    closed = any(address in IPv4Network(net) for net in (*CLOSED_4, "192.88.99.0/24"))
    if not closed:
        GUARD.check_address(str(address), "hooks.example", port)
        GUARD.check_address(f"64:ff9b::{address}", "hooks.example", port)
        GUARD.check_url(f"http://{address}:{port}/")
    assert closed or address.is_global


@given(within(*GIVEN_OUT).map(IPv6Address), st.integers(1, 65535))
def test_every_ipv6_address_that_a_registry_gives_out_passes(address: IPv6Address, port: int) -> None:
    assert address not in IPv6Network("2001::/23")
    GUARD.check_address(str(address), "hooks.example", port)
    GUARD.check_url(f"https://[{address}]:{port}/")


@given(st.text(max_size=40))
def test_no_text_breaks_the_guard(text: str) -> None:
    for url in (text, f"http://{text}/", f"http://[{text}]/", f"http://h:{text}"):
        try:
            GUARD.check_url(url)
        except AddressForbidden as error:
            assert str(error).isprintable()


@pytest.mark.parametrize(
    "ip", ["", "localhost", "2130706433", "127.1", "fe80::1%eth0", "2600::1%1", "8.8.8.8:80", "[::1]"]
)
def test_what_is_no_address_is_never_connected_to(ip: str) -> None:
    with pytest.raises(AddressForbidden):
        AddressGuard(["0.0.0.0/0", "::/0", "hooks.example"]).check_address(ip, "hooks.example", 80)


# -- what is allowed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "url", "passes"),
    [
        ("127.0.0.1", "http://127.0.0.1:9000/", True),
        ("127.0.0.1", "http://127.0.0.2/", False),
        ("127.0.0.1", "http://127.1/", False),
        ("127.0.0.1", "http://[::ffff:127.0.0.1]/", False),
        ("127.0.0.1", "http://localhost/", False),
        ("127.0.0.1:9000", "http://127.0.0.1:9000/", True),
        ("127.0.0.1:9000", "http://127.0.0.1:9001/", False),
        ("127.0.0.1:80", "http://127.0.0.1/", True),
        ("127.0.0.1:80", "https://127.0.0.1/", False),
        ("10.0.0.0/8", "http://10.9.8.7/", True),
        ("10.0.0.0/8", "http://11.0.0.0/", True),
        ("10.0.0.0/8", "http://192.168.0.1/", False),
        ("10.0.0.0/8:8080", "http://10.9.8.7:8080/", True),
        ("10.0.0.0/8:8080", "http://10.9.8.7:80/", False),
        ("::1", "http://[::1]/", True),
        ("::1", "http://127.0.0.1/", False),
        ("[::1]:9000", "http://[0:0::1]:9000/", True),
        ("[::1]:9000", "http://[::1]:9001/", False),
        ("[::1]", "http://[::1]:9001/", True),
        ("fd00::/8", "http://[fdab::1]/", True),
        ("[fd00::/8]:80", "http://[fdab::1]/", True),
        ("localhost", "http://LOCALHOST.:9000/", True),
        ("localhost", "http://a.localhost/", False),
        ("localhost", "http://127.0.0.1/", False),
        ("LocalHost.:9000", "http://localhost:9000/", True),
        ("localhost:9000", "http://localhost/", False),
        ("*.internal", "http://a.b.internal/", True),
        ("*.internal", "http://internal/", False),
        ("*.internal", "http://a.local/", False),
        ("*.corp.internal:443", "https://hooks.corp.internal/", True),
        ("*.corp.internal:443", "https://xcorp.internal/", False),
        ("bücher.internal", "http://xn--bcher-kva.internal/", True),
        (" localhost ", "http://localhost/", True),
        ("0.0.0.0/0", "http://169.254.169.254/", True),
        ("localhost", "ftp://localhost/", False),
        ("localhost", "http://user@localhost/", False),
        ("localhost", "http://localhost:0/", False),
    ],
)  # fmt: skip
def test_what_is_allowed_passes_and_nothing_else(entry: str, url: str, passes: bool) -> None:
    guard = AddressGuard([entry])
    if passes:
        assert guard.check_url(url) is None
    else:
        refused(url, guard)


def test_an_allowed_name_may_have_an_address_inside() -> None:
    guard = AddressGuard(["hooks.corp", "*.dev.corp:8080"])
    guard.check_address("10.0.0.1", "hooks.corp", 443)
    guard.check_address("::1", "Hooks.CORP.", 443)
    guard.check_address("10.0.0.1", "a.dev.corp", 8080)
    for host, port in [("a.dev.corp", 80), ("dev.corp", 8080), ("hooks.corp.evil.example", 443), ("xhooks.corp", 443)]:
        with pytest.raises(AddressForbidden):
            guard.check_address("10.0.0.1", host, port)


@pytest.mark.parametrize(
    "ip",
    [
        "169.254.169.254", "169.254.170.2", "169.254.170.23", "168.63.129.16", "100.100.100.200", "192.0.0.192",
        "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "::ffff:169.254.169.254", "::169.254.169.254",
        "::ffff:0:169.254.169.254", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::1",
        "2001:0:808:808::5601:5601",
    ],
)  # fmt: skip
def test_a_metadata_service_is_never_reached_by_a_name_that_is_allowed(ip: str) -> None:
    with pytest.raises(AddressForbidden, match="with --push-allow and its address"):
        AddressGuard(["hooks.corp"]).check_address(ip, "hooks.corp", 80)
    AddressGuard([ip]).check_address(ip, "hooks.corp", 80)


@given(within("0.0.0.0/0").map(IPv4Address) | within("::/0").map(IPv6Address))
def test_a_guard_that_allows_every_address_lets_every_address_through(address: IPv4Address | IPv6Address) -> None:
    assert OPEN.check_address(str(address), "hooks.example", 80) is None


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("", "not a host name"),
        ("*", "0.0.0.0/0"),
        ("*.", "not a host name"),
        ("a.*.example", "not a host name"),
        ("http://localhost:9000", "not a URL"),
        ("me@localhost", "not a URL"),
        ("10.0.0.5/8", "host bits"),
        ("10.0.0.0/33", "10.0.0.0/33"),
        ("127.1", "write 127.0.0.1"),
        ("*.127.0.0.1", "write 127.0.0.1"),
        ("fe80::1%eth0", "zone"),
        ("localhost:", "1 to 65535"),
        ("localhost:0", "1 to 65535"),
        ("localhost:http", "1 to 65535"),
        ("[::1]9000x", "1 to 65535"),
        ("[::1]:65536", "1 to 65535"),
        ("local host", "not a host name"),
        ("localhost,127.0.0.1", "not a host name"),
    ],
)
def test_an_invalid_entry_is_an_error_with_its_setting(entry: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AddressGuard(["example.com", entry])
    assert str(caught.value).startswith(f"--push-allow {entry.rpartition('@')[2]}")
    assert reason in str(caught.value)
