package cluster

// How many requests a second kube-controller-manager may send, by its flags
// --kube-api-qps and --kube-api-burst. It makes a service account and a token for each
// of its controllers before the first one starts, which takes seconds at its default of
// 20. Until then nobody signs the certificates of kubelets, and no node joins.
const (
	ControllerManagerQPS   = "200"
	ControllerManagerBurst = "400"
)
