"""Python SDK 2.x, in the modern era."""

import asyncio

from mcp import Client, StdioServerParameters, stdio_client

from plan import carry_out, read


async def main():
    server, plan = read()
    async with Client(stdio_client(StdioServerParameters(**server))) as client:
        await carry_out(client, plan)


asyncio.run(main())
