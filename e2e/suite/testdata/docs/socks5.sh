. "$REPOSITORY/e2e/suite/testdata/docs/functions.sh"
prepare() {
  expose default hello-app 8080
  cp "$SUITE_STATE/pki/apiserver.crt" tls.crt
  cp "$SUITE_STATE/pki/apiserver.key" tls.key
  cp "$SUITE_STATE/pki/ca.crt" ca.crt
}
cleanup() { kubectl -n default delete service/hello-app pod/hello-app; }
