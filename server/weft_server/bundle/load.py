"""A bundle: one exported, versioned model in a directory, read and verified before anything in it is run."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from google.protobuf import json_format

from weft_proto.bundle_rules import FORMAT_VERSION, MANIFEST_FILE, MAX_MANIFEST_BYTES, MAX_MANIFEST_ENTRIES
from weft_proto.first_line import first_line
from weft_proto.v1 import bundle_pb2
from weft_server.bundle.files import read_small_file, verify_files
from weft_server.bundle.graphs import verify_graphs
from weft_server.bundle.limits import verify_limits
from weft_server.bundle.manifest import verify_manifest
from weft_server.bundle.ports import verify_ports
from weft_server.errors import BundleError


@dataclass(frozen=True)
class Bundle:
    """A verified bundle. Its files are as the manifest says, and its graphs have the ports that their roles demand."""

    name: str
    version: int
    directory: Path
    manifest: bundle_pb2.BundleManifest
    # Of bundle.json.
    sha256: str = ""
    # Files whose graphs may cost much to open.
    costly: frozenset[str] = frozenset()

    def graph(self, role: bundle_pb2.GraphRole.ValueType) -> bundle_pb2.Graph | None:
        """Return the graph of a role, or None when the bundle has none."""
        return next((graph for graph in self.manifest.graphs if graph.role == role), None)

    def needed_graph(self, role: bundle_pb2.GraphRole.ValueType) -> bundle_pb2.Graph:
        """Return the graph of a role without which the bundle would have been refused."""
        graph = self.graph(role)
        assert graph is not None, f"{self!r} without its {bundle_pb2.GraphRole.Name(role)} was accepted. This is a bug."
        return graph

    def path(self, file: str) -> Path:
        """Return where a file of the bundle lies."""
        return self.directory / file

    def __repr__(self) -> str:
        return f"<Bundle {self.name}/{self.version}>"


def load_bundle(directory: Path) -> Bundle:
    """Read and verify `<repository>/<name>/<version>/`. Takes as long as hashing all its files.

    Raises:
        BundleError: the bundle is refused; nothing in it was run.
    """
    if not directory.name.isdecimal():
        raise BundleError(f"{directory} is not a version: its name is no number")
    manifest = bundle_pb2.BundleManifest()
    try:
        content = read_small_file(directory / MANIFEST_FILE, MAX_MANIFEST_BYTES)
        manifest = _parsed(content)
        verify_limits(manifest)
        verify_manifest(manifest)
        verify_ports(manifest)
        verify_files(directory, manifest)
        costly = verify_graphs(directory, manifest)
    except OSError as error:
        raise BundleError(f"{error.filename or directory}: {error.strerror}", manifest.task) from error
    except BundleError as error:
        error.task = manifest.task
        raise
    sha256 = hashlib.sha256(content).hexdigest()
    return Bundle(directory.parent.name, int(directory.name), directory, manifest, sha256, costly)


def _parsed(content: bytes) -> bundle_pb2.BundleManifest:
    try:
        text = content.decode()
        if not has_few_entries(text):
            raise BundleError(f"{MANIFEST_FILE} has more than {MAX_MANIFEST_ENTRIES:,} entries")
        manifest = json_format.Parse(text, bundle_pb2.BundleManifest())
    except (json_format.ParseError, ValueError, RecursionError) as error:  # bytes that are no UTF-8 raise ValueError
        raise BundleError(f"{MANIFEST_FILE} is not a BundleManifest in JSON: {first_line(error)}") from error
    if manifest.format_version != FORMAT_VERSION:
        raise BundleError(
            f"{MANIFEST_FILE} has format_version {manifest.format_version}; this server knows {FORMAT_VERSION}"
        )
    return manifest


def has_few_entries(text: str) -> bool:
    """Whether all lists and objects of a text of JSON together have at most MAX_MANIFEST_ENTRIES entries.

    Making messages of millions of entries would take a minute.
    """
    # Before an entry is at most one comma, and it is at most one list or object. What has more signs than that has more
    # entries, or texts full of signs. As objects of Python, 8 MiB of them would be 220 MB.
    if sum(map(text.count, ",[{")) > 2 * MAX_MANIFEST_ENTRIES:
        return False
    left = MAX_MANIFEST_ENTRIES
    rest = [json.loads(text)]
    while rest and left >= 0:
        part = rest.pop()
        if isinstance(part, dict | list):
            left -= len(part)
            rest.extend(part.values() if isinstance(part, dict) else part)
    return left >= 0
