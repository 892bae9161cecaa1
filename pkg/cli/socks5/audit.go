// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	gatewaysocks5 "github.com/fairlead-dev/fairlead/pkg/gateway/socks5"
	"github.com/fairlead-dev/fairlead/pkg/internal/logthrottle"
)

// audit writes one line for each connection of a user: JSON to a file, or a log line. What else connects, such as a
// port scanner, must not fill the disk: the lines of clients without a user are throttled.
type audit struct {
	strangers *logthrottle.Log
	path      string // empty for log lines

	mu     sync.Mutex
	file   *os.File
	info   os.FileInfo // of file
	failed bool
}

func newAudit(path string) (*audit, error) {
	a := &audit{strangers: logthrottle.New(klog.Background(), 0), path: path}
	if path == "" {
		return a, nil
	}
	return a, a.open()
}

// open opens the file, in place of the one that is open.
func (a *audit) open() error {
	f, err := os.OpenFile(a.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return err
	}
	if a.file != nil {
		_ = a.file.Close()
	}
	a.file, a.info = f, info
	return nil
}

// follow opens the file again if its path leads to another one or to none: the log was rotated. If that fails, the old
// one stays. The caller holds a.mu.
func (a *audit) follow() error {
	if at, err := os.Stat(a.path); err == nil && os.SameFile(at, a.info) {
		return nil
	}
	if err := a.open(); err != nil {
		return fmt.Errorf("open the file again after it was renamed or removed: %w: lines go to the old file: make the path writable for this process", err)
	}
	return nil
}

// Record writes a line.
func (a *audit) Record(r gatewaysocks5.Record) {
	if r.User == "" {
		var ok bool
		r.Repeated, ok = a.strangers.Admit(logthrottle.Event{
			Peer: gateway.ClientOf(r.Client).String(), Message: r.Protocol, Why: []any{"result", r.Result, "err", r.Error},
		})
		if !ok {
			return
		}
	}
	if a.path == "" {
		logRecord(r)
		return
	}
	line, err := json.Marshal(r)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		err = a.follow()
		_, writeErr := a.file.Write(append(line, '\n'))
		err = errors.Join(err, writeErr)
	}
	if err != nil && !a.failed {
		klog.ErrorS(err, "Writing the audit log failed", "file", a.path)
	}
	a.failed = err != nil
}

func logRecord(r gatewaysocks5.Record) {
	pairs := []any{"client", r.Client, "protocol", r.Protocol, "user", r.User, "groups", r.Groups,
		"destination", r.Destination, "kind", r.Kind, "namespace", r.Namespace, "name", r.Name, "address", r.Address,
		"result", r.Result, "err", r.Error, "bytesSent", r.BytesSent, "bytesReceived", r.BytesReceived, "seconds", r.Seconds}
	if r.Repeated > 0 {
		pairs = append(pairs, "repeated", r.Repeated)
	}
	klog.InfoS("Connection ended", pairs...)
}

// Close closes the file.
func (a *audit) Close() error {
	if a.file == nil {
		return nil
	}
	return a.file.Close()
}
