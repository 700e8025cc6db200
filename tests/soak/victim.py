"""A client that is killed in the middle of its calls: it begins some, says `begun`, and reads no further."""

import sys
from contextlib import suppress

import weft

# A model that writes 200 tokens, and then explains them, has not finished when the first token comes.
DECODING = weft.Decoding(max_new_tokens=200, min_new_tokens=200)
NUM_CALLS = 4

if __name__ == "__main__":
    with weft.Client(sys.argv[1]) as client:
        streams = [
            client.stream_generate(
                "Return the name of the", model="pydocs", request_id="killed", decoding=DECODING, explain=True
            )
            for _ in range(NUM_CALLS)
        ]
        for stream in streams:
            with suppress(weft.Overloaded):
                next(stream)
        print("begun", flush=True)
        sys.stdin.read()
