// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"encoding/json"
	"os"
	"sync"

	"k8s.io/klog/v2"

	gatewaysocks5 "github.com/fairlead-dev/fairlead/pkg/gateway/socks5"
)

// audit writes one line for each connection: JSON to a file, or a log line.
type audit struct {
	mu     sync.Mutex
	file   *os.File
	failed bool
}

func newAudit(path string) (*audit, error) {
	if path == "" {
		return &audit{}, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	return &audit{file: f}, err
}

// Record writes a line.
func (a *audit) Record(r gatewaysocks5.Record) {
	if a.file == nil {
		klog.InfoS("Connection ended", "client", r.Client, "protocol", r.Protocol, "user", r.User, "groups", r.Groups,
			"destination", r.Destination, "kind", r.Kind, "namespace", r.Namespace, "name", r.Name, "address", r.Address,
			"result", r.Result, "err", r.Error, "bytesSent", r.BytesSent, "bytesReceived", r.BytesReceived, "seconds", r.Seconds)
		return
	}
	line, err := json.Marshal(r)
	if err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		_, err = a.file.Write(append(line, '\n'))
	}
	if err != nil && !a.failed {
		klog.ErrorS(err, "Writing the audit log failed", "file", a.file.Name())
	}
	a.failed = err != nil
}

// Close closes the file.
func (a *audit) Close() error {
	if a.file == nil {
		return nil
	}
	return a.file.Close()
}
