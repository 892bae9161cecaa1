// SPDX-License-Identifier: Apache-2.0

package settings

// DefaultStateAudience is the default of --state-audience: what the tokens of programs that ask for state are for.
const DefaultStateAudience = "tunnel.fairlead.dev"

// Defaults of flags that bound the memory of both programs, in bytes. The programs, their
// libraries and the bundle, which computes memory limits of containers, share them.
const (
	// DefaultLinkWindow is the default of --link-window.
	DefaultLinkWindow = 256 << 10
	// DefaultLinkMaxWindow is the default of --link-max-window.
	DefaultLinkMaxWindow = 4 << 20
	// DefaultLinkBudget is the default of --link-budget.
	DefaultLinkBudget = 32 << 20
	// DefaultConnBuffer is the default of --conn-buffer.
	DefaultConnBuffer = 16 << 20
	// DefaultPeerBuffer is the default of --peer-buffer.
	DefaultPeerBuffer = 256 << 20
	// DefaultTotalBuffer is the default of --total-buffer.
	DefaultTotalBuffer = 1 << 30
)
