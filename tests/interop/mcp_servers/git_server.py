"""mcp-server-git: twelve tools that read and change a repository."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from .server import McpServer, script
from .step import Step

NAME = "mcp-server-git"
WHEN = "1769851800 +0000"


def env(here: Path) -> dict[str, str]:
    """Who commits and when: the same on both sides, so that hashes are, too."""
    who = {"NAME": "Ada", "EMAIL": "ada@example.com", "DATE": WHEN}
    found = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in who.items()}
    return {**found, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "HOME": str(here)}


def prepare(here: Path) -> None:
    repo = here / "repo"
    repo.mkdir()
    (repo / "poem.txt").write_text("one\ntwo\nthree\n")

    def git(*arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=repo, env={**os.environ, **env(here)}, check=True, capture_output=True)

    git("init", "--initial-branch=main")
    git("add", ".")
    git("commit", "--message=begin")
    (repo / "poem.txt").write_text("one\n2\nthree\n")
    (repo / "new.txt").write_text("new\n")


def steps(here: Path) -> list[Step]:
    repo = {"repo_path": str(here / "repo")}
    return [
        Step("git_status", repo),
        Step("git_status", {"repo_path": str(here)}),
        Step("git_diff_unstaged", repo),
        Step("git_add", {**repo, "files": ["poem.txt", "new.txt"]}),
        Step("git_diff_staged", {**repo, "context_lines": 1}),
        Step("git_reset", repo),
        Step("git_status", repo),
        Step("git_add", {**repo, "files": ["."]}),
        Step("git_commit", {**repo, "message": "two is 2 — naïve"}),
        Step("git_log", {**repo, "max_count": 5}),
        Step("git_show", {**repo, "revision": "HEAD"}),
        Step("git_create_branch", {**repo, "branch_name": "side", "base_branch": "main"}),
        Step("git_checkout", {**repo, "branch_name": "side"}),
        Step("git_checkout", {**repo, "branch_name": "nowhere"}),
        Step("git_branch", {**repo, "branch_type": "local"}),
        Step("git_diff", {**repo, "target": "HEAD~1"}),
    ]


SERVER = McpServer(NAME, NAME, lambda here: [script(NAME, NAME)], steps, prepare, env)
