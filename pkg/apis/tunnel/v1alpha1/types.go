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
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// status is what the servers report.
	// +optional
	Status TunnelAgentStatus `json:"status,omitempty" protobuf:"bytes,2,opt,name=status"`
}

// TunnelAgentStatus is what the servers report of an agent.
type TunnelAgentStatus struct {
	// agentID is the ID that the agent chose, see --agent-id of konnectivity-agent.
	// +required
	AgentID string `json:"agentID" protobuf:"bytes,1,opt,name=agentID"`
	// nodeName is the node that the agent's token is bound to, or the common name of its certificate. It is empty if
	// the servers know neither.
	// +optional
	NodeName string `json:"nodeName,omitempty" protobuf:"bytes,2,opt,name=nodeName"`
	// version is the version of the agent's program. It is empty for agents that do not send it.
	// +optional
	Version string `json:"version,omitempty" protobuf:"bytes,3,opt,name=version"`
	// identifiers are the destinations that the agent claims to reach, as "kind=value".
	// +optional
	// +listType=atomic
	Identifiers []string `json:"identifiers,omitempty" protobuf:"bytes,4,rep,name=identifiers"`
	// servers are the konnectivity-servers that the agent is connected to, or was when they last showed their state.
	// +optional
	// +listType=map
	// +listMapKey=serverID
	Servers []AgentServer `json:"servers,omitempty" protobuf:"bytes,5,rep,name=servers"`
	// conditions are Connected (at least one server has a link to the agent) and Draining (no link takes new dials,
	// because the agent or the servers end them).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" protobuf:"bytes,6,rep,name=conditions"`
	// podName is the Pod that the agent's token is bound to, in the namespace of the agents. It is empty if the servers do
	// not know it, for example with client certificates.
	// +optional
	PodName string `json:"podName,omitempty" protobuf:"bytes,7,opt,name=podName"`
}

// AgentServer is what one server reports of an agent. If the agent has several links to the server, the counts are
// sums over these.
type AgentServer struct {
	// serverID is the ID of the server.
	// +required
	ServerID string `json:"serverID" protobuf:"bytes,1,opt,name=serverID"`
	// links is the number of TCP connections between the agent and the server.
	// +required
	Links int32 `json:"links" protobuf:"varint,2,opt,name=links"`
	// protocol is "fairlead", or "upstream" for upstream's protocol.
	// +required
	Protocol string `json:"protocol" protobuf:"bytes,3,opt,name=protocol"`
	// peers are the addresses from which the agent connects, as the server sees them.
	// +optional
	// +listType=atomic
	Peers []string `json:"peers,omitempty" protobuf:"bytes,4,rep,name=peers"`
	// since is when the oldest link was established.
	// +required
	Since metav1.Time `json:"since" protobuf:"bytes,5,opt,name=since"`
	// rttMicroseconds is the shortest round trip between server and agent. It is 0 if none was measured.
	// +required
	RTTMicroseconds int64 `json:"rttMicroseconds" protobuf:"varint,6,opt,name=rttMicroseconds"`
	// openConnections is the number of connections that the agent carries for the server.
	// +required
	OpenConnections int64 `json:"openConnections" protobuf:"varint,7,opt,name=openConnections"`
	// pendingDials is the number of dials that the agent has not answered.
	// +required
	PendingDials int64 `json:"pendingDials" protobuf:"varint,8,opt,name=pendingDials"`
	// dialsTotal counts the dials that the server gave to the agent.
	// +required
	DialsTotal int64 `json:"dialsTotal" protobuf:"varint,9,opt,name=dialsTotal"`
	// dialFailures counts those that failed.
	// +required
	DialFailures int64 `json:"dialFailures" protobuf:"varint,10,opt,name=dialFailures"`
	// bytesToAgent counts the bytes that the agent got for destinations.
	// +required
	BytesToAgent int64 `json:"bytesToAgent" protobuf:"varint,11,opt,name=bytesToAgent"`
	// bytesFromAgent counts the bytes that destinations sent through the agent.
	// +required
	BytesFromAgent int64 `json:"bytesFromAgent" protobuf:"varint,12,opt,name=bytesFromAgent"`
	// draining means that all links to the server end when their connections have ended.
	// +optional
	Draining bool `json:"draining,omitempty" protobuf:"varint,13,opt,name=draining"`
	// silent means that the agent has left a ping unanswered.
	// +optional
	Silent bool `json:"silent,omitempty" protobuf:"varint,14,opt,name=silent"`
	// observedTime is when the server reported these values. Counts may be some seconds old.
	// +required
	ObservedTime metav1.Time `json:"observedTime" protobuf:"bytes,15,opt,name=observedTime"`
	// stale means that the server has stopped to show its state: these are its last values, and the agent may have lost
	// its links to it.
	// +optional
	Stale bool `json:"stale,omitempty" protobuf:"varint,16,opt,name=stale"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TunnelAgentList is a list of TunnelAgents.
type TunnelAgentList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	// items are the TunnelAgents.
	Items []TunnelAgent `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TunnelServer is a konnectivity-server. There is one next to each kube-apiserver.
type TunnelServer struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name is the server's ID if that can be a name, or else is made of it.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// status is what the server reports.
	// +optional
	Status TunnelServerStatus `json:"status,omitempty" protobuf:"bytes,2,opt,name=status"`
}

// TunnelServerStatus is what a server reports of itself.
type TunnelServerStatus struct {
	// serverID is the ID of the server, see --server-id of konnectivity-server.
	// +required
	ServerID string `json:"serverID" protobuf:"bytes,1,opt,name=serverID"`
	// host is the name of the server's machine.
	// +optional
	Host string `json:"host,omitempty" protobuf:"bytes,2,opt,name=host"`
	// address is where this API server asks the konnectivity-server for its state.
	// +required
	Address string `json:"address" protobuf:"bytes,3,opt,name=address"`
	// version is the version of the server's program.
	// +optional
	Version string `json:"version,omitempty" protobuf:"bytes,4,opt,name=version"`
	// mode is the protocol between kube-apiserver and the server: "grpc" or "http-connect".
	// +optional
	Mode string `json:"mode,omitempty" protobuf:"bytes,5,opt,name=mode"`
	// proxyStrategies are the ways in which the server chooses agents.
	// +optional
	// +listType=atomic
	ProxyStrategies []string `json:"proxyStrategies,omitempty" protobuf:"bytes,6,rep,name=proxyStrategies"`
	// agents is the number of connected agents.
	// +required
	Agents int32 `json:"agents" protobuf:"varint,7,opt,name=agents"`
	// links is the number of their TCP connections.
	// +required
	Links int32 `json:"links" protobuf:"varint,8,opt,name=links"`
	// pendingDials is the number of dials without an answer.
	// +required
	PendingDials int64 `json:"pendingDials" protobuf:"varint,9,opt,name=pendingDials"`
	// openConnections is the number of connections that the server carries through agents.
	// +required
	OpenConnections int64 `json:"openConnections" protobuf:"varint,10,opt,name=openConnections"`
	// localConnections is the number of connections that the server made itself, see --local-destinations.
	// +optional
	LocalConnections int64 `json:"localConnections,omitempty" protobuf:"varint,11,opt,name=localConnections"`
	// certificateExpirationTime is when the certificate expires that agents see.
	// +optional
	CertificateExpirationTime *metav1.Time `json:"certificateExpirationTime,omitempty" protobuf:"bytes,12,opt,name=certificateExpirationTime"`
	// countMode is how agents learn the number of servers: "ServerCount" from the flag --server-count, or "Leases".
	// +optional
	CountMode string `json:"countMode,omitempty" protobuf:"bytes,13,opt,name=countMode"`
	// count is that number as this server knows it: the value of the flag, or the number of valid Leases that it saw.
	// +required
	Count int32 `json:"count" protobuf:"varint,14,opt,name=count"`
	// startTime is when the server started.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty" protobuf:"bytes,15,opt,name=startTime"`
	// observedTime is when the server last reported these values. Counts may be some seconds old.
	// +optional
	ObservedTime *metav1.Time `json:"observedTime,omitempty" protobuf:"bytes,16,opt,name=observedTime"`
	// conditions are Reachable (the server answers this API server) and Ready (an agent takes new dials).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" protobuf:"bytes,17,rep,name=conditions"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TunnelServerList is a list of TunnelServers.
type TunnelServerList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	// items are the TunnelServers.
	Items []TunnelServer `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TunnelConnection is a connection of kube-apiserver that the tunnel carries now. Connections can be read and listed,
// but not watched, because there may be many of them and they change fast.
type TunnelConnection struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name consists of the server's name and a number.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// status is what the server reports.
	// +optional
	Status TunnelConnectionStatus `json:"status,omitempty" protobuf:"bytes,2,opt,name=status"`
}

// TunnelConnectionStatus is what a server reports of a connection.
type TunnelConnectionStatus struct {
	// serverID is the ID of the server that carries the connection.
	// +required
	ServerID string `json:"serverID" protobuf:"bytes,1,opt,name=serverID"`
	// agentID is the ID of the agent. It is empty if the server made the connection itself.
	// +optional
	AgentID string `json:"agentID,omitempty" protobuf:"bytes,2,opt,name=agentID"`
	// nodeName is the node of the agent, if the server knows it.
	// +optional
	NodeName string `json:"nodeName,omitempty" protobuf:"bytes,3,opt,name=nodeName"`
	// destination is the address that the connection leads to, as kube-apiserver asked for it.
	// +required
	Destination string `json:"destination" protobuf:"bytes,4,opt,name=destination"`
	// since is when the connection was established.
	// +required
	Since metav1.Time `json:"since" protobuf:"bytes,5,opt,name=since"`
	// bytesToAgent counts the bytes for the destination.
	// +required
	BytesToAgent int64 `json:"bytesToAgent" protobuf:"varint,6,opt,name=bytesToAgent"`
	// bytesFromAgent counts the bytes from the destination.
	// +required
	BytesFromAgent int64 `json:"bytesFromAgent" protobuf:"varint,7,opt,name=bytesFromAgent"`
	// observedTime is when the server reported these values.
	// +required
	ObservedTime metav1.Time `json:"observedTime" protobuf:"bytes,8,opt,name=observedTime"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TunnelConnectionList is a list of TunnelConnections.
type TunnelConnectionList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	// items are the TunnelConnections.
	Items []TunnelConnection `json:"items" protobuf:"bytes,2,rep,name=items"`
}
