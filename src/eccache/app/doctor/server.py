"""Would the server that these arguments start use the cache?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eccache.app.config import CacheConfig
from eccache.app.doctor.finding import Finding, error, ok, warning
from eccache.app.doctor.subject import Subject
from eccache.ports.inspection import ServerFacts

CHECK = "server"
CONNECTOR: Final = "ECCacheConnector"
MODULE: Final = "eccache.app.vllm"
_EXAMPLE: Final = (
    f'--ec-transfer-config \'{{"ec_connector": "{CONNECTOR}", "ec_connector_module_path": "{MODULE}", '
    '"ec_role": "ec_both", "ec_connector_extra_config": {"local_disk": "/var/cache/ec"}}\''
)


def check_server(subject: Subject) -> Iterator[Finding]:
    """Report arguments under which the cache is not loaded, refuses to start, or can never hit."""
    if subject.wrong_option:
        yield error(
            CHECK,
            "the cache's connector is given to the wrong option",
            f"--kv-transfer-config is for connectors of vLLM's KV cache; {CONNECTOR} is one of its encoder "
            "cache.",
            f"write {_EXAMPLE}",
        )
    if subject.server_error is not None:
        wrong = subject.server_error
        of_transfer = "argument --ec-transfer-config" in wrong.cause
        remedy = f"write {_EXAMPLE}" if of_transfer else wrong.remedy
        yield error(CHECK, "vLLM can't be asked about this server", wrong.cause, remedy)
    server = subject.server
    if server is None:
        return
    yield from _check_connector(server)
    if server.refusal is not None:
        yield error(
            CHECK, "the cache refuses to start", server.refusal.cause, server.refusal.remedy
        )
    yield from _check_model(server)
    yield from _check_weights(server, subject.config)
    yield from _check_role(server)


def _check_connector(server: ServerFacts) -> Iterator[Finding]:
    if server.connector is None:
        yield error(
            CHECK,
            "the server has no encoder cache connector",
            "the arguments have no --ec-transfer-config with an ec_connector.",
            f"add {_EXAMPLE}",
        )
    elif server.connector != CONNECTOR or server.module != MODULE:
        yield error(
            CHECK,
            f"the server loads {server.connector} from {server.module or 'vLLM itself'}",
            f"eccache's connector is {CONNECTOR} in {MODULE}.",
            f"write {_EXAMPLE}",
        )
    else:
        yield ok(CHECK, f"{CONNECTOR}, role {server.role}")


def _check_model(server: ServerFacts) -> Iterator[Finding]:
    if not server.multimodal:
        yield error(
            CHECK,
            f"{server.model} takes text only, as it is configured",
            "there is no encoder whose outputs could be cached.",
            "serve a multimodal model, and leave out --language-model-only and limits of 0 in "
            "--limit-mm-per-prompt.",
        )
    if server.encoder_decoder:
        yield error(
            CHECK,
            f"{server.model} is an encoder-decoder model",
            "its decoder reads the encoder's states directly, so everything is bypassed.",
            "serve it without --ec-transfer-config; nothing is gained here.",
        )
    if server.tower_adapters:
        yield warning(
            CHECK,
            "adapters change the encoder",
            "an adapter is known by its content only if its files were there before the start and never "
            "change; requests with any other bypass the cache.",
            "leave out --enable-tower-connector-lora if adapters only concern the language model.",
        )


def _check_weights(server: ServerFacts, config: CacheConfig | None) -> Iterator[Finding]:
    """Report what keeps the server from knowing which weights its encoder has."""
    epoch, fixed = ("", False) if config is None else (config.epoch, config.fixed_weights)
    if server.unknown and not epoch:
        yield error(
            CHECK,
            "nothing will be stored or served",
            f"it can't be told {server.unknown}.",
            "set epoch to a name of your own for this model, another one for each other model.",
        )
    if server.replaces_weights and not fixed:
        yield error(
            CHECK,
            "nothing will be stored or served",
            f"{server.replaces_weights}, by which weights can be replaced unseen.",
            "leave it out; or set fixed_weights, if nothing ever replaces the weights.",
        )
    if server.sleeps and not fixed:
        yield warning(
            CHECK,
            "after its first sleep the server stores and serves nothing",
            "before it sleeps vLLM empties its encoder cache, as it does for other weights.",
            "set fixed_weights, if nothing ever replaces the weights; else nothing.",
        )


def _check_role(server: ServerFacts) -> Iterator[Finding]:
    """Report a role that needs another server beside this one, of which nothing is known here."""
    if server.role == "ec_producer":
        yield warning(
            CHECK,
            "this role never loads (ec_producer)",
            "a producer stores what it computes and has no hits of its own: only consumers have.",
            "nothing, if consumers use the same directory; a server alone needs ec_both.",
        )
    elif server.role == "ec_consumer":
        yield warning(
            CHECK,
            "this role never stores (ec_consumer)",
            "a consumer loads what a producer stored, and misses everything else for ever.",
            "nothing, if a producer uses the same directory; a server alone needs ec_both.",
        )
