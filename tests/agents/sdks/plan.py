"""What the programs of the Python SDKs do with a client that is connected; index.mjs has the story."""

import json
import sys


def read():
    """The arguments of this program: the plan, and the gateway's command as transports want it."""
    plan = json.loads(sys.argv[1])
    command, *args = plan["command"]
    return {"command": command, "args": args}, plan


async def carry_out(client, plan):
    """Carries out the plan, and prints what came of it."""

    async def names():
        listed = await client.list_tools()
        return [tool.name for tool in getattr(listed, "tools", listed)]

    async def call(what):
        result = await client.call_tool(what["name"], what["arguments"])
        return "\n".join(block.text for block in result.content)

    before = await names()
    opened = await call(plan["open"])
    after = await names()
    called = await call(plan["direct" if plan["direct"]["name"] in after else "use"])
    print(json.dumps({"before": before, "opened": opened, "after": after, "called": called}))
