"""What changes about the files of a folder when somebody changes one of them."""

from pathlib import Path

# Name, size, and the times of content and of status of each file.
Print = tuple[tuple[str, int, int, int], ...]


def fingerprint_of(directory: Path) -> Print:
    """Look at what lies in a folder, without reading it. Empty when it cannot be listed.

    Nobody sets the time of status (ctime). So a file that is repaired with the same size and the time of content that
    it had is another one. Numbers of inodes tell no more, and some file systems of networks change them.
    """
    try:
        stats = [(path.name, path.lstat()) for path in sorted(directory.iterdir())]
    except OSError:
        return ()
    return tuple((name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for name, stat in stats)
