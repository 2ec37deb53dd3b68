#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What many sites' prolog and epilog do, at its least: ask the library once, ask Slurm once what
# the job is, decide whether the node is sick. Ours, for comparison; written to be quick.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
folder=${0%/*}
. "$folder/peer.conf"
export LD_LIBRARY_PATH FAIRWATT_FAKE_NVML=$NODES/$SLURMD_NODENAME/nvml.control

smi=$("$SMI") || reason="nvidia-smi failed ($?)"
expected=$(ls -d "$NODES/$SLURMD_NODENAME"/proc/driver/nvidia/gpus/* | wc -l)
found=$(echo "$smi" | grep -c GPU-)
[ "$found" -eq "$expected" ] || reason="$found of $expected GPUs"
echo "$smi" | awk -F', ' '$7 > 0 || $5 > 90 { exit 1 }' || reason="ECC errors or heat"

job=$(scontrol show job "$SLURM_JOB_ID")
case $job in *Comment=*no-gpu-check*) unset reason ;; esac
[ -z "$reason" ] || scontrol update "NodeName=$SLURMD_NODENAME" State=DRAIN "Reason=$reason"
exit 0
