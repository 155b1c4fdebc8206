"""Instructions in other scripts are counted as such."""

from __future__ import annotations

import pytest

from toolscout.synth.written_in import written_in


@pytest.mark.parametrize(
    "text, language",
    [
        ("Wie spät ist es in Lissabon?", "en"),
        ("获取当前时间，当前时区为北京时间", "zh"),
        ("把 GB89B34101 这个账号校验一下", "zh"),
        ("東京の天気を教えて", "ja"),
        ("東京大学附属図書館の開館時間は", "ja"),
        ("서울 날씨 알려줘", "ko"),
        ("Покажи погоду в Москве", "ru"),
        ("Translate 你好 into English, and say how it is pronounced", "en"),
        ("1234 5678", "en"),
    ],
)
def test_the_script_tells(text: str, language: str) -> None:
    assert written_in(text, "en") == language
