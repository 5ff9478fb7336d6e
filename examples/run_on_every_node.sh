#!/bin/bash
# A cluster's run_script: it starts on the master once the cluster has formed, and reaches every node from there.
# A node that joins later runs none of it; what each node needs belongs in workers.setup_script and master.setup_script.
set -euo pipefail
deeplearning exec --timeout 60 -- 'sudo -n sysctl -w vm.swappiness=10'
deeplearning run --launcher torchrun -- python3 "$EFS_MOUNT/examples/train_torchrun.py"
