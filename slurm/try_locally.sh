#!/bin/bash
# The batch files on a real Slurm: one node on this machine, for as long as this script runs.
#
#   apt-get install --no-install-recommends munge slurmctld slurmd slurm-client     (Debian 12)
#   slurm/try_locally.sh >slurm/try_locally.txt                                     (as root)
#
# It trains the embedded model, sends the signal that a time limit sends, requeues a job of a
# sweep, waits for all of them and looks at what they left. About ten minutes.
# PYTHON names the Python of the environment, .venv/bin/python by default.
set -eu
{ # read whole before it begins

checkout=$(cd "$(dirname "$0")/.." && pwd)
cd "$checkout"
python=$(readlink -f "$(dirname "${PYTHON:-.venv/bin/python}")")/python
[ "$(id -u)" = 0 ] || { echo "try_locally.sh: only root can start munge and slurmd" >&2; exit 2; }
for program in munged slurmctld slurmd sbatch; do
    command -v $program >/dev/null || { echo "try_locally.sh: $program is missing" >&2; exit 2; }
done

work=$(mktemp -d /var/tmp/casebook-slurm.XXXXXX)
node=$(hostname -s)
services=()
finish() {
    set +e
    scancel --state=PENDING,RUNNING --user=root >/dev/null 2>&1 && sleep 3
    for ((i = ${#services[@]} - 1; i >= 0; i--)); do
        kill "${services[i]}" 2>/dev/null && wait "${services[i]}" 2>/dev/null
    done
    if [ -n "${KEEP:-}" ]; then echo "kept: $work" >&2; else rm -rf "$work"; fi
}
trap finish EXIT

say() { echo "$@" | sed -e "s|$work|WORK|g" -e "s|$checkout|CHECKOUT|g" -e "s/\b$node\b/NODE/g"; }

# One node, without cgroups, accounting or a database. A job that is requeued waits for its old
# credential to expire, two minutes by default.
mkdir "$work/state" "$work/spool" "$work/munge"
head -c 1024 /dev/urandom >"$work/munge/key"
chmod -R go-rwx "$work/munge/key"
chmod 755 "$work" "$work/munge"
cat >"$work/slurm.conf" <<CONF
ClusterName=casebook
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
SlurmctldPort=26817
SlurmdPort=26818
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket,cred_expire=15
CryptoType=crypto/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
MpiDefault=none
KillWait=30
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
NodeName=$node NodeAddr=127.0.0.1 CPUs=$(nproc --all) RealMemory=4096 State=UNKNOWN
PartitionName=all Nodes=$node Default=YES OverSubscribe=NO MaxTime=INFINITE State=UP
CONF
export SLURM_CONF=$work/slurm.conf
munged --force --foreground --key-file="$work/munge/key" --socket="$work/munge/socket" \
    --pid-file="$work/munge/pid" --seed-file="$work/munge/seed" --log-file="$work/munge/log" &
services+=($!)
until [ -S "$work/munge/socket" ]; do sleep 0.2; done
slurmctld -D -f "$SLURM_CONF" 2>/dev/null &
services+=($!)
slurmd -D -f "$SLURM_CONF" -N "$node" 2>/dev/null &
services+=($!)
waited=0
until [ "$(sinfo -h -o %T 2>/dev/null)" = idle ]; do
    waited=$((waited + 1))
    [ $waited -lt 60 ] || { tail -n 5 "$work"/slurm*.log >&2; exit 1; }
    sleep 1
done
say "$(sinfo --version): one node, $(sinfo -h -o '%c CPUs, %T')"

# What is submitted: the nano model of poker for a few steps, and few rows to measure it on.
export PATH=$(dirname "$python"):$PATH PYTHONPATH=$checkout/src CASEBOOK_ROOT=$checkout
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 HF_HUB_OFFLINE=1
few="--set max_steps=12 --set save_steps=2 --set evaluate_every=6 --set evaluate_rows=16"
few="$few --set test_limit=40 --set completions_every=4"
shared="--config configs/poker/nano.yaml $few"
cat >"$work/plan.txt" <<PLAN
train $shared --seed 1 --output $work/sweep --resume
execute 10
PLAN
submit() { sbatch --parsable --output="$work/%x-%j.log" --mem=0 "$@"; }
state() { squeue -h -o %T -j "$1" 2>/dev/null | head -n 1; }
until_checkpoint() { # of a run: there is something to go on from
    for _ in $(seq 600); do
        compgen -G "$1/checkpoints/checkpoint-*/whole" >/dev/null && return
        sleep 1
    done
    echo "no checkpoint came in ten minutes" >&2
    exit 1
}
until_done() {
    for _ in $(seq 1200); do
        case $(state "$1") in "" | COMPLETED | FAILED | CANCELLED | TIMEOUT) break ;; esac
        sleep 1
    done
    say "job $2: $(scontrol -o show job "$1" | grep -oE '(JobState|Restarts|ExitCode)=[^ ]+' | xargs)"
}

say
say "== one training, and the signal that a time limit sends"
say "sbatch --cpus-per-task=1 slurm/train.sbatch WORK/train $shared"
train=$(submit --job-name=train --cpus-per-task=1 slurm/train.sbatch "$work/train" $shared)
until_checkpoint "$work/train"
scancel --batch --signal=USR1 "$train"
until_done "$train" train

say
say "== a sweep of two, the first of them requeued in the middle"
say "sbatch --array=1-2 slurm/sweep.sbatch WORK/plan.txt"
sed "s|^|   |" "$work/plan.txt" | while read -r line; do say "   $line"; done
sweep=$(submit --array=1-2 slurm/sweep.sbatch "$work/plan.txt")
until_checkpoint "$work/sweep"
scontrol requeue "${sweep}_1"
until_done "${sweep}_1" sweep_1
until_done "${sweep}_2" sweep_2

say
say "== a training that its owner cancels does not come back"
cancelled=$(submit --job-name=cancelled --cpus-per-task=1 slurm/train.sbatch "$work/cancelled" $shared)
until_checkpoint "$work/cancelled"
scancel "$cancelled"
until_done "$cancelled" cancelled

say
say "== what the jobs said"
for log in "$work"/*.log; do
    case $log in */slurmctld.log | */slurmd.log) continue ;; esac
    say "-- $(basename "$log" | sed 's/-[0-9]*\.log//')"
    grep -E '^20[0-9-]+ |stopped|step (1|12)/|accuracy|ok, |record.json|casebook:' "$log" |
        sed -e 's/^20[0-9-]* [0-9:]* //' -e 's/, [0-9]* s left//' | awk '!seen[$0]++' |
        while read -r line; do say "$line"; done
done

say
say "== what they left"
"$python" benchmarks/check_runs.py "$work/train" --steps 12
"$python" benchmarks/check_runs.py "$work/sweep" --steps 12
"$python" benchmarks/check_runs.py "$work/cancelled" --stopped
exit
}
