"""A worker as a student would hand it in: `worker.py MASTER_PORT WORKER_PORT [habit…]`.

Written from the specification alone, with nothing of ours: threads, blocking sockets, files written
in place. Habits are what workers in the wild do: `register-first` (listens only after it
registered), `single-slot` (a second task overwrites one that waits), `unsorted` (merges without
sorting), `literal` (answers a reduce with `output_file`, as printed), `absolute` (reports
absolute paths), `parallel` (runs tasks side by side, reports them in any order). Every message
that comes or goes is a line of the file that RECORD names.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time

MASTER_PORT, WORKER_PORT = int(sys.argv[1]), int(sys.argv[2])
HABITS = set(sys.argv[3:])
PID = os.getpid()
tasks = []
changed = threading.Condition()
beating = threading.Event()


def record(direction, message):
    if os.environ.get("RECORD"):
        with open(os.environ["RECORD"], "a") as file:
            file.write(json.dumps([direction, message]) + "\n")


def tell(message):
    record("to master", message)
    with socket.create_connection(("localhost", MASTER_PORT)) as connection:
        connection.sendall(json.dumps(message).encode())


def register():
    tell(
        {
            "message_type": "register",
            "worker_host": "localhost",
            "worker_port": WORKER_PORT,
            "worker_pid": PID,
        }
    )


def beat():
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    while True:
        message = json.dumps({"message_type": "heartbeat", "worker_pid": PID})
        sender.sendto(message.encode(), ("localhost", MASTER_PORT - 1))
        time.sleep(2)


def run(task):
    paths = []
    for path in task["input_files"]:
        target = task["output_directory"].rstrip("/") + "/" + os.path.basename(path)
        with open(path, "rb") as source, open(target, "wb") as sink:
            subprocess.run([task["executable"]], stdin=source, stdout=sink, check=False)
        paths.append(os.path.abspath(target) if "absolute" in HABITS else target)
    status = {"message_type": "status", "output_files": paths, "status": "finished"}
    if "literal" in HABITS and task["output_directory"].rstrip("/").endswith("reducer-output"):
        status = {"message_type": "status", "output_file": paths[0], "status": "finished"}
    tell({**status, "worker_pid": PID})


def sort(task):
    lines = []
    for path in task["input_files"]:
        with open(path, "rb") as file:
            lines += file.read().splitlines(keepends=True)
    if "unsorted" not in HABITS:
        lines.sort()
    with open(task["output_file"], "wb") as sink:
        sink.writelines(line if line.endswith(b"\n") else line + b"\n" for line in lines)
    tell(
        {
            "message_type": "status",
            "output_file": task["output_file"],
            "status": "finished",
            "worker_pid": PID,
        }
    )


def do(task):
    run(task) if task["message_type"] == "new_worker_job" else sort(task)


def work():
    while True:
        with changed:
            while not tasks:
                changed.wait()
            task = tasks.pop(0)
        if "parallel" in HABITS:
            threading.Thread(target=do, args=[task], daemon=True).start()
        else:
            do(task)


def main():
    if "register-first" in HABITS:
        register()
        time.sleep(0.5)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("localhost", WORKER_PORT))
    listener.listen(64)
    if "register-first" not in HABITS:
        register()
    threading.Thread(target=work, daemon=True).start()
    while True:
        connection, _ = listener.accept()
        with connection:
            parts = []
            while part := connection.recv(4096):
                parts.append(part)
        message = json.loads(b"".join(parts))
        record("from master", message)
        kind = message["message_type"]
        if kind == "register_ack" and not beating.is_set():
            beating.set()
            threading.Thread(target=beat, daemon=True).start()
        elif kind in ("new_worker_job", "new_sort_job"):
            with changed:
                if "single-slot" in HABITS:
                    tasks.clear()
                tasks.append(message)
                changed.notify()
        elif kind == "shutdown":
            os._exit(0)


main()
