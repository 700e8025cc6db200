"""The console hears a microphone: Chromium's stands for one, and plays a file."""

import wave
from pathlib import Path

import pytest

from console_form import console_of, judged, opened, ran
from driven_page import WHY_NOT, DrivenPage

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
SOUND = Path(__file__).parents[2] / "export/checkpoints/commands/examples/eighty-eight-fifty-five.wav"
FAKE = "--use-fake-device-for-media-stream"
ALLOWED = "--use-fake-ui-for-media-stream"
REFUSED = "--deny-permission-prompts"
RECORD = ".file button"
SLOWLY = """(() => {
    const read = OfflineAudioContext.prototype.decodeAudioData;
    OfflineAudioContext.prototype.decodeAudioData = async function (data) {
        await new Promise((done) => setTimeout(done, 1000));
        return await read.call(this, data);
    };
})()"""


@pytest.fixture(scope="module")
def server(demo_repository, tmp_path_factory):
    """A model that hears numbers."""
    repository, points = tmp_path_factory.mktemp("heard"), tmp_path_factory.mktemp("points")
    (repository / "commands").symlink_to(demo_repository / "commands")
    with console_of(repository, points) as server:
        yield server


@pytest.fixture
def spoken(tmp_path):
    """A file of somebody who says nothing for a moment, then the numbers, then nothing."""
    with wave.open(str(SOUND)) as sound, wave.open(str(tmp_path / "spoken.wav"), "wb") as made:
        made.setparams(sound.getparams())
        made.writeframes(bytes(sound.getframerate() // 2 * sound.getsampwidth()) + sound.readframes(sound.getnframes()))
    return tmp_path / "spoken.wav"


def test_what_is_said_is_transcribed(server, spoken):
    """From a click to the next. What was recorded can be heard, and is asked like a file."""
    with DrivenPage(FAKE, ALLOWED, f"--use-file-for-fake-audio-capture={spoken}%noloop") as page:
        opened(page, server, "commands", "transcribe")
        page.click(on=RECORD)
        page.until(f"document.querySelector('{RECORD}').textContent === 'Recording. Click to end'")
        page.see(what="new Promise((done) => setTimeout(done, 4000))")
        page.click(on=RECORD)
        page.until("document.querySelector('.preview audio')?.duration > 3")
        assert "Record" == page.text(RECORD)
        ran(page)

        # Behind it the model may hear a word in silence.
        assert page.text("#said").startswith("eighty eight fifty five")
        judged(page, server)


@pytest.mark.parametrize(
    ("flags", "told"),
    [((FAKE, REFUSED), "The browser lets this page use no microphone."), ((ALLOWED,), "There is no microphone.")],
)
def test_a_page_without_a_microphone_says_why(server, flags, told):
    """The button stays what it was, so whoever changes it may click again. A file is taken still."""
    with DrivenPage(*flags) as page:
        opened(page, server, "commands", "transcribe")
        page.click(on=RECORD)
        page.until("document.querySelector('.file [role=status]').textContent")

        assert (told, "Record") == (page.text(".file [role=status]"), page.text(RECORD))
        judged(page, server)
        page.upload(on="input[type=file]", files=[str(SOUND)])
        page.until("document.querySelector('.preview audio')")
        assert "" == page.text(".file [role=status]")


def test_a_page_that_is_not_secure_says_so(server):
    """A browser gives it no devices at all."""
    with DrivenPage(FAKE, ALLOWED) as page:
        opened(page, server, "commands", "transcribe")
        page.see(what="Object.defineProperty(navigator, 'mediaDevices', { value: undefined })")
        page.click(on=RECORD)
        page.until("document.querySelector('.file [role=status]').textContent.includes('by https')")


def test_leaving_the_form_lets_the_microphone_go(server):
    """No light of a camera or a microphone stays on."""
    with DrivenPage(FAKE, ALLOWED) as page:
        opened(page, server, "commands", "transcribe")
        page.see(
            what="""(() => {
            const ask = MediaDevices.prototype.getUserMedia;
            MediaDevices.prototype.getUserMedia = async function (about) {
                const heard = await ask.call(this, about);
                window.heard = heard.getTracks()[0];
                return heard;
            };
        })()"""
        )
        page.click(on=RECORD)
        page.until(
            "window.heard?.readyState === 'live' && document.querySelector('.file button').textContent !== 'Record'"
        )
        page.see(what="location.hash = '/state'")
        page.until("window.heard.readyState === 'ended'")


def test_what_is_longer_than_the_model_hears_at_once_is_asked_without_attention(server, tmp_path):
    """The server would refuse it. The page says so where attention is asked for. A file of a whole window has it."""
    with wave.open(str(SOUND)) as sound, wave.open(str(tmp_path / "long.wav"), "wb") as made:
        made.setparams(sound.getparams())
        made.writeframes(2 * sound.readframes(sound.getnframes()))
    with DrivenPage() as page:
        for file, is_explained in ((SOUND, True), (tmp_path / "long.wav", False)):
            opened(page, server, "commands", "transcribe")
            # Whoever asks at once waits until the file is read.
            page.see(what=SLOWLY)
            page.upload(on="input[type=file]", files=[str(file)])
            ran(page)
            assert (None, is_explained) == (page.text(".answer .error"), '"explain"' in page.text(".code pre"))
            assert page.text("#said").startswith("eighty eight fifty five")
            assert "Of a recording of at most 3.2 s" in page.text(".settings")
