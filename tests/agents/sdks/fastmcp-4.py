"""FastMCP 4."""

import asyncio

from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from plan import carry_out, read


async def main():
    server, plan = read()
    async with Client(StdioTransport(**server, keep_alive=False)) as client:
        await carry_out(client, plan)


asyncio.run(main())
