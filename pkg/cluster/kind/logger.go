// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"fmt"
	"strings"
	"sync"
	"time"

	kindlog "sigs.k8s.io/kind/pkg/log"

	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// logger converts kind's own log into the steps of a progress.Reporter and keeps
// the rest for failures.
type logger struct {
	progress progress.Reporter

	mu      sync.Mutex
	running string
	began   time.Time
	kept    strings.Builder
}

var _ kindlog.Logger = (*logger)(nil)

func newLogger(reporter progress.Reporter) *logger { return &logger{progress: reporter} }

// titles maps the beginnings of kind's step titles to ours.
var titles = []struct{ kind, ours string }{
	{"Ensuring node image", ""}, // the image is already there
	{"Preparing nodes", "Starting the node containers"},
	{"Configuring the external load balancer", "Configuring the load balancer"},
	{"Writing configuration", "Writing kubeadm's configuration"},
	{"Starting control-plane", "Starting the control plane: kubeadm init"},
	{"Installing CNI", "Installing the Pod network"},
	{"Installing StorageClass", "Installing the StorageClass"},
	{"Joining more control-plane nodes", "Joining control plane nodes"},
	{"Joining worker nodes", "Joining worker nodes"},
}

// title returns "" for a step that is not worth a line.
func title(text string) string {
	for _, t := range titles {
		if strings.HasPrefix(text, t.kind) {
			return t.ours
		}
	}
	return text
}

// info handles a message that kind shows by default; its steps look like " •
// Preparing nodes ...", and end with " ✓ Preparing nodes" or a cross.
func (l *logger) info(text string) {
	trimmed := strings.TrimSpace(text)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case strings.HasPrefix(trimmed, "•") && strings.HasSuffix(trimmed, "..."):
		l.running = title(strings.TrimSpace(strings.Trim(trimmed, "•.")))
		if l.running != "" {
			l.began = time.Now()
			l.progress.Begin(l.running)
		}
	case strings.HasPrefix(trimmed, "✓"):
		l.end(nil)
	case strings.HasPrefix(trimmed, "✗"):
		l.end(errStep)
	}
}

// errStep only marks a failed step; kind returns the error itself.
var errStep = fmt.Errorf("failed")

func (l *logger) end(err error) {
	if l.running != "" {
		l.progress.End(since(l.began), err)
	}
	l.running = ""
}

// since formats the duration of a step.
func since(began time.Time) string { return fmt.Sprintf("%.1fs", time.Since(began).Seconds()) }

// close ends a step that kind left open.
func (l *logger) close(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(err)
}

// keptLimit bounds the log that is kept; kubeadm with -v6 logs a lot.
const keptLimit = 8 << 20

func (l *logger) keep(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept.Len() < keptLimit {
		l.kept.WriteString(strings.TrimRight(text, "\n") + "\n")
	}
}

// text returns all of kind's log.
func (l *logger) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept.String()
}

// Warn implements kind's logger.
func (l *logger) Warn(message string) { l.keep("warning: " + message) }

// Warnf implements kind's logger.
func (l *logger) Warnf(format string, args ...any) { l.Warn(fmt.Sprintf(format, args...)) }

// Error implements kind's logger.
func (l *logger) Error(message string) { l.keep("error: " + message) }

// Errorf implements kind's logger.
func (l *logger) Errorf(format string, args ...any) { l.Error(fmt.Sprintf(format, args...)) }

// V implements kind's logger.
func (l *logger) V(level kindlog.Level) kindlog.InfoLogger { return infoLogger{l, level} }

type infoLogger struct {
	*logger
	level kindlog.Level
}

// keptLevel is the verbosity of kubeadm's output.
const keptLevel = 3

// Enabled implements kind's logger.
func (i infoLogger) Enabled() bool { return i.level <= keptLevel }

// Info implements kind's logger.
func (i infoLogger) Info(message string) {
	if i.Enabled() {
		i.keep(message)
	}
	if i.level == 0 {
		i.info(message)
	}
}

// Infof implements kind's logger.
func (i infoLogger) Infof(format string, args ...any) { i.Info(fmt.Sprintf(format, args...)) }
