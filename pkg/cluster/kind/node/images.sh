# SPDX-License-Identifier: Apache-2.0

# Loads the images that the node does not have. The kubelet waits for this unit, so that no Pod looks for an image that is
# still on its way. containerd may be restarted meanwhile (kind does that after changing its configuration): try again.
set -uo pipefail
dir=/kind/fairlead-images
[[ -e $dir/list ]] || exit 0

ready() { ctr --namespace=k8s.io images list --quiet >/dev/null 2>&1; }
has() { [[ $(ctr --namespace=k8s.io images list "name==$1" 2>/dev/null) == *"$2"* ]]; }

load() {
  local name=$1 digest=$2 file=$3 snapshotter
  has "$name" "$digest" && return 0
  snapshotter=$(containerd config dump | sed -n "s/^ *snapshotter = [\"']\(.*\)[\"']$/\1/p" | head -n 1)
  ctr --namespace=k8s.io images import --all-platforms --digests --snapshotter="${snapshotter:-overlayfs}" "$dir/$file"
}

until ready; do sleep 0.2; done
while read -r name digest file; do
  for try in 1 2 3 4 5; do
    load "$name" "$digest" "$file" && continue 2
    sleep "$try"
    until ready; do sleep 0.2; done
  done
  echo "could not load $name" >&2
  exit 1
done <"$dir/list"
