# SPDX-License-Identifier: Apache-2.0
"""The hook's JSON decoder against Python's: any text comes back as it was sent."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.job_desc import Hook, Wire

JOB = {"tres_per_node": "gres:gpu:1"}
texts = st.text(
    st.one_of(
        st.sampled_from('"\\/bfnrtu0'), st.characters(min_codepoint=32, max_codepoint=255)
    ).filter(lambda char: not 127 <= ord(char) < 160),
    min_size=1,
    max_size=60,
)


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """Submit a job; the answer's `set` is the JSON text given. Returns what happened."""
    far = Wire()
    hook = Hook(tmp_path_factory.mktemp("hook"), far)

    def ask(edits: str):
        def answer(line: str) -> str:
            id_ = json.loads(line)["id"]
            return f'{{"v":1,"id":"{id_}","act":"accept","set":{edits}}}'

        far.answer = answer
        return hook.submit(dict(JOB))

    return ask


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=texts, spaces=st.booleans())
def test_a_text_comes_through(asked, text, spaces):
    separators = (", ", ": ") if spaces else (",", ":")
    edits = {"features": text, "admin_comment": text}
    out = asked(json.dumps(edits, separators=separators))
    assert out.fields == {"features": text, "admin_comment": text}


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (r"\\", "\\"),
        (r"\"", '"'),
        (r"a\\\"b", 'a\\"b'),
        (r"\u005c\u0022", '\\"'),
        (r"\u005cn", "\\n"),
        (r"\/", "/"),
        (r"\u00e9", "\xe9"),
        (r"\u20ac", "?"),
    ],
)
def test_escapes(asked, escaped, text):
    assert asked(f'{{"features":"{escaped}"}}').fields == {"features": text}


@pytest.mark.parametrize(
    "value",
    [
        r'"\x"',
        r'"\u12"',
        r'"\u0001"',
        '"\x01"',
        '"\x02"',
        '"a',
        r'"a\"',
        '"\\',
        r'"\n"',
        "[1]",
        "",
    ],
)
def test_what_is_no_clean_text_changes_nothing(asked, value):
    out = asked(f'{{"features":{value}}}')
    assert out.accepted
    assert out.fields == {}
    assert "could not be applied" in out.said[0]
