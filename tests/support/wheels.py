"""Tiny wheels, made here: a package of one module, and a script that says which Python runs it."""

from __future__ import annotations

import zipfile
from pathlib import Path


def make_wheel(directory: Path, name: str, version: str = "1.0", said: str = "hello") -> Path:
    """Write a wheel whose module has `SAID` and whose script `say-NAME` prints it."""
    directory.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    code = f"import sys\nSAID = {said!r}\ndef main():\n    print(SAID, sys.prefix)\n"
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\nsay-{name} = {name}:main\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    path = directory / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for member, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(member, text)
    return path


def requirements(directory: Path, *names: str) -> Path:
    """Write a requirements.txt that finds these packages in `wheels/` beside it alone."""
    path = directory / "requirements.txt"
    path.write_text("--no-index\n--find-links wheels\n" + "".join(f"{name}\n" for name in names))
    return path
