"""While a call to the file system waits, other Python threads run: no call holds the GIL."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

PROGRAM = textwrap.dedent("""
    import ctypes, os, sys, threading
    from eccache.adapters.system import SystemFiles

    library = ctypes.PyDLL(sys.argv[1])
    ran = ctypes.c_int.in_dll(library, "ran")
    text = {name: (ctypes.c_char * 4096).in_dll(library, name) for name in ("seen", "held")}
    files, folder = SystemFiles(), sys.argv[2]
    path = folder + "/file"
    descriptor = files.create(path, 0o600)

    def run():
        while True:
            ran.value += 1

    threading.Thread(target=run, daemon=True).start()
    data = memoryview(bytearray(2 << 20))
    kept = []
    operations = {
        "exists": lambda: files.exists(path),
        "status": lambda: files.status(path),
        "allocate": lambda: files.allocate(descriptor, 2 << 20),
        "write": lambda: files.write(descriptor, data, 0),
        "read": lambda: files.read(descriptor, data, 0),
        "sync": lambda: files.sync(descriptor),
        "descriptor_status": lambda: files.descriptor_status(descriptor),
        "set_mode": lambda: (files.set_mode(descriptor, 0o600), files.set_mode(folder, 0o700)),
        "set_modified": lambda: files.set_modified(descriptor, None),
        "lock": lambda: files.lock(descriptor),
        "map_private": lambda: kept.append(files.map_private(descriptor, 2 << 20)),
        "unmapping": kept.clear,
        "scan": lambda: files.scan(folder),
        "make_directory": lambda: files.make_directory(folder + "/new", 0o700),
        "remove_directory": lambda: files.remove_directory(folder + "/new"),
        "sync_directory": lambda: files.sync_directory(folder),
        "space": lambda: files.space(folder),
        "open": lambda: files.close(files.open(path)),
        "create": lambda: files.close(files.create(folder + "/other", 0o600)),
        "rename": lambda: files.rename(folder + "/other", folder + "/third"),
        "unlink": lambda: files.unlink(folder + "/third"),
        "close": lambda: files.close(descriptor),
    }
    for name, operation in operations.items():
        text["seen"].value = b""
        library.wait_for_others(1)
        operation()
        library.wait_for_others(0)
        if not text["seen"].value:
            print(f"{name}: nothing was intercepted")
        if text["held"].value:
            print(f"{name}: {text['held'].value.decode()}")
            text["held"].value = b""
    # and the other way round, or all of this would prove nothing
    library.wait_for_others(1)
    ctypes.PyDLL(None).access(b"/", 0)
    library.wait_for_others(0)
    print("held:", text["held"].value.decode())
""")


def test_no_call_to_the_file_system_holds_the_gil(tmp_path: Path) -> None:
    """Each file operation of the store goes on only once another thread has run Python meanwhile."""
    library = tmp_path / "slow_calls.so"
    source = Path(__file__).with_name("slow_calls.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    folder = tmp_path / "folder"
    folder.mkdir()
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, library, folder],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "LD_PRELOAD": str(library)},
    )
    assert (0, "held: access \n") == (ran.returncode, ran.stdout), ran.stderr
