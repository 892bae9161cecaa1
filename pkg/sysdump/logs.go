// SPDX-License-Identifier: Apache-2.0

package sysdump

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/internal/parallel"
	"github.com/fairlead-dev/fairlead/pkg/observe"
)

// logRead is a log to read: of a Pod's container, of the container that ran before it, or of a process.
type logRead struct {
	program  observe.Program
	file     string
	previous bool
}

type logText struct {
	text string
	cut  bool
	err  error
}

// logs are those of servers, the second scheduler, the operator, the tunnel's API server, the gateway and some agents. Some are read at
// the same time, in groups that share the time that is left: logs that hang leave time for those that do not.
func (d *dump) logs(ctx context.Context) error {
	for groups := slices.Collect(slices.Chunk(d.logReads(), parallel.Limit)); len(groups) > 0; groups = groups[1:] {
		limit := observe.ProbeLimit
		if end, ok := ctx.Deadline(); ok {
			limit = min(limit, time.Until(end)/time.Duration(len(groups)))
		}
		texts, err := parallel.Map(ctx, groups[0], func(ctx context.Context, r logRead) (logText, error) { return d.readLog(ctx, limit, r), nil })
		if err != nil {
			return err
		}
		for i, r := range groups[0] {
			d.miss(r.file, texts[i].err)
			if texts[i].err != nil && texts[i].text == "" {
				continue
			}
			if err := d.add(r.file, []byte(safe(texts[i].text)), texts[i].cut); err != nil {
				return err
			}
		}
	}
	return nil
}

// logReads are the logs to read in their order. Agents are last, because they are many, and programs that are not ready come before others of their kind.
func (d *dump) logReads() []logRead {
	programs := slices.Clone(d.s.Programs.Value)
	slices.SortStableFunc(programs, func(a, b observe.Program) int { return cmp.Compare(logOrder(a), logOrder(b)) })
	agents := 0
	var out []logRead
	for _, p := range programs {
		name := logName(p)
		if p.Role == check.RoleAgent {
			if agents++; agents > d.o.Agents {
				d.miss(name+".log", fmt.Errorf("logs of %d agents are enough: set --agents", d.o.Agents))
				continue
			}
		}
		if p.Role == check.RoleAPIServer || p.Role == check.RoleOtherScheduler {
			continue // they write of everything in the cluster
		}
		out = append(out, logRead{p, name + ".log", false})
		if p.Pod != nil && p.Restarts > 0 {
			out = append(out, logRead{p, name + ".previous.log", true})
		}
	}
	return out
}

func logOrder(p observe.Program) int {
	order := 0
	if p.Role == check.RoleAgent {
		order = 2
	}
	if p.Ready {
		order++
	}
	return order
}

func (d *dump) readLog(ctx context.Context, limit time.Duration, r logRead) (out logText) {
	if r.program.Pod == nil {
		out.text, out.cut, out.err = tailOf(r.program.LogFile, d.o.LogSize)
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out.text, out.cut, out.err = d.podLog(ctx, r.program, r.previous)
	return out
}

// logName is the file of a program's log, without its extension. A Pod may have several programs.
func logName(p observe.Program) string {
	name := "logs/" + fileName(p.Name)
	if p.Pod != nil && len(p.Pod.Spec.Containers) > 1 {
		name += "_" + p.Container.Name
	}
	return name
}

// podLog reads the end of a log: whole lines of at most that many bytes.
func (d *dump) podLog(ctx context.Context, p observe.Program, previous bool) (string, bool, error) {
	const lines = 5000
	stream, err := d.client.CoreV1().Pods(p.Pod.Namespace).GetLogs(p.Pod.Name, &corev1.PodLogOptions{
		Container: p.Container.Name, Previous: previous, TailLines: ptr.To(int64(lines)), Timestamps: true}).Stream(ctx)
	if err != nil {
		return "", false, err
	}
	defer stream.Close()
	text, err := readEnd(stream, d.o.LogSize)
	if err != nil { // the log hangs: whole lines are there
		text, err = text[:bytes.LastIndexByte(text, '\n')+1], fmt.Errorf("its end: %w", err)
	}
	end, cut := lastLines(text, d.o.LogSize)
	return end, cut, err
}

// readEnd reads all, and keeps at least that many bytes of the end and one more, which shows that there was more.
func readEnd(in io.Reader, limit int64) ([]byte, error) {
	var kept []byte
	part := make([]byte, 32<<10)
	for {
		n, err := in.Read(part)
		kept = append(kept, part[:n]...)
		if size := int64(len(kept)); size > 2*limit+1 {
			kept = append(kept[:0], kept[size-limit-1:]...)
		}
		switch {
		case errors.Is(err, io.EOF):
			return kept, nil
		case err != nil:
			return kept, err
		}
	}
}

// tailOf reads the end of a file.
func tailOf(file string, limit int64) (string, bool, error) {
	if file == "" {
		return "", false, errors.New("where it logs is unknown")
	}
	f, err := os.Open(file)
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err != nil || size <= limit {
		_, err = f.Seek(0, io.SeekStart)
		if err != nil {
			return "", false, err
		}
		data, err := io.ReadAll(f)
		return string(data), false, err
	}
	if _, err := f.Seek(-limit-1, io.SeekEnd); err != nil {
		return "", false, err
	}
	data, err := io.ReadAll(f)
	end, _ := lastLines(data, limit)
	return end, true, err
}

// lastLines drops a first line that is cut, since the beginning of a credential may be in the part before.
func lastLines(text []byte, limit int64) (string, bool) {
	if int64(len(text)) <= limit {
		return string(text), false
	}
	text = text[int64(len(text))-limit:]
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		return string(text[i+1:]), true
	}
	return "", true
}
