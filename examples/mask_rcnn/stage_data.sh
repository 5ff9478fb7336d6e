#!/usr/bin/env bash
# Stage COCO 2017, pre-trained models and TensorPack in S3, for job.py.
set -euo pipefail

ROOM_GB=65 # 20 of archives, 22 of their files, 22 of the archive for S3
TRIES=20
COCO=http://images.cocodataset.org
MODELS=http://models.tensorpack.com/FasterRCNN
TENSORPACK=https://github.com/tensorpack/tensorpack.git

show_help() {
    cat <<END
usage: stage_data.sh s3://BUCKET[/PREFIX] [FOLDER]

Download COCO 2017, two pre-trained models and TensorPack, check them, and upload them to S3 as coco-2017.tar and
tensorpack.tar. Beside each is its SHA-256, which nodes verify. The last line of the output is the option of
\`npx cdk deploy\` that brings both to a cluster.

FOLDER (default: build/data) needs $ROOM_GB GB. After an interruption, run the same command again: downloads resume, and
finished archives are neither made nor uploaded again. It continues after the terminal is closed if nohup starts it:

    nohup examples/mask_rcnn/stage_data.sh s3://BUCKET/PREFIX FOLDER &

It needs curl, git, tar and unzip, and the AWS CLI with permission to read and write the bucket.
exit status: 0 both archives are in S3, 2 it could not start; any other: it failed and can be run again
END
}

fail() {
    echo "stage_data.sh: $1" >&2
    exit "${2:-1}"
}

check_room() {
    local free used
    free=$(df --output=avail --block-size=1 . | tail -n 1)
    used=$(du --summarize --block-size=1 . | cut -f 1)
    if ((free + used < ROOM_GB * 10 ** 9)); then
        fail "FOLDER must have $ROOM_GB GB, got $(((free + used) / 10 ** 9)) GB in $PWD; choose another disk" 2
    fi
}

# transfer URL FILE: download, and resume after each interruption.
transfer() {
    local code status try
    for ((try = 1; try <= TRIES; try++)); do
        status=0
        code=$(curl --fail --location --continue-at - --connect-timeout 30 --speed-limit 1 --speed-time 60 \
            --output "$2" --write-out '%{http_code}' "$1") || status=$?
        if ((status == 0)); then
            return
        elif ((status == 33)); then
            rm -f "$2" # The server cannot resume.
        elif [[ $code == 4?? ]]; then
            break
        fi
        sleep 5
    done
    fail "could not download $1; run the same command again, and it resumes"
}

# is_intact FILE MD5: without an MD5, the checksums within the file decide, since .npz is a zip archive.
is_intact() {
    if [[ $2 ]]; then
        md5sum --check --status <<<"$2  $1"
    else
        unzip -tqq "$1" >/dev/null 2>&1
    fi
}

# download URL [MD5]: to downloads/, where only intact files have their own name.
download() {
    local file=downloads/${1##*/} md5=${2:-}
    if [[ -e $file ]]; then
        return
    fi
    echo "downloading $1"
    if [[ -e $file.part ]] && ! is_intact "$file.part" "$md5"; then
        transfer "$1" "$file.part"
        is_intact "$file.part" "$md5" || rm "$file.part" # Its begin was not that of this file.
    fi
    [[ -e $file.part ]] || transfer "$1" "$file.part"
    if ! is_intact "$file.part" "$md5"; then
        rm "$file.part"
        fail "$1 must be intact${md5:+, with the MD5 $md5}, got a damaged or another file; it was deleted, run again"
    fi
    mv "$file.part" "$file"
}

# write_digest ARCHIVE: mark it as complete.
write_digest() {
    sha256sum "$1" >"$1.sha256.part"
    mv "$1.sha256.part" "$1.sha256"
}

pack_coco() {
    check_room
    mkdir -p downloads data/pretrained-models
    # The MD5s are those that users of COCO publish. The models have none. The backbone is that of TensorPack's README
    # (BACKBONE.WEIGHTS), the other model is trained with the same settings.
    download "$COCO/zips/train2017.zip" cced6f7f71b7629ddf16f17bbcfab6b2
    download "$COCO/zips/val2017.zip" 442b8da7639aecaf257c1dceb8ba8c80
    download "$COCO/annotations/annotations_trainval2017.zip" f4bbac642086de4f52a3fdda2de5fa2c
    download "$MODELS/ImageNet-R50-AlignPadding.npz"
    download "$MODELS/COCO-R50FPN-MaskRCNN-Standard.npz"
    for file in downloads/*.zip; do
        echo "unpacking $file"
        unzip -q -o -d data "$file"
    done
    cp downloads/*.npz data/pretrained-models/
    echo "packing coco-2017.tar"
    # The same files make the same archive on every machine.
    tar --create --file coco-2017.tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner \
        --mode=u=rwX,go=rX --directory data annotations pretrained-models train2017 val2017
    write_digest coco-2017.tar
}

pack_tensorpack() {
    echo "cloning $TENSORPACK"
    rm -rf tensorpack
    git clone --quiet --depth 1 "$TENSORPACK" tensorpack
    git -C tensorpack archive --prefix=tensorpack/ --output=../tensorpack.tar HEAD
    rm -rf tensorpack
    write_digest tensorpack.tar
}

# upload ARCHIVE: unless the object has its digest already, which it gets only when its upload is complete.
upload() {
    local digest key=$prefix$1
    read -r digest _ <"$1.sha256"
    if [[ $(aws s3api head-object --bucket "$bucket" --key "$key" --query Metadata.sha256 --output text 2>/dev/null) == \
        "$digest" ]]; then
        echo "s3://$bucket/$key is complete"
        return
    fi
    aws s3 cp "$1.sha256" "s3://$bucket/$key.sha256"
    aws s3 cp "$1" "s3://$bucket/$key" --metadata "sha256=$digest"
}

# print_source NAME: an entry of the context key storage.data.
print_source() {
    local digest
    read -r digest _ <"$1.tar.sha256"
    printf '{"name": "%s", "bucket": "%s", "key": "%s", "sha256": "%s"}' "$1" "$bucket" "$prefix$1.tar" "$digest"
}

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
    show_help
    exit
fi
if (($# < 1 || $# > 2)); then
    show_help >&2
    exit 2
fi
if [[ ! $1 =~ ^s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((/[A-Za-z0-9._=-]+)*)/?$ ]]; then
    fail "the destination must be s3://BUCKET or s3://BUCKET/PREFIX, got '$1'; see --help" 2
fi
bucket=${BASH_REMATCH[1]}
prefix=${BASH_REMATCH[2]:+${BASH_REMATCH[2]#/}/}
for program in aws curl flock git md5sum sha256sum tar unzip; do
    command -v "$program" >/dev/null || fail "missing: $program; install it" 2
done
folder=${2:-build/data}/mask-rcnn
mkdir -p "$folder" || fail "FOLDER must be a folder that can be written, got '${2:-build/data}'" 2
cd "$folder"
exec 9>lock
flock --nonblock 9 || fail "another run must have ended in $PWD, got one at work; wait for it" 2
aws s3api head-bucket --bucket "$bucket" >/dev/null ||
    fail "s3://$bucket must exist, for these credentials; create it: aws s3 mb s3://$bucket" 2

[[ -e tensorpack.tar.sha256 ]] || pack_tensorpack
[[ -e coco-2017.tar.sha256 ]] || pack_coco
rm -rf downloads data
upload tensorpack.tar
upload coco-2017.tar
echo "both archives are in s3://$bucket/$prefix; give them to a cluster:"
echo "-c storage.data='[$(print_source coco-2017), $(print_source tensorpack)]'"
