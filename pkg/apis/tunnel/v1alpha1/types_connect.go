// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"net/url"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// SubresourceConnect is the subresource of TunnelAgents that opens a TCP connection through the agent. kube-apiserver
	// knows this name in any group as one of requests that take long: they hold no place of a priority level, and its
	// --request-timeout does not count for them.
	SubresourceConnect = "portforward"
	// ResourceDestinations is the resource that rules name for destinations of such connections. It has no objects.
	ResourceDestinations = "destinations"
	// VerbConnect is the verb with which rules let users connect to destinations.
	VerbConnect = "connect"
	// ConnectCauseField is the field of the cause of a failure to connect. The type of the cause is the reason.
	ConnectCauseField = "destination"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TunnelAgentConnectOptions are the query parameters of a request to connect to a destination through an agent.
type TunnelAgentConnectOptions struct {
	metav1.TypeMeta `json:",inline"`

	// host is the destination: the name of a Service ("web.default.svc"), a node, or a host outside of the cluster, or
	// an address.
	// +required
	Host string `json:"host" protobuf:"bytes,1,opt,name=host"`
	// port is the port of the destination. That of a Service is the Service's own.
	// +required
	Port int32 `json:"port" protobuf:"varint,2,opt,name=port"`
}

// connectOptionsOf reads query parameters. A host or port that is there more than once is left out, and a port that is no
// number is 0: who serves the request refuses and notes it. Others than these two are those of all requests, or of a newer
// version.
func connectOptionsOf(values url.Values, o *TunnelAgentConnectOptions) {
	once := func(name string) string {
		if len(values[name]) != 1 {
			return ""
		}
		return values[name][0]
	}
	o.Host, o.Port = once("host"), 0
	if text := once("port"); text != "" {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || text[0] == '+' {
			port = 0
		}
		o.Port = int32(port)
	}
}
