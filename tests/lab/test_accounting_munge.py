# SPDX-License-Identifier: Apache-2.0
"""Munge against a real munged of our own on a private socket and key."""

from __future__ import annotations

import os

import pytest

from fairwatt.core.errors import AuthError
from fairwatt.core.munge import decode, encode
from tests.lab.munged import own_munged

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def munge_socket(tmp_path_factory):
    root = tmp_path_factory.mktemp("munge")
    with own_munged(root) as socket:
        yield socket


def test_payload_uid_and_gid_come_back(munge_socket):
    credential = decode(encode(b"\x00body\xff", munge_socket), munge_socket)
    assert (credential.payload, credential.uid, credential.gid) == (
        b"\x00body\xff",
        os.geteuid(),
        os.getegid(),
    )


def test_an_empty_payload_comes_back(munge_socket):
    assert decode(encode(b"", munge_socket), munge_socket).payload == b""


def test_a_replayed_credential_is_refused(munge_socket):
    cred = encode(b"once", munge_socket)
    decode(cred, munge_socket)
    with pytest.raises(AuthError, match=r"Replayed credential.*encode a new credential") as caught:
        decode(cred, munge_socket)
    assert caught.value.status == 403


def test_a_tampered_credential_is_refused(munge_socket):
    cred = encode(b"body", munge_socket)
    middle = len(cred) // 2
    other = "A" if cred[middle] != "A" else "B"
    with pytest.raises(AuthError, match="munge: "):
        decode(cred[:middle] + other + cred[middle + 1 :], munge_socket)


def test_text_that_is_no_credential_is_refused(munge_socket):
    with pytest.raises(AuthError, match="munge: "):
        decode("Bearer 123", munge_socket)
