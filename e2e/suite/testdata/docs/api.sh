# The suite's cluster has no operator: these are its definitions and its Secret alone. The bundle has the operator's finalizer from the start.
definitions="$REPOSITORY/pkg/apis/fairlead/crds"
prepare() {
  kubectl apply --server-side -f "$definitions"
  kubectl wait --for=condition=Established -f "$definitions" --timeout=30s
  kubectl create namespace fairlead-system
  kubectl create namespace monitoring
  kubectl -n fairlead-system create secret generic fairlead-operator-webhook --from-file=ca.crt="$SUITE_STATE/pki/ca.crt"
  sed -i '/^metadata:/a\  finalizers: [fairlead.dev/uninstall]' bundle.yaml
}
cleanup() {
  kubectl delete clusterrolebinding schedulerprofiles prometheus
  kubectl delete namespace --wait=false fairlead-system monitoring
  kubectl delete -f "$definitions"
}
