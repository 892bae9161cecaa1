. "$REPOSITORY/e2e/suite/testdata/docs/functions.sh"
prepare() {
  node
  kubectl -n kube-system create configmap kubeadm-config --from-literal=ClusterConfiguration='apiVersion: kubeadm.k8s.io/v1beta4'
}
cleanup() { kubectl -n kube-system delete configmap kubeadm-config; }
