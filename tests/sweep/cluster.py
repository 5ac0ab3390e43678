"""A Slurm of one node, started for a test and ended after it. Needs root and Debian's slurm-wlm."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "sinfo")
PATIENCE_S = 120.0
CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=500
SlurmdParameters=config_overrides
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
ReturnToService=2
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
MaxArraySize=4
KillWait=5
JobRequeue=1
MpiDefault=none
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory={memory} Gres=gpu:fake:4 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=01:00:00 State=UP
PartitionName=short Nodes={host} MaxTime=00:05:00 State=UP
"""


def reason_to_skip() -> str:
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian's slurm-wlm)"
    return "" if os.geteuid() == 0 else "a Slurm of its own needs root"


def find_free_port() -> int:
    """So that two of these can run on one machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Cluster:
    """The daemons; everything that they write is in the folder."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        return self.folder / "slurm.conf"

    def start(self) -> None:
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        (self.folder / "munge").mkdir(mode=0o700)
        self._write_config()
        self.environment = {**os.environ, "SLURM_CONF": str(self.config)}
        key = self.folder / "munge" / "key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        self.call(
            "munged", "--force", f"--key-file={key}", f"--socket={self.folder}/munge.sock",
            f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/munge/log",
            f"--seed-file={self.folder}/munge/seed",
        )  # fmt: skip
        self.start_controller()
        self.call("slurmd", "-f", str(self.config), "-N", socket.gethostname())
        self.wait_for(lambda: "idle" in self.ask("sinfo", "-h", "-o", "%T"), "an idle node")

    def _write_config(self) -> None:
        host = socket.gethostname()
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20 * 8 // 10
        self.config.write_text(
            CONFIG.format(host=host, folder=self.folder, memory=memory,
                          controller=find_free_port(), node=find_free_port())
        )  # fmt: skip
        devices = []
        for number in range(4):  # each GPU needs a device of its own: this one is like /dev/null
            device = self.folder / f"gpu{number}"
            os.mknod(device, 0o020666, os.makedev(1, 3))
            devices.append(f"Name=gpu Type=fake File={device}\n")
        (self.folder / "gres.conf").write_text("".join(devices))
        (self.folder / "cgroup.conf").write_text("ConstrainDevices=no\n")

    def start_controller(self) -> None:
        self.call("slurmctld", "-i", "-f", str(self.config))

    def stop_controller(self) -> None:
        self._end("slurmctld")

    def stop(self) -> None:
        for task in self.ask("squeue", "-h", "-o", "%A").split():
            subprocess.run(["scancel", task], env=self.environment, check=False)
        self.wait_for(lambda: not self.ask("squeue", "-h", "-o", "%A").split(), "an empty queue")
        for name in ("slurmd", "slurmctld", "munged"):
            self._end(name)

    def _end(self, name: str) -> None:
        try:
            process = int((self.folder / f"{name}.pid").read_text())
            os.kill(process, signal.SIGTERM)
        except (OSError, ValueError):
            return
        self.wait_for(lambda: not Path(f"/proc/{process}").exists(), f"the end of {name}")

    def call(self, *command: str) -> None:
        subprocess.run(command, env=self.environment, check=True, timeout=PATIENCE_S)

    def ask(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environment, check=False, capture_output=True,
                              text=True, timeout=PATIENCE_S)  # fmt: skip
        return done.stdout

    def wait_for(self, is_so: Callable[[], bool], what: str) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < end_s, f"waited {PATIENCE_S:.0f} s for {what}"
            time.sleep(0.25)
