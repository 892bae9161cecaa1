# Functions of the files of pages.

# expose NAMESPACE NAME PORT makes a Service before the server of this suite.
expose() {
  local slice='kubectl -n e2e get endpointslices -l kubernetes.io/service-name=server -o'
  kubectl -n "$1" apply -f - <<END
apiVersion: v1
kind: Service
metadata: {name: $2}
spec: {ports: [{port: $3}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: $2, labels: {kubernetes.io/service-name: $2}}
addressType: IPv4
endpoints: [{addresses: [$($slice jsonpath='{.items[0].endpoints[0].addresses[0]}')], conditions: {ready: true}}]
ports: [{port: $($slice jsonpath='{.items[0].ports[?(@.name=="http")].port}')}]
END
}

# release makes files like those of a release.
release() {
  echo image > fairlead-dev-konnectivity-agent-v0.1.0.oci.tar
  sha256sum -- *.oci.tar > SHA256SUMS
}

# node makes a directory in place of the files of a control plane node, and static.yaml, a bundle with static Pods.
node() {
  mkdir -p etc/kubernetes/manifests
  cp -r "$SUITE_STATE/pki" etc/kubernetes/pki
  cat > etc/kubernetes/manifests/kube-apiserver.yaml <<'END'
apiVersion: v1
kind: Pod
metadata: {name: kube-apiserver, namespace: kube-system}
spec:
  containers:
  - name: kube-apiserver
    image: registry.k8s.io/kube-apiserver:v1.36.3
    command: [kube-apiserver, --secure-port=6443]
    volumeMounts: [{name: k8s-certs, mountPath: /etc/kubernetes/pki, readOnly: true}]
  volumes: [{name: k8s-certs, hostPath: {path: /etc/kubernetes/pki, type: DirectoryOrCreate}}]
END
  cat > static.yaml <<'END'
apiVersion: fairlead.dev/v1beta1
kind: Bundle
metadata: {name: default}
spec:
  scheduler: {form: StaticPod}
  gateway:
    enabled: true
    form: StaticPod
    rules: [{action: allow, users: [alice], hosts: [web.shop]}]
END
}
