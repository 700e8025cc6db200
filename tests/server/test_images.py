"""Any sound PNG, JPEG or WebP becomes pixel values; anything else is a typed error, before it costs memory."""

import io
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from weft_proto.v1 import bundle_pb2 as pb
from weft_server.errors import DeadlineExpired, InvalidRequest
from weft_server.preprocessing.image_file import MAX_PIECES, num_scans
from weft_server.preprocessing.images import MAX_FULL_SCANS, MAX_SCANS, load_picture
from weft_server.preprocessing.wanted import Wanted

MAX_BYTES, MAX_PIXELS = 1 << 20, 1 << 20


def _spec(channels=3, size=(4, 6), mean=0.0, std=1.0, resample=pb.RESAMPLE_BOX) -> pb.ImageSpec:
    mean, std = [mean] * channels, [std] * channels
    return pb.ImageSpec(channels=channels, height=size[0], width=size[1], resample=resample, mean=mean, std=std)


def _encode(image: Image.Image, kind="PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def _load(data: bytes, spec: pb.ImageSpec | None = None) -> np.ndarray:
    return load_picture(data, spec or _spec(), MAX_BYTES, MAX_PIXELS).pixels


def _refusal(data: bytes, **limits: int) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        load_picture(data, _spec(), limits.get("max_bytes", MAX_BYTES), limits.get("max_pixels", MAX_PIXELS))
    assert "image.data" == error.value.field
    return error.value


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png_header(width: int, height: int) -> bytes:
    """A PNG of a few bytes that promises width x height pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(b"")) + _chunk(b"IEND", b"")


NOISE = np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8)


@pytest.mark.parametrize("resample", [pb.RESAMPLE_BILINEAR, pb.RESAMPLE_BICUBIC, pb.RESAMPLE_BOX])
def test_pixels_are_resized_scaled_and_normalised(resample):
    """Pixel values are (resized / 255 - mean) / std, float32 [C, H, W], contiguous, without regard to aspect."""
    pixels = _load(_encode(Image.fromarray(NOISE)), _spec(size=(5, 3), mean=0.25, std=0.5, resample=resample))
    kinds = {pb.RESAMPLE_BILINEAR: 2, pb.RESAMPLE_BICUBIC: 3, pb.RESAMPLE_BOX: 4}
    resized = np.asarray(Image.fromarray(NOISE).resize((3, 5), Image.Resampling(kinds[resample])), np.float64)
    assert ((3, 5, 3), np.float32, True) == (pixels.shape, pixels.dtype, pixels.flags.c_contiguous)
    np.testing.assert_allclose(((resized / 255 - 0.25) / 0.5).transpose(2, 0, 1), pixels, atol=1e-6)


def test_mean_and_std_are_by_channel():
    """Each channel has its own mean and std."""
    spec = _spec(size=(1, 1))
    spec.mean[:], spec.std[:] = [0.0, 0.5, 1.0], [1.0, 0.5, 0.25]
    pixels = _load(_encode(Image.new("RGB", (1, 1), (255, 255, 0))), spec)
    assert [1.0, 1.0, -4.0] == pixels.ravel().tolist()


GREY = Image.new("L", (3, 3), 51)
RED = (255, 0, 0)
PICTURES = {
    "1 x 1": (_encode(Image.new("RGB", (1, 1), RED)), [1, 0, 0]),
    "one bit": (_encode(Image.new("1", (3, 3), 1)), [1, 1, 1]),
    "grey": (_encode(GREY), [0.2, 0.2, 0.2]),
    "grey of 16 bits": (_encode(Image.fromarray(np.full((3, 3), 51 * 257, np.uint16))), [0.2, 0.2, 0.2]),
    "palette": (_encode(Image.new("RGB", (3, 3), RED).quantize(4)), [1, 0, 0]),
    "palette with a transparent colour": (
        _encode(Image.new("RGB", (3, 3), RED).quantize(4), transparency=0),
        [1, 1, 1],
    ),
    "palette with an alpha for each colour": (
        _encode(Image.new("RGB", (3, 3), RED).quantize(4), transparency=bytes([0] * 256)),
        [1, 1, 1],
    ),
    "transparent": (_encode(Image.new("RGBA", (3, 3), (255, 0, 0, 0))), [1, 1, 1]),
    "half transparent": (_encode(Image.new("RGBA", (3, 3), (255, 0, 0, 51))), [1, 0.8, 0.8]),
    "grey with alpha": (_encode(Image.new("LA", (3, 3), (0, 51))), [0.8, 0.8, 0.8]),
    "JPEG": (_encode(Image.new("RGB", (16, 16), (51, 51, 51)), "JPEG"), [0.2, 0.2, 0.2]),
    "CMYK JPEG": (_encode(Image.new("CMYK", (16, 16), (0, 0, 0, 204)), "JPEG"), [0.2, 0.2, 0.2]),
    "progressive JPEG": (_encode(Image.new("L", (16, 16), 51), "JPEG", progressive=True), [0.2, 0.2, 0.2]),
    "WebP": (_encode(Image.new("RGB", (3, 3), RED), "WEBP", lossless=True), [1, 0, 0]),
    "transparent WebP": (_encode(Image.new("RGBA", (3, 3), (255, 0, 0, 0)), "WEBP", lossless=True), [1, 1, 1]),
}
FRAMES = {"save_all": True, "append_images": [Image.new("RGB", (3, 3), (0, 0, 255))], "duration": 10}
PICTURES["animated WebP"] = (_encode(Image.new("RGB", (3, 3), RED), "WEBP", lossless=True, **FRAMES), [1, 0, 0])
PICTURES["animated PNG"] = (_encode(Image.new("RGB", (3, 3), RED), "PNG", **FRAMES), [1, 0, 0])


@pytest.mark.parametrize(("data", "colour"), PICTURES.values(), ids=PICTURES)
def test_every_kind_of_picture_loads(data, colour):
    """Whatever its mode, depth or format, a picture becomes its colours, transparency white, an animation its start."""
    np.testing.assert_allclose(_load(data).mean(axis=(1, 2)), colour, atol=0.01)
    luminance = _load(data, _spec(channels=1))
    assert (1, 4, 6) == luminance.shape
    np.testing.assert_allclose(luminance.mean(), np.dot(colour, [0.299, 0.587, 0.114]), atol=0.01)


def test_orientation_is_as_a_viewer_shows_it():
    """EXIF orientation is applied; metadata that cannot be read is ignored."""
    image = Image.fromarray(np.array([[255, 0], [0, 0]], np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6  # stands on its side: turn it clockwise
    spec = _spec(channels=1, size=(2, 2))
    assert [[[0, 1], [0, 0]]] == _load(_encode(image, exif=exif), spec).tolist()
    assert [[[1, 0], [0, 0]]] == _load(_encode(image, exif=b"Exif\0\0nonsense"), spec).tolist()


def test_a_picture_that_promises_too_much_is_refused_by_its_header():
    """A file of a few bytes whose header says 30,000 x 30,000 pixels is refused without the memory it asks for."""
    data = _png_header(30_000, 30_000)
    assert len(data) < 100
    tracemalloc.start()
    error = _refusal(data, max_pixels=16_777_216)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert ("IMAGE_TOO_LARGE", True) == (error.reason, peak < 1 << 20)
    assert "30000 x 30000" in error.message


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_the_pixel_limit_is_exact(kind):
    """As many pixels as the limit are taken in any format, one more is not."""
    data = _encode(Image.new("RGB", (10, 10)), kind)
    assert (3, 4, 6) == load_picture(data, _spec(), MAX_BYTES, 100).pixels.shape
    assert "IMAGE_TOO_LARGE" == _refusal(data, max_pixels=99).reason


@pytest.mark.parametrize(
    ("size", "turned", "region"),
    [
        ((300, 100), 1, (1 / 3, 0, 2 / 3, 1)),
        ((100, 400), 1, (0, 3 / 8, 1, 5 / 8)),
        ((100, 400), 6, (3 / 8, 0, 5 / 8, 1)),  # by its EXIF it stands on its side
        ((50, 50), 1, None),
    ],
)
def test_what_is_cut_out_is_told(size, turned, region):
    """As shares of the upright picture; and of a picture that is all seen, nothing."""
    spec = _spec(size=(20, 20))
    spec.shortest_edge = 20
    exif = Image.Exif()
    exif[0x0112] = turned
    seen = load_picture(_encode(Image.new("L", size), "JPEG", exif=exif), spec, MAX_BYTES, MAX_PIXELS).region
    assert region == (seen and tuple(seen))
    spec.shortest_edge, spec.resize_height, spec.resize_width = 0, 25, 40
    assert (0.25, 0.08, 0.75, 0.88) == load_picture(_encode(Image.new("L", size)), spec, MAX_BYTES, MAX_PIXELS).region


def test_a_long_picture_is_refused_before_it_grows():
    """A line of pixels, whose shorter side is made 224: what it would be resized to is within the same limit."""
    spec = _spec(size=(224, 224))
    spec.shortest_edge = 224
    for size, shape in (((3, 30), (224, 2240)), ((30, 3), (2240, 224))):
        data = _encode(Image.new("L", size))
        assert (3, 224, 224) == load_picture(data, spec, MAX_BYTES, 224 * 2240).pixels.shape
        with pytest.raises(InvalidRequest, match=f"would be {shape[0]} x {shape[1]} for this") as error:
            load_picture(data, spec, MAX_BYTES, 224 * 2240 - 1)
        assert "IMAGE_TOO_LARGE" == error.value.reason
    tracemalloc.start()
    with pytest.raises(InvalidRequest, match="1 x 500000 pixels, and would be 224 x 112000000 for this model"):
        load_picture(_png_header(1, 500_000), spec, MAX_BYTES, MAX_PIXELS)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_what_is_cut_is_the_middle():
    """An odd rest is taken off below and to the right."""
    greys = np.arange(35, dtype=np.uint8).reshape(5, 7)
    spec = _spec(channels=1, size=(2, 4))
    spec.resize_height, spec.resize_width = 5, 7
    values = (_load(_encode(Image.fromarray(greys)), spec) * 255).round().astype(int)
    np.testing.assert_array_equal(greys[1:3, 1:5], values[0])


def test_too_many_bytes_are_refused_unread():
    """A file over the limit of bytes is refused whatever is in it."""
    assert "IMAGE_TOO_LARGE" == _refusal(bytes(101), max_bytes=100).reason


NOT_PICTURES = {
    "text": b"hello",
    "zeroes": bytes(100),
    "GIF": _encode(GREY, "GIF"),
    "BMP": _encode(GREY, "BMP"),
    "TIFF": _encode(GREY, "TIFF"),
    "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
    "SVG": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "no pixels": _png_header(0, 5),
    "no data": _png_header(5, 5),
    "only a signature": b"\x89PNG\r\n\x1a\n",
}


@pytest.mark.parametrize("data", NOT_PICTURES.values(), ids=NOT_PICTURES)
def test_what_is_no_picture_of_ours_is_refused(data):
    """Other formats, garbage and headers without pixels are a bad image."""
    assert "BAD_IMAGE" == _refusal(data).reason


def test_empty_is_empty_input():
    """No bytes at all are an empty input."""
    assert "EMPTY_INPUT" == _refusal(b"").reason


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_truncated_picture_is_refused(kind, share):
    """A file cut anywhere is a bad image, never a half-grey picture."""
    data = _encode(Image.fromarray(np.tile(NOISE, (8, 8, 1))), kind)
    assert "BAD_IMAGE" == _refusal(data[: int(len(data) * share)]).reason


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["PNG", "JPEG", "WEBP"]), st.integers(0, 400), st.binary(min_size=1, max_size=8))
def test_corruption_is_a_typed_error_or_a_picture(kind, at, garbage):
    """Whatever bytes are overwritten: pixel values or InvalidRequest, and never anything else of Pillow's."""
    data = bytearray(_encode(Image.fromarray(NOISE), kind))
    data[at : at + len(garbage)] = garbage
    assert _outcome(bytes(data)) in {(3, 4, 6), "BAD_IMAGE", "IMAGE_TOO_LARGE"}


def _outcome(data: bytes) -> object:
    try:
        return _load(data).shape
    except InvalidRequest as error:
        return error.reason


def _progressive(side: int = 256, kind: str = "JPEG", **options) -> bytes:
    return _encode(Image.new("RGB", (side, side), (120, 130, 140)), kind, progressive=True, **options)


def _scanned(data: bytes, more: int) -> bytes:
    """A JPEG whose last scan is repeated."""
    end = data.index(b"\xff\xd9")
    return data[:end] + data[data.rindex(b"\xff\xda", 0, end) : end] * more + data[end:]


SEGMENT = b"\xff\xda" * 500  # what looks like so many scans, in a segment of something else
COMMENTED = {"comment": SEGMENT, "exif": b"Exif\0\0" + SEGMENT}


@pytest.mark.parametrize("kind", ["JPEG", "MPO"])
def test_a_jpeg_that_is_scanned_over_and_over_is_refused(kind):
    """A JPEG of one picture or of two, as Pillow tells them apart, has at most so many scans, however small it is."""
    more = {"save_all": True, "append_images": [Image.new("RGB", (256, 256))]} if kind == "MPO" else {}
    data = _progressive(kind=kind, **more)
    assert kind == Image.open(io.BytesIO(data), formats=["JPEG"]).format
    own = num_scans(data)
    assert (3, 4, 6) == _load(_scanned(data, MAX_SCANS - own)).shape
    refused = _refusal(_scanned(data, MAX_SCANS - own + 1))
    assert ("IMAGE_TOO_LARGE", True) == (refused.reason, f"has {MAX_SCANS + 1} scans" in refused.message)


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_the_work_of_a_jpeg_is_its_scans_times_its_pixels(mode):
    """As many full scans as are allowed are taken, an honest picture of the most pixels among them; one more is not."""
    data = _encode(Image.new(mode, (64, 64)), "JPEG", progressive=True)
    own, num_pixels = num_scans(data), 64 * 64
    assert 6 <= own <= MAX_FULL_SCANS
    taken = load_picture(_scanned(data, MAX_FULL_SCANS - own), _spec(), MAX_BYTES, num_pixels)
    assert (3, 4, 6) == taken.pixels.shape
    refused = _refusal(_scanned(data, MAX_FULL_SCANS - own + 1), max_pixels=num_pixels)
    assert ("IMAGE_TOO_LARGE", True) == (refused.reason, "scans of 4096 pixels" in refused.message)
    assert (3, 4, 6) == _load(_scanned(data, MAX_FULL_SCANS - own + 1)).shape


@pytest.mark.parametrize("more", COMMENTED.values(), ids=COMMENTED)
def test_only_scans_count_as_scans(more):
    """Neither bytes of a comment or a preview picture nor restart markers are scans."""
    option = "exif" if more.startswith(b"Exif") else "comment"
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))
    data = _encode(noise, "JPEG", restart_marker_blocks=1, **{option: more})
    assert 501 == data.count(b"\xff\xda")
    assert 1 == num_scans(data)
    assert (3, 4, 6) == _load(data).shape


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([b"\xff", b"\x00", b"\x01", b"\xda", b"\xd0", b"ab", b"\xff\xd0"]), max_size=12), st.data()
)
def test_no_scan_is_hidden(filling, draw):
    """Whatever stands between a JPEG's segments, a decoder that goes over its pixels once more is counted."""
    data = _progressive(16)
    at = draw.draw(st.sampled_from([place for place in range(2, len(data)) if data[place : place + 2] == b"\xff\xda"]))
    data = data[:at] + b"".join(filling) + data[at:]
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
    except (OSError, SyntaxError, struct.error):
        return
    assert num_scans(data) >= num_scans(_progressive(16))


def test_scans_are_counted_in_one_pass():
    """Megabytes of filling bytes that come to nothing are gone over once."""
    assert 1 == num_scans(b"\xff\xd8" + b"\xff" * (4 << 20) + b"\0\xff\xda\0\2")


class Abandoned(Wanted):
    """Wanted so many times; counts how often it was asked."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times, self.asked = times, 0

    def check(self) -> None:
        """Give up in time."""
        self.asked += 1
        if self.asked > self.times:
            self.give_up()
        super().check()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_what_nobody_waits_for_is_not_read_on(kind):
    """Whenever it is given up, no byte is read after that, and it ends as late, not as broken."""
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (256, 256, 3), np.uint8))
    data = _encode(noise, kind, **({"progressive": True} if kind == "JPEG" else {}))
    whole = Abandoned(1 << 30)
    load_picture(data, _spec(), MAX_BYTES, MAX_PIXELS, whole)
    for times in range(whole.asked):
        wanted = Abandoned(times)
        with pytest.raises(DeadlineExpired):
            load_picture(data, _spec(), MAX_BYTES, MAX_PIXELS, wanted)
        assert times + 1 == wanted.asked


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_picture_is_decoded_in_small_blocks(kind):
    """So that one that is given up ends soon, however much each byte costs."""
    wanted, noise = Abandoned(1 << 30), np.random.default_rng(0).integers(0, 256, (256, 256, 3), np.uint8)
    data = _encode(Image.fromarray(noise), kind)
    load_picture(data, _spec(), MAX_BYTES, MAX_PIXELS, wanted)
    assert wanted.asked >= len(data) // 4096


def _png(depth: int, colour: int, row: bytes, *chunks: bytes) -> bytes:
    """A PNG of one row of two pixels, with chunks before its data."""
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 1, depth, colour, 0, 0, 0))
    return b"".join(
        (b"\x89PNG\r\n\x1a\n", header, *chunks, _chunk(b"IDAT", zlib.compress(b"\0" + row)), _chunk(b"IEND", b""))
    )


TRANSPARENT = {
    "1 bit": (1, 0, b"\x40", struct.pack(">H", 0), [1, 1]),
    "2 bits": (2, 0, b"\x60", struct.pack(">H", 1), [1, 2 / 3]),
    "4 bits": (4, 0, b"\x39", struct.pack(">H", 3), [1, 0.6]),
    "8 bits": (8, 0, b"\x33\x66", struct.pack(">H", 51), [1, 0.4]),
    "16 bits": (16, 0, struct.pack(">HH", 0, 51 * 257), struct.pack(">H", 0), [1, 0.2]),
    "16 bits, one apart": (16, 0, struct.pack(">HH", 13107, 13108), struct.pack(">H", 13107), [1, 0.2]),
    "colours": (8, 2, bytes([1, 2, 3, 51, 51, 51]), struct.pack(">3H", 1, 2, 3), [1, 0.2]),
    "colours of 16 bits": (16, 2, struct.pack(">6H", 1, 2, 3, *[13107] * 3), struct.pack(">3H", 1, 2, 3), [1, 0.2]),
}


@pytest.mark.parametrize(("depth", "colour", "row", "transparent", "expected"), TRANSPARENT.values(), ids=TRANSPARENT)
def test_a_transparent_colour_is_white(depth, colour, row, transparent, expected):
    """In a PNG of any depth, the one colour that it says is transparent, and no other."""
    data = _png(depth, colour, row, _chunk(b"tRNS", transparent))
    actual = _load(data, _spec(channels=1, size=(1, 2))).ravel()
    np.testing.assert_allclose(actual, expected, atol=0.002)


def test_colours_by_number_need_a_palette():
    """A PNG without one has no colours; with one it has."""
    assert "BAD_IMAGE" == _refusal(_png(8, 3, b"\0\1")).reason
    assert 0 == _load(_png(8, 3, b"\0\1", _chunk(b"PLTE", bytes(6)))).sum()


MEBIBYTES = zlib.compress(bytes(5 << 20))
METADATA = {
    "compressed text": _chunk(b"zTXt", b"Comment\0\0" + MEBIBYTES),
    "international text": _chunk(b"iTXt", b"Comment\0\1\0\0\0" + MEBIBYTES),
    "text": _chunk(b"tEXt", b"Comment\0" + b"a" * (5 << 20)),
    "profile": _chunk(b"iCCP", b"colours\0\0" + MEBIBYTES),
    "not even text": _chunk(b"zTXt", b"\xff" * 99),
    "unknown": _chunk(b"aaAa", bytes(99)),
}


@pytest.mark.parametrize("chunk", METADATA.values(), ids=METADATA)
def test_metadata_of_any_length_is_not_read(chunk):
    """It is no part of the picture, and what it would take when decompressed is not taken."""
    data = _png(8, 0, b"\x33\x33", *[chunk] * 8)
    tracemalloc.start()
    pixels = load_picture(data, _spec(channels=1, size=(1, 2)), 1 << 26, MAX_PIXELS).pixels
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_allclose(pixels.ravel(), [0.2, 0.2], atol=1e-6)
    assert peak < len(data) + (1 << 20)


@pytest.mark.parametrize("chunk", ["eXIf", "Raw profile", "XMP"])
def test_how_a_png_stands_is_read(chunk):
    """Orientation is in a chunk of its own, or in a text, as older programs wrote it."""
    exif = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"  # stands on its side
    written = {
        "eXIf": _chunk(b"eXIf", exif),
        "Raw profile": _chunk(
            b"zTXt",
            b"Raw profile type exif\0\0" + zlib.compress(b"\nexif\n%8d\n" % len(exif) + exif.hex().encode() + b"\n"),
        ),
        "XMP": _chunk(b"iTXt", b'XML:com.adobe.xmp\0\0\0\0\0<x tiff:Orientation="6"/>'),
    }
    data = _png(8, 0, b"\xff\0", written[chunk])
    assert [[[1], [0]]] == _load(data, _spec(channels=1, size=(2, 1))).tolist()


def test_a_png_in_crumbs_is_refused():
    """Each chunk costs time, whatever is in it; as many as are taken are taken."""
    pixels = zlib.compress(b"\0\x33\x33")
    start = _png(8, 0, b"")[:33]  # to the end of its header
    for crumbs, reason in ((MAX_PIECES - 3, None), (MAX_PIECES - 2, "BAD_IMAGE")):
        data = start + _chunk(b"IDAT", b"") * crumbs + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")
        assert reason == (_refusal(data).reason if reason else None if _load(data) is not None else "")


CRUMBS = {"filling": b"\xff", "comment": b"\xff\xfe\0\2", "application": b"\xff\xe1\0\2", "junk": b"\xff\0\0\0"}


@pytest.mark.parametrize("crumb", CRUMBS.values(), ids=CRUMBS)
@pytest.mark.parametrize("before", [b"\xff\xe0", b"\xff\xda"], ids=["before the header", "before the scan"])
def test_a_jpeg_in_crumbs_is_refused(before, crumb):
    """So is one of millions of tiny segments, which the interpreter would read one by one."""
    data = _encode(Image.new("RGB", (16, 16)), "JPEG")
    at = data.index(before)
    many, few = (data[:at] + crumb * count + data[at:] for count in (100_000, 1_000))
    assert (3, 4, 6) == _load(few).shape
    refused = _refusal(many)
    assert ("BAD_IMAGE", True) == (refused.reason, "pieces" in refused.message)


def test_a_jpeg_with_crumbs_between_its_scans_is_refused():
    """Those are read by the decoder, but counted by us."""
    data = _progressive()
    at = data.rindex(b"\xff\xda")
    assert (3, 4, 6) == _load(data[:at] + b"\xff\xfe\0\2" * 1_000 + data[at:]).shape
    assert "pieces" in _refusal(data[:at] + b"\xff\xfe\0\2" * MAX_PIECES + data[at:]).message


def test_an_animation_begins_with_its_first_frame():
    """Not with the picture that some put before it, for viewers that know no animations."""
    blue, red = Image.new("RGB", (3, 3), (0, 0, 255)), Image.new("RGB", (3, 3), RED)
    data = _encode(blue, save_all=True, append_images=[red, blue], default_image=True)
    assert [1, 0, 0] == _load(data).mean(axis=(1, 2)).tolist()
