"""Every kind of normaliser that a tokenizer may carry."""

import struct

from tokenizers import Regex, normalizers


def precompiled(replacements):
    """Return a normaliser as SentencePiece's, which replaces each key by its value: a double array, then the values."""
    nodes = {key.encode()[:length]: 0 for key in replacements for length in range(len(key.encode()) + 1)}
    # Each node has 256 units for its children to itself; a child stands at them, exclusive-or its byte.
    nodes = {node: 256 * index for index, node in enumerate(sorted(nodes), start=1)}
    units, values = [0] * (256 * (len(nodes) + 1)), b""
    for node, children in nodes.items():
        at = nodes[node[:-1]] ^ node[-1] if node else 0
        units[at] = (at ^ children) << 10 | (node[-1] if node else 0)
    for key, value in replacements.items():
        node = key.encode()
        units[nodes[node[:-1]] ^ node[-1]] |= 1 << 8
        units[nodes[node]] = 1 << 31 | len(values)
        values += value.encode() + b"\0"
    trie = struct.pack(f"<{len(units)}I", *units)
    return normalizers.Precompiled(struct.pack("<I", len(trie)) + trie + values)


NORMALIZERS = {
    "none": None,
    "NFC": normalizers.NFC(),
    "NFD": normalizers.NFD(),
    "NFKC": normalizers.NFKC(),
    "NFKD": normalizers.NFKD(),
    "Lowercase": normalizers.Lowercase(),
    "Nmt": normalizers.Nmt(),
    "Strip": normalizers.Sequence([normalizers.NFC(), normalizers.Strip()]),
    "StripAccents": normalizers.StripAccents(),
    "BertNormalizer": normalizers.BertNormalizer(),
    "BertNormalizer, cased": normalizers.BertNormalizer(lowercase=False),
    "Prepend": normalizers.Sequence([normalizers.NFKC(), normalizers.Prepend("▁")]),
    "Replace": normalizers.Sequence(
        [normalizers.Replace(*each) for each in [("``", '"'), ("...", "…"), ("e\u0301", "é"), (Regex("o+"), "o")]]
    ),
    "Precompiled": precompiled(
        {"\x01": "", "\u200b": " ", "e\u0301": "é", "z\u0323": "ẓ", "ﬁ": "fi", "…": "...", "\u1112\u1161\u11ab": "한"}
    ),
    "as ALBERT": normalizers.Sequence(
        [
            normalizers.Replace("``", '"'),
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            precompiled({"…": "..."}),
        ]
    ),
    "there and back": normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Lowercase(), normalizers.NFD(), normalizers.NFC()]
    ),
    "there and apart": normalizers.Sequence([normalizers.NFC(), normalizers.NFD(), normalizers.StripAccents()]),
}
