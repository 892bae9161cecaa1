# Functions of the files of pages.

# expose NAMESPACE NAME PORT makes a Service before the server of this suite: as Pods of the host's network have the address of this machine, a Pod
# with the server's port stands for it.
expose() {
  local port
  port=$(kubectl -n e2e get service server -o jsonpath='{.spec.ports[?(@.name=="http")].targetPort}')
  kubectl -n "$1" apply -f - <<END
apiVersion: v1
kind: Pod
metadata: {name: $2, labels: {app: $2}}
spec:
  hostNetwork: true
  containers: [{name: server, image: registry.k8s.io/pause:3.10, ports: [{containerPort: $port}]}]
---
apiVersion: v1
kind: Service
metadata: {name: $2}
spec: {selector: {app: $2}, ports: [{port: $3, targetPort: $port}]}
END
  kubectl -n "$1" wait --for=condition=Ready "pod/$2" --timeout=30s
  until kubectl -n "$1" get endpointslices -l "kubernetes.io/service-name=$2" -o jsonpath='{.items[*].endpoints[*].addresses}' | grep -q .; do sleep 0.1; done
}

# other makes other.yaml, a bundle next to that of the cluster.
other() {
  cat > other.yaml <<'END'
apiVersion: fairlead.dev/v1beta1
kind: Bundle
metadata: {name: default}
spec:
  scheduler: {name: batch-scheduler, profiles: [{schedulerName: batch-scheduler}]}
  konnectivity: {enabled: false}
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
    rules: {allow: [{name: web for developers, groups: [dev]}]}
END
}
