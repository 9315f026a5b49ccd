"""What a server shares, derived from the operator's configuration and vLLM's."""

from __future__ import annotations

from typing import Any, Final

from eccache.adapters.vllm.adapter_content import AdapterContents
from eccache.adapters.vllm.admission import Knowledge
from eccache.adapters.vllm.content import Contents
from eccache.adapters.vllm.fingerprint import ModelIdentity
from eccache.adapters.vllm.weights_watch import foreseen_replacement
from eccache.app.config import CacheConfig
from eccache.domain.policy import HEX_DIGITS, SharingPolicy
from eccache.ports.clock import Clock
from eccache.ports.telemetry import Level, Telemetry

DEFAULT_HASHER: Final = "blake3"


def hasher_of(model_config: Any) -> str:
    """Return the name of the algorithm that vLLM makes ids with."""
    multimodal = model_config.multimodal_config
    return DEFAULT_HASHER if multimodal is None else str(multimodal.mm_hasher_algorithm)


def policy_of(
    config: CacheConfig, vllm_config: Any, identity: ModelIdentity, telemetry: Telemetry
) -> SharingPolicy:
    """Return which inputs may be shared; says in the log why none may, where that is so."""
    model = vllm_config.model_config
    trust = config.trust_client_ids
    return SharingPolicy(
        digest_digits=HEX_DIGITS.get(hasher_of(model), HEX_DIGITS[DEFAULT_HASHER]),
        encoder_decoder=bool(model.is_encoder_decoder),
        unproven=_is_unproven(config, vllm_config, identity, telemetry),
        trust_client_ids=trust is True,
        trusted_ids=trust if isinstance(trust, str) else None,
        bind_content=config.bind_content,
        isolate_salted=config.isolate_salted,
    )


def knowledge_of(vllm_config: Any, contents: Contents, clock: Clock, dtype: str) -> Knowledge:
    """Return what is known of inputs beyond their ids.

    Args:
        vllm_config: vLLM's whole configuration.
        contents: knows what inputs are.
        clock: tells since when adapters can have been loaded: from now on.
        dtype: torch's name of the encoder's dtype.
    """
    transfer, lora = vllm_config.ec_transfer_config, vllm_config.lora_config
    reaches_encoder = lora is not None and bool(getattr(lora, "enable_tower_connector_lora", False))
    return Knowledge(
        contents=contents,
        adapter=AdapterContents(clock.unix()).of if reaches_encoder else None,
        widths=dict(getattr(transfer, "mm_encoder_output_widths", None) or {}),
        dtype=dtype if transfer.is_ec_producer else None,
    )


def _is_unproven(
    config: CacheConfig, vllm_config: Any, identity: ModelIdentity, telemetry: Telemetry
) -> bool:
    """Return whether it can't be told which weights the encoder has, or will have."""
    if identity.unknown and not config.epoch:
        telemetry.event(
            Level.WARNING,
            "vllm.identity.unknown",
            cause=f"can't tell {identity.unknown}",
            effect="nothing is stored or served",
            remedy="set epoch to a name of your own for this model, another one for each other model",
        )
        return True
    foreseen = foreseen_replacement(vllm_config)
    if foreseen and not config.fixed_weights:
        telemetry.event(
            Level.WARNING,
            "vllm.weights.may_change",
            cause=f"{foreseen}, by which weights can be replaced unseen",
            effect="nothing is stored or served",
            remedy="leave it out; or set fixed_weights, if nothing ever replaces the weights",
        )
        return True
    return False
