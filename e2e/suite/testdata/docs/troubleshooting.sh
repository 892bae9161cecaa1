. "$REPOSITORY/e2e/suite/testdata/docs/functions.sh"
prepare() {
  other
  kubectl run web-0 --image registry.k8s.io/pause:3.10
}
cleanup() { :; }
