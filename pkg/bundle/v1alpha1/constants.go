// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Defaults of the configuration, exported because tests, providers and checks
// compare with them.
const (
	DefaultNamespace = "kube-system"

	// ImageTag is the tag of all default images: this release.
	ImageTag = "v0.1.0"

	// Default images. They are built by this repository; load or push them where
	// the cluster's nodes find them, or set the image fields.
	DefaultSchedulerImage = "fairlead-dev/fairlead-scheduler:" + ImageTag
	DefaultServerImage    = "fairlead-dev/konnectivity-server:" + ImageTag
	DefaultAgentImage     = "fairlead-dev/konnectivity-agent:" + ImageTag
	DefaultGatewayImage   = "fairlead-dev/fairlead:" + ImageTag
	DefaultTunnelAPIImage = "fairlead-dev/fairlead-apiserver:" + ImageTag
	DefaultOperatorImage  = "fairlead-dev/fairlead-operator:" + ImageTag

	DefaultSchedulerName = "my-scheduler"
	DefaultSecurePort    = 10259

	DefaultTCPClientName          = "kube-apiserver-konnectivity-client"
	DefaultSocket                 = "/etc/kubernetes/konnectivity-server/konnectivity-server.socket"
	DefaultServerService          = "konnectivity-server"
	DefaultAgentPort              = 8132
	DefaultAdminPort              = 8133
	DefaultHealthPort             = 8134
	DefaultHealthBindAddress      = "127.0.0.1"
	DefaultAuthenticationAudience = "system:konnectivity-server"
	DefaultAgentServiceAccount    = "konnectivity-agent"
	DefaultLeaseNamespace         = "fairlead-konnectivity"
	DefaultServerKubeconfig       = "/etc/kubernetes/konnectivity-server.conf"

	// GatewayName names the gateway's objects and files.
	GatewayName              = "fairlead-gateway"
	DefaultGatewayPort       = 1080
	DefaultGatewayHealthPort = 1081
	DefaultGatewayAudience   = GatewayName
	DefaultGatewaySecret     = GatewayName + "-tls"

	// TunnelAPIName names the objects of the tunnel's API server.
	TunnelAPIName             = "fairlead-apiserver"
	DefaultTunnelAPIPort      = 6443
	DefaultTunnelAPIStatePort = 8093
	DefaultTunnelAPISecret    = TunnelAPIName + "-tls"

	DefaultPKIDir             = "/etc/kubernetes/pki"
	DefaultManifestsDir       = "/etc/kubernetes/manifests"
	DefaultEgressSelectorFile = "/etc/kubernetes/konnectivity/egress-selector-configuration.yaml"

	// FrontProxyClient is the common name of the API server's front proxy
	// certificate.
	FrontProxyClient = "front-proxy-client"
)

// Names that must not be used because they belong to the cluster's own
// scheduler.
const (
	// DefaultSchedulerProfile is the name that Pods get when they name none.
	DefaultSchedulerProfile = "default-scheduler"
	// KubeSchedulerLease, in kube-system, is the default scheduler's Lease.
	KubeSchedulerLease = "kube-scheduler"
	// GateCoordinatedLeaderElection is the feature gate that is always off.
	GateCoordinatedLeaderElection = "CoordinatedLeaderElection"
)

// Limits that Kubernetes and the kernel set.
const (
	// MaxSocketPath is the longest path of a Unix socket, in bytes.
	MaxSocketPath = 107
	// MinPort and MaxPort bound every port of the tunnel: below are reserved
	// ports, above are ephemeral ones.
	MinPort = 1024
	MaxPort = 49151
	// SampleServerHost is the placeholder in the Konnectivity documentation. It is
	// a real address of an unrelated host.
	SampleServerHost = "35.225.206.7"
)
