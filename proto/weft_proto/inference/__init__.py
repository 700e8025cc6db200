"""The Open Inference Protocol v2: the messages of KServe's and Triton's clients, and its methods.

Only the server imports this. Another module of a process may bring the same messages, such as tritonclient's: protobuf
takes each name once.
"""
