"""A master as a student would hand it in: `master.py PORT`.

Written from the specification alone, with nothing of ours, and unforgiving: a message that is not
exactly as the specification prints it, a heartbeat of a worker that has no acknowledgement yet, or
a status out of order ends it with a line on stderr and status 3. It matches statuses to tasks by
order, finds job and phase by cutting the reported path at its slashes, and stops reading at the
first short recv. Every message that comes or goes is a line of the file that RECORD names.
"""

import heapq
import json
import os
import shutil
import socket
import sys
import threading
import time

PORT = int(sys.argv[1])
FIELDS = {
    "register": {"worker_host": str, "worker_port": int, "worker_pid": int},
    "new_master_job": {
        "input_directory": str,
        "output_directory": str,
        "mapper_executable": str,
        "reducer_executable": str,
        "num_mappers": int,
        "num_reducers": int,
    },
    "shutdown": {},
}
workers = {}  # pid -> {"port", "state", "tasks", "beat"}
lock = threading.RLock()
queue = []
running = None  # the job under way
jobs = 0


def fail(text):
    print(f"foreign master: {text}", file=sys.stderr, flush=True)
    os._exit(3)


def record(direction, message):
    if os.environ.get("RECORD"):
        with open(os.environ["RECORD"], "a") as file:
            file.write(json.dumps([direction, message]) + "\n")


def tell(pid, message):
    if message["message_type"] != "shutdown":
        message = {**message, "worker_pid": pid}
    record("to worker", message)
    try:
        with socket.create_connection(("localhost", workers[pid]["port"]), 5) as connection:
            connection.sendall(json.dumps(message).encode())
    except OSError:
        pass  # it is dying; its heartbeats will tell


def alive():
    return [pid for pid in sorted(workers) if workers[pid]["state"] != "dead"]


def give(tasks):
    for number, task in enumerate(tasks):
        hands = alive()
        if not hands:
            running["waiting"].append(task)
            continue
        pid = min(hands, key=lambda pid: len(workers[pid]["tasks"])) if number else hands[0]
        workers[pid]["state"] = "busy"
        workers[pid]["tasks"].append(task)
        tell(pid, task)


def bucketed(items, count):
    return [bucket for bucket in (items[n::count] for n in range(count)) if bucket]


def start_next():
    global running
    if running or not queue or not alive():
        return
    running = queue.pop(0)
    job = running["job"]
    files = sorted(os.listdir(job["input_directory"]))
    paths = [os.path.join(job["input_directory"], name) for name in files]
    tasks = [
        {
            "message_type": "new_worker_job",
            "input_files": bucket,
            "executable": job["mapper_executable"],
            "output_directory": f"var/job-{running['id']}/mapper-output",
        }
        for bucket in bucketed(paths, job["num_mappers"])
    ]
    running.update(phase="map", left=len(tasks), waiting=[])
    give(tasks)


def start_grouping():
    place = f"var/job-{running['id']}"
    outputs = [f"{place}/mapper-output/{n}" for n in sorted(os.listdir(f"{place}/mapper-output"))]
    tasks = [
        {
            "message_type": "new_sort_job",
            "input_files": bucket,
            "output_file": f"{place}/grouper-output/sorted{number}",
        }
        for number, bucket in enumerate(bucketed(outputs, len(alive())))
    ]
    running.update(phase="group", left=len(tasks), sorted=[t["output_file"] for t in tasks])
    give(tasks)


def start_reducing():
    place, count = f"var/job-{running['id']}", running["job"]["num_reducers"]
    sources = [open(path, "rb") for path in running["sorted"]]
    sinks = [open(f"{place}/grouper-output/input_{n}", "wb") for n in range(count)]
    last = b""
    numbers = {}
    for line in heapq.merge(*sources):
        if line < last:
            fail(f"a sorted file is not in order: {line!r} after {last!r}")
        last = line
        key = line.rstrip(b"\n").split(b"\t")[0]
        sinks[numbers.setdefault(key, len(numbers)) % count].write(line)
    for file in [*sources, *sinks]:
        file.close()
    tasks = [
        {
            "message_type": "new_worker_job",
            "input_files": [f"{place}/grouper-output/input_{number}"],
            "executable": running["job"]["reducer_executable"],
            "output_directory": f"{place}/reducer-output/",
        }
        for number in range(count)
    ]
    running.update(phase="reduce", left=len(tasks))
    give(tasks)


def finish_job():
    global running
    os.makedirs(running["job"]["output_directory"], exist_ok=True)
    place = f"var/job-{running['id']}/reducer-output"
    for name in sorted(os.listdir(place)):
        shutil.copy(f"{place}/{name}", running["job"]["output_directory"])
    running = None
    start_next()


def on_status(message):
    pid = message.get("worker_pid")
    if pid not in workers:
        fail(f"a status of an unknown worker: {message}")
    worker = workers[pid]
    if worker["state"] == "dead" or not worker["tasks"]:
        return  # late
    task = worker["tasks"].pop(0)
    if task["message_type"] == "new_sort_job":
        wanted = {"output_file": task["output_file"]}
    else:
        folder = task["output_directory"].rstrip("/")
        wanted = {"output_files": [f"{folder}/{os.path.basename(p)}" for p in task["input_files"]]}
        _, job, phase, _ = message.get("output_files", ["///"])[0].split("/")
        if [job, phase] != folder.split("/")[1:]:
            fail(f"a path of another phase: {message}")
    whole = {"message_type": "status", **wanted, "status": "finished", "worker_pid": pid}
    if message != whole:
        fail(f"expected {whole}, got {message}")
    if not worker["tasks"]:
        worker["state"] = "ready"
    running["left"] -= 1
    if not running["left"]:
        {"map": start_grouping, "group": start_reducing, "reduce": finish_job}[running["phase"]]()


def handle(message):
    global jobs
    kind = message["message_type"]
    if kind == "status":
        on_status(message)
        return
    types = {name: type(value) for name, value in message.items() if name != "message_type"}
    if types != FIELDS.get(kind):
        fail(f"not as printed: {message}")
    if kind == "register":
        pid = message["worker_pid"]
        workers[pid] = {
            "port": message["worker_port"], "state": "ready", "tasks": [], "beat": None,
        }  # fmt: skip
        tell(pid, {**message, "message_type": "register_ack"})
        print(f"foreign master: worker {pid} registered", file=sys.stderr, flush=True)
        workers[pid]["beat"] = time.monotonic()
        if running and running["waiting"]:
            waiting, running["waiting"] = running["waiting"], []
            give(waiting)
        start_next()
    elif kind == "new_master_job":
        for name in ("mapper-output", "grouper-output", "reducer-output"):
            os.makedirs(f"var/job-{jobs}/{name}")
        queue.append({"id": jobs, "job": message})
        jobs += 1
        start_next()
    else:
        for pid in workers:
            tell(pid, {"message_type": "shutdown"})
        os._exit(0)


def hear():
    ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ear.bind(("localhost", PORT - 1))
    while True:
        message = json.loads(ear.recv(4096))
        with lock:
            if set(message) != {"message_type", "worker_pid"}:
                fail(f"not a heartbeat: {message}")
            if message["worker_pid"] not in workers:
                fail(f"a heartbeat before its acknowledgement: {message}")
            now = time.monotonic()
            record("heartbeat", [message, now - (workers[message["worker_pid"]]["beat"] or now)])
            workers[message["worker_pid"]]["beat"] = now


def watch():
    while True:
        time.sleep(0.5)
        with lock:
            for worker in workers.values():
                silent = time.monotonic() - (worker["beat"] or time.monotonic())
                if worker["state"] != "dead" and silent > 12:
                    worker["state"] = "dead"
                    lost, worker["tasks"] = worker["tasks"], []
                    if lost:
                        give(lost)


def main():
    shutil.rmtree("var", ignore_errors=True)
    os.mkdir("var")
    threading.Thread(target=hear, daemon=True).start()
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("localhost", PORT))
    listener.listen(64)
    threading.Thread(target=watch, daemon=True).start()
    while True:
        connection, _ = listener.accept()
        with connection:
            data = part = connection.recv(4096)
            while len(part) == 4096:
                part = connection.recv(4096)
                data += part
        if not data:
            continue  # someone looks whether we listen
        message = json.loads(data)
        with lock:
            record("to master", message)
            handle(message)


main()
