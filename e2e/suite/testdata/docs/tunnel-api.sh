. "$REPOSITORY/e2e/suite/testdata/docs/functions.sh"
prepare() {
  expose default hello-app 8080
  kubectl create namespace team-a
}
cleanup() {
  kubectl delete namespace --wait=false team-a
  kubectl delete clusterrolebinding connect-dev
  kubectl -n default delete service/hello-app pod/hello-app
}
