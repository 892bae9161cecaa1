# SPDX-License-Identifier: Apache-2.0

# Keeps routes to the Pods of the other nodes. The names are those of containers, which the runtime's DNS resolves; a
# restarted one may have another address. Traffic that leaves the cluster gets the node's address. On a new node, it also
# brings the CNI configuration to its place, once.
set -uo pipefail
file=/kind/fairlead/network
place=/etc/cni/net.d/10-fairlead.conflist

subnet=$(sed -n 's/^subnet //p' "$file")
own=$(sed -n 's/^own //p' "$file")
service=$(sed -n 's/^service //p' "$file")
waiting=$(sed -n 's/^conflist //p' "$file")

masquerade() {
  local rule=(POSTROUTING --source "$own" '!' --destination "$subnet" --jump MASQUERADE)
  iptables --wait --table nat --check "${rule[@]}" 2>/dev/null || iptables --wait --table nat --append "${rule[@]}"
}

routes() {
  local kind cidr name address missing=0
  while read -r kind cidr name; do
    [[ $kind == peer ]] || continue
    read -r address _ < <(getent ahostsv4 "$name")
    if [[ -n ${address:-} ]]; then
      ip route replace "$cidr" via "$address" || missing=1
    else
      missing=1
    fi
    address=
  done <"$file"
  return "$missing"
}

# Does the API server answer at its Service's address? Whoever else does has no certificate of the cluster's CA.
services_work() { # $1: tenths of a second that it may take
  curl --silent --output /dev/null --noproxy '*' --max-time "$(($1 / 10)).$(($1 % 10))" --cacert /etc/kubernetes/pki/ca.crt "https://$service/livez"
}

# Lets Pods in once Services work, or a minute after the node has joined, or at once where that cannot be found out.
let_pods_in() {
  local give_up patience=3
  [[ -e $waiting ]] || return 0
  if command -v curl >/dev/null; then
    until [[ -e /etc/kubernetes/kubelet.conf ]]; do sleep 0.3; done
    give_up=$((SECONDS + 60))
    # What is sent before Services work gets no answer, ever; a busy machine may need longer for one.
    until services_work "$patience" || ((SECONDS >= give_up)); do
      ((patience < 20)) && ((patience += 1))
      sleep 0.1
    done
  fi
  mkdir -p "${place%/*}"
  cat "$waiting" >"$place" # containerd does not notice a file that is moved there
  rm "$waiting"
}

let_pods_in &
echo 1 >/proc/sys/net/ipv4/ip_forward
while true; do
  masquerade
  if routes; then sleep 10; else sleep 0.5; fi
done
