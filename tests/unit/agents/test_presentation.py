"""How tools are called for people, and what kind of thing they do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.agents.offers import categories, humanized, shared_prefix


@pytest.mark.requirement("S3-37")
@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ("corvid_github_star_repo", "GitHub Star Repo"),
        ("corvid_github_list_prs", "GitHub List PRs"),
        ("corvid_save_memory", "Save Memory"),
        ("mcp_list_tools", "List Tools"),
        ("get-current-time", "Get Current Time"),
        ("readFile", "Read File"),
        ("HTTPRequest", "HTTP Request"),
        ("listPRs", "List PRs"),
        ("readGitHubFile", "Read GitHub File"),
        ("GET_TIME", "Get Time"),
        ("oauth_login", "OAuth Login"),
        ("a2a.send_message", "A2A Send Message"),
        ("A2AClient", "A2A Client"),
        ("base64_decode", "Base64 Decode"),
        ("get_urls", "Get URLs"),
        ("getXYZData", "Get XYZ Data"),
        ("größe_lesen", "Größe Lesen"),
        ("corvid_", "Corvid"),
        ("corvidae_count", "Corvidae Count"),
        ("___", "___"),
    ],
)
def test_a_tool_is_called_as_people_write_it(tool: str, name: str) -> None:
    assert humanized(tool) == name


@pytest.mark.parametrize(
    ("tool", "prefix", "name"),
    [
        ("browser_open_page", "browser_", "Open Page"),
        ("browser_", "browser_", "Browser"),
        ("open_page", "browser_", "Open Page"),
        ("corvid_github_star_repo", "corvid_github_", "Star Repo"),
    ],
)
def test_a_prefix_is_left_out_where_something_remains(tool: str, prefix: str, name: str) -> None:
    assert humanized(tool, prefix) == name


@pytest.mark.parametrize(
    ("names", "prefix"),
    [
        (["browser_open", "browser_close", "browser_click"], "browser_"),
        (["a_b_c", "a_b_d", "a_b_e"], "a_b_"),
        (["a-b.c", "a-b.d", "a-c"], "a-"),
        (["browser_open", "browser_close"], ""),
        (["browser_open", "browser_open", "browser_close"], ""),
        (["browse", "browser", "browsers"], ""),
        (["_a", "_b", "_c"], ""),
        (["git_", "git_log", "git_diff"], ""),
        (["git", "git_log", "git_diff"], ""),
        ([], ""),
    ],
)
def test_only_whole_words_that_all_of_many_tools_share_are_a_prefix(names: list[str], prefix: str) -> None:
    assert shared_prefix(names) == prefix


@pytest.mark.requirement("S3-38")
@pytest.mark.parametrize(
    ("tool", "description", "tags"),
    [
        ("corvid_save_memory", "", ("memory",)),
        ("corvid_github_star_repo", "", ("github", "git")),
        ("readGitHubFile", "", ("github", "files")),
        ("get_current_time", "", ("time",)),
        ("add_numbers", "", ("math",)),
        ("add", "Write something down", ("math",)),
        ("add_paragraph", "", ("documents",)),
        ("update", "Change the schedule", ("time",)),
        ("update_clock", "Send a message", ("time",)),
        ("send_image_file_query_sql", "", ("messaging", "images", "files", "search")),
        ("frobnicate", "Does what it does", ("general",)),
        ("frobnicate", "", ("general",)),
    ],
)
def test_the_words_of_a_tool_say_what_kind_it_is(tool: str, description: str, tags: tuple[str, ...]) -> None:
    assert categories(tool, description) == tags


@given(st.text(), st.text(), st.text())
def test_every_tool_has_a_name_and_a_kind(tool: str, description: str, prefix: str) -> None:
    name, tags = humanized(tool, prefix), categories(tool, description)
    assert bool(name) == bool(tool)
    assert 1 <= len(tags) <= 4
    assert len(set(tags)) == len(tags)
