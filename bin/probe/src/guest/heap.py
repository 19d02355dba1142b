"""Keeps documents as a program does that has parsed them: objects, dicts, lists and strings.

One order a line: +DOCUMENT keeps one more, =NUMBER DOCUMENT replaces one, ?FROM COUNT answers with
the checksum of each as it is written from its objects, . answers when all before was done.
"""
import gc
import json
import sys
import zlib


class Record:
    def __init__(self, fields):
        self.__dict__.update(fields)


PEOPLE = ("customer", "contact", "reporter")
records = []
write = json.JSONEncoder(separators=(",", ":"), default=vars).encode


def parsed(text):
    fields = json.loads(text)
    for key in PEOPLE:
        if key in fields:
            fields[key] = Record(fields[key])
    return Record(fields)


def checksum(record):
    return "%08x" % zlib.crc32(write(record).encode())


# As programs do that load much at once: all of it stays, and looking for what does not takes long.
gc.disable()
for line in sys.stdin.buffer:
    order, rest = line[:1], line[1:-1]
    if order == b"+":
        records.append(parsed(rest))
    elif order == b"=":
        number, text = rest.split(b" ", 1)
        records[int(number)] = parsed(text)
    elif order == b"?":
        first, count = map(int, rest.split())
        print(*map(checksum, records[first:first + count]), flush=True)
    else:
        gc.enable()
        print("done", flush=True)
