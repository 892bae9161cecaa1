. "$REPOSITORY/e2e/suite/testdata/docs/functions.sh"
prepare() {
  node
  kubectl create namespace shop
  expose shop web 80
  kubectl -n kube-system create secret generic fairlead-gateway-tls --from-file=ca.crt="$SUITE_STATE/pki/ca.crt"
}
cleanup() {
  kubectl delete namespace --wait=false shop
  kubectl -n kube-system delete secret fairlead-gateway-tls
}
