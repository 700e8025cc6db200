"""A grpc.aio server that answers with what it was asked: what a unary call costs without Weft. Prints its port."""

import asyncio

import grpc.aio


async def echo(request, _context):
    """Bytes in, the same bytes out."""
    return request


async def main():
    """Serve until killed."""
    server = grpc.aio.server()
    handler = grpc.method_handlers_generic_handler("bench.Echo", {"Echo": grpc.unary_unary_rpc_method_handler(echo)})
    server.add_generic_rpc_handlers((handler,))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
