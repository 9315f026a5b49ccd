"""Reading and writing as much as was asked for, where the system may do less at a time."""

from __future__ import annotations

import errno

from eccache.ports.file_operations import DescriptorOperations


def read_fully(
    files: DescriptorOperations, descriptor: int, target: memoryview, offset: int
) -> int:
    """Fill *target* from *offset* and return how many bytes that were; fewer only at the file's end.

    Raises:
        OSError: they can't be read.
    """
    done = 0
    while done < target.nbytes:
        read = files.read(descriptor, target[done:], offset + done)
        if read == 0:
            break
        done += read
    return done


def write_fully(
    files: DescriptorOperations, descriptor: int, data: memoryview, offset: int
) -> None:
    """Write all of *data* at *offset*.

    Raises:
        OSError: it can't be written, or no byte more of it.
    """
    done = 0
    while done < data.nbytes:
        written = files.write(descriptor, data[done:], offset + done)
        if written == 0:
            raise OSError(errno.EIO, "nothing more can be written")
        done += written
