"""Starts jobs of several ranks and checks their reports, for the scripts in this folder."""

import os
import socket
import subprocess

# Rows of a report, with the keys of the prediction and of the measurement.
PREDICTED = [
    ("memory", "predicted_bytes", "peak_bytes"),
    ("total_peak_bytes", "predicted_bytes", "peak_bytes"),
    ("transfers", "predicted_bytes", "bytes"),
    ("transfers", "predicted_calls", "calls"),
    ("traffic", "predicted_bytes", "bytes_sent"),
]


def start(command, processes, **pipes):
    """Starts `command` once or, if `processes` is above 1, as a job. Returns the processes."""
    if processes == 1:
        return [subprocess.Popen(command, **pipes)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    ranks = [{**os.environ, **job, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(processes)]
    return [subprocess.Popen(command, env=rank, **pipes) for rank in ranks]


def mispredicted(report):
    """Returns the rows whose prediction does not hold."""
    return [row for rows, predicted, measured in PREDICTED for row in report[rows] if row[predicted] != row[measured]]
