"""The id of an encoder call: a digest of everything that its output depends on.

SHA-256, because an id that two inputs share would serve one the other's output, and inputs may come from
strangers: a fast hash such as XXH3 stands against accidents, not against somebody who looks for two
pictures with one hash. On a processor with SHA instructions it takes half a millisecond for a megabyte
(37 ms for the 73 MB of a long video; BLAKE2b 55 ms, XXH3 2 ms), less than a hundredth of what the encoder
takes for the same input.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from eccache.adapters.transformers.call import EncoderCall
from eccache.adapters.transformers.settings import Plain
from eccache.adapters.transformers.tensor_bytes import dtype_name, tensor_bytes

_SCHEME = 1


def content_key(call: EncoderCall, context: Mapping[str, Plain]) -> str:
    """Return the id of *call*, 64 hex digits.

    The text that is hashed first says how many bytes of which tensor follow, so no two different calls are
    written alike.

    Args:
        call: what is encoded, with the settings for it.
        context: what else decides the output: model, method, circumstances.
    """
    names = sorted(call.tensors)
    tensors = [call.tensors[name] for name in names]
    described: list[Plain] = [
        # Kernels are chosen by memory layout too, and another kernel rounds otherwise.
        [name, dtype_name(tensor), list(tensor.shape), tensor.is_contiguous()]
        for name, tensor in zip(names, tensors, strict=True)
    ]
    head: dict[str, Plain] = {
        "scheme": _SCHEME,
        "context": dict(context),
        "settings": call.settings,
        "tensors": described,
    }
    text = json.dumps(head, sort_keys=True, separators=(",", ":")).encode()
    digest = hashlib.sha256(len(text).to_bytes(8, "little") + text)
    for tensor in tensors:
        digest.update(tensor_bytes(tensor))
    return digest.hexdigest()
