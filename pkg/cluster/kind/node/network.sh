# Keeps routes to the Pods of the other nodes. The names are those of containers, which the runtime's DNS resolves; a
# restarted one may have another address. Traffic that leaves the cluster gets the node's address.
set -uo pipefail
file=/kind/fairlead/network

subnet=$(sed -n 's/^subnet //p' "$file")
own=$(sed -n 's/^own //p' "$file")

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

echo 1 >/proc/sys/net/ipv4/ip_forward
while true; do
  masquerade
  if routes; then sleep 10; else sleep 0.5; fi
done
