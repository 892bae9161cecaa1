// SPDX-License-Identifier: Apache-2.0

// Package gobuild runs `go build` and reports how far it is. With empty caches, Kubernetes takes minutes to compile:
// users want to see that the build goes on.
package gobuild

import (
	"bytes"
	"os/exec"
	"strings"
	"sync"
)

// Progress is what a build has done so far.
type Progress struct {
	// Compiled is the number of packages that were not in Go's build cache.
	Compiled int
	// Downloaded is the number of modules that were not in Go's module cache.
	Downloaded int
}

// Run runs a command such as `go build -v ./cmd/...`, whose arguments have -v, and returns what it printed besides the names of
// packages. It calls report after each package and module.
func Run(cmd *exec.Cmd, report func(Progress)) ([]byte, error) {
	p := &parser{report: report}
	cmd.Stdout, cmd.Stderr = p, p
	err := cmd.Run()
	p.end()
	return p.rest.Bytes(), err
}

// parser takes the lines of progress out of the output.
type parser struct {
	report func(Progress)

	mu   sync.Mutex
	line []byte
	done Progress
	rest bytes.Buffer
}

func (p *parser) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line = append(p.line, data...)
	for {
		i := bytes.IndexByte(p.line, '\n')
		if i < 0 {
			return len(data), nil
		}
		p.read(string(p.line[:i+1]))
		p.line = p.line[i+1:]
	}
}

func (p *parser) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.line) > 0 {
		p.read(string(p.line))
	}
}

func (p *parser) read(line string) {
	text := strings.TrimSuffix(line, "\n")
	switch {
	case strings.HasPrefix(text, "go: downloading "):
		p.done.Downloaded++
	case text != "" && !strings.ContainsAny(text, " \t:#"): // the path of a package
		p.done.Compiled++
	default:
		p.rest.WriteString(line)
		return
	}
	p.report(p.done)
}
