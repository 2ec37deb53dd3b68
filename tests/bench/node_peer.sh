#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What many sites' prolog and epilog do, at its least and written to be quick: one query of the
# library, one question to Slurm about the job, and whether this node is drained already (as NHC
# asks before it marks a node). Ours, for comparison only.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin

smi=$("$PEER_SMI") || reason="nvidia-smi failed ($?)"
expected=$(ls "$PEER_BOARDS" | wc -l)
found=$(echo "$smi" | grep -c GPU-)
[ "$found" -eq "$expected" ] || reason="$found of $expected GPUs"
echo "$smi" | awk -F', ' '$7 > 0 || $5 > 90 { exit 1 }' || reason="ECC errors or heat"

job=$(scontrol show job "$SLURM_JOB_ID")
case $job in *Comment=*no-gpu-check*) unset reason ;; esac

state=$(sinfo -h -n "$SLURMD_NODENAME" -o '%t %E')
case $state in drain* | drng*) exit 0 ;; esac
[ -z "$reason" ] || scontrol update "NodeName=$SLURMD_NODENAME" State=DRAIN "Reason=$reason"
exit 0
