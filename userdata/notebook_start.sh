# shellcheck shell=bash
# Runs as root at each start of a notebook instance, with the region, and bucket, key and SHA-256 of the programs.
# Only /home/ec2-user/SageMaker outlives a stop, so the programs are installed anew, and the user's files are left alone.
set -euo pipefail
region=$1 bucket=$2 key=$3 digest=$4
folder=/opt/deeplearning/notebook home=/home/ec2-user/SageMaker

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
