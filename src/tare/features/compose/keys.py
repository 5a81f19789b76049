"""Keys of Compose files: those that are kept, those that are refused, and those that are left out.

Keys that decide what runs are kept: images, entry points and commands, users and folders, environments, ports, the
start order, health checks and mounted files, with the values of variables. Keys about restarting, naming or counting
services are left out, with a note. Keys without which the application would be another one are refused, all at once.
"""

from __future__ import annotations

# Keys that are copied, with their names in application.toml.
RENAMED_KEYS = {"user": "user", "working_dir": "folder", "stop_signal": "stop_signal"}
SUPPORTED_KEYS = (
    *("image", "entrypoint", "command", *RENAMED_KEYS, "environment", "env_file", "ports", "expose"),
    *("depends_on", "links", "healthcheck", "volumes"),
)
CONFIG_HINT = "let `docker compose config` write a file that has all values in it, and give that"
REFUSAL_HINTS = {  # keys that are refused, each with a hint
    "privileged": "an instance has no more rights than an application needs: leave this service out",
    "devices": "an instance has no devices of the machine: leave this service out",
    "cap_add": "an instance has no rights of the machine's administrator: leave this service out",
    "device_cgroup_rules": "an instance has no devices of the machine: leave this service out",
    "gpus": "an instance has no devices of the machine: leave this service out",
    "userns_mode": "an instance has no rights of the machine's administrator: leave this service out",
    "pid": "an instance sees only its processes: leave this service out",
    "ipc": "services find each other over the network alone: leave this service out",
    "volumes_from": "services find each other over the network alone: leave this service out",
    "network_mode": "all services are on one network of tare's: leave it out",
    "external_links": "what is outside of the file is no part of the application: leave it out",
    "extra_hosts": "what is outside of the file is no part of the application: leave it out",
    "secrets": "mount the file from the folder, in volumes",
    "configs": "mount the file from the folder, in volumes",
    "extends": CONFIG_HINT,
}
# Left out: services of tare's applications find each other by the names of their tables.
NAME_KEYS = ("container_name", "hostname", "domainname")
TOP_LEVEL_KEYS = ("services", "version", "name")
