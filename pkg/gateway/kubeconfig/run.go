// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"syscall"

	"k8s.io/apimachinery/pkg/runtime"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// extension marks clusters that this package has written. Its value tells runs apart.
const extension = "fairlead.dev/gateway"

// mark is the run that has written an entry.
type mark struct {
	Run string `json:"run"`
	// PID and Started are the process, and Boot the start of its machine: numbers of processes are used again.
	PID     int    `json:"pid,omitempty"`
	Started string `json:"started,omitempty"`
	Boot    string `json:"boot,omitempty"`
	// Current is the current context when the entry was added.
	Current string `json:"current,omitempty"`
	// Former is what a run that has ended has left.
	Former former `json:"former,omitzero"`
}

func newMark() mark {
	pid := os.Getpid()
	return mark{Run: rand.Text(), PID: pid, Started: startOf(pid), Boot: boot()}
}

// marked returns the run that has written a cluster's entry; its Run is empty if none has.
func marked(c *clientcmdapi.Cluster) (m mark) {
	if c == nil {
		return m
	}
	raw, ok := c.Extensions[extension].(*runtime.Unknown)
	if !ok || json.Unmarshal(raw.Raw, &m) != nil {
		return mark{}
	}
	return m
}

// lives reports whether the run goes on. One on another machine, which shares the file, counts as ended, and so does one
// on a system other than Linux and macOS.
func (m mark) lives() bool {
	if m.PID <= 0 || m.Boot == "" || m.Started == "" || m.Boot != boot() {
		return false
	}
	if err := syscall.Kill(m.PID, 0); err != nil && !errors.Is(err, syscall.EPERM) {
		return false
	}
	return m.Started == startOf(m.PID)
}
