"""Plain requests to the API server, with the client and the credentials that KubeSpawner has."""

from __future__ import annotations

from typing import Any, Final

SECONDS: Final = 10
MERGE: Final = "application/merge-patch+json"


class Kube:
    """Paths and dictionaries; errors are the client's ApiException."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def get(self, path: str) -> Any:
        """Return the object at a path."""
        return await self._call("GET", path)

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        """Make an object below a path."""
        return await self._call("POST", path, body=body)

    async def patch(self, path: str, body: dict[str, Any]) -> Any:
        """Merge into the object at a path."""
        return await self._call("PATCH", path, body=body, content=MERGE)

    async def delete(self, path: str) -> Any:
        """Delete the object at a path."""
        return await self._call("DELETE", path)

    async def _call(
        self, method: str, path: str, body: Any = None, content: str = "application/json"
    ) -> Any:
        return await self._client.call_api(
            path,
            method,
            header_params={"Accept": "application/json", "Content-Type": content},
            body=body,
            response_types_map={200: "object", 201: "object", 202: "object"},
            auth_settings=["BearerToken"],
            _return_http_data_only=True,
            _request_timeout=SECONDS,
        )
