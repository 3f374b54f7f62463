"""The audit log tells what happened in one line, whatever is in it."""

from __future__ import annotations

import logging

import pytest

from dragoman.telemetry.audit import Audit


def test_a_name_cannot_begin_another_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    name = 'eve"\r\nevent=signed-in user=root\u2028'
    Audit().record_denial(scheme="basic", reason="locked", user=name, address="203.0.113.9")
    (record,) = caplog.records
    assert record.name == "dragoman.audit"
    told = 'user="eve\\"\ufffd\ufffdevent=signed-in user=root\ufffd"'
    assert record.getMessage() == f"event=denied {told} scheme=basic reason=locked address=203.0.113.9"
    assert record.__dict__["address"] == "203.0.113.9"
    assert record.levelno == logging.WARNING


def test_what_is_empty_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    Audit().record_change("user-added", by="root", user="alice", permission="")
    assert caplog.records[0].getMessage() == "event=user-added user=alice by=root"
    assert "permission" not in vars(caplog.records[0])
