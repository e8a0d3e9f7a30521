"""One command of prun under a fault, and what there is to say of how it ended."""

import os
import pathlib
import re
import resource
import signal
import subprocess
import time

CRASHES = re.compile(r"SIGSEGV|SIGABRT|terminate called|PRUN_CHECK|defect of prun|internal error|what\(\)|basic_string|bad_alloc|"
                     r"vector::_M|filesystem error|stack smashing|Assertion|Traceback")
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\u202a-\u202e\u2066-\u2069\udc80-\udcff]")
CODES = {0, 2, 13, 15}
ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGXCPU}


class Ended:
    def __init__(self, code, out, err, pid, late, left):
        self.code, self.pid, self.late, self.left = code, pid, late, left
        self.out, self.err = (text.decode("utf-8", "surrogateescape") for text in (out, err))


def processes_with(tag):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if tag in (entry / "environ").read_bytes() and (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def end_all(tag):
    for pid in processes_with(tag):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def start(prun, words, folder, tag, limits=(), ignored=(), closed=(), streams=None):
    def prepare():
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        for which, most in limits:
            resource.setrlimit(which, (most, resource.getrlimit(which)[1] if which == resource.RLIMIT_CPU else most))
        for stream in closed:
            os.close(stream)
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "PRUN_DRAWN": tag.decode()}
    places = {"stdin": subprocess.DEVNULL, "stdout": open(folder.parent / "out", "wb"), "stderr": open(folder.parent / "err", "wb")}
    places.update(streams or {})
    return subprocess.Popen([os.fsencode(prun)] + [os.fsencode(word) for word in words], cwd=folder, env=environment, preexec_fn=prepare,
                            start_new_session=True, **places)


def run(prun, words, folder, tag, signals=(), limit=60, **how):
    """`signals`: (seconds after the start, number, whether the whole group gets it)."""
    begin = time.time()
    process = start(prun, words, folder, tag, **how)
    late = False
    for moment, number, group in sorted(signals):
        try:
            process.wait(max(0.0, begin + moment - time.time()))
            break
        except subprocess.TimeoutExpired:
            (os.killpg if group else os.kill)(process.pid, number)
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        late = True
        end_all(tag)
        process.wait()
    until = time.time() + 5
    while (left := processes_with(tag)) and time.time() < until:
        time.sleep(0.02)
    end_all(tag)
    return Ended(process.returncode, (folder.parent / "out").read_bytes(), (folder.parent / "err").read_bytes(), process.pid, late, left)


def permitted(verb, sent, ended, limits):
    codes = set(CODES)
    if verb.differs:
        codes.add(1)
    for number in sent:
        codes |= {-number, 128 + number}
        if number == signal.SIGKILL:
            codes |= {10, 12}
    if any(which == resource.RLIMIT_CPU for which, _ in limits):
        codes |= {152, -signal.SIGXCPU, -signal.SIGKILL}
    if limits and "error while loading shared libraries" in ended.err:
        codes.add(127)
    return codes


def complaints(verb, ended, sent=(), limits=(), closed=()):
    """What is wrong with how a command ended, one sentence each."""
    found = []
    text = ended.out + ended.err
    if ended.late:
        return ["a hang: it has not ended within its limit"]
    if ended.code not in permitted(verb, sent, ended, limits):
        found.append(f"exit code {ended.code}, which is none that is documented for this")
    # A broken plugin that crashes in a process of its own is what `prun plugins check` is to say.
    if verb.name != "plugins check" and (crash := CRASHES.search(text)):
        found.append(f"'{crash.group()}' was said")
    raw = RAW.search(ended.err if verb.name.startswith("generate") else text)
    if raw:
        found.append(f"raw character {raw.group()!r} was printed")
    # What is printed goes to a file, which this limit cuts as well.
    cut = any(which == resource.RLIMIT_FSIZE and most < 1000 for which, most in limits)
    quiet = sent or cut or 2 in closed or ended.code in (0, 127)
    said = ended.err + (ended.out if verb.tells else "")
    if not quiet and not (said.strip() if verb.tells else re.search(r"^prun\b.*\S", ended.err, re.M)):
        found.append(f"exit code {ended.code} without a sentence on standard error")
    if ended.left:
        found.append(f"{len(ended.left)} processes lived on for 5 s")
    if signal.SIGKILL not in sent and list(pathlib.Path("/dev/shm").glob(f"prun-{ended.pid}-*")):
        found.append("its folder was left in /dev/shm")
    return found
