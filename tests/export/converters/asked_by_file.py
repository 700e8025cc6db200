"""What is asked of a kind of model whose settings a generation_config.json says: of theirs, and of a server of ours."""

import asyncio
import io

import numpy as np
import torch
import transformers
from captioner_kinds import CAPTIONERS
from decoder_kinds import DECODERS
from google.protobuf import json_format
from hf_models import made, token_rows
from PIL import Image
from seq2seq_kinds import SEQ2SEQ
from sight_kinds import SEEING, as_messages, made_seeing, pictures, their_inputs
from test_captioners import with_processor
from test_whisper import RATE, START, made_whisper, tones

from loaded import Loaded, ask
from weft_export.bundle import manifest_of
from weft_export.checkpoints.sound import wav_of
from weft_export.converters.convert import convert
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.bundle_rules import MANIFEST_FILE
from weft_proto.sound import spoken_ids
from weft_proto.v1 import bundle_pb2, common_pb2

KINDS = {kind.name: kind for kind in (*SEQ2SEQ, *DECODERS, *CAPTIONERS, *SEEING)}


class Texts:
    """A model that reads tokens."""

    def __init__(self, name, directory):
        self.model = made(KINDS[name], 1, directory)
        self.rows = token_rows(self.model.config.vocab_size, (4, 7), 1)
        # A generator's file asks for the model's own; here the model has none.
        self.model.generation_config = transformers.GenerationConfig()

    def written(self, config):
        """What generate() writes for each row, with what it begins with. With draws, from one seed."""
        return [self._written(torch.tensor([ids]), config) for ids in self.rows]

    def _written(self, given, config):
        torch.manual_seed(0)
        return self.model.generate(given, attention_mask=torch.ones_like(given), generation_config=config).tolist()

    def beginnings(self, _):
        """What it begins with, for each row."""
        start = self.model.config.decoder_start_token_id
        return [[start] if self.model.config.is_encoder_decoder else ids for ids in self.rows]

    def ends(self, given):
        """The tokens that end an answer by a file."""
        return given.get("eos_token_id")

    def requests(self):
        """The same rows, as a request has them."""
        return [{"token_ids": common_pb2.TokenIds(ids=ids)} for ids in self.rows]


class Pictures:
    """A captioner, asked of pictures of its own size."""

    def __init__(self, name, directory):
        self.model = made(KINDS[name], 1, directory)
        side = with_processor(directory).shape[-1]
        random = np.random.default_rng(1)
        self.pictures = [Image.fromarray(random.integers(0, 256, (side, side, 3), np.uint8)) for _ in range(2)]
        processor = transformers.AutoImageProcessor.from_pretrained(directory)
        self.pixels = [processor(each, return_tensors="pt").pixel_values for each in self.pictures]

    def written(self, config):
        """As from_pretrained() reads the file: whether generate() looks at it is up to the class."""
        self.model.generation_config = config
        return [self.model.generate(pixel_values=each).tolist() for each in self.pixels]

    def beginnings(self, checkpoint):
        """One token."""
        return [[checkpoint.text.start_id]] * len(self.pictures)

    def ends(self, given):
        """BLIP's class has an end of its own."""
        text = getattr(self.model.config, "text_config", None)
        return text.sep_token_id if text else given.get("eos_token_id")

    def requests(self):
        """Files of the pictures."""
        files = [io.BytesIO() for _ in self.pictures]
        for picture, file in zip(self.pictures, files, strict=True):
            picture.save(file, "PNG")
        return [{"image": common_pb2.Image(data=file.getvalue())} for file in files]


class Chats:
    """A model that sees, asked about a picture in each of two chats, which are short: so may its context be."""

    def __init__(self, name, directory):
        self.model, processor = made_seeing(KINDS[name], 1, directory)
        self.model.generation_config = transformers.GenerationConfig()
        asked = [{"type": "text", "text": "Why?"}]
        shown = [{"type": "image", "image": each} for each in pictures(2, 1)]
        self.chats = [[{"role": "user", "content": [each, *asked]}] for each in shown]
        self.inputs = [their_inputs(processor, each) for each in self.chats]

    def written(self, config):
        """What generate() writes for each chat, with the prompt."""
        return [self.model.generate(**each, generation_config=config).tolist() for each in self.inputs]

    def beginnings(self, _):
        """The prompts."""
        return [each["input_ids"][0].tolist() for each in self.inputs]

    def ends(self, given):
        """The tokens that end an answer by a file."""
        return given.get("eos_token_id")

    def requests(self):
        """The same chats, with the pictures as files."""
        return [{"messages": as_messages(each)} for each in self.chats]


class Sounds:
    """A Whisper of two languages, asked of tones."""

    def __init__(self, _, directory):
        self.model = made_whisper(directory)
        self.files = [wav_of(tones(seconds, seed), RATE) for seed, seconds in enumerate((1.9, 1.0))]
        extractor = transformers.WhisperFeatureExtractor.from_pretrained(directory)
        heard = [np.frombuffer(each[44:], np.int16) / np.float32(32768) for each in self.files]
        self.features = [extractor(each, sampling_rate=RATE, return_tensors="pt").input_features for each in heard]

    def written(self, config):
        """With the tokens of language and task."""
        self.model.generation_config = config
        written = [self.model.generate(each, return_dict_in_generate=True) for each in self.features]
        return [each["sequences"].tolist() for each in written]

    def beginnings(self, checkpoint):
        """What the files say of language, task and moments."""
        audio = checkpoint.audio
        says = {"to_english": audio.default_to_english, "timestamps": audio.default_timestamps}
        return [[START, *spoken_ids(audio, audio.default_language, **says)]] * len(self.files)

    def ends(self, given):
        """The tokens that end an answer by a file."""
        return given.get("eos_token_id")

    def requests(self):
        """The files."""
        return [{"audio": common_pb2.Audio(data=each)} for each in self.files]


class Server:
    """The bundle of a model, served by any generation_config.json: the manifest says what that says, or the bias."""

    options = ExportOptions(no_explain=True, no_score=True)

    def __init__(self, directory, home, requests):
        self.directory, self.home, self.requests = directory, home, requests
        self.bundles, self.found = {}, {}

    def read(self):
        """The checkpoint as its files are now, and what is told of them."""
        loaded = convert(self.directory, self.options)
        return loaded.checkpoint, set(loaded.notes)

    def bundle_of(self, checkpoint):
        """The folder of a bundle that says what a checkpoint says."""
        weights = tuple(each.sum().item() for each in checkpoint.model.state_dict().values())
        if weights not in self.bundles:  # tokens that are never written are in the bias of a head
            self.bundles[weights] = self.home / str(len(self.bundles)) / "m" / "1"
            export_checkpoint(self.directory, self.bundles[weights], self.options)
        path = self.bundles[weights] / MANIFEST_FILE
        manifest = json_format.Parse(path.read_text(), bundle_pb2.BundleManifest())
        said = manifest_of(checkpoint, manifest.precision, manifest.golden)
        for name in ("text", "audio", "decoding"):
            if said.HasField(name):
                getattr(manifest, name).CopyFrom(getattr(said, name))
        path.write_text(json_format.MessageToJson(manifest))
        return path.parent

    def answers(self, checkpoint):
        """What a server answers to each request, of which none says how to decode: the tokens of each output."""
        bundle = self.bundle_of(checkpoint)
        asked = (bundle / MANIFEST_FILE).read_bytes()
        if asked not in self.found:
            answers = asyncio.run(_served(bundle, self.requests))
            self.found[asked] = [[list(one.token_ids) for one in (each, *each.others)] for each in answers]
        return self.found[asked]


async def _served(bundle, requests):
    async with Loaded(bundle, slots=12, lanes=1) as loaded:
        asked = (ask(loaded, **each) for each in requests)
        return [answer.completion for answer in await asyncio.gather(*asked)]
