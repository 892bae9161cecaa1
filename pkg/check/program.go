// SPDX-License-Identifier: Apache-2.0

package check

// Role is what a program is for.
type Role string

// The roles.
const (
	RoleAPIServer Role = "kube-apiserver"
	RoleServer    Role = "konnectivity-server"
	RoleAgent     Role = "konnectivity-agent"
	// RoleScheduler is a replica of the second scheduler, RoleOtherScheduler any other scheduler.
	RoleScheduler      Role = "second-scheduler"
	RoleOtherScheduler Role = "scheduler"
	// RoleOperator and RoleTunnelAPI are Fairlead's operator and the tunnel's extension API server, RoleGateway is the proxy for clients.
	RoleOperator  Role = "fairlead-operator"
	RoleTunnelAPI Role = "fairlead-apiserver"
	RoleGateway   Role = "fairlead-gateway"
)

// Program is a part of the cluster that runs, as far as its arguments and state are known.
type Program struct {
	Role Role   `json:"role"`
	Name string `json:"name"`
	// Args are its command and arguments.
	Args []string `json:"args,omitempty"`
	// Ready is its own readiness; Problem says why it is not ready.
	Ready    bool   `json:"ready"`
	Problem  string `json:"problem,omitempty"`
	Restarts int    `json:"restarts,omitempty"`
	// Local means that paths and addresses in Args are those of this machine.
	Local bool `json:"local,omitempty"`
	// LogFile is where a process of this machine logs.
	LogFile string `json:"-"`
}
