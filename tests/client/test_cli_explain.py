"""`--explain`: a picture where it was asked for, and nothing sent where none can be drawn."""

import sys

import pytest
from PIL import Image

from figures import png


def test_explain_draws_a_picture(weft_command, tmp_path):
    """--explain writes a PNG; asked for where it can't be written, it says so."""
    out = tmp_path / "alignment.png"
    assert (0, "b a\n", "") == weft_command("translate", "a b", "--explain", out)
    assert out.read_bytes().startswith(b"\x89PNG")
    scene = tmp_path / "scene.png"
    assert 0 == weft_command("caption", out, "--explain", scene, "--stream")[0]
    assert scene.read_bytes().startswith(b"\x89PNG")
    for verb in (
        ["classify", out],
        ["classify", "--text", "a b"],
        ["tag", "a b"],
        ["embed", "a b"],
        ["generate", "a b"],
        ["answer", out, "what is it?"],
    ):
        scene.unlink()
        assert 0 == weft_command(*verb, "--explain", scene)[0]
        assert scene.read_bytes().startswith(b"\x89PNG")
    assert 2 == weft_command("translate", "a b", "--explain", out / "x.png")[0]


def test_the_pictures_of_a_chat_are_drawn(weft_command, picture, tmp_path):
    """Each under the heat of each word. What is no picture is told, and a chat without any is drawn as a text."""
    scene, alone = tmp_path / "scene.png", tmp_path / "alone.png"
    scene.write_bytes(png(40, 20))
    asked = ("generate", "--chat", "which?", "--explain")
    assert 0 == weft_command(*asked, alone)[0]
    assert 0 == weft_command(*asked, tmp_path / "one.png", "--picture", scene)[0]
    assert 0 == weft_command(*asked, tmp_path / "two.png", "--picture", scene, "--picture", scene, "--stream")[0]
    heights = []
    for path in (alone, tmp_path / "one.png", tmp_path / "two.png"):
        with Image.open(path) as drawn:
            heights.append(drawn.height)
    assert sorted(set(heights)) == heights
    code, _, error = weft_command(*asked, tmp_path / "no.png", "--picture", picture)
    assert (2, "weft: the picture: ") == (code, error[:19])


def test_where_nothing_is_said_nothing_is_drawn(weft_command, tmp_path):
    """The empty answer is printed, and what follows says why there is no picture: it is nobody's wrong request."""
    (tmp_path / "silence.wav").touch()
    said = weft_command("transcribe", tmp_path / "silence.wav", "--explain", tmp_path / "out.png")

    assert (1, "\n", "weft: the answer is empty, so there is nothing to draw\n") == said
    assert not (tmp_path / "out.png").exists()


@pytest.mark.parametrize("verb", [["translate"], ["generate"], ["tag"], ["classify", "--text"], ["caption"]])
def test_a_layer_and_a_head_reach_the_request(weft_command, server, picture, tmp_path, verb):
    """--layer and --head say which attention is drawn; without what they are of, nothing is sent."""
    source, out = picture if verb == ["caption"] else "a b", tmp_path / "out.png"
    weft_command(*verb, source, "--explain", out, "--layer", 1, "--head", 0)
    assert (1, 0) == (server.servicer.seen[0].request.explain.layer, server.servicer.seen[0].request.explain.head)
    for wrong, complaint in (
        (["--layer", 1], "weft: --layer needs --explain\n"),
        (["--explain", out, "--head", 0], "weft: --head needs --layer\n"),
        (["--head", 0], "weft: --head needs --layer\n"),
    ):
        assert (2, "", complaint) == weft_command(*verb, source, *wrong)
    assert 1 == len(server.servicer.seen)


def test_without_the_plot_extra_nothing_is_sent(weft_command, server, monkeypatch):
    """Where matplotlib is missing, --explain names the extra before it asks the server."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, error = weft_command("translate", "a", "--explain", "x.png")

    assert (1, "") == (code, out)
    assert "pip install 'weft-serving[plot]'" in error
    assert [] == server.servicer.seen


@pytest.mark.parametrize("path", ["", "out", "out.txt", "nowhere/out.png", "."])
def test_a_picture_is_never_drawn_elsewhere(weft_command, server, tmp_path, monkeypatch, path):
    """A name that is no picture's, or in a folder that is not there, is refused before anything is asked."""
    monkeypatch.chdir(tmp_path)
    code, out, error = weft_command("translate", "a b", "--explain", path)

    assert (2, "") == (code, out)
    assert error.startswith("weft: --explain")
    assert [] == list(tmp_path.iterdir())
