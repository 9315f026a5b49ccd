"""Entry point of vLLM, named by `ec_connector_module_path` in `--ec-transfer-config`."""

from eccache.app.vllm.connector import ECCacheConnector

__all__ = ["ECCacheConnector"]
