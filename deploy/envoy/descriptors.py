"""Write the contracts as a descriptor set, which Envoy needs to speak JSON: `descriptors.py weft.pb`."""

import sys
from pathlib import Path

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.rpc import error_details_pb2

from weft_proto.v1.methods import METHODS, SERVICES

PUBLIC = [method.request.DESCRIPTOR.file for method in METHODS.values() if method.service in SERVICES]
# Without error_details Envoy cannot read the details of an error, and answers with an empty body.
ROOTS = (*PUBLIC, error_details_pb2.DESCRIPTOR)


def add(file: FileDescriptor, files: dict[str, FileDescriptor]) -> None:
    """Add a file to `files`, behind those that it imports."""
    for imported in file.dependencies:
        add(imported, files)
    files[file.name] = file


def main() -> None:
    """Write the set to the path given."""
    files: dict[str, FileDescriptor] = {}
    for root in ROOTS:
        add(root, files)
    descriptors = FileDescriptorSet()
    for file in files.values():
        file.CopyToProto(descriptors.file.add())
    Path(sys.argv[1]).write_bytes(descriptors.SerializeToString())


if __name__ == "__main__":
    main()
