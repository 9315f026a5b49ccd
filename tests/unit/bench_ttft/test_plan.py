"""What is measured follows from the options, and nothing is measured twice from a cache."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eccache.app.bench_ttft.plan import WARM_UP_ID, Connector, Plan, series_of


@pytest.fixture
def media(tmp_path: Path) -> list[Path]:
    """A picture and a video; their content does not matter here."""
    files = [tmp_path / "photo.jpg", tmp_path / "clip.mp4"]
    for file in files:
        file.write_bytes(b"content")
    return files


def test_each_number_of_frames_is_a_series_and_pictures_are_asked_about_once(
    media: list[Path],
) -> None:
    """The server is told the number of frames when it starts."""
    series = series_of(media, [32, 128])
    assert [["clip.mp4, 32 frames", "photo.jpg"], ["clip.mp4, 128 frames"]] == [
        [case.label for case in one.cases] for one in series
    ]
    assert [32, 128] == [json.loads(one.arguments[1])["video"]["num_frames"] for one in series]


def test_without_numbers_or_videos_there_is_one_series(media: list[Path]) -> None:
    """The server shows as many frames as it likes."""
    assert [(("clip.mp4", "photo.jpg"), ())] == [
        (tuple(case.label for case in one.cases), one.arguments) for one in series_of(media, [])
    ]
    assert [()] == [one.arguments for one in series_of(media[:1], [32, 128])]


def test_a_warm_up_does_the_same_work_under_another_id(media: list[Path]) -> None:
    """Kernels and buffers are ready afterwards; the encoder output can't be reused."""
    case = series_of(media, [])[0].cases[0]
    (medium,) = case.question.media
    (warmed,) = case.warm_up().media
    assert (medium.data, medium.content_type) == (warmed.data, warmed.content_type)
    assert (None, WARM_UP_ID) == (medium.uuid, warmed.uuid)


def test_known_connectors_get_their_folder() -> None:
    """Also one with characters that JSON escapes."""
    store = Path('/a "b"/c')
    arguments = Connector.named("eccache").arguments(store)
    assert "--ec-transfer-config" == arguments[0]
    assert str(store) == json.loads(arguments[1])["ec_connector_extra_config"]["local_disk"]
    arguments = Connector.named("ECExampleConnector").arguments(store)
    extra = json.loads(arguments[1])["ec_connector_extra_config"]
    assert {"shared_storage_path": str(store)} == extra
    assert () == Connector.named("none").arguments(store)


def test_any_other_connector_is_named_and_given_as_json() -> None:
    """`{store}` becomes its folder."""
    connector = Connector.named('mine={"ec_connector": "Mine", "x": ["{store}/y"]}')
    assert "mine" == connector.name
    assert {"ec_connector": "Mine", "x": ["/s/y"]} == json.loads(connector.arguments(Path("/s"))[1])


@pytest.mark.parametrize("name", ["nonsense", "a=[1]", "a={", "=5"])
def test_what_is_no_connector_is_refused(name: str) -> None:
    """Before a server is started."""
    with pytest.raises(ValueError, match=r"eccache|JSON|Expecting"):
        Connector.named(name)


def test_the_number_of_starts_is_known_beforehand(media: list[Path], tmp_path: Path) -> None:
    """Two for each connector that stores, one without, for each series and repetition."""
    plan = Plan(
        model="m",
        series=series_of(media, [32, 128]),
        connectors=(Connector.named("eccache"), Connector.named("none")),
        repetitions=3,
        folder=tmp_path,
    )
    assert 18 == plan.starts
