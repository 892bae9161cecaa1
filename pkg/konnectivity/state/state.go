// SPDX-License-Identifier: Apache-2.0

package state

import "time"

// Version is the version of the protocol that this package describes.
const Version = 1

// Paths of the protocol.
const (
	// Path answers with a State.
	Path = "/v1/state"
	// ConnectionsPath answers with Connections. Its parameters are "after" and "limit".
	ConnectionsPath = "/v1/connections"
)

const (
	// DefaultLimit is the number of connections in an answer to a request that names none.
	DefaultLimit = 1000
	// MaxLimit is the greatest number of connections in an answer.
	MaxLimit = 5000
	// MaxAnswer is the size in bytes of an answer that a client reads at most.
	MaxAnswer = 64 << 20
)

// State is what a server knows of itself and its agents.
type State struct {
	Version int `json:"version"`
	// Time is when the server wrote the answer, by its own clock.
	Time   time.Time `json:"time"`
	Server Server    `json:"server"`
	Links  []Link    `json:"links"`
}

// Modes of Server.CountMode.
const (
	CountByFlag   = "ServerCount"
	CountByLeases = "Leases"
)

// Server is the server itself.
type Server struct {
	ID string `json:"id"`
	// Host is the name of the machine.
	Host           string    `json:"host,omitempty"`
	ProgramVersion string    `json:"programVersion,omitempty"`
	Started        time.Time `json:"started"`
	// Mode is the protocol with kube-apiserver, "grpc" or "http-connect".
	Mode       string   `json:"mode,omitempty"`
	Strategies []string `json:"strategies,omitempty"`
	// Ready means that an agent takes new dials.
	Ready bool `json:"ready"`
	// Stopping means that the server takes no new agents.
	Stopping bool `json:"stopping,omitempty"`
	// CertificateNotAfter is when the certificate expires that agents see.
	CertificateNotAfter *time.Time `json:"certificateNotAfter,omitempty"`
	// CountMode says from what agents know how many servers there are, and Count what this server knows of it: the
	// value of the flag, or the number of Leases that were valid when it last listed them.
	CountMode    string `json:"countMode,omitempty"`
	Count        int    `json:"count"`
	PendingDials int64  `json:"pendingDials"`
	Connections  int64  `json:"connections"`
	// LocalConnections are those that the server itself made, see --local-destinations.
	LocalConnections int64 `json:"localConnections,omitempty"`
}

// Protocols of Link.Protocol.
const (
	ProtocolFairlead = "fairlead"
	ProtocolUpstream = "upstream"
)

// Link is one connection of an agent to the server. An agent may have several.
type Link struct {
	AgentID string `json:"agentID"`
	// Owner is the node that the agent's token is bound to, or the common name of its certificate, if the server
	// knows one.
	Owner string `json:"owner,omitempty"`
	// Pod is the name of the Pod that the agent's token is bound to, if the server knows it.
	Pod string `json:"pod,omitempty"`
	// Peer is the address that the agent connects from.
	Peer string `json:"peer"`
	// AgentVersion is the version of the agent's program, if it sends one.
	AgentVersion string `json:"agentVersion,omitempty"`
	Protocol     string `json:"protocol"`
	// Identifiers are what the agent says that it reaches, as "kind=value".
	Identifiers []string  `json:"identifiers,omitempty"`
	Since       time.Time `json:"since"`
	// RTTMicroseconds is the shortest round trip on the link. It is 0 if none was measured.
	RTTMicroseconds int64 `json:"rttMicroseconds,omitempty"`
	OpenConnections int   `json:"openConnections"`
	PendingDials    int   `json:"pendingDials"`
	DialsTotal      int64 `json:"dialsTotal"`
	DialFailures    int64 `json:"dialFailures"`
	BytesToAgent    int64 `json:"bytesToAgent"`
	BytesFromAgent  int64 `json:"bytesFromAgent"`
	// Draining means that the link ends when its connections have ended.
	Draining bool `json:"draining,omitempty"`
	// Silent means that the agent has left a ping unanswered and gets no new dials if another agent can take them.
	Silent bool `json:"silent,omitempty"`
}

// Connections is a page of connections, ordered by their serial numbers.
type Connections struct {
	Version int       `json:"version"`
	Time    time.Time `json:"time"`
	// ServerID and Started are those of the server. Serial numbers begin with 1 when a server starts.
	ServerID    string       `json:"serverID"`
	Started     time.Time    `json:"started"`
	Connections []Connection `json:"connections"`
	// More means that there were connections with greater serial numbers.
	More bool `json:"more"`
}

// Connection is a connection that the server carries.
type Connection struct {
	Serial      int64  `json:"serial"`
	Destination string `json:"destination"`
	// AgentID and Owner are those of the link. They are empty for a connection that the server itself made.
	AgentID        string    `json:"agentID,omitempty"`
	Owner          string    `json:"owner,omitempty"`
	Since          time.Time `json:"since"`
	BytesToAgent   int64     `json:"bytesToAgent"`
	BytesFromAgent int64     `json:"bytesFromAgent"`
}
