"""What kinds of cautions mean, in plain words."""

from collections.abc import Mapping

# What is doubted, without the words of the method; the texts of other kinds of cautions are plain themselves. Empty are
# those that have lines of their own: a baseline that differs from itself, and what beats bare metal.
IN_PLAIN_WORDS: Mapping[str, str] = {
    "busy-when-idle": "it went on working while others were measured, which may have slowed them",
    "cached": "memory answered in place of the disk, so the values are not the disk's alone",
    "client-bound": "what sent the requests was at its limit, so the server may be faster than this",
    "engine-configuration": "its engine is configured to start it otherwise, so what it costs may be that setting's",
    "file-system-differs": "its files lay on another file system than those that it is compared with",
    "host-network-stack": "gVisor used this machine's network, so what its own costs is not in the numbers",
    "in-groups": "not all fitted into memory at once, so it was not measured beside each of the others",
    "inside-differs": "its processes run under other conditions than those that they are compared with",
    "never-run": "tare's own tests never had the real thing, only a program that stands in for it",
    "pod-not-pinned": "it could run on the CPUs of what sends the requests too, so chance may be larger than it looks",
    "not-pinned": "the CPUs of Xen's first domain may have moved about, so chance may be larger than it looks",
    "shared-kernel": "something other than Kata's machine ran under Kata's name, so this is not what Kata costs",
    "resumed-block": "the run was stopped and resumed, so values of different times are compared",
    "stalls": "it, or what it is compared with, stood still now and then; the percentages are of the usual speed",
    "telemetry": "what the machine did meanwhile is not known throughout, so a doubt may be missing here",
    "correlated-blocks": "each repetition resembles the one before it, so chance may be larger than it looks",
    "coarse-values": "the values come in large steps, so chance may be larger than it looks",
    "waiting": "server and load did nothing for most of the time, so what the stacks cost hardly shows",
    "unconfirmed": "what other stacks showed later makes this less sure; repeating it may change the verdict",
    "unlike-itself": "",
    "faster-than-bare-metal": "",
}
