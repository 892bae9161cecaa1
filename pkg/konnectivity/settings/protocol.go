// SPDX-License-Identifier: Apache-2.0

package settings

// Protocol is what a server and an agent speak with each other.
type Protocol string

const (
	// ProtocolAny is Fairlead's own protocol with peers that have it, otherwise upstream's.
	ProtocolAny Protocol = ""
	// ProtocolUpstream is upstream's protocol only.
	ProtocolUpstream Protocol = "upstream"
	// ProtocolFairlead is Fairlead's own protocol only. Upstream's has no flow control per connection.
	ProtocolFairlead Protocol = "fairlead"
)

// NextProtos returns the ALPN protocols, given that of Fairlead's own, which is preferred.
func (p Protocol) NextProtos(own string) []string {
	const upstream = "h2"
	switch p {
	case ProtocolUpstream:
		return []string{upstream}
	case ProtocolFairlead:
		return []string{own}
	}
	return []string{own, upstream}
}
