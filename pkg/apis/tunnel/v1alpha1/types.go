// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Types of conditions.
const (
	// ConditionConnected is a condition of TunnelAgents.
	ConditionConnected = "Connected"
	// ConditionDraining is a condition of TunnelAgents.
	ConditionDraining = "Draining"
	// ConditionReachable is a condition of TunnelServers.
	ConditionReachable = "Reachable"
	// ConditionReady is a condition of TunnelServers.
	ConditionReady = "Ready"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TunnelAgent is a konnectivity-agent. It shows to which konnectivity-servers the agent is connected, and how well each
// link works. An agent that has disconnected stays for a while, with condition Connected=False.
type TunnelAgent struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name is the agent's ID if that can be a name, or else is made of it.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status is what the servers report.
	// +optional
	Status TunnelAgentStatus `json:"status,omitempty"`
}

// TunnelAgentStatus is what the servers report of an agent.
type TunnelAgentStatus struct {
	// agentID is the ID that the agent chose, see --agent-id of konnectivity-agent.
	// +required
	AgentID string `json:"agentID"`
	// nodeName is the node that the agent's token is bound to, or the common name of its certificate. It is empty if
	// the servers know neither.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// version is the version of the agent's program. It is empty for agents that do not send it.
	// +optional
	Version string `json:"version,omitempty"`
	// identifiers are the destinations that the agent claims to reach, as "kind=value".
	// +optional
	// +listType=atomic
	Identifiers []string `json:"identifiers,omitempty"`
	// servers are the konnectivity-servers that the agent is connected to.
	// +optional
	// +listType=map
	// +listMapKey=serverID
	Servers []AgentServer `json:"servers,omitempty"`
	// conditions are Connected (at least one server has a link to the agent) and Draining (no link takes new dials,
	// because the agent or the servers end them).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AgentServer is what one server reports of an agent. If the agent has several links to the server, the counts are
// sums over these.
type AgentServer struct {
	// serverID is the ID of the server.
	// +required
	ServerID string `json:"serverID"`
	// links is the number of TCP connections between the agent and the server.
	// +required
	Links int32 `json:"links"`
	// protocol is "fairlead", or "upstream" for upstream's protocol.
	// +required
	Protocol string `json:"protocol"`
	// peers are the addresses from which the agent connects, as the server sees them.
	// +optional
	// +listType=atomic
	Peers []string `json:"peers,omitempty"`
	// since is when the oldest link was established.
	// +required
	Since metav1.Time `json:"since"`
	// rttMicroseconds is the shortest round trip between server and agent. It is 0 if none was measured.
	// +required
	RTTMicroseconds int64 `json:"rttMicroseconds"`
	// openConnections is the number of connections that the agent carries for the server.
	// +required
	OpenConnections int64 `json:"openConnections"`
	// pendingDials is the number of dials that the agent has not answered.
	// +required
	PendingDials int64 `json:"pendingDials"`
	// dialsTotal counts the dials that the server gave to the agent.
	// +required
	DialsTotal int64 `json:"dialsTotal"`
	// dialFailures counts those that failed.
	// +required
	DialFailures int64 `json:"dialFailures"`
	// bytesToAgent counts the bytes that the agent got for destinations.
	// +required
	BytesToAgent int64 `json:"bytesToAgent"`
	// bytesFromAgent counts the bytes that destinations sent through the agent.
	// +required
	BytesFromAgent int64 `json:"bytesFromAgent"`
	// draining means that all links to the server end when their connections have ended.
	// +optional
	Draining bool `json:"draining,omitempty"`
	// silent means that the agent has left a ping unanswered.
	// +optional
	Silent bool `json:"silent,omitempty"`
	// observedTime is when the server reported these values. Counts may be some seconds old.
	// +required
	ObservedTime metav1.Time `json:"observedTime"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TunnelAgentList is a list of TunnelAgents.
type TunnelAgentList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the TunnelAgents.
	Items []TunnelAgent `json:"items"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TunnelServer is a konnectivity-server. There is one beside each kube-apiserver.
type TunnelServer struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name is the server's ID if that can be a name, or else is made of it.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status is what the server reports.
	// +optional
	Status TunnelServerStatus `json:"status,omitempty"`
}

// TunnelServerStatus is what a server reports of itself.
type TunnelServerStatus struct {
	// serverID is the ID of the server, see --server-id of konnectivity-server.
	// +required
	ServerID string `json:"serverID"`
	// host is the name of the server's machine.
	// +optional
	Host string `json:"host,omitempty"`
	// address is where this API server asks the konnectivity-server for its state.
	// +required
	Address string `json:"address"`
	// version is the version of the server's program.
	// +optional
	Version string `json:"version,omitempty"`
	// mode is the protocol between kube-apiserver and the server: "grpc" or "http-connect".
	// +optional
	Mode string `json:"mode,omitempty"`
	// proxyStrategies are the ways in which the server chooses agents.
	// +optional
	// +listType=atomic
	ProxyStrategies []string `json:"proxyStrategies,omitempty"`
	// agents is the number of connected agents.
	// +required
	Agents int32 `json:"agents"`
	// links is the number of their TCP connections.
	// +required
	Links int32 `json:"links"`
	// pendingDials is the number of dials without an answer.
	// +required
	PendingDials int64 `json:"pendingDials"`
	// openConnections is the number of connections that the server carries through agents.
	// +required
	OpenConnections int64 `json:"openConnections"`
	// localConnections is the number of connections that the server made itself, see --local-destinations.
	// +optional
	LocalConnections int64 `json:"localConnections,omitempty"`
	// certificateExpirationTime is when the certificate expires that agents see.
	// +optional
	CertificateExpirationTime *metav1.Time `json:"certificateExpirationTime,omitempty"`
	// countMode is how agents learn the number of servers: "ServerCount" from the flag --server-count, or "Leases".
	// +optional
	CountMode string `json:"countMode,omitempty"`
	// count is that number as this server knows it: the value of the flag, or the number of valid Leases that it saw.
	// +required
	Count int32 `json:"count"`
	// startTime is when the server started.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// observedTime is when the server last reported these values. Counts may be some seconds old.
	// +optional
	ObservedTime *metav1.Time `json:"observedTime,omitempty"`
	// conditions are Reachable (the server answers this API server) and Ready (an agent takes new dials).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TunnelServerList is a list of TunnelServers.
type TunnelServerList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the TunnelServers.
	Items []TunnelServer `json:"items"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TunnelConnection is a connection of kube-apiserver that the tunnel carries now. Connections can be read and listed,
// but not watched, because there may be many of them and they change fast.
type TunnelConnection struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name consists of the server's name and a number.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status is what the server reports.
	// +optional
	Status TunnelConnectionStatus `json:"status,omitempty"`
}

// TunnelConnectionStatus is what a server reports of a connection.
type TunnelConnectionStatus struct {
	// serverID is the ID of the server that carries the connection.
	// +required
	ServerID string `json:"serverID"`
	// agentID is the ID of the agent. It is empty if the server made the connection itself.
	// +optional
	AgentID string `json:"agentID,omitempty"`
	// nodeName is the node of the agent, if the server knows it.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// destination is the address that the connection leads to, as kube-apiserver asked for it.
	// +required
	Destination string `json:"destination"`
	// since is when the connection was established.
	// +required
	Since metav1.Time `json:"since"`
	// bytesToAgent counts the bytes for the destination.
	// +required
	BytesToAgent int64 `json:"bytesToAgent"`
	// bytesFromAgent counts the bytes from the destination.
	// +required
	BytesFromAgent int64 `json:"bytesFromAgent"`
	// observedTime is when the server reported these values.
	// +required
	ObservedTime metav1.Time `json:"observedTime"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TunnelConnectionList is a list of TunnelConnections.
type TunnelConnectionList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the TunnelConnections.
	Items []TunnelConnection `json:"items"`
}
