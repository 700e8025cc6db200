"""Texts to vectors by a library that makes its own batches: so many calls at a time, handed to it together."""

import time

from adapter import HUGE_PAGES, Done, System


class Embedder(System):
    """One call of the library for `in_flight` requests; it tokenizes, sorts and batches their texts itself."""

    def kinds(self, precision):
        """Its forms of the weights that are worth a try."""
        raise NotImplementedError

    def form(self, folder, kind):
        """The directory of one of them, which is made unless it is there."""
        raise NotImplementedError

    def embed(self, texts):
        """The vectors of texts, in their order."""
        raise NotImplementedError

    def settings(self, workload, precision, in_flight, num_cpus):
        """Its forms, in small and in large batches."""
        texts = in_flight * workload.num_texts
        plain = [
            {"kind": kind, "threads": num_cpus, "batch": size}
            for kind in self.kinds(precision)
            for size in (8, 16, 32, 128)
            if size <= texts
        ]
        return [*plain, plain[0] | {"environment": HUGE_PAGES}]

    def prepare(self, folder, precision):
        """Make its forms."""
        for kind in self.kinds(precision):
            self.form(folder, kind)

    def convert(self, requests):
        """Requests by their length, so that what is embedded together is alike."""
        return sorted(enumerate(requests), key=lambda row: -max(len(text) for text in row[1]["texts"]))

    def run(self, rows, in_flight):
        """Answer so many requests at a time."""
        done = {}
        for start in range(0, len(rows), in_flight):
            together = rows[start : start + in_flight]
            started = time.perf_counter()
            vectors = iter(self.embed([text for _, request in together for text in request["texts"]]))
            seconds = time.perf_counter() - started
            for index, request in together:
                done[index] = Done(seconds, [next(vectors) for _ in request["texts"]])
        return [done[index] for index in range(len(done))]

    def answers(self, ran):
        """Vectors as lists of numbers."""
        return [Done(each.seconds, [[float(value) for value in vector] for vector in each.output]) for each in ran]
