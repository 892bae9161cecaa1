// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// PodLogs is where the kubelet keeps the logs of containers:
// <namespace>_<pod>_<uid>/<container>/<restarts>.log.
const PodLogs = "/var/log/pods"

// LastLogLines returns the last lines of a static Pod's container from its
// newest log, or nil if no log is newer than since.
func LastLogLines(h nodefs.Host, namespace, pod, container string, since time.Time, n int) []string {
	logs, _ := filepath.Glob(h.Path(filepath.Join(PodLogs, namespace+"_"+pod+"-*", container, "*.log")))
	var newest string
	var at time.Time
	for _, name := range logs {
		name = h.Follow(h.Name(name))
		if info, err := os.Stat(name); err == nil && info.ModTime().After(at) && !info.ModTime().Before(since) {
			newest, at = name, info.ModTime()
		}
	}
	if newest == "" {
		return nil
	}
	return tail(newest, n)
}

// tail reads the end of a log in CRI format, "TIME stdout F TEXT".
func tail(name string, n int) []string {
	file, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer file.Close()
	const window = 64 << 10
	if end, err := file.Seek(0, io.SeekEnd); err == nil {
		_, _ = file.Seek(max(0, end-window), io.SeekStart)
	}
	data, err := io.ReadAll(io.LimitReader(file, window))
	if err != nil {
		return nil
	}
	var lines []string
	for scanner := bufio.NewScanner(bytes.NewReader(data)); scanner.Scan(); {
		line := scanner.Text()
		if fields := strings.SplitN(line, " ", 4); len(fields) == 4 && (fields[1] == "stdout" || fields[1] == "stderr") {
			line = fields[3]
		}
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines[max(0, len(lines)-n):]
}
