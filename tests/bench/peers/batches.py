"""Batches of known requests, handed to workers: for a system that has no queue of its own. Standard library only."""

import threading
import time

from adapter import Done


def sorted_batches(requests, size):
    """Lists of (index, request), `size` in each, sorted by the length of their ids; the longest first.

    What runs last is then short, so that workers end together.
    """
    rows = sorted(enumerate(requests), key=lambda row: -len(row[1].get("ids", ())))
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def answered(batches, num_workers, answer):
    """A Done for each request, in their order.

    Each batch is (rows of (index, request), what to give to `answer`), which returns an output for each row.
    """
    done, waiting, lock, failed = {}, iter(batches), threading.Lock(), []

    def work():
        try:
            while not failed:
                with lock:
                    rows, given = next(waiting, (None, None))
                if rows is None:
                    return
                started = time.perf_counter()
                outputs = answer(given)
                seconds = time.perf_counter() - started
                for (index, _), output in zip(rows, outputs, strict=True):
                    done[index] = Done(seconds, output)
        except Exception as error:  # noqa: BLE001 - raised again below
            failed.append(error)

    # One worker stays on this thread: torch's OpenMP keeps a pool of threads for each thread that calls it.
    threads = [threading.Thread(target=work) for _ in range(num_workers - 1)]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return [done[index] for index in range(len(done))]
