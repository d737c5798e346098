"""Lists what servers offer with the client of the official SDK for Python, of whichever major version is installed: as
list.mjs does it, without its argument."""

import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters, stdio_client

PAGES = {
    "tools": ("list_tools", ["tools"]),
    "resources": ("list_resources", ["resources"]),
    "resourceTemplates": ("list_resource_templates", ["resourceTemplates", "resource_templates"]),
    "prompts": ("list_prompts", ["prompts"]),
}


async def listed(command: str, *args: str) -> dict:
    server = StdioServerParameters(command=command, args=list(args), env=dict(os.environ))
    found: dict = {}
    with open(os.devnull, "w") as nothing:
        async with stdio_client(server, errlog=nothing) as (read, write), ClientSession(read, write) as session:
            try:
                await session.initialize()
                for kind, (method, members) in PAGES.items():
                    page = await asyncio.wait_for(getattr(session, method)(), 20)
                    found[kind] = len(next(getattr(page, member) for member in members if hasattr(page, member)))
            except Exception as error:  # noqa: BLE001: whatever it is, the SDK refuses the list
                found["refused"] = (str(error) or type(error).__name__)[:300]
    return found


for words in json.load(sys.stdin):
    print(json.dumps(asyncio.run(listed(*words))), flush=True)
