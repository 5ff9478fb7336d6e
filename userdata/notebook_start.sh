# shellcheck shell=bash
# Runs as root at each start of a notebook instance, with the region, and bucket, key and SHA-256 of the programs.
# Only /home/ec2-user/SageMaker outlives a stop, so the programs are installed anew, and the user's files are left alone.
# It ends at once: SageMaker stops an instance whose script fails or takes more than 5 minutes, and CloudFormation then
# rolls the whole stack back. The installation goes on in the background, and a failure is a message to the user.
set -euo pipefail
region=$1 bucket=$2 key=$3 digest=$4
folder=/opt/deeplearning/notebook home=/home/ec2-user/SageMaker
message=$home/INSTALLATION-FAILED.txt log=/var/log/deeplearning-notebook.log

install() {
  set -e
  rm -rf "$folder"
  mkdir -p "$folder"
  cd "$folder"
  aws s3 cp --region "$region" --only-show-errors "s3://$bucket/$key" programs.zip
  sha256sum --check --quiet <<<"$digest  programs.zip"
  # The command reads TOML by the standard library, which has it from Python 3.11 on.
  dnf install --quiet --assumeyes python3.11
  python3.11 -m zipfile -e programs.zip .
  python3.11 -m venv environment
  environment/bin/python -m pip install --quiet --only-binary :all: --require-hashes --requirement notebook.lock
  environment/bin/python -m ipykernel install --name deeplearning --display-name deeplearning-cdk \
    --env AWS_DEFAULT_REGION "$region"
  cat >/usr/local/bin/deeplearning-cdk <<END
#!/bin/sh
PYTHONPATH=$folder exec $folder/environment/bin/python -m deeplearning_cli.main "\$@"
END
  chmod 755 /usr/local/bin/deeplearning-cdk
  cp --recursive --no-clobber sagemaker mask_rcnn "$home"
  chown --recursive ec2-user: "$home/sagemaker" "$home/mask_rcnn"
}

report() {
  echo "The programs of deeplearning-cdk could not be installed. The log ends with:"
  tail -n 20 "$log"
  echo "Correct the cause, such as the route of the subnet to pip's index, then stop and start the instance."
}

rm -f "$message"
(
  trap '[ $? = 0 ] || report >"$message"' EXIT
  install
) >"$log" 2>&1 </dev/null &
disown
