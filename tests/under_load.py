"""Callers that keep a server busy while a test does something to it."""

import threading

import weft


class Load:
    """Callers that ask without a pause, in threads of their own; what they got, and what went wrong."""

    def __init__(self, target, *asks):
        self._target, self._done = target, threading.Event()
        self.answers, self.errors = [[] for _ in asks], []
        self._threads = [threading.Thread(target=self._run, args=each) for each in zip(asks, self.answers, strict=True)]

    def _run(self, ask, answers):
        with weft.Client(self._target, timeout=30) as client:
            while not self._done.is_set():
                try:
                    answers.append(ask(client))
                except weft.Error as error:
                    self.errors.append(error)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        for thread in self._threads:
            thread.join()
