from __future__ import annotations

import threading
from pathlib import Path

from tare.live.board import Board, Now, read_board

NOW = Now(
    12.5, "dhrystone", "crun", "docker, redis", 3, 10, 5, 2, 8, 30.0, 90.0, (("crun", "speed 1"), ("docker/qemu", ""))
)


def test_what_was_written_last_is_read() -> None:
    board = Board()
    assert read_board(board.path) is None
    board.write(Now(1.0, "x" * 3000))
    board.write(NOW)
    assert read_board(board.path) == NOW
    board.close()
    assert read_board(board.path) is None


def test_what_is_torn_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "board"
    for text in (b"", b"00000000 {}\n", b"nonsense", b"\xff\xfe \n", b"00000000 " + b"x" * 70_000):
        path.write_bytes(text)
        assert read_board(path) is None


def test_a_reader_gets_whole_notes_while_another_thread_writes() -> None:
    board, ended = Board(), threading.Event()

    def write() -> None:
        for number in range(3000):
            board.write(Now(float(number), f"{number}" * (1 + number % 50), block=number))
        ended.set()

    board.write(Now(0.0, "0", block=0))
    thread = threading.Thread(target=write)
    thread.start()
    read = 0
    while not (ended.is_set() and read):
        now = read_board(board.path)
        if now is not None:
            read += 1
            assert now.workload == f"{now.block}" * (1 + now.block % 50)
    thread.join()
    board.close()
