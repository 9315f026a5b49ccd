"""The demo model's tokenizer: a byte-level BPE trained on one passage of text."""

from __future__ import annotations

import json
from pathlib import Path

VISION_START = "<|vision_start|>"
VISION_END = "<|vision_end|>"
VISION_PAD = "<|vision_pad|>"
IMAGE_PAD = "<|image_pad|>"
VIDEO_PAD = "<|video_pad|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
END_OF_TEXT = "<|endoftext|>"

SPECIAL_TOKENS = (
    END_OF_TEXT,
    TURN_START,
    TURN_END,
    VISION_START,
    VISION_END,
    VISION_PAD,
    IMAGE_PAD,
    VIDEO_PAD,
)

TRAINING_PASSAGE = """
An encoder output is one dense tensor that a model computes from an image, a video or a sound.
Computing it costs milliseconds or seconds of an accelerator, and the same picture is often sent again:
by another user, to another replica, after a restart, in the next turn of a long conversation.
A cache on the host keeps what was computed once. Every read is verified before it is handed out,
and a fault of the cache is only a miss: the encoder runs and the answer stays the same.
What do you see in this photograph? Describe the short video in a few plain words, please.
A cup of coffee stands on the table; a cat looks up; a rocket waits for its launch; a woman smiles.
Red, green, blue, yellow, black and white; left and right, above and below, near and far, small and large.
"""
"""Words the demo model answers with; its weights are random, so the order of them means nothing."""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] in ('image', 'image_url') %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] in ('video', 'video_url') %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in part %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tokenizer(directory: Path) -> dict[str, int]:
    """Train the tokenizer and write its files.

    Args:
        directory: Folder of the model; it exists.

    Returns:
        The vocabulary, text of a token to its id, special tokens included. Ids are dense from 0.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        min_frequency=1,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TRAINING_PASSAGE.splitlines(), trainer)
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 32768,
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "additional_special_tokens": list(SPECIAL_TOKENS),
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))
    return dict(tokenizer.get_vocab(with_added_tokens=True))


def speakable_ids(vocabulary: dict[str, int]) -> list[int]:
    """Ids of the tokens that read as words or punctuation.

    A random model would answer with stray bytes, which no text can show faithfully: two different
    answers could print alike. Its output layer is therefore restricted to these tokens.

    Args:
        vocabulary: What `write_tokenizer` returned.

    Returns:
        The ids in ascending order.
    """
    space = "\u0120"  # how byte-level BPE writes a leading space
    return sorted(
        token_id
        for token, token_id in vocabulary.items()
        if token not in SPECIAL_TOKENS
        and (word := token.removeprefix(space)).isascii()
        and word.isprintable()
        and word
    )
