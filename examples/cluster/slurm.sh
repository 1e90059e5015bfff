#!/bin/bash
# A study on four nodes of a SLURM cluster, after Ray's documentation; not run by us. A job that reaches its time limit is submitted again as it is.
#SBATCH --nodes 4 --ntasks-per-node 1 --cpus-per-task 32 --gpus-per-node 4 --time 24:00:00
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun ray symmetric-run --address "$head:6379" --min-nodes 4 --num-cpus 32 --num-gpus 4 -- \
    retinabench benchmark severity --engine ray --address auto --cpus 8 --gpus 1 --out "$SCRATCH/severity"
