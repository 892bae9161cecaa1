prepare() {
  openssl req -new -newkey rsa:2048 -nodes -keyout kubelet.key -out kubelet.csr -subj /O=system:nodes/CN=system:node:node-0 -addext subjectAltName=IP:192.0.2.1
  kubectl apply -f - <<END
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {name: csr-7xk2p}
spec:
  signerName: kubernetes.io/kubelet-serving
  usages: [digital signature, server auth]
  request: $(base64 -w0 kubelet.csr)
END
}
cleanup() { kubectl delete csr csr-7xk2p; }
