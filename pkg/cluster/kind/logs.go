// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/fsutil"
)

// CollectLogs implements cluster.Driver. After an interrupt it leaves out the nodes' logs.
// If the cluster is kept, its user may want kind's.
func (p *plan) CollectLogs(interrupted bool) (hint string, err error) {
	if p.library == nil || interrupted && !p.options.Retain {
		return "", nil
	}
	err = p.keepLogs(!interrupted)
	if interrupted {
		return "", err
	}
	return outOfInotify(p.LogDir()), err
}

// logLimit bounds the collection of logs; kind's library takes no context.
const logLimit = 30 * time.Second

// keepLogs writes kind's log and, if nodes is true, also the nodes' logs.
func (p *plan) keepLogs(nodes bool) error {
	if err := os.MkdirAll(p.LogDir(), 0o700); err != nil {
		return err
	}
	if text := p.log.text(); text != "" {
		if err := fsutil.WriteFile(filepath.Join(p.LogDir(), "kind.log"), []byte(text), 0o600); err != nil {
			return err
		}
	}
	if !nodes {
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.library.CollectLogs(kindName(p.Name), p.LogDir())
	}()
	select {
	case <-done:
		return nil // best effort: nodes that never started, and small images, do not have all requested logs
	case <-time.After(logLimit):
		return fmt.Errorf("collecting the nodes' logs took longer than %v", logLimit)
	}
}

// inotifyLimit is a limit of the machine that all containers share. If it has
// its old default of 128, systemd in a few nodes exhausts it.
const inotifyLimit = "/proc/sys/fs/inotify/max_user_instances"

// outOfInotify detects from the nodes' logs that the nodes did not start for
// lack of inotify instances, and says what to do. kind only reports that the
// nodes are gone.
func outOfInotify(logs string) string {
	files, _ := filepath.Glob(filepath.Join(logs, "*", "serial.log"))
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(data, []byte("inotify")) || !bytes.Contains(data, []byte("Too many open files")) {
			continue
		}
		limit, _ := os.ReadFile(inotifyLimit)
		return fmt.Sprintf("%s could not start: the inotify instances of this machine are used up (fs.inotify.max_user_instances = %s): raise the limit with \"sudo sysctl fs.inotify.max_user_instances=1024\", or remove other clusters",
			filepath.Base(filepath.Dir(file)), bytes.TrimSpace(limit))
	}
	return ""
}
