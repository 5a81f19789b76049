"""Keys of Compose files: those that are kept, those that are refused, and those that are left out.

Keys that decide what runs are kept: images, programs, users, capabilities, environments, ports, names, the start order,
health checks, memory limits and mounted files. Keys about restarting, counting or isolating services are left out, each
with its consequence. Keys without which the application would be another one are refused, all at once.
"""

from __future__ import annotations

# Keys that are copied, with their names in application.toml.
RENAMED_KEYS = {"user": "user", "working_dir": "folder", "stop_signal": "stop_signal"}
SUPPORTED_KEYS = (
    *("image", "entrypoint", "command", *RENAMED_KEYS, "environment", "env_file", "ports", "expose", "cap_add"),
    *("cap_drop", "container_name", "hostname", "domainname", "networks", "links", "depends_on", "healthcheck"),
    *("volumes", "tmpfs", "secrets", "configs", "mem_limit", "deploy"),
)
CONFIG_HINT = "let `docker compose config` write a file that has all values in it, and give that"
REFUSAL_HINTS = {  # keys that are refused, each with a hint
    "privileged": "an instance has no more rights than an application needs: leave this service out",
    "devices": "an instance has no devices of the machine: leave this service out",
    "device_cgroup_rules": "an instance has no devices of the machine: leave this service out",
    "gpus": "an instance has no devices of the machine: leave this service out",
    "userns_mode": "an instance has no rights of the machine's administrator: leave this service out",
    "use_api_socket": "an instance does not talk to an engine: leave this service out",
    "pid": "an instance sees only its processes: leave this service out",
    "ipc": "services find each other over the network alone: leave this service out",
    "volumes_from": "services find each other over the network alone: leave this service out",
    "network_mode": "all services are on one network of tare's: leave it out",
    "external_links": "what is outside of the file is no part of the application: leave it out",
    "extends": CONFIG_HINT,
}
_NO_CPU_LIMIT = "it may use all CPUs of its side"
_NOT_SEEN = "no program of the application sees it"
_NO_TERMINAL = "its program has no terminal"
LEFT_OUT = {  # keys that are left out, each with the consequence
    "annotations": _NOT_SEEN,
    "attach": _NOT_SEEN,
    "blkio_config": "its disk input and output have no limits",
    "cgroup": "tare makes the control group",
    "cgroup_parent": "tare makes the control group",
    **dict.fromkeys(("cpu_count", "cpu_percent", "cpu_period", "cpu_quota", "cpu_shares", "cpuset"), _NO_CPU_LIMIT),
    **dict.fromkeys(("cpu_rt_period", "cpu_rt_runtime"), "it has no realtime scheduling"),
    "cpus": "the limit of {} CPUs does not hold",
    "develop": "its files are those of the start",
    **dict.fromkeys(("dns", "dns_opt", "dns_search"), "names of other machines are not looked up there"),
    "extra_hosts": "these names do not resolve",
    "group_add": "its user has the groups of the image alone",
    "init": "tare's init collects ended processes",
    "labels": _NOT_SEEN,
    "label_file": _NOT_SEEN,
    "logging": "its last output is in the report of a failed trial",
    "mac_address": "its network device has another address",
    "mem_reservation": "no memory is reserved",
    "mem_swappiness": "the machine decides on swapping",
    "memswap_limit": "the machine decides on swapping",
    "oom_kill_disable": "it is ended if it needs more memory than its limit",
    "oom_score_adj": "it is ended if it needs more memory than its limit",
    "pids_limit": "the limit of {} processes does not hold",
    "platform": "the image is that of this machine's platform",
    "post_start": "the commands do not run",
    "pre_stop": "the commands do not run",
    "pull_policy": "an image is copied once",
    "read_only": "it may write to its files",
    "restart": "a service that ends fails the trial",
    "runtime": "the stack decides",
    "scale": "it runs once",
    "security_opt": "its stack decides: a set-user-ID program may gain rights, and there is no other filter",
    "shm_size": "its shared memory has 64 MiB",
    "stdin_open": _NO_TERMINAL,
    "stop_grace_period": "it has one second to end",
    "storage_opt": "its disk has no limit",
    "sysctls": "the kernel's settings stay as they are",
    "tty": _NO_TERMINAL,
    "ulimits": "the limits are those of the suite",
    "uts": "its host name is tare",
}
NO_EFFECT = "it has no effect"
DEPLOY_LEFT_OUT = {  # keys of `deploy`, likewise
    "endpoint_mode": "its name has one address",
    "labels": _NOT_SEEN,
    "mode": "it runs once",
    "placement": "it runs on this machine",
    "replicas": "it runs once, not {} times",
    "restart_policy": "a service that ends fails the trial",
    "rollback_config": "it is never updated",
    "update_config": "it is never updated",
}
# Of the top level. Names of volumes and networks are those in the services.
TOP_LEVEL_LEFT_OUT = {
    "volumes": "each trial begins without what earlier ones stored there",
    "networks": "all services are on one network",
    "models": "no model is started",
}
TOP_LEVEL_KEYS = ("services", "version", "name", "secrets", "configs")
# Capabilities of Linux that Docker does not give by default.
OTHER_CAPABILITIES = (
    *("AUDIT_CONTROL", "AUDIT_READ", "BLOCK_SUSPEND", "BPF", "CHECKPOINT_RESTORE", "DAC_READ_SEARCH", "IPC_LOCK"),
    *("IPC_OWNER", "LEASE", "LINUX_IMMUTABLE", "MAC_ADMIN", "MAC_OVERRIDE", "NET_ADMIN", "NET_BROADCAST", "PERFMON"),
    *("SYSLOG", "SYS_ADMIN", "SYS_BOOT", "SYS_MODULE", "SYS_NICE", "SYS_PACCT", "SYS_PTRACE", "SYS_RAWIO"),
    *("SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "WAKE_ALARM"),
)
