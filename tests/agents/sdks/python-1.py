"""Python SDK 1.x."""

import asyncio

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from plan import carry_out, read


async def main():
    server, plan = read()
    async with stdio_client(StdioServerParameters(**server)) as streams:
        async with ClientSession(*streams) as session:
            await session.initialize()
            await carry_out(session, plan)


asyncio.run(main())
