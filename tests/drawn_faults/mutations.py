"""What may be wrong with a file: its bytes, its numbers, its lines, its texts, its kind."""

import os
import re
import shutil
import socket
import stat

NUMBERS = ["-1", "0", "2147483648", "9223372036854775808", "1e308", "nan", "-0.0", "0.5", "18446744073709551615", '"x"', "[]", "{}"]
BYTES = [b"\x00", b"\x1b[2J", b"\xff\xfe", b"\x80", b"\x07", b"\xc2\x9b31m", "\u202e".encode(), b"\r", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"]
TEXTS = ["\x1b]0;owned\x07", "a\nprun: done", "\u202egpj.exe", "\x9b2J", "\x7f", "a\tb", "../../canary/file", "%s%n%s", "$(touch x)",
         "x" * 5000, "\x01\x02", "'\"\\", "", " ", "\u00e4\u6f22\U0001f600", "]\n[run]\nname=1", "-", "--", "#", "a\rb"]


def cut(draw, data):
    return data[: draw.randrange(len(data))] if data else b""


def flip(draw, data):
    if not data:
        return b"\x01"
    at = draw.randrange(min(len(data), draw.choice([16, 200, len(data)])))
    return data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1:]


def insert(draw, data):
    at = draw.randrange(len(data) + 1)
    return data[:at] + draw.choice(BYTES) + data[at:]


def insert_in_text(draw, data):
    """Right behind a quotation mark, so that what surrounds it stays what it is."""
    marks = [found.end() for found in re.finditer(rb'"(?=\w)', data[:20000])]
    if not marks:
        return insert(draw, data)
    at = draw.choice(marks)
    return data[:at] + draw.choice([rb"\u001b[2J", rb"\u202e", rb"\n", rb"\u009b", b"\xe2\x80\xae", b"\xff", rb"\u0000"]) + data[at:]


def double_line(draw, data):
    lines = data.splitlines(keepends=True) or [b""]
    at = draw.randrange(len(lines))
    return b"".join(lines[:at] + [lines[at], lines[at]] + lines[at + 1:])


def drop_line(draw, data):
    lines = data.splitlines(keepends=True) or [b""]
    at = draw.randrange(len(lines))
    return b"".join(lines[:at] + lines[at + 1:])


def number(draw, data):
    numbers = list(re.finditer(rb"(?<![\w.])-?\d+(\.\d+)?([eE][-+]?\d+)?(?![\w.])", data[:20000]))
    if not numbers:
        return flip(draw, data)
    found = draw.choice(numbers)
    return data[: found.start()] + draw.choice(NUMBERS).encode() + data[found.end():]


def empty(draw, data):
    return b""


def deep(draw, data):
    depth = draw.choice([100, 5000, 200000])
    opened = draw.choice([b"[", b'{"a":', b"x = ["])
    return data[: draw.randrange(len(data) + 1)] + opened * depth


def long_line(draw, data):
    return data + b"x" * draw.choice([5000, 3000000]) + draw.choice([b"", b"\n", b' = "'])


def length_field(draw, data):
    """The first eight bytes are a length in safetensors, and a magic number and version elsewhere."""
    value = draw.choice([0, 1, 2**31, 2**63, 2**64 - 1, 100000001])
    return value.to_bytes(8, "little") + data[8:]


ALL = [cut, flip, insert, insert_in_text, double_line, drop_line, number, number, number, empty, deep, long_line, length_field]


def mutate(draw, path):
    how = draw.choice(ALL)
    data = path.read_bytes()
    path.write_bytes(how(draw, data))
    return how.__name__


def remove(path):
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def link_to(target):
    def link(path, canary):
        path.symlink_to(target or canary)
    return link


def self_link(path, canary):
    path.symlink_to(path.name)


def folder(path, canary):
    path.mkdir()


def fifo(path, canary):
    os.mkfifo(path)


def unix_socket(path, canary):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def hard_link(path, canary):
    os.link(canary, path)


def no_permission(path, canary):
    path.write_bytes(b"")
    path.chmod(0)


KINDS = {"folder": folder, "fifo": fifo, "socket": unix_socket, "link to itself": self_link, "hard link": hard_link,
         "link elsewhere": link_to(None), "dangling link": link_to("/nowhere/at/all"), "link to /dev/zero": link_to("/dev/zero"),
         "link to /dev/full": link_to("/dev/full"), "link to /proc/self/mem": link_to("/proc/self/mem"),
         "link to /dev/stdin": link_to("/dev/stdin"), "no permission": no_permission}


def replace_kind(draw, path, canary):
    """Puts something of another kind in the place of a file, or of nothing."""
    names = [name for name in KINDS if name != "no permission" or os.geteuid() != 0]
    name = draw.choice(names)
    if path.exists() or path.is_symlink():
        remove(path)
    KINDS[name](path, canary)
    return name


def is_plain(path):
    """Whether writing to it changes nothing but it."""
    return stat.S_ISREG(path.lstat().st_mode) and path.lstat().st_nlink == 1
