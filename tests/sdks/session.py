"""A session of the SDK for Python with a gateway over HTTP: `python session.py URL RESOURCE MODE`, as session.mjs does it. MODE
is `legacy`, or `auto` for the modern era. Prints one line if everything was as it should be."""

import asyncio
import json
import sys

from mcp import Client
from mcp.client.subscriptions import ResourceUpdated
from mcp.types import ElicitResult

NOTICES = ["notifications/tools/list_changed", "notifications/resources/updated"]
QUESTION = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}


async def main(url: str, uri: str, mode: str) -> None:
    heard: asyncio.Queue = asyncio.Queue()

    async def hear(message) -> None:
        if getattr(message, "method", None) in NOTICES:
            heard.put_nowait(message)

    async def answer(context, params) -> ElicitResult:
        return ElicitResult(action="accept", content={"name": "Ann"})

    async with Client(url, mode=mode, message_handler=hear, elicitation_callback=answer) as client:

        async def call(name: str, **arguments) -> str:
            result = await client.call_tool(name, arguments)
            assert not result.is_error, result
            return result.content[0].text

        async def update() -> None:
            await call("dev__a__update", uri=uri[uri.index("fake://"):])

        await call("open_toolbox", toolbox_name="dev")
        if mode == "legacy":
            assert (await heard.get()).method == NOTICES[0]
        names = [tool.name for tool in (await client.list_tools()).tools]
        # The list of a modern client stays as it is; it knows the names of what it opened from the answer.
        opened = ["dev__a__echo", "dev__a__update", "dev__a__ask"] if mode == "legacy" else ["use_tool"]
        assert names == ["open_toolbox", *opened], names
        for n in range(6):
            assert json.loads(await call("dev__a__echo", n=n))["arguments"]["n"] == n
        asked = await call("dev__a__ask", method="elicitation/create", params=json.dumps(QUESTION))
        assert "Ann" in asked, asked
        if mode == "legacy":
            await client.subscribe_resource(uri)
            await update()
            updated = await heard.get()
            assert updated.method == NOTICES[1] and str(updated.params.uri) == uri, updated
        else:
            async with client.listen(resource_subscriptions=[uri]) as subscription:
                # The server's own subscription is made beside the answer to ours.
                event = asyncio.ensure_future(anext(aiter(subscription)))
                while not event.done():
                    await update()
                assert isinstance(event.result(), ResourceUpdated) and event.result().uri == uri, event.result()
    print("all is well")


asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 60))
